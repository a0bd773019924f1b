# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A drive's map: how long reads and writes take under so much of both, and the limit of what a scheduler can do there.

Two tenants, one that reads and one that writes, send requests at times of a Poisson process. First it is measured how
many of each the drive does when it gets nothing else; then a grid, from none of them to as many, of both at once. What
the drive does not keep up with is beyond it. Last, the limit (limit.py) of a reader at queue depth 1 beside others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairlane.backends.job import Backend, Job, Tell
from fairlane.backends.measuring import OVERHEAD_S
from fairlane.errors import FairlaneError
from fairlane.experiment.model import Profile, Rate, Scenario, TenantSpec, Variant
from fairlane.experiment.profiles import load_profile
from fairlane.experiment.results import Results, Run, Tenant
from fairlane.isolbench import limit, suite
from fairlane.linux import disks
from fairlane.progress import Progress

READS, WRITES = "reads", "writes"
OPS = {READS: "randread", WRITES: "randwrite"}
BLOCK = 4096
JOBS, DEPTH = 8, 64  # of each of the two: more than a drive can do
STEPS, STEPS_MAX = 8, 32  # from none to the most
KEEPS_UP = 0.95  # of what was asked for, at least, but for what is chance


@dataclass(frozen=True)
class Plan:
    """What is measured, where, for how long."""

    backend: Backend
    profile: Profile
    writes: bool
    steps: int
    seconds: float
    warmup: float

    @property
    def where(self) -> str:
        """The profile's name, or the device's."""
        return self.backend.place or ""

    @property
    def scale(self) -> int:
        """How much slower the drive is played than it is."""
        return self.profile.params.get("time_scale", 1)

    @property
    def ops(self) -> list[str]:
        return [READS, WRITES] if self.writes else [READS]

    @property
    def grid(self) -> list[tuple[float, float]]:
        """Parts of the most reads, and of the most writes. Most of what happens, happens under little of both."""
        parts = [(step / self.steps) ** 2 for step in range(self.steps + 1)]
        return [(r, w) for w in (parts if self.writes else [0.0]) for r in parts if r or w]

    @property
    def estimate_s(self) -> float | None:
        """How long it takes; the simulator has its own time."""
        count = 2 * len(self.ops) + len(self.grid) + len(self.limit())
        return None if self.backend.repeatable else count * (self.seconds + self.warmup + OVERHEAD_S)

    def scenario(self, name: str, tenants: Sequence[TenantSpec]) -> Scenario:
        return Scenario(
            f"map, {name}",
            self.profile,
            tuple(tenants),
            cores=suite.SIM_CORES_FOR_ALL,
            seconds=self.seconds,
            warmup=self.warmup,
        )

    def limit(self) -> list[suite.Unit]:
        """The bench's own units of a reader at queue depth 1 beside others that read; the first is alone."""
        how = replace(suite.scale(True, self.backend), seconds=self.seconds, warmup=self.warmup, repeats=1)
        units = suite.units(["d3"], [suite.BASELINE], how, (self.profile, self.profile))
        mine = [unit for unit in units if unit.part == limit.NAME and unit.experiment == "latency"]
        return [unit for unit in units if unit.id == mine[0].alone] + mine


@dataclass(frozen=True)
class Load:
    """What became of one kind of requests."""

    asked: float | None  # per second; None: as many as the drive does
    iops: float
    p99_us: float | None
    mean_us: float | None
    kept_up: bool = True


@dataclass(frozen=True)
class Cell:
    """Parts of the most reads, and of the most writes; and by kind what became of those there were."""

    reads: float
    writes: float
    loads: dict[str, Load]

    @property
    def kept_up(self) -> bool:
        return all(load.kept_up for load in self.loads.values())


@dataclass
class Map:
    """All in the drive's own time, however slowly it was played."""

    where: str
    on: str
    block: int = BLOCK
    drive: dict[str, Any] = field(default_factory=dict)
    kernel: str | None = None
    accel: str | None = None
    most: dict[str, Load] = field(default_factory=dict)  # of each kind, by itself
    least: dict[str, Load] = field(default_factory=dict)  # at queue depth 1, by itself
    cells: list[Cell] = field(default_factory=list)
    limit: list[limit.Point] = field(default_factory=list)


