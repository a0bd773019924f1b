# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane calibrate`: what each kind of request takes from a drive, by the method of mqFlashFQ (section III-B).

A drive cannot be asked what a request takes of it, but it can be seen what others lose by it. All cores but K write one
page at random, again and again (the reference request); K cores send the request in question. As K grows, the writers
get less. What they lose, divided by what the K cores get, is what one such request costs in reference requests:

    cost(K) = (writes(0) - writes(K)) / requests(K)      per second; K = 1 .. cores

It depends on K, since requests of one kind leave parts of the drive idle that another kind would fill. The mix with the
highest cost is the one that leaves the least idle, so that is the price: what the requests then take is there in every
mix. Priced by the average, a request is undervalued where the drive is full, and shares come out wrong.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from fairlane import __version__, cost, fio, host, iocost, knobs, measure, sim, vm
from fairlane.cost import NAMES, OPS, SIZES
from fairlane.errors import FairlaneError
from fairlane.host import Progress
from fairlane.results import Results, Run
from fairlane.scenario import Profile, Scenario, TenantSpec, load_profile

STATES = ("fresh", "steady", "as-is")
CORES = 6  # the paper's
DEPTH = 64  # outstanding requests of each core; the paper's
PAGE = 16 << 10  # of a drive that does not say: the paper's choice for all of its three
SIM_S, SIM_WARMUP_S = 2.0, 1.0  # of each mix: virtual time
HOST_S, HOST_WARMUP_S = 10.0, 3.0
# Of the virtual SSD in a VM: so slow that an emulated CPU keeps up with it on a machine that does other things, too;
# and for 80 ms of the drive's own time, in less of which its bursts of programs look like a speed that changes.
VM_TIME_SCALE, VM_S, VM_WARMUP_S = 200, 16.0, 4.0
ROUNDS, WINDOW = 25, 5  # steady state: looked for in so many measurements, and found in so many in a row
DIGITS = 4  # of a price, after the point
RANGE, SLOPE = 0.2, 0.1  # how far these may be apart, and their best line rise or fall, of their mean (SNIA PTS)
NULL = Profile("none", "null_blk", "")  # of a scenario on a real drive


@dataclass(frozen=True)
class Kind:
    """A request type."""

    op: str  # of OPS
    size: int  # bytes

    def __str__(self) -> str:
        return f"{self.op}s of {NAMES[self.size]}"


@dataclass(frozen=True)
class Plan:
    """What is measured, where, for how long."""

    on: str  # sim, vm or host
    where: str  # the profile's name, or the device's
    page: int  # bytes
    sizes: tuple[int, ...]
    state: str = "fresh"  # of STATES
    cores: int = CORES
    seconds: float = SIM_S
    warmup: float = SIM_WARMUP_S
    profile: Profile = NULL
    io_cost: bool = True  # measure io.cost's coefficients, too
    kernel: str = vm.KERNEL
    destroy_data: str | None = None

    @property
    def kinds(self) -> list[Kind]:
        """All but the reference."""
        kinds = [Kind(op, size) for size in self.sizes for op in OPS]
        return [kind for kind in kinds if kind != Kind("write", self.page)]

    def scenario(self, name: str, tenants: tuple[TenantSpec, ...]) -> Scenario:
        return Scenario(
            f"calibrating, {name}",
            self.profile,
            tenants,
            cores=self.cores,
            seconds=self.seconds,
            warmup=self.warmup,
        )

    def mix(self, kind: Kind, k: int) -> Scenario:
        """K cores send that request, the others the reference (the paper's Table 1)."""

        def core(i: int) -> TenantSpec:
            op, size = (kind.op, kind.size) if i >= self.cores - k else ("write", self.page)
            return TenantSpec(f"core{i + 1}", rw=f"rand{op}", bs=size, iodepth=DEPTH, cores=(i,))

        return self.scenario(f"{kind} on {k} of {self.cores} cores", tuple(core(i) for i in range(self.cores)))

    def coefficient(self, name: str) -> Scenario:
        """Of io.cost's linear model."""
        return self.scenario(name, (measure.coefficient(name, min(4, self.cores)),))

    def loads(self) -> list[Scenario]:
        """Everything to be measured. What the writers get alone is measured for each kind: drives change with time."""
        mixes = [self.mix(kind, k) for kind in self.kinds for k in range(self.cores + 1)]
        return mixes + [self.coefficient(name) for name in self.coefficients]

    @property
    def coefficients(self) -> list[str]:
        return list(measure.COEFFICIENTS) if self.io_cost else []

    @property
    def estimate_s(self) -> float | None:
        """How long it takes, but for preparing the drive; the simulator has its own time."""
        each = self.seconds + self.warmup + host.OVERHEAD_S
        return None if self.on == "sim" else len(self.loads()) * each


