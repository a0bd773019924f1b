# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: what an operator reads and writes, and what a tenant may rely on whatever the others do."""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import kit
from kit import OURS, Cgroup, Fio

from fairlane import proc
from fairlane.experiment.model import Profile
from fairlane.linux import made_drives
from fairlane.vm.guest import CGROUPS

READS = 12 if kit.CHECKED else 100 if kit.BRIEFLY else 200  # of whom tags are left for


def refused(path: Path, text: str) -> int:
    """The errno with which the file refuses the text; 0 when it takes it."""
    try:
        path.write_text(text)
    except OSError as error:
        assert error.errno
        return error.errno
    return 0


def weights() -> None:
    number_file("weight", 1, 10_000, 100)


def latencies() -> None:
    number_file("latency", 0, 10_000_000, 0)


def number_file(name: str, low: int, high: int, default: int) -> None:
    """A number for each drive, or for all: what is written is shown, and I/O goes on; anything else changes nothing."""
    with kit.drive(completion_nsec=100_000) as disk:
        number = Path("/sys/block", disk, "dev").read_text().strip()
        cgroup = Cgroup()
        file = cgroup.file(name)
        assert file.read_text() == f"default {default}\n"
        with kit.readers_of(disk, [cgroup]) as readers:
            kit.wait_all_read(readers, "the reader gets on")
            for text, said in [
                ("200", "default 200\n"),
                ("default 300", "default 300\n"),
                (f"default  {low}\n", f"default {low}\n"),
                (f"{high}", f"default {high}\n"),
                (f"{number} 50", f"default {high}\n{number} 50\n"),
                (f"{number} {low}", f"default {high}\n{number} {low}\n"),
                (f"{number} {high}\n", f"default {high}\n{number} {high}\n"),
                ("default 7", f"default 7\n{number} {high}\n"),
                (f"{number} default", "default 7\n"),
                ("default", f"default {default}\n"),
                ("default 7", "default 7\n"),
                (f"{number} 12", f"default 7\n{number} 12\n"),
            ]:
                assert refused(file, text) == 0, f"{text!r} is refused"
                assert file.read_text() == said, f"after {text!r}"
                kit.wait_all_read(readers, f"the reader gets on after {text!r}")
            before = file.read_text()
            beyond = [low - 1, high + 1, -1, 1 << 64, (1 << 32) - 1]
            wrong = [*map(str, beyond), *(f"default {value}" for value in beyond), "1.5", "18446744073709551617"]
            wrong += ["many", "default many", "\n", " ", "100 200", "default 100 200", "default100"]
            wrong += [f"{number} {value}" for value in (*beyond, "many", "", "5 6", "defaults")]
            wrong += ["250:250 100", "7 100", ":1 100", "250:250 default", f"{number}", f"{number}:1 100"]
            for text in wrong:
                assert refused(file, text) in (errno.EINVAL, errno.ERANGE, errno.ENODEV), f"{text!r} is taken"
                assert file.read_text() == before, f"{text!r} changed something"
            assert refused(file, f"{high + 1}") == refused(file, f"{number} {high + 1}") == errno.ERANGE
            assert refused(file, "-1") == refused(file, "many") == errno.EINVAL
            assert refused(file, "250:250 100") == errno.ENODEV
        kit.set_scheduler(disk, "none")
        assert refused(file, f"{number} 100") == errno.EOPNOTSUPP, "no scheduler of ours to set it for"
        assert file.read_text() == "default 7\n"
        kit.set_scheduler(disk, OURS)
        kit.wait_for(lambda: file.read_text() == f"default 7\n{number} 12\n", "what was set for the drive counts again")
        cgroup.remove()


def weights_of_others() -> None:
    """What others' files say counts while the cgroup has no weight of its own, and no longer."""
    with kit.drive(completion_nsec=100_000) as disk:
        number = Path("/sys/block", disk, "dev").read_text().strip()
        cgroup = Cgroup()
        own, fallback = cgroup.file("weight"), cgroup.file("weight.fallback")
        assert fallback.read_text() == "default 100\nused 1\n"
        with kit.readers_of(disk, [cgroup]) as readers:
            kit.wait_all_read(readers, "the reader gets on")
            for file, text, said, used in [
                (fallback, "300", "default 300\n", 1),
                (own, "200", "default 200\n", 0),
                (fallback, "400", "default 200\n", 0),
                (own, "default", "default 400\n", 1),
                (fallback, f"{number} 7", "default 400\n", 1),
                (own, f"{number} 9", f"default 400\n{number} 9\n", 1),
                (own, f"{number} default", "default 400\n", 1),
                (fallback, "default", "default 100\n", 1),
            ]:
                file.write_text(text)
                assert own.read_text() == said, f"after {text!r} in {file.name}"
                assert f"used {used}\n" in fallback.read_text(), f"after {text!r} in {file.name}"
        assert fallback.read_text() == f"default 100\nused 1\n{number} 7\n"
        cgroup.remove()