def plan(backend: Backend, steps: int = STEPS, seconds: float | None = None) -> Plan:
    """Complete what was asked for, or say what of it cannot be. A real drive is only written to with --destroy-data."""
    on, where = backend.name, backend.place
    if not where:
        raise FairlaneError(f"--on {on}: of which drive? give its profile, such as {on}:p4500 (fairlane profiles)")
    if not 2 <= steps <= STEPS_MAX:
        raise FairlaneError(f"--steps {steps}: must be 2 to {STEPS_MAX}")
    if backend.modelled:
        profile = backend.calibrated(load_profile(where))
    else:
        backend.check_place()
        profile = backend.drives()[0]
    usual_s, warmup = backend.pace.map
    writes = backend.modelled or backend.asked.destroy_data is not None
    return Plan(backend, profile, writes, steps, seconds or usual_s, warmup)


# --- Measuring ---


def run(what: Plan, folder: Path, tell: Tell) -> Map:
    """Measure it all; the folder is for whatever the backends leave, and empty at first."""
    found = Map(what.where, what.backend.on)
    with nullcontext() if what.backend.modelled else disks.claimed(what.where):
        if what.estimate_s:
            tell(Progress(f"about {what.estimate_s / 60:.0f} minutes", 0.0))
        ends = {f"{op}-{end}": [_tenant(op, end == "most")] for op in what.ops for end in ("most", "least")}
        loads = [(name, what.scenario(name, tenants)) for name, tenants in ends.items()]
        runs = _runs(what, loads, folder, found, tell)
        for op in what.ops:
            found.most[op], found.least[op] = (
                _load(what, runs[f"{op}-{end}"].tenants[0], None) for end in ("most", "least")
            )
            if not found.most[op].iops:
                raise FairlaneError(f"{what.where}: none of the {op} was completed in {what.seconds:g} s")
        cells = list(_cells(what, found))
        units = what.limit()
        jobs = [(f"{n}", scenario) for n, (_, _, scenario) in enumerate(cells)]
        jobs += [(unit.id, unit.scenario) for unit in units]
        runs = _runs(what, jobs, folder, found, tell)
    for n, (reads, writes, scenario) in enumerate(cells):
        tenants = zip(scenario.tenants, runs[f"{n}"].tenants, strict=True)
        found.cells.append(Cell(reads, writes, {t.name: _load(what, got, t.rate) for t, got in tenants}))
    for unit in units:
        prio = next(t for t in runs[unit.id].tenants if t.name == suite.PRIO)
        total, p99 = runs[unit.id].total_bytes_per_s * what.scale, prio.lat_us.get("p99")
        depth = round(unit.x or 0)
        found.limit.append(
            limit.Point(depth, total, prio.bytes_per_s * what.scale, None if p99 is None else p99 / what.scale)
        )
    return found


def _tenant(op: str, most: bool) -> TenantSpec:
    return TenantSpec(op, rw=OPS[op], bs=BLOCK, jobs=JOBS if most else 1, iodepth=DEPTH if most else 1)


def _cells(what: Plan, found: Map) -> Iterator[tuple[float, float, Scenario]]:
    for reads, writes in what.grid:
        tenants = [
            replace(_tenant(op, True), rate=Rate(iops=part * found.most[op].iops / what.scale), poisson=True)
            for op, part in ((READS, reads), (WRITES, writes))
            if part
        ]
        yield reads, writes, what.scenario(f"{reads:.0%} reads and {writes:.0%} writes", tenants)


def _runs(what: Plan, loads: Sequence[tuple[str, Scenario]], folder: Path, found: Map, tell: Tell) -> dict[str, Run]:
    """By name; what the backend says of machine and drive goes into `found`."""
    jobs = [Job(name, load, Variant("none", "none"), folder / name, about=load.name, raw=False) for name, load in loads]
    runs: dict[str, Run] = {}
    with closing(what.backend.on_own_drives().run(jobs, tell)) as finished:
        for each in finished:
            if not each.results.runs:
                raise FairlaneError(f"{each.job.about} cannot run: {'; '.join(each.results.unavailable.values())}")
            runs[each.job.id] = each.results.runs[0]
            _describe(found, each.results)
    return runs


def _describe(found: Map, results: Results) -> None:
    found.kernel, found.accel, found.drive = results.kernel, results.accel, results.device


def _load(what: Plan, got: Tenant, rate: Rate | None) -> Load:
    """In the drive's own time."""
    asked = rate.iops if rate else None
    least = 0.0 if asked is None else asked * KEEPS_UP - 2 * math.sqrt(asked / what.seconds)
    p99, mean = (value / what.scale if (value := got.lat_us.get(key)) is not None else None for key in ("p99", "mean"))
    return Load(asked and asked * what.scale, got.iops * what.scale, p99, mean, got.iops >= least)
