# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What `fairlane wrr` prints of a drive: a table, a verdict, the evidence, and what it means."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fairlane.experiment.wrr import DRIVERS, NO_LIMIT, Found, Point, fmt, off


def write(found: Found, out: Console) -> None:
    seen, verdict = found.seen, found.verdict
    title = f"{seen.device} ({escape(seen.model)}), {DRIVERS[seen.driver]}: three tenants' random reads of 4 KiB"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("weights", "burst", "queues", "reads", "due, %", "got, %", "off by, %", "IOPS", "CPU busy, %"):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in found.points:
        table.add_row(*_row(point))
    out.print(table)
    out.print(f"{escape(verdict.says)}", style="bold")
    for line in verdict.evidence:
        out.print(f"  {escape(line)}")
    out.print(f"  so: {escape(verdict.means)}")


def _row(point: Point) -> tuple[str, ...]:
    return (
        ":".join(map(str, point.weights)),
        "no limit" if point.burst == NO_LIMIT else str(1 << point.burst),
        ":".join(map(str, point.queues)),
        ":".join(map(str, point.depths)),
        fmt(point.due),
        fmt(point.shares),
        f"{100 * off(point):.1f}",
        f"{sum(point.iops):,.0f}",
        f"{100 * point.busy:.0f}",
    )
