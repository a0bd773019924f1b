# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A drive's weighted round robin (WRR): what is set and measured of it, and what that says.

Tenants with deep queues read, each from one priority's queues. By the standard, a round gives each priority as many
commands as its weight, in turns of a burst at most: so shares are the weights', whatever the burst and however many
queues a priority has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

CLASSES = ("high", "medium", "low")
NO_LIMIT = 7  # as a burst's exponent
Three = tuple[int, int, int]
Shares = tuple[float, float, float]


@dataclass(frozen=True)
class Asked:
    """What the drive is set to, and how it is loaded."""

    weights: Three
    burst: int = 0  # n: 2^n commands; NO_LIMIT: any number
    uneven: bool = False  # high and low come through one hardware queue, medium through all; else all through all
    shallow: bool = False  # high has a quarter of the reads outstanding that it has else


# Each rule below that is not the standard's is far from it in one of these, and from every other.
SETTINGS = (
    Asked((1, 1, 1), shallow=True),
    Asked((4, 2, 1)),
    Asked((16, 4, 1)),
    Asked((256, 16, 1)),
    Asked((16, 4, 1), 3),
    Asked((16, 4, 1), NO_LIMIT),
    Asked((1, 4, 1), uneven=True),
)
WITHOUT = Asked((16, 4, 1))  # is measured where there are no priorities: that it has no effect


@dataclass(frozen=True)
class Point:
    """What came of it."""

    weights: Three  # as the drive has them
    burst: int
    queues: Three  # hardware queues that each priority's commands came through
    depths: Three  # reads outstanding
    iops: Shares
    busy: float  # of its time, the CPU of the load's that had most to do; 0..1
    before: tuple[Shares, ...] = ()  # shares in runs that this one repeats, as they differed from the others
    asked: Three | None = None  # weights, of which the drive has made others

    @property
    def shares(self) -> Shares:
        return _shares(self.iops)

    @property
    def due(self) -> Shares:
        return _shares(self.weights)


def _shares(values: Sequence[float]) -> Shares:
    total = sum(values) or 1.0
    high, medium, low = (value / total for value in values)
    return high, medium, low


# --- What the drive may go by ---

WORKS, BURSTS, EQUAL, BY_QUEUE, BY_DEPTH = "weights", "whole bursts", "equal priorities", "equal queues", "depth"


