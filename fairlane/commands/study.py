# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane study`: scenarios over parameters, on the simulator."""

from __future__ import annotations

import argparse
import shlex
from functools import partial
from pathlib import Path

from fairlane.backends import table
from fairlane.backends.job import Options
from fairlane.commands.common import INTERRUPTED, carried_on, print_json
from fairlane.files import held
from fairlane.pages import study_page, terminal
from fairlane.study import study, study_file


def main(args: argparse.Namespace) -> int:
    backend = table.named("sim", Options(cluster=args.cluster))
    out = args.out or Path("out") / args.study.stem
    asked = study_file.load(args.study)
    with held(out):
        return _run(args, out, study.prepare(asked, backend, out))


def _run(args: argparse.Namespace, out: Path, what: study.Run) -> int:
    told = terminal.console(stderr=True)
    if todo := len(what.todo):
        done = len(what.units) - todo
        said = f"{done:,} of {len(what.units):,} units are done; " if done else ""
        told.print(f"{out}: {said}{todo:,} to run", markup=False)
        if not carried_on("study", out, partial(study.run, what)):
            return INTERRUPTED
    file = study.write_table(what)
    page = study_page.write(what, shlex.join(["fairlane", "study", str(args.study), "--out", str(out)]))
    if args.json:
        print_json({"units": len(what.units), "table": str(file), "report": str(page), "unavailable": what.unavailable})
        return 0
    print_to = terminal.console()
    for knob, why in what.unavailable.items():
        print_to.print(f"{knob} did not run everywhere: {why}", markup=False)
    print_to.print(f"{len(what.units):,} units: {file}", markup=False)
    print_to.print(f"The report: {page}", markup=False)
    return 0
