# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The suite's report: one self-contained HTML page with the verdict and everything that it rests on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairlane.experiment.results import Run
from fairlane.formats import flat, fmt_iops, fmt_rate, fmt_us
from fairlane.isolbench import doubts, limit, published
from fairlane.isolbench.bench import Bench, Found
from fairlane.isolbench.published import Beside
from fairlane.isolbench.run_folder import room
from fairlane.isolbench.suite import BASELINE, CRITICAL, PARTS, PRIO, Unit
from fairlane.isolbench.suite_figures import (
    NEVER,
    UNTIL_REQUESTS,
    UNTIL_WINDOW_S,
    Evidence,
    Tradeoff,
    front,
    latency,
    setup,
    where,
)
from fairlane.isolbench.verdict import LIMITS, Mark
from fairlane.pages import bench_sheets
from fairlane.pages.bench_sheets import Sheet, or_dash
from fairlane.pages.plot import Axis, Curve, Plot, decades, draw, knob_colour, linear, nice, points_of
from fairlane.pages.template import template

REPORT = "report.html"
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
TIMELINE_BIN_S = 0.02


# --- Plots ---


@dataclass(frozen=True)
class Figure:
    title: str
    plot: Plot
    note: str = ""


def _figures(found: Iterable[tuple[str, Plot | None]]) -> list[Figure]:
    return [Figure(title, plot) for title, plot in found if plot is not None]


@dataclass(frozen=True)
class Section:
    """One desideratum."""

    part: str
    title: str
    about: str
    figures: list[Figure]
    small: list[tuple[str, list[Figure]]]
    sheets: list[Sheet]


# --- D1 ---


def _overhead(e: Evidence) -> Section:
    apps = sorted({u.x for u in e.units if u.part == "d1" and u.experiment == "latency" and u.x is not None})
    figures = _figures((f"{n:g} tenant{'s' * (n > 1)} on one core", _quantiles(e, n)) for n in apps)
    figures += _figures(
        (
            ("Total against the number of batch tenants", _scaling(e, "GB/s", lambda r: r.total_bytes_per_s / 1e9)),
            (
                "CPU time per I/O",
                _scaling(e, "µs of CPU per I/O", lambda r: r.cpu_ns_per_io / 1e3 if r.cpu_ns_per_io else None),
            ),
        )
    )
    about = (
        "Tenants with queue depth 1 share one core; batch tenants are added until the CPU or the drive is full. "
        "Active: every tenant has a weight, limit or target that cannot bind."
    )
    sheets = [
        bench_sheets.tails(e),
        *bench_sheets.cgroups(e),
        *([_idle(e)] if any(u.tuning.idle for u in e.units) else []),
    ]
    return Section("d1", "Overhead", about, figures, [], sheets)


def _quantile_at(p: float) -> float:
    return -math.log10(1 - p)


