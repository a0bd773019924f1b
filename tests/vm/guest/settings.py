# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: an operator's file on a virtual SSD under load, weights that others write, and everything put back.

Two tenants read from the drive all the time. Prints what the first one gets of it in each step.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fairlane import cli
from fairlane.experiment.model import Profile
from fairlane.experiment.profiles import load_profile
from fairlane.linux import made_drives, others_weights, queue, sysfs
from fairlane.linux.cgroups import io_stat
from fairlane.linux.others_weights import BFQ, FALLBACK, LINUX, scaled_for_bfq
from fairlane.settings.plan import CONTROL, WEIGHT
from fairlane.vm.guest import CGROUPS

# Slow enough to be the bottleneck even when the CPU is emulated and busy; without garbage collection.
DRIVE = {"time_scale": 1000, "map": 0, "size": 1 << 30, "memory": 1 << 28}
SECONDS, SETTLE_S, LIMIT_S = 20.0, 5.0, 300.0
WITHIN = 0.02  # of the drive: who counts is tested here, not how exact the scheduler is; without weights it is 0.1 off
TOP = CGROUPS / "tenants.slice"
TENANTS = [TOP / "a.service", TOP / "b.service"]

WEIGHTS = """
[[cgroup]]
path = "tenants.slice/a.*"
weight = 200

[[cgroup]]
path = "tenants.slice/b.*"
weight = 300
"""
LATER = """
[[cgroup]]
path = "tenants.slice/later-*"
weight = 500
"""


def config(text: str) -> str:
    file = Path(tempfile.mkdtemp(), "fairlane.toml")
    file.write_text('[[drive]]\nname = "vssd*"\nscheduler = "kyber-fairness"\n' + text)
    return str(file)


def fairlane(*args: str) -> None:
    assert cli.main(args) == 0


