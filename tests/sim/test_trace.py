# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A tenant that plays a trace requests what was recorded, when it was; what is no trace is refused in a sentence."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simkit import (
    ASAN,
    FREE,
    Json,
    null_drive,
    output,
    player,
    refused,
    run_of,
    simulate,
    ssd_drive,
    start,
    tenant,
)

from fairlane import cli
from fairlane.backends.program import PROGRAM
from fairlane.experiment import scenario_file
from fairlane.experiment.results import Results
from fairlane.places import TRACES

MS = 1_000_000
RECORDED = sorted(TRACES.glob("*.trace"))
TPCC = TRACES / "tpcc-small.trace"


def trace(folder: Path, *requests: tuple[int, int, int]) -> Path:
    """Reads: (arrival in ms, first sector, sectors) each."""
    file = folder / "x.trace"
    file.write_text("".join(f"{at * MS} 0 {first} {sectors} 1\n" for at, first, sectors in requests))
    return file


def played(*players: Json, drive: Json | None = None, seconds: float = 0.1, knob: str = "none") -> Json:
    """A run without warm-up, with a host, and unless said a drive, that take next to no time."""
    return run_of(
        list(players),
        drive or null_drive(latency_ns=1000),
        knob,
        seconds=seconds,
        warmup_ns=0,
        cpu=FREE | {"submit_ns": 1},
    )


