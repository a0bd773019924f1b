# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The isolation suite: what is run, what is judged of it, and by which thresholds."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlane import cli, schedulers
from fairlane.backends import host, vm
from fairlane.backends.host import Host
from fairlane.backends.job import Job, Options, from_json, to_json
from fairlane.backends.sim import Simulator
from fairlane.backends.table import named
from fairlane.backends.vm import Vm
from fairlane.drive_models import published_figures
from fairlane.errors import FairlaneError
from fairlane.experiment import price_lists
from fairlane.experiment.model import TenantSpec, shares
from fairlane.experiment.results import Results, Run, Series, Tenant
from fairlane.isolbench import bench, doubts, published, suite, suite_figures, verdict
from fairlane.isolbench import limit as the_limit
from fairlane.isolbench.run_folder import Store
from fairlane.isolbench.suite_figures import Tradeoff
from fairlane.isolbench.verdict import BAD, FAIR, GOOD, Judged, Limit, Mark
from fairlane.linux import disks, io_cost, knobs, sysfs
from fairlane.linux.disks import Target
from fairlane.linux.knob import BY_WEIGHT, Need, target_us
from fairlane.pages import bench_page
from fairlane.places import ROOT
from fairlane.vm import supported

BENCH_MD = (ROOT / "docs" / "bench.md").read_text()


def units(quick: bool = True) -> list[suite.Unit]:
    return suite.units(tuple(suite.PARTS), tuple(knobs.TABLE), suite.scale(quick, Vm()), Vm().drives())


@pytest.mark.parametrize("quick", [True, False])
def test_every_knob_is_in_every_experiment_beside_none(quick: bool) -> None:
    found = units(quick=quick)
    assert len({unit.id for unit in found}) == len(found)
    shared = [unit for unit in found if unit.experiment == "alone" or unit.part == the_limit.NAME]
    assert {unit.knob for unit in shared} == {"none"}
    for experiment in {(unit.part, unit.experiment, unit.x) for unit in found if unit not in shared}:
        same = {unit.knob for unit in found if (unit.part, unit.experiment, unit.x) == experiment}
        by_weight = {name for name in knobs.TABLE if suite.burst_setting(name).weight}
        assert same == (by_weight if "to1" in experiment[1] else set(knobs.TABLE)), experiment


def test_what_a_unit_is_set_from_is_run_before_it() -> None:
    before: set[str] = set()
    for unit in units():
        assert {unit.baseline, unit.alone} - {None} <= before
        before.add(unit.id)


def test_a_unit_crosses_into_the_vm_as_it_is() -> None:
    found = units()
    assert [suite.from_json(json.loads(json.dumps(suite.to_json(unit)))) for unit in found] == found


def test_a_job_crosses_into_the_vm_as_it_is(tmp_path: Path) -> None:
    what = bench.prepare(tuple(suite.PARTS), tuple(knobs.TABLE), Vm(), True, tmp_path)
    jobs = [bench.job(what, unit) for unit in what.units]
    assert [from_json(json.loads(json.dumps(to_json(job)))) for job in jobs] == jobs


def test_a_quick_run_of_all_knobs_takes_two_hours_and_a_half_in_a_vm(tmp_path: Path) -> None:
    what = bench.prepare(tuple(suite.PARTS), None, Vm(), True, tmp_path)
    assert 130 * 60 < bench.estimate_s(what) < 150 * 60
    assert {unit.repeat for unit in what.units} == {0, 1, 2}


@pytest.mark.parametrize("knob", knobs.TABLE)
def test_few_settings_still_span_the_range(knob: str) -> None:
    """Of those that ask for priority, so that each knob has as many that count."""
    every, few = suite.settings(knob, 99), suite.settings(knob, 3)
    if len(every) > 3:
        every = [setting for setting in every if setting.asks(suite.LIGHT)]
    assert (few[0], few[-1]) == (every[0], every[-1])
    assert len(few) == min(3, len(every))


def test_io_cost_has_its_latency_targets_to_turn_and_room_for_vrate_to_follow_them() -> None:
    targets = [(s.weight, s.tuning.targets, s.tuning.least_vrate) for s in suite.settings("io.cost-qos", 99)[2:]]
    assert targets == [(10000, part, 10) for part in (1.0, 0.5, 0.25, 0.125, 0.0625)]
    full = suite.settings("io.cost-qos", suite.ALL_PUBLISHED)
    assert {s.tuning.targets for s in full} >= {1.0, 0.44, 0.028}


def test_the_simulator_tries_every_setting_and_a_vm_three() -> None:
    assert {suite.scale(True, Vm()).settings, Host.pace.settings} == {3}
    most = suite.scale(True, Simulator()).settings
    assert all(len(suite.settings(knob, most)) == len(suite.settings(knob, 99)) for knob in Simulator.knobs)


def test_fairlane_is_asked_for_weights_and_then_for_targets() -> None:
    found = suite.settings("fairlane", suite.ALL_PUBLISHED)
    asked = [(each.weight, each.tuning.target_of_alone, each.tunables.get("latency_loss")) for each in found]
    targets = [(10000, 1.0, loss) for loss in (12, 40, 60, 80)]
    assert asked == [(100, None, None), (1000, None, None), *targets]
    assert {setting.tuning.first for setting in found if setting.tuning != BY_WEIGHT} == {suite.PRIO}
    with_target = {
        name for name in knobs.TABLE if suite.burst_setting(name).tuning.target_of_alone and name in schedulers.NAMES
    }
    assert with_target == {"fairlane"}
    lopsided = [unit for unit in units(quick=False) if unit.knob == "fairlane" and "to1" in unit.experiment]
    assert {unit.tuning for unit in lopsided} == {BY_WEIGHT}, "only weights"


def test_the_full_size_asks_all_that_the_paper_does_and_quick_stays_quick() -> None:
    quick, full = units(), units(quick=False)
    asked = [{(u.part, u.experiment) for u in each if u.part != the_limit.NAME} for each in (full, quick)]
    only = asked[0] - asked[1]
    assert only == {
        *(("d1", f"{kind}-{cgroups}") for kind in ("latency", "bandwidth") for cgroups in ("one", "nested")),
        ("d1", "drives"),
        *(("d2", experiment) for experiment in ("mixed-75", "mixed-50", "unsaturated")),
        *(("d3", f"{kind}-{load}") for kind in suite.CRITICAL for load in suite.OTHER_LOADS),
        *(("d4", f"{kind}-{ratio}to1") for kind in suite.CRITICAL for ratio in (1000, 10000)),
    }
    assert {unit.x for unit in full if unit.experiment == "latency" and unit.part == "d1"} == {2**n for n in range(9)}
    assert {unit.repeat for unit in full} == set(range(5))
    tried = {
        knob: len({setting.name for setting in suite.settings(knob, suite.ALL_PUBLISHED)})
        for knob in ("io.max", "io.latency", "io.cost", "io.cost-qos", "io.prio.class", "bfq")
    }
    assert tried == {
        "io.max": 29,
        "io.latency": 45,
        "io.cost": 33,
        "io.cost-qos": 65,
        "io.prio.class": 9,
        "bfq": 45,
    }, "as many as the authors"