def a_weight_counts_at_once() -> None:
    """Of a cgroup that is there before the scheduler, and of one that comes after; for one device or all."""
    with kit.drive(completion_nsec=2_000_000) as disk:
        number = Path("/sys/block", disk, "dev").read_text().strip()
        a, b = Cgroup(300), Cgroup(100)
        with kit.readers_of(disk, [a, b]) as readers:

            def shares(first: float) -> None:
                wanted = [first, 100 - first]

                def said() -> list[float]:
                    return [cgroup.stat(disk).get("wanted_pct", 0) for cgroup in (a, b)]

                def reached() -> bool:
                    return kit.CHECKED or all(
                        abs(share - right) < 0.1 for share, right in zip(said(), wanted, strict=True)
                    )

                try:
                    kit.wait_for(reached, f"shares of {wanted} %")
                except AssertionError as error:
                    raise AssertionError(f"{error}; they are {said()}") from None

            kit.wait_all_read(readers, "both get on")
            shares(75)
            b.file("weight").write_text("300")
            shares(50)
            a.file("weight").write_text(f"{number} 900")
            shares(75)
            kit.set_scheduler(disk, "none")
            kit.set_scheduler(disk, OURS)
            kit.wait_all_read(readers, "both get on")
            shares(75)  # what was set for the drive counts again
        a.remove()
        b.remove()


def what_was_set_for_drives_that_are_gone() -> None:
    """It is forgotten: however many drives come and go, Linux holds no more of it than there are drives."""
    tracing, cgroup, turns = kit.tracing(), Cgroup(), 4 if kit.CHECKED else 12
    events = [tracing / "events/kmem" / name / "enable" for name in ("kmalloc", "kfree")]
    record = tracing / "tracing_on"
    (tracing / "set_event_pid").write_text(str(os.getpid()))
    record.write_text("0")
    (tracing / "trace").write_text("")
    # Once: Linux patches itself for that, which emulation now and then does not survive.
    for event in events:
        event.write_text("1")
    drives = set()
    for turn in range(turns):
        with kit.loop_device(1 << 20) as disk:
            kit.set_scheduler(disk, OURS)
            drives.add(Path("/sys/block", disk, "diskseq").read_text())
            number = Path("/sys/block", disk, "dev").read_text().strip()
            # Nothing is set yet, but the cgroup's flow is made.
            assert refused(cgroup.file("weight"), f"{number} 0") == errno.ERANGE
            record.write_text("1")
            cgroup.file("weight").write_text(f"{number} {1 + turn}")
            record.write_text("0")
            assert f"{number} {1 + turn}\n" in cgroup.file("weight").read_text()
            kit.set_scheduler(disk, "none")
    assert len(drives) == turns, f"not all are new ones: {drives}"
    for event in events:
        event.write_text("0")
    record.write_text("1")
    (tracing / "set_event_pid").write_text("")
    ours = [line for line in (tracing / "trace").read_text().splitlines() if "[fairlane]" in line]
    taken, given = (sum(f" {name}: " in line for line in ours) for name in ("kmalloc", "kfree"))
    assert taken >= turns, f"what is kept was not seen: {ours}"
    assert taken - given <= 1, f"{taken} times memory was taken, and {given} times given back"
    cgroup.remove()
    kit.all_given_back()


