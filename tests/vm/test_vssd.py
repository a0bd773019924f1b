# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The virtual SSD on a real kernel: its data, its time, its interface, and its removal whatever is in flight.

One boot for all of it; guest/torture_vssd.py has the parts, one function each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairlane import kernels

GuestRun = Callable[..., Any]  # see conftest.py

SCRIPT = Path(__file__).parent / "guest" / "torture_vssd.py"


def test_vssd(guest_run: GuestRun, kernel: str) -> None:
    modules = kernels.build_modules(kernels.ensure(kernel))
    print(guest_run(SCRIPT, modules, kernel=kernel, timeout_s=180).check().stdout)