def test_a_setting_asks_for_priority_if_the_first_tenant_is_to_have_more_than_the_others() -> None:
    full = [unit for unit in units(quick=False) if unit.part == "d3" and unit.experiment == "latency"]
    asks = {(unit.knob, unit.setting): suite_figures._asks(unit) for unit in full if unit.repeat == 0}
    assert not asks["io.cost-qos", "weight 25, from 75 %"] and not asks["io.cost-qos", "weight 100, from 75 %"]
    assert asks["io.cost-qos", "weight 1000, from 95 %"]
    classes = [setting for (knob, setting), does in asks.items() if knob == "io.prio.class" and does]
    assert classes == ["restrict-to-be over idle", "promote-to-rt over idle", "promote-to-rt over restrict-to-be"]
    assert not asks["none", "as it is"] and asks["io.max", "others at 97%"] and not asks["fairlane", "weight 100"]


def test_a_mix_of_reads_and_writes_is_priced_by_that_mix() -> None:
    found = units(quick=False)
    for unit in (unit for unit in found if unit.part == "d2" and unit.experiment.startswith("mixed")):
        saturated = suite.saturating(unit.scenario.tenants[1])
        assert saturated.mix == int(unit.experiment.removeprefix("mixed-"))
        assert any(each.id == suite.alone_id(saturated, "d2") for each in found)


def test_a_knob_that_debian_lacks_has_the_vm_take_the_lab_kernel() -> None:
    assert vm.kernel_for(["none", "bfq"]) == supported.own()
    assert vm.kernel_for(["none", "io.latency"]) == "lab"
    assert vm.kernel_for(["io.prio.class"]) == "lab"


# --- Figures ---


def points(*pairs: tuple[float, float]) -> list[Tradeoff]:
    return [Tradeoff(f"{n}", total, gain, 0.0, 0.0) for n, (total, gain) in enumerate(pairs)]


def test_the_front_is_what_nothing_beats_in_both_ways() -> None:
    assert [p.total for p in suite_figures.front(points((1.0, 0.1), (0.8, 0.5), (0.7, 0.4), (0.5, 0.9)))] == [
        1.0,
        0.8,
        0.5,
    ]


def test_the_hypervolume_is_the_area_below_the_front() -> None:
    assert suite_figures.hypervolume(points((1.0, 0.0))) == 0.0, "none"
    assert suite_figures.hypervolume(points((1.0, 1.0))) == 1.0, "as if alone, at none's total"
    assert suite_figures.hypervolume(points((1.0, 0.2), (0.5, 0.6))) == pytest.approx(0.2 + 0.5 * 0.4)
    assert suite_figures.hypervolume(points((1.3, -0.5))) == 0.0, "worse than none is no gain"
    assert suite_figures.hypervolume([]) is None


def test_a_burst_has_its_due_from_when_its_rate_is_that() -> None:
    series = Series(10, [0] * 10 + [10] * 10 + [100] * 20)  # awake from 0.1 s on, served from 0.2 s
    assert suite_figures.until(series, 0.1, 0.4, due=10_000) == pytest.approx(0.1)
    assert suite_figures.until(series, 0.1, 0.4, due=1_000) == 0.0
    assert suite_figures.until(series, 0.1, 0.2, due=10_000) == suite_figures.NEVER


def marked(knob: str, **grades: int | None) -> dict[str, Mark]:
    limit = Limit("x", "d1", "", 1, 0)
    return {part: Mark(knob, part, (Judged(limit, 1.0, grade),)) for part, grade in grades.items()}


def test_a_mark_is_the_worst_of_what_it_rests_on() -> None:
    limit = Limit("x", "d1", "", good=0.9, fair=0.5)
    graded = [Judged(limit, value, limit.grade(value)) for value in (0.95, 0.6)]
    assert Mark("a", "d1", tuple(graded)).symbol == FAIR
    assert [limit.grade(value) for value in (0.9, 0.89, 0.49)] == [2, 1, 0]
    most = Limit("x", "d1", "", good=1.1, fair=2, at_most=True)
    assert [most.grade(value) for value in (1.1, 1.2, suite_figures.NEVER)] == [2, 1, 0]
    assert Mark("a", "d1", (Judged(limit, None, None),)).symbol == "?"
    assert (GOOD, BAD) == ("✓", "✗")


def test_a_mark_with_an_unknown_figure_is_no_tick() -> None:
    assert [marked_of(*grades) for grades in ((2, None), (1, None), (0, None), (2, 2))] == ["?", "?", BAD, GOOD]


def marked_of(*grades: int | None) -> str:
    limit = Limit("x", "d1", "", 1, 0)
    return Mark("a", "d1", tuple(Judged(limit, None if grade is None else 1.0, grade) for grade in grades)).symbol


def test_the_advice_names_the_best_knob_and_what_it_does_not_do() -> None:
    none = marked("none", d1=2, d2=0, d3=0)
    found = {"none": none, "a": marked("a", d1=1, d2=2, d3=0), "b": marked("b", d1=2, d2=1, d3=1)}
    said = verdict.advice(found)
    assert "take a (" in said
    assert said.endswith("do not rely on a for trade-off.")
    found["c"] = marked("c", d1=1, d2=0, d3=2)
    assert "; c (overhead –, fairness ✗, trade-off ✓) got as many; do" in verdict.advice(found)
    assert verdict.advice({"a": marked("a", d1=None)}) == "No knob ran, so there is nothing to advise."


def test_a_tick_for_overhead_is_no_reason_to_take_a_knob() -> None:
    none = marked("none", d1=2, d2=0, d3=0, d4=0)
    found = {"none": none, "mqflashfq": marked("mqflashfq", d1=2, d2=0, d3=0, d4=0)}
    better = "No knob isolates tenants on this drive and kernel better than none does."
    assert verdict.advice(found) == better
    assert verdict.advice({"none": marked("none", d2=2), "a": marked("a", d2=2)}) == better
    found |= {name: marked(name, d1=1, d2=0, d3=1, d4=0) for name in ("kyber-fairness", "flashfq")}
    assert verdict.advice(found) == (
        "No knob isolates tenants on this drive and kernel; kyber-fairness and flashfq (overhead –, fairness ✗,"
        " trade-off –, bursts ✗) come nearest."
    )
    assert verdict.advice({k: {"d1": row["d1"]} for k, row in found.items()}).startswith("Only overhead was judged")


def test_where_all_have_crosses_no_knob_is_named() -> None:
    said = verdict.advice({knob: marked(knob, d4=0) for knob in ("none", "flashfq", "mqfq")})
    assert "fq" not in said and said.startswith("No knob isolates")


