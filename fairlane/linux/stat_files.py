# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What our schedulers say of each cgroup: io.fairlane.stat and .histogram, and beside them its CPU time.

All that is read is counts since the scheduler was chosen. contention.py makes rates of two readings.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fairlane.errors import FairlaneError
from fairlane.linux import queue, sysfs

STAT, HISTOGRAM = "io.fairlane.stat", "io.fairlane.histogram"
ROOT = "/"  # how the root cgroup is called here


@dataclass(frozen=True)
class Counts:
    """A line of io.fairlane.stat: one cgroup on one drive, without the cgroups below it."""

    wanted: float  # its share of the drive, 0 to 1; 0 while it is not active
    reads: int = 0
    writes: int = 0
    others: int = 0  # discards and flushes
    read_bytes: int = 0
    write_bytes: int = 0
    cost: int = 0
    waited_us: int = 0  # sums over requests
    took_us: int = 0

    @property
    def requests(self) -> int:
        return self.reads + self.writes + self.others


@dataclass(frozen=True)
class Cpu:
    """A cgroup's tasks and the CPU, µs."""

    pressed_us: int  # time in which some waited for one (cpu.pressure)
    throttled_us: int  # by cpu.max


@dataclass(frozen=True)
class Reading:
    """All drives and cgroups at one moment."""

    at_s: float  # of the monotonic clock
    counts: dict[str, dict[str, Counts]]  # by drive (MAJ:MIN), then cgroup: its path below the mount, or ROOT
    histograms: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)  # from so many µs, so many requests
    cpu: dict[str, Cpu] = field(default_factory=dict)  # by cgroup


def parse_stat(text: str) -> dict[str, Counts]:
    """A file io.fairlane.stat, by drive."""
    return {number: _counts(values) for number, values in _lines(text)}


def _counts(values: dict[str, str]) -> Counts:
    number = {key: int(values.get(key, 0)) for key in ("rios", "wios", "dios", "oios", "rbytes", "wbytes", "cost")}
    if "took_usec" not in values:
        raise FairlaneError(
            f"{STAT} lacks took_usec: the modules are older than this program; load those of this version"
        )
    return Counts(
        wanted=float(values["wanted_pct"]) / 100,
        reads=number["rios"],
        writes=number["wios"],
        others=number["dios"] + number["oios"],
        read_bytes=number["rbytes"],
        write_bytes=number["wbytes"],
        cost=number["cost"],
        waited_us=int(values["waited_usec"]),
        took_us=int(values["took_usec"]),
    )


def parse_histogram(text: str) -> dict[str, dict[int, int]]:
    """A file io.fairlane.histogram: by drive, how many requests took so many µs or more, up to the next such number."""
    return {number: {int(from_us): int(count) for from_us, count in values.items()} for number, values in _lines(text)}


def upper_us(from_us: int) -> int:
    """What is counted at @from_us took less than this: a quarter of a power of two more. See mechanisms/times.h."""
    return from_us + (1 << max(0, from_us.bit_length() - 3))


def _lines(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    for line in text.splitlines():
        number, *pairs = line.split()
        yield number, dict(pair.split("=", 1) for pair in pairs)


def parse_cpu(pressure: str, stat: str) -> Cpu:
    """Of cpu.pressure and cpu.stat; either may be empty: the kernel, or the cgroup, does without."""
    some = next((line for line in pressure.splitlines() if line.startswith("some ")), "")
    pressed = dict(pair.split("=", 1) for pair in some.split()[1:]).get("total", "0")
    throttled = dict(line.split(maxsplit=1) for line in stat.splitlines()).get("throttled_usec", "0")
    return Cpu(int(pressed), int(throttled))


class Cgroups:
    """Those below a mount of cgroup v2, to be read over and over: most of what a reading takes is to look for them."""

    def __init__(self, mount: Path) -> None:
        self.mount = mount
        self._folders: list[Path] = []
        self._descendants = ""  # how many they were when they were looked for, as the mount's cgroup.stat says

    def read(self, *, fully: bool = True) -> Reading:
        """Not fully: only the counts. One that took the place of another one since is in the next full reading."""
        now = (sysfs.said(self.mount / "cgroup.stat") or "").partition("\n")[0]
        if fully or not now or now != self._descendants:
            self._folders, self._descendants = list(cgroups(self.mount)), now
        return _read(self.mount, self._folders, fully)


def read(mount: Path) -> Reading:
    """All cgroups, fully."""
    return Cgroups(mount).read()


def _read(mount: Path, folders: list[Path], fully: bool) -> Reading:
    """Counts first, one after the other: who compares cgroups, compares the same time, as nearly as can be.

    A cgroup that has vanished is left out.
    """
    at_s = time.monotonic()
    texts = [sysfs.said(folder / STAT) or "" for folder in folders]
    counts: dict[str, dict[str, Counts]] = {}
    histograms: dict[str, dict[str, dict[int, int]]] = {}
    cpu: dict[str, Cpu] = {}
    for folder, text in zip(folders, texts, strict=True):
        name = str(folder.relative_to(mount)) if folder != mount else ROOT
        found = parse_stat(text)
        for number, line in found.items():
            counts.setdefault(number, {})[name] = line
        if found and fully:
            for number, times in parse_histogram(sysfs.said(folder / HISTOGRAM) or "").items():
                histograms.setdefault(number, {})[name] = times
            cpu[name] = parse_cpu(sysfs.said(folder / "cpu.pressure") or "", sysfs.said(folder / "cpu.stat") or "")
    return Reading(at_s, counts, histograms, cpu)


def cgroups(mount: Path) -> Iterator[Path]:
    """Every cgroup that has our files: the mount itself, and all below it."""
    if not (mount / STAT).exists():
        raise FairlaneError(
            f"{mount / STAT} is not there: no scheduler of ours is loaded; load one and choose it for a drive"
            " (docs/using.md says how)"
        )
    for folder, _, files in os.walk(mount):
        if STAT in files:
            yield Path(folder)


def drives() -> dict[str, tuple[str, str]]:
    """By number (MAJ:MIN), each drive's name and its scheduler: the one beside the elevator if there is one."""
    found = {}
    for folder in sorted(sysfs.SYS_BLOCK.iterdir()):
        number = sysfs.said(folder / "dev")
        chosen = [
            queue.current_scheduler(folder.name, place)
            for place in (queue.ROUTED, queue.QUEUE)
            if queue.scheduler_file(folder.name, place).exists()
        ]
        if number is not None:
            found[number] = folder.name, next((name for name in chosen if name not in ("", "none")), "none")
    return found
