# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Values of a TOML file: each converter takes what TOML gave, and raises ValueError with what would be valid."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fairlane.errors import FairlaneError, offer
from fairlane.experiment.model import Rate

SIZE_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
MAX_SECONDS = 7 * 24 * 3600.0
LATENCIES_S = 1e-6, 10.0  # targets
TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}

T = TypeVar("T")
D = TypeVar("D")


class Table:
    """One table of a file; every error names the file, the table and the key, and what would be valid."""

    def __init__(
        self, path: Path, where: str, data: object, inherited: Mapping[str, str] = {}, lines: Mapping[str, int] = {}
    ) -> None:
        """inherited: keys that come from another table, and which. lines: of keys, if known, and of "", the table."""
        self.path, self.where, self.inherited, self.lines = path, where, inherited, lines
        if not isinstance(data, dict):
            raise FairlaneError(f"{self.place('')}: {where} must be a table")
        self.data: dict[str, Any] = data

    def place(self, key: str) -> str:
        """FILE:LINE, or just the file."""
        line = self.lines.get(key, self.lines.get(""))
        return f"{self.path}:{line}" if line else str(self.path)

    def error(self, key: str, problem: str) -> FairlaneError:
        return FairlaneError(f"{self.place(key)}: {self.inherited.get(key, self.where)} {key}: {problem}")

    def only(self, valid: Sequence[str]) -> None:
        for key in self.data:
            if key not in valid:
                raise self.error(key, f"unknown key; {offer(key, valid)}")

    def need(self, key: str, convert: Callable[[object], T]) -> T:
        if key not in self.data:
            raise self.error(key, "is missing")
        try:
            return convert(self.data[key])
        except ValueError as error:
            raise self.error(key, str(error)) from error

    def take(self, key: str, convert: Callable[[object], T], default: D) -> T | D:
        return self.need(key, convert) if key in self.data else default


def read_toml(path: Path, what: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise FairlaneError(f"{path}: cannot be read as {what}: {error.strerror}; give the path of one") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FairlaneError(f"{path}: not valid TOML: {error}") from error


def as_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def as_name(value: object) -> str:
    """A name that can be a cgroup's folder and a part of a fio job's name."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", value):
        raise ValueError(f"{value!r} is not a name; use letters, digits, - and _")
    return value


def as_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def as_boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is not true or false")
    return value


def as_integer(low: int, high: int) -> Callable[[object], int]:
    def convert(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{value!r} is not a whole number from {low} to {high}")
        return value

    return convert


def as_one_of(valid: Sequence[str]) -> Callable[[object], str]:
    def convert(value: object) -> str:
        if not isinstance(value, str) or value not in valid:
            raise ValueError(f"{value!r} is unknown; {offer(str(value), valid)}")
        return value

    return convert


def as_sizes(value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not a table of tunables and their values")
    return {key: parse_size(item) for key, item in value.items()}


def as_list(convert: Callable[[object], T]) -> Callable[[object], tuple[T, ...]]:
    def convert_all(value: object) -> tuple[T, ...]:
        if not isinstance(value, list) or not value:
            raise ValueError(f"{value!r} is not a list with something in it")
        return tuple(convert(item) for item in value)

    return convert_all


def as_positive(convert: Callable[[object], float]) -> Callable[[object], float]:
    def convert_positive(value: object) -> float:
        number = convert(value)
        if number <= 0:
            raise ValueError(f"{value!r} must be more than 0")
        return number

    return convert_positive


def as_span(value: object) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{value!r} is not a list of two times, [from, to]")
    start, stop = (parse_time(item) for item in value)
    if not start < stop:
        raise ValueError(f"{value!r} ends before it starts")
    return start, stop


def as_positive_size(value: object) -> int:
    size = parse_size(value)
    if size <= 0:
        raise ValueError(f"{value!r} must be more than 0")
    return size


def parse_size(value: object) -> int:
    """Bytes from 4096 or "4KiB"."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number, unit = _split(value, SIZE_UNITS, "size", "bytes")
    return int(number * SIZE_UNITS[unit])


def parse_time(value: object) -> float:
    """Seconds from 0.1, 2 or "100ms"."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    else:
        number, unit = _split(value, TIME_UNITS, "time", "seconds")
        seconds = number * TIME_UNITS[unit]
    if not 0 <= seconds <= MAX_SECONDS:  # neither is NaN
        raise ValueError(f"{value!r} is no time from 0 to a week")
    return seconds


def as_latency(value: object) -> float:
    """A target in seconds, or 0: none."""
    seconds, (least, most) = parse_time(value), LATENCIES_S
    if seconds and not least <= seconds <= most:
        raise ValueError(f"{value!r} is neither 0 (no target) nor from 1 us to {most:g} s")
    return seconds


def parse_rate(value: object) -> Rate:
    """A limit from "1000 iops" or "8MiB/s"."""
    units = ["iops", *(f"{unit}/s" for unit in SIZE_UNITS)]
    number, unit = _split(value, units, "rate")
    if number <= 0:
        raise ValueError(f"{value!r} must be more than 0")
    return Rate(iops=number) if unit == "iops" else Rate(bytes_per_s=number * SIZE_UNITS[unit.removesuffix("/s")])


def _split(value: object, units: Iterable[str], what: str, plain: str | None = None) -> tuple[float, str]:
    """A text's number and unit; a number without one, and without quotes, counts those that plain names."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *([A-Za-z/]+)", value) if isinstance(value, str) else None
    if match is None or match[2] not in units:
        bare = f"; a number of {plain} has neither unit nor quotes" if plain else ""
        raise ValueError(f"{value!r} is not a {what} with a known unit; valid are {', '.join(units)}{bare}")
    return float(match[1]), match[2]