def test_the_documentation_has_every_threshold() -> None:
    rows = {
        cells[1]: cells
        for cells in re.findall(r"^\| (d\d) \| ([\w ]+) \|.*\| ([\d.]+) \| ([\d.]+) \|$", BENCH_MD, re.M)
    }
    assert rows.keys() == {limit.figure for limit in verdict.LIMITS}
    for limit in verdict.LIMITS:
        part, _, good, fair = rows[limit.figure]
        assert (part, float(good), float(fair)) == (limit.part, limit.good, limit.fair)


# --- What made-up runs come to ---

ONE = suite.Scale("full", 3.0, 0.5, (1,), (1,), (2,), (65536,), 3, (0.001, 1.0))
Moves = Callable[[suite.Unit, TenantSpec], Tenant]


def tenant(spec: TenantSpec, bytes_per_s: float, mean_us: float | None, bins: Sequence[int] = ()) -> Tenant:
    """Its slowest request took three times the mean, and its P99 is twice that."""
    lat = {name: mean_us * times if mean_us else None for name, times in (("mean", 1), ("p99", 2), ("max", 3))}
    series = Series(10, list(bins)) if bins else None
    return Tenant(spec.name, spec.weight, 0.5, bytes_per_s, 1000.0, bytes_per_s, 0, lat_us=lat, series=series)


def evidence(part: str, moves: Moves, knob: str = "bfq", how: suite.Scale = ONE) -> suite_figures.Evidence:
    """That of a run of a part with one knob; moves says what a unit's tenant did."""
    found = suite.units([part], [knob], how, Simulator().drives())
    results = {}
    for unit in found:
        tenants = [moves(unit, spec) for spec in unit.scenario.tenants]
        run = Run(unit.knob, 0, 1.0, tenants, sum(t.bytes_per_s for t in tenants), 1.0, 1.0, 1.0)
        results[unit.id] = Results("x", "sim", 1, "0", runs=[run])
    return suite_figures.Evidence(found, results)


def bursts(mean_us: float | None, usual_us: float = 100.0) -> suite_figures.Evidence:
    """Of 1 s, served at once under bfq; and of 1 ms, of which fio logs nothing, with that mean latency.

    usual_us: the mean of the tenant when it is alone.
    """

    def moves(unit: suite.Unit, spec: TenantSpec) -> Tenant:
        if unit.x == 0.001 and spec.name == suite.PRIO:
            return tenant(spec, 1e3, mean_us if unit.knob == "bfq" else 900.0, [0] * 150)
        alone = unit.experiment == "alone"
        return tenant(spec, 1e6, usual_us, [10_000] * 300 if not alone else ())

    return evidence("d4", moves)


def test_a_burst_that_is_too_short_for_a_rate_is_judged_by_its_latency() -> None:
    good, slow = bursts(mean_us=110), bursts(mean_us=200_000)
    assert verdict.figures(good, "bfq")["response"] == 0.0
    assert verdict.marks(good)["bfq"]["d4"].symbol == GOOD
    assert verdict.figures(slow, "bfq")["response"] == pytest.approx(600), "ms, of the slowest of its requests"
    assert verdict.marks(slow)["bfq"]["d4"].symbol == BAD
    for found in (good, slow):
        assert verdict.figures(found, "bfq")["kept"] == 1.0, "of the long bursts: a bin of a short one is noise"


def test_a_burst_of_too_few_requests_for_a_rate_leaves_what_is_kept_to_the_others() -> None:
    """Of a slow drive: in 1 s, a latency-critical tenant is due two requests there."""

    def moves(unit: suite.Unit, spec: TenantSpec) -> Tenant:
        slow = spec.name == suite.PRIO and spec.iodepth == 1
        return tenant(spec, 1e4 if slow else 1e6, 100.0, [100 if slow else 10_000] * 300)

    found = evidence("d4", moves)
    rated = {(b.experiment, b.seconds): b.rated for b in found.bursts("bfq")}
    assert not rated["latency", 1.0] and rated["bandwidth", 1.0]
    assert verdict.figures(found, "bfq")["kept"] == 1.0


def test_a_burst_without_completions_never_has_what_it_is_due() -> None:
    silent = bursts(mean_us=None)
    assert verdict.figures(silent, "bfq")["response"] == suite_figures.NEVER
    assert doubts.notes(silent) == []


def test_a_burst_that_is_shorter_than_a_request_is_not_judged_and_that_is_said() -> None:
    short = bursts(mean_us=None, usual_us=2000.0)
    assert verdict.figures(short, "bfq")["response"] == 0.0
    assert doubts.notes(short) == [
        f"A burst of 0.001 s of a {kind}-critical tenant is shorter than one of its requests takes, and is not judged"
        " under bfq."
        for kind in ("latency", "bandwidth")
    ]


