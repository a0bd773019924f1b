# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Prices follow from throughputs as in the mqFlashFQ paper; price lists are whole, drives written with consent."""

from __future__ import annotations

import errno
import os
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlane import cli, files
from fairlane.backends import vm
from fairlane.backends.host import Host
from fairlane.backends.job import Completing, Finished, Job, Options
from fairlane.backends.table import named
from fairlane.backends.vm import Vm
from fairlane.calibration import calibrate, price_file
from fairlane.calibration.calibrate import Plan
from fairlane.calibration.price_file import Calibration, Kind
from fairlane.errors import FairlaneError
from fairlane.experiment import price_lists
from fairlane.experiment.model import Scenario
from fairlane.experiment.results import Results, Run, Series, Tenant
from fairlane.isolbench.run_folder import room
from fairlane.linux import disks, fio, sysfs

MB = 10**6
# Table 2 of the paper: MB/s of the cores that write and of those that read 16 KiB, for K = 0..6; what it makes of them.
TABLE_2 = [
    (1065.10, 0.0),
    (987.25, 197.45),
    (862.73, 431.37),
    (687.50, 687.50),
    (480.57, 961.13),
    (245.60, 1227.98),
    (0.0, 2214.10),
]
COSTS = [0.3943, 0.4691, 0.5492, 0.6082, 0.6674, 0.4811]
PAGE = 16 << 10


def run_of(what: Scenario, rates: Sequence[float], series: Sequence[int] = (1,) * 10) -> Run:
    """What a backend gives for each core that got so many bytes/s."""
    tenants = [
        Tenant(spec.name, 100, 1, rate, rate / spec.bs, 0, 0, series=Series(10, list(series)))
        for spec, rate in zip(what.tenants, rates, strict=True)
    ]
    return Run("none", 0, 2.0, tenants, sum(rates), sum(t.iops for t in tenants), None, None)


def played(what: Plan, read_cost: float = 0.5) -> list[Run]:
    """A drive that does 1000 reference requests per second, and takes half of one for each page that is read."""

    def mix(load: Scenario) -> Run:
        each = 1000 / len(load.tenants)
        return run_of(load, [each * PAGE / (read_cost if "read" in spec.rw else 1) for spec in load.tenants])

    return [mix(load) for load in what.loads()]


def small() -> Plan:
    return calibrate.plan(named("sim:p3700"), sizes=[PAGE, 2 * PAGE], cores=3)


def calibrated(runs: Sequence[Run] | None = None) -> Calibration:
    found = Calibration(PAGE, "fresh", 3, 2.0, 1.0, "sim", machine={"cpu": 'a "fast" \\ one'}, drive={"profile": "x"})
    calibrate.conclude(found, small(), runs or played(small()))
    return found


def test_the_papers_throughputs_give_the_papers_costs() -> None:
    what = calibrate.plan(named("sim:p3700"), sizes=[PAGE])
    assert what.kinds == [Kind("read", PAGE)]
    runs = []
    for k, (writes, reads) in enumerate(TABLE_2):
        rates = [writes * MB / max(1, 6 - k)] * (6 - k) + [reads * MB / max(1, k)] * k
        runs.append(run_of(what.mix(what.kinds[0], k), rates))
    runs += [run_of(load, [MB]) for load in what.loads()[7:]]
    found = Calibration(PAGE, "fresh", 6, 2.0, 1.0, "sim")
    calibrate.conclude(found, what, runs)
    assert [mix.cost for mix in found.mixes[1:]] == pytest.approx(COSTS, abs=2e-4)
    assert found.price["read"]["16KiB"] == pytest.approx(0.6674, abs=1e-4)
    assert found.average["read"]["16KiB"] == pytest.approx(0.5282, abs=1e-4)
    assert found.price["write"] == {"16KiB": 1.0}
    assert found.mixes[5].use == pytest.approx(0.785, abs=1e-3), "the one whose price counts, though least is in use"


