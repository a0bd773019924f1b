# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Plots: geometry in percent or in SVG units, which the templates draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fairlane import schedulers
from fairlane.experiment.summary import BASELINE, OURS
from fairlane.isolbench import limit
from fairlane.linux import knobs

# More tenants than this are drawn as a strip of points, not as one bar each.
MAX_BARS = 8


@dataclass(frozen=True)
class Tick:
    at: float  # percent of the axis
    label: str


@dataclass(frozen=True)
class Line:
    colour: str  # a class of the style sheet
    path: str
    label: str = ""
    label_at: float = 0.0
    faint: bool = False
    marks: str = ""


@dataclass(frozen=True)
class Plot:
    width: int
    height: int
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    lines: list[Line]
    x_title: str
    y_title: str


def nice(top: float, count: int = 4) -> list[float]:
    """Round tick values from 0 to at least nearly `top`."""
    if top <= 0:
        return [0.0]
    raw = top / count
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= raw)
    return [step * n for n in range(int(top / step + 1e-9) + 1)]


def y_ticks(top: float, values: Iterable[float]) -> list[Tick]:
    return [Tick(100 - 100 * v / top, f"{v:g}") for v in values if v <= top]


def tenant_colour(n: int) -> str:
    return f"t{n % MAX_BARS}"


def knob_colour(knob: str) -> str:
    """Its class in the style sheet, or that of the limit of them all."""
    return f"k-{knob.replace('.', '-')}" if knob in (*knobs.TABLE, limit.NAME) else "k-other"


def knob_styles() -> str:
    """How each knob's curve is drawn: a colour each as far as there are some, and our own broad.

    One that is there to be compared with has the colour of the scheduler before it in the list, and is dotted.
    """
    styles = {"none": "--c: var(--soft); --dash: 5 4", limit.NAME: "--c: var(--mark); --w: 1.5"}
    linux = [name for name in knobs.TABLE if name not in (*schedulers.NAMES, BASELINE)]
    for n, name in enumerate(linux):
        again = "; --dash: 6 2" if n >= MAX_BARS - 1 else ""
        styles[name] = f"--c: var(--c{1 + n % (MAX_BARS - 1)}){again}"
    colour = -1
    for ours in schedulers.SCHEDULERS:
        compared = ours.role == "BASELINE"
        colour += not compared
        width = "--dash: 2 3" if compared else "--w: 3.5" if ours.name == OURS else "--w: 3"
        styles[ours.name] = f"--c: var(--c{2 * colour % MAX_BARS}); {width}"
    rules = [f".{knob_colour(name)} {{ {style} }}" for name, style in styles.items()]
    return "\n".join([*rules, ".k-other { --c: var(--mark) }"])


def folded(values: Sequence[float], by: int) -> list[float]:
    """Means of `by` values each; a last group that is not full is left out unless it is the only one."""
    full = [sum(values[n : n + by]) / by for n in range(0, len(values) - by + 1, by)]
    return full or ([sum(values) / len(values)] if values else [])


def line_path(ys: Sequence[float], top: float, height: int, step: float) -> str:
    """A line with a point in the middle of each step, in whole SVG units and relative moves: the shortest there is."""
    at = [(round((n + 0.5) * step), round(height - height * min(y, 1.5 * top) / top)) for n, y in enumerate(ys)]
    moves = [f"{x1 - x0} {y1 - y0}" for (x0, y0), (x1, y1) in pairwise(at)]
    return f"M{at[0][0]} {at[0][1]}" + (f"l{' '.join(moves)}" if moves else "h1")


def spread(at: Sequence[float], gap: float, limit: float = 100.0) -> list[float]:
    """Move label positions apart to at least `gap`, keeping their order, and within 0..limit while there is room."""
    order = sorted(range(len(at)), key=lambda n: at[n])
    moved = list(at)
    for before, n in pairwise(order):
        moved[n] = max(moved[n], moved[before] + gap)
    for n in reversed(order):
        moved[n] = min(moved[n], limit)
        limit = moved[n] - gap
    return moved


SIZE = 1000  # of a plot, in SVG units


LABEL_GAP = 6.0  # between labels, percent of a plot's height


Curve = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """From low to high, in what is drawn: logarithms, if it is logarithmic."""

    title: str
    low: float
    high: float
    ticks: list[tuple[float, str]]
    log: bool = False

    def at(self, value: float) -> float:
        """0..1"""
        drawn = math.log10(value) if self.log else value
        return (drawn - self.low) / ((self.high - self.low) or 1.0)

    def marks(self, down: bool = False) -> list[Tick]:
        return [Tick(100 * (1 - self.at(v) if down else self.at(v)), text) for v, text in self.ticks]


def linear(title: str, values: Iterable[float], low: float = 0.0, form: str = "{:g}") -> Axis:
    top = max((v for v in values), default=0.0) * 1.05 or 1.0
    return Axis(title, low, top, [(v, form.format(v)) for v in nice(top) if v >= low])


def points_of(title: str, values: Iterable[float]) -> Axis:
    """Logarithmic, with a tick at each value that there is."""
    found = sorted(set(values))
    low, high = (math.log10(found[0]), math.log10(found[-1])) if found else (0.0, 1.0)
    return Axis(title, low, high if high > low else low + 1, [(v, f"{v:g}") for v in found], log=True)


def decades(title: str, values: Iterable[float]) -> Axis:
    """Logarithmic, of microseconds."""
    known = [v for v in values if v > 0]
    low = math.log10(min(known, default=1.0)) - 0.05
    high = math.log10(max(known, default=10.0)) + 0.05
    steps = [m * 10.0**d for d in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5)]
    inside = [v for v in steps if low <= math.log10(v) <= high]
    whole = [v for v in inside if f"{v:.0e}"[0] == "1"]
    return Axis(title, low, high, [(v, fmt_us_tick(v)) for v in (whole if len(whole) > 2 else inside)], log=True)


def fmt_us_tick(us: float) -> str:
    return f"{us:g} µs" if us < 1e3 else f"{us / 1e3:g} ms" if us < 1e6 else f"{us / 1e6:g} s"


def draw(
    curves: Mapping[str, Curve],
    x: Axis,
    y: Axis,
    colour: Callable[[str], str] = knob_colour,
    more: Mapping[str, Curve] | None = None,
) -> Plot | None:
    """A line with marks for each curve, and its name at the right edge, as high as its last point.

    more: points that are marked, but on no line.
    """

    def place(curve: Curve) -> list[tuple[float, float]]:
        return [(SIZE * x.at(a), SIZE * (1 - y.at(b))) for a, b in curve]

    drawn = {name: place(curve) for name, curve in curves.items() if curve}
    if not drawn:
        return None
    labels = spread([line[-1][1] / SIZE * 100 for line in drawn.values()], LABEL_GAP)
    lines = [
        Line(
            colour=colour(name),
            path="M" + "L".join(f"{a:.0f} {b:.0f}" for a, b in (line if len(line) > 1 else line * 2)),
            marks="".join(f"M{a:.0f} {b:.0f}h0" for a, b in [*line, *place((more or {}).get(name, ()))]),
            label=name,
            label_at=at,
        )
        for (name, line), at in zip(drawn.items(), labels, strict=True)
    ]
    return Plot(SIZE, SIZE, x.marks(), y.marks(down=True), lines, x.title, y.title)
