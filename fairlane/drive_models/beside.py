# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The three lives of the model: the same scenarios on the simulator and, in a VM, on the virtual SSD and on fl-nvme."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairlane.backends.job import Backend, Options
from fairlane.backends.scenario_runs import ScenarioRun, run_scenarios
from fairlane.backends.sim import Simulator
from fairlane.backends.vm import Vm
from fairlane.errors import FairlaneError
from fairlane.experiment import expectations, scenario_file
from fairlane.experiment.model import FL_NVME, Scenario
from fairlane.experiment.results import Results, check_folder
from fairlane.experiment.summary import OURS, Point, points
from fairlane.linux import knobs
from fairlane.pages import terminal
from fairlane.places import ROOT
from fairlane.vm import qemu

DOCS = ROOT / "docs" / "trust"
RESULTS = "results.json"
BESIDE = "beside.json"
PLACES = ("simulator", "vssd", FL_NVME)  # also the folders of what was measured there

Row = dict[str, Any]  # of the table: what it is of, and each figure in each of PLACES
COLUMNS = {"p50_ms": "p50, ms", "p99_ms": "p99, ms"}
HEADINGS = ("scenario", "knob", "on", "IOPS", "against none", "shares, %", *COLUMNS.values())


def compare(files: Sequence[Path], names: Sequence[str], out: Path, kernel: str, reuse: bool) -> str:
    """Run the scenarios in all places and return the table; OUT/PLACE keeps the results."""
    scenarios = [_with_the_vms_cores(scenario_file.load(file, tuple(knobs.TABLE))) for file in files]
    simulator = Simulator()
    simulator.check_knobs(names)
    other = [what.name for what in scenarios if what.profile.kind != "ssd"]
    if other:
        raise FairlaneError(f"{', '.join(other)}: not on a modelled SSD, so there is nothing to compare")
    for file, what in zip(files, scenarios, strict=True):
        simulator.check(file, what, names)
    for place in PLACES:
        check_folder(out / place)
    found = []
    for place in PLACES:
        backend: Backend = simulator if place == "simulator" else Vm(None, Options(kernel=kernel))
        device = FL_NVME if place == FL_NVME else None
        there = [replace(what, profile=replace(what.profile, device=device)) for what in scenarios]
        mine = [ScenarioRun(what, names, out / place / what.name) for what in there]
        if not (reuse and all((run.out / RESULTS).is_file() for run in mine)):
            with terminal.progress(place) as progress:
                for run, results in run_scenarios(backend, mine, progress):
                    command = shlex.join(sys.argv)
                    expectations.conclude(run.scenario, results, names, command, run.out / RESULTS, backend.knobs)
        found.append([Results.load(run.out / RESULTS) for run in mine])
    rows = [row for runs in zip(*found, strict=True) for row in beside(runs)]
    (out / BESIDE).write_text(json.dumps(rows, indent=1) + "\n")
    return table(rows)


def _with_the_vms_cores(what: Scenario) -> Scenario:
    return replace(what, cores=qemu.CPUS)


def beside(runs: Sequence[Results]) -> list[Row]:
    """A row for each knob and point of a sweep that all places have; lists are of the tenants, in order."""
    found = [{(point.knob, point.cgroups): point for point in points(results)} for results in runs]
    everywhere = [key for key in found[0] if all(key in there for there in found)]
    return [_row(runs[0].scenario, [there[key] for there in found]) for key in everywhere]


def _row(name: str, places: Sequence[Point]) -> Row:
    return {
        "scenario": name,
        "knob": places[0].knob,
        "cgroups": places[0].cgroups,
        "iops": [point.iops for point in places],
        "vs_none": [point.vs_none for point in places],
        "share_percent": [[None if s.got is None else 100 * s.got for s in point.shares] for point in places],
        "p50_ms": [[_ms(s.lat_us.get("p50")) for s in point.shares] for point in places],
        "p99_ms": [[_ms(s.lat_us.get("p99")) for s in point.shares] for point in places],
    }


def table(rows: Iterable[Row]) -> str:
    """The rows in Markdown, one line for each place."""
    lines = [_line(HEADINGS), _line(["---"] * 3 + ["---:"] * (len(HEADINGS) - 3))]
    return "\n".join([*lines, *(_line(_cells(row, n)) for row in rows for n in range(len(PLACES)))])


def _cells(row: Row, place: int) -> list[str]:
    cgroups = f", {row['cgroups']} cgroups" if row["cgroups"] else ""
    knob = f"**{row['knob']}**" if row["knob"] == OURS else row["knob"] + cgroups
    vs_none = row["vs_none"][place]
    total = [f"{row['iops'][place]:,.0f}", "–" if vs_none is None else f"{vs_none:.2f}"]
    cells = [row["scenario"], knob, PLACES[place], *total]
    return cells + [_list(row[key][place]) for key in ("share_percent", *COLUMNS)]


def _ms(us: float | None) -> float | None:
    return None if us is None else us / 1000


def _list(values: Iterable[float | None]) -> str:
    return " ".join("–" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}" for value in values)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
