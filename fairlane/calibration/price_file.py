# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What a calibration has found, and the price list that it is written down as."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from fairlane import __version__
from fairlane.experiment import price_lists
from fairlane.experiment.price_lists import NAMES, OPS
from fairlane.linux.io_cost import Model

DEPTH = 64  # outstanding requests of each core; the paper's
DIGITS = 4  # of a price, after the point
IN_USE = 0.75  # of the drive, in a mix that counts


@dataclass(frozen=True)
class Kind:
    """A request type."""

    op: str  # of OPS
    size: int  # bytes

    def __str__(self) -> str:
        return f"{self.op}s of {NAMES[self.size]}"


@dataclass(frozen=True)
class Mix:
    """What K cores with a kind of request, and the others with the reference, got."""

    op: str
    size: str
    k: int
    bytes_per_s: list[int]  # of each core
    cost: float | None  # of one such request, in reference requests; None when there is none (K = 0)
    use: float  # of the drive: what each kind got, of what it gets alone, added; above 1: they use different parts
    steady: bool  # the drive was as fast at the end of the measurement as at its beginning


@dataclass
class Calibration:
    """All that was found out about a drive; a price list (experiment/price_lists.py) is made from it."""

    page: int
    state: str
    cores: int
    seconds: float
    warmup: float
    backend: str
    kernel: str | None = None
    accel: str | None = None
    machine: dict[str, Any] = field(default_factory=dict)
    drive: dict[str, Any] = field(default_factory=dict)
    price: dict[str, dict[str, float]] = field(default_factory=dict)  # op -> size -> the highest that counts
    average: dict[str, dict[str, float]] = field(default_factory=dict)  # the same of the average, for comparison
    io_cost: dict[str, int] = field(default_factory=dict)  # io.cost's coefficients
    rounds: list[float] = field(default_factory=list)  # bytes/s of the reference until steady, if it was looked for
    mixes: list[Mix] = field(default_factory=list)

    def of(self, op: str, size: str) -> list[Mix]:
        return [mix for mix in self.mixes if (mix.op, mix.size) == (op, size)]

    @property
    def prices(self) -> str:
        """What queue/iosched/prices takes."""
        tables = [price_lists.make(self.price[op], self.page, op) for op in OPS]
        return price_lists.PriceList("", self.page, *tables).text()

    @property
    def io_cost_model(self) -> str | None:
        """What io.cost.model takes after MAJ:MIN; None when that was not measured."""
        return Model(**self.io_cost).line if self.io_cost else None

    def warnings(self) -> Iterator[str]:
        """What of it should be measured again."""
        unsteady = sum(not mix.steady for mix in self.mixes)
        if unsteady:
            measured = f"{unsteady} of {len(self.mixes)} measurements"
            yield f"the drive's speed changed during {measured}; give it more --seconds"
        for op in OPS:
            for (small, less), (large, more) in pairwise(self.price[op].items()):
                if more < less:
                    yield f"a {op} of {large} costs less than one of {small}"


def file_text(found: Calibration, command: str) -> str:
    """The price list: prices first, then how they were found."""
    page, made = NAMES[found.page], datetime.datetime.now(datetime.UTC).date().isoformat()
    head = {
        "page": page,
        "state": found.state,
        "cores": found.cores,
        "depth": DEPTH,
        "seconds": found.seconds,
        "warmup": found.warmup,
        "backend": found.backend,
        "kernel": found.kernel,
        "accel": found.accel,
        "rounds_bytes_per_s": found.rounds or None,
        "prices": " ".join(found.prices.split()),
        "io_cost_model": found.io_cost_model,
    }
    lines = [
        f"# Made by {command}",
        f"# with fairlane {__version__}, {made}. A write of one page, the reference request, costs 1.",
        "# What Linux takes: prices in queue/iosched/prices of a drive, io_cost_model after MAJ:MIN in io.cost.model.",
        *_keys(head),
    ]
    tables: dict[str, Mapping[str, Any]] = {f"price.{op}": found.price[op] for op in OPS}
    tables |= {f"average.{op}": found.average[op] for op in OPS}
    tables |= {"machine": found.machine, "drive": found.drive}
    for name, table in tables.items():
        lines += ["", f"[{name}]", *_keys(table)]
    lines += [
        "",
        f"# Of {found.cores} cores, the last k send that request and the others write {page}: bytes/s of each core,",
        "# and the cost of one such request in writes that the others lose.",
    ]
    for mix in found.mixes:
        lines += ["", "[[mix]]", *_keys(asdict(mix))]
    return "\n".join(lines) + "\n"


def _keys(table: Mapping[str, Any]) -> list[str]:
    """As lines of TOML, whose texts, numbers and lists are those of JSON; what is None is left out."""
    return [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items() if value is not None]
