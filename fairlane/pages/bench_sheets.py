# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Tables of the suite's report that show figures without judging them: most of them only the full size has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from fairlane.experiment.results import Run
from fairlane.formats import fmt_iops, fmt_rate, fmt_us
from fairlane.isolbench.suite import CRITICAL, Unit
from fairlane.isolbench.suite_figures import NEVER, Burst, Evidence, latency

Pair = tuple[Evidence, Unit, Run]  # a unit of a repeat, and its run


@dataclass(frozen=True)
class Sheet:
    """A table: its title, the headings, and rows of a knob and its cells."""

    title: str
    headings: list[str]
    rows: list[tuple[str, list[str]]]
    note: str = ""


def or_dash(value: float | None, show: Callable[[float], str], never: str) -> str:
    return "–" if value is None else never if value == NEVER else show(value)


def _spread(values: Sequence[float | None], show: Callable[[float], str]) -> str:
    """The median of the repeats, and the least and the most."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    said, low, high = map(show, (median(known), min(known), max(known)))
    return said if low == high else f"{said} ({low} to {high})"


def _at(e: Evidence, part: str, title: str, about: str, cell: Callable[[list[Pair]], str], *names: str) -> Sheet:
    """A row for each knob, a column for each point of these experiments; cell has the repeats of a unit."""
    units = {(u.experiment, u.x): None for u in e.units if u.part == part and u.experiment in names}
    rows = []
    for knob in e.knobs:
        mine: dict[tuple[str, float | None], list[Pair]] = {}
        for each in e.every:
            for unit, run in each.of(part, knob):
                if unit.setting in ("active", "weights") or part == "d4":
                    mine.setdefault((unit.experiment, unit.x), []).append((each, unit, run))
        rows.append((knob, [cell(mine.get(key, [])) for key in units]))
    return Sheet(title, [name if x is None else f"{name}, {x:g}" for name, x in units], rows, about)


def tails(e: Evidence) -> Sheet:
    def cell(pairs: list[Pair]) -> str:
        p99, mean = ([latency(run, which) for _, _, run in pairs] for which in ("p99", "mean"))
        return f"{_spread(p99, fmt_us)}; mean {_spread(mean, fmt_us)}" if pairs else "–"

    about = "Of latency-critical tenants on one core: the median of the repeats, and the least and the most."
    return _at(e, "d1", "P99 in µs, and the mean", about, cell, "latency", "latency-one", "latency-nested")


def cgroups(e: Evidence) -> list[Sheet]:
    """What only the full size has."""

    def rate(pairs: list[Pair]) -> str:
        return _spread([run.total_iops for _, _, run in pairs], fmt_iops)

    def all_drives(pairs: list[Pair]) -> str:
        return _spread([run.total_bytes_per_s * (unit.x or 1) for _, unit, run in pairs], fmt_rate)

    def memory(pairs: list[Pair]) -> str:
        return _spread([each.memory(unit, run) for each, unit, run in pairs], lambda size: f"{size / 1024:.1f} KiB")

    if "drives" not in e.experiments("d1"):
        return []
    grouped = (
        "Tenants in one cgroup, and each below cgroups of its own. A run without any is not made: what a tenant did"
    )
    grouped += " is counted by its cgroup."
    several = "Drives share nothing but the CPU: this is what one does on its part of the cores, times their number."
    kept = "Beyond none’s, for each tenant: slab and per-CPU memory. The simulator has no kernel memory to measure."
    lone = ("bandwidth", "bandwidth-one", "bandwidth-nested")
    return [
        _at(e, "d1", "IOPS of batch tenants, by their cgroups", grouped, rate, *lone),
        _at(e, "d1", "Several drives at once: total", several, all_drives, "drives"),
        _at(e, "d1", "Memory per cgroup", kept, memory, "latency"),
    ]


def other_loads(e: Evidence) -> list[Sheet]:
    """Best-effort load of another size, pattern and direction."""
    names = [name for name in e.experiments("d3") if name not in CRITICAL]
    rows = [(knob, [or_dash(e.volume(knob, name), "{:.2f}".format, "") for name in names]) for knob in e.knobs]
    about = "Three settings of each knob. Not judged."
    return [Sheet("Hypervolume with other best-effort load", names, rows, about)] if names else []


def lopsided(e: Evidence) -> list[Sheet]:
    """Bursts with weights of 1000 and 10000 against 1 each."""
    names = [name for name in e.experiments("d4") if name.endswith("to1")]

    def cell(pairs: list[Pair]) -> str:
        bursts = [(b for b in each.bursts(unit.knob, [unit.experiment])) for each, unit, _ in pairs]
        when = [b.response_s for (_, unit, _), found in zip(pairs, bursts, strict=True) for b in found if _of(b, unit)]
        return _spread(when, lambda s: "never" if s == NEVER else f"{1000 * s:.0f} ms")

    def _of(burst: Burst, unit: Unit) -> bool:
        return round(burst.seconds, 6) == round(unit.x or 0, 6)

    about = "As above, with that weight against 1 each; the paper’s authors have it against 1 of all others together."
    about += " Not judged."
    return [_at(e, "d4", "Until it has its due, with other weights", about, cell, *names)] if names else []
