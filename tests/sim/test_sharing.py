# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The real scheduler on a modelled drive: shares follow weights, whoever else is there, and little is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simkit import FREE, Json, null_drive, run_of, simulate, ssd_drive, tenant

from fairlane.backends.scenario_runs import run_scenario
from fairlane.backends.sim import Simulator
from fairlane.experiment import expectations, scenario_file
from fairlane.experiment.figures import jain
from fairlane.places import SCENARIOS

CORES = 4


def run(
    knob: str, weights: list[int], read_percent: int = 100, groups: list[Json] | None = None, warmup_s: int = 1
) -> Json:
    parents = [group["name"] for group in groups or [{"name": None}]]
    tenants = [
        tenant(f"t{i}", weight, jobs=4, depth=128, read_percent=read_percent, parent=parents[i % len(parents)])
        for i, weight in enumerate(weights)
    ]
    return simulate(run_of(tenants, ssd_drive(CORES), knob, CORES, 2, cgroups=groups or [], warmup_ns=warmup_s * 10**9))


def check(found: Json) -> None:
    total = found["total_bytes_per_s"]
    for t in found["tenants"]:
        # Of a share of 4 %, two seconds are 3 % too much in the worst of the cases that were found.
        assert t["bytes_per_s"] / total == pytest.approx(t["share"], rel=0.04)
    assert found["fairness_index"] > 0.995


@given(weights=st.lists(st.integers(1, 10).map(lambda n: 100 * n), min_size=2, max_size=5))
@settings(max_examples=15, deadline=None, derandomize=True)  # a failure is then of the change that it came with
def test_greedy_tenants_get_their_shares(weights: list[int]) -> None:
    check(run("kyber-fairness", weights))


@given(weights=st.lists(st.integers(1, 8).map(lambda n: 25 * n), min_size=2, max_size=5))
@settings(max_examples=4, deadline=None, derandomize=True)
def test_a_drive_that_arbitrates_gives_greedy_tenants_their_shares(weights: list[int]) -> None:
    found = run("d2fq", weights, warmup_s=6)
    check(found)
    # The ratio is near what sets the lightest apart from all others, and no less.
    most = (sum(weights) - min(weights)) / min(weights)
    assert 1 <= found["counters"]["device"]["hl_ratio"] <= 2 * most + 2


