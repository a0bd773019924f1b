# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""One picture of how knobs divide a drive: an SVG that stands alone, for a README or a slide.

A panel for each of the results, one below the other so that a telephone can show them; a bar for each knob. The bar's
length is the total relative to none's, and its parts are the tenants. Lines mark where the parts end when every tenant
gets its share of what the drive does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from fairlane.errors import FairlaneError
from fairlane.experiment.results import Results
from fairlane.experiment.summary import BASELINE, OURS, Point, by_cost, points
from fairlane.formats import WITHIN, fmt_error
from fairlane.pages.plot import spread, tenant_colour
from fairlane.pages.template import save, template

# All in SVG units, which are CSS pixels at the picture's own size.
NAMES, BAR, FIGURES = 126, 180, 136  # the widths of the knobs' names, of a bar of length 1, and of its figures
TOP, ROW, BETWEEN, BOTTOM = 118, 23, 14, 70  # above a panel's first row, of each row, below the last, below all panels
LABEL = 34  # a tenant's name
MAX_TENANTS = 8
LOW = 0.75  # a total below this is marked, as the suite marks it (isolbench/verdict.py)


@dataclass(frozen=True)
class Part:
    """One tenant's part of a bar."""

    at: float
    width: float
    colour: str


@dataclass(frozen=True)
class Label:
    """A tenant's name and share, over the bar that shows what the weights ask for."""

    at: float
    name: str
    share: str


@dataclass(frozen=True)
class Row:
    """One knob under one load; without parts it did not run."""

    y: int
    knob: str
    parts: list[Part]
    total: str = ""
    error: str = ""
    low: bool = False  # the total is
    off: bool = False  # a tenant is too far from its share


@dataclass(frozen=True)
class Panel:
    at: int
    title: str
    detail: str
    labels: list[Label]
    wanted: list[Part]
    rows: list[Row]


def write(found: Sequence[Results], path: Path, titles: Mapping[str, tuple[str, str]] | None = None) -> None:
    """titles: what the panel of a scenario is called, and a second line for it."""
    save(render(found, titles or {}), path)


def render(found: Sequence[Results], titles: Mapping[str, tuple[str, str]]) -> str:
    """The picture as text. Every knob that ran under any of the loads has a row."""
    drawn = [{point.knob: point for point in _points(results)} for results in found]
    knobs = list(dict.fromkeys(knob for each in drawn for knob in each))
    longest = max(point.vs_none or 0 for each in drawn for point in each.values())
    scale = BAR / max(1.0, longest)
    height = TOP + len(knobs) * ROW + BETWEEN
    panels = [
        _panel(titles.get(results.scenario, (results.scenario, "")), each, knobs, scale, n * height)
        for n, (results, each) in enumerate(zip(found, drawn, strict=True))
    ]
    return template("picture.svg.j2").render(
        panels=panels,
        ours=OURS,
        width=NAMES + BAR + FIGURES,
        height=len(panels) * height + BOTTOM,
        names=NAMES,
        top=TOP,
        row=ROW,
        bar=BAR,
        bottom=TOP + len(knobs) * ROW,
        below=len(panels) * height,
        costs=any(by_cost(results.runs[0]) for results in found),
    )


def _points(results: Results) -> list[Point]:
    found = points(results)
    if not any(point.knob == BASELINE for point in found):
        raise FairlaneError(f"{results.scenario}: has no run of {BASELINE}, which the picture compares with; run that")
    if any(point.cgroups is not None or len(point.shares) > MAX_TENANTS for point in found):
        raise FairlaneError(
            f"{results.scenario}: has a sweep, or more than {MAX_TENANTS} tenants, which the picture cannot show;"
            " make a report without --picture"
        )
    return found


def _panel(title: tuple[str, str], drawn: Mapping[str, Point], knobs: Sequence[str], scale: float, at: int) -> Panel:
    shares = drawn[BASELINE].shares
    wanted = _parts([share.wanted * scale for share in shares])
    places = spread([part.at + part.width / 2 for part in wanted], LABEL, BAR + LABEL)
    return Panel(
        at=at,
        title=title[0],
        detail=title[1],
        labels=[Label(place, share.name, f"{share.wanted:.0%}") for place, share in zip(places, shares, strict=True)],
        wanted=wanted,
        rows=[_row(TOP + n * ROW, knob, drawn.get(knob), scale) for n, knob in enumerate(knobs)],
    )


def _row(y: int, knob: str, point: Point | None, scale: float) -> Row:
    if point is None:
        return Row(y, knob, [])
    total = point.vs_none or 0
    off = point.share_error is not None and 100 * point.share_error > WITHIN
    parts = _parts([(share.got or 0) * total * scale for share in point.shares])
    return Row(y, knob, parts, f"{total:.2f}", fmt_error(point.share_error), total < LOW, off)


def _parts(widths: Sequence[float]) -> list[Part]:
    begins = accumulate(widths, initial=0.0)
    return [Part(at, width, tenant_colour(n)) for n, (at, width) in enumerate(zip(begins, widths, strict=False))]