@dataclass(frozen=True)
class Mix:
    """What K cores with a kind of request, and the others with the reference, got."""

    op: str
    size: str
    k: int
    bytes_per_s: list[int]  # of each core
    cost: float | None  # of one such request, in reference requests; None when there is none (K = 0)
    steady: bool  # the drive was as fast at the end of the measurement as at its beginning


@dataclass
class Calibration:
    """All that was found out about a drive; a cost file (fairlane/cost.py) is made from it."""

    page: int
    state: str
    cores: int
    seconds: float
    warmup: float
    backend: str
    kernel: str | None = None
    accel: str | None = None
    machine: dict[str, Any] = field(default_factory=dict)
    drive: dict[str, Any] = field(default_factory=dict)
    price: dict[str, dict[str, float]] = field(default_factory=dict)  # op -> size -> the maximum over the mixes
    average: dict[str, dict[str, float]] = field(default_factory=dict)  # the same of the average, for comparison
    io_cost: dict[str, int] = field(default_factory=dict)  # io.cost's coefficients
    rounds: list[float] = field(default_factory=list)  # bytes/s of the reference until steady, if it was looked for
    mixes: list[Mix] = field(default_factory=list)

    def of(self, op: str, size: str) -> list[Mix]:
        return [mix for mix in self.mixes if (mix.op, mix.size) == (op, size)]

    @property
    def prices(self) -> str:
        """What queue/iosched/prices takes."""
        tables = [cost.make(self.price[op], self.page, op) for op in OPS]
        return cost.PriceList("", self.page, *tables).text()

    @property
    def io_cost_model(self) -> str | None:
        """What io.cost.model takes after MAJ:MIN; None when that was not measured."""
        return iocost.Model(**self.io_cost).line if self.io_cost else None

    def doubts(self) -> Iterator[str]:
        """What of it should be measured again."""
        unsteady = sum(not mix.steady for mix in self.mixes)
        if unsteady:
            measured = f"{unsteady} of {len(self.mixes)} measurements"
            yield f"the drive's speed changed during {measured}; give it more --seconds"
        for op in OPS:
            for (small, less), (large, more) in pairwise(self.price[op].items()):
                if more < less:
                    yield f"a {op} of {large} costs less than one of {small}"


# --- What to measure ---


def plan(
    on: str,
    where: str | None,
    *,
    state: str = "fresh",
    page: int | None = None,
    sizes: Sequence[int] = (),
    cores: int | None = None,
    seconds: float | None = None,
    io_cost: bool = True,
    kernel: str = vm.KERNEL,
    destroy_data: str | None = None,
) -> Plan:
    """Complete what was asked for, or say what of it cannot be."""
    if not where:
        raise FairlaneError(f"--on {on}: of which drive? give its profile, such as {on}:p3700 (fairlane profiles)")
    profile = NULL if on == "host" else _profile(load_profile(where), on, state)
    page = page or profile.params.get("page", PAGE)
    largest = _largest(where) if on == "host" else SIZES[-1]
    taken = [size for size in SIZES if page <= size <= largest]
    if page not in taken:
        raise FairlaneError(f"a page of {page} bytes: must be a power of two from 512 bytes to {NAMES[max(SIZES)]}")
    for size in sizes:
        if size not in taken:
            valid = ", ".join(NAMES[size] for size in taken)
            raise FairlaneError(
                f"--sizes: {size} bytes; {where} can be calibrated for {valid}, and less than a page is in proportion"
            )
    most = os.cpu_count() or 1
    times = {"sim": (SIM_S, SIM_WARMUP_S), "vm": (VM_S, VM_WARMUP_S), "host": (HOST_S, HOST_WARMUP_S)}[on]
    cores = cores or (max(2, min(CORES, most)) if on == "host" else CORES)
    if on == "host" and cores > most:
        raise FairlaneError(f"--cores {cores}: this machine has {most}")
    return Plan(
        on=on,
        where=where,
        page=page,
        sizes=tuple(sorted({page, *sizes})) if sizes else tuple(taken),
        state=state,
        cores=cores,
        seconds=seconds or times[0],
        warmup=times[1],
        profile=profile,
        io_cost=io_cost,
        kernel=kernel,
        destroy_data=destroy_data,
    )


def _profile(profile: Profile, on: str, state: str) -> Profile:
    """The modelled drive in that state: fresh, it has no map, and so never collects."""
    if profile.kind != "ssd":
        return profile
    changed = {"fresh": {"map": 0}, "steady": {"precondition": 1}, "as-is": {}}[state]
    slower = {"time_scale": VM_TIME_SCALE} if on == "vm" else {}
    return replace(profile, params={**profile.params, **changed, **slower})


