# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Results as a table in Markdown, for a README or an issue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairlane.experiment.results import Results
from fairlane.experiment.summary import OURS, points
from fairlane.formats import fmt_error, fmt_ratio


def table(found: Sequence[Results], titles: Mapping[str, tuple[str, str]]) -> str:
    """A row for each knob: under each load the total relative to none's, and the worst error of a share."""
    rows = [{point.knob: point for point in points(each) if point.cgroups is None} for each in found]
    heads = ["knob"]
    for each in found:
        load = titles[each.scenario][1] if each.scenario in titles else each.scenario
        heads += [f"{load}: total (none = 1)", "worst share off by"]
    lines = [heads, ["---", *["---:"] * (2 * len(found))]]
    for knob in dict.fromkeys(knob for row in rows for knob in row):
        cells = [knob]
        for row in rows:
            point = row.get(knob)
            cells += [fmt_ratio(point.vs_none), fmt_error(point.share_error)] if point else ["", ""]
        lines.append([f"**{cell}**" if cell else "" for cell in cells] if knob == OURS else cells)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
