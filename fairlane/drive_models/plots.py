# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""How good the modelled drives are, drawn: the plots of docs/drives.md."""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairlane import proc
from fairlane.backends import fl_sim, program
from fairlane.backends.job import Job
from fairlane.drive_models import published_figures
from fairlane.drive_models.beside import BESIDE, DOCS, PLACES, Row
from fairlane.errors import FairlaneError
from fairlane.experiment import modelled_ssd
from fairlane.experiment.model import Profile, Rate, Scenario, TenantSpec, Variant
from fairlane.experiment.profiles import load_profile
from fairlane.experiment.results import Results, Run, check_folder
from fairlane.experiment.summary import BASELINE, OURS

LIMIT_S = 300.0
LICENCE = "<!-- SPDX-License-Identifier: GPL-2.0-only OR MIT -->"


# --- What is plotted: numbers, made anew each time ---

FREE = dict.fromkeys(
    ("submit_ns", "complete_ns", "wake_ns", "insert_ns", "dispatch_ns", "done_ns", "lock_ns", "lock_read_ps"), 0
)
# A drive in which nothing takes time but what SERVERS add; a transfer of 4 KiB takes 4 ns of the link and a channel.
NOTHING = {
    "wrr": 0,
    "commands": 65536,
    "page_reads": 65536,
    "read_command_ns": 0,
    "overhead_ns": 0,
    "link_read_mbps": 1_000_000,
    "channel_mbps": 1_000_000,
    "page": 4096,
    "planes": 1,
    "read_ns": 1,
}
SERVERS = {  # name: what to change, and its service time in ns
    "a die": ({"channels": 1, "dies": 1, "read_ns": 20_000}, 20_000),
    "the controller": ({"read_command_ns": 20_000}, 20_000),
    "the link": ({"link_read_mbps": 256}, 16_000),
}
LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
QUEUE_S = 20.0
RATIOS = ((1, 1, 1), (2, 3, 5), (1, 4, 16), (1, 16, 256))
CLASSES = ("high", "medium", "low")
COLLAPSE_S = 30.0
STATES = {"empty": {"precondition": 0}, "written in order": {"rewrite": 0}, "steady": {}}


def md1_wait(load: float) -> float:
    """Mean wait in an M/D/1 queue, in service times."""
    return load / (2 * (1 - load))


def waits(server: str, load: float) -> float:
    """The simulated mean wait for that part of a drive, in its service times."""
    changed, service_ns = SERVERS[server]
    params = {name: field.default for name, field in modelled_ssd.PROFILE.items()} | NOTHING | changed
    tenant = TenantSpec("a", rw="randread", iodepth=65536, rate=Rate(iops=load * 1e9 / service_ns), poisson=True)
    what = Scenario("m-d-1", Profile("server", "ssd", "", params), (tenant,), seconds=QUEUE_S, warmup=0.1, cores=1)
    mean_us = _simulated(what, FREE).tenants[0].lat_us["mean"]
    assert mean_us is not None
    return mean_us * 1000 / service_ns - 1


def class_shares(weights: Sequence[int]) -> list[float]:
    """The parts of all bytes that high, medium and low get of zssd, with all queues full."""
    got = published_figures.play(
        published_figures.numbers("zssd"), [f"randread:4096:512:{name}" for name in CLASSES], "fresh", weights
    )
    total = sum(job.bytes_per_s for job in got)
    return [job.bytes_per_s / total for job in got]


def collapse(state: str) -> list[tuple[float, float]]:
    """950pro, in that state at first, under random writes: (s, MB/s) for each 100 ms."""
    own = load_profile("950pro")
    profile = replace(own, params={**own.params, **STATES[state]})
    tenant = TenantSpec("a", jobs=6, rw="randwrite", bs=16384, iodepth=64)
    series = _simulated(Scenario("collapse", profile, (tenant,), seconds=COLLAPSE_S, warmup=0.0)).tenants[0].series
    assert series is not None
    step = 100 // series.bin_ms
    bins = [series.bytes[n : n + step] for n in range(0, len(series.bytes), step)]
    return [(0.1 * (n + 0.5), sum(part) / 0.1 / 1e6) for n, part in enumerate(bins)]


