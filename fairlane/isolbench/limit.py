# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The limit: what a host has that lets one tenant go first and bounds the others, measured on the drive at hand.

What a host can decide is who goes first, and how much is in the drive at once; inside, the drive does as it likes. So
let the tenant with priority go straight to the drive whenever it wants to, and bound what the others have in it. That
is one FIFO with the tenant with priority first. With few requests of others in the drive, that tenant hardly waits and
the drive is idle in part; with many, the drive is full and the tenant waits behind them. A scheduler may choose a point
of this curve, or be worse.

No scheduler is needed for that: without any, the others have as many requests in the drive as their queue depths add up
to. So these depths are what is swept, under `none`, in the same way on every backend. At the one end the tenant is
alone; at the other, the load is the experiment's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from fairlane.experiment.model import TenantSpec

if TYPE_CHECKING:
    from fairlane.isolbench.suite import Unit

NAME = "limit"  # of its units' part, and of its row and curve
SETTING = "in the drive"
KEPT = 0.85  # of the total: what there is for a burst is read off there


# --- Its units ---


def added(units: Sequence[Unit], first: str, seconds: float, steps: int) -> list[Unit]:
    """The units, and before those with a tenant with priority the limit's that they are judged by.

    Loads that differ only in weights, knobs and times are one mix, and have one sweep. first: the name of the tenant
    with priority. seconds: how long it is measured. steps: points from each power of two to the next.
    """
    names: dict[object, str] = {}
    found: list[Unit] = []
    for unit in units:
        if unit.alone is None:
            found.append(unit)
            continue
        tenants = tuple(replace(t, weight=100, start=0.0, stop=None) for t in unit.scenario.tenants)
        mix = (repr(unit.scenario.profile), tenants)
        if mix not in names:
            taken = unit.experiment in names.values()
            names[mix] = f"{unit.part}-{unit.experiment}" if taken else unit.experiment
            whole = replace(unit.scenario, name=f"isol-bench/{NAME}/{names[mix]}", tenants=tenants, seconds=seconds)
            found += _sweep(replace(unit, experiment=names[mix], scenario=whole), first, steps)
        found.append(replace(unit, limit=names[mix]))
    return found


def _sweep(whole: Unit, first: str, steps: int) -> Iterator[Unit]:
    mine = [t for t in whole.scenario.tenants if t.name == first]
    others = [t for t in whole.scenario.tenants if t.name != first]
    for depth in depths(sum(t.jobs * t.iodepth for t in others), steps):
        scenario = replace(whole.scenario, tenants=(*mine, *bounded(others, depth)))
        yield replace(whole, part=NAME, x=float(depth), setting=SETTING, scenario=scenario)


def depths(most: int, steps: int) -> list[int]:
    """From 1 to the most, by powers of two and so many steps in each."""
    found = {most}
    power = 1
    while power < most:
        found |= {power + power * step // steps for step in range(steps)}
        power *= 2
    return sorted(depth for depth in found if depth <= most)


def bounded(tenants: Sequence[TenantSpec], most: int) -> list[TenantSpec]:
    """The tenants with so many requests out in all, and with as many jobs as that leaves them."""
    found = []
    for n, tenant in enumerate(tenants):
        mine = most // len(tenants) + (n < most % len(tenants))
        if mine:
            jobs = max(jobs for jobs in range(1, tenant.jobs + 1) if mine % jobs == 0)
            found.append(replace(tenant, jobs=jobs, iodepth=mine // jobs))
    return found


# --- What it says ---


@dataclass(frozen=True)
class Point:
    """So many requests of the others in the drive, and what comes of it."""

    depth: int  # 0: the tenant with priority is alone
    total: float  # bytes/s of all tenants
    rate: float  # bytes/s of the tenant with priority
    p99_us: float | None  # its


def rate_at(points: Sequence[Point], part: float) -> float | None:
    """The most that the tenant with priority can have while the total is at least that part of the whole load's.

    points: in the order of their depths. Between two of them there are others, and they are taken to be on a line.
    """
    if not points:
        return None
    least = part * points[-1].total
    found = [point.rate for point in points if point.total >= least]
    for one, two in pairwise(points):
        if (one.total - least) * (two.total - least) < 0:
            found.append(one.rate + (two.rate - one.rate) * (least - one.total) / (two.total - one.total))
    return max(found)
