# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Calibrating the virtual SSD behind a real kernel finds what the simulator finds of the same drive."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane import cli, cost

ARGS = ("--sizes", "16KiB", "--cores", "2")


def test_costs_in_a_vm_are_those_of_the_simulator(tmp_path: Path) -> None:
    found = []
    for on in ("sim:p3700", "vm:p3700"):
        file = tmp_path / f"{on.partition(':')[0]}.toml"
        assert cli.main(["calibrate", "--on", on, "--out", str(file), *ARGS]) == 0
        found.append(cost.load(str(file)).cost("read", 16 << 10))
    assert found[1] == pytest.approx(found[0], rel=0.1)
