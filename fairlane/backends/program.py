# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""fl-sim, the simulator, as a program: on this machine, or on any other that has this package."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlane import __version__, proc, schedulers
from fairlane.errors import FairlaneError
from fairlane.experiment.results import Results, Run
from fairlane.files import written
from fairlane.places import INSTALLED, PACKAGE, ROOT

PROGRAM = ROOT / "build" / "sim" / "fl-sim"
BUILD_S = 300.0
LIMIT_S = 24 * 3600.0


@dataclass(frozen=True)
class Played:
    """What became of one run of fl-sim."""

    status: int  # its exit status; below 0: the signal that ended it
    said: list[str]  # but its progress
    found: str = ""  # its results, if the status is 0
    took_s: float = 0.0
    where: str = ""  # the worker; empty: this machine

    @property
    def run(self) -> Run:
        return Results.from_dict(json.loads(self.found)).runs[0]


def build() -> None:
    """Make fl-sim if its sources are newer than it is; a wheel carries it."""
    if not INSTALLED:
        proc.output(["make", "-s", "-C", ROOT / "sim"], what="building the simulator", limit_s=BUILD_S)
    elif not PROGRAM.is_file():
        raise FairlaneError(f"{PROGRAM}: is missing from this installation; install the wheel again")


def tunables(scheduler: str) -> dict[str, tuple[int, int]] | None:
    """Of one of our schedulers, with the least and the most that each may be; None without an fl-sim that can tell."""
    if not PROGRAM.is_file():
        return None
    try:
        said = proc.output([PROGRAM, "-t", scheduler], what=f"tunables of {scheduler}", limit_s=BUILD_S)
    except FairlaneError:  # built before it could
        return None
    rows = [line.split() for line in said.splitlines()]
    return {name: (int(least), int(most)) for name, least, most in rows}


def identity() -> str:
    """What must be alike wherever the units of one run are simulated: the version, and all sources."""
    digest = hashlib.sha256(json.dumps(schedulers.code(), sort_keys=True).encode())
    for file in sorted(PACKAGE.rglob("*.py")):
        digest.update(file.read_bytes())
    return f"{__version__} ({digest.hexdigest()[:12]})"


def files_of(folder: Path, name: str) -> tuple[Path, Path]:
    """What fl-sim is given, and what it finds."""
    return folder / f"{name}.given.json", folder / f"{name}.found.json"


def play(
    given: Mapping[str, Any],
    folder: Path,
    name: str,
    part: Callable[[float], None] = lambda _part: None,
    stop: threading.Event | None = None,
    limit_s: float = LIMIT_S,
) -> Played:
    """Run what is described; the folder then has what was given and what was found. part: is told how far it is."""
    given_file, found_file = files_of(folder, name)
    with written(given_file):
        given_file.write_text(json.dumps(given, indent=1))
    said: list[str] = []
    began = time.monotonic()

    def line(text: str) -> None:
        if text.isdecimal():
            part(int(text) / 1000)
        else:
            said.append(text)

    status = run(["-p", "-o", found_file, given_file], line, name, limit_s, stop)
    found = found_file.read_text() if status == 0 else ""
    return Played(status, said, found, time.monotonic() - began)


def run(
    options: Sequence[str | Path],
    line: Callable[[str], None],
    name: str,
    limit_s: float,
    stop: threading.Event | None = None,
) -> int:
    """Its exit status; each line that it says goes to `line`."""
    deadline = time.monotonic() + limit_s
    try:
        with proc.group([PROGRAM, *options]) as process:
            return proc.lines(
                process, lambda text, _err: line(text), lambda: 0.0 if stop and stop.is_set() else deadline
            )
    except proc.TimedOut:
        raise FairlaneError(f"{PROGRAM.name}: {name} was stopped") from None