def sectors_by_bin(description: Json) -> dict[int, int]:
    """How many were moved in each 10 ms that had any."""
    moved = simulate(description)["tenants"][0]["series"]["bytes"]
    return {10 * i: size // 512 for i, size in enumerate(moved) if size}


# --- What is requested, and when ---


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_the_recorded_rate_sizes_and_fraction_of_reads_come_out(file: Path) -> None:
    rows = [[int(column) for column in line.split()] for line in file.read_text().splitlines()]
    span_s = (rows[-1][0] - rows[0][0]) / 1e9
    iops = (len(rows) - 1) / span_s
    again = 5 if span_s < 1 else 1  # times through
    run = simulate(played(player(file, depth=4096), seconds=again * len(rows) / iops))
    found = run["tenants"][0]
    assert found["iops"] == pytest.approx(iops, rel=0.0005)
    assert found["bytes_per_s"] == pytest.approx(iops * sum(row[3] for row in rows) * 512 / len(rows), rel=0.0005)
    reads = sum(row[3] for row in rows if row[4] == 1) / sum(row[3] for row in rows)
    assert found["read_bytes_per_s"] / found["bytes_per_s"] == pytest.approx(reads, abs=0.0005)


def test_requests_arrive_when_they_did_and_again_after_the_last(tmp_path: Path) -> None:
    # They are 15 ms apart on average, and so are the last one and the next first one.
    file = trace(tmp_path, (1000, 0, 1), (1010, 0, 2), (1030, 0, 4))
    assert sectors_by_bin(played(player(file))) == {0: 1, 10: 2, 30: 4, 40: 1, 50: 2, 70: 4, 90: 1}


def test_every_phase_begins_at_the_beginning(tmp_path: Path) -> None:
    file = trace(tmp_path, (0, 0, 1), (10, 0, 2), (40, 0, 4))
    phases = [{"from_ns": 0, "to_ns": 30 * MS}, {"from_ns": 50 * MS, "to_ns": 80 * MS}]
    assert sectors_by_bin(played(player(file, phases=phases))) == {0: 1, 10: 2, 50: 1, 60: 2}


def test_no_more_than_the_depth_are_under_way_and_who_waits_keeps_its_arrival(tmp_path: Path) -> None:
    file = trace(tmp_path, *[(0, 0, 8)] * 4, (900, 0, 8))
    drive = null_drive(latency_ns=MS)
    one, all_four = (simulate(played(player(file, depth=n), drive=drive, seconds=0.5))["tenants"][0] for n in (1, 4))
    assert (one["lat_us"]["mean"], one["lat_us"]["max"]) == pytest.approx((2500, 4000), rel=0.001)
    assert (all_four["lat_us"]["mean"], all_four["lat_us"]["max"]) == pytest.approx((1000, 1000), rel=0.001)
    assert one["bytes_per_s"] == all_four["bytes_per_s"] == 2 * 4 * 8 * 512


def test_jobs_share_a_trace_each_playing_its_turns(tmp_path: Path) -> None:
    file = trace(tmp_path, (0, 0, 1), (10, 0, 2), (30, 0, 4))
    for jobs in (1, 2, 3):
        expected = {0: 1, 10: 2, 30: 4, 40: 1, 50: 2, 70: 4, 90: 1}
        assert sectors_by_bin(played(player(file, jobs=jobs))) == expected
    with_four = json.dumps(played(player(file, jobs=4))).encode()
    assert "line 3: the trace ends there, with fewer requests than the tenant has jobs" in refused(with_four)


def test_at_full_speed_a_request_arrives_as_soon_as_the_depth_allows(tmp_path: Path) -> None:
    file = trace(tmp_path, (0, 0, 1), (1000, 0, 2), (3000, 0, 3))
    found = simulate(played(player(file, depth=2) | {"full_speed": True}, drive=null_drive(latency_ns=MS)))["tenants"][
        0
    ]
    assert found["iops"] == pytest.approx(2000, rel=0.02)  # two at a time, of 1 ms each
    assert found["bytes_per_s"] / found["iops"] == pytest.approx(2 * 512, rel=0.02)
    assert found["lat_us"]["max"] == pytest.approx(1000, rel=0.001)


# --- Where ---


def test_what_is_beyond_the_drives_end_wraps_and_is_rounded_to_blocks(tmp_path: Path) -> None:
    size, many = 1 << 28, range(64)
    drive = ssd_drive(size=size, map=size, spare=250, block_pages=32, page=4096)

    def found(first: int, apart: int, sectors: int = 8) -> bytes:
        file = trace(tmp_path, *((0, first + i * apart, sectors) for i in many), (900, 0, 1))
        return output(played(player(file, block=4096, depth=64), drive=drive), ASAN)

    spread = found(0, 4096)
    assert spread != found(0, 0)  # where they are is seen: all of these wait for one die
    assert spread == found(5 * size // 512, 4096) == found((2**64 // size - 1) * (size // 512), 4096)
    assert spread == found(3, 4096, 5)


def test_a_request_across_the_drives_end_ends_there(tmp_path: Path) -> None:
    drive = ssd_drive(size=1 << 28, map=1 << 28, spare=250, block_pages=32, page=4096)
    end = (1 << 28) // 512
    across = output(played(player(trace(tmp_path, (0, end - 1, 4096), (900, 0, 1))), drive=drive), ASAN)
    assert across == output(played(player(trace(tmp_path, (0, end - 4096, 4096), (900, 0, 1))), drive=drive), ASAN)


# --- The same bytes ---


@pytest.mark.parametrize("knob", ["none", "kyber-fairness"])
def test_a_run_with_traces_is_the_same_every_time(knob: str) -> None:
    tenants = [player(file, file.stem, 4096, depth=32) for file in RECORDED]
    description = run_of([*tenants, tenant("b", depth=8)], ssd_drive(4), knob, 4, 0.2)
    first = output(description)
    assert output(description) == first
    assert output(description, ASAN) == first


# --- What is no trace ---


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "the file is empty"),
        (b"5 0 0 8 1\n", "line 1: the trace ends there, without two"),
        (b"5 0 0 8 1\n5 0 0 8 1", "line 2: the trace ends there, without two"),
        (b"5 0 0 8 1\n\n", "line 2: must be five whole numbers"),
        (b"5 0 0 8\n", "line 1: must be five whole numbers"),
        (b"5 0 0 8 1 1\n", "line 1: must be five whole numbers"),
        (b"5 0 0 8 1x\n", "line 1: must be five whole numbers"),
        (b"5 0 -8 8 1\n", "line 1: must be five whole numbers"),
        (b"5,0,0,8,1\n", "line 1: must be five whole numbers"),
        (b"5 0 0 18446744073709551616 1\n", "line 1: must be five whole numbers"),
        (b"5 0 0 8 2\n", "line 1: the type must be 0, a write, or 1, a read"),
        (b"5 0 0 0 1\n", "line 1: the sectors must be from 1 to 2097152"),
        (b"5 0 0 2097153 1\n", "line 1: the sectors must be from 1 to 2097152"),
        (b"5 0 0 18446744073709551615 1\n", "line 1: the sectors must be from 1 to 2097152"),
        (b"5 0 0 2097152 1\n", "line 1: the request is larger than the drive"),
        (b"5 0 0 8 1\n6 0 0 8 1\n5 0 0 8 1\n", "line 3: the request arrives before that of the line above"),
        (b"5 0 0 8 1\n18446744073709551615 0 0 8 1\n", "line 2: the request arrives more than two weeks"),
        (b" " * 10_000, "line 1: too long, or no text"),
        (b"5 0 0 8 1\0\n6 0 0 8 1\n", "line 1: too long, or no text"),
    ],
)
@pytest.mark.parametrize("knob", ["none", "kyber-fairness"])
def test_a_line_that_is_no_request_is_said(knob: str, text: bytes, says: str, tmp_path: Path) -> None:
    file = tmp_path / "x.trace"
    file.write_bytes(text)
    busy = tenant("b", depth=32, read_percent=50)  # so that something is under way when the run ends
    said = refused(json.dumps(played(busy, player(file), drive=ssd_drive(size=1 << 29), knob=knob)).encode())
    assert f"a: trace {file}: {says}" in said


