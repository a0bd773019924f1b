# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The report: results in, one self-contained HTML page out.

Three steps, top to bottom: fold the runs of a `Results` into one `Point` per knob and number of cgroups, turn the
points into what the page shows (text, and geometry in percent or in SVG units), and let the template draw it. The
template escapes every text; only numbers come from here as they are. Plots are percentages and paths, so that they stay
crisp, keep their text size at any width and take their colours from the page's light or dark palette.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import jinja2

from fairlane.errors import FairlaneError
from fairlane.results import Results, Run, Tenant, jain
from fairlane.scenario import KNOBS

OURS = "kyber-fairness"
BASELINE = "none"
SIMULATOR = "sim"
# A page full of lines is read no better for more points; this many keep it well under a megabyte.
SERIES_POINTS = 80_000
# Bins folded into one for the bold line that is drawn over the faint 10 ms one.
SMOOTH = 10
# More tenants than this are drawn as a strip of points, not as one bar each.
MAX_BARS = 8
# A scheduler isolates, more or less, while every tenant is within so many percent of its share.
WITHIN = 25
LATENCIES = ("p50", "p99", "p99.9")
KNOB_ORDER = (BASELINE, "mq-deadline", "kyber", "bfq", "io.max", "io.cost", "io.prio.class", "io.latency", OURS)


# --- figures: what was measured, repeats folded into medians --------------------------------------------------------


@dataclass(frozen=True)
class Share:
    """One tenant under one knob, in the parts of the window where shares mean something, or else in all of it.

    `error` is how far the received share is from the wanted one, relative to it; in the part where that is worst.
    """

    name: str
    weight: int
    wanted: float
    got: float | None
    error: float | None
    lat_us: dict[str, float]


@dataclass(frozen=True)
class Point:
    """One knob at one number of cgroups (None outside a sweep)."""

    knob: str
    cgroups: int | None
    runs: list[Run]
    bytes_per_s: float
    iops: float
    range_bytes_per_s: tuple[float, float] | None
    fairness: float | None
    cost_fairness: float | None  # None without a price list
    cpu_ns_per_io: float | None
    amplification: float | None  # of writes, by a modelled drive; None: it was not written to, or is no such drive
    shares: list[Share]
    share_error: float | None
    vs_none: float | None


