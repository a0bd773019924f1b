# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The sim backend: runs a scenario in virtual time, on a simulated host and a modelled drive, with the real schedulers.

Every knob, repeat and point of a sweep is one run of fl-sim, a process of its own: as many at once as this machine has
cores (cores.py), or on a Dask cluster (cluster.py). What they find does not depend on that, nor on the machine: the
same seed gives the same results.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairlane import __version__, schedulers
from fairlane.backends import program
from fairlane.backends.cores import Cores
from fairlane.backends.fl_sim import (
    Simulation,
    beyond_what_was_measured,
    block_of,
    cpu_of,
    description,
    iops_of,
    load_cpu,
    not_measured,
    tunables_of,
)
from fairlane.backends.job import Backend, Completing, Finished, Job, Pace, Tell, ignore
from fairlane.backends.measuring import CannotBeSetError, alone_us
from fairlane.backends.program import Played
from fairlane.backends.scenario_runs import ScenarioRun
from fairlane.backends.units import Place, Told, Unit, expected_s
from fairlane.errors import FairlaneError
from fairlane.experiment import modelled_ssd, traces
from fairlane.experiment.model import OURS, Profile, Scenario, TenantSpec
from fairlane.experiment.profiles import load_profile
from fairlane.experiment.results import Results, Run, check_folder
from fairlane.files import NO_SPACE, NoSpace, write_json, written
from fairlane.linux import knobs
from fairlane.linux.knob import Need, targeted

KNOBS = ("none", *OURS)
PROFILE, CORES = "p4500", 16  # of the suite, where nobody names another
TRACES = "sim-traces"  # the folder of converted ones
RAW = "sim"  # the folder of what fl-sim was given and what it found
FAILED = "failed"  # the folder of what it was given and could not run
CHECK_S = 600.0  # a trace is read to its end
LONGEST_INTERVAL_S = 1200.0  # between the I/Os of a job that has a rate
# What fl-sim calls a key of a scenario, by kind of drive, and of a tenant.
DEVICE_KEYS = {
    "null_blk": {"queue_depth": "hw_queue_depth", "queues": "submit_queues", "latency_ns": "completion_nsec"},
    "qemu-nvme": {"queues": "max_ioqpairs"},
}
TENANT_KEYS = {"bytes": "bs", "depth": "iodepth"}
FULL = tuple(f"cannot be written: {os.strerror(number)}" for number in NO_SPACE)
NOT_PLAYED = ("memory", "memory_backed", "seed")  # data are not kept, and the scenario has a seed


