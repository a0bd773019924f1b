# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""io.cost is set as its authors set it, and a run in which it was not is refused."""

import math
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fairlane.backends.watched import Watched
from fairlane.experiment.model import Profile, Scenario, TenantSpec
from fairlane.linux import fio_logs, io_cost, knobs, sysfs
from fairlane.linux.cgroups import Tree
from fairlane.linux.io_cost import Model, Qos, Seen, Tuned
from fairlane.linux.knob import Need, Setting

MODEL = Model(rbps=400 * 4096, rseqiops=300, rrandiops=100, wbps=200 * 4096, wseqiops=100, wrandiops=50)


@pytest.mark.parametrize(
    ("tenant", "reads", "writes"),
    [
        (TenantSpec("a"), 100, 0),
        (TenantSpec("a", rw="randwrite"), 0, 50),
        (TenantSpec("a", rw="randrw"), 50, 25),
        (TenantSpec("a", rw="read"), 300, 0),
        (TenantSpec("a", rw="read", jobs=2), 100, 0),  # two jobs are not in order
        (TenantSpec("a", bs=4 * 4096), 1 / (1 / 100 + 3 / 400), 0),  # one request, and three more pages
    ],
)
def test_a_drive_is_fully_busy_with_what_its_model_says_is_the_most(
    tenant: TenantSpec, reads: float, writes: float
) -> None:
    assert MODEL.busy(tenant, reads, writes) == pytest.approx(1)


def test_a_model_is_scaled_as_a_whole() -> None:
    assert MODEL.scaled(0.5).busy(TenantSpec("a"), 50, 0) == pytest.approx(1)
    assert MODEL.scaled(0.5).line == (
        "ctrl=user model=linear rbps=819200 rseqiops=150 rrandiops=50 wbps=409600 wseqiops=50 wrandiops=25"
    )


def test_large_requests_are_not_slower_than_small_ones() -> None:
    slow = Model(rbps=100 * 4096, rseqiops=300, rrandiops=100, wbps=10 * 4096, wseqiops=40, wrandiops=50)
    found = slow.plausible()
    assert (found.rbps, found.wbps) == (300 * 4096, 50 * 4096)
    assert MODEL.plausible() == MODEL
    assert found.busy(TenantSpec("a", rw="randwrite"), 0, 50) == pytest.approx(1)


TUNED = Tuned(MODEL, 0.5, "measured", {"read": 1200.4, "write": 800.0})


def test_by_its_model_vrate_stays_where_it_begins() -> None:
    model, qos = TUNED.by_model()
    assert model == MODEL.scaled(0.5)
    assert qos.line == "enable=1 ctrl=user rpct=0.00 wpct=0.00 min=100.00 max=100.00"


def test_by_qos_vrate_follows_latencies_around_the_speed_that_was_found() -> None:
    model, qos = TUNED.by_qos()
    assert model == MODEL.scaled(0.5)
    assert qos.line == "enable=1 ctrl=user rpct=99.00 rlat=1200 wpct=99.00 wlat=800 min=50.00 max=150.00"


def test_without_writes_there_is_no_target_for_them() -> None:
    line = Qos({"read": 1200.0}, 50, 150).line
    assert "rpct=99.00 rlat=1200 wpct=0.00 min=50.00" in line


FIXED, RANGE = Qos({}), Qos({}, 50, 150)


@pytest.mark.parametrize(
    ("vrates", "qos", "steady", "says"),
    [
        ([100.0] * 9, FIXED, True, None),
        ([84.9] * 9, FIXED, True, "cost.vrate was 84.9 to 84.9 %, not 100.0 to 100.0 %"),
        ([100, 99, 101, 98, 102, 100], RANGE, True, None),
        ([100, 96, 92, 88, 84, 80], RANGE, True, "cost.vrate was still moving, from 98.0 to 82.0 %"),
        ([100, 96, 92, 88, 84, 80], RANGE, False, None),  # so does the load
        ([100, 70, 40], RANGE, False, "cost.vrate was 40.0 to 100.0 %, not 50.0 to 150.0 %"),
    ],
)
def test_a_run_is_refused_whose_vrate_was_not_as_set(
    vrates: list[float], qos: Qos, steady: bool, says: str | None
) -> None:
    assert Seen.of(vrates).wrong(qos, steady) == says


