# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A scenario as data: the drive, the tenants and their weights, and what is expected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fairlane import schedulers
from fairlane.experiment.price_lists import PriceList

WEIGHT_MIN, WEIGHT_MAX, WEIGHT_DEFAULT = 1, 10000, 100


SPEEDS = ("recorded", "full")


COST_FIGURES = ("total_cost_per_s", "cost_fairness_index", "cost_share_error", "cost_share")


OURS = schedulers.NAMES


FL_NVME = "fl-nvme"  # plays a modelled SSD as an NVMe drive


@dataclass(frozen=True)
class Profile:
    """A drive: how to make it, and with which parameters (sizes in bytes, the others as the driver has them)."""

    name: str
    kind: str  # a key of DEVICE_KEYS; "ssd" is our model
    description: str
    params: dict[str, int] = field(default_factory=dict)
    device: str | None = None  # in a VM: FL_NVME; None: what its kind has there


@dataclass(frozen=True)
class Cgroup:
    name: str
    weight: int = WEIGHT_DEFAULT
    parent: str | None = None
    latency: float = 0.0  # s that 99 of 100 requests may take in the drive; 0 is any time


@dataclass(frozen=True)
class Rate:
    """A limit that the load generator keeps by itself, for the whole tenant."""

    iops: float | None = None
    bytes_per_s: float | None = None


@dataclass(frozen=True)
class TenantSpec:
    name: str
    weight: int = WEIGHT_DEFAULT
    parent: str | None = None
    latency: float = 0.0  # s, as of a cgroup
    jobs: int = 1
    rw: str = "randread"
    mix: int = 50  # percent of reads, in rw and randrw
    bs: int = 4096  # bytes; 0 is the device's smallest block
    iodepth: int = 1
    start: float = 0.0  # s from the start of the measuring window
    stop: float | None = None  # s; None is the end of the run
    rate: Rate | None = None
    poisson: bool = False  # the rate is that of a Poisson process; else I/Os come at equal intervals
    thinktime: float = 0.0  # s between a job's I/Os
    cores: tuple[int, ...] = ()  # empty: anywhere
    trace: str | None = None  # plays the recorded requests of that file, whatever TRACE_SAYS
    speed: str = SPEEDS[0]  # a trace's requests come when they were recorded, or as soon as iodepth allows
    devices: tuple[int, ...] = ()  # of those recorded in the trace; empty: all

    @property
    def reads(self) -> float:
        """The fraction of its I/Os that are reads."""
        return {"read": 1.0, "randread": 1.0, "write": 0.0, "randwrite": 0.0}.get(self.rw, self.mix / 100)

    def phases(self, seconds: float) -> list[tuple[float, float]]:
        """When it is active: (from, to) in seconds of the measuring window."""
        stop = seconds if self.stop is None else self.stop
        return [(self.start, stop)] if self.start < stop else [(0.0, stop), (self.start, seconds)]


@dataclass(frozen=True)
class Variant:
    """A knob with tunables of its scheduler set."""

    name: str
    knob: str
    set: dict[str, int] = field(default_factory=dict)
    low_latency: bool = False  # with the low-latency I/O stack instead of the block layer


@dataclass(frozen=True)
class Expect:
    """A bound on a figure of one knob, or on its ratio to the same figure of another knob in the same boot."""

    figure: str
    knob: str
    of: str | None = None
    tenant: str | None = None  # or a cgroup: all below it, where that is a share
    counter: str | None = None  # a variable of the scheduler; with between, its mean there
    at_least: float | None = None
    at_most: float | None = None
    across: str | None = None  # "cgroups": the worst point of the sweep relative to the first
    between: tuple[float, float] | None = None  # only this part of the measuring window, s
    paper: str | None = None


