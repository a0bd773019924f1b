# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: a scheduler that chooses classes of the drive's queues, while it, the drive and cgroups come and go."""

from __future__ import annotations

import contextlib
import errno
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import kit
from kit import Cgroup, Fio

from fairlane.experiment.model import Profile
from fairlane.linux import made_drives

OURS = "d2fq"
MIB = 1 << 20
# Small and slow: requests wait in its queues, and tags are few.
DRIVE = {"size": 64 * MIB, "memory": 128 * MIB, "time_scale": 40, "channels": 2, "dies": 2, "commands": 8}
DRIVE |= {"queue_depth": 64}
LISTS = 10 if kit.CHECKED else 100 if kit.BRIEFLY else 300
WEIGHTS = kit.WEIGHTS if kit.CHECKED else (10000, 100, 1)
STANDS_STILL = 20_000  # as time_scale: more than a second for a read


@contextlib.contextmanager
def drive(scheduler: str = OURS, **params: int) -> Iterator[str]:
    with made_drives.vssd(Profile("torture", "ssd", "", {**DRIVE, **params})) as disk:
        choose(disk, scheduler)
        yield disk


def file(disk: str, name: str = "scheduler") -> Path:
    return Path("/sys/block", disk, "fairlane", name)


def weight(disk: str, name: str) -> Path:
    return Path("/sys/block", disk, "vssd", f"{name}_weight")


def choose(disk: str, name: str) -> None:
    file(disk).write_text(name)
    said = file(disk).read_text()
    assert f"[{name}]" in said, f"asked for {name}, the drive has {said}"


def refused(path: Path, text: str) -> int:
    """The errno with which a write is refused; 0 when it is not."""
    try:
        path.write_text(text)
    except OSError as error:
        return error.errno or -1
    return 0


def shown(disk: str, name: str) -> int:
    return int(Path("/sys/block", disk, "vssd", name).read_text())


def load(disk: str, cgroups: list[Cgroup]) -> list[Fio]:
    """Deep queues, NOWAIT and one at a time, all at once; each in its own cgroup."""
    options: list[dict[str, object]] = [
        {"ioengine": "libaio", "iodepth": 64, "rw": "randrw"},
        {"ioengine": "io_uring", "iodepth": 64, "rw": "randrw", "numjobs": 2},
        {"ioengine": "psync", "rw": "randread", "numjobs": 4},
    ]
    return [Fio(disk, cgroup, **more) for cgroup, more in zip(cgroups, options, strict=True)]


def all_get_on(disk: str, cgroups: list[Cgroup], when: str) -> None:
    for cgroup in cgroups:
        before = cgroup.requests(disk)
        kit.wait_for(lambda: cgroup.requests(disk) > before, f"every cgroup gets on {when}")  # noqa: B023


@contextlib.contextmanager
def rewriting(disk: str) -> Iterator[None]:
    """All that changes classes and weights is rewritten, over and over."""
    numbers = random.Random(1)
    stop = threading.Event()
    failed: list[OSError] = []

    def rewrite() -> None:
        while not stop.is_set():
            try:
                file(disk, "fixed_ratio").write_text(str(numbers.choice((0, 1, 2, 7, 64, 256))))
                file(disk, "low_threshold").write_text(str(numbers.choice((4096, 1 << 16, 1 << 23))))
                file(disk, "period_nsec").write_text(str(numbers.choice((10**6, 10**8))))
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.ENODEV):  # there is no such file just now
                    failed.append(error)
            try:
                for name in ("high", "medium", "low"):
                    weight(disk, name).write_text(str(numbers.randint(1, 256)))
            except OSError as error:
                if error.errno != errno.EBUSY:  # a scheduler has them just now
                    failed.append(error)
            time.sleep(0.002)

    thread = threading.Thread(target=rewrite)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failed, f"a tunable was refused: {failed[0]}"


