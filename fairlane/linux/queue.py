# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A drive's I/O scheduler and its settings in sysfs; whatever is changed is put back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairlane.errors import FairlaneError
from fairlane.linux import sysfs
from fairlane.proc import shielded

# Folders in /sys/block/DEVICE: where elevators are chosen, and schedulers that do without.
QUEUE, ROUTED = "queue", "fairlane"
TRIES, AGAIN_S = 3, 1.0  # to put back what was there


def scheduler_file(device: str, place: str) -> Path:
    return sysfs.SYS_BLOCK / device / place / "scheduler"


def schedulers(device: str, place: str = QUEUE) -> list[str]:
    """None of a drive that is gone."""
    return (sysfs.said(scheduler_file(device, place)) or "").replace("[", "").replace("]", "").split()


def current_scheduler(device: str, place: str = QUEUE) -> str:
    """Nothing of a drive that is gone."""
    return sysfs.chosen(sysfs.said(scheduler_file(device, place)) or "")


def tunables(device: str) -> dict[str, str]:
    """The scheduler's files under queue/iosched and fairlane, counters included."""
    return {path.name: value for path, value in _tunable_files(device).items()}


def _tunable_files(device: str) -> dict[Path, str]:
    folders = [sysfs.SYS_BLOCK / device / folder for folder in ("queue/iosched", ROUTED)]
    values = {
        path: sysfs.said(path) for folder in folders for path in sorted(folder.glob("*")) if path.name != "scheduler"
    }
    return {path: value for path, value in values.items() if value is not None}


def settings(device: str) -> dict[Path, str]:
    """What can be set of the queue and its scheduler, and is lost with a change of schedulers.

    nr_requests is first: when it changes, schedulers set some of their own anew.
    """
    requests = sysfs.SYS_BLOCK / device / QUEUE / "nr_requests"
    found = {path: value for path, value in _tunable_files(device).items() if can_be_set(path)}
    return {requests: value, **found} if (value := sysfs.said(requests)) else found


def can_be_set(path: Path) -> bool:
    """Root may write all files; what is no setting, or is gone, has no write bit."""
    try:
        return bool(path.stat().st_mode & 0o222)
    except OSError:
        return False


@contextmanager
def scheduler(device: str, name: str, place: str = QUEUE) -> Iterator[None]:
    """Put the scheduler in place with its defaults, and afterwards the one that was there with the settings it had."""
    files = [file for file in (scheduler_file(device, ROUTED), scheduler_file(device, QUEUE)) if file.exists()]
    before = {file: current_scheduler(device, file.parent.name) for file in files}
    had = settings(device)
    try:
        for file in files:
            sysfs.write(file, "none")
        sysfs.write(scheduler_file(device, place), name)
        yield
    finally:
        with shielded():
            put_back(before, had)


def put_back(schedulers: dict[Path, str], settings: dict[Path, str]) -> None:
    """What keeps a file from being written may be over in a moment, unless its drive is gone."""
    for left in reversed(range(TRIES)):
        try:
            sysfs.write_all(putting_back(schedulers, settings))
            return
        except FairlaneError as error:
            if not any(file.exists() for file in schedulers):
                raise
            if not left:
                raise FairlaneError(
                    f"{error} ({TRIES} times in a row); write that there yourself, and all is as it was"
                ) from error
            time.sleep(AGAIN_S)


def putting_back(schedulers: dict[Path, str], settings: dict[Path, str]) -> Iterator[tuple[Path, str]]:
    """What to write to which file; each is looked at when those before it, which may change it, are written."""
    yield from dict.fromkeys(schedulers, "none").items()
    yield from schedulers.items()
    yield from ((path, value) for path, value in settings.items() if sysfs.said(path) not in (None, value))


def iosched(device: str) -> Path:
    """The folder with an elevator's tunables."""
    return sysfs.SYS_BLOCK / device / QUEUE / "iosched"
