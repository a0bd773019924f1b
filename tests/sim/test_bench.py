# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane bench --on sim`: it ends with a verdict, and goes on where it was interrupted."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fairlane import cli, schedulers
from fairlane.backends import program, sim
from fairlane.backends.scenario_runs import run_scenario
from fairlane.backends.table import named
from fairlane.isolbench import bench, doubts, suite, suite_figures, verdict
from fairlane.pages import bench_page
from fairlane.progress import Progress

KNOBS = tuple(knob for knob in sim.KNOBS if knob not in schedulers.EXAMPLES)

TINY = suite.Scale("quick", 0.02, 0.01, (1, 4), (1, 4), (2, 4), (65536,), 3, (0.001, 0.06))


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "scale", lambda _quick, _backend: TINY)
    program.build()
    monkeypatch.setattr(program, "build", lambda: None)  # to ask make before every unit takes longer than they do


def run(out: Path, *more: str) -> int:
    return cli.main(["bench", "--quick", "--on", "sim:optane", "--out", str(out), *more])


Finished = Callable[[str], Path]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where finished runs are kept, each in a folder that is named by its parts."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def finished(runs: Path, tmp_path: Path) -> Finished:
    """A copy of the run of these parts, which the first that asks for it waits for."""

    def copy(parts: str) -> Path:
        if not (runs / parts).exists():
            assert run(runs / parts, "--suite", parts) == 0
        return shutil.copytree(runs / parts, tmp_path / parts)

    return copy


def test_it_ends_with_a_verdict_for_every_knob_and_desideratum(
    finished: Finished, capsys: pytest.CaptureFixture[str]
) -> None:
    out = finished(",".join(suite.PARTS))
    capsys.readouterr()
    assert run(out) == 0
    said = capsys.readouterr().out
    summary = json.loads((out / "verdict.json").read_text())
    assert {(row["knob"], row["part"]) for row in summary["verdict"]} == {(k, p) for k in KNOBS for p in suite.PARTS}
    unknown = {row["knob"] for row in summary["verdict"] if row["mark"] == "?"}
    assert unknown == {"d2fq"}, "which needs a drive that arbitrates by weight"
    assert summary["advice"] in said
    marks = {row["part"]: row for row in summary["verdict"] if row["knob"] == "none"}
    assert marks["d1"]["bandwidth"] == marks["d2"]["work"] == 1.0, "none against itself"
    assert marks["d3"]["latency front"] == 0.0


