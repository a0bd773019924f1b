# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: the virtual SSD keeps its data, does what it is told to, and comes and goes whatever is in flight."""

from __future__ import annotations

import contextlib
import errno
import itertools
import mmap
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import kit
from kit import ALL_OURS, OTHERS, OURS, Cgroup, Fio

from fairlane import proc
from fairlane.experiment.model import Profile
from fairlane.linux import made_drives

MIB = 1 << 20
# A small, slow drive: requests wait in it, in its queues and in the scheduler.
SMALL = {"size": 64 * MIB, "memory": 128 * MIB, "time_scale": 20, "channels": 2, "dies": 2, "commands": 16}
# With a map: writes cause collections.
MAPPED = {"map": 64 * MIB, "block_pages": 16, "page": 4096, "spare": 250}
if kit.CHECKED:
    MAPPED |= {"precondition": 1}  # to fill it would take minutes

FOR_EVER = 10_000  # as loops: hours


@contextlib.contextmanager
def vssd(scheduler: str = OURS, folder: str = "fairlane", /, **params: int) -> Iterator[str]:
    profile = Profile("torture", "ssd", "", {**SMALL, **params})
    with made_drives.vssd(profile, made_drives.VSSD.with_name(folder)) as disk:
        kit.set_scheduler(disk, scheduler)
        yield disk


def shown(disk: str, name: str) -> int:
    return int(Path("/sys/block", disk, "vssd", name).read_text())


def verify(disk: str, part: int, cgroup: Cgroup | None = None, /, **more: object) -> Fio:
    """Write 3 MiB at random, in its own part of the drive, and read it back."""
    options = {
        "rw": "randwrite",
        "bsrange": "4k-64k",
        "size": "3m",
        "offset": part * 16 * MIB,
        "verify": "crc32c",
        "verify_fatal": 1,
        "verify_backlog": 64,
        "ioengine": "libaio",
        "iodepth": 32,
        **more,
    }
    return Fio(disk, cgroup, **options)


def load(disk: str, cgroups: list[Cgroup]) -> list[Fio]:
    """Deep queues, NOWAIT and one at a time, all at once; each in its own cgroup."""
    options: list[dict[str, object]] = [
        {"ioengine": "libaio", "iodepth": 64, "rw": "randrw"},
        {"ioengine": "io_uring", "iodepth": 16, "rw": "randrw", "numjobs": 2},
        {"ioengine": "psync", "rw": "randread", "numjobs": 2},
    ]
    return [Fio(disk, cgroup, **more) for cgroup, more in zip(cgroups, options, strict=True)]


def end(fios: list[Fio], cgroups: list[Cgroup]) -> None:
    for fio in fios:
        fio.stop()
    for cgroup in cgroups:
        cgroup.remove()


def verified_under_every_scheduler() -> None:
    """While the drive collects, with flushes, FUA and discards between the writes; each scheduler has its turn."""
    cgroups = [Cgroup(1000), Cgroup(10), Cgroup(100)]
    with vssd(time_scale=1, **MAPPED) as disk:
        trims: dict[str, object] = {"ioengine": "psync", "rw": "randtrim", "bs": "64k", "thinktime": 1000}
        trimmer = Fio(disk, cgroups[2], **trims, offset=32 * MIB)
        fios = [
            verify(disk, 0, cgroups[0], fdatasync=4, loops=FOR_EVER),
            verify(disk, 1, cgroups[1], ioengine="io_uring", sync="dsync", iodepth=8, loops=FOR_EVER),
        ]
        for scheduler in (*ALL_OURS, *OTHERS):
            kit.set_scheduler(disk, scheduler)
            writes = kit.counts(disk)["writes"]
            enough = writes + kit.often(100, checked=20)
            kit.wait_for(lambda: kit.counts(disk)["writes"] > enough, f"writes under {scheduler}")  # noqa: B023
            for fio in fios:
                fio.running()
        kit.wait_for(lambda: shown(disk, "erases"), "the drive collects")
        for name in ("flush", "discard"):
            kit.wait_for(lambda: shown(disk, f"high_{name}_commands") > 10, f"{name} commands")  # noqa: B023
        for fio in (*fios, trimmer):
            fio.stop()
        print("write amplification", round(shown(disk, "nand_bytes") / shown(disk, "host_bytes"), 2))
    for cgroup in cgroups:
        cgroup.remove()
    kit.all_given_back()


