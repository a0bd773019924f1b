# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Drives in sysfs: what they are, whether they are in use, and keeping others from them during a run."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlane.errors import FairlaneError
from fairlane.experiment.model import Scenario
from fairlane.linux import sysfs
from fairlane.linux.made_drives import NVME_SERIAL

STAND_INS = ("loop", "ram", "zram", "nbd", "sr", "fd")  # what only plays a drive, or is none for our schedulers
HARMLESS = ("nullb", "vssd", "fairlane")  # drives that hold no data; the last is null_blk as our VM names it on 6.12


def schedulable(folder: Path) -> list[str]:
    """The drives in /sys/block, or in another folder like it, that can have a scheduler; no stand-ins."""
    names = sorted(path.parent.parent.name for path in folder.glob("*/queue/nr_requests"))
    return [name for name in names if not name.startswith(STAND_INS) and not _passes_on(folder / name)]


def _passes_on(drive: Path) -> bool:
    """A volume, or the head of several NVMe paths: until Linux 6.8 it has nr_requests, and offers a bare "none"."""
    return sysfs.said(drive / "queue/scheduler") == "none" and not (drive / "fairlane/scheduler").exists()


def describe(device: str) -> dict[str, Any]:
    queue = sysfs.SYS_BLOCK / device / "queue"
    return {
        "name": device,
        **identity(device),
        "nr_requests": int((queue / "nr_requests").read_text()),
        "hardware_queues": len(list((sysfs.SYS_BLOCK / device / "mq").glob("*"))),
    }


def identity(device: str) -> dict[str, Any]:
    """What tells a drive from another that had its name: its size, and its model and serial number if it has any."""
    folder = check_device(device)
    said = {name: folder / "device" / name for name in ("model", "serial")}
    return {
        "capacity_bytes": int((folder / "size").read_text()) * 512,
        "block_bytes": int((folder / "queue/logical_block_size").read_text()),
        **{name: text for name, path in said.items() if (text := sysfs.said(path)) is not None},
    }


def ids(device: str, by_id: Path = Path("/dev/disk/by-id")) -> list[str]:
    """What the drive is called by who knows it by more than its place: its WWID, and its links in /dev/disk/by-id."""
    name = wwid(device)
    return [name] * bool(name) + [link.name for link in by_id.glob("*") if link.resolve().name == device]


def wwid(device: str) -> str:
    """What the drive says that it is called wherever it is plugged in, or ""."""
    said = (sysfs.said(sysfs.SYS_BLOCK / device / name) for name in ("wwid", "device/wwid"))
    return next(filter(None, said), "")


def sequence(device: str) -> str:
    """Of this drive since it is there; one that takes its name later, or that comes again, has another."""
    return sysfs.said(sysfs.SYS_BLOCK / device / "diskseq") or sysfs.number_if_any(device) or ""


def free_target(device: str, scenario: Scenario, destroy_data: str | None) -> Target:
    """The device, if the scenario may run on it: nobody uses it, and what it overwrites may be."""
    folder = check_free(device)
    if scenario.writes and not _harmless(device) and destroy_data != device:
        raise FairlaneError(
            f"scenario {scenario.name} writes to {device} and destroys what is on it;"
            f" if that is meant, add --destroy-data {device}"
        )
    return Target(
        path=Path("/dev") / device,
        capacity=int((folder / "size").read_text()) * 512,
        block=int((folder / "queue/logical_block_size").read_text()),
    )


def check_free(device: str) -> Path:
    """Its folder in sysfs, if it is a whole drive that nobody uses."""
    folder = check_device(device)
    if why := in_use(device):
        raise _taken(device, why)
    with claimed(device):  # refused when somebody uses it whom in_use() cannot see
        pass
    return folder


def check_device(device: str) -> Path:
    """Its folder in sysfs, if it is a whole drive."""
    folder = sysfs.SYS_BLOCK / device
    if not device or "/" in device or not (folder / "queue").is_dir():
        raise FairlaneError(f"no block device {device!r} in {sysfs.SYS_BLOCK}; give a whole drive, such as nvme0n1")
    if not (folder / "queue/nr_requests").exists():
        raise FairlaneError(f"{device} has no I/O scheduler, as its driver does without; give another drive")
    return folder


