# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Files in sysfs and in cgroups: what they say, and setting them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fairlane.errors import FairlaneError

SYS_BLOCK = Path("/sys/block")
MODULES = Path("/sys/module")


def loaded(module: str) -> bool:
    return (MODULES / module.replace("-", "_")).exists()


def device_number(device: str) -> str:
    """MAJ:MIN."""
    return (SYS_BLOCK / device / "dev").read_text().strip()


def number_if_any(device: str) -> str | None:
    """The same, or None: a path of an NVMe drive with several has none."""
    return said(SYS_BLOCK / device / "dev")


def said(path: Path) -> str | None:
    """What the file says, or None: some are write-only, and some are gone with their scheduler."""
    try:
        return path.read_text("utf-8", "replace").strip()  # a model may be of any bytes
    except OSError:
        return None


def chosen(said: str) -> str:
    """Of all that is possible, what is in brackets: "none" of "[none] bfq"; "" if nothing is."""
    return said.partition("[")[2].partition("]")[0]


def line_of(file: Path, number: str) -> str | None:
    """What a cgroup file says about the device, or None."""
    for line in file.read_text().splitlines():
        found, _, rest = line.partition(" ")
        if found == number:
            return rest
    return None


def numbers(values: Mapping[str, str]) -> dict[str, Any]:
    """Values that are whole numbers as such, the others as they are."""
    return {key: int(value) if value.removeprefix("-").isdecimal() else value for key, value in values.items()}


def write(path: Path, value: str) -> None:
    try:
        path.write_text(value)
    except OSError as error:
        raise FairlaneError(f"cannot write {value!r} to {path}: {error.strerror}") from error


def write_all(values: Iterable[tuple[Path, str]], *, may_be_gone: bool = False) -> None:
    """Write each, also after one that cannot be, and only then say which those were.

    may_be_gone: what is not there, or goes as it is written, is left out.
    """
    failed = []
    for path, value in values:
        if may_be_gone and not path.exists():
            continue
        try:
            write(path, value)
        except FairlaneError as error:
            if path.exists() or not may_be_gone:
                failed.append(str(error))
    if failed:
        raise FairlaneError("; ".join(failed))