def _whole_bursts(point: Point) -> Sequence[float]:
    """A priority's turn is not cut short when its weight is used up."""
    burst = 1 << point.burst
    return [-(-weight // burst) * burst for weight in point.weights]


# The first of those that fit as well.
RULES: dict[str, Callable[[Point], Sequence[float]]] = {
    WORKS: lambda point: point.weights,
    EQUAL: lambda _point: (1, 1, 1),
    BY_QUEUE: lambda point: point.queues,
    BY_DEPTH: lambda point: point.depths,
    BURSTS: _whole_bursts,
}
NEAR = 0.08  # of the drive, that may go to others than a rule says
BUSY = 0.9  # from that on the CPUs, and not the drive, may be what is short


def off(point: Point, rule: str = WORKS) -> float:
    """The part of the drive that went to others than the rule says."""
    return sum(abs(got - due) for got, due in zip(point.shares, _shares(RULES[rule](point)), strict=True)) / 2


def rule_of(points: Sequence[Point]) -> str | None:
    """What fits best at the point where it fits worst; None: nothing fits."""
    worst = {rule: max(off(point, rule) for point in points) for rule in RULES}
    best = min(worst, key=worst.__getitem__)
    return best if worst[best] <= NEAR else None


def odd(points: Sequence[Point]) -> list[int]:
    """Those that do not fit the rule that most of them fit: something else may have been the matter."""
    near = {rule: [off(point, rule) <= NEAR for point in points] for rule in RULES}
    usual = max(near.values(), key=sum)
    return [number for number, fits in enumerate(usual) if not fits]


# --- What is known without measuring ---


@dataclass(frozen=True)
class Seen:
    """A drive and its driver."""

    device: str
    model: str
    driver: bool | None  # whether our driver was told to use priorities; None: it is Linux's own
    has: bool | None  # CAP.AMS: it has WRR; None: its registers cannot be read here
    on: bool | None  # CC.AMS: WRR is on; None: the same
    refused: str | None  # why the driver takes no scheduler that chooses priorities
    recommended: int  # the burst that it recommends: 2^n


DRIVERS = {None: "Linux's own driver", False: "our driver without wrr=1", True: "our driver with wrr=1"}  # Seen.driver


@dataclass(frozen=True)
class Verdict:
    """Whether it works, the evidence, and what to do."""

    works: bool
    says: str
    evidence: tuple[str, ...]
    means: str


@dataclass(frozen=True)
class Found:
    """All that is told of a drive."""

    seen: Seen
    points: list[Point] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        return judge(self.seen, self.points)


UNREADABLE = "its registers cannot be read while this kernel's driver has them"
USE = "see docs/nvme.md"
FAIRLANE = "fairlane, and all of ours but d2fq, do without WRR"


def judge(seen: Seen, points: Sequence[Point]) -> Verdict:
    """Whether the drive's WRR works, of what was seen and measured."""
    if seen.refused:
        says, means = _no_effect(seen)
        return Verdict(False, f"no effect: {says}", (*_registers(seen), *_equal_all_the_same(points)), means)
    rule = rule_of(points)
    worst = max(points, key=off)
    evidence = (*_registers(seen), f"the most that went to others than the weights say: {_of(worst)}")
    evidence += tuple(f"repeated: {fmt(was)} % at first, and {_of(point)}" for point in points for was in point.before)
    changed = [(point.asked, point.weights) for point in points if point.asked]
    evidence += tuple(f"asked for weights {_ratio(asked)}, it took {_ratio(took)}" for asked, took in changed)
    if changed and len({point.weights for point in points}) == 1:
        return Verdict(False, f"weights cannot be set: they stay {_ratio(worst.weights)}", evidence, _IGNORED)
    if rule == WORKS:
        but = ", but it changes some that it is asked for" if changed else ""
        return Verdict(
            True,
            f"works: shares are the weights', whatever the burst{_and_queues(points)}{but}",
            evidence,
            f"d2fq can leave all to this drive (high got {_most(points):.0f} times what low did, at most); {FAIRLANE}",
        )
    if (busy := max(point.busy for point in points)) > BUSY:
        return Verdict(
            False,
            "not known: the CPUs were short, so the drive may have had nothing to choose from",
            (*evidence, f"CPUs were busy for up to {busy:.0%} of the time"),
            "try again on a machine that does nothing else, or with a slower drive",
        )
    says, means = _WRONG[rule]
    return Verdict(False, says, evidence, means)


_IGNORED = f"d2fq would share as none does, so do not use it on this drive; {FAIRLANE}"
_WRONG = {
    EQUAL: ("weights are ignored: all priorities get the same", _IGNORED),
    BY_QUEUE: ("weights are ignored: all queues get the same, of whatever priority", _IGNORED),
    BY_DEPTH: (
        "not known: the drive takes all that is outstanding before it chooses, so shares are those of depths",
        f"d2fq has no effect on loads as deep as these; {FAIRLANE}",
    ),
    BURSTS: (
        "bursts count as 2^n: a priority gets whole bursts, however small its weight",
        f"d2fq works as long as a burst is one command, as our driver sets it, and nobody sets another; {FAIRLANE}",
    ),
    None: (
        "shares follow neither the weights nor anything else that is known here",
        f"do not rely on d2fq here: compare its shares with `fairlane bench` first; {FAIRLANE}",
    ),
}


_WHO = {None: "Linux's own driver", False: "our driver, which was loaded without wrr=1,"}


def _no_effect(seen: Seen) -> tuple[str, str]:
    """Why, and what that means."""
    if seen.has is False:
        return "the controller has no WRR (CAP.AMS)", f"d2fq cannot be used on this drive; {FAIRLANE}"
    if seen.driver:
        return (
            f"our driver found no WRR, or too few submission queues ({seen.refused})",
            f"the kernel's log says which; d2fq cannot be used on this drive; {FAIRLANE}",
        )
    if seen.has is None:
        hidden = f"whether this drive has WRR cannot be seen, as {UNREADABLE}; our patched driver, with wrr=1, tells"
        return f"{_WHO[seen.driver]} does not turn WRR on (it sets CC.AMS to 0)", f"{hidden} ({USE}); {FAIRLANE}"
    todo = "use our patched driver, with wrr=1" if seen.driver is None else "load it with wrr=1"
    says = f"{_WHO[seen.driver]} does not turn WRR on (CC.AMS = 0)"
    return says, f"d2fq is refused until then: {todo} ({USE}); {FAIRLANE}"


def _registers(seen: Seen) -> tuple[str, ...]:
    if seen.has is None:
        said = f"CAP.AMS and CC.AMS are not known: {UNREADABLE}"
        if not seen.refused:
            said += "; that our driver offers priorities says that both are set"
    else:
        said = f"CAP.AMS: {'WRR' if seen.has else 'no WRR'}; CC.AMS: {'WRR' if seen.on else 'round robin'}"
    return said, f"it recommends bursts of {1 << seen.recommended}" if seen.recommended < NO_LIMIT else "any burst"


def _equal_all_the_same(points: Sequence[Point]) -> tuple[str, ...]:
    """That weights were set, and who got what."""
    return tuple(f"the weights were set, and of no effect: {_of(point)}" for point in points)


def _and_queues(points: Sequence[Point]) -> str:
    return " and the number of queues" if any(len(set(point.queues)) > 1 for point in points) else ""


def _most(points: Sequence[Point]) -> float:
    """In bursts of one command, which are d2fq's; in a short run with others low may get none."""
    return max((high / low for high, _, low in (point.iops for point in points if not point.burst) if low), default=1.0)


def _of(point: Point) -> str:
    burst = "without a limit of bursts" if point.burst == NO_LIMIT else f"in bursts of {1 << point.burst}"
    return f"{fmt(point.due)} % due, {fmt(point.shares)} % got, at weights {_ratio(point.weights)} {burst}"


def _ratio(weights: Three) -> str:
    return ":".join(map(str, weights))


def fmt(shares: Shares) -> str:
    """In percent."""
    return ":".join(f"{100 * share:.1f}" for share in shares)