def _simulated(what: Scenario, cpu: dict[str, int] | None = None) -> Run:
    """The scenario under no scheduler, on its own drive; costs are the host's, by default the measured ones."""
    job = Job(what.name, what, Variant(BASELINE, BASELINE), Path())
    given = fl_sim.description(fl_sim.Simulation(job, what, what.profile), fl_sim.load_cpu())
    with tempfile.TemporaryDirectory() as folder:
        file, found = Path(folder, "given.json"), Path(folder, "found.json")
        file.write_text(json.dumps(given | ({"cpu": cpu} if cpu else {})))
        proc.output([program.PROGRAM, "-o", found, file], what=f"simulating {what.name}", limit_s=LIMIT_S)
        return Results.load(found).runs[0]


# --- The plots ---

PANELS = {"IOPS": "iops", "shares, %": "share_percent", "median latency, ms": "p50_ms", "p99 latency, ms": "p99_ms"}
PUBLISHED, MODEL, THEORY = "#1f63b8", "#e0702a", "#55544f"


def draw(out: Path, tell: Callable[[str], None]) -> None:
    """Write every plot into the folder, as SVG; the same numbers give the same bytes."""
    try:
        mpl: Any = importlib.import_module("matplotlib")
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        raise FairlaneError("the plots need matplotlib; run .venv/bin/pip install -e '.[plots]'") from None
    mpl.use("svg")
    mpl.rcParams |= {
        "svg.hashsalt": "fairlane",
        "svg.fonttype": "none",
        "font.size": 9.0,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#ebeae5",
        "axes.axisbelow": True,
        "legend.frameon": False,
    }
    check_folder(out)
    program.build()
    published_figures.build()
    plots = {"md1": _md1, "wrr": _wrr, "p3700": _p3700, "950pro": _collapse, "fits": _fits, "beside": _beside}
    for name, plot in plots.items():
        tell(name)
        figure = plot(pyplot)
        file = out / f"{name}.svg"
        figure.savefig(file, metadata={"Date": None}, bbox_inches="tight")
        pyplot.close(figure)
        file.write_text(file.read_text().replace("\n", f"\n{LICENCE}\n", 1))


def _md1(plt: Any) -> Any:
    figure, axes = plt.subplots(figsize=(6.2, 3.2))
    fine = [n / 200 for n in range(185)]
    axes.plot(fine, [md1_wait(load) for load in fine], color=THEORY, lw=1.2, label="theory: ρ / 2(1 − ρ)")
    for (server, marker), colour in zip(zip(SERVERS, "ods", strict=True), (PUBLISHED, MODEL, "#1a9a6c"), strict=True):
        found = [waits(server, load) for load in LOADS]
        axes.plot(LOADS, found, marker, color=colour, ms=5, mfc="none", label=f"model: {server}")
    axes.set(xlabel="load ρ", ylabel="mean wait, in service times", xlim=(0, 0.95), ylim=(0, 5))
    axes.legend()
    return figure


def _wrr(plt: Any) -> Any:
    figure, axes = plt.subplots(figsize=(6.2, 3.0))
    for n, (name, colour) in enumerate(zip(CLASSES, (PUBLISHED, MODEL, "#1a9a6c"), strict=True)):
        at = [place + 0.26 * (n - 1) for place in range(len(RATIOS))]
        axes.bar(at, [100 * class_shares(ratio)[n] for ratio in RATIOS], 0.24, color=colour, label=name)
        for x, ratio in zip(at, RATIOS, strict=True):
            wanted = 100 * ratio[n] / sum(ratio)
            axes.plot([x - 0.13, x + 0.13], [wanted] * 2, color="black", lw=1.5)
    axes.set(xlabel="weights of high : medium : low", ylabel="bytes, % of all (log.)", yscale="log", ylim=(0.2, 130))
    axes.set_xticks(range(len(RATIOS)), [":".join(map(str, ratio)) for ratio in RATIOS])
    axes.set_yticks([0.3, 1, 3, 10, 30, 100], ["0.3", "1", "3", "10", "30", "100"])
    axes.plot([], [], color="black", lw=1.5, label="by weight")
    axes.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.16))
    return figure


def _p3700(plt: Any) -> Any:
    rows = published_figures.compare(
        published_figures.numbers("p3700"), published_figures.load_published("p3700").figures
    )
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.2, 3.0))
    for axes, what in ((left, "total"), (right, "price of a read")):
        found = {int(row.figure.name[2]): row for row in rows if row.figure.name.endswith(what)}
        axes.plot(list(found), [row.published for row in found.values()], "o-", color=PUBLISHED, label="Table 2")
        axes.plot(list(found), [row.model for row in found.values()], "s--", color=MODEL, label="model")
        axes.set(xlabel="K, readers of six jobs")
        axes.legend()
    left.set(ylabel="total, MB/s", ylim=(0, None))
    right.set(ylabel="price of a 16 KiB read, in writes", ylim=(0, 0.8))
    figure.tight_layout()
    return figure


