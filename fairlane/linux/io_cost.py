# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""io.cost: its cost model, its QoS parameters, how both are found for a drive, and what the kernel says while it runs.

io.cost (block/blk-iocost.c) hands out the drive's time. A linear model says how much of it a request takes; `vrate`
says how fast time passes, in percent of real time. The kernel moves vrate by a few percent in a period, only between
`min` and `max`, and only while it finds the drive busy or its own throttling needless. So `min=30 max=30` does not
make vrate 30: unless the kernel moves it, it stays where it was, and io.cost limits nobody. Two settings work:

    model   Scale the model to what the drive does under the load, and fix vrate at 100 %. A model that says twice of
            what the drive can do is halved: at 100 %, time then passes as fast as the drive works.
    QoS     Let vrate leave 100 % of the scaled model, in a range, by targets for the P99 of reads and of writes at the
            drive. It falls while more than 1 % of them take longer, and rises while hardly any do and somebody is held
            back. The targets are the tightest of a sweep that keep nine tenths of the throughput, and the shares.

The model's six coefficients are measured after iocost_coef_gen.py by the controller's authors, each by a load of its
own. docs/fair-play.md says what differs from their tools, and why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Self

from fairlane.experiment.model import TenantSpec
from fairlane.linux import sysfs
from fairlane.linux.cgroups import io_stat
from fairlane.proc import shielded

PAGE = 4096  # the model's page, whatever the machine's
FIXED = 100.0  # percent: where vrate begins, and with min and max at it, stays
QOS_PERCENT = 99  # the percentile that the latency targets are for
QOS_LOW, QOS_HIGH = 50.0, 150.0  # percent that vrate may follow the targets to, as isol-bench's authors allow it
TOLERANCE = 0.5  # percent of vrate; the kernel prints two decimals
CHARGED = 0.9  # of the time that vrate allows: what busy tenants are charged at least, if io.cost holds anybody back
MOVING = 0.1  # relative change of the mean vrate from the first to the last third of a run
STILL = 0.03  # the same while it settles, in half as many periods as a run may have
SECONDS, WARMUP = 2.0, 1.0  # for each coefficient
COEFFICIENTS = {  # name: (pattern, block size, queue depth of each job)
    "rbps": ("read", 1 << 20, 8),
    "rseqiops": ("read", 4096, 64),
    "rrandiops": ("randread", 4096, 64),
    "wbps": ("write", 1 << 20, 8),
    "wseqiops": ("write", 4096, 64),
    "wrandiops": ("randwrite", 4096, 64),
}
JOBS = min(4, os.cpu_count() or 1)
# A model so fast that it limits nobody.
SLACK = 10**12, 10**8


