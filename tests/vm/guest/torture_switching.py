# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: what carries the I/O comes, goes and changes under load: scheduler, depth, CPU, module, drive."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import time
from pathlib import Path
from typing import NoReturn

import kit
from kit import OTHERS, OURS, Cgroup, Fio


def load(disk: str, cgroups: list[Cgroup]) -> list[Fio]:
    """Deep queues, NOWAIT and one at a time, all at once; each in its own cgroup."""
    options: list[dict[str, object]] = [
        {"ioengine": "libaio", "iodepth": 64, "rw": "randrw"},
        {"ioengine": "io_uring", "iodepth": 16, "rw": "randrw", "numjobs": 2},
        {"ioengine": "psync", "rw": "randread", "numjobs": 4},
    ]
    fios = [Fio(disk, cgroup, **more) for cgroup, more in zip(cgroups, options, strict=True)]
    for cgroup in cgroups:
        kit.wait_for(lambda cgroup=cgroup: cgroup.requests(disk) > 20, "every cgroup's I/O is counted")  # type: ignore[misc]
    return fios


def switched_over_and_over() -> None:
    with kit.drive(completion_nsec=2_000_000) as disk:
        cgroups = [Cgroup(weight) for weight in kit.WEIGHTS]
        fios = load(disk, cgroups)
        for scheduler in itertools.islice(
            (name for other in itertools.cycle(OTHERS) for name in (other, OURS)),
            2 * kit.often(50, checked=len(OTHERS)),
        ):
            kit.set_scheduler(disk, scheduler)
            kit.wait_flow(disk, f"under {scheduler}")
            lines = [bool(cgroup.stat(disk)) for cgroup in cgroups]
            assert lines == [scheduler == OURS] * 3, f"under {scheduler}, stat lines of the cgroups: {lines}"
        for cgroup in cgroups:
            before = cgroup.requests(disk)
            kit.wait_for(lambda: cgroup.requests(disk) > before, "every cgroup gets on at the end")  # noqa: B023
        for fio in fios:
            fio.stop()
        for cgroup in cgroups:
            cgroup.remove()
    kit.all_given_back()


def a_drives_own_settings_are_written_meanwhile() -> None:
    """
    Linux's writers of such take a lock, and then wait for the queue; a switch has the queue, and takes that lock. On
    6.1 a drive hangs by that among Linux's own schedulers, too (docs/using.md, What to expect).
    """
    if os.uname().release.startswith("6.1."):
        return
    with kit.drive(completion_nsec=2_000_000) as disk:
        cgroups = [Cgroup(weight) for weight in kit.WEIGHTS]
        fios = load(disk, cgroups)
        number = Path("/sys/block", disk, "dev").read_text().strip()
        writers = []
        settings = [(cgroups[1].file("weight"), "300")]
        if not kit.CHECKED:  # kmemleak finds what 6.12 makes for a drive's first line there, once that drive is gone
            settings.append((cgroups[0].path / "io.max", "rbps=max"))
        for file, line in settings:
            writers.append(os.fork())
            if not writers[-1]:
                write_over_and_over(file, f"{number} {line}")
        for scheduler in itertools.islice(itertools.cycle((OURS, *OTHERS)), kit.often(60, checked=12)):
            kit.set_scheduler(disk, scheduler)
            kit.wait_flow(disk, f"under {scheduler}")
        for writer in writers:
            os.kill(writer, signal.SIGKILL)
            os.waitpid(writer, 0)
        for fio in fios:
            fio.stop()
        for cgroup in cgroups:
            cgroup.remove()
    kit.all_given_back()


def write_over_and_over(file: Path, line: str) -> NoReturn:
    """Ours says no under another scheduler, which has none."""
    try:
        while True:
            with contextlib.suppress(OSError):
                file.write_text(f"{line}\n")
    finally:
        os._exit(1)


def depth_and_cpus_change() -> None:
    cpu = Path("/sys/devices/system/cpu/cpu1/online")
    with kit.drive(completion_nsec=2_000_000) as disk:
        cgroups = [Cgroup(weight) for weight in kit.WEIGHTS]
        fios = load(disk, cgroups)
        # Without an elevator there are no more than the drive takes.
        for depth in (1, 2, 16, 3) if OURS in kit.BESIDE else (1, 2, 256, 3, 64):
            kit.queue(disk, "nr_requests").write_text(str(depth))
            kit.wait_flow(disk, f"with {depth} requests per queue")
        for _ in range(1 if kit.CHECKED else 3):
            cpu.write_text("0")
            kit.wait_flow(disk, "with one CPU")
            cpu.write_text("1")
            kit.wait_flow(disk, "with both CPUs")
        for fio in fios:
            fio.stop()
        for cgroup in cgroups:
            cgroup.remove()
    kit.all_given_back()


