# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A VM boots, and whatever becomes of it is told."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlane import schedulers
from fairlane.vm import kernels, qemu, supported

GuestRun = Callable[..., Any]  # see conftest.py

SCRIPTS = Path(__file__).parent / "guest"
DRIVES = ("null", "null-immediate", "qemu-nvme")

VERSIONS = supported.booted()

AT_A_TIME = 2
RUNS: dict[str, tuple[tuple[object, ...], dict[str, object]]] = {
    **{version: ((SCRIPTS / "smoke.py", *DRIVES), {"kernel": version, "qemu_nvme": True}) for version in VERSIONS},
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
        str(item.callspec.params["kernel"]) if hasattr(item, "callspec") else ENDS[item.name]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    ]
    for version in VERSIONS:
        kernels.build_modules(kernels.ensure(version))
    with multiprocessing.get_context("fork").Pool(AT_A_TIME) as pool:
        yield {what: pool.apply_async(guest_run, args, how) for what, (args, how) in RUNS.items() if what in asked}


def test_guest_has_what_the_runs_need(kernel: str, runs: dict[str, Any]) -> None:
    said = [line.split(" ", 1) for line in runs[kernel].get().check().stdout.splitlines()]
    facts = dict(fact for fact in said if fact[0] not in ("drive", "ours"))
    assert facts["release"].startswith(f"{kernel}.")
    assert facts["io"] == "True"
    assert facts["cpus"] == "2"
    drives = [fact[1].split(" ", 4) for fact in said if fact[0] == "drive"]
    assert [drive[0] for drive in drives] == [name for name in DRIVES for _ in range(2)]
    assert [drive[2:] for drive in drives] == [["4096", "2", "[]"]] * 6, (
        "4 KiB, a hardware queue per CPU, all schedulers"
    )
    assert {fact[1] for fact in said if fact[0] == "ours"} == {
        f"{drive} {name}" for drive in DRIVES for name in schedulers.NAMES if name not in schedulers.ROUTING
    }


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
