# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Drives in sysfs: what they are, whether they are in use, and keeping others from them during a run."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
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
    return [name for name in names if not name.startswith(STAND_INS)]


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
        **{name: path.read_text().strip() for name, path in said.items() if path.is_file()},
    }


def ids(device: str, by_id: Path = Path("/dev/disk/by-id")) -> list[str]:
    """What the drive is called by who knows it by more than its place: its WWID, and its links in /dev/disk/by-id."""
    folder = sysfs.SYS_BLOCK / device
    said = [sysfs.said(folder / name) for name in ("wwid", "device/wwid")]
    return [name for name in said if name] + [link.name for link in by_id.glob("*") if link.resolve().name == device]


def free_target(device: str, scenario: Scenario, destroy_data: str | None) -> Target:
    """The device, if the scenario may run on it: nobody uses it, and what it overwrites may be."""
    folder = check_device(device)
    if why := in_use(device):
        raise _taken(device, why)
    with claimed(device):  # refused when somebody uses it whom in_use() cannot see
        pass
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
    serial = sysfs.SYS_BLOCK / device / "device/serial"
    return device.startswith(HARMLESS) or (serial.is_file() and serial.read_text().strip() == NVME_SERIAL)


def in_use(device: str, proc: Path = Path("/proc")) -> str | None:
    """How the drive is in use as far as sysfs and our own mounts show it, or None."""
    folder = sysfs.SYS_BLOCK / device
    number = sysfs.device_number(device)
    if any((part / "partition").exists() for part in folder.glob(f"{device}*")):
        return "has partitions"
    if any((folder / "holders").glob("*")):
        holder = next((folder / "holders").glob("*")).name
        return f"is held by {holder}"
    if any(line.split()[2] == number for line in (proc / "self/mountinfo").read_text().splitlines()):
        return "is mounted"
    swaps = proc / "swaps"  # which a kernel without swap does not have
    lines = swaps.read_text().splitlines()[1:] if swaps.exists() else []
    if f"/dev/{device}" in [line.split()[0] for line in lines]:
        return "is in use as swap"
    return None


_claims: set[str] = set()  # the drives that we have claimed


@contextmanager
def claimed(device: str) -> Iterator[None]:
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
            raise _taken(device, why) from error
    _claims.add(device)
    try:
        yield
    finally:
        _claims.remove(device)
        if claim is not None:
            os.close(claim)


def _taken(device: str, why: str) -> FairlaneError:
    return FairlaneError(f"{device} {why}; give a drive that nothing else uses")


@dataclass(frozen=True)
class Target:
    """The block device under load."""

    path: Path
    capacity: int  # bytes
    block: int  # its smallest block, bytes
