# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What some knobs are set from, measured on the drive: jobs like all others, each done once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fairlane.backends.job import Job
from fairlane.errors import FairlaneError
from fairlane.experiment.model import Scenario, Variant
from fairlane.experiment.results import Run
from fairlane.linux import io_cost, knobs
from fairlane.linux.knobs import IoCost, Need, Tuning

OVERHEAD_S = 1.5  # of a run, for starting and collecting; only progress depends on it
MEASURE_S = io_cost.WARMUP + io_cost.SECONDS + OVERHEAD_S
MODEL_S = MEASURE_S * (io_cost.STEPS + 3)  # io.cost's model, and its speed
MEASURED = "measured"  # how the ids of these jobs begin
VRATES = (100, 90, 80, 70, 60)  # percent of io.cost's measured model that are tried, from the fastest
FAIR = 0.99  # the fairness index at which io.cost is in control of the device
BARE = Variant("none", "none")


class Measuring:
    """What the jobs' knobs are set from, by runs that are known, or else by new ones."""

    def __init__(self, complete: Callable[[Job, Need], Run], done: Mapping[str, Run], writes: bool) -> None:
        """writes: io.cost's model is measured with writes, too. Without, the drive's contents are left alone."""
        self.complete, self.writes = complete, writes
        self.done = dict(done)
        self.new: list[Job] = []  # that were run for this

    def run(self, job: Job, need: Need) -> Run:
        """The job's run: the one that there is, or a new one."""
        if job.id not in self.done:
            self.done[job.id] = self.complete(job, need)
            self.new.append(job)
        return self.done[job.id]

    def need(self, job: Job) -> Need:
        """What the job's knob is set from."""
        wants = knobs.TABLE[job.variant.knob].needs
        if job.tuning.idle or job.tuning.slack:
            return Need()
        return Need(
            io_cost=self._io_cost(job) if "io_cost" in wants else None,
            bytes_per_s=self._most(job) if "bytes_per_s" in wants else None,
            alone_us=self._alone_us(job) if job.tuning.target_of_alone is not None and "alone_us" in wants else None,
        )

    def _known(self, job_id: str) -> Run:
        if job_id not in self.done:
            raise FairlaneError(f"{job_id}: has no run, which others are set from; delete its results and start again")
        return self.done[job_id]

    def _most(self, job: Job) -> float:
        """bytes/s of the job's own mix with no knob."""
        if job.needs.most is not None:
            return self._known(job.needs.most).total_bytes_per_s
        return self.run(_most_of(job), Need()).total_bytes_per_s

    def _alone_us(self, job: Job) -> float:
        """The median latency of the tenant with priority when it is alone."""
        if job.needs.alone is None:
            raise FairlaneError(f"{job.id}: has a target relative to a latency that nothing measures")
        alone = self._known(job.needs.alone).tenants[0].lat_us["p50"]
        if alone is None:
            raise FairlaneError(f"{job.needs.alone}: knows no latency; delete its results and start again")
        return alone

    def _io_cost(self, job: Job) -> IoCost:
        """io.cost's model, and the speed to run it at."""
        return self._io_cost_speed(job, self._io_cost_model(job))

    def _io_cost_model(self, job: Job) -> str:
        """Each coefficient is measured twice, in two rounds, and the better one counts: a machine that is busy with
        something else for a moment makes a device look slow, never fast.

        A scenario that only reads leaves the device's contents alone: writes, of which it has none, cost what reads do.
        """
        values = dict.fromkeys(io_cost.COEFFICIENTS, 1)
        for n in range(io_cost.ROUNDS):
            for name, (rw, _, _) in io_cost.COEFFICIENTS.items():
                if rw.endswith("write") and not self.writes:
                    values[name] = values["r" + name[1:]]
                    continue
                load = (io_cost.coefficient(name, io_cost.JOBS),)
                what = io_cost.short(replace(job.scenario, tenants=load, groups=(), sweep=()))
                run = self.run(_measuring(job, f"{name}-{n}", what, f"{name} for io.cost"), Need())
                per_s = run.total_bytes_per_s if name.endswith("bps") else run.total_iops
                values[name] = max(values[name], round(per_s))
        return io_cost.io_cost_line(values)

    def _io_cost_speed(self, job: Job, model: str) -> IoCost:
        """At which speed the model gives the weights their due with all tenants busy.

        At the full speed of the device, its own queue decides who is served and weights mean little; a lower speed
        costs throughput. So this looks for the highest that is fair, or else for the fairest.
        """
        what = job.needs.tuned_with or job.scenario
        busy = io_cost.busy(what.at(what.points[len(what.points) // 2]))
        tried: list[tuple[float, int]] = []
        notes = []
        for vrate in VRATES:
            trial = _measuring(job, f"vrate-{vrate}-{_file(what)}", busy, "io.cost's speed")
            trial = replace(trial, variant=Variant("io.cost", "io.cost"), tuning=Tuning(vrate=vrate))
            run = self.run(trial, Need(IoCost(model, vrate, "")))
            tried.append((run.fairness_index or 0.0, vrate))
            notes.append(f"{vrate} %: {run.total_iops:.0f} IOPS, fairness {run.fairness_index or 0:.3f}")
            if tried[-1][0] >= FAIR:
                break
        return IoCost(model, max(tried)[1], "; ".join(notes))


def _measuring(job: Job, name: str, what: Scenario, about: str) -> Job:
    """A job for what that one is set from."""
    return Job(f"{MEASURED}-{name}", what, BARE, job.out / f"{MEASURED}-{name}", about=f"measuring {about}")


def _most_of(job: Job) -> Job:
    point = "" if job.point is None else f"-{job.point}"
    name = f"most-{_file(job.scenario)}{point}"
    return _measuring(job, name, io_cost.busy(job.scenario.at(job.point)), f"for {job.variant.knob}")


def _file(what: Scenario) -> str:
    return what.name.replace("/", "-")


def left_s(jobs: Sequence[Job], done: Mapping[str, Run]) -> float:
    """Roughly how long measuring for the jobs takes."""
    wanting = [job for job in jobs if not (job.tuning.idle or job.tuning.slack)]
    most = {
        _most_of(job).id
        for job in wanting
        if "bytes_per_s" in knobs.TABLE[job.variant.knob].needs and job.needs.most is None
    }
    modelled = any("io_cost" in knobs.TABLE[job.variant.knob].needs for job in wanting)
    known = any(name.startswith(f"{MEASURED}-vrate") for name in done)
    return MEASURE_S * len(most - done.keys()) + (MODEL_S if modelled and not known else 0.0)
