# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The suite's figures, from the results of its units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean
from typing import Any

from fairlane.backends.measuring import KERNEL_BYTES
from fairlane.experiment.figures import jain
from fairlane.experiment.results import Results, Run, Series, Tenant
from fairlane.isolbench import limit
from fairlane.isolbench.suite import BASELINE, BEST_EFFORT, CRITICAL, LIGHT, PARTS, PRIO, Unit, alone_id, saturating
from fairlane.linux.knob import Priority
from fairlane.linux.knobs import HEAVY

TAIL_NOISE = 1.15  # where none's own P99 differs by more from repeat to repeat, no knob's says anything
MARGIN = 0.1  # a tenant that is not so much better off alone than under none has nothing to gain
UNTIL_FRACTION = 0.8  # of what it could have: a burst that gets that much has what it is due
UNTIL_WINDOW_S = 0.05  # over which a burst's rate is taken, or longer; a shorter burst has only its latency
UNTIL_REQUESTS = 8  # of its, at least, that what it is due is in that time
NEVER = float("inf")


@dataclass(frozen=True)
class Tradeoff:
    """A setting of a knob when a tenant has priority; both relative: 0 is none, 1 is the best there could be."""

    setting: str
    total: float  # of all tenants, relative to none
    gain: float  # of the way from none to being alone; none, if priority is not asked for
    value: float | None  # -P99 in us, or bytes/s of the tenant with priority; None: nothing of it was completed
    bytes_per_s: float


@dataclass(frozen=True)
class Burst:
    """The answer of a knob to one burst."""

    experiment: str
    seconds: float
    response_s: float | None  # NEVER: it never had what it is due; None: not known
    rated: bool  # it is long enough for rates
    kept: float | None  # None, too, if it is not rated
    due: float  # bytes/s
    rate: float | None = None  # of its rate alone; None, too, if it is not rated


