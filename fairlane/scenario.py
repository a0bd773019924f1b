# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Scenarios: an experiment written once, as a TOML file, and checked in full before anything is started.

    [run]      seconds, warmup, repeats, seed, cgroups (a sweep: the tenants are dealt out to that many cgroups),
               cores and queues (of the host that --on sim simulates; queues: that the cores share, if fewer), cases
               (names: the file is a scenario for each, FILE-CASE), tuned_for (another scenario's file: knobs that
               must be set for a load, such as io.cost and io.max, are set for that one's)
    [device]   profile (a file in profiles/), parameters of that profile to change, and cost: the drive's price list, a
               name in profiles/costs/ or the path of a cost file relative to the scenario (fairlane/cost.py)
    [tunable]  of schedulers that are ours: [tunable.NAME] has what is set when NAME is the knob, as in queue/iosched
    [[cgroup]] name, weight, parent: an inner node of the hierarchy, without load of its own
    [[tenant]] name, weight, parent, jobs, rw, mix, bs, iodepth, start, stop, rate, poisson, thinktime, cores,
               trace (a file of recorded requests, instead of rw, mix, bs, rate, poisson and thinktime), and with it
               speed ("recorded" or "full") and devices (only the requests to those)
    [[variant]] name, knob, set, low_latency: that knob once more, with its scheduler's tunables set to other values, or
               (with --on sim) on a host that has no block layer, and called by that name; one that has the knob's own
               name takes the place of the knob
    [[expect]] figure, knob, of, tenant, counter, at_least, at_most, across, between, paper; knob and of may be variants

A size is a number of bytes or a text such as "4KiB"; a time is a number of seconds or a text such as "100ms"; a
rate is "1000 iops" or "8MiB/s"; bs = "min" is the smallest block that the device takes. A tenant with stop before
start is active until stop, idle in between, and active again from start on. A cgroup, tenant or expect with
cases = ["A", ...] is only in those.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from fairlane import cost, ssd
from fairlane.cost import PriceList
from fairlane.errors import FairlaneError

ROOT = Path(__file__).resolve().parent.parent
PROFILES = ROOT / "profiles"
SCENARIOS = ROOT / "scenarios"
TRACES = ROOT / "traces"

WEIGHT_MIN, WEIGHT_MAX, WEIGHT_DEFAULT = 1, 10000, 100
TRACE_SAYS = ("rw", "mix", "bs", "rate", "poisson", "thinktime")  # keys without a meaning beside a trace
TRACE_ONLY = ("speed", "devices")  # and those without a meaning otherwise
SPEEDS = ("recorded", "full")
PATTERNS = ("read", "write", "rw", "randread", "randwrite", "randrw")
COST_FIGURES = ("total_cost_per_s", "cost_fairness_index", "cost_share_error", "cost_share")
FIGURES = (
    *("total_bytes_per_s", "total_iops", "fairness_index", "share_error", "cpu_ns_per_io", "counter"),
    *COST_FIGURES[:-1],
)
TENANT_FIGURES = ("share", "cost_share", "lat_mean_us", "lat_p99_us", "lat_p99.9_us", "spread")
SERIES_FIGURES = ("total_bytes_per_s", "fairness_index", "share_error", "share", "counter", "spread")
OURS = ("kyber-fairness", "mqflashfq", "flashfq", "d2fq", "mqfq")
LINUX = ("none", "mq-deadline", "kyber", "bfq", "io.max", "io.prio.class", "io.latency", "io.cost", "io.cost-qos")
KNOBS = (*LINUX, *OURS)

SIZE_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
MAX_SECONDS = 7 * 24 * 3600.0
TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
DEVICE_KEYS: dict[str, tuple[str, ...]] = {
    "null_blk": (
        "size",
        "bs",
        "irqmode",
        "completion_nsec",
        "hw_queue_depth",
        "submit_queues",
        "queue_mode",
        "memory_backed",
        "discard",
    ),
    "qemu-nvme": ("size", "max_ioqpairs", "iops"),
    "ssd": (*ssd.PROFILE, *ssd.PLAYED),
}


T = TypeVar("T")
D = TypeVar("D")


@dataclass(frozen=True)
class Profile:
    """A drive: how to make it, and with which parameters (sizes in bytes, the others as the driver has them)."""

    name: str
    kind: str  # a key of DEVICE_KEYS; "ssd" is our model
    description: str
    params: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Cgroup:
    name: str
    weight: int = WEIGHT_DEFAULT
    parent: str | None = None


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
    sweep: tuple[int, ...] = ()  # numbers of cgroups, or empty
    cores: int = 16  # of a simulated host
    queues: int | None = None  # hardware queues that those share; None: one for each
    cost: PriceList | None = None  # None: bytes are what counts
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

    def share(node: Cgroup | TenantSpec) -> float:
        siblings = sum(other.weight for other in nodes if other.parent == node.parent)
        return node.weight / siblings * (share(groups[node.parent]) if node.parent is not None else 1.0)

    return {tenant.name: share(tenant) for tenant in tenants}


# --- Crossing into the VM ---


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
            "cost": prices(data["cost"]) if data.get("cost") else None,
            "tuned_for": from_dict(data["tuned_for"]) if data.get("tuned_for") else None,
        }
    )