def test_a_mix_that_leaves_the_drive_idle_sets_no_price() -> None:
    """The P4500's: with one writer, five readers get a sixth of what they get alone, and the writer less than half."""
    what = calibrate.plan(named("sim:p4500"), sizes=[PAGE])
    totals = [(157, 0), (155, 31), (152, 76), (146, 146), (133, 265), (71, 354), (0, 2280)]
    rates = [[writes / max(1, 6 - k)] * (6 - k) + [reads / max(1, k)] * k for k, (writes, reads) in enumerate(totals)]
    runs = [run_of(what.mix(what.kinds[0], k), [MB * rate for rate in each]) for k, each in enumerate(rates)]
    found = Calibration(PAGE, "steady", 6, 2.0, 1.0, "sim")
    calibrate.conclude(found, what, runs + [run_of(load, [MB]) for load in what.loads()[7:]])
    assert [mix.cost for mix in found.mixes[4:6]] == [0.0906, 0.2429]
    assert [mix.use for mix in found.mixes[4:6]] == pytest.approx([0.96, 0.61], abs=0.005)
    assert found.price["read"]["16KiB"] == 0.0906


def test_a_price_is_of_a_request_whatever_its_size() -> None:
    found = calibrated()
    assert found.price["read"] == pytest.approx({"16KiB": 0.5, "32KiB": 1.0}, abs=1e-3)
    assert found.price["write"] == pytest.approx({"16KiB": 1.0, "32KiB": 2.0}, abs=1e-3)
    assert not list(found.warnings())


def test_every_mix_pins_a_request_type_to_each_core() -> None:
    load = small().mix(Kind("read", 2 * PAGE), 1)
    assert [(t.cores, t.rw, t.bs, t.iodepth) for t in load.tenants] == [
        ((0,), "randwrite", PAGE, 64),
        ((1,), "randwrite", PAGE, 64),
        ((2,), "randread", 2 * PAGE, 64),
    ]


def test_a_speed_that_changes_and_prices_that_fall_are_told() -> None:
    what = small()
    runs = played(what)
    runs[2] = run_of(what.loads()[2], [t.bytes_per_s for t in runs[2].tenants], series=range(10))
    assert [text for text in calibrated(runs).warnings() if "1 of 12 measurements" in text]
    runs = played(what)
    for k in range(4):  # reads of 32 KiB take next to nothing
        runs[4 + k] = run_of(what.loads()[4 + k], [1000 * PAGE / max(1, 3 - k)] * (3 - k) + [1e5 * PAGE] * k)
    assert "a read of 32KiB costs less than one of 16KiB" in list(calibrated(runs).warnings())


def test_the_cost_file_is_what_was_found(tmp_path: Path) -> None:
    found = calibrated()
    path = tmp_path / "x.toml"
    path.write_text(price_file.file_text(found, "fairlane calibrate"))
    assert price_lists.load(str(path)).text() == found.prices
    data = tomllib.loads(path.read_text())
    assert data["machine"] == found.machine
    assert len(data["mix"]) == len(found.mixes) == 12
    assert data["mix"][1]["bytes_per_s"] == found.mixes[1].bytes_per_s
    assert data["io_cost_model"].startswith("ctrl=user model=linear rbps=")


@pytest.mark.parametrize(
    ("rates", "is_steady"),
    [
        ([100] * 5, True),
        ([300, 200, 100, 101, 99, 100, 101], True),  # the last five count
        ([100] * 4, False),
        ([110, 95, 100, 95, 110], True),  # 15 % apart
        ([112, 90, 100, 90, 112], False),  # 22 %
        ([95, 98, 100, 102, 104], True),
        ([94, 97, 100, 103, 106], False),  # the line rises by 12 %
        ([0] * 5, False),
    ],
)
def test_steady_state_is_as_defined_for_drives(rates: list[float], is_steady: bool) -> None:
    assert calibrate.steady(rates) is is_steady


# --- What is asked for ---