def a_tenant_at_its_memory_limit() -> None:
    """Its first request is its own, though there is no memory left to charge it for what that takes."""
    (CGROUPS / "cgroup.subtree_control").write_text("+memory")
    with kit.drive(completion_nsec=100_000) as disk, kit.loop_device(64 << 20) as other:
        for _ in range(3):
            cgroup, ready, go = Cgroup(), os.pipe(), os.pipe()
            pid = os.fork()
            if pid == 0:
                reads_when_told(cgroup, [f"/dev/{other}", f"/dev/{disk}"], ready[1], go[0])
            assert os.read(ready[0], 1), "the reader is ready"
            full, current = cgroup.path / "memory.max", cgroup.path / "memory.current"

            full.write_text(str(int(current.read_text()) - 64 * kit.BLOCK))  # what its CPUs keep for it goes, soon

            def squeezed(full: Path = full, current: Path = current) -> bool:
                full.write_text(current.read_text())
                time.sleep(0.1)
                return full.read_text() == current.read_text()

            kit.wait_for(squeezed, "it has all that it may")
            os.write(go[1], b"1")
            assert kit.exit_code(pid, "the reader ends") == 0
            assert cgroup.requests(disk) == 1, "what it read is its parent's"
            for end in (*ready, *go):
                os.close(end)
            cgroup.remove()
    kit.all_given_back()


def reads_when_told(cgroup: Cgroup, drives: list[str], ready: int, go: int) -> NoReturn:
    """A block of the first drive, and a part of that into memory; and when told to, a block of the second one."""
    status = 1
    try:
        (cgroup.path / "cgroup.procs").write_text("0")
        buffer = mmap.mmap(-1, kit.BLOCK)
        direct = [os.open(drive, os.O_RDONLY | os.O_DIRECT) for drive in drives]
        os.preadv(direct[0], [buffer], 0)
        with Path(drives[0]).open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # else it is still in another one's memory
            for _ in range(64):
                file.read(1 << 16)
        os.write(ready, b"1")
        os.read(go, 1)
        os.preadv(direct[1], [buffer], 0)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def statistics() -> None:
    assert not (CGROUPS / "io.fairlane.weight").exists(), "the root has no siblings"
    assert not (CGROUPS / "io.fairlane.latency").exists()
    with kit.drive(completion_nsec=100_000, memory_backed=1, size=64 << 20) as disk:
        cgroup = Cgroup()
        assert cgroup.file("stat").read_text() == "", "no I/O yet, no line"
        with kit.readers_of(disk, [cgroup]) as readers:
            kit.wait_all_read(readers, "the reader gets on")
            first = cgroup.stat(disk)
            keys = ["wanted_pct", "got_pct", "rios", "wios", "dios", "oios", "rbytes", "wbytes", "dbytes"]
            keys += ["cost", "throttled_usec", "metabytes", "waited_usec", "took_usec"]
            assert list(first) == keys, f"keys: {list(first)}"
            for _ in range(20):
                then = cgroup.stat(disk)
                assert all(then[key] >= first[key] for key in keys[2:]), f"a counter fell: {first} {then}"
                first = then
            kit.wait_for(lambda: cgroup.stat(disk)["got_pct"] > 99, "it got all of what was done in a second")
            kit.wait_all_read(readers, "the reader gets on")
        kit.wait_for(lambda: cgroup.stat(disk)["got_pct"] == 0, "nobody gets anything any more")
        now = cgroup.stat(disk)
        assert now["rios"] > 0 and now["rbytes"] == now["rios"] * kit.BLOCK and now["wios"] == 0, now
        assert abs(now["rios"] - readers[0].done()) <= 2, "each request is counted, once"
        fio = Fio(disk, cgroup, ioengine="libaio", iodepth=16, rw="randwrite", loops=1, size="4m")
        assert fio.finish() == 1024
        now = cgroup.stat(disk)
        assert now["wbytes"] == 4 << 20 and now["wios"] <= 1024, f"4 MiB were written: {now}"
        with Path("/dev", disk).open("rb") as device:
            device.read(1 << 16)
        assert kit.stat(CGROUPS, disk)["rbytes"] > 0, "the root's own I/O"
        cgroup.remove()


def ioniced() -> None:
    """Of one cgroup's requests, realtime ones need not wait for all that are staged, as best-effort ones do."""
    with kit.drive(completion_nsec=5_000_000, submit_queues=1, hw_queue_depth=1) as disk:
        kit.queue(disk, "nr_requests").write_text("64")
        cgroup = Cgroup(100)
        flood = Fio(disk, cgroup, ioengine="libaio", iodepth=24, rw="randread")
        kit.wait_flow(disk, "under the flood", requests=kit.often(100, checked=30))
        with kit.readers_of(disk, [cgroup, cgroup]) as readers:
            for reader, number in zip(readers, ("1", "2"), strict=True):
                proc.output(["ionice", "-c", number, "-p", str(reader.pid)], what="ionice", limit_s=kit.LIMIT_S)
            kit.wait_all_read(readers, "both get on")
            before = [reader.done() for reader in readers]
            enough = kit.often(60, checked=10)
            kit.wait_for(lambda: readers[0].done() >= before[0] + enough, "the realtime one gets on")
            realtime, other = (reader.done() - old for reader, old in zip(readers, before, strict=True))
            print("requests of the realtime reader, and of the other:", realtime, other)
            assert kit.CHECKED or realtime > 3 * other, f"{realtime} and {other}"
            kit.wait_all_read(readers, "both get on")
        flood.stop()
        cgroup.remove()