@pytest.mark.parametrize("knob", ["kyber-fairness", "mqflashfq", "flashfq", "mqfq", "fairlane"])
@pytest.mark.parametrize("requests_per_s", [1000, 5000])
def test_a_slow_drive_on_which_reads_are_cheap_is_shared(knob: str, requests_per_s: int) -> None:
    """A read costs a sixteenth of a write."""
    prices = {"read": [32 << n for n in range(12)], "write": [512 << n for n in range(12)]}
    tenants = [tenant(f"w{weight}", weight, jobs=4, depth=32) for weight in (100, 200)]
    drive = null_drive(queues=2, latency_ns=10**6, interval_ps=10**12 // requests_per_s)
    run = simulate(
        run_of(
            tenants,
            drive,
            knob,
            cores=8,
            seconds=10_000 / requests_per_s,
            warmup_ns=5000 * 10**9 // requests_per_s,
            prices=prices,
        )
    )
    light, heavy = (tenant["iops"] for tenant in run["tenants"])
    assert light + heavy > 0.95 * requests_per_s
    assert heavy / light == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize("knob", ["kyber-fairness", "mqflashfq", "fairlane"])
def test_a_drive_that_takes_long_is_kept_full(knob: str) -> None:
    """Each request takes 0.2 s, twice as long as a window or a period; kyber-fairness left it 8 requests of 128."""
    tenants = [tenant("heavy", 900, jobs=4, depth=64), *(tenant(f"light{i}", 100, parent="light") for i in range(40))]
    cgroups = [{"name": "light", "weight": 100, "parent": None}]
    drive = null_drive(queues=2, depth=64, latency_ns=200 * 10**6)
    found = simulate(run_of(tenants, drive, knob, cores=2, seconds=30, warmup_ns=60 * 10**9, cgroups=cgroups))
    assert found["total_iops"] > 0.8 * 640
    assert found["tenants"][0]["iops"] / found["total_iops"] == pytest.approx(0.9, rel=0.02)


def test_more_threads_and_larger_requests_are_no_more_share() -> None:
    tenants = [tenant("a", jobs=2, depth=128), tenant("b", jobs=6, depth=128), tenant("c", depth=256, bytes=16384)]
    for knob in ("d2fq", "mqfq"):
        check(simulate(run_of(tenants, ssd_drive(CORES), knob, CORES, 3, warmup_ns=3 * 10**9)))


def test_cores_that_share_their_queues_share_the_drive_fairly() -> None:
    tenants = [tenant(f"t{i}", weight, jobs=3, depth=64) for i, weight in enumerate((100, 75, 50, 25))]
    for knob in ("d2fq", "mqfq"):
        check(simulate(run_of(tenants, ssd_drive(4), knob, 12, 3, warmup_ns=3 * 10**9)))


@pytest.mark.parametrize("read_percent", [0, 50, 100])
def test_shares_cost_little(read_percent: int) -> None:
    weights = [1000, 500, 250, 100]
    found, most = run("kyber-fairness", weights, read_percent), run("none", weights, read_percent)
    check(found)
    assert found["total_iops"] > 0.97 * most["total_iops"]
    assert most["fairness_index"] < 0.7


def test_shares_are_those_of_the_whole_path() -> None:
    groups = [{"name": "gold", "weight": 300, "parent": None}, {"name": "bronze", "weight": 100, "parent": None}]
    check(run("kyber-fairness", [200, 100, 100, 300], groups=groups))


def test_shares_hold_although_the_drive_loses_most_of_its_speed_when_collection_starts(tmp_path: Path) -> None:
    what = scenario_file.load(SCENARIOS / "kyber-fairness" / "gc-starts.toml")
    found = run_scenario(Simulator(), what, ["kyber-fairness"], tmp_path).runs[0]

    def dealt(start: float, stop: float) -> tuple[float, float]:
        """bytes/s in that part of the run, and the fairness index."""
        moved = {t.name: t.moved(start, stop) or 0 for t in found.tenants}
        return sum(moved.values()) / (stop - start), jain(moved[t.name] / t.share for t in found.tenants) or 0

    (fast, fair_at_first), (slow, fair_then) = dealt(0, 2), dealt(6, 12)
    assert slow < 0.5 * fast
    assert fair_at_first > 0.995 and fair_then > 0.995


@pytest.mark.parametrize("name", ["fig1", "fig4-randread", "fig4-randwrite", "fig4-seqread", "fig4-seqwrite", "fig6"])
def test_the_papers_figures_on_its_drive_and_16_cores(name: str, tmp_path: Path) -> None:
    what = replace(scenario_file.load(SCENARIOS / "kyber-fairness" / f"{name}.toml"), seconds=3, warmup=2)
    found = run_scenario(Simulator("p4500"), what, ["none", "kyber-fairness"], tmp_path)
    assert (what.cores, found.device["profile"]) == (16, "p4500")
    totals = {(run.knob, str(run.point)): run.total_iops for run in found.runs}
    for run_found in found.runs:
        if run_found.knob == "kyber-fairness":
            assert run_found.total_iops > 0.97 * totals["none", str(run_found.point)]
            assert run_found.fairness_index is not None and run_found.fairness_index > 0.995


@pytest.mark.parametrize("seed", [1, 2])
def test_who_returns_has_its_share_back(seed: int, tmp_path: Path) -> None:
    what = replace(scenario_file.load(SCENARIOS / "kyber-fairness" / "idle-return.toml"), seed=seed)
    found = run_scenario(Simulator("p4500"), what, ["none", "kyber-fairness"], tmp_path)
    judged = expectations.evaluate(what, found, ["none", "kyber-fairness"])
    assert len(judged) == len(what.expects) and all(outcome.ok for outcome in judged), judged


def on_a_slow_host(knob: str, seed: int) -> dict[str, float]:
    """IOPS of four writers and readers on two cores, whose time nearly all of a request is."""
    drive = ssd_drive(2, time_scale=30, size=2 << 30, block_pages=4, erase_ns=50_000)
    costs = FREE | {"submit_ns": 240_000, "complete_ns": 180_000, "wake_ns": 150_000}
    mixed = {"jobs": 4, "depth": 32, "read_percent": 50}
    tenants = [tenant(f"w{weight}", weight, **mixed) for weight in (1000, 500, 250, 100)]
    found = simulate(run_of(tenants, drive, knob, 2, 2, warmup_ns=2 * 10**9, cpu=costs, seed=seed))
    return {each["name"]: each["iops"] for each in found["tenants"]}


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_fairlane_keeps_a_drive_full_and_shares_it_though_whoever_waited_comes_back_late(seed: int) -> None:
    none, got = on_a_slow_host("none", seed), on_a_slow_host("fairlane", seed)
    total = sum(got.values())
    assert total > 0.6 * sum(none.values())
    assert 0.52 < got["w1000"] / total < 0.56


@pytest.mark.parametrize("budget", [24, 64])
def test_under_fairlane_a_deep_queue_sleeps_once_in_several_requests_however_small_the_budget_is(budget: int) -> None:
    tenants = [tenant(name, depth=64, jobs=2) for name in "ab"]
    found = simulate(run_of(tenants, ssd_drive(2), "fairlane", 2, 0.5, tunables={"budget": budget}))
    counted = found["counters"]["device"]
    assert 0 < counted["waits"] < counted["requests"] / 2, counted


def test_fairlane_finds_who_is_behind_among_2000_cgroups_on_a_drive_of_128_queues() -> None:
    second = 10**9
    begins = [{"from_ns": second, "to_ns": 10**15}]
    tenants = [tenant("hog", depth=256, phases=begins), tenant("victim", depth=24, cores=[1])]
    tenants += [tenant(f"small{i}", parent="crowd", think_ns=80 * 10**6, cores=[i % 128]) for i in range(2000)]
    drive = null_drive(128, 64, latency_ns=100_000, interval_ps=10_000_000)
    crowd = [{"name": "crowd", "weight": 10, "parent": None}]
    found = simulate(run_of(tenants, drive, "fairlane", 128, 0.5, cgroups=crowd, warmup_ns=2 * second))
    hog, victim = (each["iops"] for each in found["tenants"][:2])
    assert victim > 0.95 * hog
