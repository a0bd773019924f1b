# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""/etc/fairlane.toml: which drives get which scheduler, and which cgroups which weight. Checked in full when read.

    [[drive]]    which: name, model, serial, id (each a pattern; a drive must match all that are given)
                 what: scheduler, prices (a name in profiles/prices/, or a file, relative to this one), and
                 [drive.variables], the scheduler's, as in queue/iosched or in the drive's fairlane folder
    [[cgroup]]   which: path (a pattern, below /sys/fs/cgroup; ** stands for any depth)
                 what: weight, latency (a target), and drive = { name, model, serial, id }: only on those drives

Of several tables that match a drive, the first counts; of several that match a cgroup, the first that says it, for each
drive and for all.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from fairlane import schedulers
from fairlane.errors import FairlaneError
from fairlane.experiment import price_lists
from fairlane.experiment.model import WEIGHT_MAX, WEIGHT_MIN
from fairlane.experiment.price_lists import PriceList
from fairlane.experiment.values import Table, as_integer, as_latency, as_one_of, as_text, read_toml

DEFAULT = Path("/etc/fairlane.toml")
CGROUPS = "/sys/fs/cgroup"
WHICH = ("name", "model", "serial", "id")
OF_LINUX = ("none", "mq-deadline", "kyber", "bfq")

Path_ = tuple[str | int, ...]  # in the file: a table's name, its number, a key


@dataclass(frozen=True)
class Drives:
    """Which drives: a pattern for each of WHICH that is given."""

    patterns: Mapping[str, str]

    def __str__(self) -> str:
        return ", ".join(f'{key} = "{pattern}"' for key, pattern in self.patterns.items())


@dataclass(frozen=True)
class DriveRule:
    drives: Drives
    scheduler: str
    prices: PriceList | None
    variables: dict[str, int]
    where: Callable[[str], str]  # FILE:LINE of a key
    of_variable: Callable[[str], str]


@dataclass(frozen=True)
class CgroupRule:
    path: str
    drives: Drives | None  # None: all
    weight: int | None
    latency_us: int | None
    where: Callable[[str], str]


@dataclass(frozen=True)
class HostFile:
    path: Path
    drives: tuple[DriveRule, ...] = ()
    cgroups: tuple[CgroupRule, ...] = field(default=())


def load(path: Path) -> HostFile:
    data = read_toml(path, "fairlane's settings")
    lines = positions(path.read_text())
    top = Table(path, "top level", data, lines=_lines(lines, ()))
    top.only(("drive", "cgroup"))
    return HostFile(
        path,
        tuple(_drive(path, table, lines, ("drive", i)) for i, table in enumerate(_tables(top, "drive"))),
        tuple(_cgroup(path, table, lines, ("cgroup", i)) for i, table in enumerate(_tables(top, "cgroup"))),
    )


def _tables(top: Table, key: str) -> list[Any]:
    tables = top.data.get(key, [])
    if not isinstance(tables, list):
        raise top.error(key, f"there can be several; write it as [[{key}]]")
    return tables


def _drive(path: Path, data: object, lines: dict[Path_, int], at: Path_) -> DriveRule:
    table = Table(path, "[[drive]]", data, lines=_lines(lines, at))
    table.only((*WHICH, "scheduler", "prices", "variables"))
    variables = Table(
        path, "[drive.variables]", table.data.get("variables", {}), lines=_lines(lines, (*at, "variables"))
    )
    scheduler = table.need("scheduler", as_one_of((*schedulers.NAMES, *OF_LINUX)))
    if scheduler not in schedulers.NAMES and "prices" in table.data:
        raise table.error("prices", f"has no meaning with scheduler = {scheduler!r}, which goes by no price list")
    if scheduler == "none" and variables.data:
        raise table.error("variables", f"has no meaning with scheduler = {scheduler!r}, which has no variables")
    return DriveRule(
        drives=_which(table, {key: table.data[key] for key in WHICH if key in table.data}),
        scheduler=scheduler,
        prices=table.take("prices", _prices(path.parent), None),
        variables={name: _variable(variables, name) for name in variables.data},
        where=table.place,
        of_variable=variables.place,
    )


