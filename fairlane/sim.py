# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The sim backend: runs a scenario in virtual time, on a simulated host and a modelled drive, with the real schedulers.

Every knob, repeat and point of a sweep is one run of fl-sim, a process of its own; as many at once as this machine
has cores. What they find does not depend on that, nor on this machine: the same seed gives the same results.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairlane import __version__, proc, schedulers, ssd, trace
from fairlane.errors import FairlaneError
from fairlane.files import NO_SPACE, NoSpace, written
from fairlane.host import Progress
from fairlane.results import Results, Run, check_folder
from fairlane.scenario import OURS, ROOT, Profile, Scenario, TenantSpec, Variant, load_profile

KNOBS = ("none", *OURS)
TRACES = "sim-traces"  # the folder of converted ones
RAW = "sim"  # the folder of what fl-sim was given and what it found
COSTS = ROOT / "microbench" / "cpu.toml"
PROGRAM = ROOT / "build" / "sim" / "fl-sim"
BUILD_S = 300.0
LIMIT_S = 24 * 3600.0
NS, PS = 1e9, 1e12
BLOCK = 512
CHECK_S = 600.0  # a trace is read to its end
LONGEST_INTERVAL_S = 1200.0  # between the I/Os of a job that has a rate
# What fl-sim calls a key of a scenario, by kind of drive, and of a tenant.
DEVICE_KEYS = {
    "null_blk": {"queue_depth": "hw_queue_depth", "queues": "submit_queues", "latency_ns": "completion_nsec"},
    "qemu-nvme": {"queues": "max_ioqpairs"},
}
TENANT_KEYS = {"bytes": "bs", "depth": "iodepth"}
NOT_PLAYED = ("memory", "memory_backed", "seed")  # data are not kept, and the scenario has a seed
NVME_DEPTH = 1023  # Linux' nvme driver: queues of 1024 entries, one of which stays empty
# What null_blk has for a parameter that a profile leaves out.
NULL_BLK = {"size": 250 << 30, "irqmode": 1, "completion_nsec": 10_000, "hw_queue_depth": 64, "submit_queues": 1}


def run(
    scenario: Scenario, profile: str | None, knobs: Sequence[str], out: Path, progress: Callable[[Progress], None]
) -> Results:
    """Run the scenario under each knob, on that profile's drive or else on its own.

    OUT/sim-traces has the traces that are not in MQSim's format, in it. OUT/sim keeps what fl-sim was given and what it
    found. It is replaced as a whole, after the last run: one that fails
    or is interrupted leaves it as it was.
    """
    check_knobs(knobs)
    drive = profile_of(scenario, profile)
    _check_loads(scenario, drive)
    results = Results(scenario.name, "sim", scenario.seed, __version__)
    results.unavailable = {knob: why for knob in knobs if (why := unavailable(knob, drive))}
    usable = [knob for knob in dict.fromkeys(knobs) if knob not in results.unavailable]
    if not usable:
        raise FairlaneError("; ".join(f"{knob}: {why}" for knob, why in results.unavailable.items()))
    build()
    costs = load_costs()
    check_folder(out)
    if (out / RAW).is_file():
        raise FairlaneError(f"{out / RAW}: is a file, where the simulator's folder is to be; remove it")
    scenario = converted(scenario, out / TRACES)
    jobs = [
        Job(scenario, drive, variant, point, repeat)
        for repeat in range(scenario.repeats)
        for point in scenario.points
        for knob in usable
        for variant in scenario.runs_of(knob)
    ]
    results.device = {"profile": drive.name, "description": drive.description, **simulated(drive)}
    results.machine = {"simulated_cores": scenario.cores, "costs_measured_on": costs["machine"]}
    results.notes = [*_notes(scenario, drive), *_not_measured(usable, costs), *_beyond_what_was_measured(jobs, costs)]
    with tempfile.TemporaryDirectory(prefix=".sim-", dir=out) as temporary:
        folder = Path(temporary) / RAW
        folder.mkdir()
        results.runs = _run_all(jobs, folder, costs, progress)
        shutil.rmtree(out / RAW, ignore_errors=True)
        folder.rename(out / RAW)
    for job, found in zip(jobs, results.runs, strict=True):
        results.config.setdefault(found.knob, {"tunables": tunables_of(job), "costs": costs_of(job, costs)})
    return results


