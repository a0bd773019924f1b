# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane study`: every combination once, one table, one page; what is done is kept, and what is wrong is said."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fairlane import cli
from fairlane.backends.table import named
from fairlane.progress import Progress
from fairlane.study import study, study_file

SCENARIO = """
[run]
seconds = 0.01
warmup = 0.01
cores = 2
[device]
profile = "null"
[[tenant]]
name = "a"
weight = 300
[[tenant]]
name = "b"
iodepth = 32
"""
STUDY = """
description = "What the queue depth does"
scenarios = ["small.toml"]
drives = ["optane", "null"]
knobs = ["none", "mqfq"]
seeds = 2
figures = ["total_iops", "lat_p99_us of b", "share of a"]
[vary.tenant.a]
iodepth = [1, 32]
[vary.run]
seconds = "20ms"
[vary.tunable.mqfq]
throttle_bytes = [65536, 1048576]
"""
UNITS = 2 * 2 * 2 * (1 + 2)  # drives, seeds, depths, and throttle_bytes of mqfq alone


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(SCENARIO)
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def run(file: Path, out: Path, *more: str) -> int:
    return cli.main(["study", str(file), "--out", str(out), *more])


def test_every_combination_is_a_row_with_the_figures_that_were_asked_for(file: Path, tmp_path: Path) -> None:
    assert run(file, tmp_path / "out") == 0
    table = pq.read_table(tmp_path / "out" / "study.parquet")
    assert table.column_names == [
        *("scenario", "drive", "knob", "seed", "tenant.a.iodepth", "run.seconds", "tunable.mqfq.throttle_bytes"),
        *("total_iops", "lat_p99_us of b", "share of a"),
    ]
    rows = table.to_pylist()
    assert len({tuple(row.values())[:7] for row in rows}) == len(rows) == UNITS
    assert {(row["knob"], row["tunable.mqfq.throttle_bytes"]) for row in rows} == {
        ("none", None), ("mqfq", 65536), ("mqfq", 1048576),
    }  # fmt: skip
    got = {
        depth: sum(row["share of a"] for row in rows if row["tenant.a.iodepth"] == depth and row["drive"] == "optane")
        for depth in (1, 32)
    }
    assert got[32] > 1.5 * got[1], "who asks for more gets more"


def test_what_varies_of_a_tenant_varies_in_each_case_and_words_beside_numbers_are_words(
    file: Path, tmp_path: Path
) -> None:
    tenant = '[[tenant]]\nname = "a"\nweight = 300\n'
    data = tomllib.loads(SCENARIO.replace(tenant, 2 * tenant))  # as a scenario of two cases has it
    study_file._set(study_file.load(file), data, study_file.Parameter(("tenant", "a", "iodepth"), (7,)), 7, file)
    assert [each.get("iodepth") for each in data["tenant"]] == [7, 7, 32]
    text = STUDY.replace("iodepth = [1, 32]", 'bs = ["min", 8192]')
    file.write_text(text)
    assert run(file, tmp_path / "out") == 0
    rows = pq.read_table(tmp_path / "out" / "study.parquet").to_pylist()
    assert {row["tenant.a.bs"] for row in rows} == {"min", "8192"}


def test_a_unit_is_what_fairlane_run_finds(file: Path, tmp_path: Path) -> None:
    assert run(file, tmp_path / "out") == 0
    row = pq.read_table(tmp_path / "out" / "study.parquet").to_pylist()[0]
    single = tmp_path / "single.toml"
    text = SCENARIO.replace("seconds = 0.01", "seconds = 0.02").replace("weight = 300", "weight = 300\niodepth = 1")
    single.write_text(text.replace('"null"', '"optane"'))
    argv = ["run", str(single), "--on", "sim", "--knobs", "none", "--out", str(tmp_path / "run")]
    assert cli.main(argv) == 0
    found = json.loads((tmp_path / "run" / "results.json").read_text())["runs"][0]
    assert (row["drive"], row["knob"], row["seed"], row["tenant.a.iodepth"]) == ("optane", "none", 1, 1)
    assert row["total_iops"] == found["total_iops"]
    assert row["lat_p99_us of b"] == found["tenants"][1]["lat_us"]["p99"]


