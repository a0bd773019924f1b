# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM whose kernel fails on request: allocations, bios and the drive's own requests fail, in turn and together.

Whoever asked is told so, or asked again; nothing is lost, and when nothing fails any more all is as it was.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import random
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import kit
from kit import OURS, Cgroup, Fio

from fairlane.linux import made_drives
from fairlane.vm.guest import CGROUPS

DEBUG = Path("/sys/kernel/debug")
CPU = Path("/sys/devices/system/cpu/cpu1/online")
MEMORY = {"size": 64 << 20, "memory_backed": 1, "irqmode": 2, "completion_nsec": 200_000}
READS = 50
EXPECTED = (errno.EIO, errno.ENOMEM, errno.ETIMEDOUT, errno.EAGAIN)


@contextlib.contextmanager
def failing(folder: Path, per_cent: int, **more: str) -> Iterator[None]:
    """So many of a hundred fail, without a word in the log."""
    for name, value in {"times": "-1", "interval": "1", "verbose": "0", **more, "probability": str(per_cent)}.items():
        if (folder / name).exists():
            (folder / name).write_text(value)
    try:
        yield
    finally:
        (folder / "probability").write_text("0")


def in_child(work: Callable[[], None], *, doomed: bool) -> int:
    """The process that does the work; if it is doomed, allocations fail for it and for nobody else."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        if doomed:
            Path("/proc/self/make-it-fail").write_text("1")
        work()
        status = 0
    except BaseException as error:
        spare()
        # What prepares the work allocates, too.
        if doomed and isinstance(error, MemoryError | OSError) and getattr(error, "errno", None) in (None, *EXPECTED):
            status = 0
        else:
            traceback.print_exception(error)
    finally:
        os._exit(status)


def spare() -> None:
    """Nothing fails for this process any more; else it could not say what failed."""
    while True:
        with contextlib.suppress(OSError, MemoryError):
            Path("/proc/self/make-it-fail").write_text("0")
            return


def reap(pids: list[int]) -> None:
    for pid in pids:
        code = kit.exit_code(pid, "who does I/O comes to an end")
        assert code == 0, f"an error that was not asked for: {code}; see above"


def reads(disk: str, cgroup: Path) -> Callable[[], None]:
    """Reads of random blocks, each of which may fail as it was told to."""

    buffer = mmap.mmap(-1, kit.BLOCK)  # before anything fails

    def work() -> None:
        numbers = random.Random(os.getpid())
        with contextlib.suppress(OSError):  # moving there allocates
            (cgroup / "cgroup.procs").write_text("0")
        for _ in range(READS):
            try:
                fd = os.open(f"/dev/{disk}", os.O_RDONLY | os.O_DIRECT)
                try:
                    os.preadv(fd, [buffer], numbers.randrange(4096) * kit.BLOCK)
                finally:
                    os.close(fd)
            except OSError as error:
                if error.errno not in EXPECTED:
                    raise
            except MemoryError:
                pass

    return work


def switches(disk: str) -> Callable[[], None]:
    """Cgroups made and removed, weights given, schedulers chosen: what fails leaves nothing behind."""

    def work() -> None:
        group = CGROUPS / "doomed"
        for turn in range(READS):
            name = ("none", OURS)[turn % 2]
            for path, text in (
                (kit.scheduler_file(disk, OURS), name),
                (CGROUPS / "late" / "io.fairlane.weight", str(1 + turn)),
            ):
                with contextlib.suppress(OSError):
                    path.write_text(text)
            with contextlib.suppress(OSError):
                group.mkdir()
                (group / "io.fairlane.weight").write_text("7")
            with contextlib.suppress(OSError):
                group.rmdir()

    return work


def allocations_fail() -> None:
    for folder, more in (
        (DEBUG / "failslab", {"task-filter": "Y", "ignore-gfp-wait": "N"}),
        (DEBUG / "fail_page_alloc", {"task-filter": "Y", "ignore-gfp-wait": "N", "min-order": "0"}),
    ):
        with kit.drive(completion_nsec=200_000) as disk:
            late = CGROUPS / "late"
            late.mkdir()
            for per_cent in (5, 30):
                cgroups = [Cgroup(10), Cgroup(1000)]
                with failing(folder, per_cent, **more):
                    pids = [in_child(reads(disk, cgroup.path), doomed=True) for cgroup in cgroups]
                    pids.append(in_child(switches(disk), doomed=True))
                    reap(pids)
                gets_on(disk, cgroups)
            late.rmdir()
            if (left := CGROUPS / "doomed").exists():
                left.rmdir()
        kit.all_given_back()


def gets_on(disk: str, cgroups: list[Cgroup]) -> None:
    """Nothing fails any more: every one of them is counted and gets on."""
    kit.set_scheduler(disk, OURS)
    with kit.readers_of(disk, cgroups) as readers:
        kit.wait_all_read(readers, "all get on when nothing fails any more")
        kit.wait_for(lambda: all(cgroup.requests(disk) > 0 for cgroup in cgroups), "each has its own flow")
    for cgroup in cgroups:
        cgroup.remove()


def bios_fail() -> None:
    with kit.drive(completion_nsec=200_000) as disk:
        Path("/sys/block", disk, "make-it-fail").write_text("1")
        cgroups = [Cgroup(10), Cgroup(1000)]
        with failing(DEBUG / "fail_make_request", 30):
            reap([in_child(reads(disk, cgroup.path), doomed=False) for cgroup in cgroups * 2])
        gets_on(disk, cgroups)
    kit.all_given_back()


def the_drive_requeues() -> None:
    """Half of its requests come back once, while schedulers and CPUs change; data are what was written."""
    with kit.drive(OURS, **MEMORY) as disk:
        cgroups = [Cgroup(1000), Cgroup(10)]
        verify = {"rw": "randwrite", "size": "2m", "verify": "crc32c", "verify_fatal": 1, "verify_backlog": 32}
        with failing(made_drives.NULLB / "requeue_inject", 50):
            for scheduler in (OURS, "none", OURS):
                fios = [
                    Fio(disk, cgroups[0], **verify, ioengine="libaio", iodepth=32),
                    Fio(disk, cgroups[1], **verify, ioengine="io_uring", iodepth=4, offset="32m"),
                ]
                CPU.write_text("0")
                kit.set_scheduler(disk, scheduler)
                CPU.write_text("1")
                for fio in fios:
                    fio.finish()
        for cgroup in cgroups:
            cgroup.remove()
    kit.all_given_back()


def the_drive_times_out() -> None:
    """A request that the drive forgets ends when its time is up, and its tenant's tags and tokens with it."""
    with kit.drive(completion_nsec=200_000) as disk:
        kit.queue(disk, "io_timeout").write_text("200")
        cgroups = [Cgroup(10), Cgroup(1000)]
        with failing(made_drives.NULLB / "timeout_inject", 10):
            for scheduler in (OURS, "none", OURS):
                pids = [in_child(reads(disk, cgroup.path), doomed=False) for cgroup in cgroups * 4]
                kit.set_scheduler(disk, scheduler)
                reap(pids)
        gets_on(disk, cgroups)
    kit.all_given_back()


kit.sections(allocations_fail, bios_fail, the_drive_requeues, the_drive_times_out)
