# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The limit: how it is measured, and what is judged by it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fairlane.backends.sim import Simulator
from fairlane.backends.vm import Vm
from fairlane.experiment.model import TenantSpec
from fairlane.experiment.results import Results, Run, Series, Tenant
from fairlane.isolbench import bench, doubts, limit, suite, suite_figures, verdict
from fairlane.isolbench.limit import Point
from fairlane.pages import bench_page, terminal

ONE = suite.Scale("quick", 3.0, 0.5, (1,), (1,), (2,), (65536,), 3, (1.0,), limit_steps=1)
KNOBS = ("mqfq", "flashfq")


def units(*parts: str, how: suite.Scale = ONE, knobs: Sequence[str] = KNOBS) -> list[suite.Unit]:
    return suite.units(parts, knobs, how, Simulator().drives())


def of_limit(found: Sequence[suite.Unit], mix: str) -> list[suite.Unit]:
    return [unit for unit in found if unit.part == limit.NAME and unit.experiment == mix]


def out(tenants: Sequence[TenantSpec]) -> int:
    return sum(tenant.jobs * tenant.iodepth for tenant in tenants)


# --- How it is measured ---


def test_each_mix_has_one_sweep_that_all_knobs_and_both_parts_share() -> None:
    found = units("d3", "d4")
    judged = [unit for unit in found if unit.part in suite.PARTS and unit.experiment != "alone"]
    assert {unit.limit for unit in judged} == set(suite.CRITICAL), "one for each, in d3 and in d4, under every knob"
    assert {unit.part for unit in judged} == {"d3", "d4"} and {unit.knob for unit in judged} > set(KNOBS)
    mine = [unit for unit in found if unit.part == limit.NAME]
    assert {unit.knob for unit in mine} == {"none"}, "it needs no scheduler"
    assert len({unit.id for unit in mine}) == len(mine) == 2 * 10
    assert not [unit for unit in units("d1", "d2") if unit.part == limit.NAME or unit.limit]


@pytest.mark.parametrize("part", ["d3", "d4"])
@pytest.mark.parametrize("mix", suite.CRITICAL)
def test_the_tenant_with_priority_is_as_it_is_and_what_the_others_have_in_the_drive_is_swept(
    part: str, mix: str
) -> None:
    whole = next(u for u in units(part) if u.part == part and u.experiment == mix and u.knob == "none")
    sweep = of_limit(units(part), mix)
    for unit in sweep:
        prio, *others = unit.scenario.tenants
        assert (prio.name, prio.jobs, prio.iodepth) == (suite.PRIO, *_size(suite.CRITICAL[mix]))
        assert out(others) == unit.x, "exactly so many"
        assert all(other.jobs <= 4 for other in others), "from no more jobs than there are"
        assert (prio.start, prio.stop, unit.scenario.seconds) == (0.0, None, 3.0), "all the time, and as long as others"
    last = [(t.name, *_size(t)) for t in sweep[-1].scenario.tenants]
    assert last == [(t.name, *_size(t)) for t in whole.scenario.tenants], "in the end it is the experiment's own load"


def _size(tenant: TenantSpec) -> tuple[int, int]:
    return tenant.jobs, tenant.iodepth


def test_the_sweep_has_powers_of_two_and_so_many_steps_between_them() -> None:
    assert limit.depths(512, 1) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert limit.depths(96, 1) == [1, 2, 4, 8, 16, 32, 64, 96], "and the most"
    assert limit.depths(32, 2) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
    assert suite.scale(quick=False, backend=Vm()).limit_steps > suite.scale(quick=True, backend=Vm()).limit_steps
    for most in limit.depths(512, 4):
        assert out(limit.bounded([TenantSpec(f"be{n}", jobs=4, iodepth=32) for n in range(4)], most)) == most


def test_another_mix_has_a_sweep_of_its_own_and_other_weights_do_not_make_one() -> None:
    unit = next(u for u in units("d3") if u.part == "d3" and u.experiment == "latency" and u.knob == "none")

    def with_tenants(**more: object) -> suite.Unit:
        prio, *others = unit.scenario.tenants
        tenants = (prio, *(replace(t, **more) for t in others))  # type: ignore[arg-type]
        return replace(unit, part="d4", scenario=replace(unit.scenario, tenants=tenants))

    found = limit.added([unit, with_tenants(weight=1), with_tenants(bs=65536)], suite.PRIO, 1.0, 1)
    names = [u.limit for u in found if u.part != limit.NAME]
    assert names == ["latency", "latency", "d4-latency"]
    assert {t.bs for u in of_limit(found, "d4-latency") for t in u.scenario.tenants[1:]} == {65536}


def test_it_is_measured_once_for_all_repeats() -> None:
    found = units("d4", how=replace(ONE, repeats=3))
    assert {unit.repeat for unit in found} == {0, 1, 2}
    assert {unit.repeat for unit in found if unit.part == limit.NAME} == {0}
    tenants = [Tenant(suite.PRIO, 1, 1.0, 1e6, 1.0, 1e6, 0, lat_us={"mean": 1.0, "p99": 1.0, "max": 1.0})]
    run = Run("none", 0, 1.0, tenants, 1e6, 1.0, 1.0, 1.0)
    evidence = suite_figures.Evidence(found, {unit.id: Results("x", "sim", 1, "0", runs=[run]) for unit in found})
    for each in evidence.every:
        assert {each.due(unit) for unit, _ in each.of("d4", "mqfq")} == {0.8 * 1e6 * 1000 / 1400}
    ids = [row["id"] for row in verdict.rows(evidence)]
    assert sorted(ids) == sorted(unit.id for unit in found)


