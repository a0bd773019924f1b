# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane bench`: the isolation suite."""

from __future__ import annotations

import argparse
from functools import partial

from fairlane.commands.common import INTERRUPTED, backend_of, carried_on, print_json
from fairlane.isolbench import bench
from fairlane.pages import bench_page, terminal


def main(args: argparse.Namespace) -> int:
    backend = backend_of(args)
    backend.check_place()
    parts = [part.strip().lower() for part in args.suite.split(",") if part.strip()]
    names = None if args.knobs == "all" else [name.strip() for name in args.knobs.split(",") if name.strip()]
    what = bench.prepare(parts, names, backend, args.quick, args.out, args.prices)
    told = terminal.console(stderr=True)
    todo = len(what.todo)
    done = f"{len(what.units) - todo} of {len(what.units)} units are done; " if todo < len(what.units) else ""
    if todo:
        told.print(f"{args.out}: {done}{todo} to run, about {bench.estimate_s(what) / 60:.0f} min")
        if not carried_on("isol-bench", args.out, partial(bench.run, what)):
            return INTERRUPTED
    found = bench.finish(what)
    page = bench_page.write(what, found)
    if args.json:
        print_json(found.summary)
        return 0
    out = terminal.console()
    terminal.verdict(found, out)
    out.print(f"The report: {page}")
    return 0
