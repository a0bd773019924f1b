# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The simulator beside the virtual SSD in a VM: the same scenarios on both."""

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
from fairlane.experiment.model import Scenario
from fairlane.experiment.results import Results, check_folder
from fairlane.experiment.summary import OURS, Point, points
from fairlane.linux import knobs
from fairlane.pages import terminal
from fairlane.places import ROOT
from fairlane.vm import qemu

DOCS = ROOT / "docs" / "trust"


RESULTS = "results.json"


BOTH = "both.json"


def compare(files: Sequence[Path], names: Sequence[str], out: Path, kernel: str, reuse: bool) -> str:
    """Run the scenarios on both and return the table; OUT/sim and OUT/vm keep the results."""
    scenarios = [_with_the_vms_cores(scenario_file.load(file, tuple(knobs.TABLE))) for file in files]
    simulator = Simulator()
    simulator.check_knobs(names)
    other = [what.name for what in scenarios if what.profile.kind != "ssd"]
    if other:
        raise FairlaneError(f"{', '.join(other)}: not on a modelled SSD, so there is nothing to compare")
    for file, what in zip(files, scenarios, strict=True):
        simulator.check(file, what, names)
    backends: list[Backend] = [simulator, Vm(None, Options(kernel=kernel))]
    for backend in backends:
        check_folder(out / backend.name)
    runs = {
        each.name: [ScenarioRun(what, names, out / each.name / what.name) for what in scenarios] for each in backends
    }
    for backend in backends:
        mine = runs[backend.name]
        if not (reuse and all((run.out / RESULTS).is_file() for run in mine)):
            with terminal.progress(backend.name) as progress:
                for run, results in run_scenarios(backend, mine, progress):
                    command = shlex.join(sys.argv)
                    expectations.conclude(run.scenario, results, names, command, run.out / RESULTS, backend.knobs)
    rows = beside(*([Results.load(run.out / RESULTS) for run in mine] for mine in runs.values()))
    (out / BOTH).write_text(json.dumps(rows, indent=1) + "\n")
    return table(rows)


def _with_the_vms_cores(what: Scenario) -> Scenario:
    return replace(what, cores=qemu.CPUS)


HEADINGS = ("scenario", "knob", "IOPS: simulator", "VM", "against none: simulator", "VM")


LISTS = ("shares, %: simulator", "VM", "p50, ms: simulator", "VM", "p99, ms: simulator", "VM")


Row = dict[str, Any]  # of the table: what it is of, and of each figure the simulator's and the VM's


def beside(simulated: Iterable[Results], in_vm: Iterable[Results]) -> list[Row]:
    """A row for each scenario, knob and point of a sweep that both have; lists are of the tenants, in order."""
    rows = []
    for ours, theirs in zip(simulated, in_vm, strict=True):
        found = {(point.knob, point.cgroups): point for point in points(theirs)}
        for point in points(ours):
            other = found.get((point.knob, point.cgroups))
            if other is not None:
                rows.append(_row(ours.scenario, point, other))
    return rows


def _row(name: str, *both: Point) -> Row:
    return {
        "scenario": name,
        "knob": both[0].knob,
        "cgroups": both[0].cgroups,
        "iops": [point.iops for point in both],
        "vs_none": [point.vs_none for point in both],
        "share_percent": [[None if s.got is None else 100 * s.got for s in point.shares] for point in both],
        "p50_ms": [[_ms(s.lat_us.get("p50")) for s in point.shares] for point in both],
        "p99_ms": [[_ms(s.lat_us.get("p99")) for s in point.shares] for point in both],
    }


def table(rows: Iterable[Row]) -> str:
    """The rows in Markdown."""
    headings = (*HEADINGS, *LISTS)
    lines = [_line(headings), _line(["---", "---", *["---:"] * (len(headings) - 2)])]
    return "\n".join([*lines, *(_line(_cells(row)) for row in rows)])


def _cells(row: Row) -> list[str]:
    cgroups = f", {row['cgroups']} cgroups" if row["cgroups"] else ""
    cells = [row["scenario"], f"**{row['knob']}**" if row["knob"] == OURS else row["knob"] + cgroups]
    cells += [f"{iops:,.0f}" for iops in row["iops"]]
    cells += ["–" if vs_none is None else f"{vs_none:.2f}" for vs_none in row["vs_none"]]
    return cells + [_list(tenants) for key in ("share_percent", "p50_ms", "p99_ms") for tenants in row[key]]


def _ms(us: float | None) -> float | None:
    return None if us is None else us / 1000


def _list(values: Iterable[float | None]) -> str:
    return " ".join("–" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}" for value in values)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
