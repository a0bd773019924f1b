# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Could a drive's prices be learned from what it does under load? docs/calibration.md says what this prints.

Of each 100 ms in which a modelled drive is full, it is known what was done of each kind of request. If prices were
constant, what a drive does by cost would be, too. So those prices are fitted that come nearest to that, by least
squares: for each operation one of a request and one of its bytes; with one of each size two of three drives came out
worse. All windows of the last 1 or 10 s are fitted anew each time, which is more than a kernel could afford.
"""

from __future__ import annotations

import random
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from fairlane.backends.scenario_runs import run_scenario
from fairlane.backends.sim import Simulator
from fairlane.calibration.price_file import Kind
from fairlane.experiment import price_lists
from fairlane.experiment.model import Scenario, TenantSpec
from fairlane.experiment.profiles import load_profile

DRIVES = {
    "p3700": {"map": 0},
    "p4500": {"precondition": 1},
    "980pro": {"precondition": 1},
}  # as their lists are measured
PAGE, SECONDS, SEEDS, WINDOW_MS = 16 << 10, 12, range(1, 5), 100
TWO = [Kind(op, PAGE) for op in ("read", "write")]
SIX = [Kind(op, size) for op in ("read", "write") for size in (PAGE, 4 * PAGE, 16 * PAGE)]
OWN = Kind("read", 4 * PAGE)  # that one tenant alone sends
MEMORIES = (1, 10)  # seconds
FULL = 128  # requests wanted at once
RELEVANT, NEAR = 0.05, 0.1  # kinds with less of the cost do not matter; what was asked for
# Kinds, tenants of each, and how long one stays and is away, in seconds; 0: it never leaves.
LOADS = {
    "2 kinds, 6 tenants of each, 0.5 s each time": (TWO, 6, 0.5),
    "6 kinds, 1 tenant of each, 2 s each time": (SIX, 1, 2.0),
    "6 kinds, 1 tenant of each, always": (SIX, 1, 0.0),
}

Row = tuple[float, ...]  # of a window: requests of each kind
Tenant = tuple[Kind, TenantSpec]


def visits(rng: random.Random, stay: float) -> Iterator[tuple[float, float]]:
    """When a tenant is there."""
    at = rng.uniform(-stay, stay)
    while stay and at < SECONDS:
        until = at + rng.expovariate(1 / stay)
        if until > 0 and at < SECONDS:
            yield max(at, 0.0), min(until, SECONDS)
        at = until + rng.expovariate(1 / stay)
    if not stay:
        yield 0.0, SECONDS


def tenants_of(kinds: Sequence[Kind], each: int, stay: float, seed: int) -> list[Tenant]:
    """They come and go."""
    rng = random.Random(seed)
    found: list[Tenant] = []
    for kind in kinds:
        for _ in range(each):
            jobs = rng.choice((1, 2, 4))
            found += [tenant(kind, when, jobs) for when in visits(rng, stay)]
    return found


def timed(seed: int, cunning: bool) -> list[Tenant]:
    """Readers, writers or both, by turns; and one who sends another kind: a third of the time, or beside both alone."""
    rng = random.Random(seed)
    found: list[Tenant] = []
    at = 0.0
    while at < SECONDS:
        when = at, min(at + max(0.1, rng.expovariate(2)), SECONDS)
        there = rng.choice((TWO[:1], TWO[1:], TWO))
        found += [tenant(kind, when, 4) for kind in there]
        if not cunning:
            found.append(tenant(OWN, (at, at + (when[1] - at) / 3), 1, 16))
        elif there == TWO:
            found.append(tenant(OWN, when, 1, 16))
        at = when[1]
    return found


def tenant(kind: Kind, when: tuple[float, float], jobs: int, depth: int = 64) -> Tenant:
    """One visit."""
    spec = TenantSpec("", rw=f"rand{kind.op}", bs=kind.size, jobs=jobs, iodepth=depth, start=when[0], stop=when[1])
    return kind, spec


def windows(drive: str, kinds: Sequence[Kind], load: Sequence[Tenant], seed: int) -> list[Row | None]:
    """Of each window: what was done; None if the drive may not have been full."""
    tenants = [replace(spec, name=f"t{i}") for i, (_, spec) in enumerate(load)]
    profile = load_profile(drive)
    profile = replace(profile, params=profile.params | DRIVES[drive])
    scenario = Scenario("learned", profile, tuple(tenants), seconds=SECONDS, warmup=0.5, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        [run] = run_scenario(Simulator(), scenario, ["none"], Path(folder)).runs
    found: list[Row | None] = []
    for at in range(0, SECONDS * 1000, WINDOW_MS):
        done, wanted = [0.0] * len(kinds), 0
        for (kind, spec), got in zip(load, run.tenants, strict=True):
            assert got.series
            bins = got.series.bytes[at // got.series.bin_ms : (at + WINDOW_MS) // got.series.bin_ms]
            done[kinds.index(kind)] += sum(bins) / kind.size
            there = spec.start * 1000 <= at and (spec.stop or 0) * 1000 >= at + WINDOW_MS
            wanted += spec.jobs * spec.iodepth if there else 0
        found.append(tuple(done) if wanted >= FULL else None)
    return found


def fitted(rows: Sequence[Row], kinds: Sequence[Kind]) -> list[float]:
    """Prices, none below 0, by which each row costs as nearly 1 as can be: least squares, one price after the other."""
    parts = [(op, per) for op in ("read", "write") for per in (0, 1)]

    def share(kind: Kind, part: tuple[str, int]) -> float:
        return (kind.size / PAGE) ** part[1] if kind.op == part[0] else 0.0

    x = [[sum(n * share(k, part) for n, k in zip(row, kinds, strict=True)) for part in parts] for row in rows]
    products = [[sum(a[i] * a[j] for a in x) for j in range(len(parts))] for i in range(len(parts))]
    sums = [sum(a[i] for a in x) for i in range(len(parts))]
    price = [0.0] * len(parts)
    for _ in range(3000):
        for i, row in enumerate(products):
            rest = sums[i] - sum(p * q for p, q in zip(price, row, strict=True))
            price[i] = max(0.0, price[i] + rest / row[i]) if row[i] else 0.0
    return [sum(p * share(kind, part) for p, part in zip(price, parts, strict=True)) for kind in kinds]


def errors(rows: Sequence[Row], kinds: Sequence[Kind], drive: str) -> list[float]:
    """Of the kinds that matter there: the learned price, relative to the calibrated one; 1 for all by cost."""
    known = price_lists.load(drive)
    right = [known.cost(kind.op, kind.size) for kind in kinds]
    costs = [sum(row[i] for row in rows) * price for i, price in enumerate(right)]
    ratios = [mine / price for mine, price in zip(fitted(rows, kinds), right, strict=True)]
    scale = sum(costs) / sum(c * r for c, r in zip(costs, ratios, strict=True))
    return [r * scale for c, r in zip(costs, ratios, strict=True) if c > RELEVANT * sum(costs)]


def own_price(rows: Sequence[Row], kinds: Sequence[Kind], drive: str) -> float:
    """Of the last kind, relative to the calibrated one; 1 for all others by cost."""
    known = price_lists.load(drive)
    right = [known.cost(kind.op, kind.size) for kind in kinds]
    learned = fitted(rows, kinds)
    others = [sum(row[i] for row in rows) for i in range(len(kinds) - 1)]
    due, pays = (sum(n * price for n, price in zip(others, prices, strict=False)) for prices in (right, learned))
    return learned[-1] / right[-1] * due / pays


def main() -> None:
    """Print all figures."""
    for drive in DRIVES:
        mixes = tomllib.loads((price_lists.FOLDER / f"{drive}.toml").read_text())["mix"]
        both = [mix for mix in mixes if (mix["op"], mix["size"]) == ("read", "16KiB")]
        print(drive, "calibrated: a read of 16 KiB by K:", *(mix["cost"] for mix in both[1:]))
        moved = [[sum(mix["bytes_per_s"][: 6 - mix["k"]]), sum(mix["bytes_per_s"][6 - mix["k"] :])] for mix in both]
        steps = (f"{(w - less) / (more - r):.3f}" for (w, r), (less, more) in pairwise(moved))
        print(drive, "what it costs to read more, from K - 1 to K:", *steps)
    for name, (kinds, each, stay) in LOADS.items():
        for drive in DRIVES:
            runs = [windows(drive, kinds, tenants_of(kinds, each, stay, seed), seed) for seed in SEEDS]
            for memory in MEMORIES:
                n = memory * 1000 // WINDOW_MS
                looks = [run[end - n : end] for run in runs for end in range(10_000 // WINDOW_MS, len(run) + 1, 10)]
                full = [[row for row in look if row] for look in looks]
                found = [errors(rows, kinds, drive) for rows in full if 2 * len(rows) >= n]
                near = [abs(ratio - 1) <= NEAR for each in found for ratio in each]
                worst = median(max(max(r, 1 / max(r, 0.01)) for r in each) for each in found)
                part = sum(near) / len(near)
                print(
                    f"{name}; {drive}; {memory} s: {part:.0%} within a tenth; the worst is {worst:.2f} times off",
                    flush=True,
                )
    kinds = [*TWO, OWN]
    for drive in DRIVES:
        for cunning in (False, True):
            rows = [[row for row in windows(drive, kinds, timed(seed, cunning), seed) if row] for seed in SEEDS]
            prices = sorted(own_price(each, kinds, drive) for each in rows)
            when = "only beside both others" if cunning else "at any time"
            print(f"one who sends {when}; {drive}: pays", *(f"{price:.2f}" for price in prices), flush=True)


if __name__ == "__main__":
    main()
