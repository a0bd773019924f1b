# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What cgroups have for one drive, for when it is plugged in again.

To Linux that is another drive: the lines that cgroups' files had for it are gone, whoever gave them. What the host's
file says of it is applied again. The rest the service keeps, by the drive's WWID, and writes it for the one that has
come, where there is nothing else by then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fairlane.errors import FairlaneError
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

    def is_there(self) -> bool:
        return cgroups.is_still(self.file.parent, self.inode)


_Lines = dict[_Place, str]


class Lines:
    """Lives as long as the service."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[_Drive, _Lines]] = {}  # by WWID

    def follow(self, applied: Container[tuple[Path, str]] = ()) -> tuple[Change, ...]:
        """Keep what cgroups have for drives with a scheduler of ours; returns what had to be written again.

        applied: files and drives' numbers that are the host's file's, which `restore` puts back.
        """
        times = Counter(disks.wwid(device) for device in disks.schedulable(sysfs.SYS_BLOCK))
        for wwid in (wwid for wwid, count in times.items() if count > 1):
            self._kept.pop(wwid, None)  # nobody knows whose it was
        found = _read(applied, {drive.number for drive in _drives(times).values()})
        done: list[Change] = []
        # Of a drive that is just going, some lines may have gone before.
        for wwid, drive in _drives(times).items():
            if drive.number not in found:
                continue
            lines = found[drive.number]
            known, kept = self._kept.get(wwid, (drive, {}))
            if known.sequence != drive.sequence:
                again = {place: value for place, value in kept.items() if place not in lines and place.is_there()}
                done += filter(_written, (_change(place, drive, value) for place, value in again.items()))
                lines = again | lines
            self._kept[wwid] = drive, lines
        self._forget_cgroups_that_are_gone()
        return tuple(done)

    def _forget_cgroups_that_are_gone(self) -> None:
        for wwid, (drive, lines) in list(self._kept.items()):
            self._kept[wwid] = drive, {place: value for place, value in lines.items() if place.is_there()}


def _drives(times: Counter[str]) -> dict[str, _Drive]:
    """By WWID, those that alone have theirs. One without its bdi is going: lines for it have lost their number."""
    return {
        wwid: _Drive(disks.sequence(device), number)
        for number, device in plan.ours({}).items()
        if (wwid := disks.wwid(device)) and times[wwid] == 1 and (sysfs.SYS_BLOCK / device / "bdi").exists()
    }


def _read(applied: Container[tuple[Path, str]], numbers: Collection[str]) -> dict[str, _Lines]:
    """Of every cgroup, what its files say of these drives."""
    found: dict[str, _Lines] = {number: {} for number in numbers}
    for cgroup in others_weights.tree(cgroups.find_mount()) if numbers else ():
        for file in (cgroup / name for name in FILES):
            for line in (sysfs.said(file) or "").splitlines():
                number, _, value = line.partition(" ")
                if number in found and (file, number) not in applied:
                    with suppress(FileNotFoundError):
                        found[number][_Place(file, cgroup.stat().st_ino)] = value
    return found


def _change(place: _Place, drive: _Drive, value: str) -> Change:
    return Change(place.file, plan.NOT_SET, value, "before it was unplugged", key=drive.number)


def _written(change: Change) -> bool:
    """False: the cgroup, the drive or its scheduler has gone meanwhile."""
    try:
        sysfs.write(change.file, change.text)
    except FairlaneError as error:
        if getattr(error.__cause__, "errno", None) not in others_weights.GONE:
            raise
        return False
    return True
