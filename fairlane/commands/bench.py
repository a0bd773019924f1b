# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane bench`: the isolation suite."""

from __future__ import annotations

import argparse
import sys

from fairlane.commands.common import check_options, parse_on, print_json
from fairlane.isolbench import bench
from fairlane.linux import disks
from fairlane.pages import terminal


def main(args: argparse.Namespace) -> int:
    backend, where = parse_on(args.on)
    check_options(args, backend)
    parts = [part.strip().lower() for part in args.suite.split(",") if part.strip()]
    names = None if args.knobs == "all" else [name.strip() for name in args.knobs.split(",") if name.strip()]
    if backend == "host":
        disks.check_device(where or "")
    what = bench.prepare(parts, names, args.on, backend, where, args.quick, args.kernel, args.out, args.destroy_data)
    told = terminal.console(stderr=True)
    todo = len(what.todo)
    done = f"{len(what.units) - todo} of {len(what.units)} units are done; " if todo < len(what.units) else ""
    if todo:
        told.print(f"{args.out}: {done}{todo} to run, about {bench.estimate_s(what) / 60:.0f} min")
        try:
            with terminal.progress("isol-bench") as progress:
                bench.run(what, progress)
        except KeyboardInterrupt:
            print(f"fairlane: interrupted; the same command goes on from here ({args.out})", file=sys.stderr)
            return 130
    found = bench.finish(what)
    if args.json:
        print_json(found.summary)
        return 0
    out = terminal.console()
    terminal.verdict(found, out)
    out.print(f"The report: {found.page}")
    return 0
