# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The versions of Linux that we build for, and which of them this machine's Debian has.

A new one is a row here. What differs in it is in kernel/compat.h, and how it is packaged is looked at (packages.py).
"""

from __future__ import annotations

import platform
from dataclasses import dataclass


@dataclass(frozen=True)
class Supported:
    """A version of Linux that we build for."""

    version: str
    suites: dict[str, tuple[str, ...]]  # by Debian's name: those that hold it, and what building for it depends on
    brief: bool = False  # `make test` does not test it in full


# All of them, oldest first. That of a Debian is the first that names it.
TABLE = (
    Supported("6.1", {"bookworm": ("bookworm", "bookworm-security")}),
    Supported(
        "6.12",
        {
            "bookworm": ("bookworm", "bookworm-security"),
            "trixie": ("trixie", "trixie-security"),
        },
    ),
    Supported("7.2", {"trixie": ("trixie", "trixie-backports")}, brief=True),
    Supported("7.3", {"trixie": ("trixie", "trixie-backports")}, brief=True),
)
VERSIONS = tuple(each.version for each in TABLE)
NEWEST = VERSIONS[-1]


def codename() -> str:
    """Debian's name of what this machine runs, such as trixie; "" if there is none."""
    try:
        return platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    except OSError:
        return ""


def tested() -> tuple[str, ...]:
    """What `make test` tests in full: the versions in this machine's Debian, its own first."""
    return tuple(each.version for each in TABLE if not each.brief and codename() in each.suites) or ("6.12",)


def booted() -> tuple[str, ...]:
    """What `make test` boots: those, and the newest of all."""
    return tuple(dict.fromkeys((*tested(), NEWEST)))


def own() -> str:
    """The version of this machine's Debian, which is used if none is named."""
    return tested()[0]


def row(version: str) -> Supported:
    return next(each for each in TABLE if each.version == version)