def check(path: Path, scenario: Scenario, profile: str | None, knobs: Sequence[str]) -> None:
    """Refuse, before anything runs, what run() would refuse of that file's scenario; traces are read to their end."""
    check_knobs(knobs)
    build()
    drive = profile_of(scenario, profile)
    try:
        _check_loads(scenario, drive)
        costs = load_costs()
        with tempfile.TemporaryDirectory() as folder:
            scenario = converted(scenario, Path(folder))
            for point in scenario.points:
                for knob in dict.fromkeys(knobs):
                    if not unavailable(knob, drive):
                        for variant in scenario.runs_of(knob):
                            _check_one(Job(scenario, drive, variant, point, 0), costs)
    except FairlaneError as error:
        raise FairlaneError(f"{path}: {error}") from error


def converted(scenario: Scenario, folder: Path) -> Scenario:
    """With every trace as fl-sim reads it: in MQSim's format, and of the devices that the tenant names alone."""

    def ready(tenant: TenantSpec) -> TenantSpec:
        if tenant.trace is None:
            return tenant
        path, file = Path(tenant.trace), folder.resolve() / f"{tenant.name}.trace"
        if trace.format_of(path) == "mqsim" and not tenant.devices:
            return tenant
        trace.to_mqsim(trace.read(path, devices=tenant.devices), file)
        return replace(tenant, trace=str(file), devices=())

    return replace(scenario, tenants=tuple(map(ready, scenario.tenants)))


def _check_one(job: Job, costs: dict[str, Any]) -> None:
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "given.json"
        with written(given):
            given.write_text(json.dumps(description(job, costs)))
        status = _fl_sim(job, ["-n", given], said.append, CHECK_S)
    if status:
        raise FairlaneError(_in_the_scenarios_words(job, given, said, status))


def _in_the_scenarios_words(job: Job, given: Path, said: Sequence[str], status: int) -> str:
    """What fl-sim said, with the table and the key that a user wrote."""
    why = said[-1] if said else f"{PROGRAM.name} ended with exit status {status}"
    # It names either what it was given or the scenario, first of all: which may be called as a tenant is.
    why = re.sub(rf"^{PROGRAM.name}: ({re.escape(str(given))}|{re.escape(job.scenario.name)}): ", "", why)
    where, _, what = why.partition(": ")
    key, blank, rest = what.partition(" ")
    tenants, copies = job.scenario.tenants, job.scenario.at(job.point).tenants
    names = {copy.name: tenants[i % len(tenants)].name for i, copy in enumerate(copies)}
    if where == "drive":
        own = job.profile == job.scenario.profile
        key = DEVICE_KEYS.get(job.profile.kind, {}).get(key, key)
        return f"{'[device]' if own else f'the drive {job.profile.name},'} {key}{blank}{rest}"
    if where in names:
        return f"[[tenant]] {names[where]} {TENANT_KEYS.get(key, key)}{blank}{rest}"
    return why


def measure(scenarios: Sequence[Scenario], out: Path, progress: Callable[[Progress], None]) -> list[Run]:
    """Run each once, on its own drive and without a scheduler; OUT keeps what fl-sim was given and what it found."""
    build()
    jobs = [Job(what, what.profile, Variant("none", "none"), None, i) for i, what in enumerate(scenarios)]
    return _run_all(jobs, out, load_costs(), progress)


def check_knobs(knobs: Sequence[str]) -> None:
    others = [name for name in knobs if name not in KNOBS]
    if others:
        raise FairlaneError(
            f"the simulator has only our schedulers, not {', '.join(others)};"
            f" with --on sim, --knobs can name {', '.join(KNOBS)}"
        )


def unavailable(knob: str, drive: Profile) -> str | None:
    """Why that drive cannot be shared so, or None."""
    if knob in schedulers.ROUTING and (drive.kind != "ssd" or not drive.params.get("wrr", ssd.PROFILE["wrr"].default)):
        return f"{drive.name} has no weighted round robin arbitration, and {knob} leaves all to that"
    return None


def profile_of(scenario: Scenario, name: str | None) -> Profile:
    """The drive to simulate: that of profiles/, or by default the scenario's own with what it changes of that."""
    return scenario.profile if name is None else load_profile(name)


