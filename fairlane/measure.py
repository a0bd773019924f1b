# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What a device can do, measured before the knobs that must know it: io.cost's linear model, and the load by itself.

The model's coefficients are short runs of six loads. The load itself, without any knob, is measured for as long as
the runs that follow, after the same warm-up: what a fast second of a drive says does not hold in its steady state.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fairlane import fio
from fairlane.iocost import Model
from fairlane.scenario import Scenario, TenantSpec

SECONDS, WARMUP = 2.0, 1.0  # for each coefficient
BUSY_DEPTH = 64  # outstanding I/Os of each tenant, at least, when it is to use all that it is given
COEFFICIENTS = {  # name: (pattern, block size, queue depth of each job)
    "rbps": ("read", 1 << 20, 8),
    "rseqiops": ("read", 4096, 64),
    "rrandiops": ("randread", 4096, 64),
    "wbps": ("write", 1 << 20, 8),
    "wseqiops": ("write", 4096, 64),
    "wrandiops": ("randwrite", 4096, 64),
}
JOBS = min(4, os.cpu_count() or 1)


def io_cost_model(scenario: Scenario, target: fio.Target, out: Path, progress: Callable[[str, float], None]) -> Model:
    """Measure io.cost's model; progress gets the coefficient's name and 0..1 of it all.

    A scenario that only reads leaves the device's contents alone: writes, of which it has none, cost what reads do.
    """
    values: dict[str, int] = {}
    for i, name in enumerate(COEFFICIENTS):
        rw, bs, _ = COEFFICIENTS[name]
        if rw.endswith("write") and not scenario.writes:
            values[name] = values["r" + name[1:]]
            continue

        def tell(part: float, i: int = i, name: str = name) -> None:
            progress(name, (i + part) / len(COEFFICIENTS))

        load = replace(coefficient(name, JOBS), bs=max(bs, target.block))
        short = replace(scenario, tenants=(load,), groups=(), seconds=SECONDS, warmup=WARMUP)
        measured = _measure(short, target, out / f"measure-{name}", tell)
        values[name] = round(measured.bytes_per_s if name.endswith("bps") else measured.ios / measured.seconds)
    return Model(**values)


def coefficient(name: str, jobs: int) -> TenantSpec:
    """The load that measures that coefficient, on an otherwise idle device."""
    rw, bs, iodepth = COEFFICIENTS[name]
    return TenantSpec(name=name, jobs=jobs, rw=rw, bs=bs, iodepth=iodepth)


def alone(scenario: Scenario, target: fio.Target, out: Path, progress: Callable[[float], None]) -> fio.Measured:
    """The scenario's own mix with no knob and no cgroups, for as long as a run of it."""
    return _measure(busy(scenario), target, out / "measure-alone", progress)


def busy(scenario: Scenario) -> Scenario:
    """The scenario with every tenant wanting more than its share all the time."""
    tenants = tuple(
        replace(
            tenant,
            start=0.0,
            stop=None,
            rate=None,
            thinktime=0.0,
            speed="full" if tenant.trace else tenant.speed,
            cores=(),
            iodepth=max(tenant.iodepth, math.ceil(BUSY_DEPTH / tenant.jobs)),
        )
        for tenant in scenario.tenants
    )
    return replace(scenario, tenants=tenants)


def _measure(scenario: Scenario, target: fio.Target, out: Path, progress: Callable[[float], None]) -> fio.Measured:
    return fio.run(scenario, target, out, cgroups={}, seed=scenario.seed, progress=progress)
