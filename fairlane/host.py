# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The host backend: runs a scenario on this machine's kernel, with real cgroups and fio as the load.

Whatever ends a run (its end, an error, Ctrl-C, SIGTERM), the scheduler, its tunables, queue/nr_requests, the cgroups
and io.cost are afterwards as they were.
"""

from __future__ import annotations

import errno
import math
import os
import platform
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from fairlane import __version__, cgroups, fio, iocost, knobs, measure, trace
from fairlane.devices import NVME_SERIAL
from fairlane.errors import FairlaneError
from fairlane.proc import unwinding_signals
from fairlane.results import Results, Run, Tenant, jain
from fairlane.scenario import Scenario, TenantSpec, shares
from fairlane.store import Store, room
from fairlane.suite import Unit

HARMLESS = ("nullb", "vssd", "fairlane")  # drives that hold no data; the last is null_blk as our VM names it on 6.12
OVERHEAD_S = 1.5  # of a run, for starting and collecting; only progress depends on it
MODEL_S = len(measure.COEFFICIENTS) * (measure.WARMUP + measure.SECONDS + OVERHEAD_S)
# io.cost's speeds that are tried, relative to that at which its model is as fast as the drive was under the load.
SPEEDS = (0.96, 0.92, 0.88, 0.84, 0.8)
FAIR = 0.02  # the largest error of a share at which io.cost is in control of the device
TARGETS = (4, 8, 16, 32)  # latency targets that are tried, relative to the mean
KEPT = 0.97  # of the throughput without them, that they are to leave
SETTLE_S, SETTLE_STEPS = 2.5, 8  # for a vrate that the kernel moves: how long it is looked at, and how often
ELSEWHERE = 0.25  # how far a run may be from what a knob was set from


@dataclass(frozen=True)
class Progress:
    """Where a scenario has got to."""

    step: str  # what is going on now, for people
    fraction: float  # of the whole scenario, 0..1


class _Steps:
    """Turns the progress of one step after the other into that of the whole."""

    def __init__(self, total_s: float, tell: Callable[[Progress], None]) -> None:
        self.total_s, self.done_s, self.tell = total_s, 0.0, tell

    def step(self, name: str, length_s: float, part: float) -> None:
        self.tell(Progress(name, min(1.0, (self.done_s + length_s * part) / self.total_s)))

    def finish(self, length_s: float) -> None:
        self.done_s += length_s


def run(
    scenario: Scenario,
    device: str,
    knob_names: list[str],
    out: Path,
    progress: Callable[[Progress], None],
    *,
    destroy_data: str | None = None,
    renew: Callable[[], None] | None = None,
    time_scale: int = 1,
    known: dict[str, knobs.Need] | None = None,
) -> Results:
    """Run the scenario under each knob in turn on the block device; OUT keeps fio's job files and output.

    Before each run renew() brings the device back to the state that it began in; None: it cannot be brought back.
    time_scale says how much slower the drive is than what it models. What was measured for knobs goes to `known`, by
    the load; what is there is not measured again.

    Repeats take turns with the knobs, so that a machine that grows slower is unfair to none of them.
    """
    knobs.check_names(knob_names)
    target = free_target(device, scenario, destroy_data)
    results = Results(scenario.name, f"host:{device}", scenario.seed, __version__, kernel=platform.release())
    results.device = _describe(device)
    results.machine = {"cpus": os.cpu_count(), "memory_bytes": _memory_bytes()}
    with _terminable(), _claimed_for(device, renew):
        usable = _usable(device, knob_names, results)
        run_s = _run_s(scenario)
        runs_s = run_s * len(usable) * scenario.repeats * len(scenario.points)
        steps = _Steps(runs_s + _needs_s(scenario, usable), progress)
        needs = _needs(
            _Bench(scenario, device, target, out, steps, renew, time_scale), usable, {} if known is None else known
        )
        for repeat in range(scenario.repeats):
            for point in scenario.points:
                for name in usable:
                    job = _Job(scenario, device, target, knobs.TABLE[name], point, repeat, time_scale=time_scale)

                    def tell(part: float, title: str = job.title) -> None:
                        steps.step(title, run_s, part)

                    if renew:
                        renew()
                    got = _measured(job, needs[point], out / job.file, tell)
                    _keep(results, name, got)
                    steps.finish(run_s)
    _drop_refused(results)
    results.notes += _notes(scenario, results, needs)
    return results


def _keep(results: Results, name: str, got: _Got) -> None:
    results.runs.append(got.run)
    results.config.setdefault(name, got.config)
    if got.refused:
        results.unavailable.setdefault(name, got.refused)


def _drop_refused(results: Results) -> None:
    """A knob that was not as it was set in one of its runs has no figures."""
    results.runs = [run for run in results.runs if run.knob not in results.unavailable]


def _notes(scenario: Scenario, results: Results, needs: Mapping[int | None, knobs.Need]) -> list[str]:
    """What io.cost did, and which knobs were set from what did not hold in the runs."""
    found = []
    for run in results.runs:
        where = f" at {run.point['cgroups']} cgroups" if run.point else ""
        seen = run.counters.get("io.cost")
        if seen and run.repeat == 0:
            low, high, mean = (seen["vrate"][key] for key in ("low", "high", "mean"))
            allowed = " to ".join(f"{percent:g}" for percent in dict.fromkeys(seen["range"]))
            text = f"{mean:.1f} % on average ({low:.1f} to {high:.1f}; allowed: {allowed})"
            found.append(f"{run.knob}{where}: cost.vrate was {text}; {seen['speed']}.")
        need = needs[run.point["cgroups"] if run.point else None]
        if run.knob == "none" and need.bytes_per_s and not scenario.tuned_for and run.repeat == 0:
            off = run.total_bytes_per_s / need.bytes_per_s - 1
            names = [name for name in results.knobs if "bytes_per_s" in knobs.TABLE[name].needs]
            if abs(off) > ELSEWHERE and names:
                found.append(
                    f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} set from {need.bytes_per_s / 1e6:.1f}"
                    f" MB/s{where}, and none moved {off:+.0%} of that in its run: do not go by them."
                )
    return found


def run_units(
    todo: Sequence[Unit],
    device: str,
    store: Store,
    progress: Callable[[Unit], None],
    *,
    destroy_data: str | None = None,
    renew: Callable[[], None] | None = None,
    bad: Callable[[], list[str]] = list,
) -> None:
    """Run a suite's units one after the other; each is in the store as soon as it is done.

    renew() brings a drive that was written to back to the state that it began in. bad() says what the kernel has
    complained of since it was last asked.
    """
    writes = next((unit.scenario for unit in todo if unit.scenario.writes), todo[0].scenario)
    target = free_target(device, writes, destroy_data)
    written = False
    with room(store.folder), _terminable(), _claimed_for(device, renew):
        reasons = available(device, list(dict.fromkeys(unit.knob for unit in todo)))
        for unit in todo:
            progress(unit)
            results = Results(unit.scenario.name, f"host:{device}", unit.scenario.seed, __version__)
            results.kernel = platform.release()
            results.machine = {"cpus": os.cpu_count(), "memory_bytes": _memory_bytes()}
            results.device = _describe(device)
            if why := reasons[unit.knob]:
                results.unavailable = {unit.knob: why}
            else:
                known = store.kept("io.cost")
                time_scale = unit.scenario.profile.params.get("time_scale", 1) if renew else 1
                bench = _Bench(writes, device, target, store.raw, _Steps(1.0, lambda _now: None), renew, time_scale)
                need = _need(unit, bench, store)
                if renew and (written or known != store.kept("io.cost")):  # a model is measured with writes, too
                    renew()
                written = unit.scenario.writes
                tuning = _tuning(unit, store)
                job = _Job(unit.scenario, device, target, knobs.TABLE[unit.knob], None, 0, tuning, time_scale)
                got = _measured(job, need, store.raw / unit.id, lambda _part: None)
                got.run.bad_dmesg = bad()
                _keep(results, unit.knob, got)
                _drop_refused(results)
            store.save(unit, results)


def _need(unit: Unit, bench: _Bench, store: Store) -> knobs.Need:
    """What the unit's knob is set from: the same load under `none`, or a model that is measured once."""
    tuning, wants = unit.tuning, knobs.TABLE[unit.knob].needs
    if tuning.idle or tuning.slack:
        return knobs.Need()
    most = store.run(unit.baseline).total_bytes_per_s if unit.baseline and "bytes_per_s" in wants else None
    cost = None
    if "io_cost" in wants:
        kept = store.kept("io.cost")
        if not kept:
            standard = replace(bench, scenario=store.standard)
            model = _io_cost_model(bench)
            kept = asdict(_io_cost_speed(standard, model, _alone(standard, "for io.cost"), qos=True))
            store.keep("io.cost", kept)
        cost = iocost.Tuned.of(kept)
    return knobs.Need(cost, most)


