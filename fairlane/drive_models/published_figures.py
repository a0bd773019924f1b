# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Profiles against what is published of their drives: a table of published, model and error.

The search keeps a step when the whole fits better, so it polishes a fit that is near already. It did not find our
profiles' numbers by itself: they were brought near by hand, and what is not under [search] was not searched for at all.

profiles/published/NAME.toml has the figures. Each is a load on the bare drive (ssd/closed-loop.c): jobs that always
have a number of commands under way.

    [[figure]]
    name = "..."
    load = ["4*randread:4096:32"]   # jobs * pattern : bytes : commands under way of each
    state = "fresh"                 # or "steady": preconditioned
    iops = 270000                   # published: iops, mbps (10^6 bytes/s), mean_us (latency), price
    source = "..."
    within = 0.1                    # bound of the relative error (price: of the error itself); this is the default
    shown = "why"                   # not held to its bound, and why

price is the bandwidth that writers lose for each unit that readers get, when some of a load's writers become readers:
mqFlashFQ's RD16cost(K). above and below name figures whose price, in the model, it must lie above or below.
"""

from __future__ import annotations

import random
import subprocess
import time
import tomllib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from fairlane import places
from fairlane.errors import FairlaneError
from fairlane.experiment import modelled_ssd
from fairlane.experiment.profiles import load_profile
from fairlane.pages import terminal
from fairlane.places import PROFILES

PUBLISHED = PROFILES / "published"
DRIVE_TESTS = places.ROOT / "tests" / "ssd"
DRIVE = places.ROOT / "build" / "ssd" / "closed-loop"
METRICS = {"mbps": "MB/s", "iops": "IOPS", "mean_us": "us", "price": "writes for a read"}
SECONDS, WARMUP = 1.0, 0.5  # simulated
LIMIT_S = 120.0


@dataclass(frozen=True)
class Figure:
    """A load, and what is published of it: metric -> value."""

    name: str
    load: tuple[str, ...]
    published: dict[str, float]
    source: str
    state: str = "fresh"
    within: float = 0.1
    shown: str | None = None
    above: str | None = None
    below: str | None = None


@dataclass(frozen=True)
class Published:
    figures: tuple[Figure, ...]
    search: dict[str, tuple[int, int]] = field(default_factory=dict)  # name of a number: from, to


@dataclass(frozen=True)
class JobRate:
    """What one job of a load got."""

    bytes_per_s: float
    iops: float
    mean_us: float


@dataclass(frozen=True)
class Row:
    figure: Figure
    metric: str
    model: float
    ok: bool

    @property
    def published(self) -> float:
        return self.figure.published[self.metric]

    @property
    def error(self) -> float:
        """Relative; of a price, the difference."""
        return self.model - self.published if self.metric == "price" else self.model / self.published - 1


def load_published(name: str) -> Published:
    path = PUBLISHED / f"{name}.toml"
    try:
        data = tomllib.loads(path.read_text())
        figures = tuple(_figure(table) for table in data["figure"])
        search = {key: (int(low), int(high)) for key, (low, high) in data.get("search", {}).items()}
    except OSError as error:
        raise FairlaneError(f"{path}: {error.strerror}; there is one for {', '.join(names())}") from error
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise FairlaneError(f"{path}: is not as the top of drive_models/published_figures.py says: {error}") from error
    return Published(figures, search)


def _figure(table: dict[str, Any]) -> Figure:
    published = {key: float(table.pop(key)) for key in METRICS if key in table}
    return Figure(load=tuple(table.pop("load")), published=published, **table)


def names() -> list[str]:
    return sorted(path.stem for path in PUBLISHED.glob("*.toml"))


def numbers(name: str) -> dict[str, int]:
    """The profile's numbers of the model."""
    params = load_profile(name).params
    return {key: value for key, value in params.items() if key in modelled_ssd.PROFILE}


