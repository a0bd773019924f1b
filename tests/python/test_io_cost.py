# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""io.cost is set as its authors set it, and a run in which it was not is refused."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fairlane.backends import measuring
from fairlane.backends.job import Job
from fairlane.backends.measuring import DRIVE_US, REFUSED, SPEEDS, TARGETS, Measuring
from fairlane.backends.watched import SETTLE_LONGEST_S, Watched
from fairlane.experiment.model import Profile, Scenario, TenantSpec, Variant
from fairlane.experiment.results import Run, Tenant
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
    assert TUNED.by_qos(10)[1].line.endswith(" min=10.00 max=150.00")
    assert "rlat=300 wpct=99.00 wlat=200 min=10.00" in TUNED.by_qos(10, 0.25)[1].line


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
    assert found["io.cost"]["usage_us"] == {"a": 900, "b": 300}, "from the first time that it was added up"
    assert found["io.cost"]["vrate"]["mean"] == 100
    assert watched.refused is None
    look(watched, 60, vrate=80.0)
    watched.counters({"speed": "as found"}, load)
    assert watched.refused and "cost.vrate was 80.0 to 100.0 %, not 100.0 to 100.0 %" in watched.refused
    none = Watched(knobs.TABLE["none"], setting, lambda _part: None)
    look(none, 70)
    assert none.counters({}, load) == {"settings_read_back": None}, "nobody needs more of another knob"


def held_back(used_of_time: float, phase: float, tmp_path: Path) -> bool:
    """Whether a run of 3 s counts in which tenants use that part of their time, which the kernel adds up at `phase`,
    and then once in a second."""
    tenants = (TenantSpec("a"),)
    tree = Tree(tmp_path, tmp_path, {"a": tmp_path}, {"a": tenants[0]})
    what = Scenario("x", Profile("x", "null_blk", ""), tenants)
    setting = Setting("sdx", "8:16", tree, what, Need(replace(TUNED, load=tenants)))
    watched = Watched(knobs.TABLE["io.cost-qos"], setting, lambda _part: None)
    clock = 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: clock)
        patch.setattr(io_cost, "drive_times", lambda _folder: io_cost.DriveTimes((0, 0), (0, 0)))
        while clock < 3:
            usage = round(used_of_time * 1e6 * (math.floor(clock - phase) + 1))
            (tmp_path / "io.stat").write_text(f"8:16 cost.vrate=100.00 cost.usage={usage}\n")
            watched.look(0.0)
            clock += 0.2
        watched.counters({"speed": ""}, fio_logs.Measured(3.0, {}, None, (0.0, 3.0)))
    assert watched.refused is None or "io.cost held nobody back" in watched.refused
    return watched.refused is None


@pytest.mark.parametrize("phase", [0.05, 0.25, 0.5, 0.75, 0.95])
def test_latency_targets_that_hold_nobody_back_are_found_out_and_no_others(phase: float, tmp_path: Path) -> None:
    """Whenever the kernel adds up what was used: it once cost runs with good figures theirs."""
    assert held_back(0.97, phase, tmp_path)
    assert not held_back(0.6, phase, tmp_path)


def test_what_wakes_up_later_is_not_there_while_vrate_settles(tmp_path: Path) -> None:
    """Else io.cost would be set for a burst before it comes."""
    tenants = (TenantSpec("prio", start=1.3, stop=2.3), TenantSpec("be", stop=2.0))
    what = Scenario("x", Profile("x", "null_blk", ""), tenants)
    tree = Tree(tmp_path, tmp_path, dict.fromkeys(("prio", "be"), tmp_path), {t.name: t for t in tenants})
    watched = Watched(knobs.TABLE["io.cost-qos"], Setting("sdx", "8:16", tree, what, Need(TUNED)), lambda _part: None)
    played: list[Scenario] = []
    watched.settle(what, lambda load, _file, _enough: played.append(load), tmp_path / "settle", {"read": 500.0})
    assert [(t.name, t.start, t.stop) for t in played[0].tenants] == [("be", 0.0, None)]


def settled(tmp_path: Path, vrate: Callable[[float], float]) -> float:
    """After how many seconds it is taken to have settled, of a controller with a period of 1 s."""
    tenants = (TenantSpec("a"),)
    tree = Tree(tmp_path, tmp_path, {"a": tmp_path}, {"a": tenants[0]})
    what = Scenario("x", Profile("x", "null_blk", ""), tenants)
    watched = Watched(knobs.TABLE["io.cost-qos"], Setting("sdx", "8:16", tree, what, Need(TUNED)), lambda _part: None)
    clock = 0.0

    def play(load: Scenario, _file: Path, enough: Callable[[], bool]) -> None:
        nonlocal clock
        while clock < load.seconds and not enough():
            clock += 0.2
            (tmp_path / "io.stat").write_text(f"8:16 cost.vrate={vrate(clock):.2f} cost.usage=1\n")
            watched.look(0.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: clock)
        patch.setattr(io_cost, "drive_times", lambda _folder: io_cost.DriveTimes((0, 0), (0, 0)))
        watched.settle(what, play, tmp_path / "settle", {"read": 500_000.0})
    return clock


