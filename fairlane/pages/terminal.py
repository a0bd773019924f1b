# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What the commands print: tables and progress bars on a terminal, plain text in a pipe."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

from rich import progress as rich_progress
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Task, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fairlane.calibration.price_file import IN_USE, Calibration
from fairlane.experiment import modelled_ssd
from fairlane.experiment.model import Profile
from fairlane.experiment.price_lists import NAMES, OPS
from fairlane.experiment.results import Outcome, Results
from fairlane.experiment.summary import Point, by_cost, points
from fairlane.experiment.traces import Replayed
from fairlane.formats import fmt_error, fmt_left
from fairlane.isolbench import doubts, limit, published
from fairlane.isolbench.bench import Found
from fairlane.isolbench.compare import BETTER, CHANGED, WORSE, Comparison
from fairlane.isolbench.drive_map import Map
from fairlane.isolbench.published import Beside
from fairlane.isolbench.suite import PARTS
from fairlane.isolbench.verdict import BAD, FAIR, GOOD
from fairlane.pages.headline import checks, judged
from fairlane.progress import Progress

MAX_TENANTS = 8  # more are summed up by their fairness index alone
NARROW = 105  # on a terminal with fewer columns these are left out
LEFT_OUT = ("MiB/s", "fairness", "write\nampl.", "CPU\nus/IO")
PLAIN_WIDTH = 240  # in a pipe there is no edge to wrap at


def console(stderr: bool = False) -> Console:
    out = Console(stderr=stderr, highlight=False)
    return out if out.is_terminal else Console(stderr=stderr, highlight=False, width=PLAIN_WIDTH, soft_wrap=True)


@contextmanager
def progress(title: str) -> Iterator[Callable[[Progress], None]]:
    """A bar on a terminal, a line for each new step elsewhere; on stderr, so that stdout is the result alone."""
    out = console(stderr=True)
    if not out.is_terminal:
        steps: list[str] = []

        def line(now: Progress) -> None:
            if now.step not in steps[-1:]:
                steps[:] = [now.step]
                left = f" ({fmt_left(now.left_s)})" if now.left_s is not None and not now.news else ""
                out.print(f"{title}: {escape(now.step)}{left}")

        yield line
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        _Left(),
    )
    with rich_progress.Progress(*columns, console=out, transient=True) as bars:
        task = bars.add_task(title, total=1.0, left=None)

        def bar(now: Progress) -> None:
            if now.news:
                out.print(f"{title}: {escape(now.step)}")
                return
            bars.update(task, description=f"{title}: {escape(now.step)}", completed=now.fraction, left=now.left_s)

        yield bar


class _Left(TimeRemainingColumn):
    """The time left as it is told, or else as the fraction tells."""

    def render(self, task: Task) -> Text:
        left = task.fields["left"]
        return super().render(task) if left is None else Text(fmt_left(left), style="progress.remaining")