def switched_under_load() -> None:
    """The scheduler, the depth and the CPUs change while data are written and verified."""
    cpu = Path("/sys/devices/system/cpu/cpu1/online")
    cgroups = [Cgroup(weight) for weight in kit.WEIGHTS]
    with vssd(time_scale=5) as disk:
        fios = load(disk, cgroups)
        for scheduler in itertools.islice(
            (name for other in itertools.cycle(OTHERS) for name in (other, OURS)),
            kit.often(16, checked=2 * len(OTHERS)),
        ):
            kit.set_scheduler(disk, scheduler)
            kit.wait_flow(disk, f"under {scheduler}")
        for depth in (1, 256):
            kit.queue(disk, "nr_requests").write_text(str(depth))
            kit.wait_flow(disk, f"with {depth} requests per queue")
        for online in ("0", "1", "0", "1"):
            cpu.write_text(online)
            kit.wait_flow(
                disk, f"with CPU 1 {'on' if online == '1' else 'off'}line", requests=kit.often(100, checked=20)
            )
        end(fios, cgroups)
    kit.all_given_back()


def removed_under_load() -> None:
    """At once, though the drive itself takes 0.2 s for each of the reads that are in flight."""
    power = made_drives.VSSD / "power"
    for scheduler, how in (("none", "rmdir"), (OURS, "power")):
        cgroups = [Cgroup(weight) for weight in kit.WEIGHTS]
        with vssd(scheduler, time_scale=3000, channels=1, dies=1) as disk:
            fios = load(disk, cgroups)
            kit.wait_for(lambda: kit.in_flight(disk) > 64, "requests are in flight")
            remove = made_drives.VSSD.rmdir if how == "rmdir" else partial(power.write_text, "0")
            took = timed(remove)
            assert kit.CHECKED or took < 64 * 0.2 / 2, (
                f"removing the drive took {took:.1f} s, as if it had done what it was asked for"
            )
            for fio in fios:
                fio.end()
            assert not Path("/sys/block", disk).exists()
        for cgroup in cgroups:
            cgroup.remove()
        kit.all_given_back()


def several_at_once() -> None:
    """Each has its own data, clock and counters; one goes while the others work."""
    cgroups = [Cgroup(weight) for weight in kit.WEIGHTS]
    with vssd(OURS, "a") as a, vssd("none", "b", time_scale=40) as b:
        assert {a, b} == {"vssd0", "vssd1"}
        with vssd(OURS, "c") as c:
            fios = load(c, cgroups)
            checked = [verify(disk, part, size="1m") for part, disk in enumerate((a, b))]
            kit.wait_flow(c, "on the third")
            (made_drives.VSSD.with_name("c") / "power").write_text("0")
        for fio in fios:
            fio.end()
        for fio in checked:
            fio.finish()
        assert shown(a, "high_write_commands") == kit.counts(a)["writes"] > 0
        assert shown(b, "high_write_commands") == kit.counts(b)["writes"] > 0
    for cgroup in cgroups:
        cgroup.remove()
    kit.all_given_back()


