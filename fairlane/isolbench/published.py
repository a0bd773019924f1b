# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The published verdict beside ours: Doekemeijer et al., "Does Linux Provide Performance Isolation for NVMe SSDs?"
(IISWC 2025), Table I, of a Samsung 980 PRO and an Intel Optane under Linux 6.9.

The authors judged by eye, and not all that we judge by. So each of our marks has a second one beside it, `asked`: by
the same thresholds, but only of what they asked. It tells whether a difference is in what a knob does, or in the
question:

    d1  as ours
    d2  Jain's index by bandwidth; ours is by the drive's time, looks at the worst experiment, too, and at idle time
    d3  as ours
    d4  how soon a burst has what it is due; ours looks at the total meanwhile, too

It is of the medians alone: a table judged by eye has no repeats that could disagree.

The authors set io.cost in two ways (their scripts, stonet-research/isol-bench). For overhead and fairness its latency
targets are a second, which nothing reaches. That is nearest to our `io.cost`, whose vrate is fixed, though; theirs may
go from 50 to 150 % of an unscaled model. For trade-offs and bursts they are 15 us to 1 ms: our `io.cost-qos`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from fairlane.isolbench.suite_figures import Evidence
from fairlane.isolbench.verdict import BAD, FAIR, GOOD, LIMITS, Judged, Limit, Mark

SOURCE = "Doekemeijer et al., IISWC 2025, Table I"
MARKS = {  # what the paper calls a knob, and its marks for d1 to d4
    "MQ-DL": BAD + BAD + BAD + BAD,
    "BFQ": BAD + BAD + BAD + BAD,
    "io.max": GOOD + FAIR + FAIR + FAIR,
    "io.latency": GOOD + BAD + FAIR + BAD,
    "io.cost": FAIR + GOOD + GOOD + GOOD,
}
PARTS = ("d1", "d2", "d3", "d4")
FAIRNESS = next(limit for limit in LIMITS if limit.figure == "fairness")
BY_BANDWIDTH = Limit("by bandwidth", "d2", "Jain's index by bandwidth, mean of all", FAIRNESS.good, FAIRNESS.fair)
LEFT_OUT = ("fairness", "unfairest", "work", "kept")  # figures that the authors have not


@dataclass(frozen=True)
class Beside:
    """A published mark and ours."""

    row: str  # what the paper calls the knob
    part: str
    published: str
    mark: Mark
    asked: Mark  # the same by what the authors asked

    @property
    def same(self) -> bool:
        return self.mark.symbol == self.published

    @property
    def why(self) -> str:
        """Which figures ours rests on, where it differs."""
        if self.same:
            return ""
        if self.mark.grade is None:
            unknown = [each.limit.figure for each in self.mark.judged if each.grade is None]
            return f"not known: {', '.join(unknown)}"
        deciding = [each for each in self.mark.judged if each.grade == self.mark.grade] or list(self.mark.judged)
        text = "; ".join(map(_said, deciding))
        if self.asked.symbol == self.published:
            return f"{text}. By what the authors asked it is {self.asked.symbol}, too"
        if self.asked.judged != self.mark.judged:
            return f"{text}. By what the authors asked: {'; '.join(map(_said, self.asked.judged))}"
        return text


def _said(judged: Judged) -> str:
    limit = judged.limit
    bound = "at most" if limit.at_most else "from"
    good, fair = limit.form.format(limit.good), limit.form.format(limit.fair)
    return f"{limit.figure} {judged.text} ({GOOD} {bound} {good}, {FAIR} {bound} {fair})"


def beside(evidence: Evidence, marks: Mapping[str, Mapping[str, Mark]]) -> list[Beside]:
    """Every published mark that this run has one of its own for."""
    found = []
    for row, published in MARKS.items():
        for part, symbol in zip(PARTS, published, strict=True):
            knobs = [
                knob for knob in _ours(row, part) if part in marks.get(knob, {}) and knob not in evidence.unavailable
            ]
            if knobs:
                mark = marks[knobs[0]][part]
                found.append(Beside(row, part, symbol, mark, _asked(evidence, mark)))
    return found


def _ours(row: str, part: str) -> tuple[str, ...]:
    """What the paper's knob is among ours; the first that ran counts."""
    if row == "io.cost":
        return ("io.cost-qos", "io.cost") if part in ("d3", "d4") else ("io.cost", "io.cost-qos")
    return {"MQ-DL": ("io.prio.class", "mq-deadline"), "BFQ": ("bfq",)}.get(row, (row,))


def _asked(evidence: Evidence, mark: Mark) -> Mark:
    kept = tuple(each for each in mark.judged if each.limit.figure not in LEFT_OUT)
    return Mark(mark.knob, mark.part, (*kept, *_by_bandwidth(evidence, mark)) if mark.part == "d2" else kept)


def _by_bandwidth(evidence: Evidence, mark: Mark) -> list[Judged]:
    """In the median of the repeats. Not known, where what ours rests on is not."""
    runs = [[run for unit, run in each.of("d2", mark.knob) if unit.experiment != "alone"] for each in evidence.every]
    values = [mean(run.fairness_index or 0.0 for run in repeat) for repeat in runs if repeat]
    whole = len(values) == len(runs) and all(each.grade is not None for each in mark.judged)
    value = median(values) if values else None
    grade = BY_BANDWIDTH.grade(value) if value is not None and whole else None
    return [Judged(BY_BANDWIDTH, value, grade, spread=(min(values), max(values)) if values else None)]


def headline(found: list[Beside]) -> str:
    """How many are the same, as a sentence."""
    same, asked = sum(each.same for each in found), sum(each.asked.symbol == each.published for each in found)
    return (
        f"Beside the published verdict ({SOURCE}): {same} of {len(found)} marks are the same;"
        f" {asked} of {len(found)} by what its authors asked"
    )


def summary(found: list[Beside]) -> dict[str, Any]:
    """As JSON."""
    return {
        "source": SOURCE,
        "marks": [
            {
                "row": each.row,
                "knob": each.mark.knob,
                "part": each.part,
                "published": each.published,
                "ours": each.mark.symbol,
                "by_what_they_asked": each.asked.symbol,
                "why": each.why,
            }
            for each in found
        ],
    }
