# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Units: runs of fl-sim, each whole in itself, which a place computes in any order."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fairlane.backends.fl_sim import Simulation, description, expected_requests
from fairlane.backends.job import Job, Tell
from fairlane.backends.program import Played
from fairlane.progress import Progress, TimeLeft, Work

OFTEN_S = 0.05  # between two tellings of the progress
REQUEST_S = 0.5e-6  # of computing that a simulated request takes, roughly


@dataclass(frozen=True)
class Unit:
    what: Simulation
    cpu: dict[str, Any]  # what microbench/ measured
    folder: Path  # for what fl-sim is given and finds

    @property
    def job(self) -> Job:
        return self.what.job

    @property
    def name(self) -> str:
        """Of its files in the folder."""
        return self.job.name if self.job.raw else self.job.id.replace("/", "-")

    @property
    def given(self) -> dict[str, Any]:
        """What fl-sim is given. Traces are files of this machine."""
        return description(self.what, self.cpu)


def expected_s(what: Simulation) -> float:
    """Of computing; roughly, before any was run."""
    return expected_requests(what) * REQUEST_S


def _work(what: Simulation) -> Work:
    """Units of one scenario, drive and scheduler are alike in cost; those that share one of these, in part."""
    traits = (what.job.scenario.name, what.drive.name, what.job.variant.name)
    return Work(" ".join(traits), expected_s(what), traits)


class Told:
    """What is said of the progress of all units. From any thread."""

    def __init__(self, units: Sequence[Unit], tell: Tell) -> None:
        self.tell, self.lock = tell, threading.Lock()
        self.time = TimeLeft({unit.job.id: _work(unit.what) for unit in units})
        self.steps = _steps(units)
        self.last = float("-inf")  # when something was said
        self.begun = False

    def begin(self) -> None:
        """The first is begun now, if none was before."""
        if not self.begun:
            self.time.begin()
        self.begun = True

    def part(self, unit: Unit, part: float) -> None:
        """The unit is so far, 0..1."""
        with self.lock:
            self.time.part(unit.job.id, part)
            self._say(unit)

    def finished(self, unit: Unit, found: Played) -> None:
        with self.lock:
            self.time.finished(unit.job.id, found.took_s)
            self._say(unit)

    def say(self, text: str) -> None:
        """Something that happened."""
        with self.lock:
            self.tell(Progress(text, self.time.fraction, self.time.left_s, news=True))

    def expected_s(self, unit: Unit) -> float:
        """How long it takes, as far as is known by now."""
        with self.lock:
            known = self.time.expected_s(_work(unit.what))
        return expected_s(unit.what) if known is None else known

    def _say(self, unit: Unit) -> None:
        now = time.monotonic()
        if now - self.last < OFTEN_S and self.time.left:
            return
        self.last = now
        step = self.steps[id(unit.job.scenario)]
        self.tell(Progress(step, self.time.fraction, self.time.left_s))


def _steps(units: Sequence[Unit]) -> dict[int, str]:
    """What is going on, for people: runs of one scenario."""
    same: dict[int, list[Simulation]] = {}
    for unit in units:
        same.setdefault(id(unit.job.scenario), []).append(unit.what)
    return {key: _step(whats) for key, whats in same.items()}


def _step(same: Sequence[Simulation]) -> str:
    scenario, count = same[0].scenario, len(same)
    names = dict.fromkeys(what.job.variant.name for what in same)
    what = f"{', '.join(names)} on a simulated {same[0].drive.name}"
    runs = f"{count} runs of" if count > 1 else "a run of"
    cores = f"{scenario.cores} core{'s' * (scenario.cores > 1)}"
    return f"{what} with {cores}, {runs} {scenario.warmup + scenario.seconds:g} simulated s"


class Place(Protocol):
    """Where units are computed."""

    def play(self, units: Sequence[Unit], told: Told) -> Generator[tuple[Unit, Played], None, None]:
        """Each unit once, as soon as it is finished."""
