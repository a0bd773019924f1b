# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A scheduler that fails is left out: the drive goes on, goes back to none, and no I/O is lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlane.vm import kernels, lab_kernel

GuestRun = Callable[..., Any]  # see conftest.py
TIMEOUT_S = 1800
MEANT = re.compile(r"\bfairlane: \S+: faulty(-admission)? has failed: ")


@pytest.mark.parametrize(
    "version",
    [
        *(pytest.param(version, marks=pytest.mark.long) for version in kernels.VERSIONS),
        *(pytest.param(checker.name, marks=pytest.mark.checked) for checker in lab_kernel.CHECKERS),
    ],
)
def test_a_scheduler_that_fails_is_left_out(guest_run: GuestRun, version: str) -> None:
    modules = kernels.build_modules(lab_kernel.find(version))
    outcome = guest_run(Path(__file__).parent / "guest" / "watchdog.py", modules, kernel=version, timeout_s=TIMEOUT_S)
    print(outcome.stdout)
    assert outcome.status == 0, "\n".join(outcome.console[-60:])
    assert not [line for line in outcome.bad_dmesg if not MEANT.search(line)], outcome.bad_dmesg
