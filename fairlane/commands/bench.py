# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane bench`: the isolation suite."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fairlane.backends.job import Backend
from fairlane.calibration import calibrate as calibration
from fairlane.commands import calibrate
from fairlane.commands.common import INTERRUPTED, backend_of, carried_on, print_json
from fairlane.experiment import price_lists
from fairlane.experiment.model import OURS
from fairlane.experiment.results import PLAN, check_folder
from fairlane.files import held
from fairlane.isolbench import bench
from fairlane.pages import bench_page, terminal


def main(args: argparse.Namespace) -> int:
    backend = backend_of(args, drive=True)
    backend.check_place()
    parts = [part.strip().lower() for part in args.suite.split(",") if part.strip()]
    names = None if args.knobs == "all" else [name.strip() for name in args.knobs.split(",") if name.strip()]
    with held(args.out):
        what = bench.prepare(
            parts, names, backend, args.quick, args.out, partial(_prices, args, backend, names), args.unit
        )
        return _run(args, backend, names, what)


def _run(args: argparse.Namespace, backend: Backend, names: Sequence[str] | None, what: bench.Bench) -> int:
    told = terminal.console(stderr=True)
    todo = len(what.todo)
    asked = len(what.asked)
    done = f"{asked - todo} of {asked} units are done; " if todo < asked else ""
    if todo:
        most = next((unit for unit in what.todo if unit.scenario.writes), what.todo[0])
        backend.check(args.out, most.scenario, [most.knob])
        if not backend.modelled and not args.destroy_data and _lacks_prices(args, backend, names):
            told.print(
                f"{backend.place} has no price list, so to our schedulers bytes are what counts; with --destroy-data"
                f" {backend.place} it is calibrated first",
                markup=False,
            )
        if not backend.modelled:
            told.print(
                f"{backend.place} is measured as it is: one that was not written since it was new or trimmed answers"
                " reads without its flash, and one that was not written at random does not collect garbage yet",
                markup=False,
            )
        told.print(f"{args.out}: {done}{todo} to run, about {bench.estimate_s(what) / 60:.0f} min")
        if not carried_on("isol-bench", args.out, partial(bench.run, what)):
            return INTERRUPTED
    elif what.only:
        file = what.store.path(what.only.id)
        told.print(f"{what.only.id} is done; delete {file} to run it again", markup=False, soft_wrap=True)
    found = bench.finish(what)
    page = bench_page.write(what, found)
    if args.json:
        print_json(found.summary)
        return 0
    out = terminal.console()
    terminal.verdict(found, out)
    out.print(f"The report: {page}")
    return 0


def _lacks_prices(args: argparse.Namespace, backend: Backend, names: Sequence[str] | None) -> bool:
    """Whether our schedulers are to run on a drive that nobody has calibrated."""
    drive = backend.drives()[0]
    if args.prices or not backend.place or not set(OURS) & set(names or backend.usual_knobs):
        return False
    known = drive.name in price_lists.names() or _kept(args, backend).exists()
    return not known and drive.kind in ("ssd", "host")


def _kept(args: argparse.Namespace, backend: Backend) -> Path:
    """In the run folder: of a drive that had no price list."""
    return Path(args.out, f"prices-{backend.drives()[0].name}.toml")


def _prices(args: argparse.Namespace, backend: Backend, names: Sequence[str] | None) -> str | None:
    """The price list that --prices names; of a drive that has none, one that is measured first, and kept."""
    kept = _kept(args, backend)
    if _lacks_prices(args, backend, names) and not (args.out / PLAN).exists():
        if not backend.modelled and not args.destroy_data:
            return None
        plan = calibration.plan(backend)
        minutes = f"about {plan.estimate_s / 60:.0f} min" if plan.estimate_s else "some minutes"
        fill = "" if backend.modelled else ", and as long as it takes to write all of the drive"
        name = backend.drives()[0].name
        terminal.console(stderr=True).print(
            f"{name} has no price list: calibrating it first, {minutes}{fill}; kept in {kept}", markup=False
        )
        check_folder(args.out)
        calibrate.measured(plan, kept, args.command_line)
    return str(args.prices or kept) if args.prices or kept.exists() else None
