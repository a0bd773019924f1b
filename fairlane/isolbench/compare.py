# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Two runs of the suite side by side, A and B: how they were run, their verdicts, and every unit that both have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlane.formats import Pair, flat, fmt_rate, fmt_us, pair
from fairlane.isolbench import bench, doubts, verdict
from fairlane.isolbench.bench import Bench
from fairlane.isolbench.suite import PARTS
from fairlane.isolbench.suite_figures import Evidence, setup, where
from fairlane.isolbench.verdict import Judged, Mark

NAMES = ("A", "B")
BETTER, WORSE, CHANGED = "better", "worse", "changed"
NOT_RUN = "not run"
FIGURES: tuple[tuple[str, str, Callable[[float], str]], ...] = (  # of a unit: in verdict.rows(), and on the page
    ("total_bytes_per_s", "total", fmt_rate),
    ("fairness_by_cost", "Jain’s index by cost", "{:.3f}".format),
    ("prio_p99_us", "P99 of priority, µs", fmt_us),
)


@dataclass(frozen=True)
class Side:
    """One of the two."""

    name: str
    bench: Bench
    evidence: Evidence
    marks: dict[str, dict[str, Mark]]

    @property
    def where(self) -> str:
        return where(self.evidence)

    def notes(self) -> list[str]:
        """What whoever compares must know of it, in sentences."""
        left, every = len(self.evidence.missing), len(self.bench.units)
        found = [f"{self.name} is not finished: {left} of its {every} units are missing."] if left else []
        found += [f"{knob} has no figures in {self.name}: {why}" for knob, why in self.evidence.unavailable.items()]
        found += [f"Of {self.name}: {said}" for said in [*doubts.notes(self.evidence), *doubts.warnings(self.evidence)]]
        if doubts.complaints(self.evidence):
            found.append(f"The kernel complained during {self.name}; its own report has what it said.")
        return found


@dataclass(frozen=True)
class Change:
    """The marks of a knob for one of the desiderata; None where it was not run."""

    first: Mark | None
    second: Mark | None

    @property
    def word(self) -> str:
        """Nothing when the mark is the same, or one of them has none."""
        if self.first is None or self.second is None:
            return ""
        if (self.first.symbol, self.first.grade) == (self.second.symbol, self.second.grade):
            return ""
        if self.first.grade is None or self.second.grade is None or self.first.grade == self.second.grade:
            return CHANGED
        return BETTER if self.second.grade > self.first.grade else WORSE

    @property
    def text(self) -> str:
        """From which mark to which."""
        if self.first is None and self.second is None:
            return NOT_RUN
        return " → ".join(mark.symbol if mark else NOT_RUN for mark in (self.first, self.second))

    @property
    def judged(self) -> list[tuple[str, list[Judged | None]]]:
        """Each figure, as both have it."""
        sides = [{j.limit.figure: j for j in mark.judged} if mark else {} for mark in (self.first, self.second)]
        return [(figure, [side.get(figure) for side in sides]) for figure in sides[0] | sides[1]]


@dataclass(frozen=True)
class Rows:
    """The units of a part that both have: the figures that any of them has, and a row for each."""

    part: str
    figures: list[str]
    rows: list[tuple[str, bool, list[Pair]]]  # id, whether its tenants are others, and a pair for each figure


@dataclass(frozen=True)
class Comparison:
    sides: tuple[Side, Side]

    @property
    def marks(self) -> dict[str, dict[str, Change]]:
        """By knob and part, of all that either has."""
        first, second = (side.marks for side in self.sides)
        return {
            knob: {part: Change(first.get(knob, {}).get(part), second.get(knob, {}).get(part)) for part in self.parts}
            for knob in first | second
        }

    @property
    def parts(self) -> list[str]:
        return [part for part in PARTS if any(part in side.evidence.parts for side in self.sides)]

    @property
    def headline(self) -> str:
        both = [change for row in self.marks.values() for change in row.values() if change.first and change.second]
        words = [change.word for change in both]
        counts = [f"{words.count(word)} {word}" for word in (BETTER, WORSE, CHANGED) if word in words]
        if not both:
            return "B against A: no mark is in both"
        return f"B against A: of {len(both)} marks in both, {', '.join(counts) or 'all are the same'}"

    @property
    def notes(self) -> list[str]:
        return [note for side in self.sides for note in side.notes()]

    @property
    def differences(self) -> list[tuple[str, list[tuple[str, str, str]]]]:
        """Of how they were run: what differs, under what it is of."""
        first, second = (_setup(side) for side in self.sides)
        found = []
        for name in (name for name in first if name in second):
            a, b = dict(flat(first[name])), dict(flat(second[name]))
            lines = [(key, a.get(key, "–"), b.get(key, "–")) for key in a | b if a.get(key) != b.get(key)]
            if lines:
                found.append((name, lines))
        return found

    @property
    def lone(self) -> str:
        """How many units only one of them has, as a sentence."""
        first, second = ({unit.id for unit in side.evidence.ran} for side in self.sides)
        return (
            f"{len(first & second)} units are in both; {len(first - second)} are only in A, {len(second - first)} only"
            " in B."
        )

    @property
    def units(self) -> list[Rows]:
        first, second = ({row["id"]: row for row in verdict.rows(side.evidence)} for side in self.sides)
        loads = [{unit.id: unit.scenario.tenants for unit in side.evidence.ran} for side in self.sides]
        found = []
        for part in self.parts:
            both = [(row, second[id]) for id, row in first.items() if row["part"] == part and id in second]
            shown = [f for f in FIGURES if any(row.get(f[0]) is not None for rows in both for row in rows)]
            rows = [
                (
                    a["id"],
                    loads[0][a["id"]] != loads[1][a["id"]],
                    [pair(title, show, a.get(key), b.get(key)) for key, title, show in shown],
                )
                for a, b in both
            ]
            if rows:
                found.append(Rows(part, [title for _, title, _ in shown], rows))
        return found


def _setup(side: Side) -> dict[str, Any]:
    prices = {unit.scenario.prices.name for unit in side.bench.units if unit.scenario.prices}
    asked = {key: value for key, value in vars(side.bench.plan).items() if value is not None}
    asked |= {"price list": ", ".join(sorted(prices)) or "none: by bytes"}
    return setup(asked, side.evidence)


def compare(folders: Sequence[Path]) -> Comparison:
    """The first folder is A, the second B."""
    first, second = (_side(name, bench.load(folder)) for name, folder in zip(NAMES, folders, strict=True))
    return Comparison((first, second))


def _side(name: str, what: Bench) -> Side:
    evidence = Evidence(what.units, bench.results(what))
    return Side(name, what, evidence, verdict.marks(evidence))
