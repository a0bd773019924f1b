# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A study as one self-contained page: any figure over any parameter.

Each pair of the two is drawn beforehand, and the page shows the one that is chosen; it has no script.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from fairlane.pages.plot import Axis, Plot, draw, linear, points_of
from fairlane.pages.template import save, template
from fairlane.study.study import Run, rows
from fairlane.study.study_file import Value

REPORT = "report.html"
PLACES = ("scenario", "drive")  # a plot for each of these, but for the one that is drawn over
CURVE = "variant"  # a curve for each
UNITS = {"_us": ("µs", 1.0), "bytes_per_s": ("MB/s", 1e6), "iops": ("thousand IOPS", 1e3), "ns_per_io": ("ns", 1.0)}
TICKS_MAX = 8  # of an axis with a tick for each value

Row = Mapping[str, Value | None]


@dataclass(frozen=True)
class Pane:
    title: str
    plot: Plot


@dataclass(frozen=True)
class View:
    """A figure over a parameter."""

    figure: int  # its place in the choice
    parameter: int
    panes: list[Pane]


def write(what: Run, command: str) -> Path:
    """Write report.html into the study's folder."""
    page = what.folder / REPORT
    save(render(what, command), page)
    return page


def render(what: Run, command: str) -> str:
    """The page as text."""
    found = [{**row, CURVE: unit.where[CURVE]} for row, unit in zip(rows(what), what.units, strict=True)]
    figures = [figure.name for figure in what.study.figures]
    parameters = [name for name in what.columns if name not in figures and len({row.get(name) for row in found}) > 1]
    parameters = [name for name in parameters if name not in ("knob", CURVE)] or ["seed"]
    parameters.sort(key=lambda name: "." not in name)  # the study's own first
    views = [
        View(f, p, _panes(found, figure, parameter))
        for f, figure in enumerate(figures)
        for p, parameter in enumerate(parameters)
    ]
    return template("study.html.j2").render(
        name=what.study.name,
        about=what.study.description,
        count=len(what.units),
        columns=[(name, _said(found, name)) for name in what.columns],
        figures=figures,
        parameters=parameters,
        views=views,
        unavailable=what.unavailable,
        command=command,
    )


def _said(found: Sequence[Row], name: str) -> str:
    """Which values a column has."""
    values = list(dict.fromkeys(str(row.get(name)) for row in found if row.get(name) is not None))
    return ", ".join(values) if len(values) <= 2 * TICKS_MAX else f"{len(values):,}, from {values[0]} to {values[-1]}"


def _panes(found: Sequence[Row], figure: str, parameter: str) -> list[Pane]:
    """A plot for each scenario on each drive, with its own scale."""
    places: dict[str, list[Row]] = {}
    for row in found:
        if row.get(parameter) is not None and row[figure] is not None:
            where = [str(row[name]) for name in PLACES if name != parameter]
            places.setdefault(" on ".join(where), []).append(row)
    curves = {place: _curves(mine, figure, parameter) for place, mine in places.items()}
    values = list(dict.fromkeys(row[parameter] for row in found if row.get(parameter) is not None))
    x, at = _axis(parameter, values)
    unit, _ = _unit(figure)
    panes = []
    for place, mine in curves.items():
        points = [value for curve in mine.values() for _, value in curve]
        y = linear(f"{figure}, {unit}" if unit else figure, points)
        plot = draw({name: [(at[key], value) for key, value in curve] for name, curve in mine.items()}, x, y)
        if plot is not None:
            names = any(isinstance(value, str) for value in values)  # between which there is nothing
            lines = [replace(line, path="") for line in plot.lines] if names else plot.lines
            panes.append(Pane(place, replace(plot, lines=lines)))
    return panes


def _curves(found: Iterable[Row], figure: str, parameter: str) -> dict[str, list[tuple[Value, float]]]:
    """For each variant, the median of the figure at each value of the parameter."""
    values: dict[str, dict[Value, list[float]]] = {}
    for row in found:
        key, value = row[parameter], row[figure]
        assert key is not None and isinstance(value, int | float)
        values.setdefault(str(row[CURVE]), {}).setdefault(key, []).append(value / _unit(figure)[1])
    return {
        name: [(key, median(mine[key])) for key in sorted(mine, key=lambda key: (isinstance(key, str), key))]
        for name, mine in values.items()
    }


def _axis(parameter: str, values: Sequence[Value | None]) -> tuple[Axis, dict[Value, float]]:
    """And where on it each value is: numbers as such, by their logarithms where they span decades; names in a row."""
    name = parameter.rpartition(".")[2]
    numbers = sorted(value for value in values if isinstance(value, int | float))
    if len(numbers) == len(values):
        at: dict[Value, float] = {value: float(value) for value in numbers}
        if numbers[0] > 0 and numbers[-1] >= 20 * numbers[0]:
            axis = points_of(name, numbers)
            every = -(-len(axis.ticks) // TICKS_MAX)
            return Axis(axis.title, axis.low, axis.high, axis.ticks[::every], log=True), at
        ticks = numbers if len(numbers) <= TICKS_MAX else numbers[:: -(-len(numbers) // TICKS_MAX)]
        return Axis(name, numbers[0], numbers[-1], [(value, f"{value:g}") for value in ticks]), at
    names = sorted(str(value) for value in values)
    at = {name: float(n) for n, name in enumerate(names)}
    return Axis("", -0.3, len(names) - 0.7, [(n, name) for n, name in enumerate(names)]), at


def _unit(figure: str) -> tuple[str, float]:
    """In which a figure is drawn."""
    ending = figure.split(" of ", maxsplit=1)[0].endswith
    return next((unit for name, unit in UNITS.items() if ending(name)), ("", 1.0))