def _quantiles(e: Evidence, apps: float) -> Plot | None:
    """How long so many percent of the I/Os took at most; means over the tenants."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for knob in e.knobs:
        for unit, run in e.of("d1", knob, "latency"):
            if unit.x == apps and unit.setting == "active":
                curves[knob] = [
                    (_quantile_at(p), value) for key, p in QUANTILES.items() if (value := latency(run, key))
                ]
    values = [value for curve in curves.values() for _, value in curve]
    x = Axis("of I/Os", 0.2, 3.05, [(_quantile_at(p), f"{100 * p:g} %") for p in QUANTILES.values()])
    return draw(curves, x, decades("took at most", values)) if values else None


def _scaling(e: Evidence, title: str, value: Callable[[Run], float | None]) -> Plot | None:
    curves = {
        knob: [
            (unit.x, found)
            for unit, run in sorted(e.of("d1", knob, "bandwidth"), key=lambda pair: pair[0].x or 0)
            if unit.setting == "active" and unit.x and (found := value(run)) is not None
        ]
        for knob in e.knobs
    }
    xs, ys = ([pair[n] for curve in curves.values() for pair in curve] for n in (0, 1))
    return draw(curves, points_of("batch tenants", xs), linear(title, ys))


def _idle(e: Evidence) -> Sheet:
    def cell(knob: str, experiment: str, setting: str, form: Callable[[Run], str]) -> str:
        found = [r for u, r in e.of("d1", knob, experiment) if u.setting == setting and u.x == 1]
        return form(found[0]) if found else "–"

    rows = [
        (
            knob,
            [
                cell(knob, "latency", setting, lambda r: fmt_us(latency(r, "p99")))
                for setting in (("active",) if knob == BASELINE else ("idle", "active"))
            ],
        )
        for knob in e.knobs
    ]
    rows = [(knob, cells if len(cells) == 2 else ["–", *cells]) for knob, cells in rows]
    for knob, cells in rows:
        cells += [cell(knob, "bandwidth", setting, lambda r: fmt_iops(r.total_iops)) for setting in ("idle", "active")]
    headings = ["P99 µs, idle", "P99 µs, active", "one batch tenant, idle", "one batch tenant, active"]
    return Sheet("Loaded but idle, and active: one tenant", headings, rows)


# --- D2 ---


def _fairness(e: Evidence) -> Section:
    figures = []
    for experiment, title in (("equal", "Equal weights"), ("weights", "Weights 100 to 400")):
        curves = {
            knob: [
                (unit.x, index)
                for unit, run in sorted(e.of("d2", knob, experiment), key=lambda pair: pair[0].x or 0)
                if unit.x and (index := run.fairness_index) is not None
            ]
            for knob in e.knobs
        }
        xs = [a for curve in curves.values() for a, _ in curve]
        y = Axis("Jain’s index", 0.0, 1.02, [(v / 4, f"{v / 4:g}") for v in range(5)])
        figures += _figures([(title, draw(curves, points_of("cgroups", xs), y))])
    about = (
        "Tenants that each want the whole drive. By bytes: Jain’s index over bytes divided by weight. By cost: the "
        "same over the drive’s time, where a request costs what it does when the drive does nothing else. Slowdown: "
        "how many times less than its share of what it gets alone the unluckiest tenant got; below 1 it got more."
    )
    sheets = [
        _experiments(e, "Jain’s index by cost", e.by_cost, "{:.3f}"),
        _experiments(e, "Jain’s index by bytes", lambda _u, r: r.fairness_index, "{:.3f}"),
        _experiments(e, "Slowdown of the unluckiest tenant", e.slowdown, "{:.2f}"),
        _experiments(e, "Use of the drive by cost, of none’s", e.work, "{:.2f}"),
    ]
    return Section("d2", "Proportional fairness", about, figures, [], sheets)


def _experiments(e: Evidence, title: str, value: Callable[[Unit, Run], float | None], form: str) -> Sheet:
    units = {(u.experiment, u.x): u for u in e.units if u.part == "d2" and u.experiment != "alone"}
    headings = [name if x is None else f"{name}, {x:g}" for name, x in units]
    rows = []
    for knob in e.knobs:
        runs = {(u.experiment, u.x): value(u, r) for u, r in e.of("d2", knob) if u.experiment != "alone"}
        found = [runs.get(key) for key in units]
        rows.append((knob, [or_dash(v, form.format, "∞") for v in found]))
    return Sheet(title, headings, rows)


# --- D3 ---

LIMIT = (
    "The limit is the best that one queue can do: the tenant with priority goes straight to the drive, and the others "
    "have so many requests in it and no more. The fewer there are, the less that tenant waits, and the more of the "
    "drive is idle."
)
PRIORITY = {"latency": "P99 of the tenant with priority", "bandwidth": "its bandwidth, MB/s"}


def tradeoffs(e: Evidence, kind: str) -> dict[str, list[Tradeoff]]:
    """The limit's points, and those of every setting of each knob; kind: "latency" or "bandwidth"."""
    points = {knob: sorted(e.points(knob, kind), key=lambda p: p.total) for knob in e.knobs}
    return {limit.NAME: e.limit_points(kind), **points}


def tradeoff_plot(points: Mapping[str, Sequence[Tradeoff]], kind: str) -> Plot | None:
    """What the tenant with priority had, over the total, by knob; None: nothing was run."""
    values = [abs(p.value) for found in points.values() for p in found if p.value is not None]
    scale = 1.0 if kind == "latency" else 1e-6

    def curve(found: Iterable[Tradeoff]) -> Curve:
        return [(p.total, abs(p.value) * scale) for p in found if p.value is not None]

    fronts = {knob: curve(found if knob == limit.NAME else front(found)) for knob, found in points.items()}
    others = {knob: curve(found) for knob, found in points.items()}
    xs = [p.total for found in points.values() for p in found]
    y = decades(PRIORITY[kind], values) if kind == "latency" else linear(PRIORITY[kind], [v * scale for v in values])
    return draw(fronts, linear("of none’s total", xs), y, more=others)


