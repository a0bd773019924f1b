# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane calibrate`: what each kind of request takes from a drive."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from fairlane import files
from fairlane.calibration import calibrate, price_file
from fairlane.calibration.price_file import Calibration
from fairlane.commands.common import backend_of, print_json
from fairlane.errors import FairlaneError
from fairlane.experiment import values
from fairlane.pages import terminal


def main(args: argparse.Namespace) -> int:
    plan = calibrate.plan(
        backend_of(args, drive=True),
        state=args.state,
        page=_size("--page", args.page) if args.page else None,
        sizes=[_size("--sizes", size) for size in (args.sizes or "").split(",") if size],
        cores=_positive("--cores", args.cores),
        seconds=_positive("--seconds", args.seconds),
    )
    file = args.out or Path("out", f"prices-{plan.where}.toml")
    found = measured(plan, file, args.command_line)
    if args.json:
        print_json(asdict(found))
    else:
        terminal.calibration(found, terminal.console())
        terminal.console().print(f"{file}")
    return 0


def measured(plan: calibrate.Plan, file: Path, command: str) -> Calibration:
    """Calibrate, and leave the price list in that file."""
    with files.new_file(file) as write:
        with tempfile.TemporaryDirectory(prefix="fairlane-") as folder, terminal.progress("calibrate") as progress:
            found = calibrate.run(plan, Path(folder), progress)
        try:
            text = price_file.file_text(found, command)
        except ValueError as error:
            raise FairlaneError(
                f"{error}: too little was measured in {plan.seconds:g} s; give more --seconds"
            ) from error
        write(text)
    return found


def _size(option: str, text: str) -> int:
    try:
        return values.parse_size(text.strip())
    except ValueError as error:
        raise FairlaneError(f"{option}: {error}") from error


Number = TypeVar("Number", int, float)


def _positive(option: str, number: Number | None) -> Number | None:
    if number is not None and not 0 < number <= values.MAX_SECONDS:
        raise FairlaneError(f"{option} {number}: must be more than 0, and less than a week")
    return number
