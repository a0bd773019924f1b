# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Drives that a VM is given from outside: QEMU's NVMe device, and fl-nvme."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlane.backends.job import Job
from fairlane.experiment.model import FL_NVME, Profile
from fairlane.linux import knobs, made_drives
from fairlane.vm import fl_nvme, kernels, newer_qemu, qemu
from fairlane.vm.kernels import Kernel


@dataclass(frozen=True)
class Attached:
    """What QEMU is started with, and what of ours drives the drive in the guest."""

    qemu_opts: list[str]
    fds: list[int]
    program: Path | None = None  # another QEMU than the one that is installed
    driver: Path | None = None  # the guest's; None: Linux's own


def of(job: Job) -> Any:
    """What jobs of one boot have in common: one drive, or none. fl-nvme is as new with each boot alone."""
    profile = job.scenario.profile
    if profile.device == FL_NVME:
        return profile, job.id if job.scenario.writes else None
    return profile.params if profile.kind == "qemu-nvme" else None


@contextlib.contextmanager
def attached(jobs: Sequence[Job], kernel: Kernel, say: kernels.Say) -> Iterator[Attached]:
    """The drive of these jobs, ready for a VM."""
    profile = jobs[0].scenario.profile
    if profile.device == FL_NVME:
        driver = _driver(jobs, kernel, say)
        with tempfile.TemporaryDirectory(prefix="fairlane-") as folder:
            socket = Path(folder, "socket")
            program = newer_qemu.ensure(say)
            with fl_nvme.serving(fl_nvme.build(), socket, words(profile)):
                yield Attached(fl_nvme.qemu_opts(socket), [], program, driver)
    elif profile.kind == "qemu-nvme":
        what = profile.params
        drive = qemu.nvme_drive(what["size"], what["max_ioqpairs"], what["iops"], serial=made_drives.NVME_SERIAL)
        with drive as (options, fds):
            yield Attached(options, fds)
    else:
        yield Attached([], [])


def _driver(jobs: Sequence[Job], kernel: Kernel, say: kernels.Say) -> Path | None:
    """Ours, for all of them, if a knob needs priorities, and there are patches for that kernel."""
    if not any(knobs.TABLE[job.variant.knob].wrr for job in jobs) or kernel.version not in kernels.nvme_versions():
        return None
    return kernels.build_nvme(kernel, say) / "nvme" / "nvme.ko"


def words(profile: Profile) -> list[str]:
    """What fl-nvme is told, to be that drive and to be known in the guest as ours."""
    return [
        *fl_nvme.arguments(profile.params),
        f"--name=fairlane {profile.name}",
        f"--serial={made_drives.NVME_SERIAL}",
    ]
