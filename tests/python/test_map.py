# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane map`: what it measures, what it refuses, and what its picture shows."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from fairlane import cli
from fairlane.backends.host import Host
from fairlane.backends.job import Options
from fairlane.backends.table import named
from fairlane.isolbench import drive_map
from fairlane.isolbench.drive_map import READS, WRITES, Cell, Load, Map
from fairlane.isolbench.limit import Point
from fairlane.pages import map_picture

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--on", "sim"], "--on sim: of which drive? give its profile, such as sim:p4500 (fairlane profiles)"),
        (["--on", "vm"], "--on vm: of which drive? give its profile, such as vm:p4500 (fairlane profiles)"),
        (["--on", "sim:nope"], "unknown profile 'nope'; valid are 950pro"),
        (["--on", "host:nope"], "no block device 'nope'"),
        (["--on", "host"], "--on host: unknown backend"),
        (["--on", "sim:p4500", "--steps", "1"], "--steps 1: must be 2 to 32"),
        (["--on", "sim:p4500", "--steps", "33"], "--steps 33: must be 2 to 32"),
        (["--on", "sim:p4500", "--seconds", "0"], "--seconds 0: must be more than 0"),
        (["--on", "sim:p4500", "--seconds", "nan"], "--seconds nan: must be more than 0"),
        (["--on", "sim:p4500", "--destroy-data", "sda"], "--destroy-data is about a real drive"),
        (["--on", "sim:p4500", "--kernel", "6.1"], "--kernel chooses the VM's kernel"),
    ],
)
def test_what_cannot_be_mapped_is_refused_in_a_sentence_and_leaves_nothing(
    argv: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x"
    assert cli.main(["map", *argv, "--out", str(out)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("fairlane: ") and err.count("\n") == 1
    assert why in err
    assert not out.exists()


def test_a_folder_of_another_kind_of_run_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text("{}")
    assert cli.main(["map", "--on", "sim:optane", "--out", str(tmp_path)]) == 2
    assert "holds a run of `fairlane bench`" in capsys.readouterr().err


def test_a_real_drive_is_only_read_unless_its_data_may_be_destroyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "check_place", lambda _self: None)
    reads = drive_map.plan(named("host:x"))
    assert reads.ops == [READS]
    assert not any(writes for _, writes in reads.grid)
    assert not any(unit.scenario.writes for unit in reads.limit())
    assert drive_map.plan(named("host:x", Options(destroy_data="x"))).ops == [READS, WRITES]
    assert drive_map.plan(named("sim:p4500")).ops == [READS, WRITES], "a modelled drive has no data"


def test_it_takes_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "check_place", lambda _self: None)
    for backend in (named("host:x", Options(destroy_data="x")), named("vm:p4500", drive=True)):
        estimate = drive_map.plan(backend).estimate_s
        assert estimate is not None and estimate < 20 * 60


def made_up(ops: tuple[str, ...] = (READS, WRITES)) -> Map:
    """A drive that does 400,000 reads or 100,000 writes a second, and half of both."""
    found = Map("p4500", "sim:p4500", drive={"description": "A drive <2 TB>: of tests"})
    rates = {READS: 4e5, WRITES: 1e5}
    found.most = {op: Load(None, rates[op], 900.0, 500.0) for op in ops}
    found.least = {op: Load(None, 1e4, 100.0, 90.0) for op in ops}
    for reads in (0.0, 0.5, 1.0):
        for writes in (0.0, 0.5, 1.0) if WRITES in ops else (0.0,):
            parts = {op: part for op, part in ((READS, reads), (WRITES, writes)) if part}
            keeps_up = reads + writes <= 1
            loads = {
                op: Load(part * rates[op], 1.0, 123.0 + 50_000 * (part > 0.9), 1.0, keeps_up)
                for op, part in parts.items()
            }
            if loads:
                found.cells.append(Cell(reads, writes, loads))
    found.limit = [Point(depth, 4e7 * (1 + depth), 4e7, 100.0 + depth) for depth in (0, 1, 2, 4)]
    return found


@pytest.mark.parametrize("ops", [(READS, WRITES), (READS,)])
def test_the_picture_has_a_panel_for_each_kind_and_one_for_the_limit(ops: tuple[str, ...], tmp_path: Path) -> None:
    map_picture.write(made_up(ops), tmp_path / "map.svg")
    root = ET.parse(tmp_path / "map.svg").getroot()
    said = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert [text for text in said if text.startswith("P99 of")] == [f"P99 of {op}, µs" for op in ops]
    assert "The limit: P99 of a reader at queue depth 1, µs" in said
    assert "A drive <2 TB>" in said
    assert said.count("123") == (4 if WRITES in ops else 1), "the cells that the drive keeps up with"
    assert said.count("50 ms") == len(ops)
    beyond = [box for box in root.iter(f"{SVG}rect") if box.get("fill") == "url(#beyond)"]
    assert len(beyond) == (2 * 3 if WRITES in ops else 0), "three cells in each panel"
    assert {"alone", "1", "2", "4"} <= set(said)
    height = float(root.get("height") or 0)
    assert all(float(box.get("y") or 0) < height for box in root.iter(f"{SVG}rect"))


def test_labels_of_the_limit_do_not_lie_on_each_other_where_a_drive_is_full(tmp_path: Path) -> None:
    found = made_up()
    full = ((96, 1.8e9, 700.0), (128, 2e9, 900.0), (192, 2e9, 1100.0), (256, 2e9, 910.0))
    found.limit = [Point(depth, total, 1e6, p99) for depth, total, p99 in ((0, 4e7, 100.0), *full)]
    map_picture.write(found, tmp_path / "map.svg")
    said = {text.text for text in ET.parse(tmp_path / "map.svg").getroot().iter(f"{SVG}text")}
    assert {"alone", "96", "128", "192"} <= said and "256" not in said
