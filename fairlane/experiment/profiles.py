# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Profiles: drives that a scenario can name, a TOML file each in profiles/."""

from __future__ import annotations

from collections.abc import Callable

from fairlane.errors import FairlaneError, offer
from fairlane.experiment import modelled_ssd
from fairlane.experiment.model import Profile
from fairlane.experiment.values import Table, as_integer, as_one_of, as_positive_size, as_text, parse_size, read_toml
from fairlane.places import PROFILES

DEVICE_KEYS: dict[str, tuple[str, ...]] = {
    "null_blk": (
        "size",
        "bs",
        "irqmode",
        "completion_nsec",
        "hw_queue_depth",
        "submit_queues",
        "queue_mode",
        "memory_backed",
        "discard",
    ),
    "qemu-nvme": ("size", "max_ioqpairs", "iops"),
    "ssd": (*modelled_ssd.PROFILE, *modelled_ssd.PLAYED),
}


def profiles() -> list[str]:
    """The names that [device] profile may take."""
    return sorted(path.stem for path in PROFILES.glob("*.toml"))


def load_modelled(name: str) -> Profile:
    """load_profile() of a modelled SSD; no other will do."""
    if name in profiles() and (profile := load_profile(name)).kind == "ssd":
        return profile
    ssds = [each for each in profiles() if load_profile(each).kind == "ssd"]
    raise FairlaneError(f"profile {name!r} is no modelled SSD; {offer(name, ssds)}")


def load_profile(name: str) -> Profile:
    """Read profiles/NAME.toml."""
    path = PROFILES / f"{name}.toml"
    if name not in profiles():
        raise FairlaneError(f"unknown profile {name!r}; {offer(name, profiles())}")
    table = Table(path, "top level", read_toml(path, "a profile"))
    kind = table.need("kind", as_one_of(tuple(DEVICE_KEYS)))
    table.only(("kind", "description", *DEVICE_KEYS[kind]))
    return Profile(name, kind, table.take("description", as_text, ""), params_of(table, kind))


def params_of(table: Table, kind: str) -> dict[str, int]:
    return {key: table.need(key, _param(kind, key)) for key in DEVICE_KEYS[kind] if key in table.data}


def _param(kind: str, key: str) -> Callable[[object], int]:
    """How to read that parameter of that kind of drive."""
    if kind == "ssd":
        return _modelled({**modelled_ssd.PROFILE, **modelled_ssd.PLAYED}[key])
    return as_positive_size if key in ("size", "bs") else as_integer(0, 2**32)


def _modelled(field: modelled_ssd.Field) -> Callable[[object], int]:
    number = as_integer(field.low, field.high)

    def convert(value: object) -> int:
        found = number(parse_size(value) if field.unit == "bytes" else value)
        if "a power of two" in field.help and found & (found - 1):
            raise ValueError(f"{found} is not a power of two, from {field.low} to {field.high}")
        return found

    return convert
