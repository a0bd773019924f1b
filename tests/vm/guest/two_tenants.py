# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Two tenants on drives, whatever lies between: who is charged for what the drives do, and what each tenant gets.

They have a weight of 300 and 100. A drive has `none` and a scheduler of ours in turns while the load goes on. It is so
slow that it, and not an emulated CPU, is full.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import kit
from kit import OURS, Cgroup, Fio

from fairlane.experiment.model import Profile
from fairlane.linux import made_drives, sysfs
from fairlane.linux.cgroups import io_stat
from fairlane.vm.guest import CGROUPS

WEIGHTS = (300, 100)
DUE, WITHIN = 0.75, 0.15  # the heavy tenant's share, with none a half; how exact a scheduler is is tested elsewhere
LITTLE = 0.05  # of all that a drive moves: what is nobody's, though there is a file system say
REQUESTS = 200
MIB = 1 << 20
# About 85 requests of 4 KiB a second, so that a machine that has other work, too, keeps it full.
DRIVE = {
    "size": 512 * MIB,
    "memory": 512 * MIB,
    "channels": 2,
    "dies": 2,
    "commands": 16,
    "queue_depth": 16,  # for each of two CPUs: who waits does so in the scheduler
    "buffer": 128 << 10,
    "buffer_volatile": 0,
    "time_scale": 600,
}


@dataclass(frozen=True)
class Look:
    """What drives did for a while."""

    share: float  # the heavy tenant's, of what both of them got, what went ahead for them included
    root: float  # of all: what the root is charged for, which is never held back
    ahead: float  # of all: what went as the root's, and the tenants are charged for it later


# --- Drives and tenants ---


@contextlib.contextmanager
def drives(number: int = 1, **params: int) -> Iterator[list[str]]:
    profile = Profile("stack", "ssd", "", {**DRIVE, **params})
    with ExitStack() as stack:
        folders = [made_drives.VSSD.with_name(f"stack{i}") for i in range(number)]
        yield [stack.enter_context(made_drives.vssd(profile, folder)) for folder in folders]


@contextlib.contextmanager
def tenants(memory: int | None = None) -> Iterator[list[Cgroup]]:
    cgroups = [Cgroup(weight) for weight in WEIGHTS]
    for cgroup in cgroups:
        if memory is not None:
            (cgroup.path / "memory.max").write_text(str(memory))
    yield cgroups
    for cgroup in cgroups:
        cgroup.remove()


@contextlib.contextmanager
def load(cgroups: Sequence[Cgroup], targets: Sequence[Path], **options: object) -> Iterator[None]:
    """A fio in each of the cgroups, on its own target."""
    given: dict[str, object] = {"ioengine": "libaio", "iodepth": 64, **options}
    fios = [Fio(target, cgroup, **given) for target, cgroup in zip(targets, cgroups, strict=True)]
    with ExitStack() as failed:
        for fio in fios:
            failed.callback(fio.process.wait)
            failed.callback(os.killpg, fio.process.pid, signal.SIGKILL)
        yield
        failed.pop_all()
    for fio in fios:
        fio.stop()


# --- Looking ---


def submitted(disks: Sequence[str], cgroup: Path) -> float:
    """Bytes, as the block layer counts them: what a scheduler of ours holds, too."""
    stats = [io_stat(cgroup, sysfs.device_number(disk)) for disk in disks]
    return sum(int(stat.get(key, 0)) for stat in stats for key in ("rbytes", "wbytes"))


def charged(disks: Sequence[str], cgroup: Path, *keys: str) -> float:
    """Bytes, as our scheduler counts them: what has gone to the drives."""
    stats = [kit.stat(cgroup, disk) for disk in disks]
    return sum(stat.get(key, 0) for stat in stats for key in keys)


def under_none(disks: Sequence[str], paths: Sequence[Path], requests: int) -> Look:
    def seen() -> list[float]:
        return [submitted(disks, path) for path in (*paths, CGROUPS)]  # the root's are those of all

    for disk in disks:
        kit.set_scheduler(disk, "none")
    kit.wait_flow(disks[0], "to settle", requests)
    before = seen()
    kit.wait_flow(disks[0], "while it is looked at", requests)
    heavy, light, everything = (now - old for now, old in zip(seen(), before, strict=True))
    both = heavy + light or 1
    return Look(heavy / both, max(1 - both / (everything or 1), 0), 0)


def under_ours(disks: Sequence[str], paths: Sequence[Path], requests: int) -> Look:
    def seen() -> list[float]:
        own = [charged(disks, path, "rbytes", "wbytes") for path in (*paths, CGROUPS)]
        return [*own, *(charged(disks, path, "metabytes") for path in paths)]

    for disk in disks:
        kit.set_scheduler(disk, OURS)
    kit.wait_flow(disks[0], "to settle", requests)
    before = seen()
    kit.wait_flow(disks[0], "while it is looked at", 2 * requests)
    heavy, light, root, *later = (now - old for now, old in zip(seen(), before, strict=True))
    everything, ahead = heavy + light + root, sum(later)
    return Look((heavy + later[0]) / (heavy + light + ahead or 1), (root - ahead) / everything, ahead / everything)


def wait_both_do_io(disks: Sequence[str], cgroups: Sequence[Cgroup]) -> None:
    kit.wait_for(lambda: all(submitted(disks, cgroup.path) for cgroup in cgroups), "both do I/O")


def beside_none(what: str, disks: Sequence[str], cgroups: Sequence[Cgroup], requests: int = REQUESTS) -> Look:
    """What there is under our scheduler, after `none` with the same load."""
    paths = [cgroup.path for cgroup in cgroups]
    none = under_none(disks, paths, requests)
    ours = under_ours(disks, paths, requests)
    print(
        f"{what}: heavy gets {ours.share:.3f} ({none.share:.3f} with none); the root is charged for {ours.root:.3f}"
        f" ({none.root:.3f}), tenants later for {ours.ahead:.3f}",
        flush=True,
    )
    return ours


def is_shared(ours: Look) -> None:
    assert abs(ours.share - DUE) <= WITHIN, f"the heavy tenant is due {DUE}: {ours}"


def is_charged_to_tenants(ours: Look) -> None:
    assert ours.root <= LITTLE, f"the tenants did that: {ours}"


def holds(what: str, disks: Sequence[str], targets: Sequence[Path], **options: object) -> None:
    """With that load, tenants are charged for what they do, and have their shares."""
    with tenants() as cgroups, load(cgroups, targets, **options):
        wait_both_do_io(disks, cgroups)
        ours = beside_none(what, disks, cgroups)
    is_charged_to_tenants(ours)
    is_shared(ours)
