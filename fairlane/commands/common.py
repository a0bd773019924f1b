# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What the commands share."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from fairlane.backends import table
from fairlane.backends.job import Backend, Options
from fairlane.backends.scenario_runs import ScenarioRun
from fairlane.errors import FairlaneError
from fairlane.experiment import expectations
from fairlane.experiment.results import Results
from fairlane.pages import terminal
from fairlane.places import INSTALLED, SIMULATOR_ONLY
from fairlane.progress import Progress

INTERRUPTED = 130  # the exit status
RESULTS, REPORT, COMPARED, SCENARIO = "results.json", "report.html", "compared.html", "scenario.toml"
PICTURE = "picture.svg"


def backend_of(args: argparse.Namespace, *, drive: bool = False) -> Backend:
    """The backend that --on names, with what else the command line says about it."""
    return table.named(args.on, Options(args.kernel, args.destroy_data, getattr(args, "cluster", None)), drive=drive)


def knobs_of(asked: str | None, backend: Backend) -> tuple[Backend, list[str]]:
    """The knobs that --knobs names, by default all that the backend has; and the backend that has them."""
    if asked is None:
        return backend, backend.usual_knobs
    names = [name.strip() for name in asked.split(",") if name.strip()]
    backend.check_knobs(names)
    return backend.for_knobs(names), names


def conclude(run: ScenarioRun, results: Results, backend: Backend, command: str, file: Path) -> None:
    """Complete the results by the outcomes and by how to get them again, and write them."""
    expectations.conclude(run.scenario, results, run.knobs, command, file, backend.knobs)


def carried_on(title: str, out: Path, run: Callable[[Callable[[Progress], None]], None]) -> bool:
    """Run what keeps each unit that is done in the folder, with progress; whether it was not interrupted."""
    try:
        with terminal.progress(title) as progress:
            run(progress)
    except KeyboardInterrupt:
        print(f"fairlane: interrupted; the same command goes on from here ({out})", file=sys.stderr)
        return False
    return True


def only_in_a_checkout(command: str) -> None:
    """Refuse a command that needs more of the project than a wheel carries."""
    if INSTALLED:
        raise FairlaneError(f"fairlane {command}: {SIMULATOR_ONLY}")


def print_json(data: object) -> None:
    json.dump(data, sys.stdout, indent=1)
    print()
