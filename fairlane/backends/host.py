# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The host backend: runs a scenario on this machine's kernel, with real cgroups and fio as the load.

Whatever ends a run (its end, an error, Ctrl-C, SIGTERM), the scheduler, its tunables, queue/nr_requests, the cgroups
and io.cost are afterwards as they were.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from fairlane import __version__
from fairlane.backends.job import Backend, Completing, Finished, Job, Options, Pace, Tell, ignore
from fairlane.backends.measuring import (
    ELSEWHERE,
    KERNEL_BYTES,
    NONE,
    NONE_OF_SETTING,
    OVERHEAD_S,
    REFUSED,
    CannotBeSetError,
    Measuring,
    left_s,
)
from fairlane.backends.watched import Watched
from fairlane.errors import FairlaneError
from fairlane.experiment import traces
from fairlane.experiment.figures import jain
from fairlane.experiment.model import Profile, Scenario, TenantSpec, shares
from fairlane.experiment.price_lists import PriceList
from fairlane.experiment.results import Results, Run, Tenant
from fairlane.linux import cgroups, disks, fio, fio_logs, knobs, queue, sysfs
from fairlane.linux.knob import Need, Setting, targeted
from fairlane.proc import terminable, unwinding_signals
from fairlane.progress import Steps


class Host(Backend):
    """This machine's kernel, real cgroups, and fio as the load, on --on host:DEV."""

    name = "host"
    usage = "host:DEV, such as host:nvme0n1"
    options = ("destroy_data",)
    bare = False
    modelled = False
    knobs = tuple(knobs.TABLE)
    pace = Pace(quick=(3.0, 1.0), full=(30.0, 5.0), calibration=(10.0, 3.0), map=(4.0, 1.0))
    replayed_on = 'profile = "p4500" # not looked at: the drive is a real one'

    def __init__(
        self,
        place: str | None,
        options: Options | None = None,
        *,
        renew: Callable[[], None] | None = None,
        time_scale: int = 1,
        complaints: Callable[[], list[str]] = list,
    ) -> None:
        """renew() brings a drive that was written to back to the state that it began in. time_scale says how much
        slower the drive is than what it models. complaints() says what the kernel has complained of since it was last
        asked."""
        super().__init__((place or "").removeprefix("/dev/"), options)
        self.device, self.renew, self.complaints = self.place or "", renew, complaints
        self.time_scale = time_scale

    @property
    def cores(self) -> int:
        return os.cpu_count() or 1

    def drives(self) -> tuple[Profile, Profile]:
        drive = Profile(self.device, "host", "a real drive")
        return drive, drive

    def check(self, _path: Path, scenario: Scenario, _knobs: Sequence[str]) -> None:
        check_traces(scenario)
        disks.free_target(self.device, scenario, self.asked.destroy_data)

    def check_place(self) -> None:
        disks.check_free(self.device)

    def identity(self, _tell: Tell, _out: Path) -> dict[str, Any]:
        return {"kernel": platform.release(), **disks.identity(self.device)}

    def job_s(self, job: Job) -> float:
        return job.seconds + OVERHEAD_S

    def estimate_s(self, jobs: Sequence[Job], done: Mapping[str, Run]) -> float:
        return sum(map(self.job_s, jobs)) + left_s(jobs, done)

    def run(self, jobs: Sequence[Job], tell: Tell = ignore, done: Mapping[str, Run] = {}) -> Completing:
        for job in jobs:
            knobs.check_names([job.variant.knob])
        writes = next((job.scenario for job in jobs if job.scenario.writes), jobs[0].scenario)
        target = disks.free_target(self.device, writes, self.asked.destroy_data)
        described = disks.describe(self.device)
        with terminable(), _claimed_for(self.device, self.renew):
            reasons = available(self.device, list(dict.fromkeys(job.variant.knob for job in jobs)))
            usable = [job for job in jobs if reasons[job.variant.knob] is None]
            total_s = self.estimate_s(usable, done)
            on_drive = _OnDrive(target, Steps(total_s, tell), self.renew, self.time_scale)
            measuring = Measuring(on_drive.complete, done, target.block, writes.writes)
            for job in jobs:
                results = Results(job.scenario.name, self.on, job.scenario.seed, __version__)
                results.kernel, results.device = platform.release(), dict(described)
                results.machine = {"cpus": os.cpu_count(), "memory_bytes": _memory_bytes()}
                if why := reasons[job.variant.knob]:
                    yield Finished(job, replace(results, unavailable={job.variant.knob: why}))
                elif why := knobs.not_played(job.variant):
                    yield Finished(job, replace(results, unavailable={job.variant.name: why}))
                else:
                    yield from self._completed(job, results, measuring, on_drive.config)

    def _completed(
        self, job: Job, results: Results, measuring: Measuring, config: Mapping[str, dict[str, Any]]
    ) -> Iterator[Finished]:
        """What is measured for the job, and then itself: a run, or why the knob cannot be set for this load."""
        cannot: str | None = None
        need = Need()
        try:
            need = measuring.need(job)
            measuring.run(job, need)
        except CannotBeSetError as error:
            cannot = str(error)
        for each in measuring.new:
            run = measuring.done[each.id]
            run.bad_dmesg = self.complaints() if each is job else []
            found = replace(results, scenario=each.scenario.name, runs=[run])
            found.config = {run.knob: config[each.id]}
            if each is job:
                if (part := measuring.of_setting(job, need)) is not None:
                    run.counters[NONE_OF_SETTING] = part
                found.notes = [*knobs.not_followed(job.variant.knob, job.scenario), *_notes(job, run)]
                if why := run.counters.get(REFUSED):
                    found.runs, found.unavailable = [], {run.knob: why}
            yield Finished(each, found)
        measuring.new = []
        if cannot:
            cannot = "; ".join([cannot, *self.complaints()])  # which would be the next run's
            yield Finished(job, replace(results, unavailable={job.variant.name: cannot}))


