# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What some knobs are set from, measured on the drive: jobs like all others, each done once.

The load itself, without any knob, is measured for as long as the runs that follow, after the same warm-up: what a fast
second of a drive says does not hold in its steady state. The coefficients of io.cost's model are short runs of six
loads, and its speed is looked for with the load itself.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fairlane.backends.job import Job
from fairlane.errors import FairlaneError
from fairlane.experiment.figures import share_error
from fairlane.experiment.model import Scenario, Variant
from fairlane.experiment.results import Run
from fairlane.linux import io_cost, knobs
from fairlane.linux.io_cost import Model, Tuned
from fairlane.linux.knob import Need

OVERHEAD_S = 1.5  # of a run, for starting and collecting; only progress depends on it
MODEL_S = len(io_cost.COEFFICIENTS) * (io_cost.WARMUP + io_cost.SECONDS + OVERHEAD_S)
MEASURED = "measured"  # how the ids of these jobs begin
BUSY_DEPTH = 64  # outstanding I/Os of each tenant, at least, when it is to use all that it is given
# io.cost's speeds that are tried, relative to that at which its model is as fast as the drive was under the load.
SPEEDS = (0.98, 0.96, 0.94, 0.91, 0.87)
FAIR = 0.04  # the largest error of a share at which io.cost is in control of the device
# The part of that speed at which the drive's latencies are measured for the targets. Closer to what the drive can do,
# they are those of its own queue, and no target made of them keeps vrate below that.
UNHURRIED = 0.9
TARGETS = (4, 8, 16)  # latency targets that are tried, relative to those means
KEPT = 0.9  # of the throughput without them, that they are to leave
DRIVE_US = "drive_us"  # the counter with the mean latency of reads and of writes at the drive
REFUSED = "refused"  # the counter that says why a run's figures say nothing
ELSEWHERE = 0.25  # how far a run may be from what its knob was set for
NONE_OF_SETTING = "none_of_setting"  # the counter with what of_setting() says
KERNEL_BYTES = "kernel_bytes"  # the counter with what the kernel's own memory grew by: cgroups, processes, requests
NONE = Variant("none", "none")


class CannotBeSetError(FairlaneError):
    """The knob is left out of what it cannot be set for, or does not end; everything else goes on."""