def test_all_powers_of_two_from_a_page_on_are_measured_both_ways() -> None:
    kinds = calibrate.plan(named("sim:p3700")).kinds
    assert len(kinds) == 13
    assert {kind.size for kind in kinds} == {PAGE << i for i in range(7)}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--on", "sim:p3700", "--sizes", "4KiB"], "p3700 can be calibrated for 16KiB, 32KiB"),
        (["--on", "sim:p3700", "--sizes", "4 apples"], "--sizes: '4 apples' is not a size"),
        (["--on", "sim:p3700", "--page", "5000B"], "must be a power of two"),
        (["--on", "sim"], "of which drive? give its profile, such as sim:p3700"),
        (["--on", "sim:moon"], "unknown profile 'moon'"),
        (["--on", "sim:p3700", "--cores", "0"], "--cores 0: must be more than 0"),
        (["--on", "sim:p3700", "--seconds", "nan"], "--seconds nan: must be more than 0"),
        (["--on", "sim:p3700", "--kernel", "6.1"], "--kernel chooses the VM's kernel"),
        (["--on", "disk"], "valid are vm, host:DEV"),
        (["--on", "host:no-such-drive"], "no block device 'no-such-drive'"),
    ],
)
def test_what_cannot_be_is_said(args: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["calibrate", *args, "--out", str(tmp_path / "x.toml")]) == 2
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_drive_is_overwritten_with_consent_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sysfs, "SYS_BLOCK", tmp_path / "block")
    folder = tmp_path / "block" / "sdx"
    (folder / "queue").mkdir(parents=True)
    for name, text in {"dev": "8:16", "size": "2048", "queue/max_sectors_kb": "64", "queue/nr_requests": "64"}.items():
        (folder / name).write_text(text)
    out = tmp_path / "x.toml"
    assert cli.main(["calibrate", "--on", "host:sdx", "--cores", "1", "--out", str(out)]) == 2
    (refusal,) = capsys.readouterr().err.splitlines()
    assert refusal.endswith("add --destroy-data sdx"), "how long it would take is of no interest"
    assert not out.exists()
    assert max(calibrate.plan(named("host:sdx"), cores=1).sizes) == 64 << 10


def test_the_drive_is_written_once_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysfs, "SYS_BLOCK", tmp_path / "block")
    file, folder = tmp_path / "drive", tmp_path / "block" / "drive"
    folder.mkdir(parents=True)
    (folder / "stat").write_text("1 0 8 0 1 0 8 0 0 0 0")
    file.write_bytes(bytes(4 << 20))
    fio.fill(disks.Target(file, 4 << 20, 512), lambda _part: None)
    data = file.read_bytes()
    assert all(any(data[i : i + 65536]) for i in range(0, 4 << 20, 65536))
    with pytest.raises(FairlaneError, match="cannot write all of"):
        fio.fill(disks.Target(tmp_path / "no" / "drive", 4 << 20, 512), lambda _part: None)


def test_random_writes_go_on_until_the_drive_is_steady() -> None:
    rates = iter([900.0, 500.0, 300.0, 210.0, 200.0, 201.0, 199.0, 200.0])
    reference = small().mix(Kind("write", PAGE), 0)

    def one(_name: str, _tell: object) -> Run:
        return run_of(reference, [next(rates) / 3] * 3)

    assert calibrate._until_steady(1, one, lambda _now: None) == pytest.approx([900, 500, 300, 210, 200, 201, 199, 200])
    falling = iter(range(1000, 0, -30))
    with pytest.raises(FairlaneError, match="not steady after 25 rounds"):
        calibrate._until_steady(1, lambda _n, _t: run_of(reference, [next(falling)] * 3), lambda _now: None)


# --- All or nothing ---


def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo"):
        with pytest.raises(FairlaneError, match="is no file, and will not be replaced"), files.new_file(path):
            raise AssertionError("it was begun")
    assert (tmp_path / "fifo").is_fifo()


def test_a_cost_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.toml"
    with pytest.raises(KeyboardInterrupt), files.new_file(path):
        raise KeyboardInterrupt
    assert not list(path.parent.iterdir())
    path.write_text("before")
    with pytest.raises(KeyboardInterrupt), files.new_file(path):
        raise KeyboardInterrupt
    assert path.read_text() == "before"
    with files.new_file(path) as write:
        write("after")
    assert path.read_text() == "after"
    assert len(list(path.parent.iterdir())) == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_file_for_which_there_is_no_space_needs_no_other_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(_fd: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FairlaneError, match=r"x\.json: no space left; free some and start the same command again$"):
        files.write_json(tmp_path / "x.json", {})
    assert not list(tmp_path.iterdir())
    with pytest.raises(FairlaneError, match=r"start the same command again: what is done is kept$"), room(tmp_path):
        files.write_json(tmp_path / "x.json", {})


