# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Figures of a run: one formula for each, wherever it is printed or judged."""

from __future__ import annotations

from collections.abc import Iterable


def jain(xs: Iterable[float]) -> float | None:
    """Jain's index, (sum x)^2 / (n sum x^2): 1 when all are equal, 1/n when one has everything, None when all are 0."""
    values = list(xs)
    squares = sum(x * x for x in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None
