# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Schedulers that have failed on a drive since the modules were loaded: what the kernel keeps (kernel/watchdog.c)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from fairlane.linux import sysfs

KEPT = Path("/proc/fairlane")


@dataclass(frozen=True)
class Failure:
    device: str
    diskseq: str  # of the drive since it is there
    place: str  # the folder in which its scheduler is chosen
    scheduler: str
    reason: str


def read(kept: Path = KEPT) -> list[Failure]:
    """The last one of each drive; none if the modules are not loaded, or we are not root."""
    found = []
    lines = [line.split() for line in (sysfs.said(kept) or "").splitlines()]
    for words, after in pairwise(lines):
        if words[:1] == ["drive"]:
            said = dict(zip(words[::2], words[1::2], strict=True))
            reason = " ".join(after[1:])
            found.append(Failure(said["drive"], said["diskseq"], said["place"], said["scheduler"], reason))
    return found


def given_up(device: str, scheduler: str) -> bool:
    """Whether that scheduler has failed on this drive: only by hand it is to be chosen again."""
    seq = sysfs.said(sysfs.SYS_BLOCK / device / "diskseq")
    return any((each.device, each.diskseq, each.scheduler) == (device, seq, scheduler) for each in read(KEPT))
