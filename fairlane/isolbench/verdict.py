# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The suite's verdict: figures from the units, marks from the figures by thresholds that are all in LIMITS.

Everything is relative to `none`, or to a tenant alone, in the same boot; a figure that is not known is None, and so is
a mark that rests on nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import mean, median
from typing import Any

from fairlane.experiment.results import Run
from fairlane.isolbench import doubts
from fairlane.isolbench import limit as the_limit
from fairlane.isolbench.suite import BASELINE, CRITICAL, PARTS, PRIO, Unit
from fairlane.isolbench.suite_figures import NEVER, TAIL_NOISE, Evidence, latency

GOOD, FAIR, BAD = "✓", "–", "✗"
MIXED = "~"  # its repeats disagree


@dataclass(frozen=True)
class Limit:
    """What a figure must be for a mark."""

    figure: str
    part: str
    about: str
    good: float
    fair: float
    at_most: bool = False  # else at least
    form: str = "{:.2f}"
    absolute: str = ""  # what stands beside it: the same figure, relative to nothing
    lacking: tuple[int, ...] = (0,)  # grades that stay as they are whatever a run that is missing would have been

    def grade(self, value: float) -> int:
        """2, 1 or 0: good, fair, bad."""
        sign = -1 if self.at_most else 1
        return sum(sign * value >= sign * limit for limit in (self.good, self.fair))


LIMITS = (
    Limit("bandwidth", "d1", "bandwidth of the most batch tenants, of none's", 0.90, 0.75, lacking=()),
    Limit(
        "latency",
        "d1",
        "mean latency of latency-critical tenants on one core, of none's; the worst point",
        1.15,
        1.5,
        True,
    ),
    Limit("tail", "d1", "P99 of the same, of none's; the worst point", 1.15, 1.5, True),
    Limit("cpu", "d1", "CPU time per I/O with the most batch tenants, of none's", 1.15, 1.5, True, lacking=()),
    Limit("fairness", "d2", "Jain's index by cost, mean over all experiments", 0.95, 0.85, lacking=()),
    Limit("unfairest", "d2", "Jain's index by cost, worst experiment", 0.85, 0.7),
    Limit("work", "d2", "use of the drive by cost, of none's, mean over all experiments", 0.85, 0.6, lacking=()),
    Limit(
        "latency front",
        "d3",
        "hypervolume of the front of P99 against total bandwidth, of the limit's",
        0.6,
        0.25,
        absolute="latency hypervolume",
        lacking=(2,),  # one more point only adds to a front
    ),
    Limit(
        "bandwidth front",
        "d3",
        "hypervolume of the front of bandwidth against total bandwidth, of the limit's",
        0.6,
        0.25,
        absolute="bandwidth hypervolume",
        lacking=(2,),
    ),
    Limit(
        "response", "d4", "time until a burst has what it is due, the slowest of bursts, ms", 100, 500, True, "{:.0f}"
    ),
    Limit("kept", "d4", "total bandwidth during a burst, of none's", the_limit.KEPT, 0.6),
)


@dataclass(frozen=True)
class Judged:
    """A limit, and what a knob has of that figure."""

    limit: Limit
    value: float | None  # the median of the repeats'
    grade: int | None
    note: str = ""
    spread: tuple[float, float] | None = None  # the least and the most of the repeats'
    absolute: float | None = None  # the median of the repeats', too

    @property
    def text(self) -> str:
        if self.value is None:
            return self.note or "unknown"
        said = self._shown(self.value)
        low, high = map(self._shown, self.spread or (self.value, self.value))
        said = said if low == high else f"{said} ({low} to {high})"
        return said if self.absolute is None else f"{said}, absolute {self._shown(self.absolute)}"

    def _shown(self, value: float) -> str:
        return "never" if value == NEVER else self.limit.form.format(value)


