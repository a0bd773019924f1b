# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What a device can do, measured before the knobs that must know it: io.cost's linear model and io.max's maximum.

io.cost's model has six coefficients: bytes/s of large sequential, and I/Os per second of 4 KiB sequential and random,
reads and writes. Each is measured twice, in two rounds, and the better one counts: a machine that is busy with
something else for a moment makes a device look slow, never fast.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace

from fairlane.experiment.model import Scenario, TenantSpec

SECONDS, WARMUP = 1.5, 0.5
ROUNDS = 2
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
STEPS = ROUNDS * len(COEFFICIENTS)


def coefficient(name: str, jobs: int) -> TenantSpec:
    """The load that measures that coefficient, on an otherwise idle device."""
    rw, bs, iodepth = COEFFICIENTS[name]
    return TenantSpec(name=name, jobs=jobs, rw=rw, bs=bs, iodepth=iodepth)


def io_cost_line(values: Mapping[str, int]) -> str:
    """What io.cost.model takes after MAJ:MIN."""
    return "ctrl=user model=linear " + " ".join(f"{name}={value}" for name, value in values.items())


def busy(scenario: Scenario) -> Scenario:
    """The scenario for a short measurement, with every tenant wanting more than its share all the time."""
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
    return short(replace(scenario, tenants=tenants))


def short(scenario: Scenario) -> Scenario:
    """The scenario for a short measurement."""
    return replace(scenario, seconds=SECONDS, warmup=WARMUP, repeats=1)