def _notes(job: Job, run: Run) -> list[str]:
    """What io.cost did, and whether the knob was set for a load that `none` moves more or less of."""
    where = f" at {job.point} cgroups" if job.point else ""
    found = []
    if (seen := run.counters.get("io.cost")) and not job.repeat:
        low, high, mean = (seen["vrate"][key] for key in ("low", "high", "mean"))
        allowed = " to ".join(f"{percent:g}" for percent in dict.fromkeys(seen["range"]))
        text = f"{mean:.1f} % on average ({low:.1f} to {high:.1f}; allowed: {allowed})"
        found.append(f"{run.knob}{where}: cost.vrate was {text}; {seen['speed']}.")
    part = run.counters.get(NONE_OF_SETTING, 1.0)
    if abs(part - 1) > ELSEWHERE and not job.scenario.tuned_for:
        where += f", repeat {job.repeat + 1}" if job.repeat else ""
        found.append(f"{run.knob}{where}: none did {part:.2f} times what the knob is set for; do not go by its run.")
    return found


class _OnDrive:
    """Runs jobs on a drive, in the state that it began in, and says how far it is."""

    def __init__(self, target: disks.Target, steps: Steps, renew: Callable[[], None] | None, time_scale: int) -> None:
        self.target, self.steps, self.renew, self.time_scale = target, steps, renew, time_scale
        self.written = False
        self.config: dict[str, dict[str, Any]] = {}  # by job: what was set

    def complete(self, job: Job, need: Need) -> Run:
        length_s = job.seconds + OVERHEAD_S  # Host.job_s()
        if self.written and self.renew:
            self.renew()
        self.written = job.scenario.writes
        try:
            got = _measured(
                job,
                self.target,
                need,
                self.time_scale,
                lambda part: self.steps.step(job.title, length_s, part),
                not (self.renew and job.scenario.writes),
            )
        except FairlaneError as error:
            if isinstance(error, fio.DidNotEndError) and job.variant.knob != NONE.knob:
                raise CannotBeSetError(f"{job.title}: {error}") from error
            raise FairlaneError(f"{job.id}: {error}") from error
        self.steps.finish(length_s)
        self.config[job.id] = got.config
        return got.run


def check_traces(scenario: Scenario) -> None:
    """Read every trace to its end, so that nothing is started to say what is wrong with one."""
    for path, devices in {(t.trace, t.devices) for t in scenario.tenants if t.trace}:
        traces.summary(traces.read(Path(path), devices=devices))


# --- One run ---


@dataclass(frozen=True)
class _Got:
    run: Run
    config: dict[str, Any]