class Measuring:
    """What the jobs' knobs are set from, by runs that are known, or else by new ones."""

    def __init__(self, complete: Callable[[Job, Need], Run], done: Mapping[str, Run], block: int, writes: bool) -> None:
        """block: the drive's smallest. writes: io.cost's model is measured with writes, too; without, the drive's
        contents are left alone."""
        self.complete, self.block, self.writes = complete, block, writes
        self.done = dict(done)
        self.by_itself: dict[str, Run] = {}  # runs of `none` that are such a measurement, by its id
        self.new: list[Job] = []  # that were run for this

    def run(self, job: Job, need: Need) -> Run:
        """The job's run: the one that there is, or a new one."""
        if job.id not in self.done:
            run = self.done[job.id] = self.complete(job, need)
            self.new.append(job)
            load = job.scenario.at(job.point)
            if job.variant == NONE and busy(load).tenants == load.tenants:
                self.by_itself.setdefault(_by_itself(job, load).id, run)
        return self.done[job.id]

    def need(self, job: Job) -> Need:
        """What the job's knob is set from. Raises CannotBeSetError where none of it holds; what was measured for that
        is in `new`, and is not measured again for the next job of the same load."""
        wants = knobs.TABLE[job.variant.knob].needs
        if job.tuning.idle or job.tuning.slack:
            return Need()
        return Need(
            io_cost=self._io_cost(job) if "io_cost" in wants else None,
            bytes_per_s=self._most(job).total_bytes_per_s if "bytes_per_s" in wants else None,
            alone_us=alone_us(job, self.done) if "alone_us" in wants else None,
        )

    def _most(self, job: Job) -> Run:
        """The job's own mix with no knob."""
        if job.needs.most is not None:
            return _known(self.done, job.needs.most)
        return self._by_itself(job, load_of(job))

    def _by_itself(self, job: Job, load: Scenario) -> Run:
        """The load without any knob, measured as long as the job is."""
        alone = _by_itself(job, load)
        return self.by_itself.get(alone.id) or self.run(alone, Need())

    def _io_cost(self, job: Job) -> Tuned:
        """io.cost's model, and the speed to run it at: once for all points of a sweep, at the middle one."""
        load = middle_of(job)
        alone = self._by_itself(job, load)
        tuned, by_model = self._io_cost_speed(job, load, self._io_cost_model(job), alone)
        if "io_cost_targets" in knobs.TABLE[job.variant.knob].needs:
            return self._io_cost_targets(job, load, tuned, by_model)
        return tuned

    def _io_cost_model(self, job: Job) -> Model:
        """A scenario that only reads leaves the device's contents alone: writes, of which it has none, cost what reads
        do."""
        values: dict[str, int] = {}
        for name, (rw, bs, _) in io_cost.COEFFICIENTS.items():
            if rw.endswith("write") and not self.writes:
                values[name] = values["r" + name[1:]]
                continue
            load = replace(io_cost.coefficient(name, io_cost.JOBS), bs=max(bs, self.block))
            what = replace(job.scenario, tenants=(load,), groups=(), sweep=(), tuned_for=None)
            what = replace(what, seconds=io_cost.SECONDS, warmup=io_cost.WARMUP, repeats=1)
            run = self.run(_measuring(job, f"{name}-{_digest(what.profile)}", what, f"{name} for io.cost"), Need())
            values[name] = round(run.total_bytes_per_s if name.endswith("bps") else run.total_iops)
        return Model(**values).plausible()

    def _io_cost_speed(self, job: Job, what: Scenario, model: Model, alone: Run) -> tuple[Tuned, Run]:
        """At which speed of the model the weights have their due with all tenants busy; and the run at that speed.

        Below that at which the model is as fast as the drive was when the load was alone on it: from there on, the
        drive's own queue decides who is served. The fastest at which every tenant is charged its share, or else the
        fairest.
        """
        used = _used(model, busy(what), alone, self.block)
        found: tuple[tuple[bool, float], Tuned, Run] | None = None
        left: tuple[float, ...] = SPEEDS
        nth = 0  # the fastest fits most often; after it from the middle, as what is slower is fairer
        while left:
            part = left[nth]
            tuned = Tuned(model, used * part, "")
            name, about = f"speed-{part:g}", f"{tuned.speed:.0%} of its model"
            run = self._attempt(job, what, Variant("io.cost", "io.cost"), tuned, name, about)
            error = math.inf if REFUSED in run.counters else _charged_error(run)
            left = left[:nth] if error <= FAIR else left[nth + 1 :]
            nth = len(left) // 2
            if REFUSED in run.counters:
                continue
            rank = error <= FAIR, part if error <= FAIR else -error
            if found is None or rank > found[0]:
                at = f"at {tuned.speed:.3f} times its measured model"
                why = f"{at} it charged each tenant its share within {error:.1%}"
                if error > FAIR:
                    why = f"when it was set, no speed kept shares within {FAIR:.0%}, and this was the fairest: {why}"
                found = rank, replace(tuned, why=f"{why}, and did {run.total_iops:,.0f} IOPS"), run
        if found is None:
            raise CannotBeSetError(f"io.cost cannot be set for {what.name}: {run.counters[REFUSED]}")
        return found[1:]

    def _io_cost_targets(self, job: Job, what: Scenario, tuned: Tuned, by_model: Run) -> Tuned:
        """The tightest latency targets that cost neither throughput nor shares: multiples of the drive's means a little
        below that speed. From the middle, as wider ones leave more throughput and tighter ones keep shares better."""
        slower = replace(tuned, speed=tuned.speed * UNHURRIED)
        about = f"{slower.speed:.0%} of its model, for latencies"
        unhurried = self._attempt(job, what, Variant("io.cost", "io.cost"), slower, "unhurried", about)
        if REFUSED in unhurried.counters:
            raise CannotBeSetError(f"io.cost-qos cannot be set for {what.name}: {unhurried.counters[REFUSED]}")
        found: tuple[tuple[bool, bool, float], Tuned] | None = None
        left: tuple[int, ...] = TARGETS
        while left:
            nth = len(left) // 2
            times = left[nth]
            targets_us = {way: mean * times for way, mean in unhurried.counters[DRIVE_US].items()}
            tried = replace(tuned, targets_us=targets_us, load=busy(what).tenants)
            about = f"targets of {times} times the mean"
            run = self._attempt(job, what, Variant("io.cost-qos", "io.cost-qos"), tried, f"targets-{times}", about)
            fair, kept = _charged_error(run) <= FAIR, run.total_iops >= KEPT * by_model.total_iops
            left = left[nth + 1 :] if fair and (not kept or _falls(run)) else left[:nth]
            if REFUSED in run.counters:
                continue
            good = fair and kept
            rank = good, fair, -times if good else run.total_iops
            if found is None or rank > found[0]:
                found = rank, tried
        if found is None:
            raise CannotBeSetError(f"io.cost-qos cannot be set for {what.name}: {run.counters[REFUSED]}")
        return found[1]

    def of_setting(self, job: Job, need: Need) -> float | None:
        """What `none` did of the job's load, relative to what its knob was set for; 1 if that holds.

        None: no run of none is known but the one that the knob was set from, or the knob is not set from measurements,
        or a tenant does not always want more.
        """
        load = job.scenario.at(job.point)
        none = self.done.get(job.needs.most or replace(job, variant=NONE).default_id)
        if none is None or busy(load).tenants != load.tenants:
            return None
        if need.bytes_per_s:
            return None if none is self._most(job) else none.total_bytes_per_s / need.bytes_per_s
        return _used(need.io_cost.model, load, none, self.block) / need.io_cost.speed if need.io_cost else None

    def _attempt(self, job: Job, what: Scenario, variant: Variant, tuned: Tuned, name: str, about: str) -> Run:
        attempt = _measuring(job, f"{name}-{_of_load(what)}", busy(what), f"{variant.knob} with {about}")
        return self.run(replace(attempt, variant=variant), Need(tuned))


