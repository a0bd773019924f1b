# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: a scheduler fails under load. Its drive goes on without it, goes back to none, and no I/O is lost.

Two schedulers fail on request (tests/vm/schedulers/).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import kit
from kit import Cgroup, Fio

from fairlane import cli
from fairlane.linux import failures
from fairlane.linux.cgroups import io_stat
from fairlane.linux.queue import QUEUE, ROUTED
from fairlane.places import ROOT
from fairlane.vm import guest

FAULTY = ("faulty", "faulty-admission")
FORGETS, REPEATS, MISCOUNTS = 1, 2, 3
BOUND_MS = 1000
RULE = ROOT / "packaging" / "udev" / "90-fairlane.rules"
NETLINK_KOBJECT_UEVENT = 15
MEMORY = {"size": 64 << 20, "memory_backed": 1, "completion_nsec": 1_000_000}
WRITTEN: dict[str, object] = {"ioengine": "libaio", "iodepth": 32, "rw": "randwrite", "bsrange": "4k-64k"}
VERIFIED: dict[str, object] = {**WRITTEN, "verify": "crc32c", "verify_fatal": 1, "size": "2m"}


@contextlib.contextmanager
def uevents() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_KOBJECT_UEVENT) as events:
        events.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        events.bind((0, 1))
        events.settimeout(kit.LIMIT_S)
        yield events


def let_go(events: socket.socket, disk: str) -> str:
    """Waits until udev would be told; the place that it is told."""
    while True:
        said = dict(word.split("=", 1) for word in events.recv(8192).decode().split("\0") if "=" in word)
        if "FAIRLANE_LET_GO" in said:
            assert (said["ACTION"], said["DEVNAME"]) == ("change", disk), said
            return said["FAIRLANE_LET_GO"]


def as_udev_does(place: str, disk: str) -> None:
    """What the rule for such an event says."""
    rule = rf'^ACTION=="change".*ENV{{FAIRLANE_LET_GO}}=="{place}", ATTR{{(.*)}}="(.*)"$'
    rules = re.findall(rule, RULE.read_text(), re.MULTILINE)
    assert len(rules) == 1, f"{RULE} has no rule for {place}"
    ((file, value),) = rules
    Path("/sys/block", disk, file).write_text(value)


def written(disk: str, data: bytes) -> None:
    buffer = mmap.mmap(-1, len(data))
    buffer[:] = data
    fd = os.open(f"/dev/{disk}", os.O_WRONLY | os.O_DIRECT)
    assert os.pwritev(fd, [buffer], 0) == len(data)
    os.close(fd)


def read_back(disk: str, size: int) -> bytes:
    buffer = mmap.mmap(-1, size)
    fd = os.open(f"/dev/{disk}", os.O_RDONLY | os.O_DIRECT)
    assert os.preadv(fd, [buffer], 0) == size
    os.close(fd)
    return buffer[:]


def fails(name: str, place: str, fault: int, reason: str, *, back: bool = True) -> None:
    """@back: udev is there; else the drive is removed as it is."""
    with uevents() as events, kit.drive("none", **MEMORY) as disk:
        Path("/sys/block", disk, place, "scheduler").write_text(name)
        variables = Path("/sys/block", disk, "queue/iosched" if place == QUEUE else ROUTED)
        (variables / "watchdog_msec").write_text("0")
        number = Path("/sys/block", disk, "dev").read_text().strip()
        cgroups = [Cgroup(1000), Cgroup(10)]
        data = os.urandom(1 << 20)
        written(disk, data)
        reader = Fio(disk, cgroups[0], ioengine="libaio", iodepth=32, rw="randread", numjobs=2)
        kit.wait_flow(disk, f"under {name}")
        (variables / "fault").write_text(str(fault))
        # With it in its hands, or waiting to be admitted, or refused a place among the tags.
        writers = [
            Fio(disk, cgroups[0], **VERIFIED, offset="16m"),
            Fio(disk, cgroups[1], **VERIFIED, offset="32m"),
            Fio(disk, cgroups[1], **{**VERIFIED, "ioengine": "psync", "iodepth": 1, "size": "256k"}, offset="48m"),
        ]

        def sent() -> bool:
            return all(int(io_stat(cgroup.path, number).get("wbytes", 0)) for cgroup in cgroups)

        kit.wait_for(sent, "the writers have sent what is to be stuck")
        (variables / "watchdog_msec").write_text(str(BOUND_MS))
        assert let_go(events, disk) == place
        for fio in writers:
            fio.finish()
        kit.wait_flow(disk, "once the scheduler has failed")
        assert read_back(disk, len(data)) == data, "what was written before is lost"
        kept = next(each for each in failures.read() if each.device == disk)
        assert (kept.scheduler, kept.place) == (name, place) and reason in kept.reason, kept
        text = failures.KEPT.read_text()
        assert re.search(rf"^cgroup /{cgroups[0].path.name} weight 1000 .*wanted_pct=", text, re.MULTILINE), text
        print(disk, name, kept.reason, *re.findall(r"hwq \d+ .*taken_out \d+", text), sep="; ")
        if back:
            assert failures.given_up(disk, name)
            as_udev_does(place, disk)
            assert "[none]" in Path("/sys/block", disk, place, "scheduler").read_text()
            kit.wait_flow(disk, "under none")
            assert failures.given_up(disk, name), "the state is kept"
        reader.stop()
        for cgroup in cgroups:
            cgroup.remove()
        events.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            assert not let_go(events, disk), "told again"


def who_forgets() -> None:
    fails("faulty", QUEUE, FORGETS, "has waited longer")


def who_forgets_and_goes_with_the_drive() -> None:
    fails("faulty", QUEUE, FORGETS, "has waited longer", back=False)


def who_repeats() -> None:
    fails("faulty", QUEUE, REPEATS, "not staged")


def who_miscounts() -> None:
    fails("faulty", QUEUE, MISCOUNTS, "below zero")


def who_admits_nobody() -> None:
    fails("faulty-admission", ROUTED, 1, "has waited longer")


def who_admits_nobody_and_goes_with_the_drive() -> None:
    fails("faulty-admission", ROUTED, 1, "has waited longer", back=False)


def all_is_in_the_report() -> None:
    file = Path(tempfile.mkdtemp(), "report.txt")
    assert cli.main(["report-bug", "--out", str(file)]) == 0
    text = file.read_text()
    for wanted in ("\nfairlane 0", "\nkernel ", "scheduler faulty-admission", "reason a request", "has failed: "):
        assert wanted in text, f"no {wanted!r} in the report:\n{text}"
    print(len(text.splitlines()), "lines in the report")


def chosen_again_it_works() -> None:
    """And its modules can be removed: nothing is kept of it but text."""
    with kit.drive("none", **MEMORY) as disk:
        kit.queue(disk, "scheduler").write_text("faulty")
        Fio(disk, Cgroup(100), **VERIFIED).finish()
    for name in MODULES:
        kit.wait_for(lambda: not kit.remove_module(name.removesuffix(".ko")), f"{name} can be removed")  # noqa: B023
    kit.reload_modules()
    assert not failures.read(), "it goes with the module"


MODULES = ("faulty.ko", "faulty-admission-qos.ko")
for module in MODULES:
    kit.load_module(module)
kit.sections(
    who_forgets,
    who_forgets_and_goes_with_the_drive,
    who_repeats,
    who_miscounts,
    who_admits_nobody,
    who_admits_nobody_and_goes_with_the_drive,
    all_is_in_the_report,
    chosen_again_it_works,
)
said = [line for line in guest.kernel_log() if "has failed" in line]
assert len(said) == 6, f"one line for each failure: {said}"