def _variable(table: Table, name: str) -> int:
    if name in ("scheduler", "prices"):
        raise table.error(name, "is no variable; write it under [[drive]], before [drive.variables]")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise table.error(name, "is no name of a variable, which has letters, digits and _")
    return table.need(name, as_integer(0, 2**63 - 1))


def _which(table: Table, said: Mapping[str, object]) -> Drives:
    if not said:
        raise table.error("name", f"is missing; say which drives, by {', '.join(WHICH)}")
    inner = Table(table.path, table.where, dict(said), lines=table.lines)
    patterns = {key: inner.need(key, as_text) for key in said}
    for key, pattern in patterns.items():
        if not pattern or (key == "name" and "/" in pattern):
            raise inner.error(key, f"{pattern!r} names no drive; write it as in /sys/block, such as nvme0n1 or nvme*")
    return Drives(patterns)


def _prices(beside: Path) -> Callable[[object], PriceList]:
    def convert(value: object) -> PriceList:
        try:
            return price_lists.load(as_text(value), beside)
        except FairlaneError as error:
            raise ValueError(str(error)) from error

    return convert


def _cgroup(path: Path, data: object, lines: dict[Path_, int], at: Path_) -> CgroupRule:
    table = Table(path, "[[cgroup]]", data, lines=_lines(lines, at))
    table.only(("path", "weight", "latency", "drive"))
    drives = None
    if "drive" in table.data:
        which = Table(path, "[[cgroup]] drive", table.data["drive"], lines=_lines(lines, (*at, "drive")))
        which.only(WHICH)
        drives = _which(which, which.data)
    latency = table.take("latency", as_latency, None)
    weight = table.take("weight", as_integer(WEIGHT_MIN, WEIGHT_MAX), None)
    if weight is None and latency is None:
        raise table.error("weight", "is missing, and so is latency; give one of them")
    return CgroupRule(
        path=table.need("path", _as_cgroup),
        drives=drives,
        weight=weight,
        latency_us=None if latency is None else round(latency * 1e6),
        where=table.place,
    )


def _as_cgroup(value: object) -> str:
    """Relative to the mount of cgroup v2."""
    parts = PurePosixPath(as_text(value).removeprefix(CGROUPS).strip("/")).parts
    if not parts:
        raise ValueError(f"{value!r} is the root, which has no siblings and so no weight")
    if ".." in parts:
        raise ValueError(f"{value!r} leads out of {CGROUPS}; write the path from there")
    if any("**" in part and part != "**" for part in parts):
        raise ValueError(f"{value!r} has ** beside other letters; it stands between slashes, for any depth")
    return "/".join(parts)


# --- Lines: tomllib tells them only of what is no TOML ---


def _lines(lines: Mapping[Path_, int], at: Path_) -> dict[str, int]:
    """Those of the table's keys, and of the table itself."""
    keys = {str(path[-1]): line for path, line in lines.items() if path[:-1] == at and path != at}
    return keys | ({"": lines[at]} if at in lines else {})


def positions(text: str) -> dict[Path_, int]:
    """The line of each table and key of what is valid TOML: it is cut into statements, each the least that is valid."""
    found: dict[Path_, int] = {}
    last: dict[Path_, int] = {}  # of each [[table]], the number of the last one
    table: Path_ = ()
    rest = enumerate(text.split("\n"), 1)
    for number, line in rest:
        statement = line
        while (parsed := _parsed(statement)) is None:
            statement += "\n" + next(rest)[1]
        paths = _paths(parsed)
        if not statement.lstrip().startswith("["):
            found |= {table + path: number for path in paths}
            continue
        table = ()
        for name in paths[-1]:
            table += (name,)
            found.setdefault(table, number)
            if statement.lstrip().startswith("[[") and name == paths[-1][-1]:
                last[table] = last.get(table, -1) + 1
            if table in last:
                table += (last[table],)
                found.setdefault(table, number)
    return found


def _parsed(statement: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(statement)
    except tomllib.TOMLDecodeError:
        return None


def _paths(parsed: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Of a key and what is in it, outer ones first; of a header only the whole."""
    paths: list[tuple[str, ...]] = []
    for key, value in parsed.items():
        inner = _paths(value) if isinstance(value, dict) else []
        paths += [(key,), *((key, *path) for path in inner)]
    return paths