def _measured(
    job: Job,
    target: disks.Target,
    need: Need,
    time_scale: int,
    progress: Callable[[float], None],
    settles: bool = True,
) -> _Got:
    """Make the cgroups, apply the knob, run the load, and undo it all.

    settles: a knob that the kernel moves may do so before the run. Not on a drive that is renewed because the load
    writes to it: the other knobs have it as it was made, and what it does changes as it is written to.
    """
    scenario, knob = targeted(job.scenario.at(job.point), job.tuning, need), knobs.TABLE[job.variant.knob]
    device = target.path.name
    number, before = sysfs.device_number(device), cgroups.kernel_bytes()
    with cgroups.tree(scenario.groups, scenario.tenants) as tree:
        setting = Setting(device, number, tree, scenario, need, job.tuning, job.variant.set, time_scale)
        with knobs.applied(knob, setting) as config:
            inside = {tenant.name: tree.inside(tenant.name) for tenant in scenario.tenants}
            watched = Watched(knob, setting, progress)

            if settles and knob.settles and not (job.tuning.idle or job.tuning.slack):

                def play(what: Scenario, file: Path, enough: Callable[[], bool]) -> None:
                    fio.play_until(
                        what, target, file, cgroups=inside, seed=what.seed, progress=watched.look, enough=enough
                    )

                targets_us = (need.io_cost and need.io_cost.targets_us) or {}
                watched.settle(scenario, play, job.out / f"{job.name}-settle", targets_us)
            watched.begin()
            measured = fio.run(
                scenario,
                target,
                job.out / job.name,
                cgroups=inside,
                counts=lambda: {t.name: cgroups.moved(tree, t.name, number) for t in scenario.tenants},
                seed=scenario.seed + job.repeat,
                progress=watched.look,
            )
            counters: dict[str, Any] = {
                "device": sysfs.numbers(queue.tunables(device)),
                "tenants": knobs.tenant_counters(tree, number),
                **watched.counters(config, measured),
            }
            if watched.kernel_bytes is not None:
                counters[KERNEL_BYTES] = watched.kernel_bytes - before
    if watched.refused:
        counters[REFUSED] = watched.refused
    return _Got(_result(job, target, measured, counters), config)


def _result(job: Job, target: disks.Target, measured: fio_logs.Measured, counters: dict[str, Any]) -> Run:
    scenario = job.scenario.at(job.point)
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
                cost_per_s=_cost(scenario.prices, spec, load, target) / seconds if scenario.prices else None,
                lat_us=load.lat_us,
                series=load.series,
            )
        )
    ios = measured.ios
    return Run(
        knob=job.variant.name,
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


def _cost(prices: PriceList, spec: TenantSpec, load: fio_logs.Load, target: disks.Target) -> float:
    """By the price list, of I/Os of the tenant's block size, or of its trace's sizes.

    The block layer neither splits nor merges them much.
    """
    if spec.trace:
        sizes = _of_trace(spec.trace, spec.devices, target)
    else:
        size = spec.bs or target.block
        sizes = {"read": Counter((size,)), "write": Counter((size,))}
    cost = 0.0
    for op, moved in (("read", load.read_bytes), ("write", load.write_bytes)):
        if known := sizes[op]:
            total = sum(size * many for size, many in known.items())
            cost += moved * sum(prices.cost(op, size) * many for size, many in known.items()) / total
    return cost


@cache
def _of_trace(path: str, devices: tuple[int, ...], target: disks.Target) -> dict[str, Counter[int]]:
    """How many requests of each size, in bytes, it has of each operation."""
    found: dict[str, Counter[int]] = {"read": Counter(), "write": Counter()}
    for request in traces.read(Path(path), devices=devices):
        found["write" if request.write else "read"][traces.placed(request, target.capacity, target.block)[1]] += 1
    return found


# --- Before the runs ---


def available(device: str, names: Sequence[str]) -> dict[str, str | None]:
    """For each knob why this kernel cannot apply it to the drive, or None."""
    disks.check_device(device)
    with unwinding_signals(), cgroups.tree((), ()) as tree:
        return {name: knobs.unavailable(knobs.TABLE[name], device, tree.mount, tree.top) for name in names}


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


# --- What must not be touched ---


def _claimed_for(device: str, renew: Callable[[], None] | None) -> AbstractContextManager[None]:
    """A drive that is renewed goes away meanwhile, and so must not be open; but it is in a VM, where we are alone."""
    return nullcontext() if renew else disks.claimed(device)