def what_an_operator_sees() -> None:
    with drive() as disk:
        a, b = Cgroup(300), Cgroup(100)
        fios = [Fio(disk, cgroup, ioengine="libaio", iodepth=32, rw="randread") for cgroup in (a, b)]
        all_get_on(disk, [a, b], "at first")
        file(disk, "low_threshold").write_text(str(1 << 16))
        kit.wait_for(lambda: b.stat(disk)["lowios"] > 20, "who is ahead goes to the low class")
        line = b.stat(disk)
        assert list(line)[-5:] == ["vtime", "gap", "highios", "mediumios", "lowios"], list(line)
        assert line["vtime"] > 0 and a.stat(disk)["highios"] > 0
        kit.wait_for(lambda: shown(disk, "low_read_commands") > 20, "the drive has them in its low queues")
        kit.wait_for(
            lambda: file(disk, "hl_ratio").read_text() == f"{shown(disk, 'high_weight')}\n", "the drive has that ratio"
        )
        assert refused(file(disk, "fixed_ratio"), "257") == errno.ERANGE
        assert refused(weight(disk, "high"), "3") == errno.EBUSY, "it is the scheduler's"
        assert refused(file(disk, "hl_ratio"), "3") in (errno.EACCES, errno.EIO), "a counter"
        assert refused(file(disk), "nonsense") == errno.EINVAL
        assert f"[{OURS}]" in file(disk).read_text(), "what was there stays"
        for fio in fios:
            fio.stop()
        # Only one of ours at a time; another's elevator may come and go.
        assert refused(kit.queue(disk, "scheduler"), "kyber-fairness") == errno.EBUSY
        kit.set_scheduler(disk, "kyber")
        kit.set_scheduler(disk, "none")
        choose(disk, "none")
        assert not file(disk, "hl_ratio").exists() and not a.stat(disk)
        assert shown(disk, "high_weight") == 1, "the drive's weights are as they were"
        kit.set_scheduler(disk, "kyber-fairness")
        weight(disk, "high").write_text("7")
        assert refused(file(disk), OURS) == errno.EBUSY
        assert shown(disk, "high_weight") == 7, "also of a scheduler that did not get to work"
        kit.set_scheduler(disk, "none")
        choose(disk, OURS)
        for cgroup in (a, b):
            cgroup.remove()
    with drive("none", wrr=0) as disk:
        assert OURS not in file(disk).read_text().split(), "a drive without WRR does not offer it"
        assert refused(file(disk), OURS) == errno.EOPNOTSUPP, "a drive without WRR"
    kit.all_given_back()


def switched_over_and_over() -> None:
    with drive("none") as disk:
        cgroups = [Cgroup(weight) for weight in kit.WEIGHTS]
        fios = load(disk, cgroups)
        with rewriting(disk):
            for turn in range(kit.often(16, checked=2)):
                choose(disk, OURS)
                kit.wait_flow(disk, f"under {OURS}")
                all_get_on(disk, cgroups, f"under {OURS}")
                if turn % 4 == 1:  # an elevator comes and goes meanwhile
                    kit.set_scheduler(disk, "kyber")
                    kit.wait_flow(disk, "under both")
                    kit.set_scheduler(disk, "none")
                choose(disk, "none")
                kit.wait_flow(disk, "under none")
        choose(disk, OURS)
        all_get_on(disk, cgroups, "at the end")
        for fio in fios:
            fio.stop()
        for cgroup in cgroups:
            cgroup.remove()
        choose(disk, "none")
    kit.all_given_back()


def moved_and_removed() -> None:
    """Tasks wander from cgroup to cgroup; each is removed as soon as it is empty, its requests still in flight."""
    numbers = random.Random(1)
    cpu = Path("/sys/devices/system/cpu/cpu1/online")
    with drive() as disk, rewriting(disk):
        heavy, parent = Cgroup(WEIGHTS[0]), Cgroup(50).delegate()
        readers_in, deep_in = Cgroup(WEIGHTS[-1]), Cgroup(WEIGHTS[-1], parent)
        hog = Fio(disk, heavy, ioengine="libaio", iodepth=64, rw="randread", numjobs=2)
        deep = Fio(disk, deep_in, ioengine="io_uring", iodepth=64, rw="randrw")
        with kit.readers_of(disk, [readers_in] * 16) as readers:
            kit.wait_all_read(readers, "every reader gets on before the first move")
            for turn in range(kit.often(16, checked=4)):
                new = Cgroup(numbers.choice(WEIGHTS), parent if turn % 3 else None)
                old, readers_in, deep_in = (readers_in, new, deep_in) if turn % 2 else (deep_in, readers_in, new)
                new.take_all(old)
                old.remove()
                kit.wait_for(lambda: new.requests(disk) > 5, "I/O is the new cgroup's after a move")  # noqa: B023
                if turn % 4 == 0:
                    cpu.write_text("1" if turn % 8 else "0")
            cpu.write_text("1")
            kit.wait_all_read(readers, "every reader gets on after the last move")
            deep.stop()
            hog.stop()
        for cgroup in (readers_in, deep_in, parent, heavy):
            cgroup.remove()
    kit.all_given_back()


