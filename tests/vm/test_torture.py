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


TORTURES = {
    "switching-cgroups": ("switching", "cgroups"),
    "data-interface": ("data", "interface"),
    "mqflashfq": ("@mqflashfq", *EACH),
    "d2fq": ("route",),
    "flashfq": ("@flashfq", *EACH),
    "mqfq": ("@mqfq", *EACH),
    "on-vssd": ON_VSSD,
}
# What is not long; the others differ little from these.
SHORT = (
    *("6.1-switching-cgroups", "6.1-data-interface", "6.1-d2fq"),
    *("6.12-switching-cgroups", "6.12-data-interface", "6.12-mqflashfq"),
)
PARAMS = [
    pytest.param(kernel, what, id=f"{kernel}-{name}", marks=[] if f"{kernel}-{name}" in SHORT else [pytest.mark.long])
    for kernel in kernels.VERSIONS
    for name, what in TORTURES.items()
]


@pytest.mark.parametrize(("kernel", "what"), PARAMS)
def test_torture(guest_run: GuestRun, kernel: str, what: tuple[str, ...]) -> None:
    modules = kernels.build_modules(kernels.ensure(kernel))
    outcome = guest_run(SCRIPTS / "torture.py", modules, *what, kernel=kernel, timeout_s=600)
    print(outcome.check().stdout)
