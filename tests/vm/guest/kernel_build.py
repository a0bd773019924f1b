# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: part of a kernel is built beside a backup, on one virtual SSD: how long that takes, what the backup reads.

Arguments: the folder of that kernel's source, in which everything but the part is ready; a tar of it; the part. The
source is on the drive, and nothing of it in memory when the build begins. The backup is fio, which reads a file from
end to end, 128 KiB at a time, 32 of them outstanding; the build has 800 of weight, the backup 100. First the build is
alone. Prints for each knob the seconds that it takes, and that over those alone; what both move, by Linux's counts for
each cgroup; the backup's rate over that with none; and the CPUs' use.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from beside import (
    IO_COST,
    IO_COST_QOS,
    cpu_times,
    fill,
    forget,
    make_file_system,
    mounted,
    moved,
    running,
    settable,
    tuned,
    under,
)

from fairlane import proc
from fairlane.experiment.model import Profile, Scenario, TenantSpec
from fairlane.experiment.profiles import load_profile
from fairlane.linux import cgroups, made_drives, sysfs
from fairlane.linux.knob import Need

SOURCE, TARBALL, PART = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
JOBS = 2
BUILD_S = 1200  # only a hang takes so long
# Slow enough to be the bottleneck of the backup even when the CPU is emulated; without garbage collection.
DRIVE = {"time_scale": 25, "map": 0, "size": 4 << 30, "memory": 768 << 20}
BACKED_UP = "256m"
TARGET_S = 0.0025  # of a request of the build: five times what one takes alone
TARGET = "latency target"
QUICKER = 0.9  # of the time under none


@dataclass(frozen=True)
class Row:
    """A knob, and what of it is not as in the other rows."""

    knob: str
    what: str = ""
    variant: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.knob}, {self.what}" if self.what else self.knob


ROWS = (
    *(Row(knob) for knob in ("none", "bfq", IO_COST, IO_COST_QOS)),
    *(Row(knob) for knob in ("kyber-fairness", "d2fq", "mqfq", "mqflashfq", "fairlane")),
    Row("bfq", "low_latency", {"low_latency": 1}),
    Row("fairlane", TARGET),
)


@dataclass(frozen=True)
class Measured:
    """Of a build, from beginning to end."""

    seconds: float
    build_bytes: int
    backup_bytes: int
    requests: int  # of the build
    cpu: float  # the part of all CPUs' time that was used

    @property
    def backup_per_s(self) -> float:
        return self.backup_bytes / self.seconds

    def against(self, alone: Measured, none: Measured) -> str:
        return (
            f"the build takes {self.seconds:.0f} s, {self.seconds / alone.seconds:.2f} of its time alone, and moves"
            f" {self.build_bytes / 1e6:.1f} MB in {self.requests} requests; the backup reads"
            f" {self.backup_per_s / 1e6:.1f} MB/s, {self.backup_per_s / (none.backup_per_s or 1):.2f} of what it does"
            f" with none; {self.cpu:.0%} of the CPUs"
        )


def load(target_s: float = 0.0) -> Scenario:
    """The two tenants, as what a knob is set with; no price list, as hardly anything is written."""
    drive = Profile("kernel-build", "ssd", "", {**load_profile("zssd").params, **DRIVE})
    tenants = (
        TenantSpec("build", weight=800, latency=target_s, jobs=JOBS, bs=16384),  # of read-ahead, from file to file
        TenantSpec("backup", weight=100, rw="read", bs=131072, iodepth=32),
    )
    return Scenario("kernel-build", drive, tenants, seconds=4.0, warmup=1.0)


def clean() -> None:
    """What the last build left behind goes."""
    for pattern in ("*.o", "*.a", ".*.cmd"):
        for path in (SOURCE / PART).rglob(pattern):
            path.unlink()


@contextlib.contextmanager
def backup(cgroup: Path, number: str) -> Iterator[None]:
    argv = ["fio", "--name=backup", f"--filename={SOURCE}/backup", f"--size={BACKED_UP}", "--rw=read", "--bs=128k"]
    argv += ["--direct=1", "--ioengine=libaio", "--iodepth=32", "--time_based", f"--runtime={BUILD_S}"]
    with running(cgroup, number, *argv) as fio:
        time.sleep(5)  # so that a knob has adjusted itself
        yield
        assert fio.poll() is None, f"it still reads, not: {fio.communicate()[0][-2000:]}"


def measured(disk: str, row: Row, need: Need, *, beside: bool = True) -> Measured:
    number = sysfs.device_number(disk)
    scenario = load(TARGET_S if row.what == TARGET else 0.0)
    make = ["make", "-C", SOURCE, f"-j{JOBS}", "CC=gcc", PART]
    with (
        mounted(disk, SOURCE),
        under(disk, row.knob, scenario, need, DRIVE["time_scale"], row.variant) as found,
        contextlib.ExitStack() as stack,
    ):
        clean()
        forget()
        if beside:
            stack.enter_context(backup(found.cgroups["backup"], number))
        build, other = found.cgroups["build"], found.cgroups["backup"]
        before, cpu_before, began = moved(other, number), cpu_times(), time.monotonic()
        with running(build, number, *make) as process:
            said, _ = process.communicate(timeout=BUILD_S)
        seconds, after, cpu_after = time.monotonic() - began, moved(other, number), cpu_times()
        found.check()
        assert process.returncode == 0 and (SOURCE / PART / "built-in.a").exists(), f"it is built, not: {said[-2000:]}"
        counts = cgroups.io_stat(build, number)
        requests = int(counts["rios"]) + int(counts["wios"])
        used, ticks = (now - then for now, then in zip(cpu_after, cpu_before, strict=True))
        return Measured(seconds, moved(build, number), after - before, requests, used / ticks)


def main() -> None:
    found: dict[str, Measured] = {}
    with made_drives.setup(load().profile) as disk, tempfile.TemporaryDirectory() as folder:
        need = tuned(disk, load())
        make_file_system(disk)
        with mounted(disk, Path(folder)):
            proc.output(["tar", "-xf", TARBALL, "-C", folder], what="unpacking the source", limit_s=600)
            fill(Path(folder, "backup"), BACKED_UP)
        alone = measured(disk, Row("none"), need, beside=False)
        print(f"alone: {alone.against(alone, alone)}", flush=True)
        knobs = settable([row.knob for row in ROWS], need)
        for row in (row for row in ROWS if row.knob in knobs):
            found[row.name] = measured(disk, row, need)
            print(f"{row.name}: {found[row.name].against(alone, found['none'])}", flush=True)
    ratio = found[f"fairlane, {TARGET}"].seconds / found["none"].seconds
    assert ratio < QUICKER, f"with a latency target fairlane makes the build quicker than none does: {ratio:.2f}"


if __name__ == "__main__":
    main()