def tags_are_shared() -> None:
    """Who is in the low class leaves tags to others, though it asks for many times as many as there are.

    The drive all but stands still: what counts is who has which tags, not who has a CPU, or is soon done.
    """
    tags, jobs = 2 * DRIVE["queue_depth"], 4
    with drive(time_scale=STANDS_STILL) as disk:
        file(disk, "low_threshold").write_text("4096")
        file(disk, "period_nsec").write_text(str(10**11))  # nobody is found to leave something of its share
        file(disk, "fixed_ratio").write_text("256")
        greedy, light, late = Cgroup(1), Cgroup(10000), Cgroup(10000)
        alone = Fio(disk, light, ioengine="libaio", iodepth=16, rw="randread")
        kit.wait_for(lambda: light.requests(disk) >= 16, "the light one has all that it asks for")
        hog = Fio(disk, greedy, ioengine="libaio", iodepth=256, rw="randread", numjobs=jobs)
        kit.wait_for(
            lambda: sum(map(kit.waits_in_the_kernel, greedy.pids())) == jobs,
            "each job of the greedy one waits for a tag",
        )
        # Its part is one on each queue. Until it has sent a request there it is not known to be ahead.
        held = greedy.requests(disk)
        assert held <= 16, f"it holds {held} of {tags} tags"
        assert greedy.stat(disk)["lowios"] > 0, "who is ahead goes to the low class"
        shell = f"echo 0 > {late.path}/cgroup.procs && exec dd if=/dev/{disk} of=/dev/null bs=4k count=1 iflag=direct"
        readers = [subprocess.Popen(["sh", "-c", shell], stderr=subprocess.DEVNULL) for _ in range(4)]
        kit.wait_for(lambda: late.requests(disk) == len(readers), "who comes late finds a tag")
        assert greedy.requests(disk) <= 16, "the greedy one still waits"
        print(f"it holds {held} of {tags} tags")
        (made_drives.VSSD / "power").write_text("0")
        for fio in (alone, hog):
            fio.end()
        for reader in readers:
            reader.wait(kit.LIMIT_S)
        for cgroup in (greedy, light, late):
            cgroup.remove()
    kit.all_given_back()


def data_and_flushes() -> None:
    """What was written is read back, from every class; flushes and FUA writes go through."""
    with drive(buffer_volatile=1) as disk, rewriting(disk):
        cgroups = [Cgroup(weight) for weight in kit.WEIGHTS]
        options: dict[str, object] = {"rw": "randwrite", "bsrange": "4k-64k", "size": "2m", "iodepth": 32}
        options |= {"ioengine": "libaio", "verify": "crc32c", "verify_fatal": 1, "verify_backlog": 64}
        fios = [
            Fio(disk, cgroup, **options, offset=part * 8 * MIB, **({"fsync": 8} if part else {"sync": 1}))
            for part, cgroup in enumerate(cgroups)
        ]
        for fio in fios:
            fio.finish()
        assert kit.counts(disk)["flushes"] > 0
        for cgroup in cgroups:
            cgroup.remove()
    kit.all_given_back()


def prices_by_two_at_once() -> None:
    """Two who write different lists, and one who reads: each list that is read is one of theirs."""
    texts = [f"read{f' {price}' * 12}\nwrite{f' {price}' * 12}\n" for price in (4096, 9999)]
    stop, wrong, times = threading.Event(), [], [0] * 3
    with drive() as disk:
        cgroup = Cgroup(100)
        fio = Fio(disk, cgroup, ioengine="libaio", iodepth=16, rw="randrw")
        all_get_on(disk, [cgroup], "at first")
        file(disk, "prices").write_text(texts[0])

        def work(who: int, text: str | None) -> None:
            while not stop.is_set():
                if text:
                    file(disk, "prices").write_text(text)
                elif (said := file(disk, "prices").read_text()) not in texts:
                    wrong.append(said)
                times[who] += 1

        threads = [threading.Thread(target=work, args=(who, text)) for who, text in enumerate((*texts, None))]
        for thread in threads:
            thread.start()
        kit.wait_for(lambda: min(times) >= LISTS, f"each writes, or reads, {LISTS} lists")
        stop.set()
        for thread in threads:
            thread.join()
        fio.stop()
        cgroup.remove()
    assert not wrong, f"a list that nobody wrote:\n{wrong[0]}"
    kit.all_given_back()


def reloaded_and_removed() -> None:
    for turn in range(2):
        with drive() as disk:
            cgroups = [Cgroup(weight) for weight in kit.WEIGHTS]
            fios = load(disk, cgroups)
            kit.wait_flow(disk, "before the removal", requests=kit.often(200, checked=30))
            busy = [kit.remove_module(name) for name in (OURS, "fairlane", "fairlane-route", "vssd")]
            assert busy == [errno.EWOULDBLOCK] * 4, f"in use, and removed: {busy}"
            if turn % 2:
                choose(disk, "none")
                kit.remove_modules()
                kit.wait_flow(disk, "without our schedulers")
                assert refused(file(disk), OURS) == errno.EINVAL
                kit.load_modules()
                choose(disk, OURS)
                kit.wait_flow(disk, "with our schedulers again")
            for fio in fios:
                fio.running()
            (made_drives.VSSD / "power").write_text("0")
            for fio in fios:
                fio.end()
            for cgroup in cgroups:
                assert not cgroup.file("stat").read_text(), "a drive that is gone has no line"
                cgroup.remove()
        kit.all_given_back()


kit.sections(
    what_an_operator_sees,
    switched_over_and_over,
    moved_and_removed,
    tags_are_shared,
    data_and_flushes,
    prices_by_two_at_once,
    reloaded_and_removed,
)