def simulated(profile: Profile) -> dict[str, int]:
    """The drive's parameters without those that a drive without data has no use for."""
    return {name: value for name, value in profile.params.items() if name not in NOT_PLAYED}


def _notes(scenario: Scenario, drive: Profile) -> list[str]:
    """What the results are not, in sentences."""
    own = scenario.profile
    notes = []
    if drive.name != own.name:
        lost = f"; what it changes of {own.name} is left out" if own != load_profile(own.name) else ""
        notes.append(
            f"The scenario was written for the drive {own.name} and ran on {drive.name}, as --on asks;"
            f" its bounds are for {own.name}{lost}."
        )
    elif drive != own:
        notes.append(f"What the scenario changes of the drive {own.name} is left out, as --on asks.")
    scale = drive.params.get("time_scale", 1)
    if scale != 1:
        notes.append(
            f"The drive is slowed down {scale} times, as the scenario asks, so that rates and latencies compare with"
            f" those in a VM; the simulated host is not."
        )
    return notes


def _check_loads(scenario: Scenario, drive: Profile) -> None:
    """Blocks as fio wants them on a real drive, and rates that can be simulated."""
    block = _block(drive)
    for tenant in scenario.tenants:
        if tenant.trace is None and tenant.bs % block:
            raise FairlaneError(
                f"[[tenant]] {tenant.name} bs: {tenant.bs} is not a multiple of the"
                f' {block} byte blocks of the drive {drive.name}; give such a multiple, or bs = "min"'
            )
        if tenant.rate and _iops(tenant, drive) * LONGEST_INTERVAL_S < tenant.jobs:
            raise FairlaneError(
                f"[[tenant]] {tenant.name} rate: the simulator plays no less than an I/O of each job in"
                f" {LONGEST_INTERVAL_S / 60:g} minutes"
            )


def _block(profile: Profile) -> int:
    """The smallest block that the drive takes."""
    return profile.params.get("block_size", profile.params.get("bs", BLOCK))


def load_costs() -> dict[str, Any]:
    """What microbench/ measured."""
    return tomllib.loads(COSTS.read_text())


def build() -> None:
    """Make fl-sim if its sources are newer than it is."""
    proc.output(["make", "-s", "-C", ROOT / "sim"], what="building the simulator", limit_s=BUILD_S)


# --- One run ---


@dataclass(frozen=True)
class Job:
    """One knob, one point of the sweep, one repeat."""

    scenario: Scenario
    profile: Profile
    variant: Variant
    point: int | None
    repeat: int

    @property
    def name(self) -> str:
        return self.variant.name + (f"-{self.point}" if self.point is not None else "") + f"-{self.repeat}"


@dataclass
class _Watch:
    """How far each of the runs is, 0..1; and whether they are to end."""

    parts: list[float]
    tell: Callable[[float], None]
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def set(self, i: int, part: float) -> None:
        with self.lock:
            self.parts[i] = part
            self.tell(sum(self.parts) / len(self.parts))


def _run_all(
    jobs: Sequence[Job], folder: Path, costs: dict[str, Any], progress: Callable[[Progress], None]
) -> list[Run]:
    step = _step(jobs)
    watch = _Watch([0.0] * len(jobs), lambda part: progress(Progress(step, part)))
    pool = ThreadPoolExecutor(os.cpu_count())
    with proc.unwinding_signals():
        try:
            futures = [pool.submit(_run_one, job, folder, costs, watch, i) for i, job in enumerate(jobs)]
            return [future.result() for future in futures]
        finally:
            watch.stop.set()
            pool.shutdown(cancel_futures=True)


def _step(jobs: Sequence[Job]) -> str:
    """What is going on, for people."""
    scenario, count = jobs[0].scenario, len(jobs)
    what = f"{' and '.join(dict.fromkeys(job.variant.name for job in jobs))} on a simulated {jobs[0].profile.name}"
    runs = f"{count} runs of" if count > 1 else "a run of"
    cores = f"{scenario.cores} core{'s' * (scenario.cores > 1)}"
    return f"{what} with {cores}, {runs} {scenario.warmup + scenario.seconds:g} simulated s"