def _harmless(device: str) -> bool:
    """Whether the drive keeps no data, or is the one that our own VM was given for this."""
    return device.startswith(HARMLESS) or sysfs.said(sysfs.SYS_BLOCK / device / "device/serial") == NVME_SERIAL


PROC = Path("/proc")


def in_use(device: str, proc: Path = PROC) -> str | None:
    """How the drive is in use as far as sysfs and our own mounts show it, or None."""
    folder = sysfs.SYS_BLOCK / device
    return "has partitions" if _partitions(folder) else _used(folder, proc)


def _partitions(folder: Path) -> list[Path]:
    return sorted(part for part in folder.glob(f"{folder.name}*") if (part / "partition").exists())


def _used(folder: Path, proc: Path) -> str | None:
    """How that drive or partition is."""
    if any((folder / "holders").glob("*")):
        holder = next((folder / "holders").glob("*")).name
        return f"is held by {holder}"
    number = (folder / "dev").read_text().strip()
    mounts = (proc / "self/mountinfo").read_bytes().splitlines()  # a mount point may be of any bytes
    if any(line.split()[2:3] == [number.encode()] for line in mounts):
        return "is mounted"
    swaps = proc / "swaps"  # which a kernel without swap does not have
    lines = swaps.read_text().splitlines()[1:] if swaps.exists() else []
    if f"/dev/{folder.name}" in [line.split()[0] for line in lines]:
        return "is in use as swap"
    return None


def somebody_uses(devices: Sequence[str], proc: Path = PROC) -> str | None:
    """Which of these drives is in use and how, be it only that somebody has it open, or a partition of it; or None.

    It looks for I/O for a moment.
    """
    folders = [sysfs.SYS_BLOCK / device for device in devices]
    parts = [part for folder in folders for part in (folder, *_partitions(folder))]
    for part in parts:
        if why := _used(part, proc):
            return f"{part.name} {why}"
    opened = _opened(proc)
    for part in parts:
        if who := opened.get((part / "dev").read_text().strip()):
            return f"{part.name} is open in {who}"
    before = [_io(folder) for folder in folders]
    time.sleep(IO_S if folders else 0)
    for folder, was in zip(folders, before, strict=True):
        if _io(folder) != was or was[IN_FLIGHT] != "0":
            return f"{folder.name} has I/O under way"
    return None


IO_S = 1.0
IN_FLIGHT = 8  # in a drive's `stat`


def _io(folder: Path) -> list[str]:
    return (folder / "stat").read_text().split()


def _opened(proc: Path) -> dict[str, str]:
    """Block devices that are open, by MAJ:MIN, each with a process that has it so."""
    found = {}
    for process in proc.glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            for file in (process / "fd").iterdir():
                with suppress(OSError):  # it has closed that
                    about = file.stat()
                    if stat.S_ISBLK(about.st_mode):
                        number = f"{os.major(about.st_rdev)}:{os.minor(about.st_rdev)}"
                        found[number] = f"process {process.name} ({sysfs.said(process / 'comm')})"
    return found


_claims: set[str] = set()  # the drives that we have claimed
ANOTHER = "give a drive that nothing else uses"


@contextmanager
def claimed(device: str, todo: str = ANOTHER) -> Iterator[None]:
    """Keep the drive from everybody who wants it alone: a second run, a file system. fio does not want that."""
    if device in _claims:
        yield
        return
    claim = None
    try:
        claim = os.open(f"/dev/{device}", os.O_RDONLY | os.O_EXCL)
    except OSError as error:  # what else is wrong with it, fio says
        if error.errno == errno.EBUSY:
            why = in_use(device) or "is in use by a file system or another program, perhaps a second fairlane"
            raise _taken(device, why, todo) from error
    _claims.add(device)
    try:
        yield
    finally:
        _claims.remove(device)
        if claim is not None:
            os.close(claim)


def _taken(device: str, why: str, todo: str = ANOTHER) -> FairlaneError:
    return FairlaneError(f"{device} {why}; {todo}")


@dataclass(frozen=True)
class Target:
    """The block device under load."""

    path: Path
    capacity: int  # bytes
    block: int  # its smallest block, bytes
