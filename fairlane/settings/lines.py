# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What cgroups have for one drive, for when it is plugged in again.

To Linux that is another drive: the lines that cgroups' files had for it are gone, whoever gave them. So the service
keeps them, by the drive's WWID, and writes them for the one that has come, where there is no other by then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fairlane.linux import cgroups, disks, others_weights, sysfs
from fairlane.settings import plan
from fairlane.settings.plan import Change

FILES = (plan.WEIGHT, others_weights.FALLBACK, plan.LATENCY)


class _Drive(NamedTuple):
    """As it is there now: another one when it is plugged in again, though maybe of the same number."""

    sequence: str
    number: str


class _Place(NamedTuple):
    """A file of a cgroup; one that takes a cgroup's name later is another."""

    file: Path
    inode: int


_Lines = dict[_Place, str]


class Lines:
    """Lives as long as the service."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[_Drive, _Lines]] = {}  # by WWID

    def follow(self) -> tuple[Change, ...]:
        """Keep what cgroups have for drives with a scheduler of ours; what had to be written again."""
        if not (drives := _drives()):
            return ()
        found = _read({drive.number for drive in drives.values()})
        done: list[Change] = []
        # What is going may have lost its lines already, and its name not yet, or the other way round.
        for wwid, drive in drives.items() & _drives().items():
            lines = found[drive.number]
            known, kept = self._kept.get(wwid, (drive, {}))
            if known.sequence != drive.sequence:
                again = {place: value for place, value in kept.items() if place not in lines and _is_there(place)}
                changes = [
                    Change(place.file, plan.NOT_SET, value, "before it was unplugged", key=drive.number)
                    for place, value in again.items()
                ]
                sysfs.write_all(((change.file, change.text) for change in changes), may_be_gone=True)
                done += changes
                lines = again | lines
            self._kept[wwid] = drive, lines
        return tuple(done)


def _drives() -> dict[str, _Drive]:
    """By WWID; without those that share one."""
    found = [(disks.wwid(device), _Drive(disks.sequence(device), number)) for number, device in plan.ours({}).items()]
    times = Counter(wwid for wwid, _ in found)
    return {wwid: drive for wwid, drive in found if wwid and times[wwid] == 1}


def _read(numbers: Collection[str]) -> dict[str, _Lines]:
    """Of every cgroup, what its files say of these drives."""
    found: dict[str, _Lines] = {number: {} for number in numbers}
    for cgroup in others_weights.tree(cgroups.find_mount()):
        for name in FILES:
            for line in (sysfs.said(cgroup / name) or "").splitlines():
                number, _, value = line.partition(" ")
                if number in found:
                    with suppress(FileNotFoundError):
                        found[number][_Place(cgroup / name, cgroup.stat().st_ino)] = value
    return found


def _is_there(place: _Place) -> bool:
    with suppress(FileNotFoundError):
        return place.file.parent.stat().st_ino == place.inode
    return False
