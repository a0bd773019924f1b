# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""How far something has got, and how long it still takes, for people."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

RECENT = 1 / 3  # of the time that has passed: how fast units are computed is seen from that
ENOUGH = 20  # units that were finished in it, to tell


@dataclass(frozen=True)
class Progress:
    """Where a scenario has got to."""

    step: str  # what is going on now, for people
    fraction: float  # of the whole scenario, 0..1
    left_s: float | None = None  # how long the rest takes; None: nobody knows better than the fraction tells
    news: bool = False  # something happened, of which people are to know


class Steps:
    """Turns the progress of one step after the other into that of the whole."""

    def __init__(self, total_s: float, tell: Callable[[Progress], None]) -> None:
        self.total_s, self.done_s, self.tell = total_s, 0.0, tell

    def step(self, name: str, length_s: float, part: float) -> None:
        self.tell(Progress(name, min(1.0, (self.done_s + length_s * part) / self.total_s)))

    def finish(self, length_s: float) -> None:
        self.done_s += length_s


@dataclass(frozen=True)
class Work:
    """One of many units: of a kind that is alike in cost, and what it is expected to cost, in any measure.

    A kind shares each of its traits, such as its scenario or its scheduler, with other kinds.
    """

    kind: str
    expected: float
    traits: tuple[str, ...] = ()


class TimeLeft:
    """How long the rest of many units takes, some of them at once.

    What a unit costs, in seconds of whoever computes it, is learnt from those that are finished: how many times what
    was expected its kind took. A kind of which little is known is taken to be in part as others that share its traits
    are, and those in part as all others. How fast that is done is seen from what was finished lately: workers come and
    go, and machines have other things to do.
    """

    def __init__(self, works: Mapping[str, Work], clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.began = clock, clock()
        self.left = dict(works)
        self.parts: dict[str, float] = {}  # of those that are being computed
        self.usual = _Sum()  # of all that is finished
        self.kinds: dict[str, _Kind] = {}
        self.traits: dict[tuple[int, str], _Sum] = {}
        for work in works.values():
            self.kinds.setdefault(work.kind, _Kind(work.traits)).add(work)
        self.all = sum(work.expected for work in works.values())
        self.latest: deque[tuple[float, float, Work]] = deque()  # when one was finished, and how long it took

    def begin(self) -> None:
        """Nothing was computed until now."""
        self.began = self.clock()

    def part(self, name: str, part: float) -> None:
        """That unit is so far, 0..1."""
        if name in self.left:
            self.parts[name] = part

    def finished(self, name: str, took_s: float) -> None:
        """That unit is finished, and took so many seconds of whoever computed it; 0 if that is not known."""
        work = self.left.pop(name, None)
        self.parts.pop(name, None)
        if work is None:
            return
        self.kinds[work.kind].finished(work, took_s)
        if not took_s:
            return
        self.usual.add(work.expected, took_s)
        for trait in enumerate(work.traits):
            self.traits.setdefault(trait, _Sum()).add(work.expected, took_s)
        self.latest.append((self.clock(), took_s, work))

    @property
    def fraction(self) -> float:
        """Of the work."""
        left = sum(kind.left for kind in self.kinds.values())
        begun = sum(self.left[name].expected * part for name, part in self.parts.items())
        return 1 - (left - begun) / self.all if self.all else 1.0

    def expected_s(self, work: Work) -> float | None:
        """How long one takes of whoever computes it; None as long as none is finished."""
        return work.expected * self._ratio(self.kinds[work.kind]) if self.usual.expected else None

    @property
    def left_s(self) -> float | None:
        """None as long as none is finished."""
        speed = self._speed()
        if not speed:
            return None
        left = sum(kind.left * self._ratio(kind) for kind in self.kinds.values() if kind.left)
        return max(0.0, left - self._begun_s()) / speed

    def _ratio(self, kind: _Kind) -> float:
        """Seconds for each that is expected, of that kind: as all others, times what each of its traits makes of it."""
        likely = self.usual.ratio
        for trait in enumerate(kind.traits):
            known = self.traits.get(trait)
            if known and self.usual.ratio:
                likely *= known.with_some(kind.one, self.usual.ratio) / self.usual.ratio
        return kind.known.with_some(kind.one, likely)

    def _begun_s(self, most_s: float = float("inf")) -> float:
        """Of units that are being computed, how much of what is expected is done: of each, the last so many seconds."""
        return sum(min(most_s, (self.expected_s(self.left[name]) or 0.0) * part) for name, part in self.parts.items())

    def _speed(self) -> float:
        """How many seconds of computing, as they are expected now, were done in a second lately."""
        now = self.clock()
        since = now - (now - self.began) * RECENT
        while self.latest and self.latest[0][0] < since:
            self.latest.popleft()
        if len(self.latest) < ENOUGH:
            since, done = self.began, self.usual.took_s
        else:  # of those that were begun before, what was done since
            recent = ((min(1.0, (when - since) / (took_s or 1.0)), work) for when, took_s, work in self.latest)
            done = sum(part * (self.expected_s(work) or 0.0) for part, work in recent)
        return (done + self._begun_s(now - since)) / (now - since) if now > since else 0.0


@dataclass
class _Sum:
    """Of units that are finished: what was expected of them, and what they took."""

    expected: float = 0.0
    took_s: float = 0.0

    def add(self, expected: float, took_s: float) -> None:
        self.expected += expected
        self.took_s += took_s

    @property
    def ratio(self) -> float:
        return self.took_s / self.expected if self.expected else 0.0

    def with_some(self, expected: float, ratio: float) -> float:
        """The ratio, if so much more had been of that other one: what little is known counts little."""
        return (self.took_s + expected * ratio) / (self.expected + expected) if expected else ratio


class _Kind:
    """Units that are alike in cost."""

    def __init__(self, traits: tuple[str, ...]) -> None:
        self.traits = traits
        self.count, self.all, self.left = 0, 0.0, 0.0
        self.known = _Sum()

    def add(self, work: Work) -> None:
        self.count += 1
        self.all += work.expected
        self.left += work.expected

    def finished(self, work: Work, took_s: float) -> None:
        self.left = max(0.0, self.left - work.expected)
        if took_s:
            self.known.add(work.expected, took_s)

    @property
    def one(self) -> float:
        """What one of them is expected to cost."""
        return self.all / self.count
