# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The time left is right within a quarter from a tenth of the work on, whatever units cost, and on as many workers."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence

import pytest

from fairlane.formats import fmt_left
from fairlane.progress import TimeLeft, Work

Unit = tuple[str, Work, float]  # its name, what is expected, and how many seconds it really takes


def errors(units: Sequence[Unit], workers: int, slower: float = 1.0) -> list[float]:
    """How far off the time left is, relative to what it really is: from a tenth of the time to nine tenths."""
    now = 0.0
    told = TimeLeft({name: work for name, work, _ in units}, lambda: now)
    waiting, running, said = list(units), list[tuple[float, str, float]](), list[tuple[float, float | None]]()
    while waiting or running:
        while waiting and len(running) < workers:
            name, _, took = waiting.pop(0)
            took *= slower
            heapq.heappush(running, (now + took, name, took))
        now, name, took = heapq.heappop(running)
        told.finished(name, took)
        for end, other, length in running:
            told.part(other, 1 - (end - now) / length)
        said.append((now, told.left_s))
    return [abs((left or 0.0) / (now - at) - 1) for at, left in said if now * 0.1 <= at <= now * 0.9]


def units(count: int, cost: Callable[[random.Random, int], tuple[float, float]]) -> list[Unit]:
    """Of ten kinds; cost: what is expected, and what it takes."""
    rng = random.Random(1)
    found = []
    for n in range(count):
        expected, took = cost(rng, n % 10)
        found.append((f"u{n}", Work(f"k{n % 10}", expected), took))
    rng.shuffle(found)
    return found


@pytest.mark.parametrize("workers", [1, 2, 8])
@pytest.mark.parametrize(
    "cost",
    [
        pytest.param(lambda rng, kind: (1.0, 4.0), id="alike, four times what was expected"),
        pytest.param(lambda rng, kind: (1.0, 0.1 + kind), id="each kind another"),
        pytest.param(lambda rng, kind: (1.0 + kind, (1.0 + kind) * rng.uniform(0.05, 0.4)), id="of some spread"),
        pytest.param(lambda rng, kind: (1.0, 10.0 if kind == 3 else 0.5), id="a tenth of them take most of the time"),
    ],
)
def test_it_is_right_within_a_quarter(workers: int, cost: Callable[[random.Random, int], tuple[float, float]]) -> None:
    assert max(errors(units(2000, cost), workers)) < 0.25


@pytest.mark.parametrize("workers", [1, 2])
def test_few_units_of_many_kinds_are_known_by_what_they_share(workers: int) -> None:
    """150 units, two of each kind; what one takes is up to its scenario and its scheduler."""
    rng = random.Random(7)
    scenarios, knobs = ([rng.uniform(0.5, 1.5) for _ in range(count)] for count in (15, 5))
    found = [
        (f"u{n}-{a}-{b}", Work(f"{a} {b}", 1.0, (f"{a}", f"{b}")), scenarios[a] * knobs[b] * rng.uniform(0.9, 1.1))
        for n in range(2)
        for a in range(15)
        for b in range(5)
    ]
    rng.shuffle(found)
    assert max(errors(found, workers)) < 0.25


def test_a_worker_that_is_added_counts_soon() -> None:
    now = 0.0
    told = TimeLeft({f"u{n}": Work("k", 1.0) for n in range(1000)}, lambda: now)
    for n in range(500):
        now += 1.0
        told.finished(f"u{n}", 1.0)
    assert told.left_s == pytest.approx(500, rel=0.01)
    for n in range(500, 900):
        now += 0.5
        told.finished(f"u{n}", 1.0)
    assert told.left_s == pytest.approx(50, rel=0.15)


def test_a_machine_that_has_something_else_to_do_counts_soon() -> None:
    now = 0.0
    told = TimeLeft({f"u{n}": Work("k", 1.0) for n in range(1000)}, lambda: now)
    for n in range(800):
        took = 1.0 if n < 400 else 2.0
        now += took
        told.finished(f"u{n}", took)
    assert told.left_s == pytest.approx(400, rel=0.02)


def test_before_anything_is_finished_nobody_knows() -> None:
    told = TimeLeft({"u": Work("k", 1.0)}, lambda: 0.0)
    assert (told.left_s, told.fraction) == (None, 0.0)


def test_nothing_is_left_when_all_is_finished() -> None:
    now = 0.0
    told = TimeLeft({"u": Work("k", 1.0)}, lambda: now)
    now = 3.0
    told.finished("u", 3.0)
    assert (told.left_s, told.fraction) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "about 1 s left"), (89, "about 89 s left"), (420, "about 7 min left"), (9000, "about 2.5 h left")],
)
def test_how_it_is_said(seconds: float, said: str) -> None:
    assert fmt_left(seconds) == said