def _median(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return median(known) if known else None


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def _cgroups(run: Run) -> int | None:
    return run.point["cgroups"] if run.point else None


def by_cost(run: Run) -> bool:
    """Whether shares are those of what requests cost, by the drive's price list; of a part, only bytes are known."""
    return run.parts is None and all(tenant.cost_per_s is not None for tenant in run.tenants)


def _dealt(run: Run) -> list[tuple[dict[str, float], dict[str, float]]]:
    """What each tenant got, in bytes or by cost, and its ideal share: for each part of the window where shares mean
    something."""
    if by_cost(run):
        return [({t.name: t.cost_per_s or 0.0 for t in run.tenants}, {t.name: t.share for t in run.tenants})]
    if run.parts is None:
        return [({t.name: t.bytes_per_s * run.seconds for t in run.tenants}, {t.name: t.share for t in run.tenants})]
    dealt = []
    for part in run.parts:
        moved = {t.name: t.moved(part.start, part.stop) for t in run.tenants}
        known = {name: float(got) for name, got in moved.items() if got is not None}
        if len(known) == len(moved):
            dealt.append((known, part.shares))
    return dealt


def _fairness(run: Run) -> float | None:
    """In the part where it is worst."""
    if run.parts is None:
        return run.fairness_index
    found = [jain(got[name] / share for name, share in ideal.items()) for got, ideal in _dealt(run)]
    return min((value for value in found if value is not None), default=None)


def _received(run: Run, tenant: Tenant) -> tuple[float | None, float, float | None]:
    """The tenant's share of all that was dealt, what it should have been, and its worst error."""
    errors, got, wanted, total = [], 0.0, 0.0, 0.0
    for moved, ideal in _dealt(run):
        part = sum(moved.values())
        got, total = got + moved.get(tenant.name, 0.0), total + part
        wanted += ideal.get(tenant.name, 0.0) * part
        if part and ideal.get(tenant.name):
            errors.append(moved[tenant.name] / part / ideal[tenant.name] - 1)
    if not total:
        return run.received(tenant), tenant.share, None
    return got / total, wanted / total, max(errors, key=abs, default=None)


def _share(same: Sequence[tuple[Run, Tenant]]) -> Share:
    """Fold one tenant's figures over the repeats."""
    first = same[0][1]
    got, wanted, errors = zip(*(_received(run, t) for run, t in same), strict=True)
    lat = {key: _median(t.lat_us.get(key) for _, t in same) for key in LATENCIES}
    return Share(
        name=first.name,
        weight=first.weight,
        wanted=median(wanted),
        got=_median(got),
        error=_median(errors),
        lat_us={key: value for key, value in lat.items() if value},
    )


def points(results: Results) -> list[Point]:
    """One Point per knob and number of cgroups, in the order of KNOB_ORDER, each beside `none` at the same number."""
    groups: dict[tuple[int | None, str], list[Run]] = {}
    for run in results.runs:
        groups.setdefault((_cgroups(run), run.knob), []).append(run)
    base = {c: median(r.total_bytes_per_s for r in runs) for (c, knob), runs in groups.items() if knob == BASELINE}
    rank = {knob: n for n, knob in enumerate(KNOB_ORDER)}
    found = []
    for (cgroups, knob), runs in groups.items():
        totals = [r.total_bytes_per_s for r in runs]
        total = median(totals)
        shares = [_share([(r, t) for r in runs for t in r.tenants if t.name == x.name]) for x in runs[0].tenants]
        errors = [abs(s.error) for s in shares if s.error is not None]
        found.append(
            Point(
                knob=knob,
                cgroups=cgroups,
                runs=runs,
                bytes_per_s=total,
                iops=median(r.total_iops for r in runs),
                range_bytes_per_s=(min(totals), max(totals)) if len(totals) > 1 else None,
                fairness=_median(_fairness(r) for r in runs),
                amplification=_median(r.counters.get("device", {}).get("write_amplification") for r in runs),
                cost_fairness=_median(r.cost_fairness_index for r in runs),
                cpu_ns_per_io=_median(r.cpu_ns_per_io for r in runs),
                shares=shares,
                share_error=max(errors) if errors else None,
                vs_none=_ratio(total, base.get(cgroups)),
            )
        )
    return sorted(found, key=lambda p: (p.cgroups or 0, rank.get(p.knob, len(rank) - 1.5), p.knob))


# --- two results of one scenario, figure by figure -----------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A figure of both, as text, and how many times that of the first the second is."""

    figure: str
    first: str
    second: str
    ratio: float | None


def compared(results: Sequence[Results]) -> list[tuple[str, list[Pair]]]:
    """Of two results of the same scenario: each knob that ran in both, and at how many cgroups, with its figures."""
    if len(results) != 2 or results[0].scenario != results[1].scenario:
        return []
    second = {_key(point): point for point in points(results[1])}
    both = [(point, second[_key(point)]) for point in points(results[0]) if _key(point) in second]
    return [(f"{a.knob}, {a.cgroups} cgroups" if a.cgroups else a.knob, _pairs(a, b)) for a, b in both]


def _key(point: Point) -> tuple[str, int | None]:
    return point.knob, point.cgroups


def pair(figure: str, show: Callable[[float], str], x: float | None, y: float | None) -> Pair:
    first, second = ("–" if value is None else show(value) for value in (x, y))
    return Pair(figure, first, second, _ratio(y, x))


def _pairs(a: Point, b: Point) -> list[Pair]:
    found = [
        pair("total", fmt_rate, a.bytes_per_s, b.bytes_per_s),
        pair("total", fmt_iops, a.iops, b.iops),
        pair("fairness index", "{:.4f}".format, a.fairness, b.fairness),
        pair("worst tenant off by", fmt_error, a.share_error, b.share_error),
        pair("CPU µs per I/O", "{:.1f}".format, *(p.cpu_ns_per_io and p.cpu_ns_per_io / 1000 for p in (a, b))),
    ]
    others = {share.name: share for share in b.shares}
    for share in a.shares if len(a.shares) <= MAX_BARS else ():
        other = others.get(share.name)
        found.append(pair(f"{share.name}, share", fmt_share, share.got, other.got if other else None))
        for key in LATENCIES:
            x, y = (each.lat_us.get(key) if each else None for each in (share, other))
            found.append(pair(f"{share.name}, {key} µs", fmt_us, x, y))
    return found


# --- text -----------------------------------------------------------------------------------------------------------


def fmt_rate(value: float) -> str:
    """Bytes per second."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if value >= size:
            return f"{_short(value / size)} {unit}"
    return f"{value:.0f} B/s"


def fmt_iops(value: float) -> str:
    return f"{_short(value / 1e3)} k IOPS" if value >= 1e4 else f"{value:,.0f} IOPS"


def fmt_ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def fmt_share(value: float | None) -> str:
    return "–" if value is None else f"{value * 100:.1f} %"


def fmt_error(value: float | None) -> str:
    """A relative deviation, without a sign; whole percents are rounded up, in a table as they are in a sentence."""
    if value is None:
        return "–"
    return f"{value * 100:.1f} %" if value < 0.0995 else f"{_percent_up(value)} %"


def fmt_signed(value: float | None) -> str:
    if value is None:
        return "–"
    sign = "" if abs(value) < 0.0005 else "+" if value > 0 else "−"
    return sign + fmt_error(abs(value))


def fmt_us(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def fmt_value(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(fmt_value(v) for v in value)
    return str(value)


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _us_tick(us: float) -> str:
    """A power of ten of microseconds, short enough for the axis."""
    return f"{us:g} µs" if us < 1e3 else f"{us / 1e3:g} ms" if us < 1e6 else f"{us / 1e6:g} s"


def _percent_up(error: float) -> int:
    """Rounded up, so that a sentence with it stays true."""
    return max(1, math.ceil(error * 100 - 1e-9))


def _within(error: float) -> str:
    percent = _percent_up(error)
    if percent <= WITHIN:
        return f"every tenant within {percent} % of its share"
    return f"a tenant is {fmt_error(error)} off its share"


def _claim(point: Point) -> str:
    parts = [] if point.share_error is None else [_within(point.share_error)]
    if point.vs_none is not None and point.knob != BASELINE:
        parts.append(f"at {point.vs_none:.2f} of none’s throughput")
    else:
        parts.append(f"at {fmt_rate(point.bytes_per_s)}")
    return ", ".join(parts)


def _aside(point: Point) -> str:
    """The same claim in few words, for what is put beside the headline."""
    error = point.share_error or 0
    percent = _percent_up(error)
    cost = fmt_rate(point.bytes_per_s) if point.vs_none is None else f"{point.vs_none:.2f}"
    return f"{point.knob} {f'within {percent} %' if percent <= WITHIN else f'up to {fmt_error(error)} off'} at {cost}"


def _by_error(found: Iterable[Point]) -> list[Point]:
    return sorted((p for p in found if p.share_error is not None), key=lambda p: p.share_error or 0)


def _subject(found: Sequence[Point]) -> Point | None:
    """What the headline is about: our scheduler, or else the fairest knob; that, too, where shares are by cost."""
    ours = [p for p in found if p.knob == OURS and not by_cost(p.runs[0])]
    fairest = _by_error(p for p in found if p.knob != BASELINE)
    return next(iter([*ours, *fairest, *found]), None)


def judged(found: Results) -> str:
    """Where shares are judged, as a sentence; nothing when that is everywhere."""
    run = next(iter(found.runs), None)
    if run is None or run.parts is None:
        costs = run is not None and by_cost(run)
        return "Shares are those of what requests cost, by the drive's price list, not of bytes." if costs else ""
    if not run.parts:
        return (
            "Shares are not judged: the scenario expects none of them, since a tenant in it cannot, or may not, use all"
            " of its own (an [[expect]] on share_error or fairness_index says otherwise)."
        )
    spans = [f"{part.start:g} to {part.stop:g} s" for part in run.parts]
    return (
        f"Shares are judged in {len(spans)} part{'s' * (len(spans) > 1)} of the run ({', '.join(spans)}), as the"
        " scenario says: there, all active tenants can use theirs. The worst part counts."
    )


def headline(found: Sequence[Point]) -> tuple[str, str]:
    """The page's first sentence, and one that puts the others beside it; `found` is of one number of cgroups."""
    subject = _subject(found)
    if subject is None:
        return "No run in these results", ""
    where = f" with {subject.cgroups} cgroups" if subject.cgroups is not None and subject.cgroups > 1 else ""
    others = _by_error(p for p in found if p is not subject and p.knob != BASELINE)
    beside = [p for n, p in enumerate(others) if n < 2 or p.knob == "bfq"]
    parts = [", ".join(_aside(p) for p in beside)] if beside else []
    none = next((p for p in found if p.knob == BASELINE and p is not subject and p.share_error is not None), None)
    if none is not None:
        far = max(none.shares, key=lambda s: abs(s.error or 0))
        parts.append(f"none gives {far.name} {1 + (far.error or 0):.2f} times its share")
    return f"{subject.knob}{where}: {_claim(subject)}", f"Beside it: {'; '.join(parts)}." if parts else ""


def _overall(all_points: Sequence[list[Point]]) -> str:
    """The headline over several results: the worst of our figures in any of them."""
    ours = [p for found in all_points for p in found if p.knob == OURS]
    if not ours:
        return f"{len(all_points)} results side by side"
    errors = [p.share_error for p in ours if p.share_error is not None]
    ratios = [p.vs_none for p in ours if p.vs_none is not None]
    left = len(ours) - len(errors)
    of = f" in {len(errors)} of {len(ours)}" if left else ""
    parts = [_within(max(errors)) + of] if errors else []
    parts += [f"at {min(ratios):.2f} of none’s throughput or more"] if ratios else []
    others = "none of them" if not errors else "the other" if left == 1 else f"the other {left}"
    unjudged = f"; shares are {'not ' * bool(errors)}judged in {others}" if left else ""
    return f"{OURS} in {len(ours)} results: {', '.join(parts) or 'nothing measured'}{unjudged}"


# --- geometry -------------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class Bar:
    """One tenant's row beside a knob: share and latency, in percent of their axes."""

    share: Share
    colour: str
    got: float
    wanted: float
    lat: dict[str, float]


@dataclass(frozen=True)
class Panel:
    """Everything measured under one knob, drawn side by side; in all panels of a section the axes are the same."""

    point: Point
    bars: list[Bar]
    strip: list[float]  # instead of bars when there are many tenants: received / wanted
    series: Plot | None


def nice(top: float, count: int = 4) -> list[float]:
    """Round tick values from 0 to at least nearly `top`."""
    if top <= 0:
        return [0.0]
    raw = top / count
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= raw)
    return [step * n for n in range(int(top / step + 1e-9) + 1)]