def ioniced_submitters() -> None:
    """Of one cgroup's submitters that wait under fairlane, best-effort ones go before idle ones; not before others'."""
    with kit.drive("fairlane", completion_nsec=20_000_000, submit_queues=1, hw_queue_depth=64) as disk:
        Path("/sys/block", disk, "fairlane", "budget").write_text("4")
        cgroup, beside = Cgroup(100), Cgroup(100)
        flood = Fio(disk, beside, ioengine="libaio", iodepth=32, rw="randread")
        with kit.readers_of(disk, 8 * [cgroup]) as readers:
            kit.wait_all_read(readers, "all get on")
            best_effort, idle = readers[:6], readers[6:]
            for reader in idle:
                proc.output(["ionice", "-c", "3", "-p", str(reader.pid)], what="ionice", limit_s=kit.LIMIT_S)

            def done() -> tuple[int, int, int]:
                theirs, idles = (sum(reader.done() for reader in each) for each in (best_effort, idle))
                return theirs, idles, beside.requests(disk)

            kit.wait_for(lambda: beside.requests(disk) > 100, "the other cgroup gets on")
            before, enough = done(), 60 if kit.CHECKED else 200
            kit.wait_for(lambda: done()[0] >= before[0] + enough, "the best-effort ones get on")
            theirs, idles, others = (now - old for now, old in zip(done(), before, strict=True))
            print("requests of best-effort readers, of idle ones, and of another cgroup:", theirs, idles, others)
            assert kit.CHECKED or theirs > 3 * idles, f"{theirs} and {idles}, beside {others}"
            assert kit.CHECKED or 0.8 < (theirs + idles) / others < 1.25, f"{theirs + idles} and {others}"
            for reader in best_effort:
                reader.kill()
            kit.wait_all_read(idle, "the idle ones get on once nobody goes before them")
        flood.stop()
        cgroup.remove()
        beside.remove()


def tunables() -> None:
    with kit.drive(completion_nsec=2_000_000) as disk:
        folder = kit.variables(disk)
        ranges = {
            "period_nsec": (10**6, 10**10),
            "read_lat_nsec": (1000, 10**10),
            "write_lat_nsec": (1000, 10**10),
            "prediction": (0, 2),
            "watchdog_msec": (0, 600_000),
        }
        writable = {path.name for path in folder.iterdir() if path.stat().st_mode & 0o200}
        assert writable == {"prices", *ranges}, f"tunables: {writable}"
        cgroup = Cgroup()
        with kit.readers_of(disk, [cgroup, cgroup]) as readers:
            for name, (low, high) in ranges.items():
                path = folder / name
                default = path.read_text()
                for text in (low - 1, high + 1, -1, "many", 1 << 64, "1 2"):
                    assert refused(path, f"{text}\n") in (errno.EINVAL, errno.ERANGE), f"{name} takes {text}"
                    assert path.read_text() == default, f"{name}: {text} changed something"
                for value in (low, high):
                    path.write_text(f"{value}\n")
                    assert path.read_text() == f"{value}\n"
                    kit.wait_all_read(readers, f"I/O goes on with {name} = {value}")
                path.write_text(default)
            for path in folder.iterdir():
                if path.name == "prices":
                    continue
                int(path.read_text())
                if path.name not in ranges:
                    assert path.stat().st_mode & 0o777 == 0o444, f"{path.name} is for reading"
            granted = int((folder / "tokens_granted").read_text())
            kit.wait_for(lambda: int((folder / "tokens_granted").read_text()) > granted, "tokens are granted")
        cgroup.remove()