def _used(model: Model, load: Scenario, run: Run, block: int) -> float:
    """The fraction of the modelled drive's time that the run's requests take."""
    rates = {t.name: (t.read_bytes_per_s, t.write_bytes_per_s) for t in run.tenants}
    return sum(model.busy(t, *(rate / (t.bs or block) for rate in rates[t.name])) for t in load.tenants)


def _charged_error(run: Run) -> float:
    """The largest relative error of a tenant's share of the time that io.cost charged."""
    used = run.counters.get("io.cost", {}).get("usage_us", {})
    error = share_error({t.name: used.get(t.name, 0) for t in run.tenants}, {t.name: t.share for t in run.tenants})
    return math.inf if error is None else error


def _falls(run: Run) -> bool:
    """Whether vrate was on its way down, faster than it may be when a run counts."""
    seen = run.counters.get("io.cost", {}).get("vrate")
    return bool(seen) and seen["last"] < (1 - io_cost.MOVING) * seen["first"]


def _known(done: Mapping[str, Run], job_id: str) -> Run:
    if job_id not in done:
        raise FairlaneError(f"{job_id}: has no run, which others are set from; delete its results and start again")
    return done[job_id]


def alone_us(job: Job, done: Mapping[str, Run]) -> float | None:
    """The median latency of the tenant with priority when it is alone; None: the job has no target relative to it."""
    if job.tuning.target_of_alone is None:
        return None
    if job.needs.alone is None:
        raise FairlaneError(f"{job.id}: has a target relative to a latency that nothing measures")
    alone = _known(done, job.needs.alone).tenants[0].lat_us["p50"]
    if alone is None:
        raise CannotBeSetError(
            f"{job.variant.knob} cannot be set for {job.scenario.name}: {job.needs.alone} has no latency"
        )
    return alone


# --- The loads ---


def busy(scenario: Scenario) -> Scenario:
    """The scenario with every tenant wanting more than its share all the time."""
    tenants = tuple(
        replace(
            tenant,
            start=0.0,
            stop=None,
            rate=None,
            thinktime=0.0,
            speed="full" if tenant.trace else tenant.speed,
            cores=(),
            iodepth=max(tenant.iodepth, math.ceil(BUSY_DEPTH / tenant.jobs)),
        )
        for tenant in scenario.tenants
    )
    return replace(scenario, tenants=tenants, repeats=1, tuned_for=None)


def load_of(job: Job) -> Scenario:
    """The load that the job's knob is set for."""
    return job.scenario.tuned_for or job.scenario.at(job.point)


def middle_of(job: Job) -> Scenario:
    """The load that io.cost is set for."""
    what = job.needs.tuned_with or job.scenario.tuned_for or job.scenario
    return what.at(what.points[len(what.points) // 2])


def _measuring(job: Job, name: str, what: Scenario, about: str) -> Job:
    """A job for what that one is set from."""
    return Job(f"{MEASURED}-{name}", what, NONE, job.out / f"{MEASURED}-{name}", about=f"measuring {about}")


def _by_itself(job: Job, what: Scenario) -> Job:
    about = f"the load by itself for {job.variant.knob}"
    return _measuring(job, f"load-{_of_load(what)}", busy(what), about)


def _of_load(what: Scenario) -> str:
    return _digest((what.profile, what.tenants, what.groups, what.seconds, what.warmup))


def _digest(what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:10]


def left_s(jobs: Sequence[Job], done: Mapping[str, Run]) -> float:
    """Roughly how long measuring for the jobs takes."""
    wanting = [job for job in jobs if not (job.tuning.idle or job.tuning.slack)]
    modelled = [job for job in wanting if "io_cost" in knobs.TABLE[job.variant.knob].needs]
    loads = [
        _by_itself(job, load_of(job))
        for job in wanting
        if "bytes_per_s" in knobs.TABLE[job.variant.knob].needs and job.needs.most is None
    ]
    loads += [_by_itself(job, middle_of(job)) for job in modelled]
    known = {_by_itself(job, job.scenario.at(job.point)).id for job in jobs if job.variant == NONE} | done.keys()
    by_itself = sum(job.seconds + OVERHEAD_S for job in {job.id: job for job in loads if job.id not in known}.values())
    speeds = {_of_load(what): what for what in map(middle_of, modelled)}
    tuned = {name.rpartition("-")[2] for name in done if name.startswith(f"{MEASURED}-speed")}
    tuning = sum(1.5 * (what.warmup + what.seconds + OVERHEAD_S) for load, what in speeds.items() if load not in tuned)
    return by_itself + tuning + (MODEL_S if modelled and not tuned else 0.0)
