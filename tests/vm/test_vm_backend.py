# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A VM boots, and whatever becomes of it is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlane.vm import qemu

GuestRun = Callable[..., Any]  # see conftest.py

SCRIPTS = Path(__file__).parent / "guest"


def test_guest_has_what_the_runs_need(guest_run: GuestRun, kernel: str) -> None:
    profiles = ("null", "null-immediate", "qemu-nvme")
    outcome = guest_run(SCRIPTS / "smoke.py", *profiles, kernel=kernel, qemu_nvme=True, modules=False)
    said = [line.split(" ", 1) for line in outcome.check().stdout.splitlines()]
    facts = dict(fact for fact in said if fact[0] != "drive")
    assert facts["release"].startswith(f"{kernel}.")
    assert facts["io"] == "True"
    assert facts["cpus"] == "2"
    drives = [fact[1].split(" ", 4) for fact in said if fact[0] == "drive"]
    assert [drive[0] for drive in drives] == [name for name in profiles for _ in range(2)]
    assert [drive[2:] for drive in drives] == [["4096", "2", "[]"]] * 6, (
        "4 KiB, a hardware queue per CPU, all schedulers"
    )


def test_exit_status_and_bad_dmesg_come_out(guest_run: GuestRun) -> None:
    outcome = guest_run(SCRIPTS / "ends.py", "fail", modules=False)
    assert (outcome.status, outcome.stdout) == (1, "about to fail")
    assert "no such luck" in "\n".join(outcome.console)
    outcome = guest_run(SCRIPTS / "ends.py", "warn", modules=False)
    assert outcome.status == 0
    assert len(outcome.bad_dmesg) == 1
    with pytest.raises(AssertionError, match="the kernel complained"):
        outcome.check()


def test_panic_is_told_with_its_reason(guest_run: GuestRun) -> None:
    with pytest.raises(qemu.VmError, match=r"died half way") as error:
        guest_run(SCRIPTS / "ends.py", "panic", modules=False)
    assert "Kernel panic - not syncing: sysrq triggered crash" in str(error.value)


def test_hang_ends_at_the_limit(guest_run: GuestRun) -> None:
    before = time.monotonic()
    with pytest.raises(qemu.VmError, match="was not done in time"):
        guest_run(SCRIPTS / "ends.py", "hang", timeout_s=5, modules=False)
    assert time.monotonic() - before < qemu.BOOT_S
