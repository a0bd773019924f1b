# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Who waits, for whom, and what limits it: from readings of what the schedulers count (stat_files.py).

For whom. Between two readings, a cgroup's requests waited for some time, and the drive served each cgroup so much. That
time is divided among the cgroups by what they were served: while one waits, the next one is served instead. What it was
served itself it waited for, too: requests of its own were ahead. So the time that it waits for others, and for itself,
adds up to what it waits. A request's dispatch pays nothing for this; but it supposes that both were spread evenly
between the two readings. So they are EVERY_S apart, or as much more as watching.py allows for what a reading takes, and
what lasts for less is blurred.

What limits. In this order:

    starved  it wants to send, and in all this time nothing of it was sent, nor anything done
    share    the scheduler holds it back: of the time that its requests take, they wait WAITS or more
    CPU      its tasks wait for a CPU, or are throttled by cpu.max, for PRESSED of the time or more
    itself   it has no request at all for some of the time: fewer than BUSY are there in the mean
    drive    none of these: its requests are in the drive, nearly always
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fairlane.linux.stat_files import Counts, Cpu, Reading, upper_us

EVERY_S = 0.02
WAITS, PRESSED, BUSY = 0.10, 0.25, 0.90
SHARE, CPU, ITSELF, DRIVE, IDLE, STARVED = "share", "CPU", "itself", "drive", "idle", "starved"


@dataclass(frozen=True)
class Tenant:
    """A cgroup on a drive, over a while."""

    cgroup: str
    wanted: float  # its share at the end, 0 to 1
    got: float | None  # its part of all cost; None: nobody was served
    read_iops: float
    write_iops: float
    read_bytes_per_s: float
    write_bytes_per_s: float
    requests: int
    p50_us: float | None  # of all that a request takes, waiting included
    p99_us: float | None
    waits: float | None  # of the time that its requests take, the part that they wait in the scheduler
    waits_for: dict[str, float]  # the same, by cgroup (itself among them), most first
    served: dict[str, float]  # while it had requests, each cgroup's part of what the drive did, most first
    present: float  # requests that it has in the mean, waiting or in the drive
    pressed: float  # the part of the time in which its tasks lacked a CPU
    limit: str

    @property
    def iops(self) -> float:
        return self.read_iops + self.write_iops

    @property
    def bytes_per_s(self) -> float:
        return self.read_bytes_per_s + self.write_bytes_per_s

    @property
    def waits_most_for(self) -> str | None:
        """Which other cgroup; None: none."""
        return next((name for name in self.waits_for if name != self.cgroup), None)


@dataclass(frozen=True)
class Drive:
    """A drive, over a while."""

    number: str  # MAJ:MIN
    seconds: float
    tenants: tuple[Tenant, ...]

    @property
    def bytes_per_s(self) -> float:
        return sum(tenant.bytes_per_s for tenant in self.tenants)

    @property
    def iops(self) -> float:
        return sum(tenant.iops for tenant in self.tenants)


def drives(readings: Sequence[Reading]) -> list[Drive]:
    """What each drive did from the first to the last of two or more readings. Those in between need not be full."""
    numbers = [number for number in readings[-1].counts if any(number in each.counts for each in readings[:-1])]
    return [_drive(number, readings) for number in sorted(numbers)]


def _drive(number: str, readings: Sequence[Reading]) -> Drive:
    seconds = readings[-1].at_s - readings[0].at_s
    waited, present = divided(number, readings)
    totals = {name: _since(number, name, readings) for name in readings[-1].counts[number]}
    costs = {name: float(total.cost) for name, total in totals.items()}
    tenants = [
        _tenant(number, name, total, costs, readings, waited.get(name, {}), present.get(name, {}))
        for name, total in totals.items()
    ]
    return Drive(number, seconds, tuple(tenants))


