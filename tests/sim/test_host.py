# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The simulated host does what queueing theory and arithmetic say, where they say it exactly."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simkit import COSTS, FREE, Json, null_drive, run_of, simulate, ssd_drive, tenant

EACH_NS = COSTS["submit_ns"] + COSTS["complete_ns"] + COSTS["dispatch_ns"]


def counters(run: Json) -> Json:
    found: Json = run["counters"]["device"]
    return found


# --- Queueing theory ---


@pytest.mark.parametrize("load", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("kind", ["null", "one die"])
def test_poisson_arrivals_at_one_server_wait_as_in_m_d_1(kind: str, load: float) -> None:
    service_ns = 20_000
    drive = null_drive(interval_ps=service_ns * 1000)
    if kind == "one die":
        # The transfer of 4 KiB takes 4 ns of the rest; what the drive adds beside the die is next to nothing.
        fast = {"link_read_mbps": 1_000_000, "channel_mbps": 1_000_000, "read_command_ns": 0, "overhead_ns": 0}
        one = {"channels": 1, "dies": 1, "planes": 1, "commands": 65536, "page_reads": 65536}
        drive = ssd_drive(**one, **fast, read_ns=service_ns, page=4096)
    load_of = tenant(depth=65536, interval_ps=round(service_ns * 1000 / load), poisson=True)
    run = simulate(run_of([load_of], drive, seconds=20, cpu=FREE))
    waited_us = run["tenants"][0]["lat_us"]["mean"] - service_ns / 1000
    assert waited_us == pytest.approx(load / (2 * (1 - load)) * service_ns / 1000, rel=0.02, abs=0.02)


@given(
    depths=st.lists(st.integers(1, 64), min_size=1, max_size=5),
    latency_ns=st.integers(100_000, 5_000_000),
    knob=st.sampled_from(["none", "kyber-fairness"]),
)
@settings(max_examples=25, deadline=None)
def test_what_is_outstanding_is_throughput_times_latency(depths: list[int], latency_ns: int, knob: str) -> None:
    tenants = [tenant(f"t{i}", depth=depth) for i, depth in enumerate(depths)]
    costs = FREE | {"submit_ns": 1}
    drive = null_drive(5, 1023, latency_ns)
    run = simulate(run_of(tenants, drive, knob, 5, 0.5, cpu=costs))
    assert counters(run)["mean_in_system"] == pytest.approx(counters(run)["rate_times_latency"], rel=0.001)
    if knob == "none":  # one that throttles has long latencies, of which some began before the window
        for found, depth in zip(run["tenants"], depths, strict=True):
            assert found["iops"] * found["lat_us"]["mean"] / 1e6 == pytest.approx(depth, rel=0.02)


@given(think_ns=st.integers(0, 1_000_000), latency_ns=st.integers(1000, 1_000_000), depth=st.integers(1, 8))
@settings(max_examples=20, deadline=None)
def test_a_job_that_pauses_does_its_depth_in_each_latency_and_pause(think_ns: int, latency_ns: int, depth: int) -> None:
    drive = null_drive(latency_ns=latency_ns)
    run = simulate(run_of([tenant(depth=depth, think_ns=think_ns)], drive, cpu=FREE | {"submit_ns": 1}))
    assert run["total_iops"] == pytest.approx(depth * 1e9 / (latency_ns + think_ns + 1), rel=0.01, abs=depth)


# --- Cores ---


@pytest.mark.parametrize("cores", [1, 4, 16])
def test_a_drive_that_takes_no_time_leaves_the_cores_as_the_limit(cores: int) -> None:
    run = simulate(run_of([tenant(jobs=2 * cores, depth=8)], null_drive(cores, 64), cores=cores, seconds=0.2))
    assert run["total_iops"] == pytest.approx(cores * 1e9 / EACH_NS, rel=0.001)
    assert run["cpu_ns_per_io"] == pytest.approx(EACH_NS, rel=0.001)


def test_jobs_stay_on_the_cores_that_they_are_given() -> None:
    tenants = [tenant("a", jobs=4, depth=8, cores=[2]), tenant("b", jobs=4, depth=8, cores=[5, 6])]
    run = simulate(run_of(tenants, null_drive(8, 64), cores=8, seconds=0.2))
    one, two = (found["iops"] for found in run["tenants"])
    assert one == pytest.approx(1e9 / EACH_NS, rel=0.001)
    assert two == pytest.approx(2e9 / EACH_NS, rel=0.001)


@pytest.mark.parametrize("knob", ["none", "kyber-fairness"])
def test_jobs_that_may_run_anywhere_are_spread_evenly(knob: str) -> None:
    tenants = [tenant(f"t{i}", jobs=3, depth=4) for i in range(16)]
    run = simulate(run_of(tenants, null_drive(16, 64), knob, 16, 0.2))
    total = sum(found["iops"] for found in run["tenants"])
    assert [found["iops"] / total for found in run["tenants"]] == pytest.approx([1 / 16] * 16, rel=0.02)


def test_a_lock_that_all_cores_share_is_held_by_one_at_a_time_and_becomes_the_limit() -> None:
    tenants = [tenant(f"t{i}", jobs=1, depth=16) for i in range(16)]
    drive = null_drive(16, 64, latency_ns=100_000)

    def total(lock_ns: int) -> tuple[float, Json]:
        run = simulate(run_of(tenants, drive, "flashfq", 16, 0.5, cpu=COSTS | {"lock_ns": lock_ns}))
        return run["total_iops"], counters(run)

    free, few = total(0)
    held, much = total(20_000_000)
    assert few["lock_held_ns"] == few["lock_wait_ns"] == 0
    assert 0.4e9 < much["lock_held_ns"] <= 0.52e9  # of 0.5 s; the last may end after it
    assert much["lock_wait_ns"] > much["lock_held_ns"]
    assert held < free / 4


# --- Queues ---


@pytest.mark.parametrize(("queues", "depth"), [(1, 1), (1, 32), (4, 8)])
def test_a_drive_has_no_more_in_flight_than_its_queues_take(queues: int, depth: int) -> None:
    drive = null_drive(queues, depth, latency_ns=1_000_000)
    run = simulate(run_of([tenant(jobs=8, depth=64)], drive, cores=4, cpu=FREE | {"submit_ns": 1}))
    assert run["total_iops"] == pytest.approx(queues * depth * 1000, rel=0.01)


def test_the_first_of_a_queue_to_wait_for_a_tag_is_the_first_to_get_one() -> None:
    tenants = [tenant(f"t{i}", depth=256) for i in range(8)]
    run = simulate(run_of(tenants, null_drive(1, 16, 1_000_000), cpu=FREE | {"submit_ns": 1}))
    rates = [found["iops"] for found in run["tenants"]]
    assert min(rates) / max(rates) > 0.95


# --- Load ---


@pytest.mark.parametrize("poisson", [False, True])
def test_an_open_loop_brings_its_rate(poisson: bool) -> None:
    load = tenant(jobs=4, depth=256, interval_ps=400_000_000, poisson=poisson)
    run = simulate(run_of([load], null_drive(latency_ns=50_000), seconds=4))
    assert run["total_iops"] == pytest.approx(10_000, rel=0.02 if poisson else 0.0001)
    if not poisson:
        assert run["tenants"][0]["lat_us"]["max"] < 70


def test_an_open_loop_that_is_too_fast_for_the_drive_waits_longer_and_longer() -> None:
    load = tenant(depth=4, interval_ps=50_000_000)
    run = simulate(run_of([load], null_drive(interval_ps=100_000_000), seconds=1))
    assert run["total_iops"] == pytest.approx(10_000, rel=0.001)
    # Since 0: after t seconds it is t/2 behind.
    assert run["tenants"][0]["lat_us"]["max"] == pytest.approx(1.1e6 / 2, rel=0.01)


def test_a_tenant_is_active_in_its_phases_only() -> None:
    phases = [{"from_ns": 0, "to_ns": 300_000_000}, {"from_ns": 600_000_000, "to_ns": 800_000_000}]
    run = simulate(run_of([tenant(depth=4, phases=phases)], null_drive(latency_ns=10_000)))
    series = run["tenants"][0]["series"]
    assert series["bin_ms"] == 10
    busy = [i for i, moved in enumerate(series["bytes"]) if moved > series["bytes"][5] / 2]
    assert busy == [*range(20), *range(50, 70)]  # the window begins after 100 ms
    assert sum(series["bytes"]) == pytest.approx(run["total_bytes_per_s"])


@pytest.mark.parametrize("read_percent", [0, 30, 100])
def test_reads_and_writes_are_mixed_as_asked(read_percent: int) -> None:
    run = simulate(run_of([tenant(depth=8, read_percent=read_percent)], null_drive(latency_ns=10_000)))
    found = run["tenants"][0]
    assert found["read_bytes_per_s"] / found["bytes_per_s"] == pytest.approx(read_percent / 100, abs=0.01)
    assert found["read_bytes_per_s"] + found["write_bytes_per_s"] == pytest.approx(found["bytes_per_s"])


# --- Figures ---


def test_latencies_are_known_within_a_percent() -> None:
    run = simulate(run_of([tenant()], null_drive(latency_ns=123_456_789), seconds=5, cpu=FREE | {"submit_ns": 1}))
    latency = run["tenants"][0]["lat_us"]
    assert latency["mean"] == pytest.approx(123_456.790)
    assert latency["max"] == pytest.approx(123_456.790)
    for percentile in ("p50", "p95", "p99", "p99.9"):
        assert latency[percentile] == pytest.approx(123_456.790, rel=0.008)


def test_a_long_run_has_wider_bins_and_no_more_of_them() -> None:
    run = simulate(run_of([tenant()], null_drive(latency_ns=50_000_000), seconds=3600, cpu=FREE | {"submit_ns": 1}))
    series = run["tenants"][0]["series"]
    assert len(series["bytes"]) <= 8192
    assert len(series["bytes"]) * series["bin_ms"] >= 3_600_000
    assert sum(series["bytes"]) == pytest.approx(run["total_bytes_per_s"] * 3600)


def test_who_moves_nothing_has_no_latency_and_no_fairness() -> None:
    run = simulate(run_of([tenant(phases=[])], null_drive(latency_ns=1000)))
    assert run["fairness_index"] is None
    assert run["cpu_ns_per_io"] is None
    assert set(run["tenants"][0]["lat_us"].values()) == {None}