def _y_ticks(top: float, values: Iterable[float]) -> list[Tick]:
    return [Tick(100 - 100 * v / top, f"{v:g}") for v in values if v <= top]


def _tenant_colour(n: int) -> str:
    return f"t{n % MAX_BARS}"


def knob_colour(knob: str) -> str:
    """Its class in the style sheet: of its own if it has one there."""
    own = f"k-{knob.replace('.', '-')}"
    return own if knob in KNOBS and f".{own} {{ --c:" in _style() else "k-other"


@cache
def _style() -> str:
    return template("style.css.j2").render()


def _fold(values: Sequence[float], by: int) -> list[float]:
    """Means of `by` values each; a last group that is not full is left out unless it is the only one."""
    full = [sum(values[n : n + by]) / by for n in range(0, len(values) - by + 1, by)]
    return full or ([sum(values) / len(values)] if values else [])


def _path(ys: Sequence[float], top: float, height: int, step: float) -> str:
    """A line with a point in the middle of each step, in whole SVG units and relative moves: the shortest there is."""
    at = [(round((n + 0.5) * step), round(height - height * min(y, 1.5 * top) / top)) for n, y in enumerate(ys)]
    moves = [f"{x1 - x0} {y1 - y0}" for (x0, y0), (x1, y1) in pairwise(at)]
    return f"M{at[0][0]} {at[0][1]}" + (f"l{' '.join(moves)}" if moves else "h1")