def _tenant(
    number: str,
    name: str,
    total: Counts,
    costs: Mapping[str, float],
    readings: Sequence[Reading],
    waited: Mapping[str, float],
    took: Mapping[str, float],
) -> Tenant:
    first, last = readings[0], readings[-1]
    seconds = last.at_s - first.at_s
    times = _more(last.histograms, first.histograms, number, name)
    waits = total.waited_us / total.took_us if total.took_us else None
    present = total.took_us / 1e6 / seconds
    pressed = _pressed(first.cpu.get(name), last.cpu.get(name), seconds)
    active = bool(total.requests or present)
    limited = limit(active, _wanted_throughout(number, name, readings), waits, present, pressed)
    cost = sum(costs.values())
    if limited == STARVED:  # it says nothing of when its requests came
        took = costs
    return Tenant(
        cgroup=name,
        wanted=total.wanted,
        got=total.cost / cost if cost else None,
        read_iops=total.reads / seconds,
        write_iops=(total.writes + total.others) / seconds,
        read_bytes_per_s=total.read_bytes / seconds,
        write_bytes_per_s=total.write_bytes / seconds,
        requests=total.requests,
        p50_us=quantile(times, 0.5),
        p99_us=quantile(times, 0.99),
        waits=waits,
        waits_for=_parts(waited, total.took_us),
        served=_parts(took, sum(took.values())),
        present=present,
        pressed=pressed,
        limit=limited,
    )


def _wanted_throughout(number: str, name: str, readings: Sequence[Reading]) -> bool:
    """At both ends: one that has only just sent something, or is done, is not starved."""
    return all(each.counts.get(number, {}).get(name, Counts(0.0)).wanted for each in (readings[0], readings[-1]))


def limit(active: bool, wanted: bool, waits: float | None, present: float, pressed: float) -> str:
    """What limits a cgroup; see above. active: something of it was done, or in the drive."""
    if not active:
        return STARVED if wanted else IDLE
    if waits is not None and waits >= WAITS:
        return SHARE
    if pressed >= PRESSED:
        return CPU
    return ITSELF if present < BUSY else DRIVE


def divided(
    number: str, readings: Sequence[Reading]
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """By cgroup, the µs that its requests waited, and that they took in all, each divided among those served meanwhile.

    What was waited while nobody was served is nobody's.
    """
    waited: dict[str, dict[str, float]] = {}
    took: dict[str, dict[str, float]] = {}
    for pair in pairwise(readings):
        now = {name: _since(number, name, pair) for name in pair[1].counts.get(number, {})}
        served = {name: counts.cost for name, counts in now.items() if counts.cost}
        total = sum(served.values())
        for name, counts in now.items():
            for sums, us in ((waited, counts.waited_us), (took, counts.took_us)):
                if not us:
                    continue
                mine = sums.setdefault(name, {})
                for other, cost in served.items():
                    mine[other] = mine.get(other, 0.0) + us * cost / total
    return waited, took


def _since(number: str, name: str, readings: Sequence[Reading]) -> Counts:
    """What was counted from the first to the last reading; of a cgroup that came meanwhile, all."""
    first, last = readings[0].counts.get(number, {}).get(name), readings[-1].counts[number][name]
    if first is None or last.requests < first.requests:  # the scheduler was changed: counts begin anew
        return last
    return Counts(
        wanted=last.wanted,
        reads=last.reads - first.reads,
        writes=last.writes - first.writes,
        others=last.others - first.others,
        read_bytes=last.read_bytes - first.read_bytes,
        write_bytes=last.write_bytes - first.write_bytes,
        cost=max(0, last.cost - first.cost),
        waited_us=max(0, last.waited_us - first.waited_us),
        took_us=max(0, last.took_us - first.took_us),
    )


def _more(
    last: Mapping[str, Mapping[str, Mapping[int, int]]],
    first: Mapping[str, Mapping[str, Mapping[int, int]]],
    number: str,
    name: str,
) -> dict[int, int]:
    before = first.get(number, {}).get(name, {})
    now = last.get(number, {}).get(name, {})
    if sum(now.values()) < sum(before.values()):
        before = {}
    return {from_us: count - before.get(from_us, 0) for from_us, count in now.items()}


def quantile(times: Mapping[int, int], part: float) -> float | None:
    """The time in µs that @part (0 to 1) of the requests took at most; within a step they are spread evenly."""
    total = sum(times.values())
    rank = part * total
    for from_us, count in sorted(times.items()):
        if count and rank <= count:
            return from_us + (upper_us(from_us) - from_us) * rank / count
        rank -= count
    return None


def _parts(sums: Mapping[str, float], total: float) -> dict[str, float]:
    return {name: us / total for name, us in _most_first(sums.items()) if us} if total else {}


def _most_first(pairs: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))


def _pressed(first: Cpu | None, last: Cpu | None, seconds: float) -> float:
    if first is None or last is None:
        return 0.0
    us = max(last.pressed_us - first.pressed_us, last.throttled_us - first.throttled_us)
    return min(1.0, max(0.0, us / 1e6 / seconds))
