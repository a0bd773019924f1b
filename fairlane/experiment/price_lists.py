# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Price lists: what a request takes from a drive, in units of the reference request, the write of one of its pages.

A price list is TOML; `fairlane calibrate` writes it, and a person can:

    page = "16KiB"      # the reference request is the write of so much, and so costs 1

    [price.read]        # of a request of that size, a power of two from 512 B to 1 MiB
    16KiB = 0.64
    32KiB = 1.21

    [price.write]
    16KiB = 1.0
    32KiB = 2.0

Sizes that are not there: below the page, the page's price in proportion; above it, twice that of half the size, or what
the next larger one that is there costs, if that is less. What is no power of two costs as its parts do, 12 KiB as 8 KiB
and 4 KiB (libfairlane/mechanisms/prices.h, which this mirrors).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlane.errors import FairlaneError
from fairlane.places import PROFILES

FOLDER = PROFILES / "prices"
ONE = 4096  # libfairlane/mechanisms/prices.h: FL_COST_ONE, SIZES, FL_PRICE_MAX
SIZES = tuple(512 << i for i in range(12))
PRICE_MAX = ONE << 12
NAMES = {
    size: f"{size}B" if size < 1024 else f"{size >> 10}KiB" if size < 1 << 20 else f"{size >> 20}MiB" for size in SIZES
}
BYTES = {name: size for size, name in NAMES.items()}
OPS = ("read", "write")


@dataclass(frozen=True)
class PriceList:
    """Prices of SIZES in units of 1/ONE of the reference request, as kernel and simulator take them."""

    name: str
    page: int  # bytes
    read: tuple[int, ...]
    write: tuple[int, ...]

    def cost(self, op: str, size: int) -> float:
        """Of one request of that many bytes, in reference requests: fl_cost() of libfairlane/mechanisms/prices.h."""
        prices = self.read if op == "read" else self.write
        largest = SIZES[-1]
        total = size // largest * prices[-1]
        total += sum(price for part, price in zip(SIZES, prices, strict=True) if size % largest & part)
        return max(1, total) / ONE

    def text(self) -> str:
        """What queue/iosched/prices and fl_set_prices() take."""
        return "".join(
            f"{op} {' '.join(map(str, prices))}\n" for op, prices in (("read", self.read), ("write", self.write))
        )


def load(what: str, beside: Path = Path()) -> PriceList:
    """The price list of that name in profiles/prices, or in the file of that path, relative to the folder `beside`."""
    path = FOLDER / f"{what}.toml" if what in names() else beside / what
    try:
        data = tomllib.loads(path.read_text())
    except OSError as error:
        known = ", ".join(names()) or "there is none"
        raise FairlaneError(
            f"{path}: cannot be read as a price list: {error.strerror}; give a path or a name ({known})"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FairlaneError(f"{path}: not valid TOML: {error}") from error
    try:
        return _list(what, data)
    except ValueError as error:
        raise FairlaneError(f"{path}: {error}") from error


def names() -> list[str]:
    """The price lists that come with the profiles."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def _list(name: str, data: Mapping[str, Any]) -> PriceList:
    page = data.get("page")
    if page not in BYTES:
        raise ValueError(f"page: {page!r} is not a size such as 16KiB; valid are {', '.join(BYTES)}")
    prices = data.get("price")
    if not isinstance(prices, dict) or set(prices) != set(OPS):
        raise ValueError("price: must be two tables, [price.read] and [price.write]")
    lists = [make(prices[op], BYTES[page], f"[price.{op}]") for op in OPS]
    found = PriceList(name, BYTES[page], *lists)
    if found.cost("write", found.page) != 1:
        raise ValueError(f"[price.write]: {page} must be 1.0: a write of one page is the reference request")
    return found


def make(prices: Mapping[str, object], page: int, where: str) -> tuple[int, ...]:
    """Prices of all sizes in units of 1/ONE from those of some, by name, in reference requests."""
    known = dict(_prices(prices, where))
    if page not in known:
        raise ValueError(f"{where}: {NAMES[page]}, one page, is missing")
    found: list[int] = []
    for size in SIZES:
        if size in known:
            price = known[size] * ONE
        elif size < page:
            price = known[page] * ONE * size / page
        else:
            next_larger = [known[other] * ONE for other in sorted(known) if other > size][:1]
            price = min([2.0 * found[-1], *next_larger])
        found.append(max(1, round(price)))
    if found[-1] > PRICE_MAX:
        raise ValueError(f"{where}: 1 MiB costs more than {PRICE_MAX // ONE} reference requests; is page right?")
    return tuple(found)


def _prices(prices: object, where: str) -> Iterator[tuple[int, float]]:
    if not isinstance(prices, Mapping):
        raise ValueError(f"{where}: must be a table of prices by size")
    for name, price in prices.items():
        if name not in BYTES:
            raise ValueError(f"{where}: {name} is not a size; valid are {', '.join(BYTES)}")
        if isinstance(price, bool) or not isinstance(price, (int, float)) or not 0 < price <= PRICE_MAX / ONE:
            raise ValueError(f"{where} {name}: {price!r} is not a price, a number above 0 of reference requests")
        yield BYTES[name], float(price)
