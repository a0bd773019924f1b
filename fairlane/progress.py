# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""How far something has got, for people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Where a scenario has got to."""

    step: str  # what is going on now, for people
    fraction: float  # of the whole scenario, 0..1


class Steps:
    """Turns the progress of one step after the other into that of the whole."""

    def __init__(self, total_s: float, tell: Callable[[Progress], None]) -> None:
        self.total_s, self.done_s, self.tell = total_s, 0.0, tell

    def step(self, name: str, length_s: float, part: float) -> None:
        self.tell(Progress(name, min(1.0, (self.done_s + length_s * part) / self.total_s)))

    def finish(self, length_s: float) -> None:
        self.done_s += length_s
