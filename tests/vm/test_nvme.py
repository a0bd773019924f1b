# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""fl-nvme under Linux's own NVMe driver, in a QEMU that speaks vfio-user; the program is built with sanitizers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fairlane.experiment import profiles
from fairlane.vm import fl_nvme, kernels, newer_qemu, qemu

SCRIPT = Path(__file__).parent / "guest" / "nvme.py"
KERNEL = "6.12"
TIMEOUT_S = 1800.0


@pytest.mark.long
def test_linux_s_driver_keeps_data_and_survives_resets(tmp_path: Path) -> None:
    socket = tmp_path / "nvme.socket"
    words = [*fl_nvme.arguments(profiles.load_profile("zssd").params), "--name=fairlane zssd", "--size=256M"]
    with fl_nvme.serving(fl_nvme.build(checked=True), socket, words) as drive:
        finished = qemu.run(
            [sys.executable, str(SCRIPT)],
            kernels.ensure(KERNEL),
            tmp_path,
            timeout_s=TIMEOUT_S,
            qemu_opts=fl_nvme.qemu_opts(socket),
            program=newer_qemu.ensure(),
            on_line=print,
        )
        assert drive.poll() is None, "fl-nvme ended before its client"
    assert finished.status == 0, "\n".join(finished.console[-60:])
    assert not finished.bad_dmesg, "\n".join(finished.bad_dmesg)
    assert drive.returncode == 0, "fl-nvme did not end well"