def _tuning(unit: Unit, store: Store) -> knobs.Tuning:
    """With a target that is relative to the latency of the tenant with priority when it is alone."""
    if unit.knob != "io.latency" or unit.target_of_alone is None or unit.alone is None:
        return unit.tuning
    alone = store.run(unit.alone).tenants[0].lat_us["p50"]
    if alone is None:
        raise FairlaneError(f"{store.path(unit.alone)}: knows no latency; delete the file and start again")
    return replace(unit.tuning, target_us=max(1, round(alone * unit.target_of_alone)))


# --- One run ---


@dataclass(frozen=True)
class _Job:
    """One knob, one point of the sweep, one repeat."""

    scenario: Scenario
    device: str
    target: fio.Target
    knob: knobs.Knob
    point: int | None
    repeat: int
    tuning: knobs.Tuning = knobs.BY_WEIGHT
    time_scale: int = 1

    @property
    def title(self) -> str:
        parts = [self.knob.name]
        if self.point is not None:
            parts.append(f"{self.point} cgroup{'s' * (self.point != 1)}")
        if self.scenario.repeats > 1:
            parts.append(f"repeat {self.repeat + 1} of {self.scenario.repeats}")
        return ", ".join(parts)

    @property
    def file(self) -> str:
        return self.knob.name + (f"-{self.point}" if self.point is not None else "") + f"-{self.repeat}"


