# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""isol-bench: what is run to learn which knob isolates a drive, after Doekemeijer et al., "Does Linux Provide
Performance Isolation for NVMe SSDs?" (IISWC 2025).

Four desiderata, each with its experiments. An experiment is a scenario at one point (a number of tenants, the length
of a burst); it becomes one unit for each knob and each setting of that knob. A unit is what is run, kept, and not run
again. `none` is run in every experiment, whoever asked: everything is judged against it.

    d1  overhead: latency-critical tenants on one core; batch tenants until CPU or drive is full
    d2  fairness: more and more tenants, equal and unequal ones
    d3  a tenant with priority against all others' throughput, over what a knob can be set to
    d4  a tenant with priority that wakes for a burst

The last two are judged by what any knob could do at best: see limit.py.

Tenants named `prio` have priority; those named `be` and a number do with what is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fairlane.backends.job import Backend
from fairlane.errors import FairlaneError, offer
from fairlane.experiment import price_lists
from fairlane.experiment.model import Cgroup, Profile, Scenario, TenantSpec, from_dict, to_dict
from fairlane.isolbench import limit
from fairlane.linux.knob import BY_WEIGHT, SLACK, Priority, Tuning
from fairlane.linux.knobs import HEAVY, TABLE

PARTS = {"d1": "overhead", "d2": "fairness", "d3": "trade-off", "d4": "bursts"}
BASELINE = "none"
PRIO = "prio"
LIGHT = 100  # the weight of tenants without priority; HEAVY is that of one with, in d4
BEST_EFFORT = 4  # tenants without priority
KIB = 1024
SIM_CORES = 16  # of a simulated host
SIM_CORES_FOR_ALL = 32  # in d3 and d4, so that none of their tasks shares its core, as none does in the limit's
FULL_S = 0.1  # of the drive's own time: by then writes have filled its buffer, and are as slow as they will be
ALL_PUBLISHED = 0  # settings: as many as the paper's authors tried
OTHER_LOADS: dict[str, dict[str, Any]] = {  # of best-effort tenants in d3, after the paper
    "128KiB": {"bs": 128 * KIB},
    "sequential": {"rw": "read"},
    "mixed": {"rw": "randrw", "mix": 75},
    "writes": {"rw": "randwrite"},  # until the drive collects garbage
}
OTHER_SETTINGS = 3  # with each of them
NESTED = 3  # cgroups above each tenant


@dataclass(frozen=True)
class Scale:
    """How much is run."""

    name: str
    seconds: float  # of a unit's measuring window
    warmup: float
    latency_apps: tuple[int, ...]  # d1: tenants at queue depth 1 on one core
    batch_apps: tuple[int, ...]  # d1: tenants that want all they can get
    cgroups: tuple[int, ...]  # d2
    sizes: tuple[int, ...]  # d2: bytes, against 4 KiB
    settings: int  # d3: how many of a knob's settings
    bursts: tuple[float, ...]  # d4: s
    repeats: int = 1  # of every unit; a figure is their median
    limit_steps: int = 2  # of the limit, from each power of two to the next
    # What only the full size has, after the paper; none of it is judged but for that of d2.
    nested_apps: tuple[int, ...] = ()  # d1: tenants in one cgroup, and in nested ones
    drives: tuple[tuple[int, int], ...] = ()  # d1: so many drives at once, and the cores that each then has
    mixes: tuple[int, ...] = ()  # d2: percent of reads in a mix of them with writes
    unsaturated: tuple[int, ...] = ()  # d2: tenants that leave the drive room
    loads: tuple[str, ...] = ()  # d3: other best-effort loads, of OTHER_LOADS
    ratios: tuple[int, ...] = ()  # d4: weights of the tenant with priority, against 1 each


