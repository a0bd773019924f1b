# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`--cluster`: the same bytes as on one machine, whatever becomes of workers; and what cannot be is said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fairlane import cli
from fairlane.backends import cluster as of_cluster
from fairlane.backends import program
from fairlane.backends.job import Options
from fairlane.backends.sim import Simulator
from fairlane.backends.units import Told
from fairlane.progress import Progress
from fairlane.study import study, study_file

# --- A cluster, as a user starts one by hand ---

DASK = Path(sys.executable).with_name("dask")
START_S = 120


@dataclass
class Dask:
    """A scheduler and workers, each a process on this machine."""

    folder: Path
    address: str = ""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.folder / "scheduler.json"

    def found(self) -> str:
        """The scheduler's address; its file is there before what it says."""
        try:
            return str(json.loads(self.file.read_text())["address"])
        except (FileNotFoundError, ValueError):
            return ""

    def start(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            argv = ["nice", str(DASK), *words]
            self.processes[name] = subprocess.Popen(argv, stdout=log, stderr=log, cwd=self.folder)

    def worker(self, name: str, *more: str, threads: int = 1) -> None:
        """Start one; it is there some seconds later."""
        kept = ("--no-nanny", "--no-dashboard", "--local-directory", str(self.folder / "scratch"))
        self.start(name, "worker", self.address, "--name", name, "--nthreads", str(threads), *kept, *more)

    def there(self, name: str) -> bool:
        return "Registered to" in (self.folder / f"{name}.log").read_text()

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self.processes[name].pid, number)

    def end(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()


@contextmanager
def cluster(folder: Path, workers: int = 0) -> Iterator[Dask]:
    dask = Dask(folder)
    try:
        dask.start("scheduler", "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
                   "--scheduler-file", str(dask.file))  # fmt: skip
        wait_for(lambda: bool(dask.found()))
        dask.address = dask.found()
        for n in range(workers):
            dask.worker(f"w{n}")
        yield dask
    finally:
        for name in list(dask.processes):
            dask.end(name)


@contextmanager
def worker_that_loads(dask: Dask, name: str, file: Path, text: str) -> Iterator[None]:
    """One more worker, which loads that file first."""
    file.write_text(text)
    dask.worker(name, "--preload", str(file))
    wait_for(lambda: dask.there(name))
    try:
        yield
    finally:
        dask.end(name)


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# --- What is simulated ---

SCENARIO = """
[run]
seconds = 0.02
warmup = 0.01
cores = 2
[device]
profile = "optane"
[[tenant]]
name = "a"
jobs = 2
iodepth = 16
[[tenant]]
name = "b"
trace = "b.trace"
"""
STUDY = """
scenarios = ["small.toml"]
knobs = ["none", "mqfq"]
figures = ["total_iops", "share_error"]
seeds = 20
"""


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dask]:
    program.build()
    with cluster(tmp_path_factory.mktemp("dask"), 1) as found:
        yield found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(SCENARIO)
    (tmp_path / "b.trace").write_text("".join(f"{n * 10_000} 0 {n * 64} 8 1\n" for n in range(2000)))
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def table(out: Path) -> bytes:
    return (out / "study.parquet").read_bytes()


def test_a_study_on_a_cluster_ends_in_the_same_bytes_traces_included(dask: Dask, file: Path, tmp_path: Path) -> None:
    assert cli.main(["study", str(file), "--out", str(tmp_path / "here")]) == 0
    assert cli.main(["study", str(file), "--out", str(tmp_path / "there"), "--cluster", dask.address]) == 0
    assert table(tmp_path / "there") == table(tmp_path / "here")