# --- What is read off it ---


def test_what_there_is_for_a_tenant_is_read_off_where_the_total_is_that() -> None:
    points = [Point(depth, total, rate, None) for depth, total, rate in ((0, 10, 10), (8, 60, 8), (16, 100, 4))]
    assert limit.rate_at(points, 0.6) == 8
    assert limit.rate_at(points, 0.8) == 6, "half-way between two points"
    assert limit.rate_at(points, 0.05) == 10
    assert limit.rate_at([Point(0, 99, 7, None), Point(8, 100, 2, None)], 0.85) == 7, "its rate alone"
    assert limit.rate_at([], 0.85) is None


ALONE, WHOLE = 1e6, 100e6  # bytes/s of a tenant that is alone, and of the drive
Moves = Callable[[suite.Unit], tuple[float, float, float]]


def straight(unit: suite.Unit) -> tuple[float, float, float]:
    """Rate and P99 of the tenant with priority, and rate of all others, on a line from alone to none."""
    part = min(1.0, (unit.x or 0) / 512) if unit.part == limit.NAME else float(unit.experiment != "alone")
    return ALONE * (1 - 0.9 * part), 100 + 900 * part, WHOLE * part


def evidence(part: str, knob: tuple[float, float, float], lacking: str = "-") -> suite_figures.Evidence:
    """Of one knob, which moves that; without units whose ids begin so."""
    found = units(part, knobs=["mqfq"])
    results = {}
    for unit in found:
        mine, p99, others = knob if unit.knob == "mqfq" else straight(unit)
        names = [t.name for t in unit.scenario.tenants]
        rates = [mine if name == suite.PRIO else others / (len(names) - 1) for name in names]
        series = [Series(10, [round(rate / 100)] * 300) for rate in rates]
        tenants = [
            Tenant(name, 1, 0.5, rate, 1.0, rate, 0, lat_us={"mean": p99, "p99": p99, "max": p99}, series=bins)
            for name, rate, bins in zip(names, rates, series, strict=True)
        ]
        run = Run(unit.knob, 0, 1.0, tenants, sum(rates), 1.0, 1.0, 1.0)
        if not unit.id.startswith(lacking):
            results[unit.id] = Results("x", "sim", 1, "0", runs=[run])
    return suite_figures.Evidence(found, results)


def test_a_burst_is_due_80_percent_of_what_the_limit_gives_at_085_of_the_total() -> None:
    found = evidence("d4", (0.5e6, 500, WHOLE))
    for unit, _ in found.of("d4", "mqfq"):
        points = found.limit(unit)
        assert [point.depth for point in points][:3] == [0, 1, 2], "from the tenant alone on"
        there = limit.rate_at(points, 0.85)
        assert there is not None and there == pytest.approx(ALONE * (1 - 0.9 * 0.85), rel=0.02)
        assert found.due(unit) == pytest.approx(0.8 * there)
        assert found.due_of_alone(unit) == pytest.approx(0.8 * there / ALONE)
    assert verdict.figures(found, "mqfq")["response"] == 0.0, "half of its rate alone, which is more"
    assert verdict.figures(evidence("d4", (0.15e6, 900, WHOLE)), "mqfq")["response"] == suite_figures.NEVER


def test_a_front_is_judged_by_the_limits_and_its_own_volume_stands_beside() -> None:
    found = evidence("d3", (0.55e6, 550, WHOLE / 2))  # in the middle of the limit
    assert found.limit_volume("latency") == pytest.approx(0.5, abs=0.02)
    figures = verdict.figures(found, "mqfq")
    assert figures["latency hypervolume"] == pytest.approx(0.25, abs=0.01)
    assert figures["latency front"] == pytest.approx(0.5, abs=0.03)
    judged = verdict.marks(found)["mqfq"]["d3"].judged[0]
    assert judged.grade == 1 and judged.text == "0.50, absolute 0.25"


def test_the_limit_is_a_row_and_a_curve_and_in_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part, said in (("d3", "hypervolume: latency 0.50"), ("d4", "a burst is due, of its rate alone: latency 0.19")):
        found = evidence(part, (0.5e6, 500, WHOLE))
        marks, summary = verdict.marks(found), json.loads(json.dumps(verdict.summary(found)))
        assert list(summary["limit"]) == list(suite.CRITICAL)
        assert [point["depth"] for point in summary["limit"]["latency"]["points"]] == [0, *limit.depths(512, 1)]
        page = bench_page.render({}, "", found, marks, "")
        assert '<th scope="row">limit</th>' in page
        assert page.count('<path class="k-limit"') == 2, "in the plot of each kind of tenant"
        terminal.verdict(bench.Found(found, marks, [], "", summary), terminal.console())
        assert said in capsys.readouterr().out


def test_without_its_limit_a_part_has_no_marks() -> None:
    for part in ("d3", "d4"):
        found = evidence(part, (0.5e6, 500, WHOLE), lacking="limit-latency-64.")
        assert verdict.marks(found)["mqfq"][part].symbol == "?", "a unit of it is missing"
        older = [replace(unit, limit=None) for unit in units(part) if unit.part != limit.NAME]
        results = evidence(part, (0.5e6, 500, WHOLE)).results
        old = suite_figures.Evidence([unit for unit in older if unit.id in results], results)
        assert verdict.marks(old)["mqfq"][part].symbol == "?"
        assert any("did not measure the limit" in note for note in doubts.notes(old))
