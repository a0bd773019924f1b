# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Whatever becomes of a VM is told. That it boots, test_torture.py shows."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlane.vm import kernels, qemu

GuestRun = Callable[..., Any]  # see conftest.py

SCRIPTS = Path(__file__).parent / "guest"

AT_A_TIME = 2
RUNS: dict[str, tuple[tuple[object, ...], dict[str, object]]] = {
    **{how: ((SCRIPTS / "ends.py", how), {"modules": False}) for how in ("fail", "panic")},
    "hang": ((SCRIPTS / "ends.py", "hang"), {"timeout_s": 5, "modules": False}),
}
ENDS = {
    "test_exit_status_and_bad_dmesg_come_out": "fail",
    "test_panic_is_told_with_its_reason": "panic",
    "test_hang_ends_at_the_limit": "hang",
}


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, guest_run: GuestRun) -> Iterator[dict[str, Any]]:
    """Of all that were selected, two VMs at a time, as they mostly boot."""
    asked = [
        ENDS[item.name]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    ]
    kernels.ensure(qemu.KERNEL)
    with multiprocessing.get_context("fork").Pool(AT_A_TIME) as pool:
        yield {what: pool.apply_async(guest_run, args, how) for what, (args, how) in RUNS.items() if what in asked}


def test_exit_status_and_bad_dmesg_come_out(runs: dict[str, Any]) -> None:
    outcome = runs["fail"].get()
    assert (outcome.status, outcome.stdout) == (1, "about to fail")
    assert "no such luck" in "\n".join(outcome.console)
    with pytest.raises(AssertionError, match="ended with exit status 1"):
        outcome.check()
    assert len(outcome.bad_dmesg) == 1
    with pytest.raises(AssertionError, match="the kernel complained"):
        replace(outcome, status=0).check()


@pytest.mark.long  # tests/python/test_vm.py has it without a kernel
def test_panic_is_told_with_its_reason(runs: dict[str, Any]) -> None:
    with pytest.raises(qemu.VmError, match=r"died half way") as error:
        runs["panic"].get()
    assert "Kernel panic - not syncing: sysrq triggered crash" in str(error.value)


@pytest.mark.long  # the same
def test_hang_ends_at_the_limit(runs: dict[str, Any]) -> None:
    with pytest.raises(qemu.VmError, match="was not done in time"):
        runs["hang"].get()
