# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What the torture scripts share: drives, cgroups, load of which one knows that it flows, and waiting with a limit."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import fcntl
import itertools
import json
import mmap
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from fairlane import proc, schedulers
from fairlane.experiment.model import Profile
from fairlane.linux import made_drives
from fairlane.vm.guest import CGROUPS
from fairlane.vm.kernels import SCHEDULERS, checks

# Those that route have torture_route.py.
ALL_OURS = tuple(name for name in schedulers.NAMES if name not in schedulers.ROUTING)
BESIDE = tuple(name for name in ALL_OURS if name not in schedulers.ELEVATORS)  # in fairlane/scheduler
FIRST = schedulers.ELEVATORS[0]
OURS = os.environ.get("FAIRLANE_TORTURED", FIRST)  # the one under test
MODULE = next(each.module for each in schedulers.SCHEDULERS if each.name == OURS)
OTHERS = ("none", "kyber", "bfq", "mq-deadline")
# The kernel checks itself. It finds an error where the code passes for the first time, and is many times as slow: each
# path is taken, with others beside it, but seldom; and nothing is asked of shares, rates or times.
CHECKED = checks(os.uname().release)
LIMIT_S = 180.0 * (2 if CHECKED else 1)  # of a hang: a busy machine takes its time
GONE_S = 10.0  # in which a request of a drive that is gone has its error
BLOCK = 4096
LOOP_SET_FD, LOOP_CLR_FD = 0x4C00, 0x4C01
# Slow enough to leave the emulated CPU idle now and then, and to have requests wait in the scheduler.
TIMED = {"size": 1 << 30, "bs": 512, "queue_mode": 2, "irqmode": 2, "submit_queues": 2, "hw_queue_depth": 16}
ON_VSSD = os.environ.get("FAIRLANE_TORTURED_DRIVE") == "vssd"
FOLDER = made_drives.VSSD if ON_VSSD else made_drives.NULLB  # of the drive, in configfs
VSSD = {"channels": 2, "dies": 2, "commands": 16}
VSSD_NS = 100_000  # about what it takes for a request

T = TypeVar("T")
_numbers = itertools.count()
_logs = Path(tempfile.mkdtemp(prefix="torture-"))


def sections(*tests: Callable[[], None]) -> None:
    """Run the tests that the command line names, or all of them, and say how long each took.

    Briefly, whether all is given back is looked at once, after the last of them.
    """
    chosen = sys.argv[2:]
    os.nice(-15)  # what looks must not wait for what is looked at
    for test in tests:
        if not chosen or test.__name__ in chosen:
            start = time.monotonic()
            print("begins", test.__name__, file=sys.stderr, flush=True)
            faulthandler.dump_traceback_later(2 * LIMIT_S, repeat=True)  # where it stands, should it stand still
            test()
            faulthandler.cancel_dump_traceback_later()
            print(test.__name__, f"{time.monotonic() - start:.1f} s", flush=True)
    if BRIEFLY:
        start = time.monotonic()
        reload_modules()
        print("reload_modules", f"{time.monotonic() - start:.1f} s", flush=True)


BRIEFLY = CHECKED or "FAIRLANE_TORTURED_BRIEFLY" in os.environ  # in `make test`
# The first of ours goes through everything, the others share most of it with it.
ALL = OURS in (FIRST, *BESIDE) and not BRIEFLY


# Of three cgroups. Far apart, but not where there are so few requests that the lightest would wait for minutes.
WEIGHTS = (200, 100, 50) if CHECKED else (1000, 100, 1)