def prices() -> None:
    """A price list is taken whole or not at all, whatever is in flight, and requests are charged by it."""

    def line(price: int) -> str:
        return "".join(f"{op}{f' {price}' * 12}\n" for op in ("read", "write"))

    with kit.drive(completion_nsec=1_000_000) as disk:
        path = kit.variables(disk) / "prices"
        default = "".join(f"{op} {' '.join(str(512 << i) for i in range(12))}\n" for op in ("read", "write"))
        assert path.read_text() == default
        cgroup = Cgroup()
        with kit.readers_of(disk, [cgroup, cgroup]) as readers:
            kit.wait_all_read(readers, "the readers get on")
            wrong = ["\n", "many", "read 1", line(0), line(-1), line((1 << 24) + 1), line(1 << 64), line(1) + "1"]
            for text in [*wrong, line(1).replace("write", "trim")]:
                assert refused(path, text) == errno.EINVAL, f"{text!r} is taken"
                assert path.read_text() == default, f"{text!r} changed something"
            for price in (1, 1 << 24, 7):
                path.write_text(line(price))
                assert path.read_text() == line(price)
                kit.wait_all_read(readers, f"I/O goes on at a price of {price}")
        before = cgroup.stat(disk)
        assert Fio(disk, cgroup, ioengine="libaio", iodepth=16, rw="randread", loops=1, size="4m").finish() == 1024
        now = cgroup.stat(disk)
        assert (now["rios"] - before["rios"], now["cost"] - before["cost"]) == (1024, 7 * 1024), f"{before} {now}"
        with kit.readers_of(disk, [cgroup, cgroup]) as readers:
            prices_while_schedulers_come_and_go(disk, line)
            kit.wait_all_read(readers, "I/O goes on")
        assert path.read_text() == default, "prices go with their scheduler"
        cgroup.remove()
    kit.all_given_back()


def prices_while_schedulers_come_and_go(disk: str, line: Callable[[int], str]) -> None:
    """Both freeze the queue."""
    path, done, taken = kit.variables(disk) / "prices", threading.Event(), [0]

    def write() -> None:
        while not done.is_set():
            with contextlib.suppress(OSError):  # there is none just now
                path.write_text(line(3))
                taken[0] += 1

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(kit.often(10, checked=3)):
        written = taken[0]
        kit.wait_for(lambda: taken[0] > written, "prices are taken")  # noqa: B023
        kit.set_scheduler(disk, "none")
        kit.set_scheduler(disk, OURS)
    done.set()
    writer.join()
    kit.set_scheduler(disk, "none")
    kit.set_scheduler(disk, OURS)


def one_request_at_a_time() -> None:
    """With one request per queue, in the scheduler and in the drive, everybody still gets on."""
    with kit.drive(completion_nsec=500_000, hw_queue_depth=1) as disk:
        cgroups = [Cgroup(weight) for weight in (reversed(kit.WEIGHTS) if kit.CHECKED else (1, 100, 10000))]
        for depth in ("1", "2") if OURS not in kit.BESIDE else ("as the drive's",):
            if OURS not in kit.BESIDE:
                kit.queue(disk, "nr_requests").write_text(depth)
            none, deep = kit.counts(disk)["writes"], Fio(disk, cgroups[2], ioengine="libaio", iodepth=64, rw="randrw")
            # Before others take the CPUs: where these are slow, fio does not even begin beside them.
            kit.wait_for(lambda: kit.counts(disk)["writes"] > none, "the deep one begins")  # noqa: B023
            with kit.readers_of(disk, [*cgroups, *cgroups]) as readers:
                kit.wait_flow(disk, f"at depth {depth}", requests=kit.often(500, checked=20))
                writes = kit.counts(disk)["writes"]
                kit.wait_for(lambda: kit.counts(disk)["writes"] > writes, "the deep one gets on")  # noqa: B023
                kit.wait_all_read(readers, f"every reader gets on at depth {depth}")
            deep.stop()
        for cgroup in cgroups:
            cgroup.remove()
    kit.all_given_back()


