# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""An operator's file on a real kernel: shares as it says, others' weights as they were meant, everything put back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlane.vm import kernels, lab_kernel

GuestRun = Callable[..., Any]  # see conftest.py


@pytest.mark.long
def test_a_host_is_as_its_file_says(guest_run: GuestRun, kernel: str) -> None:
    outcome = guest_run(Path(__file__).parent / "guest" / "settings.py", kernel=kernel, timeout_s=1200)
    print(outcome.check().stdout)


@pytest.mark.long
def test_io_weight_is_ours_where_the_kernel_has_none(guest_run: GuestRun) -> None:
    script = Path(__file__).parent / "guest" / "io_weight.py"
    modules = kernels.build_modules(lab_kernel.find(lab_kernel.PLAIN.name))
    print(guest_run(script, modules, kernel=lab_kernel.PLAIN.name, timeout_s=1200).check().stdout)
