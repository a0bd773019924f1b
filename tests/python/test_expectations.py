# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""An expectation is met when the measured figure is within its bound, and never because something was not measured."""

from pathlib import Path

import pytest

from fairlane.backends import table
from fairlane.experiment import expectations
from fairlane.experiment.model import Expect, Profile, Rate, Scenario, TenantSpec, Variant
from fairlane.experiment.results import Outcome, Results, Run, Series, Tenant

TENANTS = (TenantSpec("a", 300), TenantSpec("b", 100))
NULL = Profile("null", "null_blk", "")


def run(knob: str, rates: tuple[float, ...], repeat: int = 0, cgroups: int | None = None) -> Run:
    tenants = [Tenant(f"t{i}", 1, 1 / len(rates), rate, rate / 4096, rate, 0.0) for i, rate in enumerate(rates)]
    for tenant, name in zip(tenants, "ab", strict=False):
        tenant.name = name if cgroups is None else tenant.name
    point = {"cgroups": cgroups} if cgroups is not None else None
    return Run(knob, repeat, 2.0, tenants, sum(rates), sum(rates) / 4096, None, None, point=point)


def judge(expect: Expect, *runs: Run, sweep: tuple[int, ...] = (), **missing: str) -> Outcome:
    what = Scenario("x", NULL, TENANTS if not sweep else TENANTS[:1], expects=(expect,), seconds=2, sweep=sweep)
    results = Results("x", "vm", 1, "0", runs=list(runs), unavailable=missing)
    return expectations.evaluate(what, results, ["none", "kyber", "bfq"])[0]


@pytest.mark.parametrize(("rates", "error", "ok"), [((300, 100), 0, True), ((320, 80), 0.2, False)])
def test_share_error_is_relative_to_the_ideal(rates: tuple[float, float], error: float, ok: bool) -> None:
    outcome = judge(Expect("share_error", "kyber", at_most=0.05), run("kyber", rates))
    assert outcome.measured == pytest.approx(error)
    assert outcome.ok is ok


def test_a_run_in_which_nothing_was_completed_is_pointed_at(tmp_path: Path) -> None:
    results = Results("x", "vm", 1, "0", runs=[run("none", (1.0, 1.0)), run("kyber", (0.0, 0.0))])
    expectations.conclude(
        Scenario("x", NULL, TENANTS, seconds=2), results, ["none", "kyber"], "again", tmp_path / "r.json"
    )
    (note,) = results.notes
    assert note.startswith("Nothing was completed with kyber: give more seconds")


def test_a_host_that_had_other_things_to_do_is_told(tmp_path: Path) -> None:
    results = Results("x", "vm", 1, "0", runs=[run("none", (1.0, 1.0)), run("kyber", (1.0, 1.0))])
    for one, cpus in zip(results.runs, (0.1, 1.26), strict=True):
        one.counters["others_cpus"] = cpus
    expectations.conclude(Scenario("x", NULL, TENANTS, seconds=2), results, ["none"], "again", tmp_path / "r.json")
    (note,) = results.notes
    assert note.startswith("In 1 of 2 runs, other processes kept up to 1.3 of this machine's CPUs busy.")


@pytest.mark.parametrize(("accel", "busy", "told"), [("tcg", 0.8, True), ("tcg", 0.7, False), ("kvm", 0.8, False)])
def test_an_emulated_cpu_that_had_no_time_left_is_told(accel: str, busy: float, told: bool, tmp_path: Path) -> None:
    runs = [run("none", (1.0, 1.0)), run("kyber", (1.0, 1.0))]
    for one, part in zip(runs, (0.1, busy), strict=True):
        one.cpu_ns_per_io = part * 2e9 / one.total_iops
    results = Results("x", "vm", 1, "0", accel=accel, machine={"cpus": 2}, runs=runs)
    expectations.conclude(Scenario("x", NULL, TENANTS, seconds=2), results, ["none"], "again", tmp_path / "r.json")
    said = [note.split(" of the time.")[0] for note in results.notes]
    assert said == (["Under kyber the emulated CPUs were busy for up to 80%"] if told else [])


