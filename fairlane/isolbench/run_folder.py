# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A suite's run folder: every finished unit is a file of its own, whole or not there, so that a run can go on later.

plan.json         what was asked for, and every unit
units/ID.json     a unit's results (results.json as of `fairlane run`, with one run, or with why there is none)
measured/ID.json  the same of what was measured for the knobs
raw/ID/           fio's job files and output, or what fl-sim was given and what it found
verdict.json      the figures and marks of all units
report.html       the same as a page
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fairlane.backends.measuring import MEASURED, REFUSED
from fairlane.errors import FairlaneError
from fairlane.experiment.results import Results, Run
from fairlane.files import NO_SPACE, NoSpace
from fairlane.isolbench.suite import Unit

DAMAGED = "delete the file and start the same command again"


@dataclass(frozen=True)
class Store:
    folder: Path

    @property
    def raw(self) -> Path:
        return self.folder / "raw"

    def path(self, job_id: str) -> Path:
        return self.folder / ("measured" if job_id.startswith(MEASURED) else "units") / f"{job_id}.json"

    def done(self, unit: Unit) -> bool:
        return self.path(unit.id).exists()

    def ran(self, unit: Unit) -> bool:
        """One that could not may be able to by now."""
        return self.done(unit) and bool(self.load(unit.id).runs)

    def load(self, job_id: str) -> Results:
        return Results.load(self.path(job_id), DAMAGED)

    def run(self, job_id: str) -> Run | None:
        """The run of that unit, if there is one."""
        return next(iter(self.load(job_id).runs), None) if self.path(job_id).exists() else None

    def save(self, job_id: str, results: Results) -> None:
        with room(self.folder):
            results.save(self.path(job_id))

    def measured(self) -> dict[str, Run]:
        """What was measured for the knobs, by job; what was refused may not be another time."""
        files = sorted((self.folder / "measured").glob("*.json"))
        runs = {file.stem: Results.load(file, DAMAGED).runs[0] for file in files}
        return {name: run for name, run in runs.items() if REFUSED not in run.counters}

    def forget_measured(self) -> None:
        for file in (self.folder / "measured").glob("*.json"):
            file.unlink()


@contextmanager
def room(folder: Path) -> Iterator[None]:
    """Says in a sentence when there is none."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        raise FairlaneError(f"{NoSpace(folder)}: what is done is kept") from error
    except NoSpace as error:
        raise FairlaneError(f"{error}: what is done is kept") from error