def _tradeoff(e: Evidence) -> Section:
    figures, sheets = [], []
    for kind, what in PRIORITY.items():
        points = tradeoffs(e, kind)
        better = "lower and further right is better" if kind == "latency" else "higher and further right is better"
        figures += _figures([(f"A {kind}-critical tenant; {better}", tradeoff_plot(points, kind))])
        rows = []
        for knob, found in points.items():
            most = e.limit_volume(kind)
            volume = most if knob == limit.NAME else e.volume(knob, kind)
            settings = "; ".join(f"{p.setting}: {_of_priority(p, kind)} at {p.total:.2f}" for p in found)
            part = volume / most if volume is not None and most else None
            rows.append((knob, [*("–" if v is None else f"{v:.2f}" for v in (part, volume)), settings or "–"]))
        headings = ["of the limit’s", "hypervolume", f"settings: {what.removesuffix(', MB/s')} at total of none’s"]
        sheets.append(Sheet(f"{kind.capitalize()}-critical", headings, rows))
    sheets += bench_sheets.other_loads(e)
    about = (
        "One tenant with priority against four that want everything, over what each knob can be set to. The "
        "hypervolume is the area under a knob’s front: none has 0, the figure of being alone at none’s total is 1. "
        f"{LIMIT} Its hypervolume is what a knob’s is judged by."
    )
    return Section("d3", "Priority against utilisation", about, figures, [], sheets)


def _of_priority(point: Tradeoff, kind: str) -> str:
    if point.value is None:
        return "nothing completed"
    return fmt_rate(point.value) if kind == "bandwidth" else fmt_us(-point.value) + " µs"


# --- D4 ---


def _bursts(e: Evidence) -> Section:
    bursts = [u for u in e.units if u.part == "d4" and u.knob == BASELINE and u.experiment in CRITICAL]
    small = []
    for unit in bursts:
        runs = {k: r for k in e.knobs for u, r in e.of("d4", k, unit.experiment) if u.x == unit.x}
        title = f"A burst of {unit.x:g} s of a {unit.experiment}-critical tenant"
        small.append((title, _timelines(runs, unit.scenario.seconds)))
    due = [e.due_of_alone(unit) for unit in bursts]
    rows = [(limit.NAME, ["–" if part is None else f"due: {part:.2f} of its rate alone" for part in due])]
    for knob in e.knobs:
        answers = {(b.experiment, round(b.seconds, 6)): b for b in e.bursts(knob)}
        cells = []
        for unit in bursts:
            burst = answers.get((unit.experiment, round(unit.x or 0, 6)))
            if burst is None:
                cells.append("–")
                continue
            when = or_dash(burst.response_s, lambda s: f"{1000 * s:.0f} ms", "never")
            rate = "" if burst.rate is None else f"; {burst.rate:.2f} of alone"
            cells.append(when + rate + ("" if burst.kept is None else f"; total {burst.kept:.2f} of none’s"))
        rows.append((knob, cells))
    headings = [f"{u.experiment}, {u.x:g} s" for u in bursts]
    about = (
        "A tenant with priority is idle, wakes for a burst, and is idle again. Time until it has what it is due; and "
        "what all tenants together moved meanwhile. It is due 80 % of the least of three: what the limit gives it at "
        f"{limit.KEPT:g} of the total, its rate when it is alone, and its share by weight (1000 against four of 100) "
        f"of what none moves in all. {LIMIT} A burst of less than {1000 * UNTIL_WINDOW_S:.0f} ms, or in which it is "
        f"due less than {UNTIL_REQUESTS} requests, is too short for rates: 0 if its requests took no longer on average "
        "than they do at that rate, otherwise how long the slowest took."
    )
    kinds = dict.fromkeys(unit.experiment for unit in bursts)
    better = "higher and further right is better"
    figures = _figures((f"Bursts, {kind}-critical; {better}", _burst_rates(e, kind)) for kind in kinds)
    sheets = [Sheet("From its first request until it has its due", headings, rows), *bench_sheets.lopsided(e)]
    return Section("d4", "Bursts", about, figures, small, sheets)