# --- Reading the file ---


class _Table:
    """One table of a file; every error names the file, the table and the key, and what would be valid."""

    def __init__(self, path: Path, where: str, data: object) -> None:
        self.path, self.where = path, where
        if not isinstance(data, dict):
            raise FairlaneError(f"{path}: {where} must be a table")
        self.data: dict[str, Any] = data

    def error(self, key: str, problem: str) -> FairlaneError:
        return FairlaneError(f"{self.path}: {self.where} {key}: {problem}")

    def only(self, valid: Sequence[str]) -> None:
        for key in self.data:
            if key not in valid:
                raise self.error(key, f"unknown key; valid are {', '.join(valid)}")

    def need(self, key: str, convert: Callable[[object], T]) -> T:
        if key not in self.data:
            raise self.error(key, "is missing")
        try:
            return convert(self.data[key])
        except ValueError as error:
            raise self.error(key, str(error)) from error

    def take(self, key: str, convert: Callable[[object], T], default: D) -> T | D:
        return self.need(key, convert) if key in self.data else default


def load_all(path: Path) -> list[Scenario]:
    """Read and check a scenario file: one scenario, or one for each of its cases."""
    data = _toml(path, "a scenario")
    run = _Table(path, "[run]", data.get("run", {}))
    cases = run.take("cases", _list(_identifier), ())
    run.data.pop("cases", None)
    if not cases:
        return [_scenario(path, data, _name(path))]
    return [_scenario(path, _of_case(path, data, case, cases), f"{_name(path)}-{case}") for case in cases]


def load(path: Path) -> Scenario:
    """Read and check a scenario file that has no cases."""
    found = load_all(path)
    if len(found) != 1:
        raise FairlaneError(f"{path}: [run] cases: has several, where one scenario is needed")
    return found[0]


def _of_case(path: Path, data: dict[str, Any], case: str, cases: Sequence[str]) -> dict[str, Any]:
    """The file without the tables that are for other cases."""
    kept: dict[str, Any] = {}
    for key in ("cgroup", "tenant", "expect"):
        tables = _tables(path, data, key)
        where = [table.take("cases", _list(_one_of(cases)), tuple(cases)) for table in tables]
        kept[key] = [
            {name: value for name, value in table.data.items() if name != "cases"}
            for table, only in zip(tables, where, strict=True)
            if case in only
        ]
    return {**data, **kept}


