# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane run`: scenarios under knobs, on a backend."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fairlane.backends.job import Backend
from fairlane.backends.scenario_runs import ScenarioRun, run_scenarios
from fairlane.commands.common import RESULTS, backend_of, conclude, knobs_of, print_json
from fairlane.errors import FairlaneError
from fairlane.experiment import expectations, price_lists, scenario_file
from fairlane.experiment.model import Scenario
from fairlane.experiment.results import Results, check_folder
from fairlane.files import held
from fairlane.linux import knobs
from fairlane.pages import terminal


@dataclass(frozen=True)
class Asked:
    """What is to be run, and what becomes of it."""

    files: Sequence[Path]
    backend: Backend
    knobs: Sequence[str]
    out: Path
    command: str
    prices: str | None = None  # a price list, for scenarios that name another or none
    json: bool = False
    check: bool = False


def main(args: argparse.Namespace) -> int:
    backend, names = knobs_of(args.knobs, backend_of(args))
    return run(Asked(args.scenarios, backend, names, args.out, args.command_line, args.prices, args.json, args.check))


def run(asked: Asked) -> int:
    """Run scenarios; 1 when an [[expect]] fails and that is to be told."""
    runs = _runs(asked)
    for each in runs:
        check_folder(each.out, RESULTS)
    with held(asked.out, *(each.out for each in runs)):
        return _run(asked, runs)


def _run(asked: Asked, runs: Sequence[ScenarioRun]) -> int:
    out = terminal.console()
    bad, everything, failure = False, list[Results](), None
    title = runs[0].scenario.name if len(runs) == 1 else f"{len(runs)} scenarios"
    with terminal.progress(title) as progress:
        try:
            for each, results in run_scenarios(asked.backend, runs, progress):
                file = each.out / RESULTS
                conclude(each, results, asked.backend, asked.command, file)
                bad = bad or bool(expectations.failed(results.expects))
                everything.append(results)
                if not asked.json:
                    terminal.results(results, out)
                    terminal.outcomes(results.expects, out)
                    out.print(f"{file}")
        except FairlaneError as error:  # what has run is told all the same
            failure = error
    _together(asked, everything)
    if failure:
        raise failure
    return 1 if asked.check and bad else 0


def _together(asked: Asked, everything: Sequence[Results]) -> None:
    """What is said of all of them, at the end."""
    if asked.json and everything:
        print_json([asdict(each) for each in everything] if len(everything) > 1 else asdict(everything[0]))
    elif len(everything) > 1:
        terminal.across(everything, terminal.console())


def _runs(asked: Asked) -> list[ScenarioRun]:
    """The scenarios of the files, checked in full before anything runs."""
    loaded = [(path, what) for path in asked.files for what in scenario_file.load_all(path, tuple(knobs.TABLE))]
    if asked.prices:
        prices = price_lists.load(asked.prices)
        loaded = [(path, replace(what, prices=prices)) for path, what in loaded]
    _check_names([what for _, what in loaded])
    for path, what in loaded:
        asked.backend.check(path, what, asked.knobs)
    several = len(loaded) > 1
    return [ScenarioRun(what, asked.knobs, asked.out / what.name if several else asked.out) for _, what in loaded]


def _check_names(scenarios: Sequence[Scenario]) -> None:
    names = [what.name for what in scenarios]
    if twice := {name for name in names if names.count(name) > 1}:
        raise FairlaneError(f"two scenarios named {', '.join(sorted(twice))} would share a folder; run them one by one")