def _collapse(plt: Any) -> Any:
    [published] = [
        f.published["mbps"] for f in published_figures.load_published("950pro").figures if "sustained" in f.name
    ]
    figure, axes = plt.subplots(figsize=(6.2, 3.0))
    for state, colour in zip(STATES, ("#1a9a6c", MODEL, "black"), strict=True):
        axes.plot(*zip(*collapse(state), strict=True), color=colour, lw=1.2, label=f"model, {state} at first")
    axes.axhline(published, color=PUBLISHED, ls="--", lw=1.2, label=f"Fig. 7: {published:g} MB/s")
    axes.set(xlabel="s of random writes, 6 jobs of 64 x 16 KiB", ylabel="MB/s (log.)", yscale="log", ylim=(20, 1500))
    axes.set_xlim(0, COLLAPSE_S)
    axes.set_yticks([30, 100, 300, 1000], ["30", "100", "300", "1000"])
    axes.legend()
    return figure


def _fits(plt: Any) -> Any:
    rows = {
        name: published_figures.compare(published_figures.numbers(name), published_figures.load_published(name).figures)
        for name in published_figures.names()
    }
    relative = [(name, row) for name, found in rows.items() for row in found if row.metric != "price"]
    relative.reverse()
    figure, axes = plt.subplots(figsize=(8.2, 0.19 * len(relative) + 0.8))
    axes.axvspan(-10, 10, color="#e2f3e3", lw=0)
    axes.axvline(0, color=THEORY, lw=1)
    for at, (_, row) in enumerate(relative):
        fill = "none" if row.figure.shown else MODEL
        axes.plot([100 * row.error], [at], "o", color=MODEL, mfc=fill, ms=5)
    axes.set_yticks(range(len(relative)), [f"{name}: {row.figure.name}" for name, row in relative])
    axes.tick_params(axis="y", labelsize=7.5, length=0)
    axes.set(xlabel="model against published, %; hollow: not held to a bound", ylim=(-0.7, len(relative) - 0.3))
    return figure


def _beside(plt: Any) -> Any:
    """As recorded: to measure it anew takes a VM. Filled: fl-nvme; hollow: vssd."""
    rows: list[Row] = json.loads((DOCS / BESIDE).read_text())
    names = list(dict.fromkeys(row["scenario"] for row in rows))
    figure, panels = plt.subplots(1, 4, figsize=(11.0, 3.3))
    for axes, (what, key) in zip(panels, PANELS.items(), strict=True):
        lists = [[[v] if isinstance(v, float) else v for v in row[key]] for row in rows]
        all_values = [value for places in lists for tenants in places for value in tenants]
        low, high = min(all_values) * 0.8, max(all_values) * 1.25
        axes.plot([low, high], [low, high], color=THEORY, lw=1)
        for row, (ours, *others) in zip(rows, lists, strict=True):
            colour, marker = MODEL if row["knob"] == OURS else PUBLISHED, "osd^v<>"[names.index(row["scenario"]) % 7]
            for theirs, fill in zip(others, ("none", colour), strict=True):
                axes.plot(ours, theirs, marker, color=colour, mfc=fill, ms=5, alpha=0.8)
        axes.set(title=what, xlabel=PLACES[0], xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
        axes.set_aspect("equal")
        ticks = [step * 10**power for power in range(5) for step in (1, 3) if low < step * 10**power < high]
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks([], minor=True)
            axis.set_ticks(ticks, [f"{tick:,}" for tick in ticks])
    panels[0].set(ylabel="in a VM")
    for n, name in enumerate(names):
        panels[0].plot([], [], "osd^v<>"[n % 7], color=THEORY, mfc="none", label=name.rpartition("/")[2])
    for knob, colour in ((BASELINE, PUBLISHED), (OURS, MODEL)):
        panels[0].plot([], [], "s", color=colour, label=knob)
    for place, fill in zip(PLACES[1:], ("none", THEORY), strict=True):
        panels[0].plot([], [], "o", color=THEORY, mfc=fill, label=place)
    figure.tight_layout()
    figure.legend(*panels[0].get_legend_handles_labels(), ncols=7, loc="upper center", bbox_to_anchor=(0.5, 0.02))
    return figure
