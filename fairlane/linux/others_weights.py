# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Weights that others have given: what io.weight and io.bfq.weight of a cgroup mean, for io.fairlane.weight.fallback.

systemd writes IOWeight= to both files; for io.bfq.weight, whose range is 1 to 1000, it brings it nearer to 100
(BFQ_WEIGHT() in its src/basic/cgroup-util.h): 200 becomes 109. Container runtimes write --blkio-weight to io.bfq.weight
as it is or, where there is no such file, stretched to io.weight's 1 to 10000. crun asks systemd, too, since its version
1.18: for an IOWeight= of which systemd makes --blkio-weight for BFQ, 1200 for 200. So, of one cgroup's two files:

- systemd has written both, or io.bfq.weight has its default: io.weight's number is what was meant
- a runtime has written io.bfq.weight, and systemd the same stretched to io.weight, which may also have its default:
  io.bfq.weight's
- only io.bfq.weight says something, in a unit's cgroup: systemd's; the middle of the eleven that become this one
- otherwise io.weight's

In a cgroup with the name of a container's, what a runtime may have made of a --blkio-weight counts as that. Where a
scope of systemd's says nothing, what crun has said of the cgroup that it makes within counts for the scope: crun before
1.18 writes the weight to no other, which has no siblings.
"""

from __future__ import annotations

import errno
import functools
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from fairlane.linux import sysfs

FALLBACK = "io.fairlane.weight.fallback"
LINUX, BFQ = "io.weight", "io.bfq.weight"
MODEL, KNOWN = "io.cost.model", "ctrl=auto"
DEFAULT, MOST, BFQ_MOST = 100, 10_000, 1000
UNITS = (".service", ".slice", ".scope")
CONTAINER = re.compile(r"(libpod|docker|nerdctl|cri-containerd|crio|crun)-")
ENGINES = ("docker", "libpod_parent")  # cgroups that are parents of containers'
INNER = "container"  # crun's cgroup in a scope of systemd's
GONE = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP)  # the cgroup, the drive, or its scheduler of ours

Weights = dict[str, int]  # "default" or MAJ:MIN -> weight


def scaled_for_bfq(weight: int) -> int:
    """systemd's BFQ_WEIGHT()."""
    if weight <= DEFAULT:
        return weight
    return DEFAULT + (weight - DEFAULT) * (BFQ_MOST - DEFAULT) // (MOST - DEFAULT)


def unscaled(bfq: int) -> int:
    """A weight of which systemd makes that one: the only one up to 100, the middle of eleven above."""
    return bfq if bfq <= DEFAULT else min(MOST, widened(bfq) + 5)


def stretched(bfq: int) -> int:
    """What container runtimes write to io.weight for a --blkio-weight of that much, which is 10 to 1000."""
    return 1 + (bfq - 10) * 9999 // 990


def widened(bfq: int) -> int:
    """The IOWeight= that crun asks systemd for: the least of those that become that one for BFQ."""
    return bfq if bfq <= DEFAULT else DEFAULT + (bfq - DEFAULT) * (MOST - DEFAULT) // (BFQ_MOST - DEFAULT)


@functools.cache
def _blkio_weights() -> dict[int, int]:
    """io.weight of a container -> the --blkio-weight that became it; what a runtime writes itself goes first."""
    weights = range(10, BFQ_MOST + 1)
    return {widened(weight): weight for weight in weights} | {stretched(weight): weight for weight in weights}


def meant(
    linux: int | None, bfq: int | None, *, unit: bool, container: bool = False, default: bool = True
) -> int | None:
    """One weight from what both files say of the cgroup (default) or of one drive; None: nothing."""
    if bfq is None or (default and bfq == DEFAULT):
        return _blkio_weights().get(linux, linux) if container and linux is not None else linux
    if linux is None:
        return unscaled(bfq) if unit and not container else bfq
    if container and linux == widened(bfq):
        return bfq
    if bfq == scaled_for_bfq(linux):
        return linux
    if linux == stretched(bfq) or (default and linux == DEFAULT):
        return bfq
    return linux


def of(cgroup: Path) -> Weights:
    """What the cgroup's weights were meant to be."""
    if not is_container(cgroup):
        return _of(cgroup)
    within, found = _of(cgroup / INNER, container=True), _of(cgroup, container=True)
    return within | {key: weight for key, weight in found.items() if weight != DEFAULT or key not in within}


def _of(cgroup: Path, container: bool = False) -> Weights:
    linux, bfq = said(cgroup / LINUX), said(cgroup / BFQ)
    kind = {"unit": is_unit(cgroup), "container": container}
    found = {key: meant(linux.get(key), bfq.get(key), **kind, default=key == "default") for key in (linux | bfq)}
    return {key: weight for key, weight in found.items() if weight is not None}


def is_container(cgroup: Path) -> bool:
    """By its name: as systemd's scopes of containers are called, or below an engine's own cgroup."""
    return bool(CONTAINER.match(cgroup.name)) or cgroup.parent.name in ENGINES


def is_unit(cgroup: Path) -> bool:
    return cgroup.name.endswith(UNITS)


def owner(cgroup: Path) -> str:
    """Who writes its weights, by its name."""
    if is_container(cgroup) or is_container(cgroup.parent):
        return "a container's runtime"
    return "systemd" if is_unit(cgroup) else "by hand"


def said(file: Path) -> Weights:
    """A file of weights; nothing if it is not there."""
    lines = (line.split() for line in (sysfs.said(file) or "").splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdecimal()}


def tree(mount: Path) -> Iterator[Path]:
    """Every cgroup but the root."""
    for folder, names, _ in os.walk(mount):
        names.sort()
        yield from (Path(folder, name) for name in names)


def wanted(mount: Path) -> dict[Path, Weights]:
    """What each cgroup's weights were meant to be, where that is not what its fallback says."""
    found = {}
    for cgroup in tree(mount):
        if (cgroup / FALLBACK).exists():
            now = {"default": DEFAULT} | said(cgroup / FALLBACK)
            others = {key: weight for key, weight in of(cgroup).items() if now.get(key) != weight}
            if others:
                found[cgroup] = others
    return found


def refused(mount: Path, numbers: Iterable[str]) -> Iterator[str]:
    """Drives for which io.weight takes no line: io.cost does not know them.

    It does once io.cost.model has a line for the drive, which does not make it throttle; until the drive goes.
    """
    model = sysfs.said(mount / MODEL)
    if model is not None:
        known = {line.split()[0] for line in model.splitlines()}
        yield from (number for number in numbers if number not in known)


def take_back(mount: Path) -> None:
    """As if nobody had written a fallback."""
    for cgroup in tree(mount):
        for key, weight in said(cgroup / FALLBACK).items():
            if key == "default" and weight != DEFAULT:
                write(cgroup / FALLBACK, "default")
            elif ":" in key:
                write(cgroup / FALLBACK, f"{key} default")


def write(file: Path, text: str) -> None:
    """A cgroup that is gone needs no fallback, and a drive that is gone, or without a scheduler of ours, takes none."""
    try:
        file.write_text(text)
    except OSError as error:
        if error.errno not in GONE:
            raise