@dataclass(frozen=True)
class _Got:
    run: Run
    config: dict[str, Any]
    drive_us: dict[str, float]  # "read", "write": mean latency at the drive, whatever held I/Os back before it
    refused: str | None = None  # why the figures say nothing: the knob was not as it was set


def _measured(job: _Job, need: knobs.Need, out: Path, progress: Callable[[float], None]) -> _Got:
    """Make the cgroups, apply the knob, run the load, and undo it all."""
    scenario = job.scenario.at(job.point)
    number = _number(job.device)
    with cgroups.tree(scenario.groups, scenario.tenants) as tree:
        setting = knobs.Setting(job.device, number, tree, scenario, need, job.tuning, job.time_scale)
        with knobs.applied(job.knob, setting) as config:
            inside = {tenant.name: tree.inside(tenant.name) for tenant in scenario.tenants}
            vrates: list[tuple[float, float]] = []
            times: list[tuple[float, iocost.DriveTimes]] = []
            wrong: list[str] = []
            looked = False

            def watch(part: float) -> None:
                nonlocal looked
                progress(part)
                times.append((time.time(), iocost.drive_times(knobs.SYS_BLOCK / job.device)))
                vrate = iocost.vrate(tree.mount, number)
                if vrate is not None:
                    vrates.append((time.time(), vrate))
                if part > 0.5 and not looked:  # under load
                    looked = True
                    wrong.extend(knobs.differing(setting))

            def play(what: Scenario, file: Path, seed: int) -> fio.Measured:
                return fio.run(
                    what,
                    job.target,
                    file,
                    cgroups=inside,
                    counts=lambda: {t.name: cgroups.moved(tree, t.name, number) for t in what.tenants},
                    seed=seed,
                    progress=watch,
                )

            if job.knob.name == "io.cost-qos" and not (job.tuning.idle or job.tuning.slack):
                _settle(scenario, play, vrates, out)
            before = _usage(tree, number)
            measured = play(scenario, out, scenario.seed + job.repeat)
            counters: dict[str, Any] = {
                "device": knobs.numbers(knobs.tunables(job.device)),
                "tenants": knobs.tenant_counters(tree, number),
            }
            begin, end = measured.window
            inside_window = [vrate for when, vrate in vrates if begin <= when <= end]
            if inside_window and "io.cost.qos" in config:
                seen = iocost.Seen.of(inside_window)
                _, qos = knobs.io_cost_setting(job.knob, setting)
                used = {name: now - before[name] for name, now in _usage(tree, number).items()}
                counters["io.cost"] = {
                    "vrate": asdict(seen),
                    "range": [qos.low, qos.high],
                    "usage_us": used,
                    "speed": config["speed"],
                }
                if why := seen.wrong(qos, _steady(scenario)):
                    wrong.append(why)
    refused = f"it was not as it was set, so its figures are left out ({'; '.join(wrong)})" if wrong else None
    within = [now for when, now in times if begin <= when <= end]
    means = within[-1].means_us(within[0]) if within else {}
    return _Got(_result(job, scenario, measured, counters), config, means, refused)