def _run_one(job: Job, folder: Path, costs: dict[str, Any], watch: _Watch, number: int) -> Run:
    given, found = folder / f"{job.name}.given.json", folder / f"{job.name}.found.json"
    with written(given):
        given.write_text(json.dumps(description(job, costs), indent=1))
    said: list[str] = []

    def line(text: str) -> None:
        if text.isdecimal():
            watch.set(number, int(text) / 1000)
        else:
            said.append(text)

    status = _fl_sim(job, ["-p", "-o", found, given], line, LIMIT_S, watch.stop)
    if status:
        if said and said[-1].endswith(tuple(f"cannot be written: {os.strerror(number)}" for number in NO_SPACE)):
            raise NoSpace(found)
        why = _in_the_scenarios_words(job, given, said, status)
        raise FairlaneError(f"the simulator cannot run {job.scenario.name} under {job.variant.name}: {why}")
    return Results.load(found).runs[0]


def _fl_sim(
    job: Job,
    options: Sequence[str | Path],
    line: Callable[[str], None],
    limit_s: float,
    stop: threading.Event | None = None,
) -> int:
    """Its exit status; each line that it says goes to `line`."""
    deadline = time.monotonic() + limit_s
    try:
        with proc.group([PROGRAM, *options]) as process:
            return proc.lines(
                process, lambda text, _err: line(text), lambda: 0.0 if stop and stop.is_set() else deadline
            )
    except proc.TimedOut:
        raise FairlaneError(f"{PROGRAM.name}: {job.name} of {job.scenario.name} was stopped") from None


# --- What fl-sim is given: see sim/config.h ---


def description(job: Job, costs: dict[str, Any]) -> dict[str, Any]:
    whole, scenario = job.scenario, job.scenario.at(job.point)
    point = {"point": {"cgroups": job.point}} if job.point is not None else {}
    cost = {"prices": {"read": whole.cost.read, "write": whole.cost.write}} if whole.cost else {}
    groups = sorted(scenario.groups, key=lambda group: _depth(scenario, group.name))
    return {
        "scenario": whole.name,
        "version": __version__,
        "knob": job.variant.knob,
        "label": job.variant.name,
        "seed": whole.seed + job.repeat,
        "repeat": job.repeat,
        **point,
        "cores": whole.cores,
        "warmup_ns": round(whole.warmup * NS),
        "run_ns": round(whole.seconds * NS),
        "tunables": tunables_of(job),
        "cpu": costs_of(job, costs),
        **cost,
        "drive": drive(job.profile, whole.queues or whole.cores),
        "cgroups": [{"name": group.name, "weight": group.weight, "parent": group.parent} for group in groups],
        "tenants": [_tenant(tenant, scenario, job.profile) for tenant in scenario.tenants],
    }


def _depth(scenario: Scenario, name: str) -> int:
    parents = {group.name: group.parent for group in scenario.groups}
    depth, parent = 0, parents[name]
    while parent is not None:
        depth, parent = depth + 1, parents[parent]
    return depth


def _size(job: Job) -> tuple[int, int]:
    """Flows, the root included, and hardware queues."""
    flows = 1 + len(job.scenario.groups) + len(job.scenario.at(job.point).tenants)
    return flows, drive(job.profile, job.scenario.queues or job.scenario.cores)["queues"]


def _cpu_of(knob: str, costs: dict[str, Any]) -> dict[str, Any]:
    """What that scheduler was measured to take, or else what the first one of ours was: a guess, which results tell."""
    measured: dict[str, Any] = costs["scheduler"].get(knob, costs["scheduler"][OURS[0]])
    return measured


def _not_measured(knobs: Sequence[str], costs: dict[str, Any]) -> list[str]:
    """A note, if the CPU time of a scheduler was never measured."""
    return [
        f"The CPU time of {knob} was not measured, and is taken to be that of {OURS[0]};"
        f" to measure it, run make -C microbench cpu ONLY={knob}."
        for knob in knobs
        if knob not in costs["scheduler"]
    ]


def _beyond_what_was_measured(jobs: Sequence[Job], costs: dict[str, Any]) -> list[str]:
    """A note, if any of the jobs is larger than the runs that costs are from."""
    flows, queues = (max(sizes) for sizes in zip(*map(_size, jobs), strict=True))
    rows = [row for job in jobs for row in _cpu_of(job.variant.knob, costs)["requests"]]
    most_flows, most_queues = (max(row[column] for row in rows) for column in (0, 1))
    if flows <= most_flows and queues <= most_queues:
        return []
    return [
        f"There are {flows:,} flows and {queues:,} hardware queues; what the scheduler costs a request was measured"
        f" with at most {most_flows} and {most_queues}, and is taken to be the same beyond."
    ]