def _rates(tenant: Tenant) -> list[float]:
    """A tenant's series in MB/s."""
    if tenant.series is None:
        return []
    return [b * 1e-3 / tenant.series.bin_ms for b in tenant.series.bytes]


def _series_top(found: Sequence[Point]) -> float:
    return 1.1 * max((max(_fold(_rates(t), SMOOTH), default=0) for p in found for t in p.runs[0].tenants), default=0)


def _series(point: Point, top: float, fold: int) -> Plot | None:
    """Bandwidth over time, from the first repeat: each bin faintly, ten of them folded into one over it."""
    run = point.runs[0]
    seconds = max((len(t.series.bytes) * t.series.bin_ms / 1000 for t in run.tenants if t.series), default=0.0)
    if seconds <= 0 or top <= 0:
        return None
    width, height = round(seconds * 400), 400
    raw, smooth = [], []
    for n, tenant in enumerate(run.tenants):
        if tenant.series is None or not tenant.series.bytes:
            continue
        rates, colour, unit = _rates(tenant), _tenant_colour(n), 0.4 * tenant.series.bin_ms
        raw.append(Line(colour, _path(_fold(rates, fold), top, height, unit * fold), faint=True))
        smooth.append(Line(colour, _path(_fold(rates, SMOOTH), top, height, unit * SMOOTH), label=tenant.name))
    x_ticks = [Tick(100 * v / seconds, f"{v:g}") for v in nice(seconds)]
    return Plot(width, height, x_ticks, _y_ticks(top, nice(top)), raw + smooth, "s", "MB/s")


