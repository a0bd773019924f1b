# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane apply`: drives and cgroups as /etc/fairlane.toml says."""

from __future__ import annotations

import argparse
import sys

from fairlane.commands.common import print_json
from fairlane.errors import FairlaneError
from fairlane.linux import cgroups
from fairlane.settings import apply, file, plan, watch
from fairlane.settings.lines import Lines
from fairlane.settings.plan import Change, Plan


def main(args: argparse.Namespace) -> int:
    if args.watch and args.dry_run:
        raise FairlaneError("--watch with --dry-run: there would be nothing to watch for; give one of them")
    settings = file.load(args.config)
    if not settings.drives and not settings.cgroups:
        print(f"fairlane: {args.config} names no drive and no cgroup, so there is nothing to do", file=sys.stderr)
    if args.dry_run:
        found = plan.make(settings, load=False)
        _show(found, args.json)
        return 1 if found.changes or found.others else 0
    if args.watch:
        return _watch(args, settings)
    found = apply.apply(settings)
    _show(found, args.json)
    return 1 if found.refused else 0


def _watch(args: argparse.Namespace, settings: file.HostFile) -> int:
    """What is wrong at first ends it; what is wrong later is said, once, and tried again after a while."""
    first, wrong = True, ""
    refused: tuple[str, ...] = ()
    lines = Lines()
    with apply.watching():
        rounds = watch.rounds(cgroups.find_mount(), lambda: bool(wrong), lambda: bool(refused))
        for again in rounds:
            try:
                if again and not first:
                    settings = file.load(args.config)
                found = apply.apply(settings)
                if first or found.changes or found.others or found.refused != refused:
                    _show(found, args.json)
                refused = found.refused
                if again_there := lines.follow(apply.applied()):
                    _show(Plan((), (), others=again_there), args.json)
            except (FairlaneError, OSError) as error:
                if first:
                    raise
                if str(error) != wrong:
                    print(f"fairlane: {error}", file=sys.stderr, flush=True)
                wrong = str(error)
            else:
                wrong = ""
            first = False
    return 0


def _show(found: Plan, as_json: bool) -> None:
    if as_json:
        rows = [_row(change) for change in (*found.changes, *found.others)]
        print_json({"changes": rows, "unmatched": list(found.unmatched), "refused": list(found.refused)})
        return
    for change in (*found.changes, *found.others):
        row = _row(change)
        print(f"{row['file']}{' ' + change.key if change.key else ''}: {row['from']} -> {row['to']}   ({change.where})")
    for line in found.unmatched:
        print(f"nothing to do yet: {line}")
    for line in found.refused:
        print(f"left out: {line}")
    if not found.changes and not found.others and not found.refused:
        print("everything is as it is to be")
    sys.stdout.flush()


def _row(change: Change) -> dict[str, str]:
    return {
        "file": str(change.file),
        "key": change.key,
        "from": _short(change.was) if change.was is not None else "what comes with the scheduler",
        "to": _short(change.to),
        "where": change.where,
    }


def _short(value: str) -> str:
    """On one line: a price list has two, and is long."""
    words = value.split()
    return value if len(words) < 4 else " ".join([*words[:3], "..."])