def tunables_of(job: Job) -> dict[str, int]:
    return {**job.scenario.tunables.get(job.variant.knob, {}), **job.variant.set}


def costs_of(job: Job, costs: dict[str, Any]) -> dict[str, int]:
    """As measured, with the next larger number of flows and hardware queues that was, or the largest."""
    mine = _cpu_of(job.variant.knob, costs)
    flows, queues = _size(job)
    rows = sorted(mine["requests"])
    fitting = [row for row in rows if row[0] >= flows and row[1] >= queues]
    enough_queues = [row for row in rows if row[1] >= queues] or rows
    _, _, insert, dispatch, done = fitting[0] if fitting else enough_queues[-1]
    return {
        **costs["host"],
        **(costs["low_latency"] if job.variant.low_latency else {}),
        "insert_ns": round(insert),
        "dispatch_ns": round(dispatch),
        "done_ns": round(done),
        "lock_ns": round(mine["lock_ns"]),
        "lock_read_ps": round(mine["lock_read_ns"] * 1000),
    }


def drive(profile: Profile, cores: int) -> dict[str, Any]:
    """The drive as fl-sim wants it: a modelled SSD has a hardware queue for each core, or group of cores."""
    if profile.kind == "ssd":
        values = {name: profile.params.get(name, known.default) for name, known in ssd.PROFILE.items()}
        played = {name: profile.params.get(name, ssd.PLAYED[name].default) for name in ("queue_depth", "time_scale")}
        fresh = profile.params.get("precondition") == 0
        return {"kind": "ssd", "queues": cores, **played, "precondition": not fresh, **values}
    if profile.kind == "null_blk":
        params = NULL_BLK | profile.params
        return {
            "kind": "null",
            "queues": min(params["submit_queues"], cores),
            "queue_depth": params["hw_queue_depth"],
            "size": params["size"],
            "latency_ns": params["completion_nsec"] if params["irqmode"] == 2 else 0,
            "interval_ps": 0,
        }
    return {
        "kind": "null",
        "queues": min(profile.params.get("max_ioqpairs", cores), cores),
        "queue_depth": NVME_DEPTH,
        "size": profile.params["size"],
        "latency_ns": 0,
        "interval_ps": round(PS / profile.params["iops"]) if profile.params.get("iops") else 0,
    }


def _tenant(tenant: TenantSpec, scenario: Scenario, profile: Profile) -> dict[str, Any]:
    return {
        "name": tenant.name,
        "weight": tenant.weight,
        "parent": tenant.parent,
        "jobs": tenant.jobs,
        "depth": tenant.iodepth,
        **(_replay(tenant, profile) if tenant.trace else _load(tenant, profile)),
        "cores": list(tenant.cores),
        "phases": [
            {
                "from_ns": round((scenario.warmup + start) * NS) if start else 0,
                "to_ns": round((scenario.warmup + stop) * NS),
            }
            for start, stop in tenant.phases(scenario.seconds)
        ],
    }


def _replay(tenant: TenantSpec, profile: Profile) -> dict[str, Any]:
    return {"trace": tenant.trace, "block": _block(profile), "full_speed": tenant.speed == "full"}


def _iops(tenant: TenantSpec, profile: Profile) -> float:
    """The most that its rate allows; 0 without one."""
    rate = tenant.rate
    if rate is None:
        return 0.0
    return rate.iops if rate.iops is not None else (rate.bytes_per_s or 0.0) / (tenant.bs or _block(profile))


def _load(tenant: TenantSpec, profile: Profile) -> dict[str, Any]:
    """What a tenant without a trace requests."""
    iops = _iops(tenant, profile)
    return {
        "bytes": tenant.bs or _block(profile),
        "read_percent": round(tenant.reads * 100),
        "random": tenant.rw.startswith("rand"),
        "think_ns": round(tenant.thinktime * NS),
        "interval_ps": round(PS * tenant.jobs / iops) if iops else 0,
        "poisson": tenant.poisson,
    }
