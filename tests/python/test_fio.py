# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""fio gets the load that the scenario asks for, and its logs become the tenants' figures."""

import configparser
import os
import shutil
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.errors import FairlaneError
from fairlane.experiment.model import Profile, Rate, Scenario, TenantSpec
from fairlane.linux import disks, fio, fio_jobs, fio_logs

NULL = Profile("null", "null_blk", "")
TARGET = disks.Target(Path("/dev/x"), 1 << 30, 512)
NEEDS_FIO = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


def scenario(*tenants: TenantSpec, seconds: float = 2, warmup: float = 1) -> Scenario:
    return Scenario("x", NULL, tenants, seconds=seconds, warmup=warmup)


def job_file(what: Scenario, cgroups: dict[str, str] | None = None, target: disks.Target = TARGET) -> str:
    return fio_jobs.job_file(what, target, cgroups or {}, Path("/logs"), 7)


def jobs(what: Scenario, cgroups: dict[str, str] | None = None) -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser()
    parser.read_string(job_file(what, cgroups))
    return {name: dict(parser[name]) for name in parser.sections()}


def test_a_tenant_becomes_a_group_of_jobs_in_its_cgroup() -> None:
    found = jobs(
        scenario(TenantSpec("a", jobs=4, rw="randrw", mix=70, bs=8192, iodepth=32, cores=(0, 1))), {"a": "f/a"}
    )
    wanted = {
        "new_group": "1",
        "rw": "randrw",
        "rwmixread": "70",
        "bs": "8192",
        "iodepth": "32",
        "numjobs": "4",
        "ramp_time": "1000000us",
        "runtime": "2000000us",
        "cpus_allowed": "0,1",
        "cgroup": "f/a",
    }
    assert wanted.items() <= found["a"].items()
    assert found["global"]["randseed"] == "7"


def test_a_rate_is_divided_among_jobs_and_directions() -> None:
    found = jobs(scenario(TenantSpec("a", jobs=4, rw="randrw", mix=75, rate=Rate(iops=1600))))
    assert found["a"]["rate_iops"] == "300,100"
    found = jobs(scenario(TenantSpec("a", jobs=2, bs=4096, rate=Rate(bytes_per_s=8 << 20))))
    assert found["a"]["rate_iops"].startswith("1024,")


def test_a_tenant_that_comes_back_is_two_sections_of_one_group() -> None:
    text = job_file(scenario(TenantSpec("a", start=1.5, stop=0.5), seconds=2))
    assert text.count("[a]") == 2
    assert text.count("new_group") == 1
    assert "startdelay=2500000us" in text
    assert text.count("runtime=500000us") == 2


def test_bs_min_is_the_block_of_the_device_and_others_must_be_its_multiples() -> None:
    assert jobs(scenario(TenantSpec("a", bs=0)))["a"]["bs"] == "512"
    with pytest.raises(FairlaneError, match="multiple of the 4096"):
        job_file(scenario(TenantSpec("a", bs=512)), target=replace(TARGET, block=4096))


def test_a_device_too_small_for_its_jobs_is_refused() -> None:
    with pytest.raises(FairlaneError, match="too small"):
        job_file(scenario(TenantSpec("a", jobs=4, bs=1 << 20)), target=replace(TARGET, capacity=1 << 20))


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from([512, 4096, 1 << 20])), min_size=1, max_size=6))
def test_no_two_jobs_share_a_part_of_the_device(specs: list[tuple[int, int]]) -> None:
    what = scenario(*(TenantSpec(f"t{i}", jobs=n, bs=bs) for i, (n, bs) in enumerate(specs)))
    pieces = []
    for name, job in jobs(what).items():
        if name != "global":
            size, offset = int(job["size"]), int(job["offset"])
            assert size == int(job["offset_increment"])
            assert size % int(job["bs"]) == 0
            pieces += [(offset + i * size, offset + (i + 1) * size) for i in range(int(job["numjobs"]))]
    pieces.sort()
    assert all(end <= start for (_, end), (start, _) in pairwise(pieces))
    assert pieces[-1][1] <= TARGET.capacity


# --- What is made of its logs ---


def report(read: int, write: int, ios: int) -> dict[str, Any]:
    lat = {"N": ios, "mean": 5000.0, "max": 9000, "percentile": dict.fromkeys(fio_jobs.PERCENTILES.values(), 7000)}
    mixed = {"io_bytes": read + write, "total_ios": ios, "lat_ns": lat}
    return {"read": {"io_bytes": read}, "write": {"io_bytes": write}, "mixed": mixed}