def throttled_tenant_leaves_tags() -> None:
    """Two tenants with deep queues, one of them throttled nearly all the time; a third that asks for little, and waits
    little longer than when it is alone."""
    # 2000 IOPS: the drive is the bottleneck, not the CPU, which would be a reason to let the light one in.
    with kit.drive(completion_nsec=4_000_000, hw_queue_depth=4) as disk:
        kit.queue(disk, "nr_requests").write_text("32")
        throttled, heavy, little = Cgroup(1), Cgroup(1000), Cgroup(1000)
        alone_ms, _ = waits_of_a_slow_reader(disk, little, READS // 4)
        deep = {"ioengine": "libaio", "iodepth": 256, "rw": "randread", "numjobs": 2}
        fios = [Fio(disk, cgroup, **deep) for cgroup in (throttled, heavy)]
        kit.wait_for(lambda: throttled.stat(disk).get("throttled_usec", 0) > 100_000, "the light one is throttled")
        before = [cgroup.requests(disk) for cgroup in (throttled, heavy)]
        fast_ms, p95_ms = waits_of_a_slow_reader(disk, little, READS)
        print(f"latency: p20 {fast_ms:.1f} ms, p95 {p95_ms:.1f} ms; alone {alone_ms:.1f} ms")
        got = [cgroup.requests(disk) - old for cgroup, old in zip((throttled, heavy), before, strict=True)]
        print(f"requests meanwhile: throttled {got[0]}, heavy {got[1]}")
        # The fastest fifth: whether a CPU is there for each of them is the machine's. Without tags all would wait.
        assert kit.CHECKED or fast_ms < 5 * alone_ms, f"{fast_ms}, alone {alone_ms} ms; p95 {p95_ms} ms"
        # Whenever the CPU is late with the heavy one's, the light one is let in: 3 to 32 times as much, in 16 runs.
        assert kit.CHECKED or got[0] * 2 < got[1], f"the light one was not held back: {got}"
        for fio in fios:
            fio.stop()
        for cgroup in (throttled, heavy, little):
            cgroup.remove()
    kit.all_given_back()


def waits_of_a_slow_reader(disk: str, cgroup: Cgroup, reads: int) -> tuple[float, float]:
    """The P20 and the P95 of the latency of so many reads, 50 in a second, in ms."""
    asking = Fio(
        disk, cgroup, ioengine="psync", rw="randread", rate_iops=50, loops=1, number_ios=reads, size=reads * kit.BLOCK
    )
    assert asking.finish() == reads
    said = asking.out.read_text()
    found = json.loads(said[said.index("{\n") :])["jobs"][0]["read"]["clat_ns"]["percentile"]
    return found["20.000000"] / 1e6, found["95.000000"] / 1e6


def flushes_without_a_share_are_told_of_once_for_each_drive() -> None:
    """On Linux 6.1, where FUA and flushes pass no scheduler; two drives and all schedulers, in turns."""
    null = Profile("told", "null_blk", "", {**kit.TIMED, "size": 64 << 20, "memory_backed": 1, "cache_size": 1})
    ssd = Profile("told", "ssd", "", {**kit.VSSD, "size": 64 << 20, "memory": 64 << 20, "buffer_volatile": 1})
    second = made_drives.VSSD.with_name("second")
    since = kit.note("the drives were not told of yet")
    with made_drives.setup(null) as a, made_drives.vssd(ssd, second) as b:
        for scheduler in kit.ALL_OURS:
            for disk in (a, b):
                kit.set_scheduler(disk, scheduler)
        told = {disk: len(kit.log_after(since, f"fairlane: {disk}: writes with FUA")) for disk in (a, b)}
    assert told == dict.fromkeys((a, b), 1 if os.uname().release.startswith("6.1.") else 0)


def hardware_queues_come_and_go() -> None:
    """Under a scheduler that the driver knows nothing of, which was chosen when there was one."""
    with kit.drive(completion_nsec=1_000_000, submit_queues=1) as disk:
        cgroup = Cgroup(100)
        fio = Fio(disk, cgroup, ioengine="libaio", iodepth=64, rw="randrw", numjobs=2, cpus_allowed="0,1")
        for queues in (2, 1, 2, 1):
            kit.wait_flow(disk, f"before there are {queues} queues", requests=100)
            (made_drives.NULLB / "submit_queues").write_text(str(queues))
            before = cgroup.requests(disk)
            kit.wait_for(lambda: cgroup.requests(disk) > before + 100, f"I/O goes on with {queues}")  # noqa: B023
        fio.stop()
        cgroup.remove()
    kit.all_given_back()


kit.sections(
    weights,
    weights_of_others,
    latencies,
    a_weight_counts_at_once,
    ioniced,
    ioniced_submitters,
    what_was_set_for_drives_that_are_gone,
    a_tenant_at_its_memory_limit,
    statistics,
    tunables,
    prices,
    one_request_at_a_time,
    throttled_tenant_leaves_tags,
    flushes_without_a_share_are_told_of_once_for_each_drive,
    *(() if kit.ON_VSSD else (hardware_queues_come_and_go,)),
)
