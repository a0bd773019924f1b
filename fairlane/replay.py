# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane replay`: traces on the command line become a scenario, a tenant for each."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlane import trace
from fairlane.errors import FairlaneError
from fairlane.scenario import WEIGHT_DEFAULT, WEIGHT_MAX, WEIGHT_MIN

# In a VM slow enough to be the bottleneck even when the CPU is emulated; a real drive is what it is.
DRIVE = {
    "sim": 'profile = "p4500"',
    "vm": 'profile = "p4500"\ntime_scale = 30\nsize = "8GiB"\nmemory = "1GiB"',
    "host": 'profile = "p4500" # not looked at: the drive is a real one',
}


@dataclass(frozen=True)
class Replayed:
    name: str
    path: Path  # as given, or without the broken lines
    weight: int
    summary: trace.Summary
    skipped: list[str]  # the broken lines, and why


def parse(argument: str) -> tuple[Path, int]:
    """TRACE or TRACE:WEIGHT."""
    path, colon, weight = argument.rpartition(":")
    if not colon or not weight.isdecimal():
        return Path(argument), WEIGHT_DEFAULT
    if not WEIGHT_MIN <= int(weight) <= WEIGHT_MAX:
        raise FairlaneError(f"{argument}: the weight must be from {WEIGHT_MIN} to {WEIGHT_MAX}")
    return Path(path), int(weight)


def look(arguments: Sequence[str], kind: str | None, skip_bad: bool, folder: Path | None) -> list[Replayed]:
    """Read each trace to its end.

    One whose format is said, or that may have broken lines, is written anew in the folder, if there is one.
    """
    found: list[Replayed] = []
    for path, weight in map(parse, arguments):
        name, skipped = _name(path, [other.name for other in found]), list[str]()
        requests = trace.read(path, kind, skipped=skipped if skip_bad else None)
        played = path
        if folder and (kind or skip_bad):
            played = folder / f"{name}.trace"
            trace.to_mqsim(requests, played)
            requests = trace.read(played)
        found.append(Replayed(name, played.resolve(), weight, trace.summary(requests), skipped))
    return found


def _name(path: Path, taken: Sequence[str]) -> str:
    """What a tenant may be called."""
    name = re.sub(r"[^A-Za-z0-9_-]", "-", path.stem).lstrip("-_")[:50] or "trace"
    number = next(n for n in range(1, len(taken) + 2) if (f"{name}-{n}" if n > 1 else name) not in taken)
    return f"{name}-{number}" if number > 1 else name


def scenario_text(
    traces: Sequence[Replayed], backend: str, speed: str, threads: int, depth: int, seconds: float
) -> str:
    """The scenario, as a file."""
    run = f"[run]\nseconds = {seconds:g}\n"
    parts = [f'description = "Traces replayed at {speed} speed"\n', run, f"[device]\n{DRIVE[backend]}\n"]
    for each in traces:
        file = json.dumps(str(each.path), ensure_ascii=False)
        parts.append(
            f'[[tenant]]\nname = "{each.name}"\nweight = {each.weight}\njobs = {threads}\niodepth = {depth}\n'
            f'trace = {file}\nspeed = "{speed}"\n'
        )
    return "\n".join(parts)