@dataclass(frozen=True)
class Axes:
    """The axes that all panels of a section share."""

    share_top: float
    share_ticks: list[Tick]
    lat_low: float  # decades
    lat_high: float
    lat_ticks: list[Tick]
    ratio_ticks: list[Tick]


def _axes(found: Sequence[Point]) -> Axes:
    shares = [v for p in found for s in p.shares for v in (s.got, s.wanted) if v is not None]
    top = min(1.0, 1.05 * max(shares, default=1.0))
    lats = [v for p in found for s in p.shares for v in s.lat_us.values()]
    low = math.floor(math.log10(min(lats)) * 2) / 2 if lats else 0
    high = max(math.ceil(math.log10(max(lats)) * 2) / 2, low + 0.5) if lats else 1
    decades = [d for d in range(math.ceil(low), math.floor(high) + 1)]
    return Axes(
        share_top=top,
        share_ticks=[Tick(100 * v / top, f"{v * 100:g} %") for v in nice(top)],
        lat_low=low,
        lat_high=high,
        lat_ticks=[Tick(100 * (d - low) / (high - low), _us_tick(10.0**d)) for d in decades],
        ratio_ticks=[Tick(50.0 * v, f"{v} ×") for v in (0, 1, 2)],
    )


def _bar(n: int, share: Share, axes: Axes) -> Bar:
    span = axes.lat_high - axes.lat_low
    return Bar(
        share=share,
        colour=_tenant_colour(n),
        got=100 * (share.got or 0) / axes.share_top,
        wanted=100 * share.wanted / axes.share_top,
        lat={key: 100 * (math.log10(v) - axes.lat_low) / span for key, v in share.lat_us.items()},
    )


