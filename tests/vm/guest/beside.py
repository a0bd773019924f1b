# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What the scripts share in which a real program and fio use one drive: its file system, a program in its cgroup, and
the knob that is to keep them apart, set as `fairlane run` sets it and read back."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlane import proc
from fairlane.backends.host import Host
from fairlane.backends.job import Job, Options
from fairlane.experiment.model import Scenario, Variant
from fairlane.linux import cgroups, io_cost, knobs, sysfs
from fairlane.linux.fio import busy_seconds
from fairlane.linux.knob import Need, Setting, differing
from fairlane.vm.guest import CGROUPS

IO_COST, IO_COST_QOS = "io.cost", "io.cost-qos"
BEGINS_S = 60.0  # until a program that was started uses the drive


@dataclass(frozen=True)
class Under:
    """A knob that is set."""

    cgroups: Mapping[str, Path]  # the tenants'
    check: Callable[[], None]  # that the kernel has it as it was set, and io.cost's vrate within its range


def tuned(disk: str, scenario: Scenario) -> Need:
    """What knobs are set from, for that load, in which fio stands in for the program. It is measured on the drive,
    which is overwritten. Without latency targets, where io.cost-qos cannot be set for that load."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = [Job(name, scenario, Variant(name, name), Path(folder)) for name in (IO_COST, IO_COST_QOS)]
        found = {each.job.variant.name: each.results for each in Host(disk, Options(destroy_data=disk)).run(jobs)}
    assert not found[IO_COST].unavailable, found[IO_COST].unavailable
    left_out = found[IO_COST_QOS].unavailable
    name = IO_COST if left_out else IO_COST_QOS
    config = found[name].config[name]
    print(
        *left_out.values(), f"{name}: {config['speed']}; {config['io.cost.model']}; {config['io.cost.qos']}", sep="\n"
    )
    model = {name: int(value) for name, value in re.findall(r"([rw]\w*ps)=(\d+)", config["io.cost.model"])}
    targets_us = {
        {"r": "read", "w": "write"}[way]: float(us) for way, us in re.findall(r"([rw])lat=(\d+)", config["io.cost.qos"])
    }
    return Need(io_cost=io_cost.Tuned(io_cost.Model(**model), 1.0, config["speed"], targets_us or None))


def settable(names: Sequence[str], need: Need) -> list[str]:
    """Those of the knobs that can be set from that."""
    return [name for name in names if name != IO_COST_QOS or (need.io_cost and need.io_cost.targets_us)]


@contextlib.contextmanager
def under(
    disk: str, knob: str, scenario: Scenario, need: Need, time_scale: int, variant: Mapping[str, int] | None = None
) -> Iterator[Under]:
    """The tenants' cgroups, with what they write back charged to them, and the knob; variant: tunables of it."""
    (CGROUPS / "cgroup.subtree_control").write_text("+memory\n")
    with cgroups.tree((), scenario.tenants) as tree:
        (tree.top / "cgroup.subtree_control").write_text("+memory\n")
        number = sysfs.device_number(disk)
        setting = Setting(disk, number, tree, scenario, need, variant=variant or {}, time_scale=time_scale)

        def check() -> None:
            assert not differing(setting), differing(setting)
            if knob in (IO_COST, IO_COST_QOS):
                assert need.io_cost
                _, qos = need.io_cost.by_model() if knob == IO_COST else need.io_cost.by_qos()
                vrate = io_cost.vrate(tree.mount, number)
                assert vrate and qos.low - io_cost.TOLERANCE <= vrate <= qos.high + io_cost.TOLERANCE, vrate
                print(f"{knob}: vrate {vrate:.0f} %", flush=True)

        with knobs.applied(knobs.TABLE[knob], setting):
            yield Under(tree.paths, check)


@contextlib.contextmanager
def mounted(disk: str, folder: Path) -> Iterator[None]:
    """The drive's file system, of which nothing is in memory yet."""
    proc.output(["mount", f"/dev/{disk}", folder], what="mounting it", limit_s=60)
    try:
        yield
    finally:
        proc.output(["umount", folder], what="unmounting it", limit_s=120)


def make_file_system(disk: str) -> None:
    argv = ["mkfs.ext4", "-q", "-F", "-E", "nodiscard", f"/dev/{disk}"]
    proc.output(argv, what="making a file system", limit_s=120)


def fill(path: Path, size: str) -> None:
    """A file for fio."""
    argv = ["fio", "--name=fill", f"--filename={path}", f"--size={size}", "--rw=write", "--bs=1m", "--end_fsync=1"]
    proc.output(argv, what=f"filling {path}", limit_s=300)


def cpu_times() -> tuple[float, float]:
    """Used, and in all, in seconds of all CPUs."""
    return busy_seconds(), time.monotonic() * (os.cpu_count() or 1)


def forget() -> None:
    """Nothing of the drive stays in memory."""
    proc.output(["sync"], what="writing it all", limit_s=300)
    Path("/proc/sys/vm/drop_caches").write_text("3")


def moved(cgroup: Path, number: str) -> int:
    """Bytes read and written."""
    counts = cgroups.io_stat(cgroup, number)
    return int(counts.get("rbytes", 0)) + int(counts.get("wbytes", 0))


@contextlib.contextmanager
def running(cgroup: Path, number: str, *argv: object) -> Iterator[subprocess.Popen[str]]:
    """A program in the cgroup that has begun to use the drive, until it ends or, at the end, is killed."""
    began = moved(cgroup, number)
    words = ["sh", "-c", 'echo 0 > "$0" && exec "$@"', cgroup / "cgroup.procs", *argv]
    process = subprocess.Popen(
        [str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        deadline = time.monotonic() + BEGINS_S
        while moved(cgroup, number) == began:
            assert process.poll() is None, f"{argv[0]}: {process.communicate()[0][-2000:]}"
            assert time.monotonic() < deadline, f"{argv[0]} uses the drive"
            time.sleep(0.1)
        yield process
    finally:
        (cgroup / "cgroup.kill").write_text("1")  # fio's jobs leave its process group
        process.wait()
        while (cgroup / "cgroup.procs").read_text():
            time.sleep(0.01)