def _burst_rates(e: Evidence, kind: str) -> Plot | None:
    """What the tenant had against what all had, in the bursts that are long enough; and the limit of that."""
    first = next(unit for unit in e.units if unit.part == "d4" and unit.experiment == kind and unit.knob == BASELINE)
    points = e.limit(first)
    curves: dict[str, Curve] = {}
    for knob in e.knobs:
        mine = [b for b in e.bursts(knob) if b.experiment == kind]
        curves[knob] = [(b.kept, b.rate) for b in mine if b.kept is not None and b.rate is not None]
    if points and points[0].rate and points[-1].total:
        curves = {limit.NAME: [(p.total / points[-1].total, p.rate / points[0].rate) for p in points]} | curves
    xs, ys = ([pair[n] for curve in curves.values() for pair in curve] for n in (0, 1))
    plot = draw(curves, linear("of none’s total", xs), linear("of its rate alone", ys))
    if plot is None:
        return None
    return replace(plot, lines=[line if line.label == limit.NAME else replace(line, path="") for line in plot.lines])


Timeline = dict[str, list[tuple[float, float]]]


def _rates(run: Run) -> Timeline | None:
    """MB/s of the tenant with priority, and of all others together, in bins of TIMELINE_BIN_S."""
    mine = {
        "others": [t for t in run.tenants if t.name != PRIO],
        "priority": [t for t in run.tenants if t.name == PRIO],
    }
    found: Timeline = {}
    for name, tenants in mine.items():
        series = [t.series for t in tenants if t.series]
        if not series:
            return None
        bin_s = series[0].bin_ms / 1000
        fold = max(1, round(TIMELINE_BIN_S / bin_s))
        total = [sum(bins) for bins in zip(*(s.bytes for s in series), strict=False)]
        found[name] = [
            ((n + fold / 2) * bin_s, sum(total[n : n + fold]) / fold / bin_s / 1e6)
            for n in range(0, len(total) - fold + 1, fold)
        ]
    return found


def _timelines(runs: Mapping[str, Run], seconds: float) -> list[Figure]:
    """One for each knob, on the same axes."""
    rates = {knob: found for knob, run in runs.items() if (found := _rates(run)) is not None}
    x = Axis("s", 0.0, seconds, [(v, f"{v:g}") for v in nice(seconds)])
    y = linear("MB/s", [b for found in rates.values() for curve in found.values() for _, b in curve])
    colours = {"others": "t6", "priority": "t0"}
    plots = ((knob, draw(found, x, y, lambda name: colours[name])) for knob, found in rates.items())
    return [
        Figure(figure.title, replace(figure.plot, lines=[replace(line, marks="") for line in figure.plot.lines]))
        for figure in _figures(plots)
    ]


# --- The page ---

SECTIONS = {"d1": _overhead, "d2": _fairness, "d3": _tradeoff, "d4": _bursts}


def _config(plan: Mapping[str, Any], e: Evidence) -> list[tuple[str, list[tuple[str, str]]]]:
    found = setup(plan, e)
    for unit in e.units:
        result = e.results[unit.id]
        if unit.knob in result.config and unit.part != "d1":
            found.setdefault(f"{unit.knob}, in {unit.part} {unit.experiment}", result.config[unit.knob])
    first: dict[str, Any] = {}
    seen: set[str] = set()
    for name, values in found.items():  # one of each knob is enough; the unit files have the others
        knob = name.partition(", in ")[0]
        if knob not in seen or knob == name:
            first[name] = values
        seen.add(knob)
    return [(name, flat(values)) for name, values in first.items() if values]


def write(bench: Bench, found: Found) -> Path:
    """Write report.html into the run folder."""
    page = bench.store.folder / REPORT
    with room(bench.store.folder):
        text = render(vars(bench.plan), bench.command, found.evidence, found.marks, found.advice, found.published)
        page.write_text(text, encoding="utf-8")
    return page


def render(
    plan: Mapping[str, Any],
    command: str,
    e: Evidence,
    marks: Mapping[str, Mapping[str, Mark]],
    said: str,
    beside: Sequence[Beside] = (),
) -> str:
    """The page as text."""
    return template("bench.html.j2").render(
        title=said,
        where=where(e),
        marks=marks,
        parts=PARTS,
        asked=e.parts,
        limits=[limit for limit in LIMITS if limit.part in e.parts],
        sections=[SECTIONS[part](e) for part in e.parts],
        unavailable=e.unavailable,
        warnings=doubts.warnings(e),
        notes=doubts.notes(e),
        config=_config(plan, e),
        command=command,
        published=beside,
        published_headline=published.headline(list(beside)),
        never=NEVER,
        knob_colour=knob_colour,
        bad_dmesg=doubts.complaints(e),
        raw=[(unit.id, unit) for unit in e.units],
    )
