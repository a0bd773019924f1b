# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""How a figure is written, in pages and tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# A scheduler isolates, more or less, while every tenant is within so many percent of its share.
WITHIN = 25


@dataclass(frozen=True)
class Pair:
    """A figure of both, as text, and how many times that of the first the second is."""

    figure: str
    first: str
    second: str
    ratio: float | None


def relative(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def pair(figure: str, show: Callable[[float], str], x: float | None, y: float | None) -> Pair:
    first, second = ("–" if value is None else show(value) for value in (x, y))
    return Pair(figure, first, second, relative(y, x))


def fmt_rate(value: float) -> str:
    """Bytes per second."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if value >= size:
            return f"{_short(value / size)} {unit}"
    return f"{value:.0f} B/s"


def fmt_iops(value: float) -> str:
    return f"{_short(value / 1e3)} k IOPS" if value >= 1e4 else f"{value:,.0f} IOPS"


def fmt_ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def fmt_share(value: float | None) -> str:
    return "–" if value is None else f"{value * 100:.1f} %"


def fmt_error(value: float | None) -> str:
    """A relative deviation, without a sign; rounded up: what is over a bound does not look as if it were not."""
    if value is None:
        return "–"
    tenths = math.ceil(value * 1000 - 1e-6)
    return f"{tenths / 10:.1f} %" if tenths < 100 else f"{percent_up(value)} %"


def fmt_signed(value: float | None) -> str:
    if value is None:
        return "–"
    error = fmt_error(abs(value))
    sign = "" if error == fmt_error(0.0) else "+" if value > 0 else "−"
    return sign + error


def fmt_us(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def fmt_left(seconds: float) -> str:
    """How long something still takes."""
    if seconds < 90:
        return f"about {max(1.0, seconds):.0f} s left"
    return f"about {seconds / 60:.0f} min left" if seconds < 5400 else f"about {seconds / 3600:.1f} h left"


def fmt_value(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(fmt_value(v) for v in value)
    return str(value)


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def fmt_us_tick(us: float) -> str:
    """A power of ten of microseconds, short enough for the axis."""
    return f"{us:g} µs" if us < 1e3 else f"{us / 1e3:g} ms" if us < 1e6 else f"{us / 1e6:g} s"


def percent_up(error: float) -> int:
    """Rounded up, so that a sentence with it stays true."""
    return max(1, math.ceil(error * 100 - 1e-9))


def flat(value: object, path: str = "") -> list[tuple[str, str]]:
    """Nested settings as lines of (dotted name, value)."""
    if isinstance(value, Mapping):
        return [line for key, inner in value.items() for line in flat(inner, f"{path} › {key}" if path else str(key))]
    return [(path, fmt_value(value))]


def fmt_drive(device: Mapping[str, Any]) -> str:
    """Which drive it is, in a few words; empty if that is not known. Its results' device, or a map's drive."""
    return str(device.get("description") or device.get("model") or "").partition(":")[0]  # the rest: what it is for
