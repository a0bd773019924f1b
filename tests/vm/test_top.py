# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane top` and `why` on a real kernel: who is in the victim's way is named, whatever the scheduler."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GuestRun = Callable[..., Any]  # see conftest.py


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("tmux"), reason="no tmux, in which the screen is looked at; apt-get install tmux")
@pytest.mark.parametrize("scheduler", ["kyber-fairness", "fairlane"])
def test_who_floods_the_drive_is_named(guest_run: GuestRun, scheduler: str, kernel: str) -> None:
    outcome = guest_run(Path(__file__).parent / "guest" / "top.py", scheduler, kernel=kernel, timeout_s=900)
    print(outcome.check().stdout)
