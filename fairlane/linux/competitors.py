# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Who else sets what we set: rules of udev, tuned's profile, io.cost, and owners of weights."""

from __future__ import annotations

import re
from pathlib import Path

from fairlane.linux import others_weights, sysfs
from fairlane.linux.others_weights import BFQ, DEFAULT, LINUX

OURS = "90-fairlane.rules"
# Where udev looks, the first of a name only; and tuned.
UDEV = tuple(Path(folder, "udev/rules.d") for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"))
TUNED = tuple(
    Path(folder) for folder in ("/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned")
)
ACTIVE = Path("/etc/tuned/active_profile")

SCHEDULER = re.compile(r"^[^#]*ATTR\{queue/scheduler\}\s*:?=[^=]", re.MULTILINE)
ELEVATOR = re.compile(r"^\s*elevator\s*=\s*(\S+)", re.MULTILINE)
INCLUDE = re.compile(r"^\s*include\s*=\s*(\S+)", re.MULTILINE)


def udev_rules(folders: tuple[Path, ...] = UDEV) -> list[Path]:
    """Those that write a drive's scheduler."""
    first: dict[str, Path] = {}
    for path in (path for folder in folders for path in sorted(folder.glob("*.rules"))):
        first.setdefault(path.name, path)
    return [path for path in first.values() if path.name != OURS and SCHEDULER.search(sysfs.said(path) or "")]


def tuned(active: Path = ACTIVE, folders: tuple[Path, ...] = TUNED) -> list[Path]:
    """The files of the active profile, and of those that it includes, that set the scheduler (elevator=)."""
    found, left, seen = [], (sysfs.said(active) or "").split(), set()
    while left:
        name = left.pop()
        file = next((path for folder in folders if (path := folder / name / "tuned.conf").is_file()), None)
        if name in seen or file is None:
            continue
        seen.add(name)
        text = file.read_text()
        found += [file] * bool(ELEVATOR.search(text))
        left += [each for names in INCLUDE.findall(text) for each in names.split(",")]
    return found


def io_cost(mount: Path) -> list[str]:
    """MAJ:MIN of the drives on which io.cost throttles by io.weight, too."""
    lines = (line.split() for line in (sysfs.said(mount / "io.cost.qos") or "").splitlines())
    return [words[0] for words in lines if "enable=1" in words]


def owners(mount: Path) -> list[str]:
    """Cgroups of which somebody has set io.weight or io.bfq.weight: who, and as what it counts."""
    return [
        f"{cgroup.relative_to(mount)} counts as {_counts(cgroup)} ({others_weights.owner(cgroup)})"
        for cgroup in others_weights.tree(mount)
        if any(others_weights.said(cgroup / file) not in ({}, {"default": DEFAULT}) for file in (LINUX, BFQ))
    ]


def _counts(cgroup: Path) -> str:
    weights = others_weights.of(cgroup)
    default = weights.pop("default", DEFAULT)
    return ", ".join([str(default), *(f"{weight} on {number}" for number, weight in weights.items())])