def test_a_ratio_is_taken_within_each_repeat() -> None:
    runs = [run("kyber", (10.0, 0.0), 0), run("kyber", (50.0, 0.0), 1), run("kyber", (19.0, 0.0), 2)]
    bases = [run("none", (20.0, 0.0), 2), run("none", (10.0, 0.0), 0), run("none", (50.0, 0.0), 1)]
    outcome = judge(Expect("total_iops", "kyber", of="none", at_least=0.95), *runs, *bases)
    assert outcome.measured == pytest.approx(1)
    assert outcome.ok


def test_both_bounds_count() -> None:
    assert not judge(Expect("total_bytes_per_s", "kyber", at_least=1, at_most=5), run("kyber", (9, 1))).ok
    assert judge(Expect("total_bytes_per_s", "kyber", at_least=1, at_most=10), run("kyber", (9, 1))).ok


def test_the_worst_point_of_a_sweep_counts() -> None:
    rates = {1: (100.0, 90.0), 4: (100.0, 60.0), 16: (100.0, 81.0)}
    runs = [run(k, (r,), cgroups=n) for n, pair in rates.items() for k, r in zip(("none", "kyber"), pair, strict=True)]
    outcome = judge(Expect("total_iops", "kyber", of="none", at_least=0.9), *runs, sweep=(1, 4, 16))
    assert outcome.measured == pytest.approx(0.6)
    across = Expect("total_iops", "kyber", of="none", across="cgroups", at_least=0.9)
    assert judge(across, *runs, sweep=(1, 4, 16)).measured == pytest.approx(0.6 / 0.9)


def test_a_part_of_the_window_is_judged_by_its_series_among_those_active_in_it() -> None:
    found = run("kyber", (0.0, 0.0))
    found.tenants[0].series = Series(500, [300, 300, 0, 0])
    found.tenants[1].series = Series(500, [100, 100, 400, 400])
    tenants = (TenantSpec("a", 300, stop=1.0), TenantSpec("b", 100))
    what = Scenario("x", NULL, tenants, seconds=2)
    for between in ((0.0, 1.0), (1.0, 2.0)):
        expect = Expect("share_error", "kyber", at_most=0.05, between=between)
        assert expectations.figure(expect, what, found) == pytest.approx(0)
    total = Expect("total_bytes_per_s", "kyber", at_least=1, between=(1.0, 2.0))
    assert expectations.figure(total, what, found) == pytest.approx(800)
    for tenant in found.tenants:  # of a long run
        tenant.series = Series(640, [640] * 10)
    assert expectations.figure(total, what, found) == pytest.approx(2000), "the bins' own time counts"


def test_a_counter_is_its_last_value_or_its_mean_over_some_seconds() -> None:
    found = run("kyber", (1.0, 1.0))
    found.counters = {"device": {"ratio": 3}, "each_second": {"ratio": [256, 5, 4, 3]}}
    what = Scenario("x", NULL, TENANTS, seconds=4)
    assert expectations.figure(Expect("counter", "kyber", counter="ratio"), what, found) == 3
    assert expectations.figure(Expect("counter", "kyber", counter="ratio", between=(1.0, 3.0)), what, found) == 4.5
    assert expectations.figure(Expect("counter", "kyber", counter="other"), what, found) is None
    assert expectations.figure(Expect("counter", "kyber", counter="ratio", between=(4.0, 6.0)), what, found) is None


def test_spread_is_how_much_the_bins_differ() -> None:
    found = run("kyber", (1.0, 1.0))
    found.tenants[0].series = Series(500, [100, 300, 200, 200])
    what = Scenario("x", NULL, TENANTS, seconds=2)
    expect = Expect("spread", "kyber", tenant="a")
    assert expectations.figure(expect, what, found) == pytest.approx((2 * 100**2 / 4) ** 0.5 / 200)
    assert expectations.figure(Expect("spread", "kyber", tenant="a", between=(1.0, 2.0)), what, found) == 0
    assert expectations.figure(Expect("spread", "kyber", tenant="b"), what, found) is None


