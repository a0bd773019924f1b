# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Every kernel that we build for: built for, booted, used a little, and tortured briefly. For `pytest -m kernels`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlane.vm import kernels

GuestRun = Callable[..., Any]  # see conftest.py

pytestmark = pytest.mark.kernels

SCRIPTS = Path(__file__).parent / "guest"
TORTURES = (
    "+briefly",
    "switching",
    "cgroups:moved_and_removed,a_reader_in_each",
    "data",
    "interface",
    "route",
    "vssd",
    "@fairlane",
    "switching",
    "cgroups:moved_and_removed",
)
TIMEOUT_S = 1800


@pytest.mark.parametrize("kernel", kernels.VERSIONS)
def test_smoke(guest_run: GuestRun, kernel: str) -> None:
    script, modules = SCRIPTS / "torture_smoke.py", kernels.build_modules(kernels.ensure(kernel))
    print(guest_run(script, modules, "null", "qemu-nvme", kernel=kernel, qemu_nvme=True).check().stdout)


@pytest.mark.parametrize("kernel", kernels.VERSIONS)
def test_torture(guest_run: GuestRun, kernel: str) -> None:
    modules = kernels.build_modules(kernels.ensure(kernel))
    outcome = guest_run(SCRIPTS / "torture.py", modules, *TORTURES, kernel=kernel, timeout_s=TIMEOUT_S)
    print(outcome.check().stdout)
