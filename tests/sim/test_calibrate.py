# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane calibrate --on sim`: mqFlashFQ's Table 2 on its drive, and prices that the simulator counts by."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from simkit import null_drive, run_of, simulate, tenant

from fairlane import cli
from fairlane.backends.sim import Simulator
from fairlane.calibration.calibrate import plan, run
from fairlane.experiment import price_lists

PRICES = {"read": [max(1, (512 << i) // 4) for i in range(12)], "write": [512 << i for i in range(12)]}


def test_p3700_is_priced_as_in_table_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p3700.toml"
    args = ["--on", "sim:p3700", "--sizes", "32KiB,64KiB,128KiB", "--out", str(file), "--json"]
    assert cli.main(["calibrate", *args]) == 0
    found = json.loads(capsys.readouterr().out)
    costs = {mix["k"]: mix["cost"] for mix in found["mixes"] if (mix["op"], mix["size"]) == ("read", "16KiB")}
    assert [k for k, price in costs.items() if price and abs(price - 0.667) <= 0.05] == [5]
    assert found["price"]["read"]["16KiB"] == costs[5]
    for op in price_lists.OPS:
        prices = [found["price"][op][f"{size}KiB"] for size in (16, 32, 64, 128)]
        assert all(less < more for less, more in pairwise(prices)), f"{op}: {prices}"
    assert price_lists.load(str(file)).cost("read", 16 << 10) == pytest.approx(costs[5], abs=1e-3)


def test_the_price_list_that_is_shipped_is_that_of_the_drive(tmp_path: Path) -> None:
    """Of the drive that does not collect; the 950 Pro's takes minutes."""
    found = run(plan(Simulator("p3700"), sizes=[32 << 10, 128 << 10]), tmp_path, lambda _now: None)
    shipped = price_lists.load("p3700")
    for op in price_lists.OPS:
        for size, price in found.price[op].items():
            assert shipped.cost(op, price_lists.BYTES[size]) == pytest.approx(price, rel=0.02), f"{op} {size}"


@pytest.mark.parametrize("knob", ["none", "kyber-fairness"])
def test_what_a_tenant_got_is_priced_by_the_list(knob: str) -> None:
    tenants = [
        tenant("r", depth=16, bytes=12 << 10),
        tenant("w", depth=16, read_percent=0),
        tenant("m", read_percent=50),
    ]
    description = run_of(tenants, null_drive(1, 64, 100_000), knob, prices=PRICES)
    found = simulate(description)["tenants"]
    assert [t["cost_per_s"] for t in found[:2]] == pytest.approx([found[0]["iops"] * 3 / 4, found[1]["iops"]])
    mixed = found[2]["read_bytes_per_s"] / 4096 / 4 + found[2]["write_bytes_per_s"] / 4096
    assert found[2]["cost_per_s"] == pytest.approx(mixed)
    del description["prices"]
    assert [t["cost_per_s"] for t in simulate(description)["tenants"]] == [None] * 3


def test_fairness_by_cost_is_printed_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.toml"
    jobs = [f'[[tenant]]\nname = "{rw}"\nrw = "rand{rw}"\niodepth = 64\n' for rw in price_lists.OPS]
    file.write_text('[run]\nseconds = 0.5\n[device]\nprofile = "p3700"\n' + "".join(jobs))
    args = ["run", str(file), "--on", "sim", "--knobs", "none", "--out", str(tmp_path)]
    assert cli.main(args) == 0
    assert "fair by" not in capsys.readouterr().out
    assert cli.main([*args, "--prices", "p3700"]) == 0
    assert "fair by" in capsys.readouterr().out
    assert cli.main(["report", str(tmp_path)]) == 0
    assert "by cost 0." in (tmp_path / "report.html").read_text()


def test_a_scheduler_shares_what_the_price_list_says() -> None:
    """A reader and a writer of equal weight: shares of cost, and four times as many reads as writes."""
    tenants = [tenant("r", depth=64), tenant("w", depth=64, read_percent=0)]
    drive = null_drive(1, 32, 100_000, interval_ps=10_000_000)
    description = run_of(tenants, drive, "kyber-fairness", seconds=2.0, warmup_ns=4 * 10**9, prices=PRICES)
    reader, writer = simulate(description)["tenants"]
    assert reader["cost_per_s"] / writer["cost_per_s"] == pytest.approx(1, abs=0.15)  # by bytes it would be 1/4
    assert reader["iops"] / writer["iops"] == pytest.approx(4, rel=0.15)
