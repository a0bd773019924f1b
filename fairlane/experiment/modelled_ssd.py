# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The numbers of a modelled SSD, read from the lists in C that the model and the kernel module are made from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from fairlane.errors import FairlaneError
from fairlane.places import ROOT

# F(name, "unit", min, max, default, "help"): a number is decimal, or one shifted: 1ull << 50.
_NUMBER = r"\s*(\d+)(?:u?ll)?(?:\s*<<\s*(\d+))?\s*"
_FIELD = re.compile(rf'\bF\((\w+),\s*"([^"]*)",{_NUMBER},{_NUMBER},{_NUMBER},[\s\\]*"([^"]*)"')


@dataclass(frozen=True)
class Field:
    """A number that a drive has: whole, from low to high, in that unit."""

    name: str
    unit: str
    low: int
    high: int
    default: int
    help: str


def fields(path: Path) -> dict[str, Field]:
    """The list of fields in a header."""
    text = path.read_text()
    found = {}
    for name, unit, *numbers, said in _FIELD.findall(text):
        low, high, default = (int(n) << int(shift or 0) for n, shift in zip(numbers[::2], numbers[1::2], strict=True))
        found[name] = Field(name, unit, low, high, default, said)
    if len(found) != len(re.findall(r"\bF\((?!name\b)", text)):
        raise FairlaneError(f"{path}: has an F(...) that experiment/modelled_ssd.py cannot read")
    return found


PROFILE = fields(ROOT / "ssd" / "profile.h")  # of the model
PLAYED = fields(ROOT / "kernel" / "vssd" / "vssd.h")  # of how the kernel module plays it
