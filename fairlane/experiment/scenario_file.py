# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Scenarios: an experiment written once, as a TOML file, and checked in full before anything is started.

    [run]      seconds, warmup, repeats, seed, cgroups (a sweep: so many tenants, each in its cgroup), slack (knobs are
               set so that they hold nobody back),
               cores and queues (of the host that --on sim simulates; queues: that the cores share, if fewer), cases
               (names: the file is a scenario for each, FILE-CASE), tuned_for (another scenario's file: knobs that
               must be set for a load, such as io.cost and io.max, are set for that one's)
    [device]   profile (a file in profiles/), parameters of that profile to change, device ("fl-nvme": what plays a
               modelled SSD in a VM, instead of the virtual SSD), and prices: the price list, a name in profiles/prices/
               or the path of a price list relative to the scenario (experiment/price_lists.py)
    [tunable]  of schedulers that are ours: [tunable.NAME] has what is set when NAME is the knob, as in queue/iosched
    [[cgroup]] name, weight, parent, latency (a target): an inner node of the hierarchy, without load of its own
    [defaults] what tenants have that do not say otherwise: any key of [[tenant]] but name, parent, count and
               cases
    [[tenant]] name, weight, parent, latency, jobs, rw, mix, bs, iodepth, start, stop, rate, poisson, thinktime, cores,
               trace (a file of recorded requests, instead of rw, mix, bs, rate, poisson and thinktime), and with it
               speed ("recorded" or "full") and devices (only the requests to those); count (that many alike, NAME0,
               NAME1 and so on, each a cgroup of its own)
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

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairlane.errors import FairlaneError
from fairlane.experiment import price_lists
from fairlane.experiment.model import (
    COST_FIGURES,
    FL_NVME,
    OURS,
    SPEEDS,
    WEIGHT_DEFAULT,
    WEIGHT_MAX,
    WEIGHT_MIN,
    Cgroup,
    Expect,
    Profile,
    Scenario,
    TenantSpec,
    Variant,
)
from fairlane.experiment.price_lists import PriceList
from fairlane.experiment.profiles import DEVICE_KEYS, load_profile, params_of
from fairlane.experiment.values import (
    Table,
    as_boolean,
    as_integer,
    as_latency,
    as_list,
    as_name,
    as_number,
    as_one_of,
    as_positive,
    as_positive_size,
    as_sizes,
    as_span,
    as_text,
    parse_rate,
    parse_time,
    read_toml,
)
from fairlane.places import SCENARIOS, TRACES

COUNT_MAX = 4096  # tenants that one table, or a sweep's point, stands for
TRACE_SAYS = ("rw", "mix", "bs", "rate", "poisson", "thinktime")  # keys without a meaning beside a trace
TRACE_ONLY = ("speed", "devices")  # and those without a meaning otherwise
PATTERNS = ("read", "write", "rw", "randread", "randwrite", "randrw")
MIXED = ("rw", "randrw")  # patterns of both reads and writes
DEFAULTS = tuple(key for key in TenantSpec.__dataclass_fields__ if key not in ("name", "parent"))
FIGURES = (
    *("total_bytes_per_s", "total_iops", "fairness_index", "share_error", "cpu_ns_per_io", "counter"),
    *COST_FIGURES[:-1],
)
TENANT_FIGURES = ("share", "cost_share", "iops", "lat_mean_us", "lat_p99_us", "lat_p99.9_us", "spread")
SERIES_FIGURES = ("total_bytes_per_s", "fairness_index", "share_error", "share", "counter", "spread")


# --- Reading the file ---


def load_all(path: Path, knobs: Sequence[str] | None = None) -> list[Scenario]:
    """Read and check a scenario file: one scenario, or one for each of its cases. None: any name is a knob's."""
    return parse(path, read_toml(path, "a scenario"), knobs)


def parse(path: Path, data: dict[str, Any], knobs: Sequence[str] | None = None) -> list[Scenario]:
    """The same of what is in the file, or in one like it."""
    run = Table(path, "[run]", data.get("run", {}))
    cases = run.take("cases", as_list(as_name), ())
    run.data.pop("cases", None)
    if not cases:
        return [_scenario(path, data, _name(path), knobs)]
    of_cases = ((_of_case(path, data, case, cases), f"{_name(path)}-{case}") for case in cases)
    return [_scenario(path, only, name, knobs) for only, name in of_cases]


def load(path: Path, knobs: Sequence[str] | None = None) -> Scenario:
    """Read and check a scenario file that has no cases."""
    found = load_all(path, knobs)
    if len(found) != 1:
        raise FairlaneError(f"{path}: [run] cases: has several, where one scenario is needed")
    return found[0]


def _of_case(path: Path, data: dict[str, Any], case: str, cases: Sequence[str]) -> dict[str, Any]:
    """The file without the tables that are for other cases."""
    kept: dict[str, Any] = {}
    for key in ("cgroup", "tenant", "expect"):
        tables = _tables(path, data, key)
        where = [table.take("cases", as_list(as_one_of(cases)), tuple(cases)) for table in tables]
        kept[key] = [
            {name: value for name, value in table.data.items() if name != "cases"}
            for table, only in zip(tables, where, strict=True)
            if case in only
        ]
    return {**data, **kept}


def _scenario(path: Path, data: dict[str, Any], name: str, knobs: Sequence[str] | None) -> Scenario:
    top = Table(path, "top level", data)
    top.only(("description", "run", "device", "tunable", "cgroup", "defaults", "tenant", "variant", "expect"))
    run = Table(path, "[run]", data.get("run", {}))
    run.only(("seconds", "warmup", "repeats", "seed", "slack", "cgroups", "cores", "queues", "tuned_for"))
    seconds = run.take("seconds", as_positive(parse_time), Scenario.seconds)
    groups = tuple(_group(t) for t in _tables(path, data, "cgroup"))
    defaults = Table(path, "[defaults]", data.get("defaults", {}))
    defaults.only(DEFAULTS)
    sweep = run.take("cgroups", as_list(as_integer(1, COUNT_MAX)), ())
    tables = [each for table in _tables(path, data, "tenant") for each in _counted(table, sweep)]
    tenants = tuple(_tenant(_with(table, defaults), seconds) for table in tables)
    variants = _variants(_tables(path, data, "variant"), knobs)
    if not tenants:
        raise FairlaneError(f"{path}: no [[tenant]]; a scenario needs at least one")
    if sweep and groups:
        raise run.error("cgroups", "a sweep cannot be combined with [[cgroup]] tables")
    _check_tree(path, groups, tenants)
    device = Table(path, "[device]", data.get("device", {}))
    profile, tuned_for = _device(device), run.take("tuned_for", _other(path), None)
    if sweep and tuned_for:
        raise run.error("tuned_for", "a sweep has a load of its own at each point, which knobs are set for")
    if tuned_for and "slack" in run.data:
        raise run.error("tuned_for", "a knob that holds nobody back (slack) is set for no load; leave out either")
    if tuned_for and tuned_for.profile != profile:
        raise run.error("tuned_for", f"{tuned_for.name} is for another drive; give both the same [device]")
    return Scenario(
        name=name,
        description=top.take("description", as_text, ""),
        profile=profile,
        prices=device.take("prices", _prices(path), None),
        tunables=_tunables(path, data.get("tunable", {})),
        tenants=tenants,
        groups=groups,
        variants=variants,
        expects=tuple(
            _expect(t, groups, tenants, variants, sweep, seconds, knobs) for t in _tables(path, data, "expect")
        ),
        seconds=seconds,
        warmup=run.take("warmup", parse_time, Scenario.warmup),
        repeats=run.take("repeats", as_integer(1, 1000), Scenario.repeats),
        seed=run.take("seed", as_integer(0, 2**31), Scenario.seed),
        slack=run.take("slack", as_boolean, Scenario.slack),
        sweep=sweep,
        cores=run.take("cores", as_integer(1, 1024), Scenario.cores),
        queues=run.take("queues", as_integer(1, 1024), None),
        tuned_for=tuned_for,
    )


def _name(path: Path) -> str:
    """kyber-fairness/fig1 for the project's own, the bare name for a file elsewhere."""
    full = path.resolve().with_suffix("")
    return str(full.relative_to(SCENARIOS)) if full.is_relative_to(SCENARIOS) else full.name


def _tables(path: Path, data: dict[str, Any], key: str) -> list[Table]:
    tables = data.get(key, [])
    if not isinstance(tables, list):
        raise FairlaneError(f"{path}: [{key}]: there can be several; write it as [[{key}]]")
    return [Table(path, f"[[{key}]] number {i}", table) for i, table in enumerate(tables, 1)]


def _device(table: Table) -> Profile:
    name = table.need("profile", as_text)
    try:
        profile = load_profile(name)
    except FairlaneError as error:
        raise table.error("profile", str(error)) from error
    modelled = ("device",) if profile.kind == "ssd" else ()
    table.only(("profile", "prices", *modelled, *DEVICE_KEYS[profile.kind]))
    device = table.take("device", as_one_of((FL_NVME,)), None)
    return replace(profile, params={**profile.params, **params_of(table, profile.kind)}, device=device)


def _prices(path: Path) -> Callable[[object], PriceList]:
    """How to read the price list that the scenario at that path names."""

    def convert(value: object) -> PriceList:
        try:
            return price_lists.load(as_text(value), path.parent)
        except FairlaneError as error:
            raise ValueError(str(error)) from error

    return convert


def _tunables(path: Path, data: object) -> dict[str, dict[str, int]]:
    top = Table(path, "[tunable]", data)
    top.only(OURS)
    tables = [(knob, Table(path, f"[tunable.{knob}]", values)) for knob, values in top.data.items()]
    return {knob: {name: table.need(name, as_integer(0, 2**63 - 1)) for name in table.data} for knob, table in tables}


def _group(table: Table) -> Cgroup:
    table.only(("name", "weight", "parent", "latency"))
    return Cgroup(
        name=table.need("name", as_name),
        weight=table.take("weight", as_integer(WEIGHT_MIN, WEIGHT_MAX), WEIGHT_DEFAULT),
        parent=table.take("parent", as_name, None),
        latency=table.take("latency", as_latency, Cgroup.latency),
    )


def _counted(tenant: Table, sweep: Sequence[int]) -> list[Table]:
    """A table for each of the tenants that it stands for."""
    if "count" not in tenant.data:
        return [tenant]
    if sweep:
        raise tenant.error("count", "a sweep replicates tenants by itself; leave it out")
    name, count = tenant.need("name", as_name), tenant.need("count", as_integer(1, COUNT_MAX))
    alike = {key: value for key, value in tenant.data.items() if key != "count"}
    return [Table(tenant.path, tenant.where, alike | {"name": f"{name}{i}"}) for i in range(count)]


def _with(tenant: Table, defaults: Table) -> Table:
    """With the defaults that mean something for it and that it does not say otherwise."""
    whole = {**defaults.data, **tenant.data}
    without = set(TRACE_SAYS if "trace" in whole else TRACE_ONLY)
    without |= {"mix"} if whole.get("rw") not in MIXED else set()
    without |= {"poisson"} if "rate" not in whole else set()
    whole = {key: value for key, value in whole.items() if key in tenant.data or key not in without}
    return Table(tenant.path, tenant.where, whole, {key: defaults.where for key in whole if key not in tenant.data})


def _tenant(table: Table, seconds: float) -> TenantSpec:
    table.only(tuple(TenantSpec.__dataclass_fields__))
    tenant = TenantSpec(
        name=table.need("name", as_name),
        weight=table.take("weight", as_integer(WEIGHT_MIN, WEIGHT_MAX), WEIGHT_DEFAULT),
        parent=table.take("parent", as_name, None),
        latency=table.take("latency", as_latency, TenantSpec.latency),
        jobs=table.take("jobs", as_integer(1, 1024), TenantSpec.jobs),
        rw=table.take("rw", as_one_of(PATTERNS), TenantSpec.rw),
        mix=table.take("mix", as_integer(0, 100), TenantSpec.mix),
        bs=table.take("bs", lambda value: 0 if value == "min" else as_positive_size(value), TenantSpec.bs),
        iodepth=table.take("iodepth", as_integer(1, 65536), TenantSpec.iodepth),
        start=table.take("start", parse_time, TenantSpec.start),
        stop=table.take("stop", as_positive(parse_time), None),
        rate=table.take("rate", parse_rate, None),
        poisson=table.take("poisson", as_boolean, TenantSpec.poisson),
        thinktime=table.take("thinktime", parse_time, TenantSpec.thinktime),
        cores=table.take("cores", as_list(as_integer(0, 8191)), ()),
        trace=table.take("trace", _trace(table.path), None),
        speed=table.take("speed", as_one_of(SPEEDS), TenantSpec.speed),
        devices=table.take("devices", as_list(as_integer(0, 2**32)), ()),
    )
    for key in TRACE_SAYS:
        if tenant.trace and key in table.data:
            raise table.error(key, "has no meaning beside a trace, which says what is requested and when")
    for key in TRACE_ONLY:
        if not tenant.trace and key in table.data:
            raise table.error(key, "has no meaning without a trace")
    if "mix" in table.data and tenant.rw not in MIXED:
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


def _variants(tables: Sequence[Table], knobs: Sequence[str] | None) -> tuple[Variant, ...]:
    found: list[Variant] = []
    for table in tables:
        table.only(tuple(Variant.__dataclass_fields__))
        variant = Variant(
            name=table.need("name", as_name),
            knob=table.need("knob", as_text if knobs is None else as_one_of(knobs)),
            set=table.take("set", as_sizes, {}),
            low_latency=table.take("low_latency", as_boolean, False),
        )
        if variant.name in {other.name for other in found} | (set(knobs or ()) - {variant.knob}):
            raise table.error("name", f"{variant.name!r} is taken")
        found.append(variant)
    return tuple(found)


def _expect(
    table: Table,
    groups: Sequence[Cgroup],
    tenants: Sequence[TenantSpec],
    variants: Sequence[Variant],
    sweep: Sequence[int],
    seconds: float,
    knobs: Sequence[str] | None,
) -> Expect:
    table.only(tuple(Expect.__dataclass_fields__))
    names = tuple(dict.fromkeys((*(knobs or ()), *(variant.name for variant in variants))))
    as_knob = as_text if knobs is None else as_one_of(names)
    expect = Expect(
        figure=table.need("figure", as_one_of((*FIGURES, *TENANT_FIGURES))),
        knob=table.need("knob", as_knob),
        of=table.take("of", as_knob, None),
        tenant=table.take("tenant", as_one_of([*(t.name for t in tenants), *(g.name for g in groups)]), None),
        counter=table.take("counter", as_text, None),
        at_least=table.take("at_least", as_number, None),
        at_most=table.take("at_most", as_number, None),
        across=table.take("across", as_one_of(("cgroups",)), None),
        between=table.take("between", as_span, None),
        paper=table.take("paper", as_text, None),
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


def _other(scenario: Path) -> Callable[[object], Scenario]:
    """Another scenario's file, relative to this one; of that only the load counts."""

    def convert(value: object) -> Scenario:
        try:
            found = load(scenario.parent / as_text(value))
        except FairlaneError as error:
            raise ValueError(str(error)) from error
        if found.sweep or found.tuned_for:
            raise ValueError(f"{found.name} has a sweep, or is itself tuned for another; give one load")
        return replace(found, expects=(), variants=())

    return convert


def _trace(scenario: Path) -> Callable[[object], str]:
    """A file beside the scenario, or else one of the project's."""

    def convert(value: object) -> str:
        places = [folder.resolve() / as_text(value) for folder in (scenario.parent, TRACES)]
        for file in places:
            if file.is_file():
                return str(file)
        other = next((str(place) for place in places if place.exists()), None)
        if other:
            raise ValueError(f"{other}: is no regular file")
        raise ValueError(f"{' and '.join(dict.fromkeys(map(str, places)))}: no such file")

    return convert