@dataclass(frozen=True)
class Model:
    """The most that the drive does of one kind of request: bytes/s of large ones, and 4 KiB requests per second."""

    rbps: int
    rseqiops: int
    rrandiops: int
    wbps: int
    wseqiops: int
    wrandiops: int

    @property
    def line(self) -> str:
        """What io.cost.model takes after MAJ:MIN."""
        return "ctrl=user model=linear " + " ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))

    @classmethod
    def slack(cls) -> Self:
        return cls(*(SLACK[0] if field.name.endswith("bps") else SLACK[1] for field in fields(cls)))

    def plausible(self) -> Model:
        """Large requests move at least as many bytes as small ones do.

        On a slow drive few of them are done while they are measured; found too slow, they would make the small ones
        dear, since the kernel charges those for their page at least.
        """
        reads = max(self.rbps, PAGE * max(self.rseqiops, self.rrandiops))
        writes = max(self.wbps, PAGE * max(self.wseqiops, self.wrandiops))
        return replace(self, rbps=reads, wbps=writes)

    def scaled(self, speed: float) -> Model:
        """The model of a drive that is that many times as fast."""
        return Model(*(max(1, round(getattr(self, field.name) * speed)) for field in fields(self)))

    def busy(self, tenant: TenantSpec, reads_per_s: float, writes_per_s: float) -> float:
        """The fraction of the modelled drive's time that requests of the tenant's size and pattern take.

        As calc_vtime_cost_builtin() has it: a request is charged for its pages, and for being one. It is sequential
        if it continues where the last one of its cgroup ended, which several jobs do not.
        """
        sequential = tenant.jobs == 1 and not tenant.rw.startswith("rand")
        pages = max(1, (tenant.bs or PAGE) // PAGE)
        busy = 0.0
        for way, per_s in (("r", reads_per_s), ("w", writes_per_s)):
            page = PAGE / getattr(self, f"{way}bps")
            one = 1 / getattr(self, f"{way}{'seq' if sequential else 'rand'}iops")
            busy += per_s * (max(0.0, one - page) + pages * page)
        return busy


@dataclass(frozen=True)
class Qos:
    """The line of io.cost.qos: latencies that vrate follows, and the range that it is left."""

    targets_us: Mapping[str, float]  # "read", "write": P99 at the drive; what is not there does not count
    low: float = FIXED  # percent
    high: float = FIXED

    @property
    def line(self) -> str:
        """What io.cost.qos takes after MAJ:MIN."""
        words = ["enable=1", "ctrl=user"]
        for way in ("read", "write"):
            words.append(f"{way[0]}pct={QOS_PERCENT if way in self.targets_us else 0}.00")
            if way in self.targets_us:
                words.append(f"{way[0]}lat={round(self.targets_us[way])}")
        return " ".join([*words, f"min={self.low:.2f}", f"max={self.high:.2f}"])


@dataclass(frozen=True)
class Tuned:
    """io.cost as found for a drive and a load."""

    model: Model  # as measured
    speed: float  # of the model, at which shares hold
    why: str  # how that speed was found
    targets_us: Mapping[str, float] | None = None  # P99 of "read" and "write" that QoS is to hold; None: not looked for
    load: tuple[TenantSpec, ...] = ()  # that the targets were found under, with all tenants busy

    def by_model(self, part: float = 1.0) -> tuple[Model, Qos]:
        """At that part of the speed. The kernel's own targets, which set nothing but the length of its period, are
        left as they are: the shorter the period, the closer shares are kept."""
        return self.model.scaled(self.speed * part), Qos({})

    def by_qos(self, least: float = QOS_LOW, part: float = 1.0) -> tuple[Model, Qos]:
        """100 % is the speed that was found; vrate may leave it where the load is another, down to @least, or where
        its targets are to be that part of those that were found."""
        targets_us = {way: us * part for way, us in (self.targets_us or {}).items()}
        return self.model.scaled(self.speed), Qos(targets_us, least, QOS_HIGH)


SLACK_QOS = Qos({})


def coefficient(name: str, jobs: int) -> TenantSpec:
    """The load that measures that coefficient, on an otherwise idle device."""
    rw, bs, iodepth = COEFFICIENTS[name]
    return TenantSpec(name=name, jobs=jobs, rw=rw, bs=bs, iodepth=iodepth)


def period_s(targets_us: Mapping[str, float]) -> float:
    """How long the controller's period is with targets for the 99th percentile: ioc_refresh_period_us()."""
    return min(1.0, 2 * max(targets_us.values(), default=25_000) / 1e6)


# --- What the kernel says ---


@dataclass(frozen=True)
class Seen:
    """What the kernel said of io.cost during a run."""

    low: float  # of vrate, percent
    mean: float
    high: float
    first: float  # the mean of the run's first third, and of its last
    last: float

    @classmethod
    def of(cls, vrates: Sequence[float]) -> Self:
        third = max(1, len(vrates) // 3)
        return cls(min(vrates), fmean(vrates), max(vrates), fmean(vrates[:third]), fmean(vrates[-third:]))

    @property
    def settled(self) -> bool:
        return abs(self.last - self.first) <= STILL * self.mean

    def wrong(self, qos: Qos, steady: bool) -> str | None:
        """Why the run says nothing of io.cost as it was set, or None; steady: its load is the same all the time."""
        if self.low < qos.low - TOLERANCE or self.high > qos.high + TOLERANCE:
            return f"cost.vrate was {self.low:.1f} to {self.high:.1f} %, not {qos.low:.1f} to {qos.high:.1f} %"
        if steady and abs(self.last - self.first) > MOVING * self.mean:
            return f"cost.vrate was still moving, from {self.first:.1f} to {self.last:.1f} %"
        return None


def vrate(mount: Path, number: str) -> float | None:
    """cost.vrate of the drive (MAJ:MIN) in percent, from the root cgroup's io.stat; None while io.cost is off."""
    value = io_stat(mount, number).get("cost.vrate")
    return None if value is None else float(value)


@dataclass(frozen=True)
class DriveTimes:
    """How many reads and writes the drive has done, and how long they were with it altogether."""

    ios: tuple[int, int]
    ms: tuple[int, int]

    def means_us(self, before: DriveTimes) -> dict[str, float]:
        """Mean latencies at the drive since then; no key where there was none."""
        both = zip(("read", "write"), self.ios, before.ios, self.ms, before.ms, strict=True)
        return {way: (ms - was_ms) * 1000 / (ios - was) for way, ios, was, ms, was_ms in both if ios > was}


def drive_times(folder: Path) -> DriveTimes:
    """From /sys/block/DEVICE/stat, which knows nothing of bios that are held back."""
    reads, _, _, read_ms, writes, _, _, write_ms = map(int, (folder / "stat").read_text().split()[:8])
    return DriveTimes((reads, writes), (read_ms, write_ms))


def usage_us(cgroup: Path, number: str) -> int | None:
    """The drive's time that the cgroup was charged so far, by the model."""
    value = io_stat(cgroup, number).get("cost.usage")
    return None if value is None else int(value)


# --- On and off ---


@contextmanager
def without(mount: Path, number: str) -> Iterator[None]:
    """Switch off an io.cost that somebody has on the drive, which would be beneath every other knob; then on again."""
    file = mount / "io.cost.qos"  # only the root cgroup has one, and not in every kernel
    before = sysfs.line_of(file, number) if file.exists() else None
    if before is None or "enable=1" not in before.split():
        yield
        return
    try:
        sysfs.write(file, f"{number} enable=0")
        yield
    finally:
        with shielded():
            sysfs.write(file, f"{number} {_restoring(before)}")


@contextmanager
def applied(mount: Path, number: str, files: Mapping[str, str], write: Callable[[Path, str], None]) -> Iterator[None]:
    """Have it on, with these lines of its files, which `write` writes."""
    before = {file: sysfs.line_of(mount / file, number) for file in files}
    try:
        for file, line in files.items():
            sysfs.write(mount / file, f"{number} ctrl=auto")  # else what a line leaves out stays as it was
            write(mount / file, f"{number} {line}")
        yield
    finally:
        with shielded():
            off = mount / "io.cost.qos", f"{number} enable=0"
            back = ((mount / file, f"{number} {_restoring(said)}") for file, said in before.items())
            sysfs.write_all((off, *back))


def _restoring(line: str | None) -> str:
    """What to write to get back what a file of io.cost said; parameters would turn an automatic one manual."""
    values = (line or "ctrl=auto").split()
    return " ".join(value for value in values if "ctrl=auto" not in values or value.startswith(("ctrl=", "enable=")))