def build() -> None:
    done = subprocess.run(["make", "-s", "-C", DRIVE_TESTS, "drive"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise FairlaneError(f"{DRIVE} cannot be built: {done.stderr.strip()}")


def jobs_of(load: Iterable[str]) -> list[str]:
    """4*randread:4096:32 is four jobs."""
    jobs = []
    for text in load:
        count, star, job = text.rpartition("*")
        jobs += [job] * (int(count) if star else 1)
    return jobs


def play(values: dict[str, int], jobs: Sequence[str], state: str, weights: Sequence[int] = (1, 1, 1)) -> list[JobRate]:
    """Run the load on a drive with these numbers; weights are those of its classes high, medium and low."""
    profile = [f"{key}={value}" for key, value in values.items()]
    profile.append("weights=" + ":".join(map(str, weights)))
    command = [str(DRIVE), str(SECONDS), str(WARMUP), state, *profile, *jobs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise FairlaneError(done.stderr.strip())
    lines = [line.split() for line in done.stdout.splitlines()]
    return [JobRate(float(line[1]), float(line[2]), float(line[3]) / 1000) for line in lines if line[0] == "job"]


def _measure(values: dict[str, int], figure: Figure) -> dict[str, float]:
    jobs = jobs_of(figure.load)
    got = play(values, jobs, figure.state)
    total = sum(job.bytes_per_s for job in got)
    found = {
        "mbps": total / 1e6,
        "iops": sum(job.iops for job in got),
        "mean_us": sum(job.mean_us * job.iops for job in got) / max(1.0, sum(job.iops for job in got)),
    }
    if "price" in figure.published:
        writers = [job for job in jobs if "write" in job]
        reads = sum(job.bytes_per_s for job, text in zip(got, jobs, strict=True) if "write" not in text)
        # Without a writer left, what they would write is that of as many jobs which write as much as these read.
        only = writers[:1] or [jobs[0].replace("read", "write")]
        most = sum(job.bytes_per_s for job in play(values, only * len(jobs), figure.state))
        found["price"] = (most - (total - reads)) / reads
    return found


def compare(values: dict[str, int], figures: Sequence[Figure]) -> list[Row]:
    """A row for each published value. A drive by itself keeps one processor busy: two at once."""
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda figure: _measure(values, figure), figures))
    prices = {figure.name: got["price"] for figure, got in zip(figures, found, strict=True) if "price" in got}
    rows = []
    for figure, got in zip(figures, found, strict=True):
        for metric in figure.published:
            row = Row(figure, metric, got[metric], ok=True)
            rows.append(Row(figure, metric, got[metric], _holds(row, prices)))
    return rows


def _holds(row: Row, prices: dict[str, float]) -> bool:
    figure = row.figure
    if row.metric == "price":
        if figure.above and row.model <= prices[figure.above]:
            return False
        if figure.below and row.model >= prices[figure.below]:
            return False
    return abs(row.error) <= figure.within


def misfit(rows: Sequence[Row]) -> float:
    """How far the model is from what is published: the mean square of errors in bounds, and the worst one."""
    errors = [row.error / row.figure.within * (0.3 if row.figure.shown else 1) for row in rows]
    broken = sum(not row.ok and row.figure.shown is None for row in rows)
    return sum(error * error for error in errors) / len(errors) + max(map(abs, errors)) + broken


def search(name: str, seconds: float) -> None:
    """Random steps from the profile's numbers, each kept when it fits better; prints what it keeps."""
    published, out = load_published(name), terminal.console()
    if not published.search:
        raise FairlaneError(f"{PUBLISHED / name}.toml: has no [search], so there is nothing to look for")
    best = numbers(name)
    least, chance, end = misfit(compare(best, published.figures)), random.Random(1), time.monotonic() + seconds
    out.print(f"misfit {least:.3f}: as the profile is")
    while time.monotonic() < end:
        tried = dict(best)
        for key in dict.fromkeys(chance.choices(sorted(published.search), k=chance.choice((1, 1, 2)))):
            low, high = published.search[key]
            step = round(tried[key] * chance.uniform(0.85, 1.15)) + chance.choice((-1, 0, 1))
            tried[key] = min(high, max(low, step))
        got = misfit(compare(tried, published.figures))
        if got < least:
            least, best = got, tried
            out.print(f"misfit {least:.3f}: " + ", ".join(f"{key} = {best[key]}" for key in published.search))


def show(name: str, rows: Sequence[Row]) -> None:
    table = Table(title=name, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("figure")
    for heading in ("published", "model", "error"):
        table.add_column(heading, justify="right")
    for heading in ("unit", "bound", "", "source"):
        table.add_column(heading)
    for row in rows:
        figure, price = row.figure, row.metric == "price"
        form = "{:.4f}" if price else "{:,.1f}"
        verdict = f"shown: {figure.shown}" if figure.shown else "ok" if row.ok else "OUT"
        table.add_row(
            *(escape(figure.name), form.format(row.published), form.format(row.model)),
            f"{row.error:+.3f}" if price else f"{row.error:+.1%}",
            *(METRICS[row.metric], f"{figure.within:.3f}" if price else f"{figure.within:.0%}"),
            *(escape(verdict), escape(figure.source)),
        )
    terminal.console().print(table)


def show_all(profiles: Sequence[str], search_s: float | None) -> int:
    """Print the table of each profile, or of all; 1 when a figure is out of its bound. Or search for better numbers."""
    build()
    if search_s:
        for name in profiles or names():
            search(name, search_s)
        return 0
    status = 0
    for name in profiles or names():
        published = load_published(name)
        rows = compare(numbers(name), published.figures)
        show(name, rows)
        status |= any(not row.ok and row.figure.shown is None for row in rows)
    return status
