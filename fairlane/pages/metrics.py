# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What our schedulers count, as OpenMetrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from fairlane.linux.stat_files import Counts, Reading, upper_us

LABELS = ("drive", "cgroup")
STEPS_US = tuple(16 << shift for shift in range(21))  # of the histogram: 16 us to 16.8 s
WaitedFor = Mapping[str, Mapping[str, Mapping[str, float]]]  # us, by drive (MAJ:MIN), who waits, and for whom

COUNTERS: tuple[tuple[str, str, Callable[[Counts], float]], ...] = (
    ("fairlane_reads", "Reads sent to the drive.", lambda counts: counts.reads),
    ("fairlane_writes", "Writes sent to the drive.", lambda counts: counts.writes),
    ("fairlane_others", "Discards and flushes sent to the drive.", lambda counts: counts.others),
    ("fairlane_read_bytes", "Bytes of these reads.", lambda counts: counts.read_bytes),
    ("fairlane_write_bytes", "Bytes of these writes.", lambda counts: counts.write_bytes),
    ("fairlane_cost", "What the cgroup was charged.", lambda counts: counts.cost),
    ("fairlane_waited_seconds", "Time that requests waited in the scheduler, a sum.", lambda c: c.waited_us / 1e6),
    ("fairlane_took_seconds", "Time that requests took, waiting included, a sum.", lambda c: c.took_us / 1e6),
)


@dataclass(frozen=True)
class Metrics(Collector):
    """All of them, read anew at each collection. Without a reading there are none."""

    read: Callable[[], Reading | None]
    names: Callable[[], Mapping[str, tuple[str, str]]]  # of drives, by MAJ:MIN
    waited_for: Callable[[], WaitedFor]

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        reading = self.read()
        if reading is None:
            return
        names = {number: name for number, (name, _) in self.names().items()}
        lines = [
            (names.get(number, number), _text(cgroup), counts)
            for number, found in reading.counts.items()
            for cgroup, counts in found.items()
        ]
        for name, about, value in COUNTERS:
            counter = CounterMetricFamily(name, about, labels=LABELS)
            for drive, cgroup, counts in lines:
                counter.add_metric([drive, cgroup], value(counts))
            yield counter
        wanted = GaugeMetricFamily(
            "fairlane_wanted_ratio", "The cgroup's share of the drive among active ones, 0 to 1.", labels=LABELS
        )
        for drive, cgroup, counts in lines:
            wanted.add_metric([drive, cgroup], counts.wanted)
        yield wanted
        yield _histogram(reading, names)
        yield _waited_for(self.waited_for(), names)


def _histogram(reading: Reading, names: Mapping[str, str]) -> Metric:
    found = HistogramMetricFamily(
        "fairlane_latency_seconds", "Time that a request took, waiting included.", labels=LABELS
    )
    for number, cgroups in reading.histograms.items():
        for cgroup, times in cgroups.items():
            steps = [
                (str(us / 1e6), sum(count for from_us, count in times.items() if upper_us(from_us) <= us))
                for us in STEPS_US
            ]
            took_us = reading.counts[number][cgroup].took_us
            found.add_metric(
                [names.get(number, number), _text(cgroup)], [*steps, ("+Inf", sum(times.values()))], took_us / 1e6
            )
    return found


def _waited_for(waited: WaitedFor, names: Mapping[str, str]) -> Metric:
    found = CounterMetricFamily(
        "fairlane_waited_for_seconds",
        "Time that requests of cgroup waited while those of whom were served, since this program runs.",
        labels=(*LABELS, "whom"),
    )
    for number, cgroups in waited.items():
        for cgroup, others in cgroups.items():
            for whom, us in others.items():
                found.add_metric([names.get(number, number), _text(cgroup), _text(whom)], us / 1e6)
    return found


def _text(cgroup: str) -> str:
    """Its name may be of any bytes, a label is UTF-8."""
    return cgroup.encode(errors="backslashreplace").decode()


def registry(metrics: Metrics) -> CollectorRegistry:
    found = CollectorRegistry(auto_describe=False)
    found.register(metrics)
    return found


def text(metrics: Metrics) -> str:
    """In the format of OpenMetrics."""
    found: bytes = generate_latest(registry(metrics))  # type: ignore[no-untyped-call]
    return found.decode()
