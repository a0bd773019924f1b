# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A drive's tags are divided among cgroups, however many there are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlane.vm import kernels, supported

GuestRun = Callable[..., Any]  # see conftest.py


@pytest.mark.parametrize("kernel", [pytest.param("6.1", marks=pytest.mark.long), supported.tested()[-1]])
def test_a_tenant_with_300_groups_gets_its_share(guest_run: GuestRun, kernel: str) -> None:
    modules = kernels.build_modules(kernels.ensure(kernel))
    script = Path(__file__).parent / "guest" / "tags.py"
    print(guest_run(script, modules, kernel=kernel, timeout_s=600).check().stdout)
