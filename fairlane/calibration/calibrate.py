# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane calibrate`: what each kind of request takes from a drive, by the method of mqFlashFQ (section III-B).

A drive cannot be asked what a request takes of it, but it can be seen what others lose by it. All cores but K write one
page at random, again and again (the reference request); K cores send the request in question. As K grows, the writers
get less. What they lose, divided by what the K cores get, is what one such request costs in reference requests:

    cost(K) = (writes(0) - writes(K)) / requests(K)      per second; K = 1 .. cores

It depends on K, since requests of one kind leave parts of the drive idle that another kind would fill. The mix with the
highest cost is the one that leaves the least idle, so that is the price: what the requests then take is there in every
mix. Priced by the average, a request is undervalued where the drive is full, and shares come out wrong.

That it leaves the least idle is what the paper thinks, and does not hold where slow writes keep all of a drive's slots,
so that its flash has nothing to do: then the cost is of idle time. From outside this shows as a mix in which the drive
does far less than it does of one kind alone (Mix.use), and such a mix does not count: below IN_USE, which is low enough
for the paper's own choice (Table 2: 0.79).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from fairlane.backends.job import Backend, Job, Tell
from fairlane.backends.measuring import OVERHEAD_S
from fairlane.backends.scenario_runs import run_scenario
from fairlane.calibration.price_file import DEPTH, DIGITS, IN_USE, Calibration, Kind, Mix
from fairlane.errors import FairlaneError
from fairlane.experiment.model import Profile, Scenario, TenantSpec, Variant
from fairlane.experiment.price_lists import NAMES, OPS, SIZES
from fairlane.experiment.profiles import load_profile
from fairlane.experiment.results import Results, Run
from fairlane.linux import disks, fio, io_cost, sysfs
from fairlane.progress import Progress

STATES = ("fresh", "steady", "as-is")
CORES = 6  # the paper's
PAGE = 16 << 10  # of a drive that does not say: the paper's choice for all of its three
ROUNDS, WINDOW = 25, 5  # steady state: looked for in so many measurements, and found in so many in a row
RANGE, SLOPE = 0.2, 0.1  # how far these may be apart, and their best line rise or fall, of their mean (SNIA PTS)
NULL = Profile("none", "null_blk", "")  # of a scenario on a real drive


@dataclass(frozen=True)
class Plan:
    """What is measured, where, for how long."""

    backend: Backend
    page: int  # bytes
    sizes: tuple[int, ...]
    state: str  # of STATES
    cores: int
    seconds: float
    warmup: float
    profile: Profile = NULL
    io_cost: bool = True  # measure io.cost's coefficients, too

    @property
    def where(self) -> str:
        """The profile's name, or the device's."""
        return self.backend.place or ""

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
        return self.scenario(name, (io_cost.coefficient(name, min(4, self.cores)),))

    def loads(self) -> list[Scenario]:
        """Everything to be measured. What the writers get alone is measured for each kind: drives change with time."""
        mixes = [self.mix(kind, k) for kind in self.kinds for k in range(self.cores + 1)]
        return mixes + [self.coefficient(name) for name in self.coefficients]

    @property
    def coefficients(self) -> list[str]:
        return list(io_cost.COEFFICIENTS) if self.io_cost else []

    @property
    def estimate_s(self) -> float | None:
        """How long it takes, but for preparing the drive; the simulator has its own time."""
        each = self.seconds + self.warmup + OVERHEAD_S
        return None if self.backend.repeatable else len(self.loads()) * each


# --- What to measure ---


def plan(
    backend: Backend,
    *,
    state: str = "fresh",
    page: int | None = None,
    sizes: Sequence[int] = (),
    cores: int | None = None,
    seconds: float | None = None,
    io_cost: bool = True,
) -> Plan:
    """Complete what was asked for, or say what of it cannot be."""
    on, where = backend.name, backend.place
    if not where:
        raise FairlaneError(f"--on {on}: of which drive? give its profile, such as {on}:p3700 (fairlane profiles)")
    profile = backend.calibrated(_in_state(load_profile(where), state)) if backend.modelled else NULL
    page = page or profile.params.get("page", PAGE)
    largest = SIZES[-1] if backend.modelled else _largest(where)
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
    cores = cores or (CORES if backend.modelled else max(2, min(CORES, most)))
    if not backend.modelled and cores > most:
        raise FairlaneError(f"--cores {cores}: this machine has {most}")
    usual_s, warmup = backend.pace.calibration
    return Plan(
        backend=backend,
        page=page,
        sizes=tuple(sorted({page, *sizes})) if sizes else tuple(taken),
        state=state,
        cores=cores,
        seconds=seconds or usual_s,
        warmup=warmup,
        profile=profile,
        io_cost=io_cost,
    )


def _in_state(profile: Profile, state: str) -> Profile:
    """The modelled drive in that state: fresh, it has no map, and so never collects."""
    if profile.kind != "ssd":
        return profile
    changed = {"fresh": {"map": 0}, "steady": {"precondition": 1}, "as-is": {}}[state]
    return replace(profile, params={**profile.params, **changed})