def test_a_disk_that_is_really_full_is_the_same_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mkstemp(dir: Path, prefix: str) -> tuple[int, str]:
        name = dir / f"{prefix}part"
        name.symlink_to("/dev/full")
        return os.open(name, os.O_WRONLY), str(name)

    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)
    with pytest.raises(FairlaneError, match=r"x\.json: no space left; free some and start the same command again$"):
        files.write_json(tmp_path / "x.json", {})
    assert not list(tmp_path.iterdir())


def test_in_a_vm_the_drive_is_slowed_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what = calibrate.plan(Vm("p3700"), sizes=[PAGE], cores=2)
    seen: list[Job] = []

    def run(_vm: Vm, jobs: list[Job], _tell: object) -> Completing:
        seen.extend(jobs)
        assert all(job.out.is_relative_to(tmp_path) and job.variant.knob == "none" for job in jobs)
        for job, run in zip(jobs, played(what), strict=True):
            yield Finished(job, Results("x", "vm", 1, "0", "6.1.0", "tcg", [run], machine={"cpus": 2}))

    monkeypatch.setattr(Vm, "run", run)
    found = calibrate.run(what, tmp_path, lambda _now: None)
    assert len(seen) == 3 + 6
    assert not list(found.warnings())
    assert {job.scenario.profile.params["time_scale"] for job in seen} == {vm.CALIBRATED_SLOW}
    assert found.drive["time_scale"] == vm.CALIBRATED_SLOW
    assert (found.kernel, found.accel, found.machine) == ("6.1.0", "tcg", {"cpus": 2})
    assert found.price["read"]["16KiB"] == pytest.approx(0.5, abs=1e-3)


def test_a_real_drive_is_measured_load_by_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "_largest", lambda _device: PAGE)
    monkeypatch.setattr(disks, "free_target", lambda *_args: disks.Target(tmp_path, 1 << 30, 512))
    filled: list[disks.Target] = []
    held: list[str] = []

    @contextmanager
    def claimed(device: str) -> Iterator[None]:
        held.append(device)
        yield
        held.remove(device)

    def fill(target: disks.Target, _tell: object) -> None:
        assert held == ["sdx"], "a second one could begin on it"
        filled.append(target)

    monkeypatch.setattr(disks, "claimed", claimed)
    monkeypatch.setattr(fio, "fill", fill)
    what = calibrate.plan(named("host:sdx", Options(destroy_data="sdx")), cores=1, state="steady")
    runs = iter([run_of(what.loads()[0], [1000.0])] * 5 + played(what))

    def run(backend: Host, jobs: list[Job], _tell: object) -> Completing:
        for job in jobs:
            assert (backend.device, job.variant.knob, backend.asked.destroy_data) == ("sdx", "none", "sdx")
            assert held == ["sdx"]
            yield Finished(job, Results("x", "host:sdx", 1, "0", "6.1.0", runs=[next(runs)], device={"name": "sdx"}))

    monkeypatch.setattr(Host, "run", run)
    found = calibrate.run(what, tmp_path, lambda _now: None)
    assert len(filled) == 1
    assert found.rounds == [1000.0] * 5
    assert found.drive == {"name": "sdx"}
    assert found.price["read"]["16KiB"] == pytest.approx(0.5, abs=1e-3)


def test_what_was_not_steady_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what = calibrate.plan(Vm("p3700"), sizes=[PAGE], cores=2)
    disturbed, loads, good = {1, 4}, what.loads(), played(what)
    asked: list[list[str]] = []

    def run(_vm: Vm, jobs: list[Job], _tell: object) -> Completing:
        asked.append([job.scenario.name for job in jobs])
        numbers = [next(i for i, load in enumerate(loads) if load == job.scenario) for job in jobs]
        runs = [
            run_of(loads[i], [1.0] * len(loads[i].tenants), range(10))
            if i in disturbed and len(asked) == 1
            else good[i]
            for i in numbers
        ]
        for job, run in zip(jobs, runs, strict=True):
            yield Finished(job, Results("x", "vm", 1, "0", runs=[run]))

    monkeypatch.setattr(Vm, "run", run)
    found = calibrate.run(what, tmp_path, lambda _now: None)
    assert asked[1:] == [[loads[i].name for i in sorted(disturbed)]]
    assert found.price["read"]["16KiB"] == pytest.approx(0.5, abs=1e-3)
    assert not list(found.warnings())