@pytest.mark.parametrize("task_s", [0.0, 0.1])
def test_workers_that_die_hang_and_come_cost_no_unit_and_change_no_byte(
    dask: Dask, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task_s: float
) -> None:
    """One dies at a quarter, one comes and one hangs at a half, with one unit or a few of them."""
    monkeypatch.setattr(of_cluster, "TASK_S", task_s)
    sizes = task_sizes(monkeypatch)
    monkeypatch.setattr(of_cluster, "HANG_S", 3.0)
    monkeypatch.setattr(of_cluster, "FETCH_S", 3.0)
    assert cli.main(["study", str(file), "--out", str(tmp_path / "here")]) == 0
    for name in ("dies", "hangs"):
        dask.worker(name)
    wait_for(lambda: dask.there("dies") and dask.there("hangs"))
    news: list[str] = []
    left = [(0.25, lambda: dask.signal("dies", signal.SIGKILL)), (0.5, lambda: dask.worker("comes")),
            (0.5, lambda: dask.signal("hangs", signal.SIGSTOP))]  # fmt: skip

    def tell(now: Progress) -> None:
        if now.news:
            news.append(now.step)
            print(f"{now.fraction:.2f} {now.step}")
        while left and now.fraction >= left[0][0]:
            left.pop(0)[1]()

    what = study.prepare(study_file.load(file), Simulator(None, Options(cluster=dask.address)), tmp_path / "there")
    study.run(what, tell)
    assert study.write_table(what).read_bytes() == table(tmp_path / "here")
    units = [json.loads(line)[0] for line in (tmp_path / "there" / "units.jsonl").read_text().splitlines()]
    assert sorted(units) == sorted(unit.job.id for unit in what.units), "each once"
    assert (max(sizes) > 1) == (task_s > 0), sizes
    for name in ("dies", "hangs", "comes"):
        dask.end(name)