@dataclass(frozen=True)
class Mark:
    """Of a knob for one of the desiderata: the worst of what it is judged by."""

    knob: str
    part: str
    judged: tuple[Judged, ...]
    repeats: tuple[int | None, ...] = ()  # the grades by each of them; empty: not repeated

    @property
    def grade(self) -> int | None:
        """By the medians, and no better than the worst of the repeats."""
        return _grade_of([*(judged.grade for judged in self.judged), *self.repeats])

    @property
    def mixed(self) -> bool:
        return len({grade for grade in self.repeats if grade is not None}) > 1

    @property
    def symbol(self) -> str:
        if self.grade is None:
            return "?"
        return MIXED if self.mixed else (BAD, FAIR, GOOD)[self.grade]

    @property
    def anchor(self) -> str:
        return f"{self.part}-{self.knob}".replace(".", "-")


def _grade_of(grades: Sequence[int | None]) -> int | None:
    """The worst. What is not known may be bad, and cannot make up for what is."""
    known = [grade for grade in grades if grade is not None]
    return min(known) if known and (len(known) == len(grades) or not min(known)) else None


# --- Marks ---


def _worst(values: Sequence[float | None], pick: Callable[[Sequence[float]], float]) -> float | None:
    """None, too, when one of them is not known."""
    known = [value for value in values if value is not None]
    return pick(known) if known and len(known) == len(values) else None


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def figures(evidence: Evidence, knob: str, noisy: Collection[float] = ()) -> dict[str, float | None]:
    """Every figure in LIMITS of one knob, and what stands beside it.

    noisy: numbers of tenants whose P99 says nothing.
    """
    active = [(u, r) for u, r in evidence.of("d1", knob) if u.setting == "active"]
    loaded = sorted(((u, r) for u, r in active if u.experiment == "bandwidth"), key=lambda pair: pair[0].x or 0)
    lone = [(u, r) for u, r in active if u.experiment == "latency"]
    most = loaded[-1:] or []
    fair = [(u, r) for u, r in evidence.of("d2", knob) if u.experiment != "alone"]
    indexes = [evidence.by_cost(u, r) for u, r in fair]
    bursts = evidence.bursts(knob)
    volumes = {kind: evidence.volume(knob, kind) for kind in CRITICAL}
    slow = [1000 * burst.response_s for burst in bursts if burst.response_s is not None]

    def of_none(pairs: Sequence[tuple[Unit, Run]], value: Callable[[Run], float | None]) -> list[float | None]:
        bases = [evidence.base(u) for u, _ in pairs]
        return [_ratio(value(r), value(b) if b else None) for (_, r), b in zip(pairs, bases, strict=True)]

    return {
        "bandwidth": _worst(of_none(most, lambda run: run.total_bytes_per_s), min),
        "latency": _worst(of_none(lone, lambda run: latency(run, "mean")), max),
        "tail": _worst(of_none([(u, r) for u, r in lone if u.x not in noisy], lambda run: latency(run, "p99")), max),
        "cpu": _worst(of_none(most, lambda run: run.cpu_ns_per_io), max),
        "fairness": _worst(indexes, mean),
        "unfairest": _worst(indexes, min),
        "work": _worst([evidence.work(u, r) for u, r in fair], mean),
        **{f"{kind} front": _ratio(volumes[kind], evidence.limit_volume(kind)) for kind in CRITICAL},
        **{f"{kind} hypervolume": volumes[kind] for kind in CRITICAL},
        "response": max(slow, default=None),
        "kept": _worst([burst.kept for burst in bursts if burst.rated], min),
    }