def results(found: Results, out: Console) -> None:
    """A row per knob (and number of cgroups): who got how much of what they should, at which cost."""
    rows = points(found)
    fair = any(run.parts is None or run.parts for run in found.runs)
    names = [f"{share.name}\n{share.wanted:.1%}" if fair else share.name for share in rows[0].shares] if rows else []
    if len(names) > MAX_TENANTS or any(row.cgroups is not None for row in rows):
        names = []
    table = Table(
        title=_title(found, fair), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    columns = [_column(row, names, any(row.amplification for row in rows)) for row in rows]
    narrow = out.width < NARROW
    for heading in columns[0] if columns else ():
        if not (narrow and heading in LEFT_OUT):
            table.add_column(heading, justify="left" if heading == "knob" else "right", no_wrap=True)
    for row, cells in zip(rows, columns, strict=True):
        shown = [cell for heading, cell in cells.items() if not (narrow and heading in LEFT_OUT)]
        table.add_row(*shown, style="bold" if row.knob == "kyber-fairness" else None)
    out.print(table)
    for knob, why in found.unavailable.items():
        out.print(f"{knob} has no figures: {escape(why)}")
    for note in filter(None, (judged(found), *found.notes)):
        out.print(escape(note))


def across(found: Sequence[Results], out: Console) -> None:
    """Several scenarios, a row each: for each knob the largest error of a share, and the total beside that of none.

    And how many of all checks failed. Why a knob has no figures is said under each scenario's own table.
    """
    rows = [{row.knob: row for row in points(each) if row.cgroups is None} for each in found]
    knobs = list(
        dict.fromkeys([*(knob for row in rows for knob in row), *(k for each in found for k in each.unavailable)])
    )
    title = "The largest error of a tenant's share, and the total relative to none's"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("scenario")
    for knob in knobs:
        table.add_column(knob, justify="right")
    for each, points_of in zip(found, rows, strict=True):
        cells = [points_of.get(knob) for knob in knobs]
        both = [f"{_off_by(row.share_error)} {_or_dash(row.vs_none, '{:.2f}x')}" if row else "-" for row in cells]
        table.add_row(each.scenario, *both)
    out.print(table)
    if said := checks(outcome for each in found for outcome in each.expects):
        out.print(said)


def _off_by(error: float | None) -> str:
    return fmt_error(error).replace(" ", "").replace("–", "-")


def _title(found: Results, fair: bool) -> str:
    where = found.backend + (f" ({found.accel.upper()})" if found.accel else "")
    where += f", Linux {found.kernel}" if found.kernel else f" of {found.device.get('profile')}"
    costs = ", by cost" if found.runs and by_cost(found.runs[0]) else ""
    return f"{found.scenario} on {where}; shares received{costs}{', those wanted in the heading' if fair else ''}"


def _column(row: Point, names: Sequence[str], writes: bool) -> dict[str, str]:
    """The row's cells by the heading of their column; names: those of the tenants, if they have columns."""
    p99 = [share.lat_us["p99"] for share in row.shares if "p99" in share.lat_us]
    return {
        "knob": row.knob,
        **({"cgroups": str(row.cgroups)} if row.cgroups is not None else {}),
        "IOPS": f"{row.iops:,.0f}",
        "MiB/s": f"{row.bytes_per_s / 2**20:,.1f}",
        "of\nnone": _or_dash(row.vs_none, "{:.2f}x"),
        **{name: _or_dash(share.got, "{:.1%}") for name, share in zip(names, row.shares, strict=False)},
        "fairness": _or_dash(row.fairness, "{:.4f}"),
        **({"fair by\ncost": f"{row.cost_fairness:.4f}"} if row.cost_fairness is not None else {}),
        "worst\noff by": _off_by(row.share_error),
        "p99\nms": f"{_ms(min(p99))}..{_ms(max(p99))}" if p99 else "-",
        **({"write\nampl.": _or_dash(row.amplification, "{:.2f}")} if writes else {}),
        "CPU\nus/IO": _or_dash(row.cpu_ns_per_io and row.cpu_ns_per_io / 1000, "{:.1f}"),
    }


def _ms(us: float) -> str:
    return f"{us / 1000:.0f}" if us >= 9950 else f"{us / 1000:.1f}" if us >= 100 else "<0.1"


def _or_dash(value: float | None, form: str) -> str:
    return form.format(value) if value is not None else "-"


def outcomes(found: Sequence[Outcome], out: Console) -> None:
    """A line per expectation."""
    words = {True: "[green]ok[/]", False: "[red]FAILED[/]", None: "[yellow]not checked[/]"}
    for outcome in found:
        measured = f"{outcome.measured:.4g}" if outcome.measured is not None else "unknown"
        if outcome.ok is None:
            measured = outcome.note or ""
        elif outcome.note:
            measured += f" ({outcome.note})"
        paper = f" [{outcome.paper}]" if outcome.paper else ""
        out.print(f"{words[outcome.ok]}: {escape(f'{outcome.text}: {measured}, wanted {outcome.bound}{paper}')}")


def verdict(found: Found, out: Console) -> None:
    """The marks of every knob, what they rest on, and the advice."""
    styles = {GOOD: "green", FAIR: "yellow", BAD: "red"}
    table = Table(
        title="Which knob isolates this drive?",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("knob", no_wrap=True)
    for part in found.evidence.parts:
        table.add_column(f"{part} {PARTS[part]}", justify="left")
    for knob, row in found.marks.items():
        cells = []
        for mark in row.values():
            style = styles.get(mark.symbol, "dim")
            said = ", ".join(
                f"{judged.limit.figure} {judged.text}" for judged in mark.judged if judged.value is not None
            )
            cells.append(f"[{style}]{mark.symbol}[/]" + (f" {escape(said)}" if out.width >= NARROW and said else ""))
        table.add_row(escape(knob), *cells)
    if limits := found.summary[limit.NAME]:
        table.add_row(limit.NAME, *(_limit_of(part, limits) for part in found.evidence.parts), style="dim")
    out.print(table)
    for knob, why in found.evidence.unavailable.items():
        out.print(f"{knob} has no figures: {escape(why)}")
    for note in doubts.notes(found.evidence):
        out.print(escape(note))
    for n, line in enumerate(doubts.complaints(found.evidence)):
        if not n:
            out.print("[red]The kernel complained during these runs; do not trust them:[/]")
        out.print(f"  {escape(line)}")
    for warning in doubts.warnings(found.evidence):
        out.print(f"[yellow]doubtful[/]: {escape(warning)}")
    beside_published(found.published, out)
    out.print(escape(found.advice))


def _limit_of(part: str, limits: Mapping[str, Mapping[str, Any]]) -> str:
    """What any knob could do at best."""
    key, said = {"d3": ("hypervolume", "hypervolume"), "d4": ("due_of_alone", "a burst is due, of its rate alone")}.get(
        part, ("", "")
    )
    known = [f"{mix} {each[key]:.2f}" for mix, each in limits.items() if each.get(key) is not None]
    return f"{said}: {', '.join(known)}" if known else ""


def beside_published(found: Sequence[Beside], out: Console) -> None:
    """The published marks, and ours; why, where they differ."""
    if not found:
        return
    title = f"{published.headline(list(found))}.\nPublished | ours | ours by what its authors asked"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("knob", no_wrap=True)
    parts = list(dict.fromkeys(each.part for each in found))
    for part in parts:
        table.add_column(f"{part} {PARTS[part]}")
    for row in dict.fromkeys(each.row for each in found):
        mine = {each.part: each for each in found if each.row == row}
        said = [f"{each.published} | {each.mark.symbol} | {each.asked.symbol}" for each in mine.values()]
        styles = ["green" if each.same else "red" for each in mine.values()]
        table.add_row(escape(row), *(f"[{style}]{text}[/]" for style, text in zip(styles, said, strict=True)))
    out.print(table)
    for each in (each for each in found if not each.same):
        said_of = f"{each.row}, {PARTS[each.part]}: published {each.published}, ours {each.mark.symbol}: {each.why}."
        out.print(escape(said_of))


def compared(found: Comparison, out: Console) -> None:
    """The marks of two runs of the suite, and what to know of them."""
    styles = {BETTER: "bold green", WORSE: "bold red", CHANGED: "bold yellow"}
    for side in found.sides:
        out.print(f"{side.name}: {side.bench.store.folder}; {side.where}", markup=False)
    table = Table(title=found.headline, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("A → B", no_wrap=True)
    for part in found.parts:
        table.add_column(f"{part} {PARTS[part]}")
    for knob, row in found.marks.items():
        cells = [f"{change.text} {change.word}".rstrip() for change in row.values()]
        words = [styles.get(change.word, "") for change in row.values()]
        table.add_row(escape(knob), *(f"[{w}]{c}[/]" if w else c for w, c in zip(words, cells, strict=True)))
    out.print(table)
    for note in found.notes:
        out.print(escape(note))


def profile(found: Profile, file: Path, out: Console) -> None:
    """What the file says of its numbers, and a row for each: the file's own words, which name the source."""
    text = file.read_text()
    out.print(f"{found.name}: {found.description}", markup=False)
    for line in takewhile(lambda line: line.startswith("#"), text.splitlines()):
        if "SPDX" not in line:
            out.print(line.removeprefix("#").rstrip(), markup=False)
    said = dict(re.findall(r"^(\w+) = [^#\n]*# *(.*)$", text, re.MULTILINE))
    units = {name: known.unit for name, known in modelled_ssd.PROFILE.items()} if found.kind == "ssd" else {}
    rows = [
        (name, f"{value:,} {units.get(name, '')}".strip(), said.get(name, "")) for name, value in found.params.items()
    ]
    listing(rows, ("number", "value", "where it is from"), out)


def calibration(found: Calibration, out: Console) -> None:
    """How the reads of one page were priced (the paper's Table 2), all prices, and what to tell the kernel."""
    page, trade = NAMES[found.page], found.of("read", NAMES[found.page])
    alone = sum(trade[0].bytes_per_s)
    title = f"A read of {page} in writes of {page}: k of {found.cores} cores read, the others write; MB/s"
    headings = ("k", "writes", "reads", "writes lost", "reads for a write", "cost", "in use")
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right")
    for mix in trade:
        writes, reads = (
            sum(part) for part in (mix.bytes_per_s[: found.cores - mix.k], mix.bytes_per_s[found.cores - mix.k :])
        )
        price = mix.cost
        cells = [*(f"{rate / 1e6:,.1f}" for rate in (writes, reads, alone - writes))]
        cells += [_or_dash(1 / price if price else None, "{:.2f}"), _or_dash(price, "{:.4f}"), f"{mix.use:.2f}"]
        highest = price == found.price["read"][page]
        table.add_row(str(mix.k), *cells, style="bold" if highest else None)
    out.print(table)

    counts = f"the highest of all mixes with {IN_USE:g} of the drive in use counts"
    title = f"Prices in writes of {page}: {counts} (of the average, for comparison)"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("size", "read", "(average)", "write", "(average)"):
        table.add_column(heading, justify="right")
    for size in found.price["read"]:
        table.add_row(size, *(f"{table[op][size]:.4f}" for op in OPS for table in (found.price, found.average)))
    out.print(table)
    for warning in found.warnings():
        out.print(f"[yellow]doubtful[/]: {escape(warning)}")
    out.print(f"queue/iosched/prices of our schedulers:\n{found.prices}", end="")
    if found.io_cost_model:
        out.print(f"io.cost.model, after MAJ:MIN:\n{found.io_cost_model}")


def drive_map(found: Map, out: Console) -> None:
    """What the drive does of each kind of requests, and what latency costs in throughput."""
    title = f"{found.where}: {NAMES[found.block]} at random"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "most IOPS", "mean us at queue depth 1", "P99 us at queue depth 1"):
        table.add_column(heading, justify="right" if heading else "left")
    for op, most in found.most.items():
        least = found.least[op]
        table.add_row(op, f"{most.iops:,.0f}", *(_or_dash(us, "{:,.1f}") for us in (least.mean_us, least.p99_us)))
    out.print(table)
    title = "The limit: a reader at queue depth 1 beside so many reads of others in the drive"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("others", "IOPS of all", "of the most", "its IOPS", "of alone", "its P99 us"):
        table.add_column(heading, justify="right")
    for point in found.limit:
        rates = [rate / found.block for rate in (point.total, point.rate)]
        parts = [point.total / found.limit[-1].total, point.rate / found.limit[0].rate]
        cells = [cell for rate, part in zip(rates, parts, strict=True) for cell in (f"{rate:,.0f}", f"{part:.2f}")]
        table.add_row(str(point.depth), *cells, _or_dash(point.p99_us, "{:,.1f}"))
    out.print(table)


def traces(found: Sequence[Replayed], out: Console) -> None:
    """The columns of the Kyber-fairness paper's Table 4, and what is needed to read them."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    headings = ("trace", "requests", "seconds", "total MB", "average KB", "required MB/s", "R : W")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "trace" else "right")
    for each in found:
        what = each.summary
        table.add_row(
            each.name,
            f"{what.requests:,}",
            f"{what.seconds:,.3f}",
            f"{what.bytes / 1e6:,.1f}",
            f"{what.mean_bytes / 1e3:,.1f}",
            _or_dash(what.bytes_per_s and what.bytes_per_s / 1e6, "{:,.2f}"),
            _or_dash(what.reads_to_writes, "{:,.2f} : 1"),
        )
    out.print(table)


def listing(rows: Sequence[tuple[str, ...]], headings: Sequence[str], out: Console) -> None:
    table = Table(*headings, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*map(escape, row))
    out.print(table)