def test_what_latency_costs_is_a_picture_of_each_knob_beside_the_limit(
    finished: Finished, capsys: pytest.CaptureFixture[str]
) -> None:
    out = finished(",".join(suite.PARTS))
    picture = out / "front.svg"
    assert cli.main(["report", str(out), "--picture", str(picture)]) == 0
    shown = {each.text for each in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")}
    assert {"limit", *KNOBS} - {"d2fq"} <= shown
    assert cli.main(["report", str(finished("d1")), "--picture", str(picture)]) == 2
    assert "no trade-off to draw" in capsys.readouterr().err


def test_the_report_leads_from_each_mark_to_its_evidence_and_needs_no_network(finished: Finished) -> None:
    out = finished(",".join(suite.PARTS))
    assert run(out) == 0
    page = (out / "report.html").read_text()
    links = re.findall(r'href="#([\w-]+)"', page)
    assert len(links) == len(KNOBS) * len(suite.PARTS)
    assert [link for link in links if f'id="{link}"' not in page] == []
    assert not re.search(r"https?:|<script|<link|url\(", page)
    command = (
        f"fairlane bench --suite {','.join(suite.PARTS)} --knobs {','.join(KNOBS)} --on sim:optane --quick --out {out}"
    )
    assert f'<pre class="card">{command}</pre>' in page
    (out / "report.html").unlink()
    assert cli.main(["report", str(out)]) == 0
    assert (out / "report.html").read_text() == page


def test_interrupted_and_started_again_it_repeats_nothing_and_reports_the_same(
    runs: Path, finished: Finished, tmp_path: Path
) -> None:
    finished("d3")
    whole, out = runs / "d3", tmp_path / "parts"

    told: list[Progress] = []

    def interrupt(now: Progress) -> None:
        told.append(now)
        if sum(first.store.ran(unit) for unit in first.units) > 5:
            raise KeyboardInterrupt

    first = bench.prepare(["d3"], None, named("sim:optane"), True, out)
    with pytest.raises(KeyboardInterrupt):
        bench.run(first, interrupt)
    assert told and all(re.fullmatch(r"\d+ of \d+ units", now.step) for now in told), "none is said to be the next"
    ran = [first.store.path(unit.id) for unit in first.units if first.store.ran(unit)]
    done = {path: path.stat().st_mtime_ns for path in ran}
    assert 0 < len(done) < len(first.units)
    assert run(out, "--suite", "d3") == 0
    assert {path: path.stat().st_mtime_ns for path in done} == done
    for file in ("verdict.json", "report.html"):
        assert (out / file).read_text().replace(str(out), str(whole)) == (whole / file).read_text()


def test_a_folder_of_another_run_is_left_alone(finished: Finished, capsys: pytest.CaptureFixture[str]) -> None:
    out = finished("d4")
    before = (out / "plan.json").read_text()
    assert run(out, "--suite", "d3") == 2
    assert "holds another run of the suite (--suite was d4, is d3); give another folder" in capsys.readouterr().err
    assert (out / "plan.json").read_text() == before


def test_a_knob_that_the_kernel_lacks_is_said_so_in_every_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "this kernel has no io.latency in its cgroups"
    knobs = ("none", "kyber-fairness", "d2fq")
    asked = ("--suite", "d4", "--knobs", ",".join(knobs))
    with monkeypatch.context() as lacking:
        lacking.setattr(sim, "unavailable", lambda knob, _drive: why if knob != "none" else None)
        assert run(tmp_path, *asked) == 0
    assert f"has no figures: {why}" in capsys.readouterr().out
    assert f"<b>kyber-fairness</b> has no figures: {why}" in (tmp_path / "report.html").read_text()
    summary = json.loads((tmp_path / "verdict.json").read_text())
    assert [row["unavailable"] for row in summary["verdict"]] == [None, why, why]

    what = bench.load(tmp_path)
    assert {unit.knob for unit in what.todo} == set(knobs) - {"none"}
    assert run(tmp_path, *asked) == 0, "and on a kernel that has it, it runs"
    assert "kyber-fairness has no figures" not in capsys.readouterr().out
    assert {unit.knob for unit in bench.load(tmp_path).todo} == {"d2fq"}


def test_a_target_is_what_the_first_tenant_had_when_it_was_alone_in_this_start_or_an_earlier_one(
    tmp_path: Path,
) -> None:
    assert run(tmp_path, "--suite", "d3,d4", "--knobs", "fairlane") == 0
    what = bench.load(tmp_path)

    def check() -> None:
        for unit in what.units:
            if unit.knob != "fairlane":
                continue
            times, alone = unit.tuning.target_of_alone, what.store.run(unit.alone or "")
            assert alone is not None
            median = alone.tenants[0].lat_us["p50"] or 0
            target = {suite.PRIO: max(1, round(median * times))} if times else None
            assert what.store.load(unit.id).config["fairlane"].get("latency_us") == target, unit.id

    check()
    asked = [unit.tuning.target_of_alone for unit in what.units if unit.knob == "fairlane"]
    assert asked == [None, 1.0, 1.0] * 2 + [1.0] * 4, "d3 from no priority to the most, and every burst"
    for unit in what.units:
        if unit.tuning.target_of_alone:
            what.store.path(unit.id).unlink()
    assert run(tmp_path, "--suite", "d3,d4", "--knobs", "fairlane") == 0
    check()


def test_what_is_set_from_a_run_that_fails_is_left_out_and_all_else_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = program.play

    def play(given: dict[str, Any], *rest: Any) -> program.Played:
        fails = given["scenario"].endswith("/alone") and given["tenants"][0]["depth"] == 1
        return program.Played(1, ["fl-sim: it broke"]) if fails else real(given, *rest)

    monkeypatch.setattr(program, "play", play)
    assert run(tmp_path, "--suite", "d3", "--knobs", "fairlane") != 0
    what = bench.load(tmp_path)
    missing = [(unit.experiment, unit.setting) for unit in what.units if not what.store.ran(unit)]
    with_target = [("latency", f"weight 10000, {loss} % for its target") for loss in (40, 80)]
    assert missing == [("alone", "randread-4KiB-1x1"), *with_target]


LONG = pytest.mark.long


@pytest.mark.parametrize("drive", ["zssd", *(pytest.param(name, marks=LONG) for name in ("p4500", "980pro"))])
def test_what_tells_a_request_s_cost_has_the_drive_fully_busy(drive: str, tmp_path: Path) -> None:
    """With twice as many requests out it does no more."""
    backend = named(f"sim:{drive}")
    how = replace(TINY, seconds=0.1, warmup=0.05, sizes=(64 << 10, 256 << 10))
    alone = [u.scenario for u in suite.units(["d2"], ["none"], how, backend.drives()) if u.experiment == "alone"]
    loads = {t: what for what in alone if (t := what.tenants[0]) == replace(suite.saturating(t), weight=t.weight)}
    assert {(t.rw, t.bs >> 10) for t in loads} == {
        *(("randread", kib) for kib in (4, 64, 256)),
        ("read", 4),
        ("randwrite", 4),
    }
    for tenant, what in loads.items():
        twice = replace(what, tenants=(replace(tenant, jobs=2 * tenant.jobs),))
        mine, most = (run_scenario(backend, each, ["none"], tmp_path).runs[0] for each in (what, twice))
        assert mine.total_bytes_per_s > 0.97 * most.total_bytes_per_s, (tenant.rw, tenant.bs)


def test_a_burst_of_a_millisecond_has_a_figure(finished: Finished) -> None:
    what = bench.load(finished("d4"))
    evidence = suite_figures.Evidence(what.units, bench.results(what))
    for knob in set(KNOBS) - {"d2fq"}:
        short = [burst for burst in evidence.bursts(knob) if burst.seconds == 0.001]
        assert [burst.experiment for burst in short] == ["latency", "bandwidth"]
        for burst in short:
            assert burst.response_s is not None and burst.response_s < suite_figures.NEVER, (knob, burst)
            assert burst.kept is None, "a single bin says nothing of a rate"
    assert not doubts.notes(evidence)


def test_an_unfinished_run_says_so_everywhere_and_gives_no_advice(
    finished: Finished, capsys: pytest.CaptureFixture[str]
) -> None:
    out = finished("d3")
    what = bench.load(out)
    kyber = [unit for unit in what.units if unit.knob == "kyber-fairness"]
    what.store.path(kyber[0].id).unlink()
    capsys.readouterr()
    assert cli.main(["report", str(out)]) == 0
    said = f"1 of {len(what.units)} units are missing, so there is no advice yet."
    assert said in capsys.readouterr().err
    assert said in (out / "report.html").read_text()
    summary = json.loads((out / "verdict.json").read_text())
    assert (summary["advice"], summary["missing"]) == (said, 1)
    assert {row["knob"] for row in summary["verdict"] if row["mark"] == "?"} == {"kyber-fairness", "d2fq"}


def test_what_the_kernel_complained_of_is_in_every_output(
    finished: Finished, capsys: pytest.CaptureFixture[str]
) -> None:
    out = finished("d4")
    what = bench.load(out)
    unit = next(unit for unit in what.units if unit.knob == "mqfq")
    found = what.store.load(unit.id)
    found.runs[0].bad_dmesg = ["BUG: soft lockup [fio:1]"]
    what.store.save(unit.id, found)
    capsys.readouterr()
    assert run(out, "--suite", "d4") == 0
    line = "mqfq: BUG: soft lockup [fio:1]"
    assert line in capsys.readouterr().out
    assert line in (out / "report.html").read_text()
    assert json.loads((out / "verdict.json").read_text())["bad_dmesg"] == [line]


def test_with_nothing_done_there_is_a_page_all_the_same(tmp_path: Path) -> None:
    what = bench.prepare(["d1"], None, named("sim:optane"), True, tmp_path)
    evidence = suite_figures.Evidence(what.units, bench.results(what))
    page = bench_page.render({}, "fairlane bench", evidence, verdict.marks(evidence), "nothing")
    assert "nothing has run yet" in page


def test_a_folder_in_which_nothing_is_done_may_be_planned_anew(tmp_path: Path) -> None:
    bench.prepare(["d3"], None, named("sim:optane"), True, tmp_path)
    assert run(tmp_path, "--suite", "d4", "--knobs", "none") == 0


def test_a_knob_that_moves_much_more_than_none_makes_the_verdict_doubtful(
    finished: Finished, capsys: pytest.CaptureFixture[str]
) -> None:
    out = finished("d3")
    assert run(out, "--suite", "d3") == 0
    assert "doubtful" not in capsys.readouterr().out
    what = bench.load(out)
    slow = next(unit for unit in what.units if unit.place == "d3 bandwidth")
    found = what.store.load(slow.id)
    found.runs[0].total_bytes_per_s /= 3
    what.store.save(slow.id, found)
    assert run(out, "--suite", "d3") == 0
    said = re.search(
        r"doubtful: (In d3 bandwidth, [\w-]+ moved 3\.\d times what none did of the same requests, which no knob makes"
        r" a drive do: what is judged there is doubtful; delete units/d3-bandwidth\.\* and run it again\.)",
        " ".join(capsys.readouterr().out.split()),
    )
    assert said
    assert said[1] in (out / "report.html").read_text()
    assert "busy" not in said[1], "which nobody knows"
    assert any((out / "units").glob("d3-bandwidth.*"))