def hardware_queues_come_and_go_meanwhile() -> None:
    """As in an NVMe drive's reset. Who chooses it meanwhile is refused, as with Linux's own, or it works."""
    if kit.ON_VSSD or OURS not in kit.BESIDE:
        return  # it has as many as it was made with; and Linux takes elevators away meanwhile
    chosen = refused = 0
    with kit.drive(completion_nsec=2_000_000) as disk:
        cgroups = [Cgroup(weight) for weight in kit.WEIGHTS]
        fios = load(disk, cgroups)
        writer = os.fork()
        if not writer:
            change_over_and_over(kit.FOLDER / "submit_queues", ("1", "2"))
        for scheduler in itertools.islice(itertools.cycle((OURS, "none")), 2 * kit.often(16, checked=4)):
            try:
                kit.scheduler_file(disk, OURS).write_text(scheduler)
                chosen += 1
            except OSError as error:  # so are Linux's own schedulers, now and then
                assert error.errno == errno.EBUSY, error
                refused += 1
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        print(f"chosen {chosen} times, refused {refused} times", flush=True)
        assert chosen, "never was there a moment to choose it"
        for scheduler in (OURS, "none"):
            kit.set_scheduler(disk, scheduler)
            kit.wait_flow(disk, f"in the end, under {scheduler}")
        for fio in fios:
            fio.stop()
        for cgroup in cgroups:
            cgroup.remove()
    kit.all_given_back()


def change_over_and_over(file: Path, values: tuple[str, ...]) -> NoReturn:
    try:
        for value in itertools.cycle(values):
            start = time.monotonic()
            file.write_text(value)
            time.sleep(time.monotonic() - start)
    finally:
        os._exit(1)


def reloaded_over_and_over() -> None:
    with kit.drive(completion_nsec=20_000_000) as disk:
        for _ in range(kit.often(20, checked=2)):
            cgroup, elsewhere = Cgroup(50), Cgroup()
            with kit.readers_of(disk, [cgroup, cgroup]):
                kit.wait_for(lambda: cgroup.requests(disk) > 3, "the cgroup's I/O is counted")  # noqa: B023
                refused = [kit.remove_module(kit.MODULE), kit.remove_module("fairlane")]
                assert refused == [errno.EWOULDBLOCK] * 2, f"in use, and removed: {refused}"
                kit.wait_for(lambda: kit.in_flight(disk), "requests are in flight")
                elsewhere.take_all(cgroup)
                cgroup.remove()
                # The cgroup is dying, kept by its requests; they end in the switch, and what they kept a little later.
                kit.set_scheduler(disk, "none")
                kit.remove_modules()
                assert not elsewhere.file("weight").exists()
                kit.wait_flow(disk, "without our modules", requests=4)
            elsewhere.remove()
            kit.load_modules()
            kit.set_scheduler(disk, OURS)


def drive_removed() -> None:
    for turn in range(2):
        with kit.drive(completion_nsec=5_000_000) as disk:
            cgroups = [Cgroup(weight) for weight in kit.WEIGHTS]
            fios = load(disk, cgroups)
            kit.wait_flow(disk, "before the removal", requests=kit.often(200, checked=30))
            for fio in fios:
                fio.running()
            start = time.monotonic()
            if turn % 2:
                kit.FOLDER.rmdir()
            else:
                (kit.FOLDER / "power").write_text("0")
            assert time.monotonic() - start < kit.LIMIT_S, "removing the drive takes for ever"
            for fio in fios:
                fio.end()
            assert not Path("/sys/block", disk).exists()
            for cgroup in cgroups:
                assert not cgroup.file("stat").read_text(), "a drive that is gone has no line"
                cgroup.remove()
        kit.all_given_back()


kit.sections(
    switched_over_and_over,
    a_drives_own_settings_are_written_meanwhile,
    depth_and_cpus_change,
    hardware_queues_come_and_go_meanwhile,
    drive_removed,
    reloaded_over_and_over,
)
