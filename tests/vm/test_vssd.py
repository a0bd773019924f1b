# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The virtual SSD takes the time that its model says: alone on the machine. All else about it: test_torture.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairlane.vm import kernels

GuestRun = Callable[..., Any]  # see conftest.py

SCRIPT = Path(__file__).parent / "guest" / "torture_vssd.py"


def test_its_time_is_that_of_the_model(guest_run: GuestRun) -> None:
    modules = kernels.build_modules(kernels.ensure("6.12"))
    parts = ("flush_and_fua_wait_for_nand", "time_scale_slows_the_whole_drive")
    print(guest_run(SCRIPT, modules, *parts, kernel="6.12", timeout_s=180).check().stdout)
