# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane demo`: every scheduler in turn under the same four tenants, in one boot of a VM."""

from __future__ import annotations

from pathlib import Path

from fairlane import check, knobs, report, scenario, schedulers, tables, vm
from fairlane.results import Results

SCENARIO = scenario.SCENARIOS / "demo.toml"
# What Debian's kernel has, without our baselines. The demo's device arbitrates nothing, which D2FQ needs.
KNOBS = tuple(
    k.name
    for k in knobs.TABLE.values()
    if not (k.lab or k.routes or k.name in (*schedulers.BASELINES, *schedulers.EXAMPLES))
)


def run(file: Path, page: Path, command: str) -> Results:
    """Run scenarios/demo.toml under all KNOBS; writes the results to `file` and the report to `page`."""
    what = scenario.load(SCENARIO)
    names = list(KNOBS)
    with tables.progress("demo") as progress:
        [results] = vm.run_scenarios([vm.Job(what, names, file.parent)], file.parent, progress)
    check.conclude(what, results, names, command, file)
    report.write([results], page)
    return results