class Evidence:
    """The units' results, and the figures in them: those of the first repeat, and in `every` those of each."""

    def __init__(self, units: Sequence[Unit], results: Mapping[str, Results]) -> None:
        first = [unit for unit in units if not unit.repeat]
        self.units = [unit for unit in first if unit.id in results]
        self.ran = [unit for unit in units if unit.id in results]  # in any repeat
        self.missing = [unit for unit in units if unit.id not in results]
        self.results = results
        self.every = [self]
        for repeat in sorted({unit.repeat for unit in units} - {0}):
            again = {u.id: u.id if u.part == limit.NAME else replace(u, repeat=repeat).id for u in first}
            found = {unit_id: results[same] for unit_id, same in again.items() if same in results}
            self.every.append(Evidence([unit for unit in first if unit.id in found], found))
        self.parts = [part for part in PARTS if any(unit.part == part for unit in self.units)]
        self.knobs = list(dict.fromkeys(unit.knob for unit in self.units))
        ran = {run.knob for r in results.values() for run in r.runs}
        left_out = {k: why for r in results.values() for k, why in r.unavailable.items()}
        self.unavailable = {knob: why for knob, why in left_out.items() if knob not in ran}  # anywhere

    def run(self, unit_id: str | None) -> Run | None:
        found = self.results.get(unit_id or "")
        return found.runs[0] if found and found.runs else None

    def of(self, part: str, knob: str, experiment: str | None = None) -> list[tuple[Unit, Run]]:
        """The units of a knob that ran."""
        found = []
        for unit in self.units:
            run = self.run(unit.id)
            if unit.part == part and unit.knob == knob and experiment in (None, unit.experiment) and run is not None:
                found.append((unit, run))
        return found

    def left_out(self, knob: str, part: str | None = None) -> list[tuple[Unit, str]]:
        """The units that the knob could not be set for, though it ran in others, and why."""
        if knob in self.unavailable:
            return []
        mine = [unit for unit in self.units if unit.knob == knob and part in (None, unit.part)]
        return [(unit, why) for unit in mine if (why := self.results[unit.id].unavailable.get(knob))]

    def experiments(self, part: str) -> list[str]:
        return list(dict.fromkeys(u.experiment for u in self.units if u.part == part and u.experiment != "alone"))

    def base(self, unit: Unit) -> Run | None:
        """The same load under none."""
        if unit.knob == BASELINE:
            return self.run(unit.id)
        if unit.baseline:
            return self.run(unit.baseline)
        same = (u for u, _ in self.of(unit.part, BASELINE, unit.experiment) if u.x == unit.x)
        return next((self.run(u.id) for u in same), None)

    # --- d1 ---

    def tail_noise(self) -> dict[float, float]:
        """By their number: how many times its least P99 is the largest that the same latency-critical tenants had under
        none; 1 where nothing is repeated."""
        found: dict[float, list[float]] = {}
        for repeat in self.every:
            for unit, run in repeat.of("d1", BASELINE, "latency"):
                if (p99 := latency(run, "p99")) is not None:
                    found.setdefault(unit.x or 0, []).append(p99)
        return {x: max(values) / min(values) for x, values in found.items() if min(values)}

    def memory(self, unit: Unit, run: Run) -> float | None:
        """Bytes that the knob takes of the kernel's memory for each tenant: beyond those of none."""
        base = self.base(unit)
        mine, others = (r.counters.get(KERNEL_BYTES) if r else None for r in (run, base))
        return (mine - others) / len(run.tenants) if mine is not None and others is not None else None

    # --- d2 ---

    def spent(self, unit: Unit, run: Run) -> dict[str, float] | None:
        """What part of the drive's time each tenant's requests cost, by what the drive does of such requests alone."""
        return self._of_alone(unit, run, [alone_id(saturating(t), unit.part) for t in unit.scenario.tenants])

    def _of_alone(self, unit: Unit, run: Run, alone: Sequence[str]) -> dict[str, float] | None:
        found = {}
        for spec, unit_id in zip(unit.scenario.tenants, alone, strict=True):
            base = self.run(unit_id)
            if base is None or not base.total_bytes_per_s:
                return None
            found[spec.name] = next(t.bytes_per_s for t in run.tenants if t.name == spec.name) / base.total_bytes_per_s
        return found

    def by_cost(self, unit: Unit, run: Run) -> float | None:
        """Jain's index over that, divided by weight."""
        found = self.spent(unit, run)
        return jain(found[t.name] / t.share for t in run.tenants) if found else None

    def slowdown(self, unit: Unit, run: Run) -> float | None:
        """Of the unluckiest tenant: how many times less it got than its share of what it gets when it is alone."""
        found = self._of_alone(unit, run, [alone_id(t, unit.part) for t in unit.scenario.tenants])
        return max(t.share / found[t.name] if found[t.name] else NEVER for t in run.tenants) if found else None

    def work(self, unit: Unit, run: Run) -> float | None:
        """The drive's time that was used, relative to none."""
        base = self.base(unit)
        mine, others = self.spent(unit, run), self.spent(unit, base) if base else None
        return sum(mine.values()) / sum(others.values()) if mine and others and sum(others.values()) else None

    # --- d3 ---

    def points(self, knob: str, experiment: str) -> list[Tradeoff]:
        found = []
        for unit, run in self.of("d3", knob, experiment):
            found += self._point(experiment, unit.setting, run, _asks(unit))
        return found

    def limit_points(self, experiment: str) -> list[Tradeoff]:
        """The same of the limit, from the tenant with priority alone on."""
        found = []
        for unit in [unit for unit, _ in self.of("d3", BASELINE, experiment)][:1]:
            for depth, run in self._limit(unit):
                setting = f"{depth} {limit.SETTING}" if depth else "alone"
                found += self._point(experiment, setting, run, asked=True)
        return found

    def _point(self, experiment: str, setting: str, run: Run, asked: bool) -> list[Tradeoff]:
        """asked: for priority. None where `none` has no run."""
        base = next((r for _, r in self.of("d3", BASELINE, experiment)), None)
        if base is None or not base.total_bytes_per_s:
            return []
        span, value, total = self.span(experiment), _priority(run, experiment), run.total_bytes_per_s
        gain = (value - span[0]) / (span[1] - span[0]) if span and value is not None and asked else 0.0
        return [Tradeoff(setting, total / base.total_bytes_per_s, gain, value, total)]

    def span(self, experiment: str) -> tuple[float, float] | None:
        """What the tenant with priority has under none, and alone; None when that is no more."""
        for unit, base in self.of("d3", BASELINE, experiment):
            alone = self.run(unit.alone)
            none, best = (_priority(run, experiment) if run else None for run in (base, alone))
            if none is not None and best is not None and best > none and best - none >= MARGIN * abs(none):
                return none, best
        return None

    def volume(self, knob: str, experiment: str) -> float | None:
        """The hypervolume of its front."""
        return hypervolume(self.points(knob, experiment)) if self.span(experiment) else None

    def limit_volume(self, experiment: str) -> float | None:
        """That of the limit."""
        points = self.limit_points(experiment)
        return hypervolume(points, curve=True) if self.span(experiment) and len(points) > 1 else None

    # --- The limit ---

    def _limit(self, unit: Unit) -> list[tuple[int, Run]]:
        """Of the unit's load: by how many requests of others are in the drive, from none on; empty if nothing ran."""
        runs = [(u, r) for u, r in self.of(limit.NAME, BASELINE, unit.limit) if unit.limit]
        found = {round(u.x or 0): r for u, r in runs}
        alone = self.run(runs[0][0].alone) if runs else None
        if alone:
            found[0] = alone
        return sorted(found.items())

    def limit(self, unit: Unit) -> list[limit.Point]:
        found = self._limit(unit)
        mine = [next(t for t in run.tenants if t.name == PRIO) for _, run in found]
        return [
            limit.Point(depth, run.total_bytes_per_s, prio.bytes_per_s, prio.lat_us.get("p99"))
            for (depth, run), prio in zip(found, mine, strict=True)
        ]

    # --- d4 ---

    def bursts(self, knob: str, experiments: Sequence[str] = tuple(CRITICAL)) -> list[Burst]:
        found = []
        for unit, run in ((u, r) for experiment in experiments for u, r in self.of("d4", knob, experiment)):
            alone, base = self.run(unit.alone), self.base(unit)
            due = self.due(unit)
            if alone is None or base is None or due is None:
                continue
            prio = next(t for t in unit.scenario.tenants if t.name == PRIO)
            assert prio.stop is not None
            seconds = round(prio.stop - prio.start, 6)
            mine = next(t for t in run.tenants if t.name == PRIO)
            window_s = max(UNTIL_WINDOW_S, UNTIL_REQUESTS * prio.bs / due if due else 0.0)
            if seconds < window_s:
                response_s = by_latency(mine, alone.tenants[0], due, seconds)
                found.append(Burst(unit.experiment, seconds, response_s, rated=False, kept=None, due=due))
                continue
            during, usual = (_moved(r, prio.start, prio.stop) for r in (run, base))
            found.append(
                Burst(
                    unit.experiment,
                    seconds,
                    until(mine.series, prio.start, prio.stop, due, window_s) if mine.series else None,
                    True,
                    during / usual if during is not None and usual else None,
                    due,
                    _rate(mine, prio.start, prio.stop, alone),
                )
            )
        return found

    def due(self, unit: Unit) -> float | None:
        """bytes/s that a burst is to reach: of the least of its share by weight of what none moves in all, its rate
        alone, and the most that there is for it while the total stays."""
        alone, base, most = self.run(unit.alone), self.base(unit), limit.rate_at(self.limit(unit), limit.KEPT)
        if alone is None or base is None or most is None:
            return None
        share = HEAVY / (HEAVY + BEST_EFFORT * LIGHT) * base.total_bytes_per_s
        return UNTIL_FRACTION * min(share, alone.total_bytes_per_s, most)

    def due_of_alone(self, unit: Unit) -> float | None:
        """The same, of its rate alone."""
        alone, due = self.run(unit.alone), self.due(unit)
        return due / alone.total_bytes_per_s if due is not None and alone and alone.total_bytes_per_s else None


