# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""One picture of what a tenant's latency costs under each knob: an SVG that stands alone, for a README or a slide.

P99 of a latency-critical tenant over the total, for every setting that the suite's trade-off tried, beside the limit.
"""

from __future__ import annotations

from pathlib import Path

from fairlane.errors import FairlaneError
from fairlane.experiment.results import Results
from fairlane.formats import fmt_drive
from fairlane.isolbench.bench import Bench, Found
from fairlane.pages.bench_page import tradeoff_plot, tradeoffs
from fairlane.pages.template import save, template

# All in SVG units, which are CSS pixels at the picture's own size.
LEFT, TOP, WIDTH, HEIGHT, RIGHT, BOTTOM = 62, 102, 470, 300, 128, 44


def write(suite: Bench, made: Found, path: Path) -> None:
    """Raises FairlaneError if that run has no trade-off yet."""
    e = made.evidence
    ran = [unit for unit in e.units if unit.part == "d3" and unit.experiment == "latency" and e.results[unit.id].runs]
    plot = tradeoff_plot(tradeoffs(e, "latency"), "latency") if ran else None
    if plot is None:
        raise FairlaneError(
            f"{suite.store.folder} has no trade-off to draw: run d3, or go on with it, by the same command"
        )
    drive, host = _where(e.results[ran[0].id])
    save(
        template("front.svg.j2").render(
            drive=drive,
            host=host,
            plot=plot,
            left=LEFT,
            top=TOP,
            area=WIDTH,
            tall=HEIGHT,
            width=LEFT + WIDTH + RIGHT,
            height=TOP + HEIGHT + BOTTOM,
        ),
        path,
    )


def _where(found: Results) -> tuple[str, str]:
    """The drive, and what it was run on."""
    drive = fmt_drive(found.device) or str(found.device.get("name") or "a drive")
    slower = found.device.get("time_scale") or 1
    host = f"Linux {found.kernel}, {found.backend}" if found.kernel else "simulated"
    return drive, host + (f", slowed down {slower} times" if slower > 1 else "")