@pytest.mark.parametrize("way", [["-n"], []])
def test_a_line_that_the_run_would_reach_late_or_never_is_said_before_it(tmp_path: Path, way: list[str]) -> None:
    file = tmp_path / "x.trace"
    file.write_text("0 0 0 8 1\n" * 5000 + f"{10**15} 0 0 8 1\n{10**15} 0 0 8 5\n")
    done = start(json.dumps(played(player(file), seconds=600_000)).encode(), PROGRAM, *way)
    assert (done.returncode, done.stdout) == (2, b"")
    assert (
        done.stderr.decode() == f"fl-sim: test: a: trace {file}: line 5002: the type must be 0, a write, or 1, a read\n"
    )


def test_a_check_runs_nothing(tmp_path: Path) -> None:
    file = trace(tmp_path, (0, 0, 1), (10, 0, 2))
    description = json.dumps(played(player(file), tenant("b"), seconds=600_000)).encode()
    for program in (PROGRAM, ASAN):
        done = start(description, program, "-n")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_pipe_is_no_trace(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x")
    assert f"a: trace {tmp_path / 'x'}: is no regular file" in refused(
        json.dumps(played(player(tmp_path / "x"))).encode()
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"trace": "/nowhere/x"}, "a: trace /nowhere/x: cannot be read: No such file"),
        ({"trace": "/"}, "a: trace /: is no regular file"),
        ({"trace": "/dev/zero"}, "a: trace /dev/zero: is no regular file"),
        ({"trace": 5}, "a: trace must be a text"),
        ({"jobs": 7000}, "a: jobs must be a whole number from 1 to 1024"),
        ({"block": 1000}, "a: block must be a multiple of 512"),
        ({"bytes": 4096}, "either trace, block and full_speed or bytes"),
    ],
)
def test_a_player_that_makes_no_sense_is_refused(change: Json, says: str) -> None:
    assert says in refused(json.dumps(played(player(TPCC) | change)).encode())


LINES = st.lists(
    st.tuples(*[st.integers(0, 20) | st.integers(0, 2**64)] * 4, st.integers(0, 1) | st.integers(0, 9)).map(
        lambda columns: " ".join(map(str, columns))
    )
    | st.text(max_size=20),
    max_size=8,
)


@given(lines=LINES, ordered=st.booleans(), depth=st.integers(1, 8))
@settings(max_examples=100, deadline=None)
def test_any_text_is_played_or_refused(
    lines: list[str], ordered: bool, depth: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if ordered:
        lines.sort(key=lambda line: int(line.split(" ")[0]) if line.split(" ")[0].isdecimal() else 0)
    file = tmp_path_factory.mktemp("any") / "x.trace"
    file.write_text("\n".join(lines), errors="replace")
    description = played(player(file, depth=depth), drive=ssd_drive(), seconds=0.0001)
    done = start(json.dumps(description).encode(), ASAN)
    if done.returncode:
        refused(json.dumps(description).encode())
    else:
        assert json.loads(done.stdout)["schema"] == 1


# --- From a scenario ---

SCENARIO = """
[run]
seconds = 1.365
warmup = 0
[device]
profile = "optane"
[[tenant]]
name = "oltp"
trace = "tpcc-small.trace"
iodepth = 1024
"""


def test_a_scenario_plays_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(SCENARIO)
    assert cli.main(["run", str(file), "--on", "sim", "--knobs", "none", "--out", str(tmp_path)]) == 0
    found = Results.load(tmp_path / "results.json").runs[0].tenants[0]
    assert found.iops == pytest.approx(6998 / 0.136489, rel=0.001)
    given = json.loads((tmp_path / "sim" / "none-0.given.json").read_text())
    assert given["tenants"][0]["block"] == 512
    assert scenario_file.load(file).tenants[0].trace == given["tenants"][0]["trace"]


@pytest.mark.parametrize("backend", ["vm", "host:nvme9n9", "sim"])
def test_a_broken_line_is_said_before_anything_is_started(
    backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, file = tmp_path / "y.trace", tmp_path / "x.toml"
    broken.write_text(TPCC.read_text() + "moon\n")
    file.write_text(SCENARIO.replace("tpcc-small.trace", "y.trace"))
    assert cli.main(["run", str(file), "--on", backend, "--knobs", "none", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert f"{broken}: line 7000: must be five whole numbers" in said and said.count("\n") == 1


def test_only_the_devices_that_are_named_are_played(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(SCENARIO + "devices = [0, 1]\n")
    assert cli.main(["run", str(file), "--on", "sim", "--knobs", "none", "--out", str(tmp_path)]) == 0
    rows = [line.split() for line in TPCC.read_text().splitlines()]
    kept = [row for row in rows if row[1] in ("0", "1")]
    played = [line.split() for line in (tmp_path / "sim-traces" / "oltp.trace").read_text().splitlines()]
    assert [row[1:] for row in played] == [row[1:] for row in kept]
    assert [int(row[0]) for row in played] == [int(row[0]) - int(kept[0][0]) for row in kept]
    given = json.loads((tmp_path / "sim" / "none-0.given.json").read_text())
    assert given["tenants"][0]["trace"] == str(tmp_path / "sim-traces" / "oltp.trace")
