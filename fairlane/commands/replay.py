# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane replay`: traces on the command line become a scenario, a tenant for each."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from fairlane import files
from fairlane.commands import run
from fairlane.commands.common import RESULTS, SCENARIO, backend_of, knobs_of, print_json
from fairlane.errors import FairlaneError
from fairlane.experiment import traces
from fairlane.experiment.model import WEIGHT_DEFAULT, WEIGHT_MAX, WEIGHT_MIN
from fairlane.experiment.results import check_folder
from fairlane.experiment.traces import Replayed
from fairlane.pages import terminal


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
        requests = traces.read(path, kind, skipped=skipped if skip_bad else None)
        played = path
        if folder and (kind or skip_bad):
            played = folder / f"{name}.trace"
            traces.to_mqsim(requests, played)
            requests = traces.read(played)
        found.append(Replayed(name, played.resolve(), weight, traces.summary(requests), skipped))
    return found


def _name(path: Path, taken: Sequence[str]) -> str:
    """What a tenant may be called."""
    name = re.sub(r"[^A-Za-z0-9_-]", "-", path.stem).lstrip("-_")[:50] or "trace"
    number = next(n for n in range(1, len(taken) + 2) if (f"{name}-{n}" if n > 1 else name) not in taken)
    return f"{name}-{number}" if number > 1 else name


def scenario_text(traces: Sequence[Replayed], device: str, speed: str, threads: int, depth: int, seconds: float) -> str:
    """The scenario, as a file."""
    run = f"[run]\nseconds = {seconds:g}\n"
    parts = [f'description = "Traces replayed at {speed} speed"\n', run, f"[device]\n{device}\n"]
    for each in traces:
        file = json.dumps(str(each.path), ensure_ascii=False)
        parts.append(
            f'[[tenant]]\nname = "{each.name}"\nweight = {each.weight}\njobs = {threads}\niodepth = {depth}\n'
            f'trace = {file}\nspeed = "{speed}"\n'
        )
    return "\n".join(parts)


def main(args: argparse.Namespace) -> int:
    backend, names = knobs_of(args.knobs, backend_of(args))
    if not args.summary:
        check_folder(args.out, RESULTS, SCENARIO)
    found = look(args.traces, args.format, args.skip_bad, None if args.summary else args.out / "traces")
    for each in found:
        if each.skipped:
            lines = f"{len(each.skipped)} broken line{'s' * (len(each.skipped) > 1)} skipped"
            print(f"fairlane: {each.name}: {lines}; the first, {each.skipped[0]}", file=sys.stderr)
    if args.summary and args.json:
        print_json([{"name": each.name, **asdict(each.summary)} for each in found])
    elif not args.json:
        terminal.traces(found, terminal.console())
    if args.summary:
        return 0
    file = args.out / SCENARIO
    with files.new_file(file) as write:
        write(scenario_text(found, backend.replayed_on, args.speed, args.threads, args.depth, args.seconds))
    return run.run(run.Asked([file], backend, names, args.out, args.command_line, json=args.json))
