# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What fio wrote, put together: what each tenant moved within the measuring window."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlane.errors import FairlaneError
from fairlane.experiment.model import Scenario, TenantSpec
from fairlane.experiment.results import Series
from fairlane.linux.disks import Target
from fairlane.linux.fio_jobs import BIN_MS, PERCENTILES, block_size

Counts = Callable[[], dict[str, tuple[int, int]]]  # bytes read and written so far by each tenant, as the kernel counts


@dataclass(frozen=True)
class Sample:
    """Counters at one moment."""

    when: float  # wall clock, s
    busy_s: float  # CPU time of the whole system since boot
    moved: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Load:
    """What one tenant moved within the measuring window."""

    read_bytes: float
    write_bytes: float
    ios: float
    lat_us: dict[str, float | None]
    series: Series


@dataclass(frozen=True)
class Measured:
    """What one fio process measured."""

    seconds: float  # length of the measuring window
    loads: dict[str, Load]  # by tenant
    busy_s: float | None  # CPU time spent by the whole system within the window
    window: tuple[float, float]  # when it began and ended, wall clock, s

    @property
    def bytes_per_s(self) -> float:
        return sum(load.read_bytes + load.write_bytes for load in self.loads.values()) / self.seconds

    @property
    def ios(self) -> float:
        return sum(load.ios for load in self.loads.values())


def cut_short(file: Path) -> FairlaneError:
    """On a full disk fio ends as if nothing were wrong."""
    return FairlaneError(
        f"{file}: fio has not written all of it, so the disk may be full; free some space and start the same command"
        " again"
    )


def collect(
    scenario: Scenario, report: Mapping[str, Any], logs: Path, samples: Sequence[Sample], target: Target
) -> Measured:
    entries = {tenant.name: _read_logs(logs, tenant) for tenant in scenario.tenants}
    stamps = sorted({ms for tenant in entries.values() for ms, _ in tenant})
    if not stamps:
        raise FairlaneError(f"scenario {scenario.name}: fio completed no I/O at all within {scenario.seconds:g} s")
    begin = _begin(scenario, stamps)
    window = begin / 1000, begin / 1000 + scenario.seconds
    passes = _passes(stamps)
    bins = round(scenario.seconds * 1000 / BIN_MS)
    groups = [job for job in report["jobs"] if isinstance(job.get("mixed"), dict)]
    loads = {}
    for tenant, group in zip(scenario.tenants, groups, strict=True):
        spread = _spread(entries[tenant.name], passes, begin)
        read, write = _moved(tenant.name, samples, window) or _moved_by_fio(group, spread, bins)
        loads[tenant.name] = Load(
            read_bytes=read,
            write_bytes=write,
            ios=(read + write) / (_mean_size(group["mixed"]) if tenant.trace else block_size(tenant, target)),
            lat_us=_latency(group["mixed"]["lat_ns"]),
            series=_series(spread[:bins], read + write, bins),
        )
    return Measured(scenario.seconds, loads, _between([(s.when, s.busy_s) for s in samples], window), window)


def _begin(scenario: Scenario, stamps: Sequence[int]) -> int:
    """When the window began, in ms: BIN_MS before the first entry of any log.

    Without CPU time to spare, fio begins its logs late. The last entry, which no job ends before, then tells more.
    """
    phases = [phase for tenant in scenario.tenants for phase in tenant.phases(scenario.seconds)]
    first, last = min(start for start, _ in phases), max(stop for _, stop in phases)
    return min(stamps[0] - BIN_MS - round(first * 1000), stamps[-1] - round(last * 1000))


def _moved(name: str, samples: Sequence[Sample], window: tuple[float, float]) -> tuple[float, float] | None:
    """Bytes read and written within the window as the kernel counted, or None when it did not count for us."""
    if not all(name in sample.moved for sample in samples):
        return None
    read, write = (_between([(s.when, s.moved[name][way]) for s in samples], window) for way in (0, 1))
    return (read, write) if read is not None and write is not None else None


def _moved_by_fio(group: Mapping[str, Any], spread: Sequence[float], bins: int) -> tuple[float, float]:
    """The same from fio's totals, less the part that its logs show after the window."""
    inside = sum(spread[:bins]) / sum(spread) if spread and sum(spread) else 0.0
    return group["read"]["io_bytes"] * inside, group["write"]["io_bytes"] * inside


def _mean_size(mixed: Mapping[str, Any]) -> float:
    """Of what fio completed; of nothing, what does not divide."""
    return float(mixed["io_bytes"] / mixed["total_ios"]) if mixed["total_ios"] else 1.0


def _read_logs(logs: Path, tenant: TenantSpec) -> list[tuple[int, int]]:
    """(time in ms, KiB/s) of every entry of the tenant's jobs; a line is "time, rate, direction, ..."."""
    entries = []
    for path in logs.glob(f"{tenant.name}.*_bw.*.log"):
        text = path.read_text()
        try:
            entries += [(int(ms), int(rate)) for ms, rate, *_ in (line.split(",") for line in text.splitlines())]
        except ValueError as error:
            raise cut_short(path) from error
        empty_though_room = not text and os.statvfs(path).f_bavail  # of a job that completed nothing
        if not text.endswith("\n") and not empty_though_room:
            raise cut_short(path)
    return entries


def _passes(stamps: Sequence[int]) -> list[int]:
    """When fio took samples: of all jobs in one pass, within a few ms; a job that moved nothing gets no entry."""
    passes = [stamps[0] - BIN_MS]
    for ms in stamps:
        if ms - passes[-1] >= BIN_MS / 2:
            passes.append(ms)
    return passes


def _spread(entries: Sequence[tuple[int, int]], passes: Sequence[int], begin: int) -> list[float]:
    """Bytes per bin since begin: each entry is the mean rate since the pass before it."""
    last = max((ms for ms, _ in entries), default=begin)
    bins = [0.0] * ((last - begin) // BIN_MS + 2)
    for ms, rate in entries:
        t = max(begin, passes[max(0, bisect_left(passes, ms - BIN_MS // 2 + 1) - 1)])
        while t < ms:
            nth = (t - begin) // BIN_MS
            until = min(ms, begin + (nth + 1) * BIN_MS)
            bins[nth] += rate * 1.024 * (until - t)
            t = until
    return bins


def _series(spread: Sequence[float], moved: float, bins: int) -> Series:
    """The series, made to add up to what was moved: the logs know the shape well, but the times only to 1 ms."""
    total = sum(spread)
    series = [round(value * moved / total) for value in spread] if total else []
    return Series(BIN_MS, series + [0] * (bins - len(series)))


def _latency(lat_ns: Mapping[str, Any]) -> dict[str, float | None]:
    if not lat_ns["N"]:
        return dict.fromkeys(("mean", *PERCENTILES, "max"))
    percentiles = {name: lat_ns["percentile"][key] / 1000 for name, key in PERCENTILES.items()}
    return {"mean": lat_ns["mean"] / 1000, **percentiles, "max": lat_ns["max"] / 1000}


def _between(samples: Sequence[tuple[float, float]], window: tuple[float, float]) -> float | None:
    """How much a counter rose within the window, by straight lines between samples; None when they do not cover it."""

    def at(when: float) -> float | None:
        i = bisect_left(samples, (when, 0.0))
        if not 0 < i < len(samples):
            return None
        (t0, before), (t1, after) = samples[i - 1], samples[i]
        return before + (after - before) * (when - t0) / (t1 - t0)

    first, last = at(window[0]), at(window[1])
    return last - first if first is not None and last is not None else None