class Simulator(Backend):
    """Our schedulers on a simulated host and a modelled drive: the scenario's own, or --on sim:PROFILE."""

    name = "sim"
    usage = "sim or sim:PROFILE"
    options = ("cluster",)
    repeatable = True
    idle = False  # it has a scheduler and its weights, and so no knob that could be idle
    knobs = KNOBS
    pace = Pace(quick=(0.4, 0.2), full=(3.0, 0.5), calibration=(2.0, 1.0), map=(0.4, 0.2), batch_per_core=1, settings=7)
    replayed_on = 'profile = "p4500"'

    @property
    def cores(self) -> int:
        return CORES

    def drives(self) -> tuple[Profile, Profile]:
        drive = load_profile(self.place or PROFILE)
        return drive, drive

    def identity(self, _tell: Tell, _out: Path) -> dict[str, Any]:
        return {}

    def estimate_s(self, jobs: Sequence[Job], _done: Mapping[str, Run]) -> float:
        """On this machine's cores: nobody knows those of a cluster."""
        return sum(expected_s(self._simulation(job)) for job in jobs) / (os.cpu_count() or 1)

    def check_knobs(self, names: Sequence[str]) -> None:
        super().check_knobs(names)
        check_knobs(names)

    def check(self, path: Path, scenario: Scenario, knobs: Sequence[str]) -> None:
        """Traces are read to their end."""
        check_knobs(knobs)
        program.build()
        drive = profile_of(scenario, self.place)
        try:
            _check_loads(scenario, drive)
            cpu = load_cpu()
            with tempfile.TemporaryDirectory() as folder:
                ready = converted(scenario, Path(folder), set())
                for job in ScenarioRun(replace(scenario, repeats=1), knobs, Path(folder)).jobs:
                    if not unavailable(job.variant.knob, drive):
                        _check_one(Simulation(job, ready, drive), cpu)
        except FairlaneError as error:
            raise FairlaneError(f"{path}: {error}") from error

    def run(self, jobs: Sequence[Job], tell: Tell = ignore, done: Mapping[str, Run] = {}) -> Completing:
        """In any order, but those that are set from another come after all others. One that fails keeps none of the
        others from being run, except those that are set from it; it is told at the end.

        OUT/sim-traces has the traces that are not in MQSim's format, in it. OUT/sim keeps what fl-sim was given and
        what it found. It is replaced as a whole, after the last of the jobs that have that OUT: one that fails or is
        interrupted leaves it as it was. OUT/failed has what fl-sim was given when it failed.
        """
        check_knobs(list(dict.fromkeys(job.variant.knob for job in jobs)))
        whole = [self._simulation(job) for job in jobs]
        todo = [what for what in whole if not unavailable(what.job.variant.knob, what.drive)]
        program.build()
        cpu = load_cpu()
        with ExitStack() as stack:
            folders = {out: stack.enter_context(_replaced(out)) for out in dict.fromkeys(what.job.out for what in todo)}
            traced = {id(what.job.scenario): what for what in todo}
            made = set[Path]()
            ready = {key: converted(what.scenario, _for_traces(what.job), made) for key, what in traced.items()}
            todo = [replace(what, scenario=ready[id(what.job.scenario)]) for what in todo]
            units = [Unit(what, cpu, folders[what.job.out].folder) for what in todo]
            left, failed = Counter(what.job.out for what in todo), list[str]()
            for what in whole:
                if why := unavailable(what.job.variant.knob, what.drive):
                    yield Finished(what.job, _results(what, self.name, cpu, why))
            told = Told(units, tell)
            with closing(self._play(units, told, done)) as played:
                for unit, found in played:
                    out = unit.job.out
                    if isinstance(found, CannotBeSetError):
                        left[out] -= 1
                        yield Finished(unit.job, _results(unit.what, self.name, cpu, str(found)))
                        continue
                    told.finished(unit, found)
                    if found.status:
                        failed.append(_failure(unit, found))
                        continue
                    left[out] -= 1
                    if not left[out] and unit.job.raw:
                        folders[out].keep()
                    yield Finished(unit.job, _results(unit.what, self.name, cpu, found.run))
        if failed:
            more = f"; and {len(failed) - 1} more failed, which are in {FAILED} folders, too" if failed[1:] else ""
            raise FairlaneError(f"{failed[0]}{more}")

    def _play(
        self, units: Sequence[Unit], told: Told, done: Mapping[str, Run]
    ) -> Generator[tuple[Unit, _Found], None, None]:
        """Each with what was found, but those that are set from one that failed."""
        where, runs, lost = self._where(), dict(done), set[str]()
        later = {unit.job.id for unit in units if unit.job.tuning.target_of_alone is not None}
        awaited = {unit.job.needs.alone for unit in units if unit.job.id in later}
        for turn in (False, True):
            ready: list[Unit] = []
            for unit in units:
                if (unit.job.id in later) != turn or unit.job.needs.alone in lost:
                    continue
                try:
                    ready.append(_set(unit, runs))
                except CannotBeSetError as error:
                    yield unit, error
            if not ready:
                continue
            with closing(where.play(ready, told)) as played:
                for unit, found in played:
                    if found.status:
                        lost.add(unit.job.id)
                    elif unit.job.id in awaited:
                        runs[unit.job.id] = found.run
                    yield unit, found

    def _where(self) -> Place:
        if self.asked.cluster is None:
            return Cores()
        from fairlane.backends.cluster import Cluster  # noqa: PLC0415 (Dask takes a second to import)

        return Cluster(self.asked.cluster)

    def _simulation(self, job: Job) -> Simulation:
        drive = profile_of(job.scenario, self.place)
        _check_loads(job.scenario, drive)
        return Simulation(job, job.scenario, drive)


_Found = Played | CannotBeSetError


def _set(unit: Unit, done: Mapping[str, Run]) -> Unit:
    """The unit with what it is set from other runs."""
    job, what = unit.job, unit.what
    need = Need(alone_us=alone_us(job, done))
    return replace(unit, what=replace(what, scenario=targeted(what.scenario, job.tuning, need)))


def _results(what: Simulation, backend: str, cpu: dict[str, Any], run: Run | str) -> Results:
    """Of the run, or with why there is none."""
    job, drive = what.job, what.drive
    results = Results(job.scenario.name, backend, job.scenario.seed, __version__)
    if isinstance(run, str):
        results.unavailable = {job.variant.knob: run}
        return results
    results.device = {"profile": drive.name, "description": drive.description, **simulated(drive)}
    results.machine = {"simulated_cores": job.scenario.cores, "cpu_measured_on": cpu["machine"]}
    results.runs = [run]
    targets = {tenant.name: tenant.latency * 1e6 for tenant in what.scenario.tenants if tenant.latency}
    results.config = {run.knob: {"tunables": tunables_of(job), "cpu": cpu_of(what, cpu)}}
    results.config[run.knob] |= {"latency_us": targets} if targets else {}
    guessed = [*not_measured(job.variant.knob, cpu), *beyond_what_was_measured(what, cpu)]
    unknown = knobs.not_followed(job.variant.knob, job.scenario)
    results.notes = [*_notes(job.scenario, drive), *unknown, *guessed]
    return results


