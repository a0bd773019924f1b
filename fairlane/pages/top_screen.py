# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What `fairlane top` shows: a table of a drive's cgroups, its timeline, the same as plain lines and as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fairlane.formats import fmt_rate
from fairlane.linux.contention import IDLE, Drive, Tenant

BARS = "▁▂▃▄▅▆▇█"
HISTORY = 60  # intervals of a drive's timeline
NAMED = 3  # for whom somebody waits: so many by name
WORTH = 0.005  # what is less than half a percent is not shown
KEYS = "q quit   s sort   r reverse   d next drive   / filter   space pause"

SORTS: dict[str, Callable[[Tenant], float | str]] = {
    "waits": lambda each: -(each.waits or 0.0) * each.present,
    "got": lambda each: -(each.got or 0.0),
    "iops": lambda each: -each.iops,
    "bytes": lambda each: -each.bytes_per_s,
    "p99": lambda each: -(each.p99_us or 0.0),
    "name": lambda each: each.cgroup,
}


@dataclass
class View:
    """What the user chose to see."""

    sort: str = "got"
    reverse: bool = False
    pattern: str = ""  # of cgroups: a part of the name, or with * and ? all of it
    drive: int = 0  # which of them
    paused: bool = False
    typing: bool = False  # the pattern
    history: dict[str, list[float]] = field(default_factory=dict)  # by drive, bytes/s, the latest last

    def note(self, drives: Iterable[Drive]) -> None:
        for drive in drives:
            line = self.history.setdefault(drive.number, [])
            line.append(drive.bytes_per_s)
            del line[:-HISTORY]

    def shown(self, drive: Drive) -> list[Tenant]:
        found = [each for each in drive.tenants if matches(self.pattern, each.cgroup) and each.limit != IDLE]
        return sorted(found, key=lambda each: (SORTS[self.sort](each), each.cgroup), reverse=self.reverse)

    def key(self, key: str) -> bool:
        """The user pressed it. False: quit."""
        if self.typing:
            if key in "\r\n\x1b":
                self.typing = False
            elif key in "\x7f\b":
                self.pattern = self.pattern[:-1]
            elif key.isprintable():
                self.pattern += key
            return True
        if key == "s":
            names = list(SORTS)
            self.sort = names[(names.index(self.sort) + 1) % len(names)]
        elif key == "r":
            self.reverse = not self.reverse
        elif key == "d":
            self.drive += 1
        elif key == "/":
            self.typing, self.pattern = True, ""
        elif key == " ":
            self.paused = not self.paused
        return key != "q"


def matches(pattern: str, cgroup: str) -> bool:
    if "*" in pattern or "?" in pattern:
        return fnmatchcase(cgroup, pattern)
    return pattern in cgroup


def sparkline(values: Sequence[float]) -> str:
    most = max(values, default=0.0)
    return "".join(BARS[round(value / most * (len(BARS) - 1))] if most else BARS[0] for value in values)


def screen(drives: Sequence[Drive], names: dict[str, tuple[str, str]], view: View) -> Group:
    """One drive: a line about it, its timeline, and a row for each of its cgroups that is not idle."""
    if not drives:
        return Group(Text("no drive has a scheduler of ours, or none has had a request since"))
    drive = drives[view.drive % len(drives)]
    tenants = view.shown(drive)
    name, scheduler = names.get(drive.number, (drive.number, "?"))
    head = Text.assemble(
        (f"{name}", "bold"),
        f"  {scheduler}   {fmt_rate(drive.bytes_per_s)}   {drive.iops:,.0f} IOPS",
        f"   drive {view.drive % len(drives) + 1} of {len(drives)}   by {view.sort}",
        f"   only {view.pattern!r}" if view.pattern or view.typing else "",
        "   paused" if view.paused else "",
    )
    line = Text(sparkline(view.history.get(drive.number, [])), style="cyan")
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in COLUMNS:
        table.add_column(heading, justify="left" if heading in LEFT else "right", no_wrap=heading != "for whom")
    for each in tenants:
        table.add_row(*map(escape, cells(each)))
    return Group(head, line, table, Text(KEYS, style="dim"))


COLUMNS = ("cgroup", "due", "got", "r/s", "w/s", "moves", "p50 ms", "p99 ms", "waits", "for whom", "limited by")
LEFT = ("cgroup", "for whom", "limited by")


def cells(each: Tenant) -> list[str]:
    return [
        each.cgroup,
        percent(each.wanted),
        percent(each.got),
        f"{each.read_iops:,.0f}",
        f"{each.write_iops:,.0f}",
        fmt_rate(each.bytes_per_s),
        ms(each.p50_us),
        ms(each.p99_us),
        percent(each.waits),
        for_whom(each),
        each.limit,
    ]


def percent(value: float | None) -> str:
    return "–" if value is None else f"{value * 100:.0f} %"


def ms(us: float | None) -> str:
    return "–" if us is None else f"{us / 1e3:,.2f}" if us < 1e5 else f"{us / 1e3:,.0f}"


def for_whom(each: Tenant) -> str:
    """Such as "27 backup.slice, 4 itself": percent of the time that its requests take; of paths the last part."""
    worth = [(name, part) for name, part in each.waits_for.items() if part >= WORTH]
    said = [
        f"{part * 100:.0f} {'itself' if name == each.cgroup else name.rpartition('/')[2] or name}"
        for name, part in worth[:NAMED]
    ]
    rest = sum(part for _, part in worth[NAMED:])
    return ", ".join([*said, f"{rest * 100:.0f} others"] if rest else said)


def plain(drives: Sequence[Drive], names: dict[str, tuple[str, str]], view: View) -> list[str]:
    """For a pipe: a line for each cgroup that is not idle, of all drives, under one of headings."""
    rows = [
        [names.get(drive.number, (drive.number, ""))[0], *cells(each)] for drive in drives for each in view.shown(drive)
    ]
    table = [["drive", *COLUMNS], *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    left = [heading in ("drive", *LEFT) for heading in table[0]]
    return [
        "  ".join(
            cell.ljust(width) if to_left else cell.rjust(width)
            for cell, width, to_left in zip(row, widths, left, strict=True)
        ).rstrip()
        for row in table
    ]


def data(drives: Sequence[Drive], names: dict[str, tuple[str, str]], view: View) -> list[dict[str, Any]]:
    """As JSON: parts are of 1, times in us, rates per second."""
    return [
        {
            "drive": names.get(drive.number, (drive.number, ""))[0],
            "scheduler": names.get(drive.number, ("", None))[1],
            "seconds": round(drive.seconds, 3),
            "bytes_per_s": drive.bytes_per_s,
            "iops": drive.iops,
            "cgroups": [asdict(each) for each in view.shown(drive)],
        }
        for drive in drives
    ]