def _scenario(path: Path, data: dict[str, Any], name: str) -> Scenario:
    top = _Table(path, "top level", data)
    top.only(("description", "run", "device", "tunable", "cgroup", "tenant", "variant", "expect"))
    run = _Table(path, "[run]", data.get("run", {}))
    run.only(("seconds", "warmup", "repeats", "seed", "cgroups", "cores", "queues", "tuned_for"))
    seconds = run.take("seconds", _positive(parse_time), Scenario.seconds)
    groups = tuple(_group(t) for t in _tables(path, data, "cgroup"))
    tenants = tuple(_tenant(t, seconds) for t in _tables(path, data, "tenant"))
    variants = _variants(_tables(path, data, "variant"))
    if not tenants:
        raise FairlaneError(f"{path}: no [[tenant]]; a scenario needs at least one")
    sweep = run.take("cgroups", _list(_integer(1, 4096)), ())
    if sweep and groups:
        raise run.error("cgroups", "a sweep cannot be combined with [[cgroup]] tables")
    _check_tree(path, groups, tenants)
    device = _Table(path, "[device]", data.get("device", {}))
    tuned_for = run.take("tuned_for", _other(path), None)
    if sweep and tuned_for:
        raise run.error("tuned_for", "a sweep has a load of its own at each point, which knobs are set for")
    profile = _device(device)
    if tuned_for and tuned_for.profile != profile:
        raise run.error("tuned_for", f"{tuned_for.name} is for another drive; give both the same [device]")
    return Scenario(
        name=name,
        description=top.take("description", _text, ""),
        profile=profile,
        cost=device.take("cost", _cost(path), None),
        tunables=_tunables(path, data.get("tunable", {})),
        tenants=tenants,
        groups=groups,
        variants=variants,
        expects=tuple(_expect(t, groups, tenants, variants, sweep, seconds) for t in _tables(path, data, "expect")),
        seconds=seconds,
        warmup=run.take("warmup", parse_time, Scenario.warmup),
        repeats=run.take("repeats", _integer(1, 1000), Scenario.repeats),
        seed=run.take("seed", _integer(0, 2**31), Scenario.seed),
        sweep=sweep,
        cores=run.take("cores", _integer(1, 1024), Scenario.cores),
        queues=run.take("queues", _integer(1, 1024), None),
        tuned_for=tuned_for,
    )


def profiles() -> list[str]:
    """The names that [device] profile may take."""
    return sorted(path.stem for path in PROFILES.glob("*.toml"))


def load_profile(name: str) -> Profile:
    """Read profiles/NAME.toml."""
    path = PROFILES / f"{name}.toml"
    if name not in profiles():
        raise FairlaneError(f"unknown profile {name!r}; valid are {', '.join(profiles())}")
    table = _Table(path, "top level", _toml(path, "a profile"))
    kind = table.need("kind", _one_of(tuple(DEVICE_KEYS)))
    table.only(("kind", "description", *DEVICE_KEYS[kind]))
    return Profile(name, kind, table.take("description", _text, ""), _params(table, kind))


