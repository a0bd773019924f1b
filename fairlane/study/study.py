# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane study`: the units of a study, simulated. What is done is kept, and started again it goes on from there.

The folder of a study:

study.json      what was asked for
units.jsonl     a line for each unit that is finished: its figures, or why there are none
study.parquet   all of them, a row for each unit: once all are finished
report.html     the same as a page
failed/         what fl-sim was given where it failed
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fairlane import __version__, schedulers
from fairlane.backends.job import Backend
from fairlane.errors import FairlaneError
from fairlane.experiment import expectations
from fairlane.experiment.results import Results, check_folder
from fairlane.files import new_file, write_json, written
from fairlane.progress import Progress
from fairlane.study.study_file import Study, Unit, Value, units

PLAN, DONE, TABLE = "study.json", "units.jsonl", "study.parquet"
SAID = {"version": "the version", "study": "the study", "code": "the schedulers' source", "units": "its units"}
ROWS = 1 << 16  # of a row group
STEP = 5  # percent, between two lines in a pipe


@dataclass
class Run:
    """A study in its folder."""

    study: Study
    backend: Backend
    folder: Path
    units: list[Unit]
    done: dict[str, list[float | None]] = field(default_factory=dict)  # the figures, by unit
    unavailable: dict[str, str] = field(default_factory=dict)  # knobs that could not run somewhere, and why

    @property
    def todo(self) -> list[Unit]:
        return [unit for unit in self.units if unit.job.id not in self.done]

    @cached_property
    def columns(self) -> list[str]:
        """What tells units from each other; without numbers of cgroups, and names of variants, if nothing has any."""
        names = list(dict.fromkeys(name for unit in self.units for name in unit.where))
        alike = [name for name in ("cgroups",) if all(unit.where.get(name) is None for unit in self.units)]
        if all(unit.where["variant"] == unit.where["knob"] for unit in self.units):
            alike.append("variant")
        return [name for name in names if name not in alike]


def prepare(study: Study, backend: Backend, folder: Path) -> Run:
    """Check all that was asked for, and open the folder; nothing is started yet."""
    everything = units(study, folder)
    run = Run(study, backend, folder, everything)
    plan = _plan(run)
    file = folder / PLAN
    if file.exists() and (folder / DONE).exists():
        _check_same(file, json.loads(json.dumps(plan)))
        _take_up(run)
        return run
    _check(run)
    check_folder(folder, TABLE)
    write_json(file, plan)
    return run


def _plan(run: Run) -> dict[str, Any]:
    digest = hashlib.sha256()
    for unit in run.units:
        digest.update(repr((unit.job.id, unit.job.scenario, unit.job.variant, unit.where)).encode())
    figures = [figure.name for figure in run.study.figures]
    names = {"name": run.study.name, "knobs": run.study.knobs, "figures": figures, "seeds": run.study.seeds}
    return {
        "version": __version__,
        "commit": schedulers.commit(),  # for people
        "study": {**names, "units": len(run.units)},
        "code": schedulers.code(),
        "units": digest.hexdigest(),
    }


def _check_same(file: Path, plan: dict[str, Any]) -> None:
    try:
        before = json.loads(file.read_text())
    except ValueError as error:
        raise FairlaneError(f"{file}: not JSON ({error}); give another folder with --out") from error
    if differs := [said for key, said in SAID.items() if before.get(key) != plan[key]]:
        raise FairlaneError(
            f"{file.parent}: holds another study ({', '.join(differs)} differ); give another folder with --out, or"
            " delete this one"
        )


def _take_up(run: Run) -> None:
    """What is finished. A line that was cut off, when the machine failed, is as if it were not there."""
    file = run.folder / DONE
    whole, known = 0, {unit.job.id for unit in run.units}
    with file.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                break
            try:
                unit, figures, why = json.loads(line)
            except ValueError:
                break
            whole += len(line)
            if unit in known:
                run.done[unit] = figures
                run.unavailable |= why
    with written(file), file.open("r+b") as lines:
        lines.truncate(whole)


