# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""--on host:DEV, as an operator has it: on /dev/nvme0n1 of a VM, a drive of somebody else's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GuestRun = Callable[..., Any]  # see conftest.py


@pytest.mark.long
def test_commands_on_a_host_s_drive_are_careful_with_it(guest_run: GuestRun, kernel: str) -> None:
    script = Path(__file__).parent / "guest" / "host.py"
    outcome = guest_run(script, kernel=kernel, qemu_nvme="somebody", timeout_s=3600)
    print(outcome.check().stdout)
