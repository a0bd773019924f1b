# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Our schedulers, from the one list of them: libfairlane/schedulers/list.h."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fairlane import __version__
from fairlane.errors import FairlaneError
from fairlane.places import CODE, COMMIT, INSTALLED, PACKAGE, ROOT

LIST = ROOT / "libfairlane" / "schedulers" / "list.h"
GIT_S = 20.0
BEGIN = re.compile(r"^\tX\(", re.MULTILINE)
ROW = re.compile(
    r'^\tX\(\w+, "([\w-]+)", (ELEVATOR|ROUTER|RQ_QOS), (MAIN|BASELINE|EXAMPLE),\s*\\\n\t  "([^"\n]*)"\)', re.MULTILINE
)


@dataclass(frozen=True)
class Scheduler:
    name: str
    host: str  # ELEVATOR; ROUTER: it chooses classes of the drive's queues; RQ_QOS: it says who may send
    role: str
    about: str

    @property
    def module(self) -> str:
        """Its kernel module; see kernel/Kbuild."""
        return f"{self.name}-qos" if self.host == "RQ_QOS" else self.name


def read(path: Path) -> tuple[Scheduler, ...]:
    text = path.read_text()
    rows = ROW.findall(text)
    if len(rows) != len(BEGIN.findall(text)):
        raise FairlaneError(f"{path}: has a row that cannot be read; write it as the comment at its top says")
    return tuple(Scheduler(*row) for row in rows)


def code() -> dict[str, str]:
    """What figures depend on besides the scenario: a digest of each scheduler's source, of all that they share, which
    has what the simulator takes a request to cost, and of how knobs are set and runs measured.

    A wheel has the program and not its sources, but their digests.
    """
    if INSTALLED:
        found: dict[str, str] = json.loads(CODE.read_text())
        return found
    own = {each.name: LIST.parent / f"{each.name}.c" for each in SCHEDULERS}
    shared = [
        path
        for folder in ("libfairlane", "kernel", "nvme", "sim", "ssd")
        for path in sorted((ROOT / folder).rglob("*.[ch]"))
        if path not in own.values()
    ]
    shared.append(ROOT / "microbench" / "cpu.toml")
    folders = ("backends", "experiment", "linux", "vm")
    setting = [path for folder in folders for path in sorted((PACKAGE / folder).glob("*.py"))]
    return {name: _digest([file]) for name, file in own.items()} | {SHARED: _digest(shared), SETTING: _digest(setting)}


@cache
def commit() -> str | None:
    """Of the checkout, with a + if its files differ from it, or that which a wheel was made of; None: nobody knows."""
    if INSTALLED:
        return COMMIT.read_text().strip() or None
    try:
        found = subprocess.run(
            ["git", "-C", ROOT, "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=GIT_S,
            check=True,
            env={**os.environ, "GIT_CEILING_DIRECTORIES": str(ROOT.parent)},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def version() -> str:
    """Of fairlane, for people: with the commit."""
    return f"{__version__} (commit {commit()})" if commit() else __version__


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


SHARED, SETTING = "what the schedulers share", "how knobs are set"
SCHEDULERS = read(LIST)
NAMES = tuple(each.name for each in SCHEDULERS)
ELEVATORS = tuple(each.name for each in SCHEDULERS if each.host == "ELEVATOR")
ROUTING = tuple(each.name for each in SCHEDULERS if each.host == "ROUTER")
BASELINES = tuple(each.name for each in SCHEDULERS if each.role == "BASELINE")
EXAMPLES = tuple(each.name for each in SCHEDULERS if each.role == "EXAMPLE")  # these run only where they are named
