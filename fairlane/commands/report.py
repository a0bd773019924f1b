# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane report`: results made into a page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fairlane.commands import demo
from fairlane.commands.common import COMPARED, REPORT, RESULTS
from fairlane.errors import FairlaneError
from fairlane.experiment.results import PLAN, Results
from fairlane.isolbench import bench, compare
from fairlane.pages import bench_page, compare_page, front_picture, markdown, picture, scenario_page, template, terminal
from fairlane.study import study


def main(args: argparse.Namespace) -> int:
    for path in args.results:
        if (path / study.PLAN).exists():
            raise FairlaneError(f"{path} is a study, whose page is made by itself: open {path / REPORT}")
    suites = [path for path in args.results if (path / PLAN).exists()]
    if suites and args.markdown:
        raise FairlaneError(f"{suites[0]} is a run of the suite; --markdown is for results of `fairlane run`")
    if len(suites) > 1 and args.picture:
        raise FairlaneError(f"--picture is of one run of the suite, not of {len(suites)}: name one folder")
    if len(args.results) > 1 and suites:
        if len(args.results) > 2 or len(suites) < 2:
            raise FairlaneError(
                f"{suites[0]} is a run of the suite, which is compared with one other run of the suite and nothing"
                " else: give two such folders"
            )
        found = compare.compare(suites)
        page = args.out or suites[0] / COMPARED
        template.save(compare_page.render(found), page)
        out = terminal.console()
        terminal.compared(found, out)
        out.print(f"The report: {page}", markup=False)
        return 0
    if suites:
        if args.out:
            raise FairlaneError(f"{suites[0]} is a run of the suite: its report is made by itself, and in its folder")
        suite = bench.load(suites[0])
        made = bench.finish(suite)
        if made.evidence.missing:
            print(f"fairlane: {made.advice}", file=sys.stderr)
        terminal.beside_published(made.published, terminal.console())
        print(bench_page.write(suite, made))
        if args.picture:
            front_picture.write(suite, made, args.picture)
        return 0
    return _scenarios(args)


def _scenarios(args: argparse.Namespace) -> int:
    files = [file for path in args.results for file in _files(path)]
    first = args.results[0] if args.results[0].is_dir() else args.results[0].parent
    page = args.out or first / (REPORT if len(args.results) == 1 else COMPARED)
    found = [Results.load(file) for file in files]
    scenario_page.write(found, page, [str(file.parent) for file in files])
    if args.picture:
        picture.write(found, args.picture, demo.TITLES)
    print(markdown.table(found, demo.TITLES) if args.markdown else page)
    return 0


def _files(path: Path) -> list[Path]:
    """The results in a folder of one run, or of several."""
    if not path.is_dir():
        return [path]
    return [path / RESULTS] if (path / RESULTS).exists() else sorted(path.rglob(RESULTS)) or [path / RESULTS]