def scale(quick: bool, backend: Backend) -> Scale:
    cores, pace = backend.cores, backend.pace
    if quick:
        batch = (1, pace.batch_per_core * cores)
        sizes = (64 * KIB, 256 * KIB)
        return Scale("quick", *pace.quick, (1, 16), batch, (2, 16), sizes, pace.settings, pace.bursts, repeats=3)
    powers = tuple(2**n for n in range(9))
    return Scale(
        "full",
        *pace.full,
        powers,
        tuple(n for n in powers if n <= 4 * cores),
        (2, 4, 8, 16, 32, 64),
        (64 * KIB, 256 * KIB),
        ALL_PUBLISHED,
        (0.001, 0.01, 0.1, 1.0, 5.0),
        5,
        limit_steps=4,
        nested_apps=(1, 16, 256),
        drives=tuple((n, cores // n) for n in (1, 2, 4, 8) if n <= cores),
        mixes=(75, 50),
        unsaturated=(2, 4, 8, 16),
        loads=tuple(OTHER_LOADS),
        ratios=(1000, 10000),
    )


@dataclass(frozen=True)
class Unit:
    """One run."""

    part: str
    experiment: str
    x: float | None  # where in the experiment: tenants, bytes or seconds
    knob: str
    setting: str
    scenario: Scenario
    tuning: Tuning = BY_WEIGHT
    baseline: str | None = None  # the unit that says how much this load moves under `none`
    alone: str | None = None  # the unit in which the tenant with priority is alone
    repeat: int = 0  # the two above are those of the same repeat
    limit: str | None = None  # the experiment of the limit's units that this one is judged by

    @property
    def id(self) -> str:
        """Also the name of its file."""
        where = "" if self.x is None else f"-{self.x:g}"
        text = _of_repeat(f"{self.part}-{self.experiment}{where}.{self.knob}.{self.setting}", self.repeat)
        return "".join(c if c.isalnum() or c in ".-" else "_" for c in text)

    @property
    def place(self) -> str:
        """For people: where in the suite, under whichever knob."""
        return f"{self.part} {self.experiment}" + ("" if self.x is None else f" {self.x:g}")

    @property
    def seconds(self) -> float:
        return self.scenario.warmup + self.scenario.seconds


def _of_repeat(unit_id: str, repeat: int) -> str:
    return f"{unit_id}.r{repeat}" if repeat else unit_id


def to_json(unit: Unit) -> dict[str, Any]:
    return {**asdict(unit), "scenario": to_dict(unit.scenario)}


def from_json(data: Mapping[str, Any]) -> Unit:
    tuning = dict(data["tuning"])
    if tuning["classes"]:
        tuning["classes"] = tuple(tuning["classes"])
    return Unit(**{**data, "scenario": from_dict(data["scenario"]), "tuning": Tuning(**tuning)})


def units(parts: Sequence[str], knobs: Sequence[str], how: Scale, drive: tuple[Profile, Profile]) -> list[Unit]:
    """Everything to run, in the order to run it in.

    All of it once, then all again; within an experiment, the knobs take turns.
    """
    names = list(dict.fromkeys((BASELINE, *knobs)))
    makers = {"d1": _overhead, "d2": _fairness, "d3": _tradeoff, "d4": _bursts}
    found: dict[str, Unit] = {}
    for part in PARTS:
        if part in parts:
            fast, slow = drive
            for unit in makers[part](names, how, fast if part == "d1" else slow):
                found.setdefault(unit.id, replace(unit, scenario=_long_enough(unit)))
    once = limit.added(list(found.values()), PRIO, how.seconds, how.limit_steps)
    again = [unit for unit in once if unit.part != limit.NAME]  # it is a curve: its points are repeats of each other
    return once + [_repeated(unit, repeat) for repeat in range(1, how.repeats) for unit in again]


def _long_enough(unit: Unit) -> Scenario:
    """What a knob finds out under load, it has found out when measuring begins; and a drive's buffer is full."""
    knob, slower = TABLE[unit.knob], unit.scenario.profile.params.get("time_scale", 1)
    period_s = max(knob.period_s, knob.drive_period_s * slower)
    warmup = max(unit.scenario.warmup, knob.periods * period_s, FULL_S * slower if unit.scenario.writes else 0.0)
    return replace(unit.scenario, warmup=warmup)


def _repeated(unit: Unit, repeat: int) -> Unit:
    def same(unit_id: str | None) -> str | None:
        return _of_repeat(unit_id, repeat) if unit_id else None

    return replace(unit, repeat=repeat, baseline=same(unit.baseline), alone=same(unit.alone))


def check_parts(parts: Sequence[str]) -> None:
    if not parts:
        raise FairlaneError(f"--suite names no part; valid are {', '.join(PARTS)}")
    for part in parts:
        if part not in PARTS:
            raise FairlaneError(f"--suite: unknown part {part!r}; {offer(part, PARTS)}")


# --- Tenants ---


def _read(name: str, jobs: int = 1, depth: int = 1, **more: Any) -> TenantSpec:
    return TenantSpec(name=name, jobs=jobs, iodepth=depth, **more)


def _greedy(name: str, **more: Any) -> TenantSpec:
    """Wants all that it can get of a drive; by itself it is more than the drive can do."""
    depth = 32 if more.get("bs", 4 * KIB) == 4 * KIB else 16
    return TenantSpec(**{"name": name, "jobs": 4, "iodepth": depth, **more})


def _scenario(part: str, experiment: str, tenants: Sequence[TenantSpec], how: Scale, drive: Profile) -> Scenario:
    return Scenario(
        name=f"isol-bench/{part}/{experiment}",
        profile=drive,
        tenants=tuple(tenants),
        seconds=how.seconds,
        warmup=how.warmup,
        cores=SIM_CORES_FOR_ALL if part in ("d3", "d4") else SIM_CORES,
        prices=price_lists.load(drive.name) if drive.name in price_lists.names() else None,
    )


def _each(
    part: str,
    experiment: str,
    x: float | None,
    scenario: Scenario,
    names: Sequence[str],
) -> Iterator[Unit]:
    """The experiment at one point, under every knob as its weights have it."""
    first = Unit(part, experiment, x, BASELINE, "weights", scenario)
    for name in names:
        yield replace(first, knob=name, baseline=None if name == BASELINE else first.id)


def standard(scenario: Scenario) -> Scenario:
    """Four unequal greedy tenants on that scenario's drive: what a knob that must be set for the drive is set with."""
    tenants = tuple(_greedy(f"t{n}", weight=LIGHT * (1 + n)) for n in range(4))
    return replace(scenario, name="isol-bench/standard", tenants=tenants, groups=(), sweep=())


# --- D1: overhead ---


def _overhead(names: Sequence[str], how: Scale, drive: Profile) -> Iterator[Unit]:
    for count in how.latency_apps:
        apps = [_read(f"lc{n}", cores=(0,)) for n in range(count)]
        yield from _loaded("latency", count, _scenario("d1", "latency", apps, how, drive), names)
    for count in how.batch_apps:
        apps = [_read(f"batch{n}", depth=128) for n in range(count)]
        yield from _loaded("bandwidth", count, _scenario("d1", "bandwidth", apps, how, drive), names)

    yield from _in_cgroups(names, how, drive)
    yield from _on_several(names, how, drive)


def _in_cgroups(names: Sequence[str], how: Scale, drive: Profile) -> Iterator[Unit]:
    """All in one cgroup, and each below others. None is without: what a tenant did is counted by its cgroup."""
    pinned: tuple[int, ...]
    for count in how.nested_apps:
        for kind, depth, pinned in (("latency", 1, (0,)), ("bandwidth", 128, ())):
            one = _scenario("d1", f"{kind}-one", [_read("all", count, depth, cores=pinned)], how, drive)
            yield from _loaded(f"{kind}-one", count, one, names)
            groups = [
                Cgroup(f"g{n}-{level}", parent=f"g{n}-{level - 1}" if level else None)
                for n in range(count)
                for level in range(NESTED)
            ]
            apps = [_read(f"t{n}", depth=depth, parent=f"g{n}-{NESTED - 1}", cores=pinned) for n in range(count)]
            nested = replace(_scenario("d1", f"{kind}-nested", apps, how, drive), groups=tuple(groups))
            yield from _loaded(f"{kind}-nested", count, nested, names)


def _on_several(names: Sequence[str], how: Scale, drive: Profile) -> Iterator[Unit]:
    """What each of several drives does when they divide the cores among them.

    Drives share nothing but the CPU: so many at once on so many cores are as one on its part of the cores.
    """
    for count, cores in how.drives:
        apps = [_read(f"batch{n}", depth=128, cores=tuple(range(cores))) for n in range(4 * cores)]
        yield from _loaded("drives", count, _scenario("d1", "drives", apps, how, drive), names)


def _loaded(experiment: str, count: int, scenario: Scenario, names: Sequence[str]) -> Iterator[Unit]:
    """Every knob with limits that do not bind; and idle, which is told apart from that only with one tenant."""
    for name in names:
        yield Unit("d1", experiment, count, name, "active", scenario, SLACK)
        if count == 1 and name != BASELINE and experiment in ("latency", "bandwidth"):
            yield Unit("d1", experiment, count, name, "idle", scenario, Tuning(idle=True))


# --- D2: fairness ---


def _fairness(names: Sequence[str], how: Scale, drive: Profile) -> Iterator[Unit]:
    pairs: dict[str, tuple[TenantSpec, TenantSpec]] = {
        "threads": (_greedy("two", jobs=2, iodepth=64), _greedy("eight", jobs=8, iodepth=64)),
        **{f"size-{size // KIB}KiB": (_greedy("small", iodepth=16), _greedy("large", bs=size)) for size in how.sizes},
        "sequential": (_greedy("random"), _greedy("sequential", rw="read")),
        "writes": (_greedy("reads"), _greedy("writes", rw="randwrite")),
        **{f"mixed-{mix}": (_greedy("reads"), _greedy("mixed", rw="randrw", mix=mix)) for mix in how.mixes},
    }
    for experiment, pair in pairs.items():
        for tenant in pair:
            yield _alone(tenant, "d2", how, drive)
            yield _alone(saturating(tenant), "d2", how, drive)
        yield from _each("d2", experiment, None, _scenario("d2", experiment, pair, how, drive), names)
    for experiment, spread in (("equal", False), ("weights", True)):
        for count in how.cgroups:
            weights = [LIGHT * (1 + n % 4 if spread else 1) for n in range(count)]
            tenants = [_greedy(f"t{n}", weight=weight) for n, weight in enumerate(weights)]
            yield from _each("d2", experiment, count, _scenario("d2", experiment, tenants, how, drive), names)
    for count in how.unsaturated:
        tenants = [_read(f"t{n}") for n in range(count)]
        yield from _each("d2", "unsaturated", count, _scenario("d2", "unsaturated", tenants, how, drive), names)
    yield _alone(_greedy("t0"), "d2", how, drive)
    yield _alone(saturating(_read("t0")), "d2", how, drive)
    if how.unsaturated:
        yield _alone(_read("t0"), "d2", how, drive)


def saturating(tenant: TenantSpec) -> TenantSpec:
    """A load of the same requests that the drive is fully busy with: it tells what one of them costs."""
    depth = 64 if tenant.bs <= 64 * KIB else 16
    return _greedy(tenant.name, rw=tenant.rw, mix=tenant.mix, bs=tenant.bs, jobs=8, iodepth=depth)


def alone_id(tenant: TenantSpec, part: str) -> str:
    """The unit in which a tenant with that load is alone."""
    rw = f"{tenant.rw}{tenant.mix}" if tenant.rw == "randrw" else tenant.rw
    kind = f"{rw}-{tenant.bs // KIB}KiB-{tenant.jobs}x{tenant.iodepth}"
    return f"{part}-alone.{BASELINE}.{kind}"


def _alone(tenant: TenantSpec, part: str, how: Scale, drive: Profile) -> Unit:
    free = replace(tenant, weight=LIGHT, start=0.0, stop=None)
    scenario = _scenario(part, "alone", [free], how, drive)
    setting = alone_id(tenant, part).removeprefix(f"{part}-alone.{BASELINE}.")
    return Unit(part, "alone", None, BASELINE, setting, scenario)


# --- D3: priority against utilisation ---

CRITICAL = {"latency": _read(PRIO), "bandwidth": _greedy(PRIO)}


def _best_effort(weight: int = LIGHT, **more: Any) -> list[TenantSpec]:
    return [_greedy(f"be{n}", weight=weight, **more) for n in range(BEST_EFFORT)]


def settings(knob: str, count: int) -> list[Priority]:
    """So many of what the knob can be set to, from no priority to the most. If not all, only of those that ask for
    priority: then each knob has as many that count."""
    if count == ALL_PUBLISHED:
        return TABLE[knob].published_priorities(PRIO)
    found = TABLE[knob].priorities(PRIO)
    if len(found) <= count:
        return found
    found = [setting for setting in found if setting.asks(LIGHT)]
    if len(found) <= count:
        return found
    picked = {round(n * (len(found) - 1) / (count - 1)) for n in range(count)}
    return [found[n] for n in sorted(picked)]


def burst_setting(knob: str) -> Priority:
    """What the knob is set to for bursts: weight 1000 against 100, or what comes near to that."""
    return TABLE[knob].burst(PRIO, HEAVY, BEST_EFFORT * LIGHT / (BEST_EFFORT * LIGHT + HEAVY))


def _prioritised(name: str, setting: Priority, first: Unit, tenants: Sequence[TenantSpec]) -> Unit:
    tenants = [replace(t, weight=setting.weight or LIGHT) if t.name == PRIO else t for t in tenants]
    return replace(
        first,
        knob=name,
        setting=setting.name,
        scenario=replace(
            first.scenario, tenants=tuple(tenants), tunables={name: dict(setting.tunables)} if setting.tunables else {}
        ),
        tuning=setting.tuning,
        baseline=None if name == BASELINE else first.id,
    )


def _tradeoff(names: Sequence[str], how: Scale, drive: Profile) -> Iterator[Unit]:
    loads: list[tuple[str, int, dict[str, Any]]] = [("", how.settings, {})]
    loads += [(f"-{name}", OTHER_SETTINGS, OTHER_LOADS[name]) for name in how.loads]
    for kind, critical in CRITICAL.items():
        alone = _alone(critical, "d3", how, drive)
        yield alone
        for suffix, count, more in loads:
            tenants = [replace(critical, weight=LIGHT), *_best_effort(**more)]
            scenario = _scenario("d3", kind + suffix, tenants, how, drive)
            first = Unit("d3", kind + suffix, None, BASELINE, "as it is", scenario, alone=alone.id)
            for name in names:
                for setting in settings(name, count):
                    yield _prioritised(name, setting, first, tenants)


# --- D4: bursts ---


def _bursts(names: Sequence[str], how: Scale, drive: Profile) -> Iterator[Unit]:
    for kind, critical in CRITICAL.items():
        alone = _alone(critical, "d4", how, drive)
        yield alone
        for length in how.bursts:
            before = after = how.seconds / 4
            burst = replace(critical, start=before, stop=before + length)
            tenants = [burst, *_best_effort()]
            scenario = replace(_scenario("d4", kind, tenants, how, drive), seconds=before + length + after)
            first = Unit("d4", kind, length, BASELINE, "as it is", scenario, alone=alone.id)
            for name in names:
                yield _prioritised(name, burst_setting(name), first, tenants)
            for ratio in how.ratios:
                yield from _lopsided(first, ratio, burst, names)


def _lopsided(first: Unit, ratio: int, burst: TenantSpec, names: Sequence[str]) -> Iterator[Unit]:
    """The same burst, with that weight against 1 each, under knobs that know weights; by these alone."""
    tenants = [burst, *_best_effort(weight=1)]
    for name in (name for name in names if burst_setting(name).weight):
        setting = Priority(f"weight {ratio} to 1", ratio)
        unit = _prioritised(name, setting, first, tenants)
        yield replace(unit, experiment=f"{first.experiment}-{ratio}to1")
