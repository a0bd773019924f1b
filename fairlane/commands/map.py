# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane map`: read and write load against latency on a drive, and what latency costs in throughput there."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

from fairlane.commands.common import backend_of, print_json
from fairlane.errors import FairlaneError
from fairlane.experiment import values
from fairlane.experiment.results import check_folder
from fairlane.files import held, write_json
from fairlane.isolbench import drive_map
from fairlane.pages import map_picture, terminal

DATA, PICTURE = "map.json", "map.svg"


def main(args: argparse.Namespace) -> int:
    if args.seconds is not None and not 0 < args.seconds <= values.MAX_SECONDS:
        raise FairlaneError(f"--seconds {args.seconds:g}: must be more than 0, and less than a week")
    plan = drive_map.plan(backend_of(args, drive=True), args.steps, args.seconds)
    out = args.out or Path("out", f"map-{plan.where}")
    check_folder(out, DATA, PICTURE)
    told = terminal.console(stderr=True)
    if not plan.writes:
        told.print(f"reads only: to map writes, too, which destroy what is on it, add --destroy-data {plan.where}")
    with (
        held(out),
        tempfile.TemporaryDirectory(prefix=".map-", dir=out) as folder,
        terminal.progress("map") as progress,
    ):
        found = drive_map.run(plan, Path(folder), progress)
    said = {"schema": 1, "command": args.command_line, **asdict(found)}
    write_json(out / DATA, said)
    map_picture.write(found, out / PICTURE)
    if args.json:
        print_json(said)
        return 0
    print_to = terminal.console()
    terminal.drive_map(found, print_to)
    print_to.print(f"The map: {out / PICTURE}", markup=False)
    return 0
