# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane top`: who gets how much of a drive, who waits, and for whom, live."""

from __future__ import annotations

import argparse
import json
import math
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

from rich.live import Live

from fairlane.errors import FairlaneError
from fairlane.linux import cgroups, contention, stat_files, watching
from fairlane.linux.contention import Drive
from fairlane.pages import terminal, top_screen
from fairlane.pages.top_screen import View


def main(args: argparse.Namespace) -> int:
    view = View(sort=args.sort, pattern=args.filter)
    if not 2 * contention.EVERY_S <= args.interval < math.inf:
        raise FairlaneError(f"--interval {args.interval}: must be {2 * contention.EVERY_S:g} s or more")
    if sys.stdout.isatty() and sys.stdin.isatty() and not (args.once or args.json):
        return _live(args, view)
    for drives in islice(_drives(args), 1 if args.once else None):
        names = stat_files.drives()
        if args.json:
            print(json.dumps(top_screen.data(drives, names, view)), flush=True)
        else:
            print("\n".join(top_screen.plain(drives, names, view)), flush=True)
    return 0


def _drives(args: argparse.Namespace, wait: Callable[[float], None] = time.sleep) -> Iterator[list[Drive]]:
    """What each drive that was asked for did in each interval."""
    for readings in watching.spans(cgroups.find_mount(), args.interval, wait):
        yield asked(contention.drives(readings), args.drive)


def asked(drives: list[Drive], name: str | None) -> list[Drive]:
    """The drives of that name; None: all."""
    if name is None:
        return drives
    names = stat_files.drives()
    short = name.removeprefix("/dev/")
    found = [drive for drive in drives if names.get(drive.number, ("",))[0] == short]
    if not found:
        known = ", ".join(names[drive.number][0] for drive in drives if drive.number in names) or "none"
        raise FairlaneError(f"--drive {name}: no scheduler of ours counts on it; drives that have one: {known}")
    return found


class _Quit(Exception):
    pass


def _live(args: argparse.Namespace, view: View) -> int:
    drives: list[Drive] = []
    with _keys() as key, Live(console=terminal.console(), screen=True, auto_refresh=False) as live:

        def show() -> None:
            live.update(top_screen.screen(drives, stat_files.drives(), view), refresh=True)

        def wait(seconds: float) -> None:
            until = time.monotonic() + seconds
            while pressed := key(max(0.0, until - time.monotonic())):
                if not view.key(pressed):
                    raise _Quit
                show()

        try:
            for found in _drives(args, wait):
                if not view.paused:
                    drives = found
                    view.note(found)
                show()
        except _Quit:
            pass
    return 0


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """A function that returns the next key pressed within so many s, or nothing."""
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    tty.setcbreak(stdin)

    def key(seconds: float) -> str:
        ready, _, _ = select.select([stdin], [], [], seconds)
        return os.read(stdin, 1).decode(errors="replace") if ready else ""

    try:
        yield key
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