def test_a_figure_is_the_median_of_its_repeats_and_a_mark_on_which_they_disagree_is_none() -> None:
    units = suite.units(["d1"], ["bfq"], replace(ONE, repeats=3), Simulator().drives())

    def found(*of_none: float) -> suite_figures.Evidence:
        rates = {unit.id: 1e6 * (of_none[unit.repeat] if unit.knob == "bfq" else 1.0) for unit in units}
        made = {unit.id: [tenant(spec, rates[unit.id], 9.0) for spec in unit.scenario.tenants] for unit in units}
        runs = {
            unit.id: Run(unit.knob, unit.repeat, 1.0, made[unit.id], rates[unit.id] * len(made[unit.id]), 1, 1.0, 9.0)
            for unit in units
        }
        return suite_figures.Evidence(
            units,
            {
                name: Results(unit.scenario.name, "sim", 1, "0", runs=[runs[name]])
                for unit, name in ((unit, unit.id) for unit in units)
            },
        )

    alike = verdict.marks(found(0.97, 0.93, 0.95))["bfq"]["d1"]
    assert alike.symbol == GOOD and alike.judged[0].text == "0.95 (0.93 to 0.97)"
    mixed = verdict.marks(found(0.97, 0.60, 0.95))["bfq"]["d1"]
    assert mixed.symbol == "~" and mixed.judged[0].value == 0.95
    assert mixed.grade == 0, "in the advice it counts as the worst of them"
    assert [row["repeat"] for row in verdict.rows(found(1, 1, 1))] == sorted(3 * [0, 1, 2] * (len(units) // 9))


@pytest.mark.parametrize("drive", published_figures.names())
def test_in_a_vm_a_drive_is_slow_enough_for_an_emulated_cpu(drive: str) -> None:
    _, slow = named(f"vm:{drive}", drive=True).drives()
    figures = published_figures.load_published(drive).figures
    assert max(each.published.get("iops", 0) for each in figures) / slow.params["time_scale"] <= 5000


def test_a_knob_is_measured_after_it_has_adjusted_itself_and_favours_nobody_unasked() -> None:
    for unit in suite.units(["d2", "d3"], ["d2fq", "mqfq"], ONE, Simulator().drives()):
        assert unit.scenario.warmup == (5.0 if unit.knob == "d2fq" else 0.5)
    for unit in suite.units(["d1", "d2"], ["fairlane"], ONE, Vm().drives()):
        slowed_down = unit.knob == "fairlane" and unit.part == "d2"
        least = 10.0 if unit.scenario.writes or slowed_down else 0.5
        assert unit.scenario.warmup == pytest.approx(least), "100 times slower"
    waits = [unit.scenario.warmup for unit in suite.units(["d4"], ["io.latency"], ONE, Vm().drives())]
    assert set(waits) == {0.5, 10.0}, "it halves what others may have in the drive ten times"
    gift = evidence(
        "d3", lambda unit, spec: tenant(spec, 1e6, 9.0 if unit.knob == "bfq" or unit.experiment == "alone" else 99.0)
    )
    points = gift.points("bfq", "latency")
    assert [point.gain > 0 for point in points] == [point.setting != "weight 100" for point in points]


def test_a_knob_that_was_set_from_what_does_not_hold_is_named() -> None:
    found = evidence("d2", lambda _unit, spec: tenant(spec, 1e6, 9), "io.cost")
    assert doubts.notes(found) == [], "nothing says what it was set from"
    runs = {unit.place: run for unit, run in found.of("d2", "io.cost")}
    for place, run in runs.items():
        run.counters["io.cost"] = {"usage_us": {t.name: 1000 * t.share for t in run.tenants}}
        run.counters["none_of_setting"] = {"d2 writes": 0.6, "d2 size-64KiB": 1.3}.get(place, 1.2)
    (total,) = doubts.notes(found)
    assert total == (
        f"io.cost was set from a measurement that does not hold in 2 of {len(runs)} experiments: in d2 writes, none did"
        " 0.60 times what it was set for."
    )
    first, *_ = (run := runs["d2 writes"]).tenants
    run.counters["io.cost"]["usage_us"][first.name] *= 3
    assert doubts.notes(found)[1] == (
        f"io.cost was set to hold shares, and did not in 1 of {len(runs)} experiments of d2: in d2 writes, what it let"
        " a tenant have was 50% off."
    )


def priority(none: float, alone: float, knob: float | None) -> suite_figures.Evidence:
    """The mean latency of the tenant with priority, and its bandwidth in kB/s."""

    def moves(unit: suite.Unit, spec: TenantSpec) -> Tenant:
        mine = {"none": alone if unit.experiment == "alone" else none}.get(unit.knob, knob)
        if spec.name == suite.PRIO:
            return tenant(spec, 1e3 * (mine or 0), 1e6 / mine if mine else None)
        return tenant(spec, 1e9, 100.0)

    return evidence("d3", moves)


def test_a_knob_that_was_set_from_a_run_of_none_that_is_not_like_its_repeats_is_named() -> None:
    units = suite.units(["d2"], ["io.max", "bfq"], replace(ONE, repeats=3), Simulator().drives())

    def notes(of_none: Sequence[float]) -> list[str]:
        """None did so many times what it does else of d2's writes, in each repeat."""
        results = {}
        for unit in units:
            times = of_none[unit.repeat] if unit.knob == "none" and unit.experiment == "writes" else 1.0
            tenants = [tenant(spec, 1e6 * times, 9) for spec in unit.scenario.tenants]
            run = Run(unit.knob, unit.repeat, 1.0, tenants, sum(t.bytes_per_s for t in tenants), 1.0, 1.0, 1.0)
            results[unit.id] = Results("x", "vm", 1, "0", runs=[run])
        return doubts.notes(suite_figures.Evidence(units, results))

    assert notes((1.0, 0.9, 1.1)) == []
    count = len({unit.place for unit in units if unit.knob == "io.max"})
    assert notes((1.0, 0.5, 1.0)) == [
        f"io.max was set from a measurement that does not hold in 1 of {count} experiments: in d2 writes, none did 2.00"
        " times what it was set for."
    ]


@pytest.mark.parametrize("alone", [99.0, 100.0, 101.0, 109.0])
def test_where_a_tenant_gains_nothing_alone_no_knob_is_judged_by_what_it_gains(alone: float) -> None:
    found = priority(none=100, alone=alone, knob=50)
    assert verdict.marks(found)["bfq"]["d3"].symbol == "?"
    assert doubts.notes(found) == [
        f"In d3 {kind}, the tenant with priority is not seen to be 10% better off alone than under none, so there is"
        " nothing to gain and no figure."
        for kind in ("latency", "bandwidth")
    ]


def test_a_setting_that_starves_the_tenant_with_priority_gains_nothing() -> None:
    starved = priority(none=100, alone=200, knob=None)
    assert verdict.figures(starved, "bfq")["latency front"] == 0.0
    assert verdict.marks(starved)["bfq"]["d3"].symbol == BAD
    assert verdict.figures(priority(none=100, alone=200, knob=200), "bfq")["latency hypervolume"] == pytest.approx(1.0)


def test_a_starved_tenant_is_slowed_down_without_end() -> None:
    found = evidence(
        "d2", lambda unit, spec: tenant(spec, 0.0 if spec.name == "small" and unit.knob == "bfq" else 1e6, 9)
    )
    row = next(row for row in verdict.rows(found) if row["knob"] == "bfq" and "size" in row["experiment"])
    assert float(row["slowdown"]) == suite_figures.NEVER
    assert "NaN" not in json.dumps(row) and "Infinity" not in json.dumps(row), "which JSON has not"
    page = bench_page.render({}, "", found, verdict.marks(found), "")
    assert '<td class="num">∞</td>' in page


# --- Wrong use ---


def says(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(["bench", *argv]) == 2
    return capsys.readouterr().err


def test_what_does_not_exist_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "x")]
    assert "unknown part 'd5'; valid are d1, d2, d3, d4" in says(capsys, "--suite", "d5", *out)
    assert "unknown knob 'nope'" in says(capsys, "--knobs", "nope", *out)
    assert "the simulator has only our schedulers, not bfq" in says(capsys, "--on", "sim", "--knobs", "bfq", *out)
    assert "no block device 'nope'" in says(capsys, "--on", "host:nope", "--suite", "d2", *out)


@pytest.mark.parametrize("nothing", ["", ",", " , "])
def test_to_ask_for_nothing_is_refused_and_leaves_nothing(
    nothing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x"
    for option, why in (("--suite", "--suite names no part; valid are d1"), ("--knobs", "--knobs is empty; valid")):
        assert why in says(capsys, option, nothing, "--on", "sim", "--out", str(out))
    assert not out.exists()


def test_a_full_disk_is_a_sentence_and_keeps_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, unit = Store(tmp_path), units()[0]
    done = Results("x", "sim", 1, "0")
    store.save(unit.id, done)

    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Results, "save", full)
    with pytest.raises(FairlaneError, match="no space left; free some and start the same command again"):
        store.save(replace(unit, x=2).id, done)
    assert store.done(unit)


@pytest.mark.parametrize("text", ["{", "{}", '{"schema": 1}'])
def test_a_unit_that_is_damaged_is_to_be_deleted(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    what = bench.prepare(["d3"], ["mqfq"], Simulator(), True, tmp_path)
    file = what.store.path(what.units[0].id)
    file.parent.mkdir()
    file.write_text(text)
    assert cli.main(["report", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"fairlane: {file}: not ")
    assert err.endswith("; delete the file and start the same command again\n")


def test_a_knob_that_could_not_be_set_for_a_unit_is_judged_no_better_than_it_may_be_there() -> None:
    found = evidence("d2", lambda _unit, spec: tenant(spec, 1e6, 9), "io.cost")
    assert verdict.marks(found)["io.cost"]["d2"].grade is not None
    (unit,) = (unit for unit in found.units if unit.knob == "io.cost" and unit.experiment == "writes")
    found.results[unit.id].runs, found.results[unit.id].unavailable = [], {"io.cost": "vrate was still moving"}
    again = suite_figures.Evidence(found.units, found.results)
    assert doubts.notes(again) == ["io.cost has no figures in d2 writes: vrate was still moving."]
    assert again.unavailable == {}, "it ran elsewhere"
    assert all(not judged.grade for judged in verdict.marks(again)["io.cost"]["d2"].judged), "unknown, or a cross"


@pytest.mark.parametrize(
    ("figure", "known"),
    [("latency front", {2}), ("fairness", set()), ("unfairest", {0}), ("response", {0}), ("work", set())],
)
def test_a_run_that_is_missing_adds_to_a_front_may_be_the_worst_and_moves_a_mean(figure: str, known: set[int]) -> None:
    limit = next(limit for limit in verdict.LIMITS if limit.figure == figure)
    assert {grade for grade in range(3) if verdict._for_sure(limit, grade) == grade} == known


def test_a_unit_that_no_mark_is_of_makes_none_unknown() -> None:
    how = replace(ONE, loads=("writes",))
    found = evidence("d3", lambda _unit, spec: tenant(spec, 1e6, 9), "io.cost", how)
    before = verdict.marks(found)["io.cost"]["d3"]
    unit = next(each for each in found.units if each.knob == "io.cost" and each.experiment == "latency-writes")
    found.results[unit.id].runs, found.results[unit.id].unavailable = [], {"io.cost": "vrate was still moving"}
    again = suite_figures.Evidence(found.units, found.results)
    assert again.left_out("io.cost") == [(unit, "vrate was still moving")]
    assert verdict.marks(again)["io.cost"]["d3"] == before


def test_a_mark_is_no_better_than_each_of_its_repeats() -> None:
    """Each may lack something else, which their medians do not show."""
    judged = Judged(verdict.LIMITS[0], 0.95, 2)
    assert Mark("bfq", "d2", (judged,), (1, 1, 1)).grade == 1
    assert Mark("bfq", "d2", (judged,), (1, 1, 1)).symbol == FAIR
    assert Mark("bfq", "d2", (judged,), (2, 2, 2)).symbol == GOOD


def test_a_repeat_of_which_nothing_is_known_does_not_disagree() -> None:
    """The others say surely that it is bad: whatever that one was, it is no better."""
    bad = Judged(verdict.LIMITS[0], 0.5, 0)
    assert Mark("io.cost", "d2", (bad,), (0, None, 0)).symbol == BAD
    assert Mark("io.cost", "d2", (replace(bad, grade=2),), (2, None, 2)).symbol == "?"


def test_what_was_refused_when_a_knob_was_set_is_tried_again_by_the_next_start(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name, refused in (("measured-a", {}), ("measured-b", {"refused": "vrate was still moving"})):
        run = Run("io.cost", 0, 1.0, [], 0, 0, 1.0, None, refused)
        store.save(name, Results("x", "vm", 1, "0", runs=[run]))
    assert set(store.measured()) == {"measured-a"}


def test_a_drive_is_not_calibrated_for_a_command_that_is_wrong(tmp_path: Path) -> None:
    def calibrated() -> str | None:
        raise AssertionError("the drive was overwritten")

    wrong: list[tuple[list[str], list[str], str | None]] = [
        (["d9"], ["fairlane"], None),
        (["d3"], ["fairlone"], None),
        (["d3"], ["fairlane"], "d3-latencie"),
    ]
    for parts, names, only in wrong:
        with pytest.raises(FairlaneError):
            bench.prepare(parts, names, Host("x"), True, tmp_path, calibrated, only)


WHOLE = replace(
    ONE,
    latency_apps=(1, 2),
    nested_apps=(1, 2),
    drives=((1, 2), (2, 1)),
    mixes=(75,),
    unsaturated=(2,),
    loads=("128KiB", "writes"),
    ratios=(1000, 10000),
)


def test_the_report_has_what_only_the_full_size_asks() -> None:
    def moves(_unit: suite.Unit, spec: TenantSpec) -> Tenant:
        return tenant(spec, 1e6, 100.0, [10_000] * 300)

    def page(part: str) -> str:
        found = evidence(part, moves, how=WHOLE)
        for unit in found.units:
            found.results[unit.id].runs[0].counters["kernel_bytes"] = 9216 if unit.knob == "bfq" else 1024
        text = bench_page.render({}, "", found, verdict.marks(found), "")
        return " ".join(re.sub(r"<[^>]+>", " ", text[text.index(f'id="{part}"') :]).split())

    overhead = page("d1")
    assert "P99 in µs, and the mean" in overhead and "200; mean 100" in overhead
    assert re.search(r"Several drives at once: total.* drives, 1 drives, 2 none .* bfq 8.00 MB/s 8.00 MB/s", overhead)
    assert re.search(r"Memory per cgroup.* latency, 1 latency, 2 .* bfq 8.0 KiB 4.0 KiB", overhead)
    assert "bandwidth-nested, 2" in overhead
    assert "Hypervolume with other best-effort load" in page("d3")
    assert re.search(r"with other weights.* latency-1000to1, 0.001 .* bfq 0 ms", page("d4"))
    assert all(name in page("d2") for name in ("mixed-75", "unsaturated, 2"))


def test_a_p99_that_none_itself_does_not_repeat_judges_nobody() -> None:
    def found(*p99: float) -> suite_figures.Evidence:
        many = suite.units(["d1"], ["bfq"], replace(ONE, repeats=2), Simulator().drives())
        results = {}
        for unit in many:
            mean = p99[unit.repeat] / 2 * (1.3 if unit.knob == "bfq" else 1)
            made = [tenant(spec, 1e6, mean) for spec in unit.scenario.tenants]
            run = Run(unit.knob, unit.repeat, 1.0, made, 1e6, 1.0, 1.0, 1.0)
            results[unit.id] = Results("x", "sim", 1, "0", runs=[run])
        return suite_figures.Evidence(many, results)

    quiet, noisy = found(100, 110), found(100, 150)
    assert [judged.limit.figure for judged in verdict.marks(quiet)["bfq"]["d1"].judged] == [
        "bandwidth",
        "latency",
        "tail",
        "cpu",
    ]
    assert "tail" not in [judged.limit.figure for judged in verdict.marks(noisy)["bfq"]["d1"].judged]
    assert doubts.notes(quiet) == [] and doubts.notes(noisy)[0].startswith("Under none itself, the P99")


def test_a_p99_that_differs_with_some_tenants_is_judged_with_the_others() -> None:
    many = suite.units(["d1"], ["bfq"], replace(ONE, repeats=2, latency_apps=(1, 16)), Simulator().drives())
    results = {}
    for unit in many:
        noise = 1 + 0.5 * unit.repeat if unit.x == 16 and unit.knob == "none" else 1
        made = [tenant(spec, 1e6, 100 * noise * (4 if unit.knob == "bfq" else 1)) for spec in unit.scenario.tenants]
        results[unit.id] = Results("x", "sim", 1, "0", runs=[Run(unit.knob, unit.repeat, 1.0, made, 1e6, 1, 1.0, 1.0)])
    found = suite_figures.Evidence(many, results)
    tail = next(each for each in verdict.marks(found)["bfq"]["d1"].judged if each.limit.figure == "tail")
    assert (tail.value, tail.grade) == (4.0, 0)
    assert "the P99 of 16 latency-critical tenants differs up to 1.5 times" in doubts.notes(found)[0]


def test_a_p99_of_few_requests_is_said_to_be_one() -> None:
    found = evidence("d3", lambda _unit, spec: replace(tenant(spec, 1e6, 9), iops=20.0))
    assert any("under none is of 20 requests, and so nearer to the longest" in note for note in doubts.notes(found))


def test_the_published_marks_are_beside_ours_and_by_what_their_authors_asked() -> None:
    """A knob that gives equal bandwidth to reads and writes is fair to the authors, and not by the drive's time."""

    def moves(unit: suite.Unit, spec: TenantSpec) -> Tenant:
        alone = unit.experiment == "alone"
        return tenant(spec, 10e6 if spec.rw == "randread" and alone else 1e6, 9)

    found = evidence("d2", moves, "io.max")
    marks = verdict.marks(found)
    (beside,) = published.beside(found, marks)
    assert (beside.row, beside.published, beside.mark.symbol, beside.asked.symbol) == ("io.max", FAIR, BAD, GOOD)
    assert beside.why.startswith("unfairest 0.60 (✓ from 0.85, – from 0.70)")
    assert published.headline([beside]).endswith("0 of 1 marks are the same; 0 of 1 by what its authors asked")
    assert "published" in bench_page.render({}, "", found, marks, "", [beside])
    assert published.beside(evidence("d2", moves, "mqfq"), {}) == []
    assert sum(map(len, published.MARKS.values())) == 20


def test_published_bursts_of_io_cost_are_compared_with_the_one_that_has_latency_targets() -> None:
    """As in the authors' scripts; where it did not run, with the one that has none. Shares are that one's, too."""
    mark = {knob: {part: Mark(knob, part, ()) for part in ("d2", "d4")} for knob in ("io.cost", "io.cost-qos")}
    found = evidence("d2", lambda unit, spec: tenant(spec, 1e6, 9), "io.cost")
    assert [(b.part, b.mark.knob) for b in published.beside(found, mark)] == [("d2", "io.cost"), ("d4", "io.cost-qos")]
    del mark["io.cost-qos"]
    assert {b.mark.knob for b in published.beside(found, mark)} == {"io.cost"}


# --- On a host ---


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """A host whose kernel lacks io.max, and where every run moves 1 MB/s at 50 us; the runs that there were."""
    jobs: list[Job] = []

    def measured(
        job: Job, _target: Target, need: Need, _scale: int, progress: Callable[[float], None], _settles: bool
    ) -> host._Got:
        jobs.append(job)
        progress(0.5)
        assert need.bytes_per_s == 1e6 or job.variant.knob not in ("io.max", "io.latency") or job.tuning.slack
        share = shares(job.scenario)
        tenants = [
            Tenant(t.name, 1, share[t.name], 1e6, 244, 1e6, 0, lat_us={"p50": 50.0}) for t in job.scenario.tenants
        ]
        used = {t.name: round(1000 * share[t.name]) for t in job.scenario.tenants}
        seen = {"usage_us": used, "vrate": dict.fromkeys(("low", "high", "mean"), 100.0), "range": [100], "speed": "x"}
        counters: dict[str, object] = {"drive_us": {"read": 100.0}}
        counters |= {"io.cost": seen} if job.variant.knob == "io.cost" else {}
        run = Run(job.variant.name, 0, 1.0, tenants, 1e6, 244, 1.0, None, counters)
        return host._Got(run, {"target": target_us(job.tuning, need), "io.cost": asdict(need)["io_cost"]})

    monkeypatch.setattr(disks, "free_target", lambda *_args: Target(Path("/dev/x"), 1 << 30, 512))
    monkeypatch.setattr(disks, "describe", lambda *_args: {"name": "x"})
    monkeypatch.setattr(
        host,
        "available",
        lambda _device, names: {n: "this kernel has no io.max" if n == "io.max" else None for n in names},
    )
    monkeypatch.setattr(host, "_measured", measured)
    return jobs


def on_host(out: Path, part: str, *names: str) -> bench.Bench:
    return bench.prepare([part], names, Host("x"), True, out)


def test_on_a_host_each_unit_is_kept_as_soon_as_it_is_done(tmp_path: Path, seen: list[Job], identity: object) -> None:
    what = on_host(tmp_path, "d3", "io.latency", "io.max", "fairlane")
    todo, store = what.units, what.store
    done: list[int] = []
    bench.run(what, lambda _now: done.append(sum(map(store.done, todo))))
    assert done == list(range(len(todo)))
    assert [job.variant.knob for job in seen] == [unit.knob for unit in todo if unit.knob != "io.max"]
    latency = [store.load(unit.id) for unit in todo if unit.knob == "io.latency"]
    targets = [results.config["io.latency"]["target"] for results in latency]
    assert targets == [400, 100, 50] * 2 * 3, "8, 2 and 1 times what the tenant had when it was alone"
    ours = [store.load(unit.id).config["fairlane"]["target"] for unit in todo if unit.knob == "fairlane"]
    assert ours == [None, 50, 50] * 2 * 3, "no priority, and the latency alone"
    lacking = [store.load(unit.id) for unit in todo if unit.knob == "io.max"]
    assert {tuple(results.unavailable.items()) for results in lacking} == {(("io.max", "this kernel has no io.max"),)}


def test_a_disk_that_fills_up_during_a_run_is_a_sentence_too(
    tmp_path: Path, seen: list[Job], identity: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "raw/x.fio")

    monkeypatch.setattr(host, "_measured", full)
    with pytest.raises(FairlaneError, match="no space left; free some"):
        bench.run(on_host(tmp_path, "d2", "bfq"), lambda _now: None)


def test_a_unit_that_fails_is_named_and_what_is_done_is_kept(
    tmp_path: Path, seen: list[Job], identity: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = on_host(tmp_path, "d2", "bfq")
    works = host._measured

    def fails(*args: Any) -> host._Got:
        if len(seen) == 3:
            raise FairlaneError("fio failed with exit code 1")
        return works(*args)

    monkeypatch.setattr(host, "_measured", fails)
    unit = what.units[3].id
    told = (
        f"{unit}: fio failed with exit code 1; what is done is kept. The same command goes on with this unit; with"
        f" --unit {unit} it runs this one alone"
    )
    with pytest.raises(FairlaneError, match=f"^{re.escape(told)}$"):
        bench.run(what, lambda _now: None)
    assert [what.store.done(unit) for unit in what.units[:5]] == [True, True, True, False, False]


def test_one_unit_runs_alone_with_its_none_and_its_tenant_alone(
    tmp_path: Path, seen: list[Job], identity: object
) -> None:
    every = on_host(tmp_path, "d3", "io.latency").units
    asked = next(unit for unit in every if unit.knob == "io.latency" and unit.repeat == 1)

    def alone() -> bench.Bench:
        return bench.prepare(["d3"], ["io.latency"], Host("x"), True, tmp_path, only=asked.id)

    bench.run(alone(), lambda _now: None)
    assert {job.id for job in seen} == {asked.id, asked.baseline, asked.alone}
    assert alone().todo == [], "it is done"
    rest = on_host(tmp_path, "d3", "io.latency")
    assert len(rest.todo) == len(every) - 3, "the whole run goes on with the others"
    with pytest.raises(FairlaneError, match=r"^--unit: this run has no unit 'd3-latencie'; did you mean d3-latency"):
        bench.prepare(["d3"], ["io.latency"], Host("x"), True, tmp_path, only="d3-latencie")


def test_a_drive_is_renewed_after_what_wrote_to_it_and_only_then(tmp_path: Path, seen: list[Job]) -> None:
    what = on_host(tmp_path, "d2", "bfq")
    todo = what.units
    before: list[str] = []
    backend = Host("x", renew=lambda: before.append(todo[len(seen)].id))
    assert len(list(backend.run([bench.job(what, unit) for unit in todo]))) == len(todo)
    after = [todo[n + 1].id for n, unit in enumerate(todo) if unit.scenario.writes]
    assert before == after
    assert 3 <= len(after) < len(todo) / 2


def test_a_model_is_measured_once_and_kept(tmp_path: Path, seen: list[Job], identity: object) -> None:
    what = on_host(tmp_path, "d2", "io.cost")
    bench.run(what, lambda _now: None)
    measured = [job for job in seen if job.id.startswith("measured-")]
    alone, *loads, speed = measured
    assert [job.scenario.tenants[0].name for job in loads] == list(io_cost.COEFFICIENTS), "with writes: the suite has"
    assert alone.scenario.tenants == speed.scenario.tenants, "the standard load of the suite"
    assert (alone.variant.knob, speed.variant.knob, len(speed.scenario.tenants)) == ("none", "io.cost", 4)
    assert set(what.store.measured()) == {job.id for job in measured}
    mine = [unit for unit in what.units if unit.knob == "io.cost"]
    two = next(unit for unit in mine if unit.place == "d2 equal 2")
    ran = what.store.run(two.id)
    assert ran and ran.counters["none_of_setting"] == pytest.approx(2 / 4 / 0.98), "two tenants of what four did"
    what.store.path(mine[-1].id).unlink()
    before = len(seen)
    bench.run(on_host(tmp_path, "d2", "io.cost"), lambda _now: None)
    assert [job.id for job in seen[before:]] == [mine[-1].id], "what was measured is still there"
    found = [what.store.load(unit.id).config["io.cost"]["io.cost"] for unit in mine]
    assert found == [found[0]] * len(mine) and found[0]["model"]


# --- Going on ---


def prepared(out: Path, on: str = "host:x", part: str = "d3", destroy: str | None = None) -> bench.Bench:
    return bench.prepare([part], ["io.max"], named(on, Options(destroy_data=destroy)), True, out)


@pytest.fixture
def identity(seen: list[Job], monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the drive x is, for host.identity() and in the results; to be changed."""
    drive: dict[str, object] = {"capacity_bytes": 1 << 30, "block_bytes": 512, "serial": "A1"}
    monkeypatch.setattr(disks, "identity", lambda _device: dict(drive))
    monkeypatch.setattr(disks, "describe", lambda _device: {"name": "x", **drive})
    return drive


def test_what_could_not_run_is_tried_again_by_the_next_start_and_only_then(
    tmp_path: Path, seen: list[Job], identity: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepared(tmp_path)
    bench.run(first, lambda _now: None)
    assert {job.variant.knob for job in seen} == {"none"}
    assert bench.finish(first).evidence.unavailable == {"io.max": "this kernel has no io.max"}
    before = len(seen)
    monkeypatch.setattr(host, "available", lambda _device, names: dict.fromkeys(names))
    bench.run(prepared(tmp_path), lambda _now: None)
    assert {job.variant.knob for job in seen[before:]} == {"io.max"}
    assert not prepared(tmp_path).todo
    assert bench.finish(bench.load(tmp_path)).evidence.unavailable == {}


def test_a_run_that_was_begun_on_another_kernel_or_drive_is_not_gone_on_with(
    tmp_path: Path, seen: list[Job], identity: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.run(prepared(tmp_path), lambda _now: None)
    before = len(seen)
    identity["serial"] = "B2"
    with pytest.raises(FairlaneError, match="was begun with serial A1, not B2; give another folder with --out, or de"):
        bench.run(prepared(tmp_path), lambda _now: None)
    identity["serial"] = "A1"
    monkeypatch.setattr("platform.release", lambda: "9.9")
    with pytest.raises(FairlaneError, match=r"was begun with kernel .*, not 9\.9;"):
        bench.run(prepared(tmp_path), lambda _now: None)
    assert len(seen) == before


def test_a_run_that_was_begun_in_another_vm_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = prepared(tmp_path, on="vm")
    run = Run("none", 0, 1.0, [], 1.0, 1.0, 1.0, None)
    found = Results("x", "vm", 1, "0", "6.1.0-49-amd64", "tcg", [run], {"kernel_image": "abc"})
    what.store.save(what.units[0].id, found)
    for release, image, accel, why in (
        ("6.1.0-50-amd64", "abc", "tcg", "kernel 6.1.0-49-amd64, not 6.1.0-50-amd64"),
        ("6.1.0-49-amd64", "def", "tcg", "kernel_image abc, not def"),
        ("6.1.0-49-amd64", "abc", "kvm", "accel tcg, not kvm"),
    ):
        boot = SimpleNamespace(kernel=SimpleNamespace(release=release), image=image, accelerator=accel)
        monkeypatch.setattr(vm, "ready", lambda *_args, boot=boot: boot)
        monkeypatch.setattr(Vm, "run", lambda *_args: pytest.fail("it was gone on with"))
        with pytest.raises(FairlaneError, match=f"was begun with {why};"):
            bench.run(prepared(tmp_path, on="vm"), lambda _now: None)


def test_what_was_measured_for_an_older_plan_goes_with_it(tmp_path: Path) -> None:
    run = Run("none", 0, 1.0, [], 1.0, 1.0, 1.0, None)
    prepared(tmp_path).store.save("measured-rbps-0", Results("of another drive", "host:x", 1, "0", runs=[run]))
    assert prepared(tmp_path).store.path("measured-rbps-0").parent.name == "measured"
    assert not prepared(tmp_path, part="d2").store.measured()


def test_how_to_run_it_again_is_complete(tmp_path: Path) -> None:
    out = tmp_path / "a b"
    what = prepared(out, destroy="x")
    run = Run("none", 0, 1.0, [], 1.0, 1.0, 1.0, None)
    what.store.save(what.units[0].id, Results("x", "host:x", 1, "0", runs=[run]))
    said = f"fairlane bench --suite d3 --knobs io.max --on host:x --quick --destroy-data x --out '{out}'"
    assert what.command == bench.load(out).command == said
    prepared(out)  # a permission does not make another run of it


def test_another_run_is_told_in_the_words_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def differ(on: str, *names: str, part: str = "d3", quick: bool = True) -> str:
        try:
            bench.prepare(part.split(","), names, named(on), quick, tmp_path)
        except FairlaneError as error:
            return str(error)
        return ""

    assert not differ("sim", "mqfq", "flashfq", part="d4,d3")
    what = bench.load(tmp_path)
    what.store.save(what.units[0].id, Results("x", "sim", 1, "0"))
    assert not differ("sim", "flashfq", "mqfq", part="d3,d4"), "an order makes no other run"
    assert f"{tmp_path} holds another run of the suite (--suite was d3,d4, is d3; --on was sim, is host:x); give" in (
        differ("host:x", "flashfq", "mqfq")
    )
    assert "(--knobs was flashfq,mqfq, is flashfq)" in differ("sim", "flashfq", part="d3,d4")
    assert "(--quick was given, is not given)" in differ("sim", "flashfq", "mqfq", part="d3,d4", quick=False)
    with monkeypatch.context() as changed:
        code = schedulers.code()
        changed.setattr(schedulers, "code", lambda: code | {"mqfq": "other", "kyber-fairness": "other"})
        assert "(it was begun with other sources of mqfq)" in differ("sim", "flashfq", "mqfq", part="d3,d4")
        changed.setattr(schedulers, "code", lambda: code | {schedulers.SETTING: "other"})
        assert "(it was begun with other sources of how knobs are set)" in differ(
            "sim", "flashfq", "mqfq", part="d3,d4"
        )
    monkeypatch.setattr(suite, "SIM_CORES_FOR_ALL", 2)
    assert "(its units are others: the scenarios" in differ("sim", "flashfq", "mqfq", part="d3,d4")


def test_a_price_list_can_be_named(tmp_path: Path) -> None:
    what = bench.prepare(["d2"], ["mqfq"], named("sim"), True, tmp_path / "own", lambda: "p3700")
    assert {unit.scenario.prices for unit in what.units} == {price_lists.load("p3700")}
    assert "--prices p3700" in what.command
    usual = bench.prepare(["d2"], ["mqfq"], named("sim"), True, tmp_path / "usual")
    assert {unit.scenario.prices for unit in usual.units} == {price_lists.load("p4500")}
    with pytest.raises(FairlaneError, match="nope"):
        bench.prepare(["d2"], ["mqfq"], named("sim"), True, tmp_path / "none", lambda: "nope")


def test_a_drive_that_does_not_exist_is_said_before_anything_of_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", "--on", "host:nope", "--out", str(tmp_path / "x")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("fairlane: no block device 'nope'") and err.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_a_drive_that_may_not_be_overwritten_is_said_before_how_long_it_would_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sysfs, "SYS_BLOCK", tmp_path)
    for name in ("queue/nr_requests", "dev"):
        file = tmp_path / "sdx" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("64")
    assert cli.main(["bench", "--quick", "--on", "host:sdx", "--out", str(tmp_path / "out")]) == 2
    (refusal,) = capsys.readouterr().err.splitlines()
    assert refusal.endswith("destroys what is on it; if that is meant, add --destroy-data sdx")


@pytest.mark.parametrize("allowed", [True, False])
def test_a_drive_without_a_price_list_is_calibrated_first_and_once(
    tmp_path: Path,
    seen: list[Job],
    identity: object,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    allowed: bool,
) -> None:
    made: list[Path] = []

    def measured(plan: object, file: Path, _command: str) -> None:
        made.append(file)
        file.parent.mkdir(exist_ok=True)
        file.write_text((ROOT / "profiles/prices/p4500.toml").read_text())

    for check in ("check_free", "free_target"):
        monkeypatch.setattr(disks, check, lambda *_args: None)
    monkeypatch.setattr("fairlane.calibration.calibrate.plan", lambda _backend: SimpleNamespace(estimate_s=840))
    monkeypatch.setattr("fairlane.commands.calibrate.measured", measured)
    monkeypatch.setattr(bench, "run", lambda *_args: None)
    monkeypatch.setattr(bench_page, "write", lambda *_args: "")
    args = ["bench", "--quick", "--suite", "d3", "--knobs", "mqflashfq", "--on", "host:x", "--out", str(tmp_path / "o")]
    args += ["--destroy-data", "x"] if allowed else []
    assert [cli.main(args), cli.main(args)] == [0, 0]
    said = capsys.readouterr().err
    if allowed:
        assert made == [tmp_path / "o/prices-x.toml"]
        assert "x has no price list: calibrating it first, about 14 min" in said
    else:
        assert not made and "with --destroy-data x it is calibrated first" in said
    prices = {unit.scenario.prices is not None for unit in bench.load(tmp_path / "o").units}
    assert prices == {allowed}


def test_the_vm_s_drive_can_be_one_with_queues_of_several_priorities(tmp_path: Path) -> None:
    what = bench.prepare(["d2"], ["d2fq"], named("vm:zssd", drive=True), True, tmp_path)
    drives = {(unit.scenario.profile.name, unit.scenario.profile.params["wrr"]) for unit in what.units}
    assert drives == {("zssd", 1)}
    with pytest.raises(FairlaneError, match="is no modelled SSD"):
        named("vm:null", drive=True).check_place()
    assert what.plan.on == "vm:zssd" and bench.load(tmp_path).backend.on == "vm:zssd"
    assert all(unit.scenario.prices and unit.scenario.prices.name == "zssd" for unit in what.units)