def test_the_bench_on_a_cluster_finds_the_same(dask: Dask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairlane.isolbench import suite  # noqa: PLC0415

    tiny = suite.Scale("quick", 0.02, 0.01, (1, 4), (1, 4), (2, 4), (65536,), 3, (0.001, 0.06))
    monkeypatch.setattr(suite, "scale", lambda _quick, _backend: tiny)
    argv = ["bench", "--quick", "--on", "sim:optane", "--suite", "d4", "--out"]
    assert cli.main([*argv, str(tmp_path / "here")]) == 0
    assert cli.main([*argv, str(tmp_path / "there"), "--cluster", dask.address]) == 0
    for one in sorted((tmp_path / "here" / "units").iterdir()):
        assert (tmp_path / "there" / "units" / one.name).read_bytes() == one.read_bytes()


OLDER = 'import fairlane\nfairlane.__version__ = "0.0.9"\n'


def test_a_worker_of_another_version_is_refused_by_name(
    dask: Dask, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with worker_that_loads(dask, "old", tmp_path / "older.py", OLDER):
        assert cli.main(["study", str(file), "--out", str(tmp_path / "out"), "--cluster", dask.address]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "worker old at tcp://" in said
    assert "has fairlane 0.0.9 (" in said and "install the same wheel there" in said
    assert (tmp_path / "out" / "units.jsonl").read_text() == ""


def test_a_worker_of_another_version_that_comes_in_the_middle_gets_nothing(
    dask: Dask, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_cluster, "TASK_S", 0.0)
    assert cli.main(["study", str(file), "--out", str(tmp_path / "here")]) == 0
    (tmp_path / "older.py").write_text(OLDER)
    news: list[str] = []
    come = threading.Event()

    def tell(now: Progress) -> None:
        if now.news:
            news.append(now.step)
        if now.fraction > 0.1 and not come.is_set():
            come.set()
            dask.worker("late", "--preload", str(tmp_path / "older.py"))
            wait_for(lambda: dask.there("late"))

    what = study.prepare(study_file.load(file), Simulator(None, Options(cluster=dask.address)), tmp_path / "there")
    try:
        study.run(what, tell)
    finally:
        dask.end("late")
    assert study.write_table(what).read_bytes() == table(tmp_path / "here")
    assert any("refused: worker late at tcp://" in said for said in news)


def test_a_unit_that_fails_is_named_with_its_worker_and_how_to_run_it_alone(
    dask: Dask, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Simulator, "check", lambda *_: None)  # which would say it before
    file.write_text(STUDY + "[vary.tenant.a]\ncores = [[0], [9]]\n")
    assert cli.main(["study", str(file), "--out", str(tmp_path / "out"), "--cluster", dask.address]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "[[tenant]] a cores must be numbers from 0 to 1" in said
    assert "(on worker w0 at tcp://" in said
    assert "to run unit 00" in said and ".given.json; and 39 more failed" in said
    assert (tmp_path / "out" / "units.jsonl").read_text().count("\n") == 40, "the others are done"
    assert not (tmp_path / "out" / "study.parquet").exists()


def task_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many units each task has that is sent from now on."""
    sizes, submit = list[int](), of_cluster._Session._submit

    def counted(session: of_cluster._Session, units: Sequence[of_cluster._Open]) -> None:
        sizes.append(len(units))
        submit(session, units)

    monkeypatch.setattr(of_cluster._Session, "_submit", counted)
    return sizes


FAILS_AT_SEVEN = """
from fairlane.backends import program
def but_seven(given, *more, play=program.play):
    if given["seed"] == 7:
        raise MemoryError("no memory for seven")
    return play(given, *more)
program.play = but_seven
"""


def test_a_unit_that_workers_fail_at_takes_no_other_of_its_task_with_it(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Told, "expected_s", lambda *_args: 0.0)  # so that sizes of tasks do not depend on time
    sizes = task_sizes(monkeypatch)
    (tmp_path / "seven.py").write_text(FAILS_AT_SEVEN)
    with cluster(tmp_path) as dask:
        dask.worker("w", "--preload", str(tmp_path / "seven.py"))
        assert cli.main(["study", str(file), "--out", str(tmp_path / "out"), "--cluster", dask.address]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "4 workers failed; the last: worker w at tcp://" in said
    assert ": no memory for seven" in said
    assert "and 1 more failed" in said
    assert done(tmp_path / "out") == 38, "all but the seventh of each knob"
    assert max(sizes) > 1 and sizes.count(1) >= 6, "the seventh of each knob alone"


def test_a_worker_that_fails_at_everything_costs_no_unit(dask: Dask, file: Path, tmp_path: Path) -> None:
    never = FAILS_AT_SEVEN.replace('given["seed"] == 7', "True")
    with worker_that_loads(dask, "never", tmp_path / "never.py", never):
        assert cli.main(["study", str(file), "--out", str(tmp_path / "out"), "--cluster", dask.address]) == 0
    assert done(tmp_path / "out") == 40


@pytest.mark.long
def test_a_unit_that_no_worker_lives_through_is_named(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker is started again by Dask each time, at another port."""
    monkeypatch.setattr(of_cluster, "HANG_S", 5.0)
    file.write_text(STUDY.replace('"none", ', ""))
    deadly = FAILS_AT_SEVEN.replace('raise MemoryError("no memory for seven")', "import os; os._exit(1)")
    (tmp_path / "deadly.py").write_text(deadly)
    with cluster(tmp_path) as dask:
        words = ("worker", dask.address, "--nthreads", "1", "--no-dashboard", "--preload", str(tmp_path / "deadly.py"))
        dask.start("w", *words)
        assert cli.main(["study", str(file), "--out", str(tmp_path / "out"), "--cluster", dask.address]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "no worker lived through it" in said or "workers died of it" in said
    assert done(tmp_path / "out") == 19, "the others are done"


def test_a_trace_that_is_too_large_to_travel_is_refused(
    dask: Dask, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_cluster, "TRACES_MAX", 1 << 10)
    assert cli.main(["study", str(file), "--out", str(tmp_path / "out"), "--cluster", dask.address]) == 2
    assert "b.trace: a trace of more than 0 MiB does not travel" in capsys.readouterr().err


def test_a_scheduler_that_is_not_there_is_said(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_cluster, "CONNECT_S", 1.0)
    for address in ("tcp://127.0.0.1:9", "moon"):
        assert cli.main(["study", str(file), "--out", str(tmp_path / "out"), "--cluster", address]) == 2
        said = capsys.readouterr().err.splitlines()[-1]
        assert f"--cluster {address}: no Dask scheduler answers there" in said


def test_a_cluster_without_workers_is_said(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_cluster, "WORKERS_S", 1.0)
    with cluster(tmp_path) as empty:
        assert cli.main(["study", str(file), "--out", str(tmp_path / "out"), "--cluster", empty.address]) == 2
    assert "has no workers; start one with `dask worker tcp://" in capsys.readouterr().err


def test_a_scheduler_that_dies_loses_nothing_that_is_done(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_cluster, "TASK_S", 0.0)
    with cluster(tmp_path, 1) as mortal:

        def ends() -> None:
            wait_for(lambda: done(tmp_path / "out") > 5)
            mortal.end("scheduler")

        timer = threading.Thread(target=ends)
        timer.start()
        assert cli.main(["study", str(file), "--out", str(tmp_path / "out"), "--cluster", mortal.address]) == 2
        timer.join()
    said = capsys.readouterr().err.splitlines()[-1]
    assert "the scheduler no longer answers; what is done is kept, and the same command goes on" in said
    assert done(tmp_path / "out") > 5


def done(out: Path) -> int:
    file = out / "units.jsonl"
    return file.read_text().count("\n") if file.exists() else 0


# --- As large as real ones ---

MANY = """
scenarios = ["small.toml"]
knobs = ["none", "kyber-fairness", "mqflashfq", "mqfq"]
figures = ["total_iops", "share_error", "lat_p99_us of a"]
seeds = 100
[vary.tenant.a]
iodepth = [1, 2, 8, 32, 128]
[vary.run]
seconds = "100ms"
"""


@pytest.mark.long
def test_two_thousand_units_on_workers_that_die_and_come(tmp_path: Path) -> None:
    """With -s, it prints how long each took. A worker that is there twice should halve that, on two idle cores."""
    (tmp_path / "small.toml").write_text(SCENARIO.replace('trace = "b.trace"', "iodepth = 32"))
    file = tmp_path / "study.toml"
    file.write_text(MANY)
    took: dict[str, float] = {}

    def timed(name: str, backend: Simulator, tell: Callable[[Progress], None] = lambda _now: None) -> bytes:
        what = study.prepare(study_file.load(file), backend, tmp_path / name)
        assert len(what.units) == 2000
        started, said = time.monotonic(), list[tuple[float, float]]()

        def told(now: Progress) -> None:
            if now.left_s is not None:
                said.append((time.monotonic(), now.left_s))
            tell(now)

        study.run(what, told)
        end = time.monotonic()
        took[name] = end - started
        off = [left / (end - at) - 1 for at, left in said if 0.1 <= (at - started) / took[name] <= 0.9]
        print(f"{name}: {took[name]:.1f} s; time left from a tenth on: {min(off):+.0%} to {max(off):+.0%}", flush=True)
        return study.write_table(what).read_bytes()

    here = timed("this machine's cores", Simulator())
    (tmp_path / "dask").mkdir()
    with cluster(tmp_path / "dask", 1) as dask:
        there = Simulator(None, Options(cluster=dask.address))
        wait_for(lambda: dask.there("w0"))
        assert timed("one worker", there) == here
        dask.worker("w1")
        wait_for(lambda: dask.there("w1"))
        assert timed("two workers", there) == here
        todo = [(1 / 3, lambda: dask.signal("w0", signal.SIGKILL)), (1 / 2, lambda: dask.worker("w2"))]

        def tell(now: Progress) -> None:
            while todo and now.fraction >= todo[0][0]:
                todo.pop(0)[1]()

        assert timed("two, one killed at a third, one added at a half", there, tell) == here
        assert todo == []
    print(f"speed-up from one worker to two: {took['one worker'] / took['two workers']:.2f}")


SLOW = """
from pathlib import Path
from fairlane.backends import program
program.PROGRAM = Path('FOLDER') / 'slow-fl-sim'
"""


@pytest.mark.long
def test_twice_the_workers_take_half_the_time(tmp_path: Path) -> None:
    """Where it is the workers that take it: their fl-sim sleeps, so that two of them need no more CPUs than one."""
    (tmp_path / "small.toml").write_text(SCENARIO.replace('trace = "b.trace"', "iodepth = 32"))
    (tmp_path / "slow.py").write_text(SLOW.replace("FOLDER", str(tmp_path)))
    slow = tmp_path / "slow-fl-sim"
    slow.write_text(f'#!/bin/sh\nsleep 0.3\nexec {program.PROGRAM} "$@"\n')
    slow.chmod(0o755)
    file = tmp_path / "study.toml"
    file.write_text(STUDY.replace("seeds = 20", "seeds = 100"))
    took: list[float] = []
    with cluster(tmp_path) as dask:
        for name in ("one", "two"):
            dask.worker(name, "--preload", str(tmp_path / "slow.py"))
            wait_for(lambda name=name: dask.there(name))  # type: ignore[misc]
            backend = Simulator(None, Options(cluster=dask.address))
            what = study.prepare(study_file.load(file), backend, tmp_path / f"out-{name}")
            started = time.monotonic()
            study.run(what, lambda _now: None)
            took.append(time.monotonic() - started)
    print(f"one worker: {took[0]:.1f} s; two: {took[1]:.1f} s; speed-up: {took[0] / took[1]:.2f}")
    assert took[0] / took[1] > 1.8