def collect(
    folder: Path, what: Scenario, logs: dict[str, list[tuple[int, int]]], *groups: dict[str, Any], counted: bool = False
) -> fio_logs.Measured:
    """When counted, the kernel has seen each tenant read 1000 and write 500 bytes/s."""
    for name, entries in logs.items():
        (folder / f"{name}.0_bw.1.log").write_text("".join(f"{ms}, {rate}, 0, 4096, 0\n" for ms, rate in entries))
    moved = [dict.fromkeys(logs, (1000 * t, 500 * t)) if counted else {} for t in (0, 100)]
    samples = [fio_logs.Sample(0.0, 10.0, moved[0]), fio_logs.Sample(100.0, 110.0, moved[1])]
    return fio_logs.collect(what, {"jobs": list(groups)}, folder, samples, TARGET)


def logs_of(**lengths: int) -> dict[str, list[tuple[int, int]]]:
    """Logs of 1000 KiB/s from 1000 ms on, for that many ms."""
    return {name: [(1000 + ms, 1000) for ms in range(10, length + 1, 10)] for name, length in lengths.items()}


def test_what_the_kernel_counted_within_the_window_is_what_a_tenant_got(tmp_path: Path) -> None:
    what = scenario(TenantSpec("a", bs=1024), seconds=20)
    load = collect(tmp_path, what, logs_of(a=30000), report(1 << 40, 0, 1), counted=True).loads["a"]
    assert [load.read_bytes, load.write_bytes] == pytest.approx([20000, 10000])
    assert load.ios == pytest.approx(30000 / 1024)
    assert sum(load.series.bytes) == pytest.approx(30000, rel=0.1)
    assert load.lat_us["p99"] == 7.0


def test_logs_that_begin_late_do_not_move_the_end_of_the_window(tmp_path: Path) -> None:
    logs = {"a": [(1000 + ms, 1000) for ms in range(500, 2001, 10)]}
    found = collect(tmp_path, scenario(TenantSpec("a"), seconds=2), logs, report(1 << 20, 0, 9), counted=True)
    assert found.loads["a"].read_bytes == pytest.approx(2000)
    assert sum(found.loads["a"].series.bytes[:49]) == 0


def test_the_drain_after_the_window_counts_for_nobody(tmp_path: Path) -> None:
    what = scenario(TenantSpec("a"), TenantSpec("b"), seconds=0.2)
    found = collect(tmp_path, what, logs_of(a=300, b=200), report(3 << 20, 0, 768), report(1 << 20, 1 << 20, 512))
    assert found.loads["a"].read_bytes == pytest.approx(2 << 20, rel=0.01)
    assert found.loads["a"].ios == pytest.approx(512, rel=0.01)
    assert found.loads["b"].write_bytes == pytest.approx(1 << 20)
    assert len(found.loads["a"].series.bytes) == len(found.loads["b"].series.bytes) == 20
    assert found.busy_s == pytest.approx(0.2)


def test_a_late_sample_is_spread_over_the_time_since_the_one_before(tmp_path: Path) -> None:
    logs = {"a": [(1010, 100), (1040, 100), (1050, 100)]}
    found = collect(tmp_path, scenario(TenantSpec("a"), seconds=0.05), logs, report(5000, 0, 5))
    assert found.loads["a"].series.bytes == [1000] * 5


def test_a_job_that_moved_nothing_for_a_while_has_no_entry_for_it(tmp_path: Path) -> None:
    logs = {"a": [(1000 + 10 * i, 50) for i in range(1, 6)], "b": [(1010, 100), (1050, 100)]}
    what = scenario(TenantSpec("a"), TenantSpec("b"), seconds=0.05)
    found = collect(tmp_path, what, logs, report(500, 0, 5), report(200, 0, 2))
    assert found.loads["b"].series.bytes == [100, 0, 0, 0, 100]


def test_no_io_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FairlaneError, match="no I/O at all"):
        collect(tmp_path, scenario(TenantSpec("a")), {}, report(0, 0, 0))


FULL = "fio has not written all of it, so the disk may be full; free some space"


@pytest.mark.parametrize(
    "text", ["10, 1000, 0, 4096, 0\n20, 1000, 0,", "10, 1000, 0, 4096, 0\n20", "10, 1000, 0, 4096, 0\n2,\n"]
)
def test_a_log_that_a_full_disk_cut_short_is_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.0_bw.2.log").write_text(text)
    with pytest.raises(FairlaneError, match=rf"a\.0_bw\.2\.log: {FULL}"):
        collect(tmp_path, scenario(TenantSpec("a"), seconds=0.05), logs_of(a=50), report(1 << 20, 0, 9))


