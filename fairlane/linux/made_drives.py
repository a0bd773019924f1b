# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Inside the VM: make the drive that a profile describes, and take it away again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fairlane import proc
from fairlane.errors import FairlaneError
from fairlane.experiment.model import FL_NVME, Profile
from fairlane.linux import sysfs

NVME_SERIAL = "fairlane"  # what the host gives QEMU, and what the guest looks for
APPEAR_S = 20.0
CONFIGFS = Path("/sys/kernel/config")
NULLB = CONFIGFS / "nullb" / "fairlane"
VSSD = CONFIGFS / "vssd" / "fairlane"
# The profile's name of a parameter -> null_blk's, where they differ.
NULLB_NAMES = {"bs": "blocksize"}


@contextlib.contextmanager
def setup(profile: Profile, driver: Path | None = None) -> Iterator[str]:
    """Make the profile's drive ready; yields its name in /sys/block; the drive is gone afterwards.

    One of NVMe, which QEMU has, is under Linux's own driver or that one.
    """
    kinds: dict[str, Callable[[Profile], contextlib.AbstractContextManager[str]]] = {
        "null_blk": _null_blk,
        "qemu-nvme": lambda _profile: nvme(driver),
        "ssd": vssd,
    }
    if profile.kind not in kinds:
        raise FairlaneError(f"profile {profile.name}: kind {profile.kind!r} is unknown; valid are {', '.join(kinds)}")
    with kinds["qemu-nvme" if profile.device == FL_NVME else profile.kind](profile) as device:
        yield device


def renew(profile: Profile) -> None:
    """Bring a drive that remembers what was written back to the state it began in; its name stays."""
    if profile.kind == "ssd" and not profile.device:
        before = (VSSD / "disk").read_text()
        _set(VSSD / "power", 0, profile)
        _set(VSSD / "power", 1, profile)
        disk = (VSSD / "disk").read_text()
        if disk != before:
            raise FairlaneError(f"profile {profile.name}: {before.strip()} came back as {disk.strip()}; try again")
        _wait(disk.strip, f"the virtual SSD {disk.strip()}")


@contextlib.contextmanager
def _null_blk(profile: Profile) -> Iterator[str]:
    proc.modprobe("null_blk", "nr_devices=0")
    _mount_configfs(NULLB.parent)
    before = _disks()
    try:
        NULLB.mkdir()
        # Unasked, null_blk adds a hardware queue for polled I/O to those that the profile wants.
        for name, value in {"poll_queues": 0, **profile.params}.items():
            _set(NULLB / NULLB_NAMES.get(name, name), value >> 20 if name == "size" else value, profile)
        _set(NULLB / "power", 1, profile)
        yield _wait(lambda: next(iter(_disks() - before), None), "null_blk's device")
    finally:
        if NULLB.exists():
            _set(NULLB / "power", 0, profile)
            NULLB.rmdir()


@contextlib.contextmanager
def vssd(profile: Profile, folder: Path = VSSD) -> Iterator[str]:
    """Our virtual SSD; several at once need folders of different names."""
    _mount_configfs(VSSD.parent)
    try:
        folder.mkdir()
        for name, value in profile.params.items():
            _set(folder / name, value, profile)
        if wrong := (folder / "check").read_text().strip():
            raise FairlaneError(f"profile {profile.name}: {wrong}")
        _set(folder / "power", 1, profile)
        disk = (folder / "disk").read_text().strip()
        yield _wait(lambda: disk, f"the virtual SSD {disk}")
    finally:
        if folder.exists():
            folder.rmdir()  # takes its power, too


@contextlib.contextmanager
def nvme(driver: Path | None = None) -> Iterator[str]:
    """The NVMe drive that QEMU has, under Linux's own driver, or under ours in that file, with priorities."""
    if driver:
        if sysfs.loaded("nvme"):
            proc.modprobe("-r", "nvme")
        proc.modprobe("nvme-core")
        proc.output(["insmod", driver, "wrr=1"], what=f"loading {driver}", limit_s=proc.MODPROBE_S)
    else:
        proc.modprobe("nvme")
    try:
        yield _wait(_find_nvme, f"QEMU's NVMe device (serial {NVME_SERIAL})")
    finally:
        proc.modprobe("-r", "nvme")


def _find_nvme() -> str | None:
    for disk in sorted(_disks()):
        serial = sysfs.SYS_BLOCK / disk / "device" / "serial"
        if disk.startswith("nvme") and serial.is_file() and serial.read_text().strip() == NVME_SERIAL:
            return disk
    return None


def _mount_configfs(folder: Path) -> None:
    if not folder.is_dir():  # configfs is a module that comes with its first user, too late for the boot to mount it
        proc.output(["mount", "-t", "configfs", "none", CONFIGFS], what="mounting configfs", limit_s=10)


def _disks() -> set[str]:
    return {path.name for path in sysfs.SYS_BLOCK.iterdir()}


def _set(path: Path, value: int, profile: Profile) -> None:
    try:
        path.write_text(f"{value}\n")
    except OSError as error:
        raise FairlaneError(
            f"profile {profile.name}: the {profile.kind} driver refused {path.name} = {value} ({error.strerror})"
        ) from error


def _wait(look: Callable[[], str | None], what: str) -> str:
    """The disk's name, as soon as it is there and has its node in /dev."""
    deadline = time.monotonic() + APPEAR_S
    while time.monotonic() < deadline:
        disk = look()
        if disk and Path("/dev", disk).exists():
            return disk
        time.sleep(0.02)
    raise FairlaneError(f"{what} did not appear within {APPEAR_S:.0f} s")
