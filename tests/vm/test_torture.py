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


# What differs between our schedulers; the rest they share with the first, which has it all. Long: the baseline's.
EACH = (
    "switching:switched_over_and_over,drive_removed,reloaded_over_and_over",
    "cgroups:moved_and_removed",
    "data:every_scheduler_in_turn",
    "interface:one_request_at_a_time",
)

ON_VSSD = (
    "+vssd",
    "switching",
    "cgroups",
    "data:every_scheduler_in_turn,flushes_fua_and_discards,file_system_with_writeback",
)


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(("switching", "cgroups"), id="switching-cgroups"),
        pytest.param(("data", "interface"), id="data-interface"),
        pytest.param(("@mqflashfq", *EACH), id="mqflashfq"),
        pytest.param(("@flashfq", *EACH), id="flashfq", marks=pytest.mark.long),
        pytest.param(("route",), id="d2fq"),
        pytest.param(ON_VSSD, id="on-vssd", marks=pytest.mark.long),
        pytest.param(("@mqfq", *EACH), id="mqfq", marks=pytest.mark.long),
    ],
)
def test_torture(guest_run: GuestRun, kernel: str, what: tuple[str, ...]) -> None:
    modules = kernels.build_modules(kernels.ensure(kernel))
    outcome = guest_run(SCRIPTS / "torture.py", modules, *what, kernel=kernel, timeout_s=600)
    print(outcome.check().stdout)