def test_interrupted_and_started_again_it_repeats_nothing_and_ends_in_the_same_bytes(
    file: Path, tmp_path: Path
) -> None:
    assert run(file, tmp_path / "whole") == 0
    out = tmp_path / "parts"
    what = study.prepare(study_file.load(file), named("sim"), out)

    def interrupt(_now: Progress) -> None:
        if len(what.done) > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.run(what, interrupt)
    kept = (out / "units.jsonl").read_text()
    assert 0 < kept.count("\n") < UNITS
    assert not (out / "study.parquet").exists()
    with (out / "units.jsonl").open("a") as lines:
        lines.write('["00000')  # of a machine that failed while it wrote
    assert run(file, out) == 0
    assert (out / "units.jsonl").read_text().startswith(kept)
    assert (out / "study.parquet").read_bytes() == (tmp_path / "whole" / "study.parquet").read_bytes()


def test_the_page_has_every_figure_over_every_parameter_and_needs_no_network(file: Path, tmp_path: Path) -> None:
    assert run(file, tmp_path / "out") == 0
    page = (tmp_path / "out" / "report.html").read_text()
    for figure in ("total_iops", "lat_p99_us of b", "share of a"):
        for parameter in ("tenant.a.iodepth", "tunable.mqfq.throttle_bytes", "drive", "seed"):
            assert f"<h3>{figure} over {parameter}</h3>" in page
    assert "over run.seconds" not in page, "which has one value"
    assert not re.search(r"https?:|<script|<link|url\(", page)


def test_another_study_in_the_same_folder_is_refused(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(file, tmp_path / "out") == 0
    before = (tmp_path / "out" / "study.parquet").read_bytes()
    file.write_text(STUDY.replace("seeds = 2", "seeds = 3"))
    assert run(file, tmp_path / "out") == 2
    assert "holds another study (the study, its units differ); give another folder" in capsys.readouterr().err
    assert (tmp_path / "out" / "study.parquet").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('"small.toml"', '"moon.toml"'), "scenarios: there is no scenario moon.toml, neither beside the study nor in"),
        (("total_iops", "speed"), "figures: 'speed' is unknown; valid are"),
        (("share of a", "share"), "figures: 'share': write it as \"share of NAME\""),
        (("share of a", "share of z"), "figures share of z: small has a, b"),
        (('"none", "mqfq"', '"bfq"'), "knobs: 'bfq' is unknown; valid are none"),
        (('"none", "mqfq"', '"none"'), "[vary.tunable] mqfq: is none of the study's knobs (none)"),
        (("[1, 32]", "[1, 0]"), "with tenant.a.iodepth = 0, run.seconds = '20ms': "),
        (("[vary.tenant.a]", "[vary.tenant.z]"), "[vary.tenant.z]: "),
        (("throttle_bytes", "moon"), "mqfq has no tunable moon; it has throttle_bytes"),
        (("[65536, 1048576]", "[]"), "[vary.tunable.mqfq] throttle_bytes: has no values"),
        (("seeds = 2", "seeds = 0"), "seeds: 0 is not a whole number from 1"),
        (("[vary.run]", "[vary.moon]"), "[vary] moon: unknown key; valid are run, device"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_begun(
    change: tuple[str, str], says: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(STUDY.replace(*change))
    assert run(file, tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert says in said and str(file) in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_knob_that_a_drive_cannot_have_has_no_figures_there(file: Path, tmp_path: Path) -> None:
    file.write_text(STUDY.replace('"none", "mqfq"', '"none", "d2fq"').partition("[vary.tunable")[0])
    assert run(file, tmp_path / "out") == 0
    rows = pq.read_table(tmp_path / "out" / "study.parquet").to_pylist()
    assert {(row["knob"], row["total_iops"] is None) for row in rows} == {("none", False), ("d2fq", True)}
    assert "<b>d2fq</b> did not run everywhere" in (tmp_path / "out" / "report.html").read_text()


def test_a_cluster_is_only_for_simulated_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--on", "vm", "--cluster", "tcp://x:1"]) == 2
    assert "--cluster is where simulated runs are computed; it has no effect with --on vm" in capsys.readouterr().err


def test_a_study_is_not_what_report_makes_pages_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "study.json").write_text("{}")
    assert cli.main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"fairlane: {tmp_path} is a study, whose page is made by itself: open {tmp_path / 'report.html'}\n"
    )