def _priority(run: Run, experiment: str) -> float | None:
    """What the tenant with priority wants to be large."""
    tenant = next(t for t in run.tenants if t.name == PRIO)
    if experiment.startswith("bandwidth"):
        return tenant.bytes_per_s
    p99 = tenant.lat_us.get("p99")
    return -p99 if p99 is not None else None


def _moved(run: Run, start: float, stop: float) -> float | None:
    parts = [tenant.moved(start, stop) for tenant in run.tenants]
    known = [part for part in parts if part is not None]
    return float(sum(known)) if len(known) == len(parts) else None


def _asks(unit: Unit) -> bool:
    """Whether the unit's setting asks for priority."""
    others = max(tenant.weight for tenant in unit.scenario.tenants if tenant.name != PRIO)
    prio = next(tenant.weight for tenant in unit.scenario.tenants if tenant.name == PRIO)
    return Priority(unit.setting, prio, unit.tuning).asks(others)


def _rate(tenant: Tenant, start: float, stop: float, alone: Run) -> float | None:
    moved = tenant.moved(start, stop)
    return moved / (stop - start) / alone.total_bytes_per_s if moved is not None and alone.total_bytes_per_s else None


def until(series: Series, start: float, stop: float, due: float, window_s: float = UNTIL_WINDOW_S) -> float:
    """s from start until the rate over window_s is first `due`, or NEVER.

    It counts from the first of these bins: at 0 the burst had what it is due from its beginning.
    """
    bin_s = series.bin_ms / 1000
    first, last = round(start / bin_s), round(stop / bin_s)
    width = max(1, min(last - first, round(window_s / bin_s)))
    for begin in range(first, last - width + 1):
        if sum(series.bytes[begin : begin + width]) >= due * width * bin_s:
            return (begin - first) * bin_s
    return NEVER