def _panels(found: Sequence[Point], axes: Axes, fold: int) -> list[Panel]:
    top = _series_top(found)
    panels = []
    for point in found:
        many = len(point.shares) > MAX_BARS
        ratios = [_ratio(s.got, s.wanted) for s in point.shares]
        panels.append(
            Panel(
                point=point,
                bars=[] if many else [_bar(n, s, axes) for n, s in enumerate(point.shares)],
                strip=[min(50 * r, 100.0) for r in ratios if r is not None] if many else [],
                series=None if many else _series(point, top, fold),
            )
        )
    return panels


# --- sweeps ---------------------------------------------------------------------------------------------------------


def spread(at: Sequence[float], gap: float) -> list[float]:
    """Move label positions apart to at least `gap`, keeping their order, and within 0..100 while there is room."""
    order = sorted(range(len(at)), key=lambda n: at[n])
    moved = list(at)
    for before, n in pairwise(order):
        moved[n] = max(moved[n], moved[before] + gap)
    limit = 100.0
    for n in reversed(order):
        moved[n] = min(moved[n], limit)
        limit = moved[n] - gap
    return moved


def _sweep_plot(curves: Mapping[str, Sequence[tuple[int, float]]], title: str) -> Plot | None:
    """One line per knob over the number of cgroups (logarithmic), labelled at its end."""
    xs = sorted({x for curve in curves.values() for x, _ in curve})
    top = 1.05 * max((y for curve in curves.values() for _, y in curve), default=0)
    if len(xs) < 2 or top <= 0:
        return None
    width = height = 1000
    low, span = math.log2(xs[0]), math.log2(xs[-1] / xs[0])
    where = {x: 100 * (math.log2(x) - low) / span for x in xs}
    drawn = {
        knob: [(where[x] * width / 100, height - height * y / top) for x, y in c] for knob, c in curves.items() if c
    }
    labels = spread([line[-1][1] / height * 100 for line in drawn.values()], 7.5)
    lines = [
        Line(
            colour=knob_colour(knob),
            path="M" + "L".join(f"{x:.0f} {y:.0f}" for x, y in line),
            marks="".join(f"M{x:.0f} {y:.0f}h0" for x, y in line),
            label=knob,
            label_at=label_at,
        )
        for (knob, line), label_at in zip(drawn.items(), labels, strict=True)
    ]
    x_ticks = [Tick(at, str(x)) for x, at in where.items()]
    return Plot(width, height, x_ticks, _y_ticks(top, nice(top)), lines, "cgroups", title)


@dataclass(frozen=True)
class Sweep:
    cgroups: list[int]
    rows: list[tuple[str, list[Point | None]]]
    plots: list[Plot]
    sentence: str


def _sweep(found: Sequence[Point]) -> Sweep | None:
    sizes = sorted({p.cgroups for p in found if p.cgroups is not None})
    if not sizes:
        return None
    at = {(p.knob, p.cgroups): p for p in found}
    rows = [(knob, [at.get((knob, c)) for c in sizes]) for knob in dict.fromkeys(p.knob for p in found)]
    measured = {knob: [p for p in row if p is not None] for knob, row in rows}
    total = {knob: [(p.cgroups or 1, p.iops / 1e3) for p in row] for knob, row in measured.items()}
    ratio = {
        knob: [(p.cgroups or 1, p.vs_none) for p in row if p.vs_none is not None] for knob, row in measured.items()
    }
    error = {
        knob: [(p.cgroups or 1, 100 * p.share_error) for p in row if p.share_error is not None]
        for knob, row in measured.items()
    }
    plots = [
        _sweep_plot(total, "total, thousand I/Os per second"),
        _sweep_plot(ratio, "total against none"),
        _sweep_plot(error, "worst tenant off its share, %"),
    ]
    return Sweep(sizes, rows, [plot for plot in plots if plot is not None], _sweep_sentence(ratio.get(OURS, [])))