def test_an_empty_log_is_that_of_a_job_without_io_unless_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = scenario(TenantSpec("a", jobs=2), seconds=0.05)
    (tmp_path / "a.0_bw.2.log").touch()
    assert collect(tmp_path, what, logs_of(a=50), report(1 << 20, 0, 9)).loads["a"].read_bytes
    full = os.statvfs_result((4096, 4096, 100, 0, 0, 9, 9, 9, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: full)
    with pytest.raises(FairlaneError, match=rf"a\.0_bw\.2\.log: {FULL}"):
        collect(tmp_path, what, logs_of(a=50), report(1 << 20, 0, 9))


@pytest.mark.parametrize("written", ["", "fio: a note\n", '{"jobs": [{"mixed": {"io_by'])
def test_output_that_a_full_disk_cut_short_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    def no_space(_jobs: Path, output: Path, *_args: object) -> list[fio_logs.Sample]:
        output.write_text(written)  # after which fio exits with 0
        return []

    monkeypatch.setattr(fio, "check", lambda: None)
    monkeypatch.setattr(fio, "_execute", no_space)
    with pytest.raises(FairlaneError, match=rf"x\.json: {FULL}"):
        fio.run(scenario(TenantSpec("a")), TARGET, tmp_path / "x", cgroups={}, seed=1, progress=lambda _: None)


def test_a_counter_is_unknown_when_the_samples_do_not_cover_the_window() -> None:
    assert fio_logs._between([(0, 0), (10, 5)], (2, 6)) == pytest.approx(2)
    assert fio_logs._between([(3, 0), (10, 5)], (2, 6)) is None
    assert fio_logs._between([(0, 0), (5, 5)], (2, 6)) is None


# --- The real thing, on a file ---


@NEEDS_FIO
def test_fio_runs_and_its_output_is_understood(tmp_path: Path) -> None:
    file = tmp_path / "disk"
    file.write_bytes(bytes(4 << 20))
    what = scenario(
        TenantSpec("a", jobs=2, rw="randrw", rate=Rate(iops=400)),
        TenantSpec("b", rw="randread", rate=Rate(iops=200), start=0.6, stop=0.3),
        seconds=1,
        warmup=0.2,
    )
    target = disks.Target(file, 4 << 20, 512)
    told: list[float] = []
    found = fio.run(what, target, tmp_path / "out" / "x", cgroups={}, seed=1, progress=told.append)
    a = found.loads["a"]
    assert 0 < a.ios <= 400 * 1.2, "less on a busy machine"
    assert abs(a.read_bytes - a.write_bytes) < 6 * 4096 * a.ios**0.5, "what chance may do"
    series = found.loads["b"].series.bytes
    assert sum(series[:40]) > 0
    assert 2 * sum(series[40:55]) < sum(series), "it pauses, though a last request may be late"
    assert sum(series[55:]) > 0
    assert found.loads["a"].lat_us["p99"]
    assert told == sorted(told)
    assert fio._report(tmp_path / "out" / "x.json")["jobs"]


@NEEDS_FIO
def test_a_load_that_is_not_measured_ends_as_soon_as_it_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "disk"
    file.write_bytes(bytes(1 << 20))
    told: list[float] = []
    fio.play_until(
        scenario(TenantSpec("a"), seconds=300, warmup=0),
        disks.Target(file, 1 << 20, 512),
        tmp_path / "x",
        cgroups={},
        seed=1,
        progress=told.append,
        enough=lambda: told[-1] > 0.002,
    )
    assert 0.002 < told[-1] < 0.5


@NEEDS_FIO
def test_fio_s_own_complaint_is_passed_on(tmp_path: Path) -> None:
    target = disks.Target(tmp_path, 1 << 20, 512)
    with pytest.raises(FairlaneError, match="fio failed"):
        fio.run(scenario(TenantSpec("a")), target, tmp_path / "x", cgroups={}, seed=1, progress=lambda _: None)


@NEEDS_FIO
def test_an_interruption_leaves_no_fio_behind(tmp_path: Path) -> None:
    file = tmp_path / "disk"
    file.write_bytes(bytes(1 << 20))

    def interrupt(part: float) -> None:
        if part > 0.002:
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        what = scenario(TenantSpec("a"), seconds=300, warmup=0)
        fio.run(what, disks.Target(file, 1 << 20, 512), tmp_path / "x", cgroups={}, seed=1, progress=interrupt)
    assert time.monotonic() - started < 60
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert not any(str(tmp_path).encode() in command for command in commands)


@pytest.mark.parametrize(
    ("body", "said"), [(None, "fio is not installed"), ("exit 1", r"fio-2\.16 is too old: .*Debian 12")]
)
def test_no_fio_or_an_old_one_is_a_sentence(
    body: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if body is not None:
        (tmp_path / "fio").write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo fio-2.16 && exit 0\n{body}\n')
        (tmp_path / "fio").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    fio.check.cache_clear()
    try:
        with pytest.raises(FairlaneError, match=said):
            fio.check()
    finally:
        fio.check.cache_clear()
