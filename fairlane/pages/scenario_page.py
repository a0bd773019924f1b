# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The report: results in, one self-contained HTML page out.

Three steps, top to bottom: fold the runs of a `Results` into one `Point` per knob and number of cgroups, turn the
points into what the page shows (text, and geometry in percent or in SVG units), and let the template draw it. The
template escapes every text; only numbers come from here as they are. Plots are percentages and paths, so that they stay
crisp, keep their text size at any width and take their colours from the page's light or dark palette.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlane.errors import FairlaneError
from fairlane.experiment.results import Results, Tenant
from fairlane.experiment.summary import BASELINE, LATENCIES, OURS, Point, Share, place, points
from fairlane.formats import Pair, flat, fmt_error, fmt_iops, fmt_rate, fmt_share, fmt_us, fmt_us_tick, pair, relative
from fairlane.pages.headline import checks, headline, judged, overall
from fairlane.pages.plot import (
    MAX_BARS,
    Line,
    Plot,
    Tick,
    folded,
    knob_colour,
    line_path,
    nice,
    spread,
    tenant_colour,
    y_ticks,
)
from fairlane.pages.template import save, template

# A page full of lines is read no better for more points; this many keep it well under a megabyte.
SERIES_POINTS = 80_000
# Bins folded into one for the bold line that is drawn over the faint 10 ms one.
SMOOTH = 10


# --- two results of one scenario, figure by figure -----------------------------------------------------------------


def compared(results: Sequence[Results]) -> list[tuple[str, list[Pair]]]:
    """Of two results of the same scenario: each knob that ran in both, and at how many cgroups, with its figures."""
    if len(results) != 2 or results[0].scenario != results[1].scenario:
        return []
    second = {_key(point): point for point in points(results[1])}
    both = [(point, second[_key(point)]) for point in points(results[0]) if _key(point) in second]
    return [(f"{a.knob}, {a.cgroups} cgroups" if a.cgroups else a.knob, _pairs(a, b)) for a, b in both]


def _key(point: Point) -> tuple[str, int | None]:
    return point.knob, point.cgroups


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


# --- geometry -------------------------------------------------------------------------------------------------------


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


def _rates(tenant: Tenant) -> list[float]:
    """A tenant's series in MB/s."""
    if tenant.series is None:
        return []
    return [b * 1e-3 / tenant.series.bin_ms for b in tenant.series.bytes]


def _series_top(found: Sequence[Point]) -> float:
    return 1.1 * max((max(folded(_rates(t), SMOOTH), default=0) for p in found for t in p.runs[0].tenants), default=0)


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
        rates, colour, unit = _rates(tenant), tenant_colour(n), 0.4 * tenant.series.bin_ms
        raw.append(Line(colour, line_path(folded(rates, fold), top, height, unit * fold), faint=True))
        smooth.append(Line(colour, line_path(folded(rates, SMOOTH), top, height, unit * SMOOTH), label=tenant.name))
    x_ticks = [Tick(100 * v / seconds, f"{v:g}") for v in nice(seconds)]
    return Plot(width, height, x_ticks, y_ticks(top, nice(top)), raw + smooth, "s", "MB/s")


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
        lat_ticks=[Tick(100 * (d - low) / (high - low), fmt_us_tick(10.0**d)) for d in decades],
        ratio_ticks=[Tick(50.0 * v, f"{v} ×") for v in (0, 1, 2)],
    )


def _bar(n: int, share: Share, axes: Axes) -> Bar:
    span = axes.lat_high - axes.lat_low
    return Bar(
        share=share,
        colour=tenant_colour(n),
        got=100 * (share.got or 0) / axes.share_top,
        wanted=100 * share.wanted / axes.share_top,
        lat={key: 100 * (math.log10(v) - axes.lat_low) / span for key, v in share.lat_us.items()},
    )


def _panels(found: Sequence[Point], axes: Axes, fold: int) -> list[Panel]:
    top = _series_top(found)
    panels = []
    for point in found:
        many = len(point.shares) > MAX_BARS
        ratios = [relative(s.got, s.wanted) for s in point.shares]
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
    return Plot(width, height, x_ticks, y_ticks(top, nice(top)), lines, "cgroups", title)


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
        **(kernel if not results.simulated else {}),
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
        simulated=results.simulated,
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
    if results.simulated:
        cores = results.machine.get("simulated_cores")
        return f"simulated host{f' of {cores} cores' if cores else ''}"
    accel = f" under {results.accel}" if results.accel else ""
    return f"kernel {results.kernel or 'unknown'} · {results.backend}{accel}"


def _place(results: Results) -> str:
    """What tells it from another result of the same scenario."""
    if results.simulated:
        return f"{results.backend} of {results.device.get('profile')}"
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


def render(results: Sequence[Results], folders: Sequence[str] = ()) -> str:
    """The page as text; folders is where each of the results is from."""
    fold = _series_fold(results)
    labelled = zip(results, _labels(results, folders), strict=True)
    sections = [_section(result, label, f"r{n}", fold) for n, (result, label) in enumerate(labelled)]
    knobs = sorted(dict.fromkeys(p.knob for s in sections for p in s.points), key=place)
    return template().render(
        title=sections[0].headline if len(sections) == 1 else overall([s.points for s in sections]),
        sections=sections,
        checks=checks(outcome for result in results for outcome in result.expects),
        compared=compared(results),
        knobs=knobs,
        ours=OURS,
        baseline=BASELINE,
        emulated=any(r.accel == "tcg" for r in results),
        simulated=[r.simulated for r in results],
        where=_where(results[0]),
        knob_colour=knob_colour,
        tenant_colour=tenant_colour,
    )


def write(results: list[Results], path: Path, folders: Sequence[str] = ()) -> None:
    """Write the report over `results` to `path`; raises FairlaneError when there is nothing to report."""
    if not any(r.runs for r in results):
        raise FairlaneError(
            "no run in these results: nothing to report; run a scenario first (fairlane run SCENARIO --out DIR)"
        )
    save(render(results, folders), path)
