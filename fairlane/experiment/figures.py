# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Figures of a run: one formula for each, wherever it is printed or judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def jain(xs: Iterable[float]) -> float | None:
    """Jain's index, (sum x)^2 / (n sum x^2): 1 when all are equal, 1/n when one has everything, None when all are 0."""
    values = list(xs)
    squares = sum(x * x for x in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None


def share_errors(got: Mapping[str, float], ideal: Mapping[str, float]) -> dict[str, float]:
    """How far what each tenant got is from its ideal fraction of all that was got, relative to that; empty when nothing
    was got. Who has no ideal fraction, and so was not to get anything, only counts in the total."""
    total = sum(got.values())
    return {name: got[name] / total / share - 1 for name, share in ideal.items() if share} if total else {}


def share_error(got: Mapping[str, float], ideal: Mapping[str, float]) -> float | None:
    """The error of the tenant that is furthest from its share, without a sign."""
    return max(map(abs, share_errors(got, ideal).values()), default=None)


def fairness_index(got: Mapping[str, float], ideal: Mapping[str, float]) -> float | None:
    """Jain's index over what each got of its ideal fraction."""
    return jain(got[name] / share for name, share in ideal.items())
