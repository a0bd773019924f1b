# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A drive's map as a picture: an SVG that stands alone.

One panel below the other: P99 of reads, and of writes, over how many of both are asked for; and the limit, the P99 of a
reader at queue depth 1 over what all move. What the drive does not keep up with is hatched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from fairlane.experiment.price_lists import NAMES
from fairlane.formats import fmt_drive
from fairlane.isolbench.drive_map import READS, WRITES, Cell, Map
from fairlane.pages.plot import Axis, decades, linear
from fairlane.pages.template import save, template

# All in SVG units, which are CSS pixels at the picture's own size.
LEFT, RIGHT, TOP, BOTTOM = 62, 18, 54, 40
WIDTH, HEIGHT = 400, 288  # of a panel's area
HEAD = 56  # above all panels
LABEL = 17  # the room that a label of the limit's points takes
ROW = 44  # of a panel with reads only
# From short to long.
COLOURS = ("#e8f3c9", "#bfe3b4", "#86cdb6", "#4db3b8", "#2b8fb3", "#2a6a9f", "#2f4584", "#2b2460")
DARK = 3  # from which of these on writing is white


@dataclass(frozen=True)
class Box:
    """A cell of the grid."""

    x: float
    y: float
    width: float
    height: float
    fill: str  # empty: the drive does not keep up
    text: str
    ink: str


@dataclass(frozen=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True)
class Heat:
    at: int
    title: str
    height: int
    boxes: list[Box]
    x_ticks: list[Tick]
    y_ticks: list[Tick]


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    text: str
    below: bool  # the text is, and right of it; else above and left


@dataclass(frozen=True)
class Curve:
    at: int
    path: str
    dots: list[Dot]
    x_ticks: list[Tick]
    y_ticks: list[Tick]


def write(found: Map, path: Path) -> None:
    save(render(found), path)


def render(found: Map) -> str:
    """The picture as text."""
    height = HEIGHT if WRITES in found.most else ROW
    whole = height + TOP + BOTTOM
    panels = [_heat(found, op, n * whole, height) for n, op in enumerate(found.most)]
    curve = _curve(found, len(panels) * whole)
    kernel = f"Linux {found.kernel}" if found.kernel else "simulated"
    return template("map.svg.j2").render(
        name=found.where,
        details=[fmt_drive(found.drive), f"{kernel}; {NAMES[found.block]} at random"],
        panels=panels,
        curve=curve,
        left=LEFT,
        top=TOP,
        area=WIDTH,
        tall=HEIGHT,
        width=LEFT + WIDTH + RIGHT,
        head=HEAD,
        height=HEAD + len(panels) * whole + TOP + HEIGHT + BOTTOM,
    )


def _heat(found: Map, op: str, at: int, height: int) -> Heat:
    reads = sorted({cell.reads for cell in found.cells})
    writes = sorted({cell.writes for cell in found.cells})
    width, tall = WIDTH / len(reads), height / len(writes)
    known = [load.p99_us for cell in found.cells if cell.kept_up for load in cell.loads.values() if load.p99_us]
    low, high = min(known, default=1.0), max(known, default=10.0)
    boxes = []
    for cell in found.cells:
        fill, text, ink = _look(cell, op, low, high)
        x, y = reads.index(cell.reads) * width, height - (1 + writes.index(cell.writes)) * tall
        boxes.append(Box(x, y, width, tall, fill, text, ink))
    return Heat(
        at,
        f"P99 of {op}, µs",
        height,
        boxes,
        [Tick((n + 0.5) * width, _thousands(part * found.most[READS].iops)) for n, part in enumerate(reads)],
        [
            Tick(height - (n + 0.5) * tall, _thousands(part * found.most[WRITES].iops) if part else "0")
            for n, part in enumerate(writes)
        ],
    )


def _look(cell: Cell, op: str, low: float, high: float) -> tuple[str, str, str]:
    """How a cell is filled, and what is written in it in which colour; low, high: the P99s of all cells."""
    load = cell.loads.get(op)
    if load is None or load.p99_us is None:
        return "none", "", ""
    if not cell.kept_up:
        return "", "", ""
    part = math.log(load.p99_us / low) / math.log(high / low) if high > low else 0.0
    n = min(len(COLOURS) - 1, max(0, int(part * len(COLOURS))))
    return COLOURS[n], _us(load.p99_us), "#fff" if n >= DARK else "#14140f"


def _us(us: float) -> str:
    """Short enough for a cell."""
    return f"{us:.0f}" if us < 9950 else f"{us / 1000:.0f} ms"


def _thousands(iops: float) -> str:
    thousands = iops / 1000
    return f"{thousands:.0f}" if thousands >= 10 or not thousands else f"{thousands:.1f}"


def _curve(found: Map, at: int) -> Curve:
    points = [(p.total / found.block / 1000, p.p99_us, p.depth) for p in found.limit if p.p99_us]
    x = linear("thousand IOPS of all", [total for total, _, _ in points])
    y = decades("", [p99 for _, p99, _ in points])
    placed = [(WIDTH * x.at(total), HEIGHT * (1 - y.at(p99))) for total, p99, _ in points]
    path = "".join(f"{'L' if n else 'M'}{a:.1f} {b:.1f}" for n, (a, b) in enumerate(placed))
    dots: list[Dot] = []
    labelled: list[tuple[float, float, int]] = []  # where, and the room that it takes
    for (x_at, y_at), (_, _, depth) in zip(placed, points, strict=True):
        free = all(max(abs(x_at - x_of), 1.25 * abs(y_at - y_of)) >= room for x_of, y_of, room in labelled)
        text = (f"{depth}" if depth else "alone") if free else ""
        dots.append(Dot(x_at, y_at, text, x_at < WIDTH / 2))
        if free:
            labelled.append((x_at, y_at, LABEL if depth else 2 * LABEL))
    return Curve(at, path, dots, _ticks(x, WIDTH, False), _ticks(y, HEIGHT, True))


def _ticks(axis: Axis, size: int, down: bool) -> list[Tick]:
    return [Tick(size * tick.at / 100, tick.label.removesuffix(" µs")) for tick in axis.marks(down)]