def _largest(device: str) -> int:
    """The largest request that Linux sends to the device; what is larger is sent in parts."""
    disks.check_device(device)
    return int((sysfs.SYS_BLOCK / device / "queue/max_sectors_kb").read_text()) << 10


# --- Measuring ---


def run(what: Plan, folder: Path, tell: Tell) -> Calibration:
    """Calibrate; the folder is for whatever the backends leave, and empty at first."""
    found = Calibration(what.page, what.state, what.cores, what.seconds, what.warmup, what.backend.name)
    loads = what.loads()
    with nullcontext() if what.backend.modelled else disks.claimed(what.where):
        target = None if what.backend.modelled else _to_be_written(what)
        if what.estimate_s:
            tell(Progress(f"{len(loads)} loads, {what.estimate_s / 60:.0f} minutes", 0.0))
        if target:
            found.rounds = _prepare(what, target, folder, tell)
        runs = _measured(what, loads, folder, found, tell)
        # Where something else may have been in the way. What is repeatable would be the same again.
        again = [i for i, run in enumerate(runs) if not what.backend.repeatable and not _is_steady(run)]
        if again:
            named = _named("measuring again what was not steady", tell)
            repeated = _measured(what, [loads[i] for i in again], folder / "again", found, named)
            runs = [repeated[again.index(i)] if i in again else run for i, run in enumerate(runs)]
    conclude(found, what, runs)
    return found


def _measured(what: Plan, loads: Sequence[Scenario], folder: Path, found: Calibration, tell: Tell) -> list[Run]:
    """Run each load; what the backend says of machine and drive goes into `found`."""
    jobs = [
        Job(f"{i}", load, Variant("none", "none"), folder / str(i), about=load.name) for i, load in enumerate(loads)
    ]
    runs: dict[str, Run] = {}
    with closing(what.backend.on_own_drives().run(jobs, tell)) as finished:
        for each in finished:
            runs[each.job.id] = each.results.runs[0]
            _describe(found, what, each.results)
    return [runs[job.id] for job in jobs]


def _named(step: str, tell: Tell) -> Tell:
    return lambda now: tell(Progress(step, now.fraction))


def _describe(found: Calibration, what: Plan, results: Results) -> None:
    found.kernel, found.accel = results.kernel, results.accel
    found.machine = {name: value for name, value in results.machine.items() if name != "cpu_measured_on"}
    profile = what.profile
    modelled = {"profile": profile.name, "description": profile.description, **profile.params}
    found.drive = modelled if what.backend.modelled else results.device


def _reference(what: Plan) -> Scenario:
    return what.mix(Kind("write", what.page), 0)


def _to_be_written(what: Plan) -> disks.Target:
    """A real drive, if its data may be lost."""
    return disks.free_target(what.where, _reference(what), what.backend.asked.destroy_data)


def _prepare(what: Plan, target: disks.Target, folder: Path, tell: Tell) -> list[float]:
    """Bring a real drive into the state that is asked for; bytes/s of the rounds that it took to be steady."""
    if what.state != "as-is":
        fio.fill(target, lambda part: tell(Progress("writing all of the drive", part)))
    if what.state != "steady":
        return []

    def one(name: str, tell: Tell) -> Run:
        return run_scenario(what.backend, _reference(what), ["none"], folder / name, tell).runs[0]

    return _until_steady(what.seconds, one, tell)


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
        costs = [(mix.cost, mix.use) for mix in mixes if mix.cost is not None]
        found.mixes += mixes
        found.price[kind.op][NAMES[kind.size]] = max(cost for cost, use in costs if use >= IN_USE)
        found.average[kind.op][NAMES[kind.size]] = round(sum(cost for cost, _ in costs) / len(costs), DIGITS)
    for name, run in zip(what.coefficients, runs[len(what.kinds) * each :], strict=True):
        found.io_cost[name] = round(run.total_bytes_per_s if name.endswith("bps") else run.total_iops)


def _mixes(kind: Kind, what: Plan, runs: Sequence[Run]) -> list[Mix]:
    """Of one kind of request, from those of K = 0, 1 and so on."""
    mixes = []
    alone, others_alone = runs[0].total_bytes_per_s, runs[-1].total_bytes_per_s
    for k, run in enumerate(runs):
        rates = [tenant.bytes_per_s for tenant in run.tenants]
        writes, requests = sum(rates[: what.cores - k]), sum(rates[what.cores - k :])
        if k and not requests:
            raise FairlaneError(f"{kind} on {k} of {what.cores} cores: none was done in {run.seconds:g} s")
        price = (alone - writes) / what.page / (requests / kind.size) if k else None
        if price is not None:
            price = round(price, DIGITS)
        use = round(writes / max(alone, 1) + requests / max(others_alone, 1), DIGITS)
        mixes.append(Mix(kind.op, NAMES[kind.size], k, [round(rate) for rate in rates], price, use, _is_steady(run)))
    return mixes


def _is_steady(run: Run) -> bool:
    """Judged by fifths of the measurement."""
    bins = [sum(bins) for bins in zip(*(tenant.series.bytes for tenant in run.tenants if tenant.series), strict=True)]
    part = len(bins) // WINDOW
    return steady([sum(bins[i * part : (i + 1) * part]) for i in range(WINDOW)])