class _Replaced:
    """A folder that takes the place of another when it is kept."""

    def __init__(self, temporary: Path, place: Path) -> None:
        self.folder, self.place = temporary / place.name, place
        self.folder.mkdir()

    def keep(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        self.folder.rename(self.place)


@contextmanager
def _replaced(out: Path) -> Iterator[_Replaced]:
    """What is to be OUT/sim."""
    check_folder(out)
    if (out / RAW).is_file():
        raise FairlaneError(f"{out / RAW}: is a file, where the simulator's folder is to be; remove it")
    with tempfile.TemporaryDirectory(prefix=".sim-", dir=out) as temporary:
        yield _Replaced(Path(temporary), out / RAW)


def _for_traces(job: Job) -> Path:
    """The folder for converted ones: where many scenarios share OUT, one for each choice of traces."""
    if job.raw:
        return job.out / TRACES
    chosen = repr([(tenant.name, tenant.trace, tenant.devices) for tenant in job.scenario.tenants])
    return job.out / TRACES / hashlib.sha256(chosen.encode()).hexdigest()[:12]


def converted(scenario: Scenario, folder: Path, made: set[Path]) -> Scenario:
    """With every trace as fl-sim reads it: in MQSim's format, and of the devices that the tenant names alone.

    Those that are made already are not made again.
    """

    def ready(tenant: TenantSpec) -> TenantSpec:
        if tenant.trace is None:
            return tenant
        path, file = Path(tenant.trace), folder.resolve() / f"{tenant.name}.trace"
        if traces.format_of(path) == "mqsim" and not tenant.devices:
            return tenant
        if file not in made:
            traces.to_mqsim(traces.read(path, devices=tenant.devices), file)
            made.add(file)
        return replace(tenant, trace=str(file), devices=())

    return replace(scenario, tenants=tuple(map(ready, scenario.tenants)))


def _check_one(what: Simulation, cpu: dict[str, Any]) -> None:
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "given.json"
        with written(given):
            given.write_text(json.dumps(description(what, cpu)))
        status = program.run(["-n", given], said.append, f"{what.job.name} of {what.job.scenario.name}", CHECK_S)
    if status:
        raise FairlaneError(_in_the_scenarios_words(what, given, said, status))


def _failure(unit: Unit, found: Played) -> str:
    """What failed, where, why, and how to run that one alone; no space is an end of all."""
    what, (given, result) = unit.what, program.files_of(unit.folder, unit.name)
    if not found.where and any(each.endswith(FULL) for each in found.said[-1:]):
        raise NoSpace(result)
    alone = unit.job.out / FAILED / given.name
    write_json(alone, unit.given)
    where = f" (on {found.where})" if found.where else ""
    why = _in_the_scenarios_words(what, given, found.said, found.status)
    return (
        f"the simulator cannot run {what.job.scenario.name} under {what.job.variant.name}: {why}{where};"
        f" to run unit {what.job.id} alone: {program.PROGRAM} {alone}"
    )


def _in_the_scenarios_words(simulation: Simulation, given: Path, said: Sequence[str], status: int) -> str:
    """What fl-sim said, with the table and the key that a user wrote."""
    job, drive = simulation.job, simulation.drive
    name = program.PROGRAM.name
    why = said[-1] if said else f"{name} ended with exit status {status}"
    # It names either what it was given or the scenario, first of all: which may be called as a tenant is.
    why = re.sub(rf"^{name}: (.*given\.json|{re.escape(job.scenario.name)}): ", "", why)
    where, _, what = why.partition(": ")
    key, blank, rest = what.partition(" ")
    tenants, copies = job.scenario.tenants, job.scenario.at(job.point).tenants
    names = {copy.name: tenants[i % len(tenants)].name for i, copy in enumerate(copies)}
    if where == "drive":
        own = drive == job.scenario.profile
        key = DEVICE_KEYS.get(drive.kind, {}).get(key, key)
        return f"{'[device]' if own else f'the drive {drive.name},'} {key}{blank}{rest}"
    if where in names:
        return f"[[tenant]] {names[where]} {TENANT_KEYS.get(key, key)}{blank}{rest}"
    return why


def check_knobs(knobs: Sequence[str]) -> None:
    others = [name for name in knobs if name not in KNOBS]
    if others:
        raise FairlaneError(
            f"the simulator has only our schedulers, not {', '.join(others)};"
            f" with --on sim, --knobs can name {', '.join(KNOBS)}"
        )


def unavailable(knob: str, drive: Profile) -> str | None:
    """Why that drive cannot be shared so, or None."""
    if knob in schedulers.ROUTING and (
        drive.kind != "ssd" or not drive.params.get("wrr", modelled_ssd.PROFILE["wrr"].default)
    ):
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
    block = block_of(drive)
    for tenant in scenario.tenants:
        if tenant.trace is None and tenant.bs % block:
            raise FairlaneError(
                f"[[tenant]] {tenant.name} bs: {tenant.bs} is not a multiple of the"
                f' {block} byte blocks of the drive {drive.name}; give such a multiple, or bs = "min"'
            )
        if tenant.rate and iops_of(tenant, drive) * LONGEST_INTERVAL_S < tenant.jobs:
            raise FairlaneError(
                f"[[tenant]] {tenant.name} rate: the simulator plays no less than an I/O of each job in"
                f" {LONGEST_INTERVAL_S / 60:g} minutes"
            )
