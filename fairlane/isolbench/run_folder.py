# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A suite's run folder: every finished unit is a file of its own, whole or not there, so that a run can go on later.

plan.json      what was asked for, and every unit
units/ID.json  a unit's results (results.json as of `fairlane run`, with one run, or with why there is none)
kept/          what was measured for the knobs
raw/           fio's job files and output, or what fl-sim was given and what it found
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlane.errors import FairlaneError
from fairlane.experiment.model import Scenario
from fairlane.experiment.results import Results, Run
from fairlane.files import NO_SPACE, NoSpace, write_json
from fairlane.isolbench.suite import Unit, standard


@dataclass(frozen=True)
class Store:
    folder: Path
    standard: Scenario  # what knobs that have to be set for a drive are set with

    @classmethod
    def of(cls, folder: Path, unit: Unit) -> Store:
        return cls(folder, standard(unit.scenario))

    @property
    def raw(self) -> Path:
        return self.folder / "raw"

    def path(self, unit_id: str) -> Path:
        return self.folder / "units" / f"{unit_id}.json"

    def done(self, unit: Unit) -> bool:
        return self.path(unit.id).exists()

    def ran(self, unit: Unit) -> bool:
        """One that could not may be able to by now."""
        return self.done(unit) and bool(self.load(unit.id).runs)

    def load(self, unit_id: str) -> Results:
        return Results.load(self.path(unit_id), "delete the file and start the same command again")

    def run(self, unit_id: str) -> Run:
        """The run of a unit that must have been before."""
        found = self.load(unit_id).runs
        if not found:
            raise FairlaneError(f"{self.path(unit_id)}: holds no run; delete the file and start again")
        return found[0]

    def save(self, unit: Unit, results: Results) -> None:
        with room(self.folder):
            results.save(self.path(unit.id))

    def kept(self, name: str) -> dict[str, Any]:
        path = self.folder / "kept" / f"{name}.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def forget(self, name: str) -> None:
        (self.folder / "kept" / f"{name}.json").unlink(missing_ok=True)

    def keep(self, name: str, values: Mapping[str, Any]) -> None:
        with room(self.folder):
            write_json(self.folder / "kept" / f"{name}.json", values)


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