def _check(run: Run) -> None:
    """What only the simulator knows of a unit: for each value of each parameter, of the first unit that has it."""
    seen: set[tuple[Any, ...]] = set()
    for unit in run.units:
        knob = unit.job.variant.knob
        new: set[tuple[Any, ...]] = {(unit.where["scenario"], unit.where["drive"], knob)}
        new |= {(name, value) for name, value in unit.where.items() if name not in ("seed", "variant")}
        if new - seen:
            seen |= new
            said = ", ".join(f"{name} = {value}" for name, value in unit.where.items() if "." in name)
            place = f"{run.study.path}: {unit.where['scenario']}{' with ' if said else ''}{said}"
            run.backend.check(Path(place), unit.job.scenario, [knob])


# --- Running ---


def run(what: Run, tell: Callable[[Progress], None]) -> None:
    """Run what has not run. The figures of a unit are in the folder as soon as it is finished."""
    todo = what.todo
    if not todo:
        return
    units = {unit.job.id: unit for unit in todo}
    before = len(what.units) - len(todo)

    def told(now: Progress) -> None:
        part = (before + now.fraction * len(todo)) / len(what.units)
        text = now.step if now.news else f"{STEP * math.floor(100 / STEP * part)} % of {len(what.units):,} units"
        tell(Progress(text, part, now.left_s, now.news))

    # In no order that costs follow, so that those that are done first tell how long the others take.
    jobs = sorted((unit.job for unit in todo), key=lambda job: hashlib.sha256(job.id.encode()).digest())
    file = what.folder / DONE
    with written(file), file.open("a") as lines, closing(what.backend.run(jobs, told)) as finished:
        for each in finished:
            unit = units[each.job.id]
            figures = _figures(what.study, unit, each.results)
            lines.write(json.dumps([unit.job.id, figures, each.results.unavailable]) + "\n")
            lines.flush()
            what.done[unit.job.id] = figures
            what.unavailable |= each.results.unavailable


# --- What was found ---


def rows(what: Run) -> list[dict[str, Value | None]]:
    """A row for each unit, in their order: what tells it from the others, and its figures.

    Of a parameter that has words among its values, all are words.
    """
    words = {name for name in what.columns if any(isinstance(unit.where.get(name), str) for unit in what.units)}

    def said(unit: Unit, name: str) -> Value | None:
        value = unit.where.get(name)
        return value if value is None or name not in words else str(value)

    names = [figure.name for figure in what.study.figures]
    return [
        {name: said(unit, name) for name in what.columns} | dict(zip(names, what.done[unit.job.id], strict=True))
        for unit in what.units
    ]


def write_table(what: Run) -> Path:
    """All that was found, as one Parquet file: the same bytes wherever, and in whichever order, it was computed."""
    import pyarrow as pa  # noqa: PLC0415 (only a study needs it, and it is large)
    import pyarrow.parquet as pq  # noqa: PLC0415

    found = rows(what)
    figures = {figure.name for figure in what.study.figures}
    columns = {
        name: pa.array([row[name] for row in found], "float64" if name in figures else _type(found, name))
        for name in found[0]
    }
    content = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), content, row_group_size=ROWS, compression="zstd", version="2.6")
    path = what.folder / TABLE
    with new_file(path) as write:
        write(content.getvalue().to_pybytes())
    return path


def _type(found: list[dict[str, Value | None]], name: str) -> str:
    """As Arrow calls it."""
    kinds = {type(row[name]) for row in found} - {type(None)}
    return "string" if str in kinds else "float64" if float in kinds else "int64"


def _figures(study: Study, unit: Unit, results: Results) -> list[float | None]:
    if not results.runs:
        return [None] * len(study.figures)
    scenario = unit.job.scenario.at(unit.job.point)
    found = (expectations.figure(figure.expect, scenario, results.runs[0]) for figure in study.figures)
    return [None if value is None else float(value) for value in found]
