# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane demo`: every scheduler in turn under the same four tenants, in one boot of a VM."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from fairlane.backends import vm
from fairlane.commands.common import REPORT, RESULTS, print_json
from fairlane.experiment import expectations, scenario_file
from fairlane.experiment.results import Results, check_folder
from fairlane.linux import knobs
from fairlane.pages import scenario_page, terminal
from fairlane.places import SCENARIOS

SCENARIO = SCENARIOS / "demo.toml"
# What Debian's kernel has. The demo's device arbitrates nothing, which D2FQ needs; MQFQ is the baseline of that.
BASELINES = ("mqfq", "flashfq")
KNOBS = tuple(k.name for k in knobs.TABLE.values() if not (k.lab or k.routes or k.name in BASELINES))


def run(file: Path, page: Path, command: str) -> Results:
    """Run scenarios/demo.toml under all KNOBS; writes the results to `file` and the report to `page`."""
    what = scenario_file.load(SCENARIO)
    names = list(KNOBS)
    with terminal.progress("demo") as progress:
        [results] = vm.run_scenarios([vm.Job(what, names, file.parent)], file.parent, progress)
    expectations.conclude(what, results, names, command, file)
    scenario_page.write([results], page)
    return results


def main(args: argparse.Namespace) -> int:
    page = args.out / REPORT
    check_folder(args.out, RESULTS, REPORT)
    results = run(args.out / RESULTS, page, args.command_line)
    if args.json:
        print_json(asdict(results))
        return 0
    out = terminal.console()
    terminal.results(results, out)
    terminal.outcomes(results.expects, out)
    out.print(f"The report: {page}")
    return 0
