# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The host backend: runs a scenario on this machine's kernel, with real cgroups and fio as the load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairlane.results import Results
from fairlane.scenario import Scenario


@dataclass(frozen=True)
class Progress:
    """Where a scenario has got to."""

    step: str  # what is going on now, for people
    fraction: float  # of the whole scenario, 0..1


def run(
    scenario: Scenario,
    device: str,
    knobs: list[str],
    out: Path,
    progress: Callable[[Progress], None],
    *,
    destroy_data: str | None = None,
) -> Results:
    """Run the scenario under each knob in turn on the named block device; OUT keeps fio's job files and output."""
    raise NotImplementedError
