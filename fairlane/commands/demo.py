# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane demo`: every scheduler in turn under the same four tenants, in one boot of a VM."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from fairlane import schedulers
from fairlane.backends.scenario_runs import ScenarioRun, run_scenarios
from fairlane.backends.vm import Vm
from fairlane.commands.common import REPORT, RESULTS, conclude, print_json
from fairlane.experiment import scenario_file
from fairlane.experiment.results import check_folder
from fairlane.linux import knobs
from fairlane.pages import scenario_page, terminal
from fairlane.places import SCENARIOS

SCENARIO = SCENARIOS / "demo.toml"
# What Debian's kernel has, without our baselines. The demo's device arbitrates nothing, which D2FQ needs.
KNOBS = tuple(
    knob.name
    for knob in knobs.TABLE.values()
    if not (knob.lab or knob.routes or knob.name in (*schedulers.BASELINES, *schedulers.EXAMPLES))
)


def main(args: argparse.Namespace) -> int:
    """Run scenarios/demo.toml under all KNOBS; leaves its results and a report."""
    file, page = args.out / RESULTS, args.out / REPORT
    check_folder(args.out, RESULTS, REPORT)
    backend, demo = Vm(), ScenarioRun(scenario_file.load(SCENARIO, tuple(knobs.TABLE)), KNOBS, args.out)
    with terminal.progress("demo") as progress:
        [(_, results)] = run_scenarios(backend, [demo], progress)
    conclude(demo, results, backend, args.command_line, file)
    scenario_page.write([results], page)
    if args.json:
        print_json(asdict(results))
        return 0
    out = terminal.console()
    terminal.results(results, out)
    terminal.outcomes(results.expects, out)
    out.print(f"The report: {page}")
    return 0