def _toml(path: Path, what: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise FairlaneError(f"{path}: cannot be read as {what}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FairlaneError(f"{path}: not valid TOML: {error}") from error


def _name(path: Path) -> str:
    """kyber-fairness/fig1 for the project's own, the bare name for a file elsewhere."""
    full = path.resolve().with_suffix("")
    return str(full.relative_to(SCENARIOS)) if full.is_relative_to(SCENARIOS) else full.name


def _tables(path: Path, data: dict[str, Any], key: str) -> list[_Table]:
    tables = data.get(key, [])
    if not isinstance(tables, list):
        raise FairlaneError(f"{path}: [{key}]: there can be several; write it as [[{key}]]")
    return [_Table(path, f"[[{key}]] number {i}", table) for i, table in enumerate(tables, 1)]


def _device(table: _Table) -> Profile:
    name = table.need("profile", _text)
    try:
        profile = load_profile(name)
    except FairlaneError as error:
        raise table.error("profile", str(error)) from error
    table.only(("profile", "cost", *DEVICE_KEYS[profile.kind]))
    return replace(profile, params={**profile.params, **_params(table, profile.kind)})


def _cost(path: Path) -> Callable[[object], PriceList]:
    """How to read the price list that the scenario at that path names."""

    def convert(value: object) -> PriceList:
        try:
            return cost.load(_text(value), path.parent)
        except FairlaneError as error:
            raise ValueError(str(error)) from error

    return convert


def _tunables(path: Path, data: object) -> dict[str, dict[str, int]]:
    top = _Table(path, "[tunable]", data)
    top.only(OURS)
    tables = [(knob, _Table(path, f"[tunable.{knob}]", values)) for knob, values in top.data.items()]
    return {knob: {name: table.need(name, _integer(0, 2**63 - 1)) for name in table.data} for knob, table in tables}


def _params(table: _Table, kind: str) -> dict[str, int]:
    return {key: table.need(key, _param(kind, key)) for key in DEVICE_KEYS[kind] if key in table.data}


def _param(kind: str, key: str) -> Callable[[object], int]:
    """How to read that parameter of that kind of drive."""
    if kind == "ssd":
        return _modelled({**ssd.PROFILE, **ssd.PLAYED}[key])
    return _positive_size if key in ("size", "bs") else _integer(0, 2**32)


def _modelled(field: ssd.Field) -> Callable[[object], int]:
    number = _integer(field.low, field.high)

    def convert(value: object) -> int:
        found = number(parse_size(value) if field.unit == "bytes" else value)
        if "a power of two" in field.help and found & (found - 1):
            raise ValueError(f"{found} is not a power of two, from {field.low} to {field.high}")
        return found

    return convert


def _group(table: _Table) -> Cgroup:
    table.only(("name", "weight", "parent"))
    return Cgroup(
        name=table.need("name", _identifier),
        weight=table.take("weight", _integer(WEIGHT_MIN, WEIGHT_MAX), WEIGHT_DEFAULT),
        parent=table.take("parent", _identifier, None),
    )


def _tenant(table: _Table, seconds: float) -> TenantSpec:
    table.only(tuple(TenantSpec.__dataclass_fields__))
    tenant = TenantSpec(
        name=table.need("name", _identifier),
        weight=table.take("weight", _integer(WEIGHT_MIN, WEIGHT_MAX), WEIGHT_DEFAULT),
        parent=table.take("parent", _identifier, None),
        jobs=table.take("jobs", _integer(1, 1024), TenantSpec.jobs),
        rw=table.take("rw", _one_of(PATTERNS), TenantSpec.rw),
        mix=table.take("mix", _integer(0, 100), TenantSpec.mix),
        bs=table.take("bs", lambda value: 0 if value == "min" else _positive_size(value), TenantSpec.bs),
        iodepth=table.take("iodepth", _integer(1, 65536), TenantSpec.iodepth),
        start=table.take("start", parse_time, TenantSpec.start),
        stop=table.take("stop", _positive(parse_time), None),
        rate=table.take("rate", parse_rate, None),
        poisson=table.take("poisson", _boolean, TenantSpec.poisson),
        thinktime=table.take("thinktime", parse_time, TenantSpec.thinktime),
        cores=table.take("cores", _list(_integer(0, 8191)), ()),
        trace=table.take("trace", _trace(table.path), None),
        speed=table.take("speed", _one_of(SPEEDS), TenantSpec.speed),
        devices=table.take("devices", _list(_integer(0, 2**32)), ()),
    )
    for key in TRACE_SAYS:
        if tenant.trace and key in table.data:
            raise table.error(key, "has no meaning beside a trace, which says what is requested and when")
    for key in TRACE_ONLY:
        if not tenant.trace and key in table.data:
            raise table.error(key, "has no meaning without a trace")
    if "mix" in table.data and tenant.rw not in ("rw", "randrw"):
        raise table.error("mix", f'has no meaning with rw = "{tenant.rw}"; it is for rw and randrw')
    if tenant.poisson and tenant.rate is None:
        raise table.error("poisson", "has no meaning without a rate")
    if tenant.start >= seconds:
        raise table.error("start", f"{tenant.start:g} s is not within the run's {seconds:g} s")
    if tenant.stop is not None and (tenant.stop > seconds or tenant.stop == tenant.start):
        raise table.error("stop", f"{tenant.stop:g} s must be within the run's {seconds:g} s and differ from start")
    return tenant


def _check_tree(path: Path, groups: Sequence[Cgroup], tenants: Sequence[TenantSpec]) -> None:
    """Names are unique and every parent is a declared [[cgroup]], without cycles."""
    nodes: list[Cgroup | TenantSpec] = [*groups, *tenants]
    parents = {group.name: group.parent for group in groups}
    names: set[str] = set()
    for node in nodes:
        where = f"{path}: [[{'cgroup' if isinstance(node, Cgroup) else 'tenant'}]] {node.name}"
        if node.name in names:
            raise FairlaneError(f"{where}: name: used twice; every cgroup and tenant needs its own")
        names.add(node.name)
        seen = {node.name}
        parent = node.parent
        while parent is not None:
            if parent not in parents:
                declared = ", ".join(parents) or "none is declared"
                raise FairlaneError(f"{where}: parent: {parent!r} is not a [[cgroup]] (valid: {declared})")
            if parent in seen:
                raise FairlaneError(f"{where}: parent: {parent!r} is its own ancestor; break the cycle")
            seen.add(parent)
            parent = parents[parent]


def _variants(tables: Sequence[_Table]) -> tuple[Variant, ...]:
    found: list[Variant] = []
    for table in tables:
        table.only(tuple(Variant.__dataclass_fields__))
        variant = Variant(
            name=table.need("name", _identifier),
            knob=table.need("knob", _one_of(KNOBS)),
            set=table.take("set", _sizes, {}),
            low_latency=table.take("low_latency", _boolean, False),
        )
        if variant.name in {other.name for other in found} | (set(KNOBS) - {variant.knob}):
            raise table.error("name", f"{variant.name!r} is taken")
        found.append(variant)
    return tuple(found)


def _expect(
    table: _Table,
    groups: Sequence[Cgroup],
    tenants: Sequence[TenantSpec],
    variants: Sequence[Variant],
    sweep: Sequence[int],
    seconds: float,
) -> Expect:
    table.only(tuple(Expect.__dataclass_fields__))
    knobs = tuple(dict.fromkeys((*KNOBS, *(variant.name for variant in variants))))
    expect = Expect(
        figure=table.need("figure", _one_of((*FIGURES, *TENANT_FIGURES))),
        knob=table.need("knob", _one_of(knobs)),
        of=table.take("of", _one_of(knobs), None),
        tenant=table.take("tenant", _one_of([*(t.name for t in tenants), *(g.name for g in groups)]), None),
        counter=table.take("counter", _text, None),
        at_least=table.take("at_least", _number, None),
        at_most=table.take("at_most", _number, None),
        across=table.take("across", _one_of(("cgroups",)), None),
        between=table.take("between", _span, None),
        paper=table.take("paper", _text, None),
    )
    if expect.at_least is None and expect.at_most is None:
        raise table.error("at_least", "is missing, and so is at_most; give at least one bound")
    if (expect.tenant is not None) != (expect.figure in TENANT_FIGURES):
        needed = (
            "is missing; this figure is of one tenant"
            if expect.tenant is None
            else f"{expect.figure} is not of one tenant"
        )
        raise table.error("tenant", needed)
    if expect.tenant in [group.name for group in groups] and "share" not in expect.figure:
        raise table.error("tenant", f"{expect.tenant} is a cgroup, which has no {expect.figure}")
    if expect.tenant is not None and sweep:
        raise table.error("tenant", "a sweep replicates tenants, so none can be named")
    if (expect.counter is not None) != (expect.figure == "counter"):
        raise table.error("counter", 'goes with figure = "counter", and that with it')
    if expect.across and not sweep:
        raise table.error("across", "the scenario has no sweep; add cgroups = [1, 4, ...] to [run]")
    if expect.between and (expect.figure not in SERIES_FIGURES or expect.between[1] > seconds):
        raise table.error("between", f"must end within {seconds:g} s and is for {', '.join(SERIES_FIGURES)}")
    return expect


# --- Values: each converter takes what TOML gave and raises ValueError with what would be valid ---


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def _identifier(value: object) -> str:
    """A name that can be a cgroup's folder and a part of a fio job's name."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", value):
        raise ValueError(f"{value!r} is not a name; use letters, digits, - and _")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is not true or false")
    return value


def _integer(low: int, high: int) -> Callable[[object], int]:
    def convert(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{value!r} is not a whole number from {low} to {high}")
        return value

    return convert


def _one_of(valid: Sequence[str]) -> Callable[[object], str]:
    def convert(value: object) -> str:
        if not isinstance(value, str) or value not in valid:
            raise ValueError(f"{value!r} is unknown; valid are {', '.join(valid)}")
        return value

    return convert


def _sizes(value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not a table of tunables and their values")
    return {key: parse_size(item) for key, item in value.items()}


def _trace(scenario: Path) -> Callable[[object], str]:
    """A file beside the scenario, or else one of the project's."""

    def convert(value: object) -> str:
        places = [folder.resolve() / _text(value) for folder in (scenario.parent, TRACES)]
        for file in places:
            if file.is_file():
                return str(file)
        other = next((str(place) for place in places if place.exists()), None)
        if other:
            raise ValueError(f"{other}: is no regular file")
        raise ValueError(f"{' and '.join(dict.fromkeys(map(str, places)))}: no such file")

    return convert


def _other(scenario: Path) -> Callable[[object], Scenario]:
    """Another scenario's file, relative to this one; of that only the load counts."""

    def convert(value: object) -> Scenario:
        try:
            found = load(scenario.parent / _text(value))
        except FairlaneError as error:
            raise ValueError(str(error)) from error
        if found.sweep or found.tuned_for:
            raise ValueError(f"{found.name} has a sweep, or is itself tuned for another; give one load")
        return replace(found, expects=(), variants=())

    return convert


def _list(convert: Callable[[object], T]) -> Callable[[object], tuple[T, ...]]:
    def convert_all(value: object) -> tuple[T, ...]:
        if not isinstance(value, list) or not value:
            raise ValueError(f"{value!r} is not a list with something in it")
        return tuple(convert(item) for item in value)

    return convert_all


def _positive(convert: Callable[[object], float]) -> Callable[[object], float]:
    def convert_positive(value: object) -> float:
        number = convert(value)
        if number <= 0:
            raise ValueError(f"{value!r} must be more than 0")
        return number

    return convert_positive


def _span(value: object) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{value!r} is not a list of two times, [from, to]")
    start, stop = (parse_time(item) for item in value)
    if not start < stop:
        raise ValueError(f"{value!r} ends before it starts")
    return start, stop


def _positive_size(value: object) -> int:
    size = parse_size(value)
    if size <= 0:
        raise ValueError(f"{value!r} must be more than 0")
    return size


def parse_size(value: object) -> int:
    """Bytes from 4096 or "4KiB"."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number, unit = _split(value, SIZE_UNITS, "size", "bytes")
    return int(number * SIZE_UNITS[unit])


def parse_time(value: object) -> float:
    """Seconds from 0.1, 2 or "100ms"."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    else:
        number, unit = _split(value, TIME_UNITS, "time", "seconds")
        seconds = number * TIME_UNITS[unit]
    if not 0 <= seconds <= MAX_SECONDS:  # neither is NaN
        raise ValueError(f"{value!r} is no time from 0 to a week")
    return seconds


def parse_rate(value: object) -> Rate:
    """A limit from "1000 iops" or "8MiB/s"."""
    units = ["iops", *(f"{unit}/s" for unit in SIZE_UNITS)]
    number, unit = _split(value, units, "rate")
    if number <= 0:
        raise ValueError(f"{value!r} must be more than 0")
    return Rate(iops=number) if unit == "iops" else Rate(bytes_per_s=number * SIZE_UNITS[unit.removesuffix("/s")])


def _split(value: object, units: Iterable[str], what: str, plain: str | None = None) -> tuple[float, str]:
    """A text's number and unit; a number without one, and without quotes, counts those that plain names."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *([A-Za-z/]+)", value) if isinstance(value, str) else None
    if match is None or match[2] not in units:
        bare = f"; a number of {plain} has neither unit nor quotes" if plain else ""
        raise ValueError(f"{value!r} is not a {what} with a known unit; valid are {', '.join(units)}{bare}")
    return float(match[1]), match[2]