def test_a_variant_is_judged_when_its_knob_was_asked_for() -> None:
    expect = Expect("total_iops", "slow", of="kyber", at_most=0.5)
    what = Scenario("x", NULL, TENANTS, variants=(Variant("slow", "kyber"),), expects=(expect,), seconds=2)
    results = Results("x", "vm", 1, "0", runs=[run("kyber", (9.0, 1.0)), run("slow", (4.0, 0.0))])
    assert expectations.evaluate(what, results, ["kyber"])[0].measured == pytest.approx(0.4)
    assert expectations.evaluate(what, results, ["none"])[0].ok is None


def test_a_knob_that_was_not_asked_for_is_not_judged() -> None:
    outcome = judge(Expect("total_iops", "io.cost", at_least=1), run("kyber", (1, 1)))
    assert outcome.ok is None
    assert outcome.note == "io.cost was not asked for"


def test_a_knob_that_could_not_run_fails_with_its_reason() -> None:
    outcome = judge(Expect("total_iops", "kyber", of="bfq", at_least=1), run("kyber", (1, 1)), bfq="no such scheduler")
    assert outcome.ok is False
    assert outcome.note == "no such scheduler"


def test_what_is_unknown_fails() -> None:
    assert judge(Expect("cpu_ns_per_io", "kyber", at_most=9e9), run("kyber", (1, 1))).ok is False
    assert judge(Expect("share_error", "kyber", at_most=9.0), run("kyber", (0, 0))).ok is False


# --- Where shares mean something ---


def bound(figure: str, between: tuple[float, float] | None = None) -> Expect:
    return Expect(figure, "kyber", at_most=0.05, between=between)


@pytest.mark.parametrize(
    ("expects", "tenants", "spans"),
    [
        ((), TENANTS, None),
        ((bound("share_error"),), TENANTS, None),
        ((bound("total_iops"),), TENANTS, []),
        ((), (TENANTS[0], TenantSpec("b", rate=Rate(iops=5))), []),
        ((), (TENANTS[0], TenantSpec("b", stop=1.0)), []),
        ((bound("fairness_index", (1, 2)), bound("total_iops")), TENANTS, [(1, 2)]),
    ],
)
def test_shares_are_judged_where_the_scenario_expects_them(
    expects: tuple[Expect, ...], tenants: tuple[TenantSpec, ...], spans: list[tuple[float, float]] | None
) -> None:
    found = expectations.parts(Scenario("x", NULL, tenants, expects=expects, seconds=2))
    assert (None if found is None else [(part.start, part.stop) for part in found]) == spans


def test_the_shares_of_a_part_are_those_of_who_is_active_in_it() -> None:
    tenants = (TENANTS[0], TenantSpec("b", 100, stop=1.0), TenantSpec("c", 100))
    expect = bound("share_error", (1.2, 2))
    found = expectations.parts(Scenario("x", NULL, tenants, expects=(expect,), seconds=2))
    assert found is not None
    assert found[0].shares == pytest.approx({"a": 0.75, "c": 0.25})


def test_what_is_expected_of_a_knob_that_the_simulator_has_not_is_left_out(tmp_path: Path) -> None:
    expects = (Expect("total_iops", "none", of="bfq", at_least=1), Expect("total_iops", "none", at_least=1))
    what = Scenario("x", NULL, TENANTS, expects=expects, seconds=2)
    for backend, count in (("vm", 2), ("sim", 1)):
        results = Results("x", backend, 1, "0", runs=[run("none", (300, 100))])
        has = table.TABLE[backend].knobs
        expectations.conclude(what, results, ["none"], "", tmp_path / "results.json", has)
        assert len(results.expects) == count
        assert ("has no bfq" in " ".join(results.notes)) is (backend == "sim")
        assert Results.load(tmp_path / "results.json") == results