def _usage(tree: cgroups.Tree, number: str) -> dict[str, int]:
    return {name: iocost.usage_us(path, number) or 0 for name, path in tree.paths.items()}


def _steady(scenario: Scenario) -> bool:
    """Whether the load is the same all the time."""
    return not any(tenant.start or tenant.stop is not None or tenant.trace for tenant in scenario.tenants)


def _settle(
    scenario: Scenario,
    play: Callable[[Scenario, Path, int], fio.Measured],
    vrates: Sequence[tuple[float, float]],
    out: Path,
) -> None:
    """Play the load until the kernel has stopped moving vrate, or for so long that it will not."""
    tenants = tuple(replace(tenant, start=0.0, stop=None) for tenant in scenario.tenants)
    load = replace(scenario, tenants=tenants, seconds=SETTLE_S, warmup=0.5)
    for _ in range(SETTLE_STEPS):
        begin, end = play(load, out.with_name(out.name + "-settle"), scenario.seed).window
        seen = [vrate for when, vrate in vrates if begin <= when <= end]
        if seen and iocost.Seen.of(seen).settled:
            return


def _result(job: _Job, scenario: Scenario, measured: fio.Measured, counters: dict[str, Any]) -> Run:
    ideal = shares(scenario)
    seconds = measured.seconds
    tenants = []
    for spec in scenario.tenants:
        load = measured.loads[spec.name]
        tenants.append(
            Tenant(
                name=spec.name,
                weight=spec.weight,
                share=ideal[spec.name],
                bytes_per_s=(load.read_bytes + load.write_bytes) / seconds,
                iops=load.ios / seconds,
                read_bytes_per_s=load.read_bytes / seconds,
                write_bytes_per_s=load.write_bytes / seconds,
                cost_per_s=_cost_per_s(job, spec, load, seconds),
                lat_us=load.lat_us,
                series=load.series,
            )
        )
    ios = measured.ios
    return Run(
        knob=job.knob.name,
        repeat=job.repeat,
        point={"cgroups": job.point} if job.point is not None else None,
        seconds=seconds,
        tenants=tenants,
        total_bytes_per_s=sum(tenant.bytes_per_s for tenant in tenants),
        total_iops=ios / seconds,
        fairness_index=jain(tenant.bytes_per_s / tenant.share for tenant in tenants),
        cpu_ns_per_io=measured.busy_s * 1e9 / ios if measured.busy_s is not None and ios else None,
        counters=counters,
    )


def _cost_per_s(job: _Job, spec: TenantSpec, load: fio.Load, seconds: float) -> float | None:
    """By the price list, of I/Os of the tenant's block size, or of its trace's sizes.

    The block layer neither splits nor merges them much.
    """
    if job.scenario.cost is None:
        return None
    if spec.trace:
        sizes = _of_trace(spec.trace, spec.devices, job.target)
    else:
        size = spec.bs or job.target.block
        sizes = {"read": Counter((size,)), "write": Counter((size,))}
    cost = 0.0
    for op, moved in (("read", load.read_bytes), ("write", load.write_bytes)):
        if known := sizes[op]:
            total = sum(size * many for size, many in known.items())
            cost += moved * sum(job.scenario.cost.cost(op, size) * many for size, many in known.items()) / total
    return cost / seconds


@cache
def _of_trace(path: str, devices: tuple[int, ...], target: fio.Target) -> dict[str, Counter[int]]:
    """How many requests of each size, in bytes, it has of each operation."""
    found: dict[str, Counter[int]] = {"read": Counter(), "write": Counter()}
    for request in trace.read(Path(path), devices=devices):
        found["write" if request.write else "read"][trace.placed(request, target.capacity, target.block)[1]] += 1
    return found