def test_vrate_and_usage_are_the_kernel_s(tmp_path: Path) -> None:
    (tmp_path / "io.stat").write_text(
        "8:0 rbytes=1 cost.vrate=50.00\n8:16 rbytes=9 wbytes=0 cost.vrate=97.04 cost.usage=123456\n"
    )
    assert io_cost.vrate(tmp_path, "8:16") == 97.04
    assert io_cost.usage_us(tmp_path, "8:16") == 123456
    assert io_cost.vrate(tmp_path, "8:32") is None


def test_latencies_at_the_drive_are_the_kernel_s_means(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("10 0 80 20 5 0 40 100 0 0 0 0 0 0 0 0 0\n")
    before = io_cost.drive_times(tmp_path)
    (tmp_path / "stat").write_text("30 0 240 80 5 0 40 100 0 0 0 0 0 0 0 0 0\n")
    assert io_cost.drive_times(tmp_path).means_us(before) == {"read": 3000.0}


def test_a_run_s_counters_are_what_the_drive_and_io_cost_did_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysfs, "SYS_BLOCK", tmp_path)
    for folder in ("sdx", "a", "b"):
        (tmp_path / folder).mkdir()
    tenants = TenantSpec("a"), TenantSpec("b")
    tree = Tree(tmp_path, tmp_path, {t.name: tmp_path / t.name for t in tenants}, {t.name: t for t in tenants})
    what = Scenario("x", Profile("x", "null_blk", ""), tenants)
    setting = Setting("sdx", "8:16", tree, what, Need(TUNED))

    def look(watched: Watched, reads: int, vrate: float = 100.0) -> None:
        (tmp_path / "io.stat").write_text(f"8:16 cost.vrate={vrate:.2f}\n")
        (tmp_path / "a/io.stat").write_text(f"8:16 cost.usage={reads * 30}\n")
        (tmp_path / "b/io.stat").write_text(f"8:16 cost.usage={reads * 10}\n")
        (tmp_path / "sdx/stat").write_text(f"{reads} 0 0 {reads * 2} 0 0 0 0 0 0 0\n")
        watched.look(0.9)

    load = fio_logs.Measured(1.0, {}, None, (time.time(), math.inf))
    watched = Watched(knobs.TABLE["io.cost"], setting, lambda _part: None)
    for reads in (10, 20, 50):
        look(watched, reads)
    found = watched.counters({"speed": "as found"}, load)
    assert found["drive_us"] == {"read": 2000.0}
    assert found["io.cost"]["usage_us"] == {"a": 1200, "b": 400}
    assert found["io.cost"]["vrate"]["mean"] == 100
    assert watched.refused is None
    look(watched, 60, vrate=80.0)
    watched.counters({"speed": "as found"}, load)
    assert watched.refused and "cost.vrate was 80.0 to 100.0 %, not 100.0 to 100.0 %" in watched.refused
    set_for_it = replace(setting, need=Need(replace(TUNED, load=tenants)))
    for reads, held_back in ((40, False), (10**6, True)):
        qos = Watched(knobs.TABLE["io.cost-qos"], set_for_it, lambda _part: None)
        look(qos, 0)
        time.sleep(0.002)
        look(qos, reads)
        qos.counters({"speed": "as found"}, load)
        assert bool(qos.refused and "io.cost held nobody back" in qos.refused) is not held_back
    none = Watched(knobs.TABLE["none"], setting, lambda _part: None)
    look(none, 70)
    assert none.counters({}, load) == {"settings_read_back": None}, "nobody needs more of another knob"