def marks(evidence: Evidence) -> dict[str, dict[str, Mark]]:
    """By knob and part."""
    found: dict[str, dict[str, Mark]] = {}
    noise = evidence.tail_noise()
    noisy = [x for x, times in noise.items() if times > TAIL_NOISE]  # by the machine
    unknown = ("tail",) if noise and len(noisy) == len(noise) else ()
    for knob in evidence.knobs:
        values = [figures(each, knob, noisy) for each in evidence.every]
        missing = evidence.unavailable.get(knob, "")
        found[knob] = {}
        for part in evidence.parts:
            needed = (part, the_limit.NAME) if part in ("d3", "d4") else (part,)
            whole = not any(unit.part in needed and unit.knob in (knob, BASELINE) for unit in evidence.missing)
            limits = [limit for limit in LIMITS if limit.part == part and limit.figure not in unknown]
            note = f"not run: {missing}" if missing else ""
            judged = tuple(_judge(limit, values, whole, note) for limit in limits)
            lack = [any(_counts(unit) for unit, _ in each.left_out(knob, part)) for each in evidence.every]
            if any(lack):
                judged = tuple(replace(each, grade=_for_sure(each.limit, each.grade)) for each in judged)
            repeats = []
            for each, lacks in zip(values, lack, strict=True):
                grades = [_grade(limit, each[limit.figure], whole) for limit in limits]
                grades = [_for_sure(limit, g) for limit, g in zip(limits, grades, strict=True)] if lacks else grades
                repeats.append(_grade_of(grades))
            found[knob][part] = Mark(knob, part, judged, tuple(repeats))
    return found


def _counts(unit: Unit) -> bool:
    """Whether a mark is of it, too."""
    if unit.part == "d1":
        return unit.setting == "active" and unit.experiment in ("latency", "bandwidth")
    return unit.part == "d2" or unit.experiment in CRITICAL


def _for_sure(limit: Limit, grade: int | None) -> int | None:
    """What is known of a grade where a knob could not be set for some of the units."""
    return grade if grade in limit.lacking else None


def _grade(limit: Limit, value: float | None, whole: bool) -> int | None:
    return limit.grade(value) if value is not None and whole else None


def _judge(limit: Limit, figures: Sequence[Mapping[str, float | None]], whole: bool, note: str) -> Judged:
    """By the median of the repeats, all of which are known."""
    values = [each[limit.figure] for each in figures]
    value = _worst(values, median)
    known = [each for each in values if each is not None]
    spread = (min(known), max(known)) if known else None
    absolute = _worst([each[limit.absolute] for each in figures], median) if limit.absolute else None
    return Judged(limit, value, _grade(limit, value, whole), note, spread, absolute)


def advice(found: Mapping[str, Mapping[str, Mark]]) -> str:
    """A sentence: which knob to take, and what it does not do.

    Overhead is what isolation costs, and no part of it: it only decides between knobs that isolate alike.
    """
    rated = {k: [m.grade for m in row.values() if m.grade is not None] for k, row in found.items() if k != BASELINE}
    if not any(rated.values()):
        return "No knob ran, so there is nothing to advise."
    if not any(part != "d1" for row in found.values() for part in row):
        return "Only overhead was judged, so it is not known which knob isolates."
    ranks = {knob: (_isolation(found[knob]), _overhead(found[knob].get("d1"))) for knob in rated if rated[knob]}
    best, _ = most = max(ranks.values())
    nearest = [knob for knob, rank in ranks.items() if rank == most]
    if best <= _isolation(found.get(BASELINE, {})):
        return "No knob isolates tenants on this drive and kernel better than none does."
    alike: dict[str, list[str]] = {}
    for knob in nearest:
        alike.setdefault(_words(found[knob]), []).append(knob)
    every = [f"{_listed(names)} ({words})" for words, names in alike.items()]
    if not best[0]:
        come = "comes" if len(nearest) == 1 else "come"
        return f"No knob isolates tenants on this drive and kernel; {_listed(every)} {come} nearest."
    first, row = nearest[0], found[nearest[0]]
    (_, *same), *others = alike.values()
    text = f"On this drive and kernel take {first} ({_words(row)})"
    text += f"; {_listed(same)} got the same marks" if same else ""
    text += f"; {_listed(every[1:])} got as many" if others else ""
    lacking = [PARTS[part] for part, mark in row.items() if mark.grade == 0]
    return text + (f"; do not rely on {first} for {_listed(lacking)}." if lacking else ".")


def _isolation(row: Mapping[str, Mark]) -> tuple[int, int]:
    """How many of a knob's marks, but for overhead, are good, and how many fair."""
    grades = [mark.grade for part, mark in row.items() if part != "d1"]
    return grades.count(2), grades.count(1)