# --- Before the runs ---


def available(device: str, names: Sequence[str]) -> dict[str, str | None]:
    """For each knob why this kernel cannot apply it to the drive, or None."""
    check_device(device)
    with unwinding_signals(), cgroups.tree((), ()) as tree:
        return {name: knobs.unavailable(knobs.TABLE[name], device, tree.mount, tree.top) for name in names}


def _usable(device: str, names: list[str], results: Results) -> list[str]:
    """The knobs that this kernel has; the others and why go into the results."""
    reasons = available(device, names)
    results.unavailable = {name: reason for name, reason in reasons.items() if reason is not None}
    usable = [name for name in dict.fromkeys(names) if reasons[name] is None]
    if not usable:
        raise FairlaneError(
            "no knob can run: " + "; ".join(f"{name}: {why}" for name, why in results.unavailable.items())
        )
    return usable


@dataclass(frozen=True)
class _Bench:
    """What every measurement before the runs needs."""

    scenario: Scenario
    device: str
    target: fio.Target
    out: Path
    steps: _Steps
    renew: Callable[[], None] | None = None
    time_scale: int = 1

    def begin(self) -> None:
        """With the drive as it is at the beginning of a run."""
        if self.renew:
            self.renew()

    def progress(self, what: str, length_s: float) -> Callable[[float], None]:
        return lambda part: self.steps.step(f"measuring {what}", length_s, part)


def _run_s(scenario: Scenario) -> float:
    return scenario.warmup + scenario.seconds + OVERHEAD_S


def tuning_s(scenario: Scenario) -> float:
    """About how long it takes to find how io.cost is to be set, when the load by itself is known."""
    return MODEL_S + 1.5 * _run_s(scenario)


def _needs_s(scenario: Scenario, usable: Sequence[str]) -> float:
    load = scenario.tuned_for or scenario
    alone = len(load.points) * _run_s(load) if _wants("bytes_per_s", usable) or _wants("io_cost", usable) else 0.0
    return alone + (tuning_s(load) if _wants("io_cost", usable) else 0.0)


