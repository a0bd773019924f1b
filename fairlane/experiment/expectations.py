# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Judges the [[expect]]s of a scenario against what was measured.

Repeats are put together by their median; a ratio between two knobs is taken repeat by repeat, within one boot: the
machine under a VM is never equally fast for long. In a sweep the worst point counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median, pstdev

from fairlane import schedulers
from fairlane.experiment.figures import fairness_index, share_error
from fairlane.experiment.model import COST_FIGURES, Expect, Scenario, below, shares
from fairlane.experiment.results import Outcome, Part, Results, Run, Tenant, disturbed, short_of_cpu

OF_SHARES = ("fairness_index", "share_error", "cost_fairness_index", "cost_share_error")


def evaluate(
    scenario: Scenario, results: Results, asked: Sequence[str], has: Sequence[str] | None = None
) -> list[Outcome]:
    """One outcome for each [[expect]] whose knobs the backend has; asked are the knobs that were to run."""
    return [_judge(e, scenario, results, asked) for e in scenario.expects if not _absent(e, scenario, has)]


def _absent(expect: Expect, scenario: Scenario, has: Sequence[str] | None) -> list[str]:
    """The knobs that it is about and that can never run there; None: all can."""
    if has is None:
        return []
    known = {run.name for knob in has for run in scenario.runs_of(knob)}
    return [knob for knob in (expect.knob, expect.of) if knob and knob not in known]


def parts(scenario: Scenario) -> list[Part] | None:
    """Where a tenant's share means something, because all active tenants can use theirs; None: in the whole window.

    The scenario's expectations say so: where they bound shares or fairness. One that has expectations, but none of
    these, has a tenant that cannot use its share; so has one without any where a tenant is limited, or comes and goes.
    """
    about = [expect for expect in scenario.expects if expect.figure in OF_SHARES]
    timed = any(t.trace and t.speed == "recorded" for t in scenario.tenants)
    limited = timed or any(t.rate or t.thinktime or t.start or t.stop is not None for t in scenario.tenants)
    if any(expect.between is None for expect in about) or not (scenario.expects or limited):
        return None
    spans = sorted({expect.between for expect in about if expect.between})
    return [Part(start, stop, shares(scenario, _active(scenario, start, stop))) for start, stop in spans]


def conclude(
    scenario: Scenario,
    results: Results,
    asked: Sequence[str],
    command: str,
    file: Path,
    has: Sequence[str] | None = None,
) -> None:
    """Complete what a backend that has those knobs returned, by the outcomes and by how to get it again; write it."""
    results.expects = evaluate(scenario, results, asked, has)
    for run in results.runs:
        run.parts = parts(scenario.at(run.point["cgroups"] if run.point else None))
    absent = list(dict.fromkeys(knob for expect in scenario.expects for knob in _absent(expect, scenario, has)))
    if absent:
        results.notes.append(f"The simulator has no {', '.join(absent)}; what the scenario expects of it is left out.")
    nothing = list(dict.fromkeys(run.knob for run in results.runs if not run.total_iops))
    if nothing:
        results.notes.append(
            f"Nothing was completed with {', '.join(nothing)}: give more seconds, a smaller bs, or a faster drive"
            " (time_scale)."
        )
    results.notes += disturbed(results.runs) + short_of_cpu(results)
    results.version, results.command = schedulers.version(), command
    results.save(file)


def failed(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.ok is False]


def describe(expect: Expect) -> str:
    """The expectation in words, without its bound."""
    what = {
        "total_bytes_per_s": "total bytes/s",
        "total_iops": "total IOPS",
        "fairness_index": "fairness index",
        "share_error": "largest relative error of a share",
        "cpu_ns_per_io": "CPU time per I/O",
        "total_cost_per_s": "total cost/s",
        "cost_fairness_index": "fairness index by cost",
        "cost_share_error": "largest relative error of a share by cost",
        "share": f"share of {expect.tenant}",
        "iops": f"IOPS of {expect.tenant}",
        "lat_mean_us": f"mean latency of {expect.tenant} (us)",
        "cost_share": f"share of {expect.tenant} by cost",
        "lat_p99_us": f"p99 latency of {expect.tenant} (us)",
        "lat_p99.9_us": f"p99.9 latency of {expect.tenant} (us)",
        "spread": f"standard deviation of {expect.tenant}'s bytes in each bin, relative to their mean",
        "counter": f"{expect.counter}",
    }[expect.figure]
    text = f"{expect.knob}: {what}"
    if expect.of:
        text += f", relative to {expect.of}"
    if expect.across:
        text += f", worst {expect.across} relative to the first"
    if expect.between:
        text += f", from {expect.between[0]:g} s to {expect.between[1]:g} s"
    return text