def wait_for(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not look():
        assert time.monotonic() < deadline, f"not within {LIMIT_S:.0f} s: {what}"
        time.sleep(0.05)


@contextlib.contextmanager
def reader(disk: str, cgroup: Path) -> Iterator[None]:
    fio = ["fio", "--name=x", f"--filename=/dev/{disk}", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=libaio"]
    words = ["sh", "-c", 'echo 0 > "$0" && exec "$@"', str(cgroup / "cgroup.procs"), *fio]
    process = subprocess.Popen(
        [*words, "--iodepth=64", "--numjobs=2", "--time_based", "--runtime=1d"], stdout=subprocess.DEVNULL
    )
    try:
        yield
        assert process.poll() is None, "fio still reads"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT_S)


def read_bytes(number: str) -> list[int]:
    return [int(io_stat(cgroup, number).get("rbytes", 0)) for cgroup in TENANTS]


def first_gets(disk: str, what: str) -> float:
    """The first tenant's part of what both read, by the drive's count of their cgroups."""
    number = sysfs.device_number(disk)
    wait_for(lambda: all(read_bytes(number)), "both read")
    time.sleep(SETTLE_S)
    before = read_bytes(number)
    time.sleep(SECONDS)
    got = [now - was for now, was in zip(read_bytes(number), before, strict=True)]
    print(f"{what}: {got[0] / sum(got):.4f} of {sum(got) / SECONDS / 1e6:.1f} MB/s", flush=True)
    return got[0] / sum(got)


def shared(disk: str, what: str, share: float) -> None:
    got = first_gets(disk, what)
    assert abs(got - share) <= WITHIN, f"{what}: the first gets {got:.4f}, not {share}"


def said(disk: str) -> dict[str, str]:
    """What can be set of the drive and of the tenants."""
    files = [*queue.settings(disk), *(queue.scheduler_file(disk, place) for place in (queue.QUEUE, queue.ROUTED))]
    files += [path for folder in (CGROUPS, TOP, *TENANTS) for path in (folder / CONTROL, *folder.glob("io.*ight*"))]
    return {str(path): path.read_text() for path in files if path.exists()}


def as_systemd_does(cgroup: Path, weight: int) -> None:
    (cgroup / BFQ).write_text(str(scaled_for_bfq(weight)))
    (cgroup / LINUX).write_text(f"default {weight}")


def what_the_file_says_is_done_and_put_back(disk: str) -> None:
    (TOP / CONTROL).write_text("+io")  # so that there is something to count
    before = said(disk)
    (TOP / CONTROL).write_text("-io")
    file = config(WEIGHTS)
    for _ in range(2):  # the second time nothing is to be done
        fairlane("apply", "--config", file)
    shared(disk, "200:300 from the file", 0.4)
    fairlane("restore")
    assert "io" not in (TOP / CONTROL).read_text().split()
    (TOP / CONTROL).write_text("+io")
    assert said(disk) == before, f"not as before: {set(said(disk).items()) ^ set(before.items())}"


def service(file: str, notify: Path) -> None:
    os.environ["NOTIFY_SOCKET"] = str(notify)
    sys.exit(cli.main(["apply", "--watch", "--config", file]))


@contextlib.contextmanager
def watching(file: str) -> Iterator[int]:
    """As systemd starts it, once it says that it is ready."""
    socket_file = Path(tempfile.mkdtemp(), "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(socket_file))
        notify.settimeout(LIMIT_S)
        process = multiprocessing.get_context("fork").Process(target=service, args=(file, socket_file))
        process.start()
        assert process.pid and notify.recv(100) == b"READY=1"
    try:
        yield process.pid
        os.kill(process.pid, signal.SIGTERM)
        process.join(LIMIT_S)
        assert process.exitcode == 0, "it ends as it should"
    finally:
        process.kill()


def followed(*weights: int) -> None:
    def said() -> tuple[int, ...]:
        return tuple(others_weights.said(cgroup / FALLBACK)["default"] for cgroup in TENANTS)

    wait_for(lambda: said() == weights, f"what others have written, {weights}, is followed")


def what_others_write_counts(disk: str) -> None:
    for cgroup, weight in zip(TENANTS, (200, 300), strict=True):
        as_systemd_does(cgroup, weight)
    followed(200, 300)
    shared(disk, "200:300 from systemd", 0.4)
    (TENANTS[0] / WEIGHT).write_text("300")
    as_systemd_does(TENANTS[0], 900)
    followed(900, 300)
    shared(disk, "300 by hand beside systemd's 300", 0.5)
    (TENANTS[0] / WEIGHT).write_text("default")
    assert (TENANTS[0] / WEIGHT).read_text() == "default 900\n"
    as_systemd_does(TENANTS[0], 600)
    followed(600, 300)
    shared(disk, "600:300 from systemd", 2 / 3)
    later = TOP / "later-1.service"
    later.mkdir()
    wait_for(lambda: (later / WEIGHT).read_text() == "default 500\n", "a cgroup that comes has its weight")
    later.rmdir()


def what_others_write_for_one_drive_counts(disk: str) -> None:
    """As systemd does for IODeviceWeight=. io.weight takes it, as io.cost has been told of the drive."""
    number = sysfs.device_number(disk)
    (TENANTS[1] / LINUX).write_text(f"{number} 650")
    wait_for(lambda: others_weights.said(TENANTS[1] / FALLBACK).get(number) == 650, "a drive's weight is followed")
    (TENANTS[1] / LINUX).write_text(f"{number} default")


def a_drives_weight_survives_its_scheduler(disk: str) -> None:
    line, file = f"{sysfs.device_number(disk)} 700\n", TENANTS[1] / WEIGHT
    file.write_text(line)
    for scheduler in ("mq-deadline", "kyber-fairness"):
        queue.scheduler_file(disk, queue.QUEUE).write_text(scheduler)
    wait_for(lambda: line in file.read_text(), "the drive's weight counts again")


def main() -> None:
    os.nice(-15)  # what looks must not wait for what is looked at
    drive = Profile("settings", "ssd", "", {**load_profile("zssd").params, **DRIVE})
    for path in (TOP, *TENANTS):
        path.mkdir()
    file = config(LATER)
    with made_drives.setup(drive) as disk, contextlib.ExitStack() as load:
        queue.scheduler_file(disk, queue.QUEUE).write_text("mq-deadline")
        (queue.iosched(disk) / "read_expire").write_text("400")
        for cgroup in TENANTS:
            load.enter_context(reader(disk, cgroup))
        what_the_file_says_is_done_and_put_back(disk)
        assert (queue.iosched(disk) / "read_expire").read_text() == "400\n"
        before = said(disk)
        with watching(file):
            wait_for(lambda: queue.current_scheduler(disk) == "kyber-fairness", "the drive has its scheduler")
            what_others_write_counts(disk)
            what_others_write_for_one_drive_counts(disk)
            a_drives_weight_survives_its_scheduler(disk)
        for cgroup in TENANTS:
            as_systemd_does(cgroup, 100)
        (TENANTS[1] / WEIGHT).write_text(f"{sysfs.device_number(disk)} default")
        fairlane("restore")
        assert said(disk) == before, f"not as before: {set(said(disk).items()) ^ set(before.items())}"
    with watching(file) as pid, made_drives.setup(drive) as disk:
        os.kill(pid, signal.SIGHUP)  # as udev's rule does
        wait_for(lambda: queue.current_scheduler(disk) == "kyber-fairness", "a drive that comes has its scheduler")


if __name__ == "__main__":
    main()
