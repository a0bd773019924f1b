# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Runs of a scenario put together: one row for each knob and number of cgroups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from fairlane.experiment.figures import fairness_index, share_error, share_errors
from fairlane.experiment.results import Results, Run, Tenant
from fairlane.formats import relative

OURS = "kyber-fairness"


BASELINE = "none"


LATENCIES = ("p50", "p99", "p99.9")


@dataclass(frozen=True)
class Share:
    """One tenant under one knob, in the parts of the window where shares mean something, or else in all of it.

    `error` is how far the received share is from the wanted one, relative to it; in the part where that is worst.
    """

    name: str
    weight: int
    wanted: float
    got: float | None
    error: float | None
    lat_us: dict[str, float]


@dataclass(frozen=True)
class Point:
    """One knob at one number of cgroups (None outside a sweep)."""

    knob: str
    cgroups: int | None
    runs: list[Run]
    bytes_per_s: float
    iops: float
    range_bytes_per_s: tuple[float, float] | None
    fairness: float | None
    cost_fairness: float | None  # None without a price list
    cpu_ns_per_io: float | None
    amplification: float | None  # of writes, by a modelled drive; None: it was not written to, or is no such drive
    shares: list[Share]
    share_error: float | None
    vs_none: float | None


def middle(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return median(known) if known else None


def _cgroups(run: Run) -> int | None:
    return run.point["cgroups"] if run.point else None


def by_cost(run: Run) -> bool:
    """Whether shares are those of what requests cost, by the drive's price list; of a part, only bytes are known."""
    return run.parts is None and all(tenant.cost_per_s is not None for tenant in run.tenants)


def _dealt(run: Run) -> list[tuple[dict[str, float], dict[str, float]]]:
    """What each tenant got, in bytes or by cost, and its ideal share: for each part of the window where shares mean
    something."""
    if by_cost(run):
        return [({t.name: t.cost_per_s or 0.0 for t in run.tenants}, {t.name: t.share for t in run.tenants})]
    if run.parts is None:
        return [({t.name: t.bytes_per_s * run.seconds for t in run.tenants}, {t.name: t.share for t in run.tenants})]
    dealt = []
    for part in run.parts:
        moved = {t.name: t.moved(part.start, part.stop) for t in run.tenants}
        known = {name: float(got) for name, got in moved.items() if got is not None}
        if len(known) == len(moved):
            dealt.append((known, part.shares))
    return dealt


def _fairness(run: Run) -> float | None:
    """In the part where it is worst."""
    if run.parts is None:
        return run.fairness_index
    found = [fairness_index(got, ideal) for got, ideal in _dealt(run)]
    return min((value for value in found if value is not None), default=None)


def _share_error(run: Run) -> float | None:
    """In the part where it is worst."""
    found = [share_error(got, ideal) for got, ideal in _dealt(run)]
    return max((value for value in found if value is not None), default=None)


def _received(run: Run, tenant: Tenant) -> tuple[float | None, float, float | None]:
    """The tenant's share of all that was dealt, what it should have been, and its worst error."""
    errors, got, wanted, total = [], 0.0, 0.0, 0.0
    for moved, ideal in _dealt(run):
        part = sum(moved.values())
        got, total = got + moved.get(tenant.name, 0.0), total + part
        wanted += ideal.get(tenant.name, 0.0) * part
        errors += [error for name, error in share_errors(moved, ideal).items() if name == tenant.name]
    if not total:
        return run.received(tenant), tenant.share, None
    return got / total, wanted / total, max(errors, key=abs, default=None)


def _share(same: Sequence[tuple[Run, Tenant]]) -> Share:
    """Fold one tenant's figures over the repeats."""
    first = same[0][1]
    got, wanted, errors = zip(*(_received(run, t) for run, t in same), strict=True)
    lat = {key: middle(t.lat_us.get(key) for _, t in same) for key in LATENCIES}
    return Share(
        name=first.name,
        weight=first.weight,
        wanted=median(wanted),
        got=middle(got),
        error=middle(errors),
        lat_us={key: value for key, value in lat.items() if value},
    )


def place(knob: str) -> int:
    """Where a knob is among others: first what all are compared with, last ours, and between them as they ran."""
    return {BASELINE: 0, OURS: 2}.get(knob, 1)


def points(results: Results) -> list[Point]:
    """One Point per knob and number of cgroups, in the order of place(), each beside `none` at the same number."""
    groups: dict[tuple[int | None, str], list[Run]] = {}
    for run in results.runs:
        groups.setdefault((_cgroups(run), run.knob), []).append(run)
    base = {c: median(r.total_bytes_per_s for r in runs) for (c, knob), runs in groups.items() if knob == BASELINE}
    found = []
    for (cgroups, knob), runs in groups.items():
        totals = [r.total_bytes_per_s for r in runs]
        total = median(totals)
        shares = [_share([(r, t) for r in runs for t in r.tenants if t.name == x.name]) for x in runs[0].tenants]
        found.append(
            Point(
                knob=knob,
                cgroups=cgroups,
                runs=runs,
                bytes_per_s=total,
                iops=median(r.total_iops for r in runs),
                range_bytes_per_s=(min(totals), max(totals)) if len(totals) > 1 else None,
                fairness=middle(_fairness(r) for r in runs),
                amplification=middle(r.counters.get("device", {}).get("write_amplification") for r in runs),
                cost_fairness=middle(r.cost_fairness_index for r in runs),
                cpu_ns_per_io=middle(r.cpu_ns_per_io for r in runs),
                shares=shares,
                share_error=middle(_share_error(r) for r in runs),
                vs_none=relative(total, base.get(cgroups)),
            )
        )
    return sorted(found, key=lambda p: (p.cgroups or 0, place(p.knob)))