def _judge(expect: Expect, scenario: Scenario, results: Results, asked: Sequence[str]) -> Outcome:
    limits = ((expect.at_least, "at least"), (expect.at_most, "at most"))
    bound = " and ".join(f"{words} {limit:g}" for limit, words in limits if limit is not None)
    outcome = Outcome(describe(expect), expect.paper, None, bound, None)
    wanted = {run.name for knob in asked for run in scenario.runs_of(knob)}
    for knob in filter(None, (expect.knob, expect.of)):
        if knob not in wanted:
            outcome.note = f"{knob} was not asked for"
            return outcome
        if knob not in results.knobs:
            outcome.ok, outcome.note = False, results.unavailable.get(knob, f"{knob} did not run")
            return outcome
    outcome.measured = _measured(expect, scenario, results)
    outcome.ok = outcome.measured is not None and _within(expect, outcome.measured)
    return outcome


def _within(expect: Expect, value: float) -> bool:
    low = expect.at_least is None or value >= expect.at_least
    return low and (expect.at_most is None or value <= expect.at_most)


def _measured(expect: Expect, scenario: Scenario, results: Results) -> float | None:
    """The figure at the point where it is worst, or None when it is not known everywhere."""
    values: list[float] = []
    for point in scenario.points:
        value = _at(expect, scenario, results, point)
        if value is None:
            return None
        values.append(value)
    if expect.across:
        if not values[0]:
            return None
        values = [value / values[0] for value in values]
    return min(values) if expect.at_least is not None else max(values)


def _at(expect: Expect, scenario: Scenario, results: Results, point: int | None) -> float | None:
    """The median over the repeats at one point of the sweep."""
    found = _runs(results, expect.knob, point)
    values = [figure(expect, scenario.at(point), run) for run in found]
    if expect.of:
        bases = [figure(expect, scenario.at(point), run) for run in _runs(results, expect.of, point)]
        pairs = zip(values, bases, strict=True)
        values = [value / base if value is not None and base else None for value, base in pairs]
    known = [value for value in values if value is not None]
    return median(known) if known and len(known) == len(values) else None


def _runs(results: Results, knob: str, point: int | None) -> list[Run]:
    where = {"cgroups": point} if point is not None else None
    return sorted((run for run in results.runs if run.knob == knob and run.point == where), key=lambda run: run.repeat)


def figure(expect: Expect, scenario: Scenario, run: Run) -> float | None:
    """The figure that the expectation is about, in one run."""
    match expect.figure:
        case "cpu_ns_per_io":
            return run.cpu_ns_per_io
        case "total_iops":
            return run.total_iops
        case "iops":
            return next(tenant.iops for tenant in run.tenants if tenant.name == expect.tenant)
        case "lat_mean_us" | "lat_p99_us" | "lat_p99.9_us":
            which = expect.figure.removeprefix("lat_").removesuffix("_us")
            return next(tenant.lat_us.get(which) for tenant in run.tenants if tenant.name == expect.tenant)
        case "counter":
            return _counter(expect, run)
        case "spread":
            return _spread(next(tenant for tenant in run.tenants if tenant.name == expect.tenant), expect.between)
    begin, end = expect.between or (0.0, run.seconds)
    rates = {}
    by_cost = expect.figure in COST_FIGURES
    for tenant in run.tenants:
        rate = tenant.cost_per_s if by_cost else _bytes_per_s(tenant, expect.between)
        if rate is None:
            return None
        rates[tenant.name] = rate
    total = sum(rates.values())
    ideal = shares(scenario, _active(scenario, begin, end))
    if expect.figure in ("total_bytes_per_s", "total_cost_per_s"):
        return total
    if expect.figure in ("fairness_index", "cost_fairness_index"):
        return fairness_index(rates, ideal)
    if not total:
        return None
    if expect.figure in ("share", "cost_share"):
        return sum(rates[name] for name in below(scenario, expect.tenant)) / total if expect.tenant else None
    return share_error(rates, ideal)


def _counter(expect: Expect, run: Run) -> float | None:
    """Its value at the end, or its mean over the seconds of a part of the window."""
    if expect.between is None:
        value = run.counters.get("device", {}).get(expect.counter)
        return None if value is None else float(value)
    samples = run.counters.get("each_second", {}).get(expect.counter, [])
    first, last = (round(t) for t in expect.between)
    return fmean(samples[first:last]) if samples[first:last] else None


def _spread(tenant: Tenant, between: tuple[float, float] | None) -> float | None:
    if tenant.series is None:
        return None
    values = tenant.series.between(*between) if between else tenant.series.bytes
    return pstdev(values) / fmean(values) if sum(values) else None


def _active(scenario: Scenario, begin: float, end: float) -> set[str]:
    """The tenants that are active in some of that time."""
    phases = {tenant.name: tenant.phases(scenario.seconds) for tenant in scenario.tenants}
    return {name for name, spans in phases.items() if any(start < end and stop > begin for start, stop in spans)}


def _bytes_per_s(tenant: Tenant, between: tuple[float, float] | None) -> float | None:
    """In that part of the measuring window, or in all of it; None when there is no series to tell."""
    if between is None:
        return tenant.bytes_per_s
    return tenant.rate(*between)