def by_latency(burst: Tenant, alone: Tenant, due: float, seconds: float) -> float | None:
    """s until a burst that is too short for a rate has what it is due. When none of its requests was completed: NEVER,
    or None if it is so short that none can be.

    As many of its requests are out as when it is alone, so that its rate is less by as much as they take longer. When
    that is less than `due`, it had waited for what it wanted until the last of them was done.
    """
    mean, slowest, usual = burst.lat_us.get("mean"), burst.lat_us.get("max"), alone.lat_us.get("mean")
    if usual is None:
        return None
    if not mean or slowest is None:
        return NEVER if usual < 1e6 * seconds else None
    return 0.0 if alone.bytes_per_s * usual / mean >= due else slowest / 1e6


def front(points: Sequence[Tradeoff]) -> list[Tradeoff]:
    """The points that no other beats in both ways, from the highest total on."""
    found: list[Tradeoff] = []
    for point in sorted(points, key=lambda p: (-p.total, -p.gain)):
        if not found or point.gain > found[-1].gain:
            found.append(point)
    return found


def hypervolume(points: Sequence[Tradeoff], curve: bool = False) -> float | None:
    """The area that the front dominates: 0 for what gains nothing over none, 1 for alone's figure at none's total.

    curve: between two of the points there are others, on a line; else there are none.
    """
    if not points:
        return None
    steps = [(min(p.total, 1.0), min(max(0.0, p.gain), 1.0)) for p in front(points)]
    area = steps[0][0] * steps[0][1]  # never less than 0: a gain that is none counts as 0
    for (before, below), (total, gain) in pairwise(steps):
        area += ((before + total) / 2 if curve else total) * max(0.0, gain - below)
    return area


def latency(run: Run, which: str) -> float | None:
    """Their mean, or that quantile, such as "p99"; the mean of those of all tenants."""
    found = [tenant.lat_us.get(which) for tenant in run.tenants]
    known = [value for value in found if value is not None]
    return mean(known) if known else None


def setup(plan: Mapping[str, Any], e: Evidence) -> dict[str, Any]:
    """What was asked for, on which drives and which machine."""
    found: dict[str, Any] = {"run": plan}
    for result in e.results.values():
        if result.runs:
            title = f"drive of {'d1' if '/d1/' in result.scenario else 'd2, d3 and d4'}"
            found.setdefault(title, result.device)
            found.setdefault("machine", {"kernel": result.kernel, "virtualization": result.accel, **result.machine})
    return found


def where(e: Evidence) -> str:
    """The drive, and what it was run on."""
    for result in e.results.values():
        if result.runs:
            drive = result.device.get("description") or result.device.get("name") or "a drive"
            kernel = f"kernel {result.kernel}" if result.kernel else "simulated host"
            return f"{drive} · {kernel} · {result.backend}{f' under {result.accel}' if result.accel else ''}"
    return "nothing has run yet"
