# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Calibrating the virtual SSD behind a real kernel finds what the simulator finds of the same drive.

Long, and of use only on a machine that does nothing else: what starves the emulated CPU slows the drive down in some
mixes and not in others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.backends.table import named
from fairlane.calibration import calibrate

Prices = dict[str, dict[str, float]]


def prices(on: str, folder: Path) -> Prices:
    folder.mkdir()
    plan = calibrate.plan(named(f"{on}:p3700", drive=True), sizes=[16 << 10, 128 << 10], cores=2, io_cost=False)
    return calibrate.run(plan, folder, lambda _: None).price


@pytest.mark.long
def test_costs_in_a_vm_are_those_of_the_simulator(tmp_path: Path) -> None:
    simulated, measured = (prices(on, tmp_path / on) for on in ("sim", "vm"))
    for op, found in simulated.items():
        assert measured[op] == pytest.approx(found, rel=0.1), op
