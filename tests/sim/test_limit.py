# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What is called the limit is one: on modelled drives no scheduler of ours is better than it, beyond noise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fairlane import cli, schedulers
from fairlane.backends import sim
from fairlane.backends.table import named
from fairlane.experiment.profiles import load_profile
from fairlane.isolbench import bench, limit, suite, suite_figures, verdict
from fairlane.linux.knob import Knob

# The limit is that of one queue: a drive that knows urgent ones may serve a request before those that it already has.
KNOBS = [knob for knob in sim.KNOBS if knob not in (*schedulers.EXAMPLES, *schedulers.ROUTING)]
SHORT = suite.Scale("quick", 0.1, 0.05, (1,), (1,), (2,), (65536,), 3, (0.2,), limit_steps=4)
NOISE = 0.06  # of the way from none to alone, or of the rate alone


@pytest.mark.parametrize("drive", ["p4500", "zssd"])
def test_no_scheduler_is_better_than_the_limit(drive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "scale", lambda _quick, _backend: SHORT)
    monkeypatch.setattr(Knob, "periods", 0)
    fresh = load_profile(drive)  # which is made in no time, and is read like any other
    fresh = replace(fresh, params={**fresh.params, "map": 0})
    monkeypatch.setattr(sim, "load_profile", lambda _name: fresh)
    monkeypatch.setattr(suite, "CRITICAL", {"latency": suite.CRITICAL["latency"]})
    what = bench.prepare(["d3"], KNOBS, named(f"sim:{drive}"), True, tmp_path)
    bench.run(what, lambda _now: None)
    found = suite_figures.Evidence(what.units, bench.results(what))
    whole = next(unit for unit, _ in found.of("d3", "none", "latency"))
    points = found.limit(whole)
    assert points[-1].total > 10 * points[0].total, "from the tenant alone to a full drive"
    assert points[-1].rate < points[0].rate / 2
    for knob in KNOBS:
        volume = verdict.figures(found, knob)["latency front"]
        assert volume is None or volume <= 1 + NOISE, knob
        for unit, run in found.of("d3", knob, "latency"):
            prio = next(tenant for tenant in run.tenants if tenant.name == suite.PRIO)
            most = limit.rate_at(points, run.total_bytes_per_s / points[-1].total * 0.99)
            assert most is not None
            assert prio.bytes_per_s <= most + NOISE * points[0].rate, (knob, unit.setting)


def test_a_map_of_a_modelled_drive_leaves_its_figures_and_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "map"
    argv = ["map", "--on", "sim:optane", "--steps", "2", "--seconds", "0.02", "--out", str(out)]
    assert cli.main(argv) == 0
    said = capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir()) == ["map.json", "map.svg"]
    found = json.loads((out / "map.json").read_text())
    assert found["command"].startswith("fairlane map --on sim:optane")
    assert found["most"]["reads"]["iops"] == pytest.approx(550_000, rel=0.1), "the data sheet's"
    assert found["least"]["reads"]["mean_us"] < 20, "9 of the drive, and the rest of the host"
    assert {(cell["reads"], cell["writes"]) for cell in found["cells"]} == {
        (r, w) for r in (0.0, 0.25, 1.0) for w in (0.0, 0.25, 1.0) if r or w
    }
    little = next(cell for cell in found["cells"] if (cell["reads"], cell["writes"]) == (0.25, 0.0))
    assert little["loads"]["reads"]["kept_up"] and little["loads"]["reads"]["iops"] == pytest.approx(
        found["most"]["reads"]["iops"] / 4, rel=0.1
    )
    both = next(cell for cell in found["cells"] if (cell["reads"], cell["writes"]) == (1.0, 1.0))
    assert not all(load["kept_up"] for load in both["loads"].values()), "as many of both is more than it does"
    assert [point["depth"] for point in found["limit"]] == [0, *limit.depths(512, 2)]
    assert "most IOPS" in said and str(out / "map.svg") in said