def _largest(device: str) -> int:
    """The largest request that Linux sends to the device; what is larger is sent in parts."""
    host.check_device(device)
    return int((knobs.SYS_BLOCK / device / "queue/max_sectors_kb").read_text()) << 10


# --- Measuring ---


def run(what: Plan, folder: Path, progress: Callable[[Progress], None]) -> Calibration:
    """Calibrate; the folder is for whatever the backends leave, and empty at first."""
    found = Calibration(what.page, what.state, what.cores, what.seconds, what.warmup, what.on)
    loads = what.loads()
    with host.claimed(what.where) if what.on == "host" else nullcontext():
        if what.on == "host":
            found.rounds = _prepare(what, folder, progress)
        runs = _measured(what, loads, folder, found, progress)
        # Where something else may have been in the way. The simulator would find the same again.
        again = [i for i, run in enumerate(runs) if what.on != "sim" and not _is_steady(run)]
        if again:
            named = _named("measuring again what was not steady", progress)
            repeated = _measured(what, [loads[i] for i in again], folder / "again", found, named)
            runs = [repeated[again.index(i)] if i in again else run for i, run in enumerate(runs)]
    conclude(found, what, runs)
    return found


def _measured(
    what: Plan, loads: Sequence[Scenario], folder: Path, found: Calibration, progress: Callable[[Progress], None]
) -> list[Run]:
    """Run each load; what the backend says of machine and drive goes into `found`."""
    if what.on == "sim":
        found.machine, found.drive = {"simulated_cores": what.cores}, _drive(what.profile)
        return sim.measure(loads, folder, _named("simulating mixes", progress))
    if what.on == "vm":
        jobs = [vm.Job(load, ["none"], folder / str(i)) for i, load in enumerate(loads)]
        results = vm.run_scenarios(jobs, folder, progress, what.kernel)
        _describe(found, results[-1])
        found.drive = _drive(what.profile)
        return [each.runs[0] for each in results]
    runs = []
    for i, load in enumerate(loads):

        def tell(now: Progress, i: int = i, load: Scenario = load) -> None:
            progress(Progress(load.name, (i + now.fraction) / len(loads)))

        results_of_one = _on_host(what, load, folder / str(i), tell)
        _describe(found, results_of_one)
        runs += results_of_one.runs
    return runs


def _on_host(what: Plan, load: Scenario, folder: Path, progress: Callable[[Progress], None]) -> Results:
    return host.run(load, what.where, ["none"], folder, progress, destroy_data=what.destroy_data)


def _named(step: str, progress: Callable[[Progress], None]) -> Callable[[Progress], None]:
    return lambda now: progress(Progress(step, now.fraction))


def _drive(profile: Profile) -> dict[str, Any]:
    return {"profile": profile.name, "description": profile.description, **profile.params}


def _describe(found: Calibration, results: Results) -> None:
    found.kernel, found.accel = results.kernel, results.accel
    found.machine, found.drive = results.machine, results.device


def _prepare(what: Plan, folder: Path, progress: Callable[[Progress], None]) -> list[float]:
    """Bring a real drive into the state that is asked for; bytes/s of the rounds that it took to be steady."""
    reference = what.mix(Kind("write", what.page), 0)
    target = host.free_target(what.where, reference, what.destroy_data)
    if what.state != "as-is":
        fio.fill(target, lambda part: progress(Progress("writing all of the drive", part)))
    if what.state != "steady":
        return []

    def one(name: str, tell: Callable[[Progress], None]) -> Run:
        return _on_host(what, reference, folder / name, tell).runs[0]

    return _until_steady(what.seconds, one, progress)


def _until_steady(
    seconds: float, one: Callable[[str, Callable[[Progress], None]], Run], progress: Callable[[Progress], None]
) -> list[float]:
    """Write at random, in rounds, until the drive's speed no longer changes; bytes/s of each round."""
    rounds: list[float] = []
    while not steady(rounds):
        if len(rounds) == ROUNDS:
            raise FairlaneError(
                f"the drive is not steady after {ROUNDS} rounds of {seconds:g} s of random writes;"
                " give them more --seconds"
            )

        def tell(now: Progress) -> None:
            progress(Progress("writing at random until steady", (len(rounds) + now.fraction) / ROUNDS))

        rounds.append(one(f"round-{len(rounds)}", tell).total_bytes_per_s)
    return rounds


