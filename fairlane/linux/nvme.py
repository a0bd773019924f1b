# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""An NVMe controller: its registers, admin commands, and what of it is about weighted round robin (WRR)."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlane.errors import FairlaneError
from fairlane.linux import sysfs

CAP_WRR = 1 << 17  # of the register CAP: it can arbitrate by weights
CC, CC_AMS = 0x14, 7 << 11  # where the other register is, and its arbitration: 0 is round robin
ADMIN_IOCTL = 0xC0484E41  # NVME_IOCTL_ADMIN_CMD: struct nvme_admin_cmd, 72 bytes
IDENTIFY, SET_FEATURES, GET_FEATURES = 0x06, 0x09, 0x0A
ARBITRATION = 1  # the feature
IDENTITY_BYTES, RECOMMENDED_BURST = 4096, 72  # of Identify; where in it


@dataclass(frozen=True)
class Registers:
    has_wrr: bool
    wrr_is_on: bool


def registers(controller: Path) -> Registers | None:
    """Of a drive's `device` in /sys/block; None: they cannot be read, by whom and in a kernel as this."""
    for folder in (controller, *controller.glob("nvme*")):  # the latter of one that has several paths
        try:
            with (folder / "device/resource0").open("rb") as file:
                mapped = mmap.mmap(file.fileno(), mmap.PAGESIZE, prot=mmap.PROT_READ)
        except (OSError, ValueError):
            continue
        with mapped:
            cap, cc = (int.from_bytes(mapped[at : at + size], "little") for at, size in ((0, 8), (CC, 4)))
            return Registers(bool(cap & CAP_WRR), bool(cc & CC_AMS))
    return None


class Controller:
    """That of a drive on PCI Express, by its name in /sys/block."""

    def __init__(self, device: str) -> None:
        self.folder = (sysfs.SYS_BLOCK / device / "device").resolve()
        if self.folder.name.startswith("nvme-subsys"):
            raise FairlaneError(f"{device} has native multipath, whose paths are not looked at: nvme_core.multipath=N")
        if not device.startswith("nvme") or not (self.folder / "device" / "driver").exists():
            raise FairlaneError(f"{device} is no NVMe drive on PCI Express, which alone have WRR; give one")
        self.node = Path("/dev", self.folder.name)

    @property
    def gone(self) -> bool:
        """Removed, or given up by Linux."""
        return (sysfs.said(self.folder / "state") or "dead").startswith(("dead", "deleting"))

    @property
    def disks(self) -> list[str]:
        """Its namespaces. One that is reached by a path of this controller's is named as it is used."""
        found = (each.name for each in sysfs.SYS_BLOCK.glob("nvme*") if (each / "device").resolve() == self.folder)
        return sorted({re.sub(r"c\d+n", "n", name) for name in found})

    @property
    def driver(self) -> bool | None:
        """Whether ours was told to use priorities; None: it is Linux's own."""
        said = sysfs.said(self.folder / "device/driver/module/parameters/wrr")
        return None if said is None else said == "Y"

    def admin(self, opcode: int, cdw10: int, cdw11: int = 0, reply: int = 0) -> tuple[int, bytes]:
        """A command's result, and the data that it replies."""
        data = ctypes.create_string_buffer(max(reply, 1))
        address = ctypes.addressof(data) if reply else 0
        command = bytearray(
            struct.pack("<BBHIIIQQIIIIIIIIII", opcode, 0, 0, 0, 0, 0, 0, address, 0, reply, cdw10, cdw11, *[0] * 6)
        )
        try:
            with self.node.open("rb") as device:
                status = fcntl.ioctl(device, ADMIN_IOCTL, command)
        except OSError as error:
            raise FairlaneError(f"{self.node}: does not take command {opcode:#04x} ({error.strerror})") from error
        if status:
            raise FairlaneError(f"{self.node}: refused command {opcode:#04x} (status {status:#x})")
        return struct.unpack_from("<I", command, 68)[0], data.raw[:reply]

    @property
    def recommended_burst(self) -> int:
        """The exponent."""
        return self.admin(IDENTIFY, 1, reply=IDENTITY_BYTES)[1][RECOMMENDED_BURST]

    @property
    def arbitration(self) -> int:
        return self.admin(GET_FEATURES, ARBITRATION)[0]

    @arbitration.setter
    def arbitration(self, value: int) -> None:
        self.admin(SET_FEATURES, ARBITRATION, value)


def arbitration(weights: Sequence[int], burst: int) -> int:
    """The feature's value, of weights of high, medium and low priority, and the exponent of a burst."""
    high, medium, low = (weight - 1 for weight in weights)
    return high << 24 | medium << 16 | low << 8 | burst


def weights_and_burst(arbitration: int) -> tuple[tuple[int, int, int], int]:
    """Of the feature's value: what arbitration() makes it of."""
    high, medium, low = ((arbitration >> shift & 0xFF) + 1 for shift in (24, 16, 8))
    return (high, medium, low), arbitration & 7
