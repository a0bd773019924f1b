# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane demo`: none, and every knob that knows weights, in turn with the same four tenants, in one boot of a VM.

Two loads: the one that every knob is set for, and another one.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from fairlane import schedulers
from fairlane.backends.scenario_runs import ScenarioRun, run_scenarios
from fairlane.backends.vm import Vm
from fairlane.commands.common import PICTURE, REPORT, RESULTS, conclude, only_in_a_checkout, print_json
from fairlane.experiment import scenario_file
from fairlane.experiment.model import Scenario
from fairlane.experiment.results import Results, check_folder
from fairlane.files import held
from fairlane.linux import knobs
from fairlane.pages import picture, scenario_page, terminal
from fairlane.places import SCENARIOS

SCENARIO, OTHER = SCENARIOS / "demo.toml", SCENARIOS / "demo-reads.toml"
TITLES = {  # in the picture
    SCENARIO.stem: ("The load that every knob was set for", "4 KiB random reads and writes"),
    OTHER.stem: ("Another load, the same settings", "16 KiB random reads"),
}
NO_WEIGHTS = ("mq-deadline", "kyber")  # which they do not know
# What Debian's kernel has, without our baselines. The demo's device arbitrates nothing, which D2FQ needs.
KNOBS = tuple(
    knob.name
    for knob in knobs.TABLE.values()
    if not (knob.lab or knob.wrr or knob.name in (*NO_WEIGHTS, *schedulers.BASELINES, *schedulers.EXAMPLES))
)


def main(args: argparse.Namespace) -> int:
    """Run demo.toml and demo-reads.toml under all KNOBS; leaves results, a report and a picture."""
    only_in_a_checkout("demo")
    page = args.out / REPORT
    runs = [
        ScenarioRun(_load(SCENARIO), KNOBS, args.out),
        ScenarioRun(_load(OTHER), KNOBS, args.out / "reads"),
    ]
    for run in runs:
        check_folder(run.out, RESULTS, REPORT, PICTURE)
    backend, found = Vm(), list[Results]()
    with held(*(run.out for run in runs)), terminal.progress("demo") as progress:
        for run, results in run_scenarios(backend, runs, progress):
            conclude(run, results, backend, args.command_line, run.out / RESULTS)
            found.append(results)
    scenario_page.write(found, page)
    picture.write(found, args.out / PICTURE, TITLES)
    if args.json:
        print_json([asdict(results) for results in found])
        return 0
    out = terminal.console()
    for results in found:
        terminal.results(results, out)
        terminal.outcomes(results.expects, out)
    terminal.across(found, out)
    out.print(f"The report: {page}")
    return 0


def _load(file: Path) -> Scenario:
    return scenario_file.load(file, tuple(knobs.TABLE))