def often(times: int, checked: int) -> int:
    """How often to do it; the second number is for a kernel that checks itself."""
    return checked if CHECKED else max(1, times // (1 if ALL else 8 if BRIEFLY else 4))


def wait_for(look: Callable[[], T], what: str, limit_s: float = LIMIT_S) -> T:
    """What look() returns, as soon as that is true."""
    deadline = time.monotonic() + limit_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {limit_s:.0f} s: {what}"
        time.sleep(0.005)
    return found


# --- Drives ---


@contextlib.contextmanager
def drive(scheduler: str = OURS, **params: int) -> Iterator[str]:
    """A null_blk with these parameters, or a virtual SSD that is about as large and as slow."""
    profile = Profile("torture", "null_blk", "", {**TIMED, **params})
    if ON_VSSD:
        scale = max(1, params.get("completion_nsec", 0) // VSSD_NS)
        size = params.get("size", 256 << 20)
        asked = {"size": size, "memory": size, "time_scale": scale, "buffer_volatile": int("cache_size" in params)}
        profile = Profile("torture", "ssd", "", {**VSSD, **asked})
    with made_drives.setup(profile) as disk:
        set_scheduler(disk, scheduler)
        if CHECKED and (wbt := queue(disk, "wbt_lat_usec")).exists():
            wbt.write_text("2000")  # on, whoever turned it off; little enough to throttle
        yield disk


def folder(name: str) -> Path:
    """A new folder, for a file system say."""
    path = _logs / name
    path.mkdir()
    return path


def queue(disk: str, name: str) -> Path:
    return Path("/sys/block", disk, "queue", name)


def scheduler_file(disk: str, name: str) -> Path:
    """Where the scheduler of that name is chosen."""
    return Path("/sys/block", disk, "fairlane" if name in BESIDE else "queue", "scheduler")


def variables(disk: str) -> Path:
    """The folder with those of the scheduler under test."""
    return Path("/sys/block", disk, "fairlane") if OURS in BESIDE else queue(disk, "iosched")


def set_scheduler(disk: str, name: str) -> None:
    other = scheduler_file(disk, FIRST if name in BESIDE else BESIDE[0])
    if other.exists():
        other.write_text("none")
    scheduler_file(disk, name).write_text(name)
    said = scheduler_file(disk, name).read_text()
    assert f"[{name}]" in said or said.strip() == name, f"asked for {name}, the drive has {said}"


def counts(disk: str) -> dict[str, int]:
    """Requests that the drive has completed, by kind."""
    fields = [int(field) for field in Path("/sys/block", disk, "stat").read_text().split()]
    return {"reads": fields[0], "writes": fields[4], "discards": fields[11], "flushes": fields[15]}


def tracing() -> Path:
    """The folder of tracefs."""
    path = Path("/sys/kernel/tracing")
    if not (path / "events").exists():
        proc.output(["mount", "-t", "tracefs", "none", path], what="mounting tracefs", limit_s=LIMIT_S)
    return path


@contextlib.contextmanager
def loop_device(size: int) -> Iterator[str]:
    """A loop device on a new file; each time a new drive to Linux, though mostly of the same name."""
    proc.modprobe("loop")
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.truncate(size)
        path = proc.output(["losetup", "--find"], what="losetup", limit_s=LIMIT_S).strip()
        fd = os.open(path, os.O_RDWR)
        try:
            fcntl.ioctl(fd, LOOP_SET_FD, file.fileno())
            yield Path(path).name
            fcntl.ioctl(fd, LOOP_CLR_FD)
        finally:
            os.close(fd)


def run(*argv: str | Path) -> str:
    """Run a command to its end, which must be a good one; what it prints."""
    return proc.output(argv, what=str(argv[0]), limit_s=LIMIT_S)


@contextlib.contextmanager
def mapped(name: str, table: str) -> Iterator[Path]:
    """A device of the device mapper's."""
    run("dmsetup", "create", name, "--table", table)
    try:
        yield Path("/dev/mapper", name)
    finally:
        run("dmsetup", "remove", name)


def log_after(since: str, what: str) -> list[str]:
    """The lines in the kernel's log with that text, after the one that was noted."""
    lines = run("dmesg").splitlines()
    at = max(i for i, line in enumerate(lines) if line.endswith(since))
    return [line for line in lines[at + 1 :] if what in line]


def note(text: str) -> str:
    """Write it into the kernel's log, with a number that makes it one of a kind."""
    said = f"{text} {next(_numbers)}"
    Path("/dev/kmsg").write_text(f"{said}\n")
    return said


def in_flight(disk: str) -> int:
    return sum(map(int, Path("/sys/block", disk, "inflight").read_text().split()))


def done(disk: str) -> int:
    return sum(counts(disk).values())


def wait_flow(disk: str, what: str, requests: int = 20, ends: Callable[[], bool] = lambda: False) -> None:
    """I/O goes on: so many more requests complete, unless whoever sends them comes to its end."""
    before = done(disk)
    try:
        wait_for(lambda: done(disk) >= before + requests or ends(), f"I/O goes on {what}")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{stuck()}") from None


# --- Cgroups ---


class Cgroup:
    """A cgroup, made; inner ones hand the I/O controller on to their children."""

    def __init__(self, weight: int | None = None, parent: Cgroup | None = None) -> None:
        self.path: Path = (parent.path if parent else CGROUPS) / f"t{next(_numbers)}"
        self.path.mkdir()
        if weight is not None:
            self.file("weight").write_text(str(weight))

    def delegate(self) -> Cgroup:
        (self.path / "cgroup.subtree_control").write_text("+io")
        return self

    def file(self, name: str) -> Path:
        return self.path / f"io.fairlane.{name}"

    def stat(self, disk: str) -> dict[str, float]:
        """Its line for that drive in io.fairlane.stat; empty when there is none."""
        return stat(self.path, disk)

    def requests(self, disk: str) -> int:
        line = self.stat(disk)
        return int(sum(line.get(key, 0) for key in ("rios", "wios", "dios", "oios")))

    def wait_for(self, kind: str, disk: str) -> None:
        """A request of it is done that counts as this, such as rios."""
        wait_for(lambda: self.stat(disk).get(kind), f"{self.path} has some {kind}")

    def pids(self) -> list[str]:
        return (self.path / "cgroup.procs").read_text().split()

    def take_all(self, other: Cgroup) -> None:
        """Move every process of the other one here."""
        while pids := other.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    (self.path / "cgroup.procs").write_text(pid)

    def remove(self) -> None:
        def gone() -> bool:
            try:
                self.path.rmdir()
            except OSError:  # its last process is just leaving
                return False
            return True

        wait_for(gone, f"{self.path} can be removed")


def stat(cgroup: Path, disk: str) -> dict[str, float]:
    number = Path("/sys/block", disk, "dev").read_text().strip()
    lines = [line.split() for line in (cgroup / "io.fairlane.stat").read_text().splitlines()]
    mine = [words[1:] for words in lines if words[0] == number]
    assert len(mine) <= 1, f"one line per device: {lines}"
    return {key: float(value) for word in (mine[0] if mine else []) for key, value in [word.split("=")]}


# --- Load ---


class Fio:
    """A fio that runs until it is stopped, or to its end."""

    def __init__(self, target: str | Path, cgroup: Cgroup | None = None, /, **options: object) -> None:
        self.out = _logs / f"fio{next(_numbers)}"
        self.path = Path("/dev") / target
        given = {
            "name": "t",
            "filename": self.path,
            "direct": 1,
            "bs": "4k",
            "randrepeat": 0,
            "thinktime": 0,
            # When the drive goes, who has no request there just then is told that it is at the end, and would go on.
            "exitall_on_error": 1,
            **options,
        }
        if not {"loops", "verify"} & given.keys():
            given |= {"time_based": 1, "runtime": 600}
        join = (cgroup.path if cgroup else CGROUPS) / "cgroup.procs"
        argv = [
            "sh",
            "-c",
            'echo 0 > "$0" && exec nice -n 15 fio "$@"',
            str(join),
            "--output-format=json",
            f"--output={self.out}",
        ]
        argv += [f"--{key}={value}" for key, value in given.items()]
        with self.out.with_suffix(".err").open("w") as err:
            self.process = subprocess.Popen(argv, stdout=err, stderr=err, cwd=_logs, start_new_session=True)

    def said(self) -> str:
        return "\n".join(path.read_text() for path in (self.out, self.out.with_suffix(".err")) if path.exists())

    def running(self) -> None:
        assert self.process.poll() is None, f"fio ended by itself:\n{self.said()[-2000:]}"

    def wait(self, limit_s: float = LIMIT_S) -> int:
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"fio does not end: a request is lost, or never sent\n{stuck()}") from None

    def end(self) -> None:
        """Its drive is gone: a request that was there then has an error, which ends it. One that comes later only hears
        that the drive is at its end; where all did, it would go on, and is stopped. None may be lost."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GONE_S)
            return
        self.process.send_signal(signal.SIGINT)
        self.wait()

    def finish(self, limit_s: float = LIMIT_S) -> int:
        """Let it come to its end, which must be a good one; the number of its requests."""
        status = self.wait(limit_s)
        assert status == 0, f"fio ended with exit status {status}:\n{self.said()[-2000:]}"
        return self._requests()

    def stop(self) -> int:
        """End it; no request may have failed or be lost. The number of its requests."""
        self.running()
        self.process.send_signal(signal.SIGINT)
        self.wait()
        return self._requests()

    def _requests(self) -> int:
        text = self.out.read_text()
        jobs: list[dict[str, Any]] = json.loads(text[text.index("{\n") :])["jobs"]
        assert all(job["error"] == 0 for job in jobs), f"I/O errors:\n{self.said()[-2000:]}"
        requests = [sum(job[op]["total_ios"] for op in ("read", "write", "trim")) for job in jobs]
        assert all(requests), f"a job of fio's did no I/O: {requests}"
        return sum(requests)


class Reader:
    """A process that reads a random block, waits for it, and so on, and counts."""

    def __init__(self, disk: str, cgroup: Cgroup) -> None:
        self._count = mmap.mmap(-1, mmap.PAGESIZE)
        self.pid = os.fork()
        if self.pid == 0:
            self._work(Path("/dev", disk), cgroup.path / "cgroup.procs")

    def _work(self, path: Path, procs: Path) -> NoReturn:
        try:
            procs.write_text("0")
            os.nice(15)
            buffer = mmap.mmap(-1, BLOCK)
            fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
            blocks = os.lseek(fd, 0, os.SEEK_END) // BLOCK
            numbers = random.Random(os.getpid())
            while os.preadv(fd, [buffer], numbers.randrange(blocks) * BLOCK) == BLOCK:
                self._count[:8] = (self.done() + 1).to_bytes(8, "little")
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def done(self) -> int:
        return int.from_bytes(self._count[:8], "little")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def reap(self) -> None:
        """It was killed and ends: none of its requests is lost. Nothing else may have ended it."""
        assert exit_code(self.pid, "a killed reader ends") == -signal.SIGKILL, "a read failed"


def exit_code(pid: int, what: str) -> int:
    """Of a child, once it has ended; minus the signal that ended it."""
    status: list[int] = []

    def ended() -> bool:
        done, how = os.waitpid(pid, os.WNOHANG)
        status.append(how)
        return done != 0

    try:
        wait_for(ended, what)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{stuck()}") from None
    return os.waitstatus_to_exitcode(status[-1])


def wait_all_read(readers: list[Reader], what: str) -> None:
    """Every one of them gets on."""
    before = [reader.done() for reader in readers]
    try:
        wait_for(lambda: all(reader.done() > old for reader, old in zip(readers, before, strict=True)), what)
    except AssertionError as error:
        still = sum(reader.done() == old for reader, old in zip(readers, before, strict=True))
        raise AssertionError(f"{error}; {still} of {len(readers)} readers stand still\n{stuck()}") from None


@contextlib.contextmanager
def readers_of(disk: str, cgroups: list[Cgroup]) -> Iterator[list[Reader]]:
    """A reader in each of the cgroups."""
    with ExitStack() as stack:
        readers = []
        for cgroup in cgroups:
            readers.append(Reader(disk, cgroup))
            stack.callback(readers[-1].reap)
        for reader in readers:
            stack.callback(reader.kill)
        yield readers


def waits_in_the_kernel(pid: int | str) -> bool:
    """Nothing can interrupt it there."""
    with contextlib.suppress(OSError):
        return task_state(Path("/proc", str(pid))) == "D"
    return False


def stuck() -> str:
    """Where the tasks wait that nothing can interrupt, and where fio does, which sleeps when a request is lost."""
    said: list[str] = []
    asleep: list[str] = []
    for task in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        with contextlib.suppress(OSError):
            name, state = task.joinpath("comm").read_text().strip(), task_state(task)
            if state == "D" or name == "fio":
                where = said if state == "D" else asleep
                where.append(f"{name}, {state}\n{task.joinpath('stack').read_text()}")
    for disk in Path("/sys/block").iterdir():
        reads, writes = disk.joinpath("inflight").read_text().split()
        asleep.append(f"{disk.name}: {reads} reads and {writes} writes in flight")
    return "\n".join([*said[:5], *asleep[:20]])


def task_state(task: Path) -> str:
    """A letter: R, S, D, ..."""
    return task.joinpath("stat").read_text().rpartition(")")[2].split()[0]


# --- Modules ---

_DELETE_MODULE = {"x86_64": 176, "aarch64": 106}
_libc = ctypes.CDLL(None, use_errno=True)


def load_module(file: str) -> None:
    proc.output(["insmod", Path(sys.argv[1], file)], what=f"loading {file}", limit_s=LIMIT_S)


def load_modules() -> None:
    for name in SCHEDULERS:
        load_module(name)


def all_given_back() -> None:
    """No request keeps a removed cgroup's flow: fairlane.ko, which waits for the last of them, can be removed."""
    if not BRIEFLY:
        reload_modules()


def reload_modules() -> None:
    remove_modules()
    load_modules()


def remove_modules() -> None:
    refused = [name for name in reversed(SCHEDULERS) if remove_module(name.removesuffix(".ko"))]
    assert not refused, f"nobody uses them, and they cannot be removed: {refused}"


def remove_module(name: str) -> int:
    """0, or the errno with which the kernel refuses."""
    name = name.replace("-", "_")
    done = _libc.syscall(_DELETE_MODULE[platform.machine()], name.encode(), os.O_NONBLOCK)
    return ctypes.get_errno() if done else 0