def _needs(bench: _Bench, usable: list[str], known: dict[str, knobs.Need]) -> dict[int | None, knobs.Need]:
    """Measure what knobs are set from, for each point of the sweep; io.cost is set once, for the middle one."""
    load = bench.scenario.tuned_for or bench.scenario
    key = repr((load.profile, load.tenants, load.groups, load.seconds, load.sweep))
    if not load.sweep and key in known:
        return {None: known[key]}
    wanting = [*_wants("bytes_per_s", usable), *_wants("io_cost", usable)]
    if not wanting:
        return dict.fromkeys(load.points, knobs.Need())
    found = {}
    for point in load.points:
        found[point] = _alone(replace(bench, scenario=load.at(point)), f"for {' and '.join(wanting)}")
    cost = None
    if _wants("io_cost", usable):
        point = load.points[len(load.points) // 2]
        at_point = replace(bench, scenario=load.at(point))
        cost = _io_cost_speed(at_point, _io_cost_model(at_point), found[point], "io.cost-qos" in usable)
    needs = {point: knobs.Need(cost, alone.bytes_per_s) for point, alone in found.items()}
    if not load.sweep:
        known[key] = needs[None]
    return needs


def _alone(bench: _Bench, why: str) -> fio.Measured:
    """The load without any knob."""
    load = bench.scenario
    bench.begin()
    with _bare(bench.device):
        tell = bench.progress(f"the load by itself {why}", _run_s(load))
        measured = measure.alone(load, bench.target, bench.out, tell)
    bench.steps.finish(_run_s(load))
    return measured


@contextmanager
def _bare(device: str) -> Iterator[None]:
    """The drive as it is without any knob."""
    with knobs.without_io_cost(cgroups.find_mount(), _number(device)), knobs.scheduler(device, "none"):
        yield


def _number(device: str) -> str:
    """MAJ:MIN."""
    return (knobs.SYS_BLOCK / device / "dev").read_text().strip()


def _wants(what: str, usable: Sequence[str]) -> list[str]:
    """The knobs that are set from that part of Need."""
    return [name for name in usable if what in knobs.TABLE[name].needs]


def _io_cost_model(bench: _Bench) -> iocost.Model:
    def tell(name: str, part: float) -> None:
        bench.progress(f"{name} for io.cost", MODEL_S)(part)

    bench.begin()
    with _bare(bench.device):
        model = measure.io_cost_model(bench.scenario, bench.target, bench.out, tell)
    bench.steps.finish(MODEL_S)
    return model


def _io_cost_speed(bench: _Bench, model: iocost.Model, alone: fio.Measured, qos: bool) -> iocost.Tuned:
    """At which speed of the model the weights have their due with all tenants busy.

    Below that at which the model is as fast as the drive was when the load was alone on it: from there on, the drive's
    own queue decides who is served. The fastest at which every tenant is charged its share, or else the fairest. With
    qos, the latency targets to go with it, too.
    """
    load = measure.busy(bench.scenario)
    busy = sum(
        model.busy(t, *(moved / (t.bs or bench.target.block) / alone.seconds for moved in _ways(alone.loads[t.name])))
        for t in load.tenants
    )
    found: tuple[float, iocost.Tuned, Run] | None = None
    drive_us: dict[str, float] = {}
    for part in SPEEDS:
        tuned = iocost.Tuned(model, busy * part, "")
        got = _tried(bench, load, "io.cost", tuned, f"{tuned.speed:.0%} of its model", f"{tuned.speed:.3f}")
        error = _charged_error(got.run)
        if found is None or error < found[0]:
            why = f"its model, scaled by {tuned.speed:.3f}, charged each tenant its share within {error:.1%}"
            found = error, replace(tuned, why=f"{why}, at {got.run.total_iops:,.0f} IOPS"), got.run
            drive_us = got.drive_us
        if error <= FAIR and not got.refused:
            break
    bench.steps.finish(tuning_s(load) - MODEL_S)
    assert found
    _, tuned, run = found
    return _io_cost_targets(bench, load, tuned, run, drive_us) if qos else tuned


def _io_cost_targets(
    bench: _Bench, load: Scenario, tuned: iocost.Tuned, by_model: Run, drive_us: Mapping[str, float]
) -> iocost.Tuned:
    """The tightest latency targets that cost no throughput: multiples of the drive's mean latencies at that speed."""
    found: tuple[float, iocost.Tuned] | None = None
    for times in TARGETS:
        tried = replace(tuned, targets_us={way: mean * times for way, mean in drive_us.items()})
        got = _tried(bench, load, "io.cost-qos", tried, f"targets of {times} times the mean", f"qos-{times}")
        if found is None or got.run.total_iops > found[0]:
            found = got.run.total_iops, tried
        if got.run.total_iops >= KEPT * by_model.total_iops and not got.refused:
            break
    assert found
    return found[1]


def _tried(bench: _Bench, load: Scenario, knob: str, tuned: iocost.Tuned, what: str, name: str) -> _Got:
    bench.begin()
    job = _Job(load, bench.device, bench.target, knobs.TABLE[knob], None, 0, time_scale=bench.time_scale)
    tell = bench.progress(f"{knob} with {what}", _run_s(load))
    return _measured(job, knobs.Need(tuned), bench.out / f"measure-{knob}-{name}", tell)


def _ways(load: fio.Load) -> tuple[float, float]:
    return load.read_bytes, load.write_bytes


def _charged_error(run: Run) -> float:
    """The largest relative error of a tenant's share of the time that io.cost charged."""
    used = run.counters.get("io.cost", {}).get("usage_us", {})
    total = sum(used.get(tenant.name, 0) for tenant in run.tenants)
    return max((abs(used[t.name] / total / t.share - 1) for t in run.tenants), default=math.inf) if total else math.inf


def _describe(device: str) -> dict[str, Any]:
    queue = knobs.SYS_BLOCK / device / "queue"
    return {
        "name": device,
        **identity(device),
        "nr_requests": int((queue / "nr_requests").read_text()),
        "hardware_queues": len(list((knobs.SYS_BLOCK / device / "mq").glob("*"))),
    }


def identity(device: str) -> dict[str, Any]:
    """What tells a drive from another that had its name: its size, and its model and serial number if it has any."""
    folder = check_device(device)
    said = {name: folder / "device" / name for name in ("model", "serial")}
    return {
        "capacity_bytes": int((folder / "size").read_text()) * 512,
        "block_bytes": int((folder / "queue/logical_block_size").read_text()),
        **{name: path.read_text().strip() for name, path in said.items() if path.is_file()},
    }


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


# --- What must not be touched ---


def free_target(device: str, scenario: Scenario, destroy_data: str | None) -> fio.Target:
    """The device, if the scenario may run on it: nobody uses it, and what it overwrites may be."""
    folder = check_device(device)
    if why := in_use(device):
        raise _taken(device, why)
    with claimed(device):  # refused when somebody uses it whom in_use() cannot see
        pass
    if scenario.writes and not _harmless(device) and destroy_data != device:
        raise FairlaneError(
            f"scenario {scenario.name} writes to {device} and destroys what is on it;"
            f" if that is meant, add --destroy-data {device}"
        )
    return fio.Target(
        path=Path("/dev") / device,
        capacity=int((folder / "size").read_text()) * 512,
        block=int((folder / "queue/logical_block_size").read_text()),
    )


def check_device(device: str) -> Path:
    """Its folder in sysfs, if it is a whole drive."""
    folder = knobs.SYS_BLOCK / device
    if not device or "/" in device or not (folder / "queue").is_dir():
        raise FairlaneError(f"no block device {device!r} in {knobs.SYS_BLOCK}; give a whole drive, such as nvme0n1")
    if not (folder / "queue/nr_requests").exists():
        raise FairlaneError(f"{device} has no I/O scheduler, as its driver does without; give another drive")
    return folder


def _harmless(device: str) -> bool:
    """Whether the drive keeps no data, or is the one that our own VM was given for this."""
    serial = knobs.SYS_BLOCK / device / "device/serial"
    return device.startswith(HARMLESS) or (serial.is_file() and serial.read_text().strip() == NVME_SERIAL)


def in_use(device: str, proc: Path = Path("/proc")) -> str | None:
    """How the drive is in use as far as sysfs and our own mounts show it, or None."""
    folder = knobs.SYS_BLOCK / device
    number = _number(device)
    if any((part / "partition").exists() for part in folder.glob(f"{device}*")):
        return "has partitions"
    if any((folder / "holders").glob("*")):
        holder = next((folder / "holders").glob("*")).name
        return f"is held by {holder}"
    if any(line.split()[2] == number for line in (proc / "self/mountinfo").read_text().splitlines()):
        return "is mounted"
    swaps = proc / "swaps"  # which a kernel without swap does not have
    lines = swaps.read_text().splitlines()[1:] if swaps.exists() else []
    if f"/dev/{device}" in [line.split()[0] for line in lines]:
        return "is in use as swap"
    return None


_claims: set[str] = set()  # the drives that we have claimed


@contextmanager
def claimed(device: str) -> Iterator[None]:
    """Keep the drive from everybody who wants it alone: a second run, a file system. fio does not want that."""
    if device in _claims:
        yield
        return
    claim = None
    try:
        claim = os.open(f"/dev/{device}", os.O_RDONLY | os.O_EXCL)
    except OSError as error:  # what else is wrong with it, fio says
        if error.errno == errno.EBUSY:
            why = in_use(device) or "is in use by a file system or another program, perhaps a second fairlane"
            raise _taken(device, why) from error
    _claims.add(device)
    try:
        yield
    finally:
        _claims.remove(device)
        if claim is not None:
            os.close(claim)


def _claimed_for(device: str, renew: Callable[[], None] | None) -> AbstractContextManager[None]:
    """A drive that is renewed goes away meanwhile, and so must not be open; but it is in a VM, where we are alone."""
    return nullcontext() if renew else claimed(device)


def _taken(device: str, why: str) -> FairlaneError:
    return FairlaneError(f"{device} {why}; give a drive that nothing else uses")


# --- Signals ---


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as Ctrl-C does, through every `finally`; further ones change nothing.

    Every wait on the way out has a limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(number: int, _frame: FrameType | None) -> None:
        for other in signals:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    before = [signal.signal(number, stop) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