def memory_bound() -> None:
    """At the bound a write fails, and nothing else changes: not the data, not the right to write them again."""
    page, pages, bound = mmap.PAGESIZE, 512, 256
    blank = bytes(page)
    with vssd("none", time_scale=1, memory=bound * page, size=pages * page) as disk:
        fd = os.open(f"/dev/{disk}", os.O_RDWR | os.O_DIRECT)
        buffer = mmap.mmap(-1, 4 * page)

        def write(at: int, data: bytes) -> int:
            """0, or the errno."""
            buffer[: len(data)] = data
            try:
                assert os.pwritev(fd, [memoryview(buffer)[: len(data)]], at * page) == len(data)
            except OSError as error:
                return error.errno or -1
            return 0

        def read(at: int) -> bytes:
            assert os.preadv(fd, [memoryview(buffer)[:page]], at * page) == page
            return buffer[:page]

        def pattern(at: int, turn: int) -> bytes:
            return at.to_bytes(4, "little") * 8 + turn.to_bytes(4, "little") * (page // 4 - 8)

        # Every other page, then runs of four pages half of which are there: the bound is reached in the middle of one.
        for at in range(0, pages, 4):
            assert write(at, pattern(at, 1)) == 0
        used, refused = pages // 4, []
        for at in range(0, pages, 4):
            status = write(at, b"".join(pattern(at + i, 2) for i in range(4)))
            if used + 3 <= bound:
                assert status == 0, f"page {at}: {os.strerror(status)} although there is room"
                used += 3
            else:
                assert status == errno.ENOSPC, f"page {at}: {os.strerror(status)} at the bound"
                refused.append(at)
        assert refused and shown(disk, "memory_used_bytes") <= shown(disk, "memory_bytes") == bound * page
        for at in range(pages):
            first = at - at % 4
            want = (pattern(at, 1) if at == first else blank) if first in refused else pattern(at, 2)
            assert read(at) == want, f"page {at} changed"
        # What is there can be written again; a discard makes room, and then so can what was refused.
        assert write(0, pattern(0, 3)) == 0 and read(0) == pattern(0, 3)
        assert write(refused[-1] + 1, pattern(1, 3)) == errno.ENOSPC
        part = ["blkdiscard", "-o", "0", "-l", str(16 * page), f"/dev/{disk}"]
        proc.output(part, what="discarding", limit_s=kit.LIMIT_S)
        assert shown(disk, "memory_used_bytes") <= (bound - 16) * page + 3 * page
        assert read(0) == blank and write(refused[-1] + 1, pattern(1, 3)) == 0
        # Deep queues ask for more than there is, over and over: what has its memory is written and read as ever.
        proc.output(["blkdiscard", f"/dev/{disk}"], what="discarding", limit_s=kit.LIMIT_S)
        assert shown(disk, "memory_used_bytes") == 0
        for at in range(pages // 8):
            assert write(at, pattern(at, 5)) == 0
        os.close(fd)
        half: dict[str, object] = {"ioengine": "libaio", "iodepth": 32, "offset": "50%", "bs": "16k", "loops": 10}
        greedy = Fio(disk, None, **half, rw="randwrite", ignore_error=",ENOSPC")
        kept = verify(disk, 0, size=pages // 8 * page, bsrange="512-16k", loops=5)
        kept.finish()
        greedy.wait()
        assert shown(disk, "memory_used_bytes") == bound * page, "the bound was not reached: this shows nothing"


def flush_and_fua_wait_for_nand() -> None:
    """A write is done when it is in the buffer; with FUA, or followed by a flush, when it is on NAND.

    The fastest of them counts: a busy machine delays some, and the drive is never done too early.
    """
    program_s, times = 0.02, kit.often(20, checked=3)
    for volatile in (1, 0):
        with vssd("none", buffer_volatile=volatile, program_ns=1_000_000, time_scale=20) as disk:
            cache = kit.queue(disk, "write_cache").read_text().strip()
            assert cache == ("write back" if volatile else "write through")
            took = {}
            for how, flags in {"write": 0, "FUA": os.O_DSYNC, "flush": 0}.items():
                fd = os.open(f"/dev/{disk}", os.O_RDWR | os.O_DIRECT | flags)
                with mmap.mmap(-1, kit.BLOCK) as buffer:

                    def write(at: int, fd: int = fd, buffer: mmap.mmap = buffer, flush: bool = how == "flush") -> None:
                        assert os.pwritev(fd, [buffer], at * kit.BLOCK) == kit.BLOCK
                        if flush:
                            os.fdatasync(fd)

                    took[how] = min(timed(partial(write, i)) for i in range(times))
                os.close(fd)
            print("volatile" if volatile else "safe", "buffer, ms:", {how: f"{s * 1e3:.1f}" for how, s in took.items()})
            if not kit.CHECKED:
                assert took["write"] < program_s / 2
            for how in ("FUA", "flush"):
                waits = took[how] > program_s
                assert waits == bool(volatile) or (waits and kit.CHECKED), f"{how} waits for NAND or not: {took}"


def time_scale_slows_the_whole_drive() -> None:
    """Its clock, and what a read takes: the fastest, as the emulated CPU takes some time, too."""
    took = {}
    for scale in (500, 2000):
        with vssd("none", time_scale=scale) as disk:
            fd = os.open(f"/dev/{disk}", os.O_RDONLY | os.O_DIRECT)
            with mmap.mmap(-1, kit.BLOCK) as buffer:

                def read(fd: int = fd, buffer: mmap.mmap = buffer) -> None:
                    assert os.preadv(fd, [buffer], 0) == kit.BLOCK

                def clock(disk: str = disk) -> tuple[float, float, int]:
                    """The model's clock is as of its last event: a read that began and ended at these times."""
                    begins = time.monotonic()
                    read()
                    return begins, time.monotonic(), shown(disk, "now_ns")

                first, reads, last = clock(), [timed(read) for _ in range(kit.often(20, checked=5))], clock()
            os.close(fd)
            took[scale] = min(reads)
            ran = (last[2] - first[2]) / 1e9 * scale
            least, most = last[0] - first[1], last[1] - first[0]
            assert least <= ran <= most, f"the clock ran {ran:.2f} s in {least:.2f} to {most:.2f} s"
    print("a read takes, ms:", {scale: round(s * 1e3, 1) for scale, s in took.items()})
    assert kit.CHECKED or 3.6 < took[2000] / took[500] < 4.1, f"four times slower: {took}"


def timed(do: Callable[[], object]) -> float:
    """s that it takes."""
    start = time.monotonic()
    do()
    return time.monotonic() - start


def shown_values() -> None:
    with vssd("none", time_scale=100, commands=8) as disk:
        folder = Path("/sys/block", disk, "vssd")
        for path in folder.iterdir():
            assert path.stat().st_mode & 0o777 == (0o644 if path.name.endswith("_weight") else 0o444), path.name
            int(path.read_text())
        fio = Fio(disk, None, ioengine="libaio", iodepth=64, rw="randread")
        kit.wait_for(lambda: shown(disk, "high_queued") > 40, "commands wait in the submission queues")
        assert shown(disk, "in_controller") <= 8, "the controller holds no more than its profile says"
        fio.stop()
        counts = kit.counts(disk)
        assert shown(disk, "high_queued") == shown(disk, "in_controller") == 0, "nothing is left"
        assert shown(disk, "high_read_commands") == counts["reads"] > 0
        assert shown(disk, "link_read_busy_ns") > 0 and shown(disk, "die_busy_ns") > 0
        weight = folder / "low_weight"
        for text, why in {"0": errno.ERANGE, "257": errno.ERANGE, "-1": errno.EINVAL, "x": errno.EINVAL}.items():
            assert refused(weight, text) == why and weight.read_text() == "1\n", f"weight {text}"
        weight.write_text("256\n")
        assert weight.read_text() == "256\n"


def wrong_values_are_refused() -> None:
    with vssd("none", "a") as disk:
        folder = made_drives.VSSD.with_name("a")
        assert refused(folder / "dies", "4") == errno.EBUSY, "not while it has power"
        (folder / "power").write_text("1")
        assert (folder / "disk").read_text().strip() == disk, "power again changes nothing"
        assert kit.remove_module("vssd") == errno.EWOULDBLOCK, "in use, and removed"
        (folder / "power").write_text("0")
        assert (folder / "disk").read_text() == ""
        for text, why in {"0": errno.ERANGE, "1048577": errno.ERANGE, "-5": errno.EINVAL, "x": errno.EINVAL}.items():
            assert refused(folder / "page", text) == why, f"page {text}"
        for name, text in (("page", "5000"), ("block_size", "513")):
            before = (folder / name).read_text()
            (folder / name).write_text(text)
            said = (folder / "check").read_text()
            assert said.startswith(f"{name} ") and refused(folder / "power", "1") == errno.EINVAL, said
            (folder / name).write_text(before)
        for block_pages, begins in (("4096", "map has tables"), ("2", "map leaves a die")):
            large = {"size": "1099511627776", "map": "1099511627776", "block_pages": block_pages}
            kept = {key: (folder / key).read_text() for key in large}
            for key, text in large.items():
                (folder / key).write_text(text)
            said = (folder / "check").read_text()
            assert said.startswith(begins) and refused(folder / "power", "1") == errno.EINVAL, said
            for key, text in kept.items():
                (folder / key).write_text(text)
        assert (folder / "check").read_text() == ""
        (folder / "power").write_text("1")


def refused(path: Path, text: str) -> int:
    """The errno with which a write is refused; 0 when it is not."""
    try:
        path.write_text(text)
    except OSError as error:
        return error.errno or -1
    return 0


def reloaded_over_and_over() -> None:
    for turn in range(kit.often(20, checked=2)):
        if turn % 2:
            with vssd("none", time_scale=1) as disk, Path("/dev", disk).open("r+b") as device:
                device.write(bytes(MIB))
        assert kit.remove_module("vssd") == 0, "nobody uses it, and it cannot be removed"
        assert not made_drives.VSSD.parent.exists()
        kit.load_module("vssd.ko")


kit.sections(
    wrong_values_are_refused,
    shown_values,
    memory_bound,
    flush_and_fua_wait_for_nand,
    time_scale_slows_the_whole_drive,
    several_at_once,
    verified_under_every_scheduler,
    switched_under_load,
    removed_under_load,
    reloaded_over_and_over,
)
