# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Whatever is done to the drive, its scheduler and the cgroups under load: nothing is lost, nothing hangs.

Each test boots a VM and runs several things in it, as a boot takes as long as many of them; guest/torture_NAME.py
has them, one function each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlane import kernels

GuestRun = Callable[..., Any]  # see conftest.py

SCRIPTS = Path(__file__).parent / "guest"


@pytest.mark.parametrize("what", ["switching-cgroups", "data-interface"])
def test_torture(guest_run: GuestRun, kernel: str, what: str) -> None:
    modules = kernels.build_modules(kernels.ensure(kernel))
    outcome = guest_run(SCRIPTS / "torture.py", modules, *what.split("-"), kernel=kernel, timeout_s=600)
    print(outcome.check().stdout)