def _sweep_sentence(ratio: Sequence[tuple[int, float]]) -> str:
    if len(ratio) < 2:
        return ""
    (first, at_first), (worst, at_worst) = ratio[0], min(ratio[1:], key=lambda point: point[1])
    cgroups = "cgroup" if first == 1 else "cgroups"
    return (
        f"{OURS} against none: {at_first:.2f} with {first} {cgroups}; lowest after that {at_worst:.2f}, with {worst}."
    )


# --- the page -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Section:
    """One Results."""

    anchor: str
    label: str
    headline: str
    beside: str
    notes: list[str]
    judged: bool  # shares mean something somewhere
    simulated: bool
    results: Results
    points: list[Point]  # of a sweep: those with the most cgroups
    top_bytes_per_s: float
    weights: tuple[int, int] | None  # heaviest and lightest, as positions in `shares`
    panels: list[Panel]
    axes: Axes
    sweep: Sweep | None
    series_ms: str
    config: list[tuple[str, list[tuple[str, str]]]]
    counters: list[tuple[str, list[tuple[str, str]]]]
    bad_dmesg: list[str]


def _last(found: Sequence[Point]) -> list[Point]:
    largest = max((p.cgroups or 0 for p in found), default=0)
    return [p for p in found if (p.cgroups or 0) == largest]


def flat(value: object, path: str = "") -> list[tuple[str, str]]:
    """Nested settings as lines of (dotted name, value)."""
    if isinstance(value, Mapping):
        return [line for key, inner in value.items() for line in flat(inner, f"{path} › {key}" if path else str(key))]
    return [(path, fmt_value(value))]


def _extremes(found: Sequence[Point]) -> tuple[int, int] | None:
    """The heaviest and the lightest tenant, where the weights differ."""
    weights = [s.wanted for s in found[0].shares] if found else []
    if len(set(weights)) < 2:
        return None
    return weights.index(max(weights)), len(weights) - 1 - weights[::-1].index(min(weights))


def _experiment(results: Results) -> dict[str, Any]:
    seconds = sorted({run.seconds for run in results.runs})
    kernel = {"kernel": results.kernel, "virtualization": results.accel}
    return {
        "scenario": results.scenario,
        "backend": results.backend,
        **(kernel if results.backend != SIMULATOR else {}),
        "fairlane": results.version,
        "seed": results.seed,
        "seconds per run": ", ".join(f"{s:g}" for s in seconds),
        "repeats": len({run.repeat for run in results.runs}),
    }


def _section(results: Results, label: str, anchor: str, fold: int) -> Section:
    found = points(results)
    last = _last(found)
    axes = _axes(last)
    first, second = headline(last)
    bins = {t.series.bin_ms * fold for r in results.runs for t in r.tenants if t.series}
    settings = {
        "experiment": _experiment(results),
        "device": results.device,
        "machine": results.machine,
        **results.config,
    }
    return Section(
        anchor=anchor,
        label=label,
        headline=first,
        beside=second,
        notes=[*filter(None, [judged(results)]), *results.notes],
        judged=any(run.parts is None or run.parts for run in results.runs),
        simulated=results.backend == SIMULATOR,
        results=results,
        points=last,
        top_bytes_per_s=max((p.bytes_per_s for p in last), default=0) or 1,
        weights=_extremes(last),
        panels=_panels(last, axes, fold),
        axes=axes,
        sweep=_sweep(found),
        series_ms=", ".join(f"{b} ms" for b in sorted(bins)),
        config=[(name, flat(value)) for name, value in settings.items() if value],
        counters=[(p.knob, flat(p.runs[0].counters)) for p in last if p.runs[0].counters],
        bad_dmesg=[f"{run.knob}: {line}" for run in results.runs for line in run.bad_dmesg],
    )


