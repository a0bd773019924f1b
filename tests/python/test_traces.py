# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Requests come out of every format as they were recorded; a broken line is named or, if asked, left out."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane import cli
from fairlane.commands import replay
from fairlane.errors import FairlaneError
from fairlane.experiment import scenario_file, traces
from fairlane.experiment.model import TenantSpec
from fairlane.experiment.traces import Request
from fairlane.linux import disks, fio, fio_traces

# The same two requests, 1.5 ms apart, and after them one to another device; with what else such files hold.
WANTED = [
    Request(0, False, 8192, 4096, 0),
    Request(1_500_000, True, 1024, 512, 0),
    Request(2_000_000, False, 0, 512, 1),
]
SAMPLES = {
    "mqsim": "5000000 0 16 8 1\n6500000 0 2 1 0\n7000000 1 0 1 1\n",
    "systor": """Timestamp,Response,IOType,LUN,Offset,Size
1455592061.250000001,0.000123,R,0,8192,4096
1455592061.251500001,,W,0,1024,512
1455592061.252000001,0.1,R,1,0,512
""",
    "msr": """128166372003061629,hm,0,Read,8192,4096,413
128166372003076629,hm,0,Write,1024,512,22
128166372003081629,hm,1,Read,0,512,22
""",
    "blkparse": """  8,0    3        1     0.000000000   697  Q   R 16 + 8 [fio]
  8,0    3        2     0.000001000   697  G   R 16 + 8 [fio]
  8,0    3        3     0.000002000   697  D   R 16 + 8 [fio]
  8,0    1        1     0.001500000   697  Q  WS 2 + 1 [jbd2/sda1-8]
  8,0    1        2     0.001600000   697  Q FWS [jbd2/sda1-8]
  8,0    1        3     0.001700000   697  Q  DS 64 + 64 [fstrim]
  8,0    3        4     0.001800000     0  C   R 16 + 8 [0]
  8,1    1        4     0.002000000   697  Q  RA 0 + 1 [fio]
CPU0 (8,0):
 Reads Queued:           2,        5KiB	 Writes Queued:           1,        1KiB
Throughput (R/W): 3KiB/s / 1KiB/s
""",
    "iolog-2": """fio version 2 iolog
/dev/a add
/dev/b add
/dev/a open
/dev/a read 8192 4096
/dev/a wait 1500 0
/dev/a write 1024 512
/dev/a sync 0 0
/dev/a wait 500 0
/dev/b read 0 512
/dev/a close
""",
    "iolog-3": """fio version 3 iolog
10 /dev/a add
11 /dev/b add
12 /dev/a open
20 /dev/a read 8192 4096
1520 /dev/a write 1024 512
1600 /dev/a trim 0 4096
2020 /dev/b read 0 512
""",
}
DEVICE = {"blkparse": 8 << 20}  # the first of them, where it is not 0


def sample(folder: Path, name: str, text: str | None = None) -> Path:
    file = folder / f"{name}.txt"
    file.write_text(SAMPLES[name] if text is None else text)
    return file


@pytest.mark.parametrize("name", SAMPLES)
def test_every_format_is_recognised_and_read(tmp_path: Path, name: str) -> None:
    file, first = sample(tmp_path, name), DEVICE.get(name, 0)
    assert traces.format_of(file) == name.partition("-")[0]
    wanted = [Request(r.at_ns, r.write, r.offset, r.bytes, first + r.device) for r in WANTED]
    assert list(traces.read(file)) == wanted
    assert list(traces.read(file, devices=(first + 1,))) == [Request(0, False, 0, 512, first + 1)]


