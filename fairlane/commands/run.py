# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane run`: scenarios under knobs, on a backend."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from fairlane.backends import host, sim, vm
from fairlane.commands.common import RESULTS, check_options, check_traces, parse_on, print_json
from fairlane.errors import FairlaneError
from fairlane.experiment import expectations, price_lists, scenario_file
from fairlane.experiment.model import Scenario
from fairlane.experiment.results import Results, check_folder
from fairlane.linux import knobs
from fairlane.pages import terminal
from fairlane.vm import qemu


def main(args: argparse.Namespace) -> int:
    backend, where = parse_on(args.on)
    check_options(args, backend)
    known = sim.KNOBS if backend == "sim" else tuple(knobs.TABLE)
    names = list(known) if args.knobs is None else [name.strip() for name in args.knobs.split(",") if name.strip()]
    knobs.check_names(names)
    if not names:
        raise FairlaneError(f"--knobs names none; valid are {', '.join(known)}")
    if backend == "sim":
        sim.check_knobs(names)
    loaded = [(path, what) for path in args.scenarios for what in scenario_file.load_all(path)]
    scenarios = [what for _, what in loaded]
    if backend != "sim":
        check_traces(scenarios)
    if args.cost:
        prices = price_lists.load(args.cost)
        scenarios = [replace(what, cost=prices) for what in scenarios]
    twice = {what.name for what in scenarios if [each.name for each in scenarios].count(what.name) > 1}
    if twice:
        raise FairlaneError(f"two scenarios named {', '.join(sorted(twice))} would share a folder; run them one by one")
    folders = [args.out / what.name if len(scenarios) > 1 else args.out for what in scenarios]
    if backend == "sim":
        for (path, _), what in zip(loaded, scenarios, strict=True):
            sim.check(path, what, where, names)
    for folder in folders:
        check_folder(folder, RESULTS)
    out = terminal.console()
    bad, everything = False, []
    for what, folder, results in _results(args, scenarios, names, folders):
        expectations.conclude(what, results, names, args.command_line, folder / RESULTS)
        bad = bad or bool(expectations.failed(results.expects))
        everything.append(asdict(results))
        if not args.json:
            terminal.results(results, out)
            terminal.outcomes(results.expects, out)
            out.print(f"{folder / RESULTS}")
    if args.json:
        print_json(everything if len(everything) > 1 else everything[0])
    return 1 if args.check and bad else 0


def _results(
    args: argparse.Namespace, scenarios: list[Scenario], names: list[str], folders: list[Path]
) -> Iterator[tuple[Scenario, Path, Results]]:
    backend, where = parse_on(args.on)
    if backend == "vm":
        jobs = [vm.Job(what, names, folder) for what, folder in zip(scenarios, folders, strict=True)]
        with terminal.progress(scenarios[0].name if len(scenarios) == 1 else f"{len(scenarios)} scenarios") as progress:
            kernel = args.kernel or (qemu.KERNEL if args.knobs is None else vm.kernel_for(names))
            found = vm.run_scenarios(jobs, args.out, progress, kernel)
        yield from zip(scenarios, folders, found, strict=True)
        return
    for what, folder in zip(scenarios, folders, strict=True):
        with terminal.progress(what.name) as progress:
            if backend == "sim":
                results = sim.run(what, where, names, folder, progress)
            else:
                results = host.run(what, where or "", names, folder, progress, destroy_data=args.destroy_data)
        yield what, folder, results