def _overhead(mark: Mark | None) -> int:
    return -1 if mark is None or mark.grade is None else mark.grade


def _words(row: Mapping[str, Mark]) -> str:
    return ", ".join(f"{PARTS[part]} {mark.symbol}" for part, mark in row.items())


def _listed(words: Sequence[str]) -> str:
    return " and ".join([*([", ".join(words[:-1])] if words[:-1] else []), *words[-1:]])


def rows(evidence: Evidence) -> list[dict[str, Any]]:
    """A flat row for each unit, for whoever wants to go on from here."""
    return [row for repeat, each in enumerate(evidence.every) for row in _rows(each, repeat)]


def _rows(evidence: Evidence, repeat: int) -> list[dict[str, Any]]:
    found = []
    for unit in evidence.units:
        if repeat and unit.part == the_limit.NAME:
            continue  # it has none
        row: dict[str, Any] = {"id": replace(unit, repeat=repeat).id, "repeat": repeat} | {
            key: getattr(unit, key) for key in ("part", "experiment", "x", "knob", "setting")
        }
        run = evidence.run(unit.id)
        if run is None:
            found.append(row | {"unavailable": evidence.results[unit.id].unavailable.get(unit.knob)})
            continue
        prio = next((t for t in run.tenants if t.name == PRIO), None)
        found.append(
            row
            | {key: getattr(run, key) for key in ("total_bytes_per_s", "total_iops", "fairness_index", "cpu_ns_per_io")}
            | {
                "fairness_by_cost": evidence.by_cost(unit, run) if unit.part == "d2" else None,
                "slowdown": _json(evidence.slowdown(unit, run)) if unit.part == "d2" else None,
                "mean_us": latency(run, "mean"),
                "p99_us": latency(run, "p99"),
                "prio_bytes_per_s": prio.bytes_per_s if prio else None,
                "prio_p99_us": prio.lat_us.get("p99") if prio else None,
            }
        )
    return found


def the_limit_of(evidence: Evidence) -> dict[str, dict[str, Any]]:
    """By mix: what a burst is due there, the hypervolume where d3 has that load, and the curve."""
    found: dict[str, dict[str, Any]] = {}
    for unit in evidence.units:
        if unit.limit and unit.knob == BASELINE:
            mine = found.setdefault(unit.limit, {"due_of_alone": None, "hypervolume": None})
            if unit.part == "d4":
                mine["due_of_alone"] = evidence.due_of_alone(unit)
            else:
                mine["hypervolume"] = evidence.limit_volume(unit.experiment)
            mine["points"] = [asdict(point) for point in evidence.limit(unit)]
    return found


def _json(value: float | None) -> float | str | None:
    """JSON has no infinity, and null is what is not known; both Python's float() and pandas read this."""
    return "inf" if value == NEVER else value


def summary(evidence: Evidence) -> dict[str, Any]:
    """The verdict as JSON."""
    found, left = marks(evidence), len(evidence.missing)
    every = left + len(evidence.ran)
    unfinished = f"{left} of {every} units are missing, so there is no advice yet."
    return {
        "advice": unfinished if left else advice(found),
        "missing": left,
        "warnings": doubts.warnings(evidence),
        "notes": doubts.notes(evidence),
        "bad_dmesg": doubts.complaints(evidence),
        "limits": [asdict(limit) for limit in LIMITS],
        the_limit.NAME: the_limit_of(evidence),
        "verdict": [
            {
                "knob": knob,
                "part": part,
                "mark": mark.symbol,
                **{j.limit.figure: _json(j.value) for j in mark.judged},
                **{j.limit.absolute: _json(j.absolute) for j in mark.judged if j.limit.absolute},
                "spread": {j.limit.figure: [_json(each) for each in j.spread] for j in mark.judged if j.spread},
                "unavailable": evidence.unavailable.get(knob),
            }
            for knob, row in found.items()
            for part, mark in row.items()
        ],
        "figures": rows(evidence),
    }
