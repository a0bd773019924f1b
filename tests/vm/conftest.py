# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The harness of the VM tests: run a Python script as root in a freshly booted VM and look at what came of it.

    def test_something(guest_run, kernel):
        guest_run(HERE / "guest" / "something.py", "argument", kernel=kernel).check()

The script is an ordinary program of this project's Python: it can import fairlane (devices.setup makes a drive) and
pytest, prints what it likes and fails by raising or by sys.exit. Our modules and every scheduler are loaded before.
A file that it writes into Path(os.environ["FAIRLANE_SHARED"]) is in `outcome.shared` afterwards.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from fairlane.linux import made_drives
from fairlane.vm import guest, kernels, lab_kernel, qemu, supported

NVME_BYTES = 1 << 30
NVME_QUEUES = 4


@dataclass(frozen=True)
class Outcome:
    """What came of a script in a VM."""

    stdout: str
    status: int
    bad_dmesg: list[str]
    dmesg: list[str]
    console: list[str]  # the script's stderr and the kernel's console, and stdout again
    shared: Path

    def check(self) -> Outcome:
        """Fails the test unless the script ended well and the kernel had nothing to complain of."""
        said = "\n".join(self.console[-60:])
        assert self.status == 0, f"the script ended with exit status {self.status}:\n{said}"
        assert not self.bad_dmesg, "the kernel complained:\n" + "\n".join(self.bad_dmesg)
        return self


GuestRun = Callable[..., Outcome]


@pytest.fixture(params=supported.booted())
def kernel(request: pytest.FixtureRequest) -> str:
    """A test that takes this runs once on each kernel that `make test` boots."""
    return str(request.param)


def run_guest(
    folder: Path,
    script: Path,
    *args: object,
    kernel: str = qemu.KERNEL,
    qemu_nvme: bool | str = False,
    timeout_s: float = 600,
    cpus: int = qemu.CPUS,
    modules: bool = True,
    qemu_opts: Sequence[str] = (),
    pass_fds: Sequence[int] = (),
    program: Path | None = None,
) -> Outcome:
    """Boot, run the script, shut down. timeout_s counts from the end of the boot, and passing it is a VmError.

    qemu_nvme: it has an NVMe device of QEMU's, with that serial number or the one by which we know our own.
    qemu_opts: more of QEMU's options, and pass_fds the descriptors that they name. program: another QEMU.
    """
    image = lab_kernel.find(kernel)
    shared = Path(tempfile.mkdtemp(prefix="shared", dir=folder))
    stdout: list[str] = []
    with ExitStack() as stack:
        serial = qemu_nvme if isinstance(qemu_nvme, str) else made_drives.NVME_SERIAL
        drive = qemu.nvme_drive(NVME_BYTES, NVME_QUEUES, serial=serial) if qemu_nvme else None
        nvme_opts, nvme_fds = stack.enter_context(drive) if drive else ([], [])
        finished = qemu.run(
            [sys.executable, str(script), *map(str, args)],
            image,
            shared,
            timeout_s=timeout_s,
            qemu_opts=[*nvme_opts, *qemu_opts],
            pass_fds=[*nvme_fds, *pass_fds],
            program=program,
            cpus=cpus,
            modules=kernels.build_modules(image) if modules else None,
            on_line=stdout.append,
        )
    log = (shared / guest.DMESG).read_text().splitlines()
    return Outcome("\n".join(stdout), finished.status, finished.bad_dmesg, log, finished.console, shared)


@pytest.fixture(scope="session")
def guest_run(tmp_path_factory: pytest.TempPathFactory) -> GuestRun:
    """run_guest() without its first argument; another process can be given it."""
    return partial(run_guest, tmp_path_factory.mktemp("guests"))
