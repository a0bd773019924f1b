# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Two runs of the suite side by side, of made-up figures."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fairlane import cli
from fairlane.backends.sim import Simulator
from fairlane.experiment.results import Results, Run, Tenant
from fairlane.formats import Pair
from fairlane.isolbench import bench, compare
from fairlane.isolbench.compare import Comparison
from fairlane.isolbench.verdict import LIMITS, Judged, Mark
from fairlane.pages import compare_page

OURS = "kyber-fairness"


def run_of(
    out: Path, of_none: float = 1.0, p99: float = 100.0, names: Sequence[str] = (OURS,), parts: str = "d1 d2 d3"
) -> bench.Bench:
    """A finished run: none moves 1 GB/s, every other knob so much of that, with that P99 of the priority tenant."""
    what = bench.prepare(parts.split(), names, Simulator(), True, out)
    for unit in what.units:
        rate = 1e9 * (1.0 if unit.knob == "none" else of_none)
        p99_us = p99 / 2 if unit.experiment == "alone" else p99
        specs = unit.scenario.tenants
        tenants = [
            Tenant(t.name, t.weight, 1 / len(specs), rate / len(specs), 1e4, 1, 0, lat_us={"mean": 9.0, "p99": p99_us})
            for t in specs
        ]
        run = Run(unit.knob, 0, 1.0, tenants, rate, 1, 1.0, 9.0)
        what.store.save(unit.id, Results(unit.scenario.name, "sim", 1, "0", runs=[run], device={"profile": "p4500"}))
    return what


def test_a_mark_that_changed_is_said_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of(tmp_path / "a", of_none=1.0)
    run_of(tmp_path / "b", of_none=0.5, names=[OURS, "flashfq"])
    assert cli.main(["report", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    said = capsys.readouterr().out
    assert "B against A: of 6 marks in both, 2 worse" in said
    assert re.search(rf"{OURS} +✓ → ✗ worse +✓ → ✗ worse +✗ → ✗", said)
    assert re.search(r"flashfq +not run → ✗ +not run → ✗ +not run → ✗", said)
    assert f"The report: {tmp_path / 'a' / 'compared.html'}" in said
    assert not (tmp_path / "a" / "report.html").exists(), "which is of that run alone"
    page = (tmp_path / "a" / "compared.html").read_text()
    assert page.count('class="change changed"') == page.count('<span class="chip bad">worse</span>') == 2
    figure = '<small>bandwidth <span class="m2">1.00</span> → <span class="m0">0.50</span></small>'
    assert figure in page
    assert not re.search(r"https?:|<script|<link|url\(", page)


def compared(tmp_path: Path) -> Comparison:
    return compare.compare([tmp_path / "a", tmp_path / "b"])


def test_of_how_they_were_run_only_what_differs_is_shown(tmp_path: Path) -> None:
    run_of(tmp_path / "a", parts="d3")
    run_of(tmp_path / "b", parts="d3", names=[OURS, "flashfq"])
    assert compared(tmp_path).differences == [("run", [("knobs", OURS, f"{OURS}, flashfq")])]
    same = compare.compare([tmp_path / "a"] * 2)
    assert not same.differences and not same.notes
    assert "Nothing that is known of how they were run differs." in compare_page.render(same)


def test_every_unit_that_both_have_has_a_row_and_the_others_are_counted(tmp_path: Path) -> None:
    a = run_of(tmp_path / "a", p99=100.0)
    b = run_of(tmp_path / "b", p99=50.0, names=[OURS, "flashfq"])
    found = compared(tmp_path)
    assert found.lone == f"{len(a.units)} units are in both; 0 are only in A, {len(b.units) - len(a.units)} only in B."
    shown = [id for rows in found.units for id, _, _ in rows.rows]
    judged = [unit for unit in a.units if unit.part != "limit"]
    assert shown == [unit.id for unit in sorted(judged, key=lambda unit: unit.part)], "by part, repeat after repeat"
    total, by_cost, p99 = "total", "Jain’s index by cost", "P99 of priority, µs"
    assert {rows.part: rows.figures for rows in found.units} == {
        "d1": [total],
        "d2": [total, by_cost],
        "d3": [total, p99],
    }
    row = next(row for rows in found.units for row in rows.rows if row[0] == f"d3-latency.{OURS}.weight_100")
    assert row[1:] == (False, [Pair(total, "1.00 GB/s", "1.00 GB/s", 1.0), Pair(p99, "100", "50.0", 0.5)])
    page = compare_page.render(found)
    assert '<td class="num"><b>0.50</b></td>' in page and "<b>1.00</b></td>" not in page


def test_an_unfinished_run_of_an_older_version_is_compared_all_the_same(tmp_path: Path) -> None:
    what = run_of(tmp_path / "a", parts="d3")
    run_of(tmp_path / "b", parts="d3")
    what.store.path(what.units[-1].id).unlink()
    plan = json.loads((tmp_path / "a" / "plan.json").read_text())
    plan["version"] = "0.0.9"
    for unit in plan["units"]:
        for key in ("variants", "prices"):
            del unit["scenario"][key]
        for tenant in unit["scenario"]["tenants"]:
            del tenant["devices"]
    plan["units"][0]["scenario"]["tenants"][0]["iodepth"] = 77
    (tmp_path / "a" / "plan.json").write_text(json.dumps(plan))
    found = compared(tmp_path)
    assert found.notes == [f"A is not finished: 1 of its {len(what.units)} units are missing."]
    assert ("version", "0.0.9", bench.Plan.version) in dict(found.differences)["run"]
    assert [other for rows in found.units for _, other, _ in rows.rows].index(True) == 0
    assert f"{what.units[0].id} *</th>" in compare_page.render(found)


@pytest.mark.parametrize("given", [("a", "scenario"), ("scenario", "a"), ("a", "b", "c"), ("a", "b", "scenario")])
def test_a_run_of_the_suite_is_compared_with_one_other_and_nothing_else(
    given: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "abc":
        bench.prepare(["d3"], [OURS], Simulator(), True, tmp_path / name)
    assert cli.main(["report", *(str(tmp_path / name) for name in given)]) == 2
    assert capsys.readouterr().err == (
        f"fairlane: {tmp_path / 'a'} is a run of the suite, which is compared with one other run of the suite and"
        " nothing else: give two such folders\n"
    )


def test_two_runs_of_which_nothing_is_done_are_a_page_all_the_same(tmp_path: Path) -> None:
    for name in "ab":
        bench.prepare(["d3"], [OURS], Simulator(), True, tmp_path / name)
    page = tmp_path / "x" / "<b>.html"
    assert cli.main(["report", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(page)]) == 0
    assert "no mark is in both" in page.read_text()


def test_a_mark_on_which_repeats_agree_now_is_a_change() -> None:
    bad = Judged(LIMITS[0], 0.5, 0)
    mixed, sure = Mark("bfq", "d1", (bad,), (0, 2, 0)), Mark("bfq", "d1", (bad,), (0, 0, 0))
    change = compare.Change(mixed, sure)
    assert (change.text, change.word) == ("~ → ✗", "changed")
    assert compare.Change(sure, sure).word == ""
    better = Mark("bfq", "d1", (replace(bad, grade=2),), (2, 1, 2))
    assert (better.symbol, compare.Change(better, mixed).word) == ("~", "worse")