@dataclass(frozen=True)
class Scenario:
    name: str
    profile: Profile
    tenants: tuple[TenantSpec, ...]
    groups: tuple[Cgroup, ...] = ()
    variants: tuple[Variant, ...] = ()
    expects: tuple[Expect, ...] = ()
    seconds: float = 10.0
    warmup: float = 2.0
    repeats: int = 1
    seed: int = 1
    slack: bool = False  # knobs are set so that they hold nobody back
    sweep: tuple[int, ...] = ()  # numbers of cgroups, or empty
    cores: int = 16  # of a simulated host
    queues: int | None = None  # hardware queues that those share; None: one for each
    prices: PriceList | None = None  # None: bytes are what counts
    tunables: dict[str, dict[str, int]] = field(default_factory=dict)  # knob -> name -> value
    description: str = ""
    tuned_for: Scenario | None = None  # whose load knobs that must be set for one are set for; None: this one's

    @property
    def points(self) -> tuple[int | None, ...]:
        return self.sweep or (None,)

    @property
    def writes(self) -> bool:
        """It may: nobody has looked into a trace."""
        return any(tenant.trace or tenant.reads < 1 for tenant in self.tenants)

    def runs_of(self, knob: str) -> list[Variant]:
        """What is run when the knob is asked for: itself, and its variants."""
        found = [variant for variant in self.variants if variant.knob == knob]
        own = [] if any(variant.name == knob for variant in found) else [Variant(knob, knob)]
        return [*own, *found]

    def at(self, cgroups: int | None) -> Scenario:
        """The scenario at one point of its sweep: tenants replicated, in turn, to that many cgroups."""
        if cgroups is None:
            return self
        tenants = [self.tenants[i % len(self.tenants)] for i in range(cgroups)]
        return replace(self, sweep=(), tenants=tuple(replace(t, name=f"{t.name}{i}") for i, t in enumerate(tenants)))


def shares(scenario: Scenario, active: set[str] | None = None) -> dict[str, float]:
    """Each tenant's ideal fraction: the product along its path of a node's weight over that of all its siblings.

    With `active`, only those tenants and the cgroups above them count; the others are left out.
    """
    tenants = [t for t in scenario.tenants if active is None or t.name in active]
    groups = {group.name: group for group in scenario.groups}
    busy: set[str] = set()
    for tenant in tenants:
        parent = tenant.parent
        while parent is not None:
            busy.add(parent)
            parent = groups[parent].parent
    nodes: list[Cgroup | TenantSpec] = [*tenants, *(groups[name] for name in busy)]
    siblings: Counter[str | None] = Counter()  # their weights together, by parent
    for node in nodes:
        siblings[node.parent] += node.weight

    def share(node: Cgroup | TenantSpec) -> float:
        above = share(groups[node.parent]) if node.parent is not None else 1.0
        return node.weight / siblings[node.parent] * above

    return {tenant.name: share(tenant) for tenant in tenants}


def to_dict(scenario: Scenario) -> dict[str, Any]:
    return asdict(scenario)


def below(scenario: Scenario, name: str) -> set[str]:
    """The tenant of that name, or all in the cgroup of that name."""
    inside = {name}
    for _ in scenario.groups:
        inside |= {group.name for group in scenario.groups if group.parent in inside}
    return {tenant.name for tenant in scenario.tenants if tenant.name in inside or tenant.parent in inside}


def from_dict(data: Mapping[str, Any]) -> Scenario:
    """What to_dict() made; of an older version, what that did not know is as by default."""

    def tenant(t: Mapping[str, Any]) -> TenantSpec:
        return TenantSpec(
            **{
                **t,
                "rate": Rate(**t["rate"]) if t["rate"] else None,
                "cores": tuple(t["cores"]),
                "devices": tuple(t.get("devices", ())),
            }
        )

    def expect(e: Mapping[str, Any]) -> Expect:
        return Expect(**{**e, "between": (e["between"][0], e["between"][1]) if e["between"] else None})

    def prices(c: Mapping[str, Any]) -> PriceList:
        return PriceList(**{**c, "read": tuple(c["read"]), "write": tuple(c["write"])})

    return Scenario(
        **{
            **data,
            "profile": Profile(**data["profile"]),
            "tenants": tuple(tenant(t) for t in data["tenants"]),
            "groups": tuple(Cgroup(**g) for g in data["groups"]),
            "variants": tuple(Variant(**v) for v in data.get("variants", ())),
            "expects": tuple(expect(e) for e in data["expects"]),
            "sweep": tuple(data["sweep"]),
            "prices": prices(data["prices"]) if data.get("prices") else None,
            "tuned_for": from_dict(data["tuned_for"]) if data.get("tuned_for") else None,
        }
    )