def steady(rates: Sequence[float]) -> bool:
    """Whether the last of these measurements, in equal times, are those of a drive in its steady state.

    The Storage Networking Industry Association's test (PTS 2.0.1, 2.1.24): five in a row within 20 % of their mean, and
    the line through them within 10 %.
    """
    last = rates[-WINDOW:]
    mean = sum(last) / WINDOW
    if len(last) < WINDOW or not mean:
        return False
    middle = (WINDOW - 1) / 2
    slope = sum((i - middle) * rate for i, rate in enumerate(last)) / sum((i - middle) ** 2 for i in range(WINDOW))
    return max(last) - min(last) <= RANGE * mean and abs(slope) * (WINDOW - 1) <= SLOPE * mean


# --- From what was measured to prices ---


def conclude(found: Calibration, what: Plan, runs: Sequence[Run]) -> None:
    """Fill in what follows from the runs of what.loads()."""
    each = what.cores + 1
    one = {"write": {NAMES[what.page]: 1.0}}
    found.price, found.average = ({op: dict(one.get(op, {})) for op in OPS} for _ in range(2))
    for n, kind in enumerate(what.kinds):
        mixes = _mixes(kind, what, runs[n * each : (n + 1) * each])
        costs = [mix.cost for mix in mixes if mix.cost is not None]
        found.mixes += mixes
        found.price[kind.op][NAMES[kind.size]] = round(max(costs), DIGITS)
        found.average[kind.op][NAMES[kind.size]] = round(sum(costs) / len(costs), DIGITS)
    for name, run in zip(what.coefficients, runs[len(what.kinds) * each :], strict=True):
        found.io_cost[name] = round(run.total_bytes_per_s if name.endswith("bps") else run.total_iops)


def _mixes(kind: Kind, what: Plan, runs: Sequence[Run]) -> list[Mix]:
    """Of one kind of request, from those of K = 0, 1 and so on."""
    mixes = []
    alone = runs[0].total_bytes_per_s
    for k, run in enumerate(runs):
        rates = [tenant.bytes_per_s for tenant in run.tenants]
        writes, requests = sum(rates[: what.cores - k]), sum(rates[what.cores - k :])
        if k and not requests:
            raise FairlaneError(f"{kind} on {k} of {what.cores} cores: none was done in {run.seconds:g} s")
        price = (alone - writes) / what.page / (requests / kind.size) if k else None
        if price is not None:
            price = round(price, DIGITS)
        mixes.append(Mix(kind.op, NAMES[kind.size], k, [round(rate) for rate in rates], price, _is_steady(run)))
    return mixes


def _is_steady(run: Run) -> bool:
    """Judged by fifths of the measurement."""
    bins = [sum(bins) for bins in zip(*(tenant.series.bytes for tenant in run.tenants if tenant.series), strict=True)]
    part = len(bins) // WINDOW
    return steady([sum(bins[i * part : (i + 1) * part]) for i in range(WINDOW)])


# --- The cost file ---


def file_text(found: Calibration, command: str) -> str:
    """The cost file: prices first, then how they were found."""
    page, made = NAMES[found.page], datetime.datetime.now(datetime.UTC).date().isoformat()
    head = {
        "page": page,
        "state": found.state,
        "cores": found.cores,
        "depth": DEPTH,
        "seconds": found.seconds,
        "warmup": found.warmup,
        "backend": found.backend,
        "kernel": found.kernel,
        "accel": found.accel,
        "rounds_bytes_per_s": found.rounds or None,
        "prices": " ".join(found.prices.split()),
        "io_cost_model": found.io_cost_model,
    }
    lines = [
        f"# Made by {command}",
        f"# with fairlane {__version__}, {made}. A write of one page, the reference request, costs 1.",
        "# What Linux takes: prices in queue/iosched/prices of a drive, io_cost_model after MAJ:MIN in io.cost.model.",
        *_keys(head),
    ]
    tables: dict[str, Mapping[str, Any]] = {f"price.{op}": found.price[op] for op in OPS}
    tables |= {f"average.{op}": found.average[op] for op in OPS}
    tables |= {"machine": found.machine, "drive": found.drive}
    for name, table in tables.items():
        lines += ["", f"[{name}]", *_keys(table)]
    lines += [
        "",
        f"# Of {found.cores} cores, the last k send that request and the others write {page}: bytes/s of each core,",
        "# and the cost of one such request in writes that the others lose.",
    ]
    for mix in found.mixes:
        lines += ["", "[[mix]]", *_keys(asdict(mix))]
    return "\n".join(lines) + "\n"


def _keys(table: Mapping[str, Any]) -> list[str]:
    """As lines of TOML, whose texts, numbers and lists are those of JSON; what is None is left out."""
    return [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items() if value is not None]
