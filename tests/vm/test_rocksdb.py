# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A real database beside fio: with equal weights both get as much, whatever they ask for (D2FQ, Fig. 18 and 19).

On the virtual SSD, and through the NVMe driver with our patches, on fl-nvme. And beside fio that writes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlane.experiment.profiles import load_profile
from fairlane.linux import made_drives
from fairlane.vm import fl_nvme, kernels, newer_qemu

GuestRun = Callable[..., Any]  # see conftest.py

SCRIPT = Path(__file__).parent / "guest" / "rocksdb.py"
DRIVE = {"time_scale": 300, "map": 0, "size": 4 << 30}  # as the script has it for the virtual SSD
KERNEL = "6.12"
TIMEOUT_S = 1200
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("db_bench"), reason="no db_bench here; Debian's package rocksdb-tools has it"),
]


@pytest.mark.parametrize(("workload", "kernel"), [("C", "6.1"), *((workload, "6.12") for workload in "BCE")])
def test_rocksdb_gets_as_much_as_fio(guest_run: GuestRun, workload: str, kernel: str) -> None:
    print(guest_run(SCRIPT, workload, "reads", kernel=kernel, timeout_s=TIMEOUT_S).check().stdout)


@pytest.mark.parametrize("workload", "ABCE")
def test_rocksdb_beside_writers_is_quicker_than_under_none(guest_run: GuestRun, workload: str) -> None:
    print(guest_run(SCRIPT, workload, "writes", kernel=KERNEL, timeout_s=TIMEOUT_S).check().stdout)


@pytest.mark.parametrize("workload", "BCE")
def test_rocksdb_gets_as_much_as_fio_through_the_nvme_driver(
    guest_run: GuestRun, workload: str, tmp_path: Path
) -> None:
    driver = kernels.build_nvme(kernels.ensure(KERNEL)) / "nvme" / "nvme.ko"
    socket = tmp_path / "socket"
    words = [*fl_nvme.arguments({**load_profile("zssd").params, **DRIVE}), f"--serial={made_drives.NVME_SERIAL}"]
    with fl_nvme.serving(fl_nvme.build(), socket, words):
        outcome = guest_run(
            SCRIPT,
            workload,
            "reads",
            driver,
            kernel=KERNEL,
            timeout_s=TIMEOUT_S,
            qemu_opts=fl_nvme.qemu_opts(socket),
            program=newer_qemu.ensure(),
        )
    print(outcome.check().stdout)