def _where(results: Results) -> str:
    """What it ran on, beside the drive."""
    if results.backend == SIMULATOR:
        cores = results.machine.get("simulated_cores")
        return f"simulated host{f' of {cores} cores' if cores else ''}"
    accel = f" under {results.accel}" if results.accel else ""
    return f"kernel {results.kernel or 'unknown'} · {results.backend}{accel}"


def _place(results: Results) -> str:
    """What tells it from another result of the same scenario."""
    if results.backend == SIMULATOR:
        return f"{SIMULATOR} of {results.device.get('profile')}"
    return results.kernel or results.backend


def _labels(results: Sequence[Results], folders: Sequence[str]) -> list[str]:
    """A name for each result: its scenario, and what tells it from another result of the same scenario."""
    full = [result.scenario for result in results]
    for more in ([_place(result) for result in results], folders):
        if more:
            twice = [name for name in full if full.count(name) > 1]
            full = [f"{name} · {what}" if name in twice else name for name, what in zip(full, more, strict=True)]
    return [f"{name} · no. {full[:n].count(name) + 1}" if full.count(name) > 1 else name for n, name in enumerate(full)]


def _series_fold(results: Sequence[Results]) -> int:
    """How many bins to fold into one, so that the whole page keeps to SERIES_POINTS."""
    bins = sum(len(t.series.bytes) for r in results for p in _last(points(r)) for t in p.runs[0].tenants if t.series)
    return max(1, math.ceil(bins / SERIES_POINTS))


@cache
def template(name: str = "report.html.j2") -> jinja2.Template:
    env = jinja2.Environment(
        loader=jinja2.PackageLoader("fairlane"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    formats = (fmt_rate, fmt_iops, fmt_ratio, fmt_share, fmt_error, fmt_signed, fmt_us, fmt_value)
    env.filters |= {f.__name__.removeprefix("fmt_"): f for f in formats}
    return env.get_template(name)


def render(results: Sequence[Results], folders: Sequence[str] = ()) -> str:
    """The page as text; folders is where each of the results is from."""
    fold = _series_fold(results)
    labelled = zip(results, _labels(results, folders), strict=True)
    sections = [_section(result, label, f"r{n}", fold) for n, (result, label) in enumerate(labelled)]
    knobs = list(dict.fromkeys(knob for knob in KNOB_ORDER for s in sections if any(p.knob == knob for p in s.points)))
    knobs += list(dict.fromkeys(p.knob for s in sections for p in s.points if p.knob not in KNOB_ORDER))
    return template().render(
        title=sections[0].headline if len(sections) == 1 else _overall([s.points for s in sections]),
        sections=sections,
        compared=compared(results),
        knobs=knobs,
        ours=OURS,
        baseline=BASELINE,
        emulated=any(r.accel == "tcg" for r in results),
        simulated=[r.backend == SIMULATOR for r in results],
        where=_where(results[0]),
        knob_colour=knob_colour,
        tenant_colour=_tenant_colour,
    )


def write(results: list[Results], path: Path, folders: Sequence[str] = ()) -> None:
    """Write the report over `results` to `path`; raises FairlaneError when there is nothing to report."""
    if not any(r.runs for r in results):
        raise FairlaneError(
            "no run in these results: nothing to report; run a scenario first (fairlane run SCENARIO --out DIR)"
        )
    save(render(results, folders), path)


def save(page: str, path: Path) -> None:
    """Write the page, making its folder; raises FairlaneError when that cannot be done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise FairlaneError(f"{path}: cannot be written ({error.strerror}); choose another file with --out") from error