BROKEN = {
    "mqsim": ("6000000 0 2 one 0", "sectors: 'one' is no whole number"),
    "systor": ("1455592061.3,0.1,T,0,0,512", "'T' is neither R nor W"),
    "msr": ("128166372003076630,hm,0,Write,1024", "must be Timestamp,Hostname,"),
    "blkparse": ("  8,0    1        1     0.0015   697  Q  WS 2 + x [fio]", "sectors: 'x' is no whole number"),
    "iolog-2": ("/dev/a eat 0 512", "'eat' is neither read nor write"),
    "iolog-3": ("never /dev/a read 0 512", "the time: 'never' is no whole number"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_line_is_named_or_left_out_and_counted(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line, why = BROKEN[name]
    lines = SAMPLES[name].splitlines()
    at = next(n for n, text in enumerate(lines) if "write" in text or "W" in text or text.startswith("65")) + 1
    if name == "systor":
        at = 3
    file = sample(tmp_path, name, "\n".join([*lines[:at], line, *lines[at:]]) + "\n")
    assert cli.main(["replay", str(file), "--summary"]) == 2
    said = capsys.readouterr().err
    assert f"{file}: line {at + 1}: {why}" in said and "--skip-bad" in said and said.count("\n") == 1
    assert cli.main(["replay", str(file), "--summary", "--json", "--skip-bad"]) == 0
    out = capsys.readouterr()
    assert f"{name}: 1 broken line skipped; the first, line {at + 1}: {why}" in out.err
    (found,) = json.loads(out.out)
    assert (found["requests"], found["reads"], found["bytes"]) == (3, 2, 5120)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("moon\n", "no trace in a known format"),
        ("fio version 1 iolog\n", "no trace in a known format"),
        ("Timestamp,Response,IOType,LUN,Offset,Size\n", "has no request in 1 lines of the format systor"),
        ("5 0 0 8 1\n4 0 0 8 1\n", "line 2: the request arrives before that of the line above"),
        ("5 0 0 0 1\n", "line 1: a request of 0 bytes"),
        ("1,hm,0,Read,0,2000000000,1\n", "line 1: a request of 2000000000 bytes"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "x"
    file.write_text(text)
    with pytest.raises(FairlaneError, match=says):
        list(traces.read(file))


def test_a_request_written_down_late_arrives_with_the_one_before_it(tmp_path: Path) -> None:
    file = sample(tmp_path, "msr", "20,h,0,Read,0,512,1\n50,h,0,Read,512,512,1\n40,h,0,Write,0,512,1\n")
    assert [(r.at_ns, r.write) for r in traces.read(file)] == [(0, False), (3000, False), (3000, True)]


def test_the_summary_has_what_the_papers_table_has(tmp_path: Path) -> None:
    found = traces.summary(traces.read(sample(tmp_path, "systor")))
    assert (found.bytes, found.mean_bytes, found.reads_to_writes) == (5120, 5120 / 3, 2.0)
    assert found.bytes_per_s == pytest.approx(5120 / 0.002)


# --- Converted ---

BLOCK = 512
REQUESTS = st.lists(
    st.tuples(st.integers(0, 10**9), st.booleans(), st.integers(0, 2**33), st.integers(1, 2048)),
    min_size=4,
    max_size=20,
).map(
    lambda rows: [
        Request((at - min(rows)[0]) * 1000, write, sector * BLOCK, sectors * BLOCK)
        for at, write, sector, sectors in sorted(rows)
    ]
)


@given(requests=REQUESTS)
def test_a_trace_in_mqsims_format_is_the_same_trace(
    requests: list[Request], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("x") / "x.trace"
    traces.to_mqsim(requests, file)
    assert list(traces.read(file)) == requests


@given(requests=REQUESTS, jobs=st.integers(1, 4))
def test_fio_gets_every_request_once_at_its_time_and_place(
    requests: list[Request], jobs: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("x")
    file, drive = folder / "x.trace", disks.Target(Path("/dev/null"), 2**40, BLOCK * 2)
    traces.to_mqsim(requests, file)
    tenant = TenantSpec("a", trace=str(file), speed="full", jobs=jobs)
    converted = fio_traces.convert(tenant, drive, folder)
    got = []
    for number, log in enumerate(converted.files):
        whole = folder / f"{number}.log"
        whole.write_text(traces.iolog_head(drive.path) + log.read_text())
        lines = [line.split() for line in log.read_text().splitlines()]
        got.append([(int(at) - 1, op == "write", int(offset), int(size)) for at, _, op, offset, size in lines])
        first = requests[number].at_ns
        assert [r.at_ns for r in traces.read(whole)] == [r.at_ns - first for r in requests[number::jobs]]
    wanted = []
    for r in requests:  # on blocks of 1024 bytes; none of them is beyond the drive's 1 TiB
        size = -(-r.bytes // 1024) * 1024
        wanted.append((r.at_ns // 1000, r.write, min(r.offset % 2**40 // 1024 * 1024, 2**40 - size), size))
    assert got == [wanted[number::jobs] for number in range(jobs)]
    assert converted.largest == max(size for *_, size in wanted)


def test_a_job_without_a_request_is_refused(tmp_path: Path) -> None:
    tenant = TenantSpec("a", trace=str(sample(tmp_path, "msr")), jobs=4)
    with pytest.raises(FairlaneError, match="has 3 requests for the 4 jobs of a"):
        fio_traces.convert(tenant, disks.Target(Path("/dev/null"), 2**30, 512), tmp_path)


def test_fio_plays_a_trace_again_and_again(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(1 << 16))
    target = disks.Target(disk, 1 << 16, 512)
    given_ = tmp_path / "x.toml"
    given_.write_text(
        '[run]\nseconds = 0.5\nwarmup = 0.1\n[device]\nprofile = "null"\n'
        + "".join(
            f'[[tenant]]\nname = "{speed}"\ntrace = "msr.txt"\njobs = 3\niodepth = 4\nspeed = "{speed}"\n'
            for speed in ("recorded", "full")
        )
    )
    sample(tmp_path, "msr")
    found = fio.run(
        scenario_file.load(given_), target, tmp_path / "out", cgroups={}, seed=1, progress=lambda _part: None
    ).loads
    # Three requests, of 4096, 512 and 512 bytes, come again every 3 ms: 1000 a second, where there is CPU time for it.
    assert 30 <= found["recorded"].ios <= 550
    assert found["full"].ios > found["recorded"].ios
    assert found["full"].write_bytes > 0


# --- The command ---


def test_replay_plays_a_tenant_for_each_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Each once more, a second later: with three requests, a thread of two would play the second and nothing else.
    heavy = sample(tmp_path, "msr", SAMPLES["msr"] + "moon\n" + SAMPLES["msr"].replace("12816637200", "12816637201"))
    light = sample(tmp_path, "systor", SAMPLES["systor"] + SAMPLES["systor"].replace("592061", "592062"))
    out = tmp_path / "out"
    command = ["replay", f"{heavy}:300", str(light), "--on", "sim", "--knobs", "kyber-fairness"]
    command += ["--speed", "full", "--threads", "2", "--seconds", "1", "--skip-bad", "--json", "--out", str(out)]
    assert cli.main(command) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert [(t["name"], t["weight"]) for t in run["tenants"]] == [("msr", 300), ("systor", 100)]
    for tenant in run["tenants"]:  # a third of the requests, and a tenth of the bytes, are writes
        assert tenant["bytes_per_s"] / tenant["iops"] == pytest.approx(5120 / 3, rel=0.01)
        assert tenant["write_bytes_per_s"] / tenant["bytes_per_s"] == pytest.approx(0.1, rel=0.05)
        assert tenant["iops"] > 1000  # recorded were 6 in 1.2 s
    assert scenario_file.load(out / "scenario.toml").tenants[0].jobs == 2


def test_names_and_weights_come_from_the_argument() -> None:
    assert replay.parse("a/b.trace:12") == (Path("a/b.trace"), 12)
    assert replay.parse("a:b.trace") == (Path("a:b.trace"), 100)
    with pytest.raises(FairlaneError, match="from 1 to 10000"):
        replay.parse("a:0")


def test_a_compressed_trace_is_said_to_be_that(tmp_path: Path) -> None:
    file = tmp_path / "a.trace.gz"
    file.write_bytes(gzip.compress(b"0 0 0 8 1\n"))
    for kind in (None, "mqsim"):
        with pytest.raises(FairlaneError, match="is compressed; unpack it and give what comes out"):
            list(traces.read(file, kind))
