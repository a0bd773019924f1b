# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Scenarios as jobs of a backend, and the finished jobs put together again: the results of each scenario."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from fairlane import proc
from fairlane.backends.job import Backend, Job, Tell, ignore
from fairlane.errors import FairlaneError
from fairlane.experiment.model import Scenario
from fairlane.experiment.results import Results
from fairlane.linux.knob import BY_WEIGHT, SLACK


@dataclass(frozen=True)
class ScenarioRun:
    """A scenario, the knobs to run it with, and the folder that everything it leaves goes to."""

    scenario: Scenario
    knobs: Sequence[str]
    out: Path

    @property
    def jobs(self) -> list[Job]:
        """Repeats take turns with the knobs, so that a machine that grows slower is unfair to none of them."""
        what = self.scenario
        tuning = SLACK if what.slack else BY_WEIGHT
        jobs = (
            Job("", what, variant, self.out, point, repeat, tuning)
            for repeat in range(what.repeats)
            for point in what.points
            for knob in dict.fromkeys(self.knobs)
            for variant in what.runs_of(knob)
        )
        return [replace(job, id=job.default_id) for job in jobs]


def run_scenarios(
    backend: Backend, runs: Sequence[ScenarioRun], tell: Tell = ignore
) -> Iterator[tuple[ScenarioRun, Results]]:
    """Run them all; each is yielded when the last of its jobs is finished, in their order.

    One that no knob could run is told at the end, and keeps none of the others from being run.
    """
    jobs = [run.jobs for run in runs]
    if len(runs) > 1:
        jobs = [[replace(job, about=f"{job.scenario.name}: {job.variant.name}") for job in each] for each in jobs]
    parts: dict[str, Results] = {}
    complaints: list[str] = []
    failed: list[FairlaneError] = []
    left = list(zip(runs, jobs, strict=True))
    with closing(backend.run([job for each in jobs for job in each], tell)) as finished:
        for each in finished:
            parts[each.job.id] = each.results
            complaints += (line for run in each.results.runs for line in run.bad_dmesg)
            while left and all(job.id in parts for job in left[0][1]):
                run, mine = left.pop(0)
                try:
                    whole = together([parts.pop(job.id) for job in mine])
                except FairlaneError as error:
                    failed.append(FairlaneError(f"{run.scenario.name}: {error}") if len(runs) > 1 else error)
                else:
                    yield run, whole
    if complaints:
        raise FairlaneError(
            "the kernel complained during the run, so its figures prove nothing; dmesg.txt has all of it"
            f"{proc.tail(complaints)}"
        )
    if failed:
        raise FairlaneError("; ".join(map(str, failed)))
    if left:
        names = ", ".join(run.scenario.name for run, _ in left)
        raise FairlaneError(f"{backend.name} has not run all of {names}; start it again")


def run_scenario(backend: Backend, scenario: Scenario, knobs: Sequence[str], out: Path, tell: Tell = ignore) -> Results:
    """The same of one scenario."""
    [(_, results)] = list(run_scenarios(backend, [ScenarioRun(scenario, knobs, out)], tell))
    return results


def together(parts: Sequence[Results]) -> Results:
    """The results of a scenario from those of its jobs."""
    first = next((part for part in parts if part.runs), parts[0])
    whole = replace(first, runs=[], config={}, unavailable={}, notes=[])
    for part in parts:
        whole.runs += part.runs
        for name, values in part.config.items():
            whole.config.setdefault(name, values)
        whole.unavailable |= part.unavailable
        whole.notes += [note for note in part.notes if note not in whole.notes]
    # A knob that could not run, or was not as it was set, in one of its runs has no figures.
    whole.runs = [run for run in whole.runs if run.knob not in whole.unavailable]
    if not whole.runs:
        why = "; ".join(f"{name}: {why}" for name, why in whole.unavailable.items())
        raise FairlaneError(f"no knob can run: {why}")
    return whole
