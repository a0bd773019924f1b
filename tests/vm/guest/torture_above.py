# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: what lies above a drive. Buffered writers, a file system, encryption and a volume, with wbt on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import kit
from kit import OURS, Cgroup, Fio, mapped, run

from fairlane.vm.guest import CGROUPS

MEMORY = {"size": 96 << 20, "memory_backed": 1, "discard": 1, "cache_size": 1, "completion_nsec": 200_000}
SECTORS = (64 << 20) // 512
KEY = "0123456789abcdef" * 4
CPU = Path("/sys/devices/system/cpu/cpu1/online")
WBT_USEC = 1000  # below what a request takes under load, so that wbt throttles


@contextlib.contextmanager
def volume(disk: str) -> Iterator[Path]:
    """Encrypted, on a volume of two parts in the wrong order, as LVM would make it: a dm-linear."""
    half = SECTORS // 2
    parts = f"0 {half} linear /dev/{disk} {half}\n{half} {half} linear /dev/{disk} 0"
    with (
        mapped("volume", parts) as linear,
        mapped("secret", f"0 {SECTORS} crypt aes-xts-plain64 {KEY} 0 {linear} 0 1 allow_discards") as secret,
    ):
        yield secret


def wbt(disk: str) -> None:
    kit.queue(disk, "wbt_lat_usec").write_text(str(WBT_USEC))


def writers(folder: Path, heavy: Cgroup, light: Cgroup) -> list[Fio]:
    verify: dict[str, object] = {"rw": "randwrite", "verify": "crc32c", "verify_fatal": 1, "bs": "16k"}
    return [
        Fio(folder / "a", heavy, **verify, size="1m", direct=0, fsync=16, ioengine="psync"),
        Fio(folder / "b", light, **verify, size="2m", direct=0, end_fsync=1, ioengine="psync"),
        Fio(folder / "c", light, **verify, size="1m", fdatasync=8, ioengine="libaio", iodepth=16),
    ]


def encrypted_volume_with_a_file_system() -> None:
    """What is written is what is read, while the scheduler below, wbt and the CPUs change."""
    (CGROUPS / "cgroup.subtree_control").write_text("+memory")
    with kit.drive(OURS, **MEMORY) as disk, volume(disk) as secret:
        wbt(disk)
        folder = kit.folder("above")
        run("mkfs.ext4", "-q", "-F", secret)
        run("mount", "-o", "discard", secret, folder)
        heavy, light = Cgroup(1000), Cgroup(10)
        for scheduler in (OURS, "none", OURS):
            fios = writers(folder, heavy, light)
            CPU.write_text("0")
            kit.wait_flow(disk, f"under {scheduler} with one CPU", ends=lambda: ended(fios))  # noqa: B023
            kit.set_scheduler(disk, scheduler)
            wbt(disk)
            CPU.write_text("1")
            for fio in fios:
                fio.finish()
        print("writeback:", int(heavy.stat(disk)["wbytes"]), int(light.stat(disk)["wbytes"]), "bytes")
        run("umount", folder)
        run("fsck.ext4", "-f", "-n", secret)
        for cgroup in (heavy, light):
            cgroup.remove()
    kit.all_given_back()


def ended(fios: list[Fio]) -> bool:
    return all(fio.process.poll() is not None for fio in fios)


def removed_below_a_volume() -> None:
    """The scheduler goes, and the drive's queue with it, while what is above still writes."""
    with kit.drive(OURS, **MEMORY) as disk:
        wbt(disk)
        cgroup = Cgroup(100)
        with volume(disk) as secret:
            fio = Fio(secret, cgroup, rw="randrw", ioengine="libaio", iodepth=32, size="32m")
            buffered = Fio(secret, cgroup, rw="randwrite", ioengine="psync", direct=0, offset="32m", size="16m")
            kit.wait_flow(disk, "through the volume", requests=30)
            kit.set_scheduler(disk, "none")
            kit.remove_modules()
            kit.wait_flow(disk, "without our modules")
            kit.load_modules()
            kit.set_scheduler(disk, OURS)
            kit.wait_flow(disk, "with our modules again")
            fio.stop()
            buffered.stop()
        cgroup.remove()
    kit.all_given_back()


kit.sections(encrypted_volume_with_a_file_system, removed_below_a_volume)