def test_vrate_has_settled_when_it_is_still_for_five_periods(tmp_path: Path) -> None:
    assert settled(tmp_path, lambda _s: 100.0) == pytest.approx(5.7, abs=0.3)
    assert settled(tmp_path, lambda s: max(90.0, 100.0 - 2 * s)) == pytest.approx(8, abs=1)
    assert settled(tmp_path, lambda s: 100.0 - 2 * s) == pytest.approx(SETTLE_LONGEST_S, abs=0.3), "and no longer"


WHAT = Scenario("x", Profile("x", "null_blk", ""), (TenantSpec("a", iodepth=64), TenantSpec("b", iodepth=64)))
Found = tuple[bool, float]  # whether each was charged its share, and the IOPS


class Tried:
    """A drive on which io.cost does as it is told, and what was tried on it."""

    def __init__(self, does: Callable[[float], Found], refused: tuple[float, ...] = ()) -> None:
        self.does, self.refused, self.order = does, refused, list[float]()
        self.measuring = Measuring(self.complete, {}, 512, writes=True)
        self.job = Job("x/io.cost-qos-0", WHAT, Variant("io.cost-qos", "io.cost-qos"), Path())

    def complete(self, job: Job, _need: Need) -> Run:
        _, kind, value, *_ = job.id.split("-")
        fair, iops = True, 1000.0
        if kind != "unhurried":
            self.order.append(float(value))
            fair, iops = self.does(float(value))
        counters = {
            DRIVE_US: {"read": 100.0, "write": 10.0},
            "io.cost": {"usage_us": {"a": 100, "b": 100 if fair else 50}, "vrate": {"first": 100.0, "last": 100.0}},
            **({REFUSED: "not so"} if kind != "unhurried" and float(value) in self.refused else {}),
        }
        tenants = [Tenant(name, 100, 0.5, 4096 * iops / 2, iops / 2, 4096 * iops / 2, 0.0, None, {}) for name in "ab"]
        return Run(job.variant.name, 0, 1.0, tenants, 4096 * iops, iops, 1.0, None, counters)


ALONE = Tried(lambda _speed: (True, 1000.0)).complete(
    Job("measured-speed-1", WHAT, Variant("none", "none"), Path()), Need()
)


@pytest.mark.parametrize("does", range(1 << len(SPEEDS)))
def test_the_fastest_fair_speed_is_found_in_four_runs(does: int) -> None:
    fairest = {speed: bool(does >> nth & 1) for nth, speed in enumerate(SPEEDS)}
    tried = Tried(lambda speed: (fairest[speed], 1000.0))
    found, _ = tried.measuring._io_cost_speed(tried.job, WHAT, MODEL, ALONE)
    assert len(tried.order) <= 4 and tried.order[0] == SPEEDS[0]
    assert ("no speed kept shares" in found.why) == (not any(fairest[each] for each in tried.order))
    part = found.speed / measuring._used(MODEL, WHAT, ALONE, 512)
    assert fairest[min(fairest, key=lambda speed: abs(speed - part))] or not any(fairest[each] for each in tried.order)
    if sorted(fairest.values()) == list(fairest.values()):  # what is slower is fairer
        wanted = next((speed for speed, is_fair in fairest.items() if is_fair), SPEEDS[0])
        assert part == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("fair", "kept", "refused", "order", "chosen"),
    [
        ((4, 8, 16), (4, 8, 16), (), [8, 4], 4),
        ((4, 8, 16), (8, 16), (), [8, 4], 8),
        ((4, 8, 16), (16,), (), [8, 16], 16),
        ((4,), (4, 8, 16), (), [8, 4], 4),
        ((4,), (8, 16), (), [8, 4], 4),  # shares before throughput
        ((), (4, 8, 16), (), [8, 4], 8),  # neither keeps them: the one that moves more
        ((4, 8, 16), (4, 8, 16), (8, 16), [8, 4], 4),  # they held nobody back
    ],
)
def test_targets_are_looked_for_in_two_runs(
    fair: tuple[int, ...], kept: tuple[int, ...], refused: tuple[float, ...], order: list[int], chosen: int
) -> None:
    assert set(TARGETS) == {4, 8, 16}
    tried = Tried(lambda times: (times in fair, (1000 if times in kept else 500) + times), refused)
    found = tried.measuring._io_cost_targets(tried.job, WHAT, TUNED, ALONE)
    assert tried.order == order
    assert found.targets_us == {"read": 100.0 * chosen, "write": 10.0 * chosen}
