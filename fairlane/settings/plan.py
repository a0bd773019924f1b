# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What is to be written so that drives and cgroups are as the file says. Nothing is written here."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairlane import proc, schedulers
from fairlane.backends import program
from fairlane.errors import FairlaneError, offer
from fairlane.linux import cgroups, disks, failures, others_weights, queue, sysfs
from fairlane.settings.file import CgroupRule, DriveRule, Drives, HostFile

WEIGHT, LATENCY, CONTROL = "io.fairlane.weight", "io.fairlane.latency", "cgroup.subtree_control"
USED = "used 1"  # in io.fairlane.weight.fallback: the cgroup has no weight of its own
NOT_SET = "default"
NONE_OF_OURS = "has none of our schedulers, which alone know weights for it"
HOSTS = {"watchdog_msec": (0, 600_000)}  # a variable of each scheduler of ours in the kernel (kernel/variables.c)


class WithoutWrr(FairlaneError):
    """The drive cannot have a scheduler that routes."""


@dataclass(frozen=True)
class Change:
    """One file, and what is to be in it."""

    file: Path
    was: str | None  # None: it comes with the scheduler, and is not there yet
    to: str
    where: str  # the line that says so, as FILE:LINE
    device: str = ""  # that it belongs to; "": a cgroup's
    key: str = ""  # of a cgroup's file: default, MAJ:MIN or io

    @property
    def text(self) -> str:
        """What is written."""
        return f"{self.key} {self.to}" if self.key else self.to


@dataclass(frozen=True)
class Plan:
    changes: tuple[Change, ...]
    unmatched: tuple[str, ...]  # what in the file is for no drive, or no cgroup, that is there now
    others: tuple[Change, ...] = ()  # of fallbacks, by what others have written
    refused: tuple[str, ...] = ()  # what a cgroup would not take, and why


def make(settings: HostFile, *, load: bool) -> Plan:
    """Compare the file with the machine; an error for the first line that cannot be done. load: modules, if needed."""
    changes: list[Change] = []
    unmatched = []
    chosen: dict[str, str] = {}  # drive -> scheduler
    failed: set[str] = set()
    for rule in settings.drives:
        matching = [device for device in disks.schedulable(sysfs.SYS_BLOCK) if _matches(device, rule.drives)]
        if not matching:
            unmatched.append(f"{rule.where('')}: no drive has {rule.drives}")
        without: list[WithoutWrr] = []
        for device in matching:
            if device in chosen:
                continue
            chosen[device] = rule.scheduler
            if failures.given_up(device, rule.scheduler) and (now := _scheduler(device, {})) != rule.scheduler:
                chosen[device] = now
                failed.add(device)
                file = queue.scheduler_file(device, place_of(rule.scheduler))
                unmatched.append(
                    f"{rule.where('scheduler')}: {rule.scheduler} has failed on {device} (fairlane report-bug);"
                    f" to have it again, write {rule.scheduler} to {file}"
                )
                continue
            try:
                changes += list(_of_drive(rule, device, load=load))
            except WithoutWrr as error:
                without.append(error)
                chosen[device] = _scheduler(device, {})
            except FairlaneError:
                if (sysfs.SYS_BLOCK / device).exists():
                    raise
        if without and len(without) == len(matching):
            raise without[0]
        unmatched += map(str, without)
    if settings.cgroups:
        mount = cgroups.find_mount()
        _need_files(mount, settings.cgroups[0], load=load)
        found = _Cgroups(mount, chosen, failed)
        for each in settings.cgroups:
            unmatched += found.add(each)
        changes += found.changes()
    return Plan(tuple(changes), tuple(unmatched), tuple(others(chosen)))


def others(chosen: Mapping[str, str]) -> Iterator[Change]:
    """What others' weights mean, where it is not known yet; and first, that they can give one for a drive.

    chosen: the scheduler that a drive is to have.
    """
    try:
        mount = cgroups.find_mount()
    except FairlaneError:  # drives alone need no cgroups
        return
    numbers = ours(chosen)
    for number in others_weights.refused(mount, numbers):
        where = f"so that {others_weights.LINUX} takes lines for the drive"
        yield Change(mount / others_weights.MODEL, NOT_SET, others_weights.KNOWN, where, key=number)
    for cgroup, weights in others_weights.wanted(mount).items():
        file = cgroup / others_weights.FALLBACK
        said = {"default": others_weights.DEFAULT} | others_weights.said(file)
        for key, weight in weights.items():
            if key == "default" or key in numbers:
                yield Change(file, str(said.get(key, NOT_SET)), str(weight), others_weights.LINUX, key=key)


def ours(chosen: Mapping[str, str]) -> dict[str, str]:
    """The drives that have, or are to have, a scheduler of ours, by their numbers; those without one have no lines."""
    found = ((sysfs.number_if_any(device), device) for device in disks.schedulable(sysfs.SYS_BLOCK))
    return {number: device for number, device in found if number and _scheduler(device, chosen) in schedulers.NAMES}


# --- Drives ---


def _matches(device: str, which: Drives) -> bool:
    folder = sysfs.SYS_BLOCK / device / "device"
    known = {
        "name": lambda: [device],
        "model": lambda: [sysfs.said(folder / "model") or ""],
        "serial": lambda: [sysfs.said(folder / "serial") or ""],
        "id": lambda: disks.ids(device),
    }
    return all(
        any(fnmatch.fnmatchcase(said, pattern) for said in known[key]()) for key, pattern in which.patterns.items()
    )


def _scheduler(device: str, chosen: Mapping[str, str]) -> str:
    """What the drive has, or is to have."""
    if device in chosen:
        return chosen[device]
    places = [place for place in (queue.ROUTED, queue.QUEUE) if queue.scheduler_file(device, place).exists()]
    return next((name for place in places if (name := queue.current_scheduler(device, place)) != "none"), "none")


def place_of(scheduler: str) -> str:
    """The folder of a drive in which it is chosen."""
    beside = scheduler in schedulers.NAMES and scheduler not in schedulers.ELEVATORS
    return queue.ROUTED if beside else queue.QUEUE


def _of_drive(rule: DriveRule, device: str, *, load: bool) -> Iterator[Change]:
    place = place_of(rule.scheduler)
    _need_scheduler(rule, device, place, load=load)
    folder = sysfs.SYS_BLOCK / device
    wanted = {queue.ROUTED: "none", queue.QUEUE: "none"} | {place: rule.scheduler}
    now = {
        name: queue.current_scheduler(device, name) for name in wanted if queue.scheduler_file(device, name).exists()
    }
    # First what is to go, then what is to come.
    for name in sorted(wanted, key=lambda name: wanted[name] != "none"):
        if now.get(name, "none") != wanted[name]:
            where = rule.where("scheduler")
            yield Change(queue.scheduler_file(device, name), now.get(name), wanted[name], where, device)
    there = now.get(place) == rule.scheduler
    variables = folder / queue.ROUTED if place == queue.ROUTED else queue.iosched(device)
    if rule.prices:
        said, text = sysfs.said(variables / "prices") if there else None, rule.prices.text().strip()
        if said is None or said.split() != text.split():
            yield Change(variables / "prices", said, text, rule.where("prices"), device)
    known = program.tunables(rule.scheduler) if rule.variables and rule.scheduler in schedulers.NAMES else None
    for name, value in rule.variables.items():
        file, where = variables / name, rule.of_variable(name)
        if there:
            _need_variable(file, rule.scheduler, where)
        if known is not None:
            _need_value(name, value, rule.scheduler, known | HOSTS, where)
        said = sysfs.said(file) if there else None
        if said != str(value):
            yield Change(file, said, str(value), where, device)


def _need_scheduler(rule: DriveRule, device: str, place: str, *, load: bool) -> None:
    if rule.scheduler in queue.schedulers(device, place):
        return
    where = f"{rule.where('scheduler')}: [[drive]] scheduler"
    module = f"fairlane-route-{rule.scheduler}" if place == queue.ROUTED else f"{rule.scheduler}-iosched"
    try:
        proc.modprobe("-q", module, *(() if load else ("-n",)))
    except FairlaneError as error:
        has = ", ".join(queue.schedulers(device, place)) or "none of that kind"
        raise FairlaneError(
            f"{where}: {device} has no {rule.scheduler} (it has {has}), and its module cannot be loaded; install it for"
            f" Linux {_release()}"
        ) from error
    routing = rule.scheduler in schedulers.ROUTING and sysfs.loaded(rule.scheduler)
    if routing and rule.scheduler not in queue.schedulers(device, place):
        raise WithoutWrr(
            f"{where}: {device} has no weighted round robin that its driver uses, and {rule.scheduler} leaves all to"
            " that; take another scheduler, such as fairlane"
        )


def _release() -> str:
    return (sysfs.said(Path("/proc/sys/kernel/osrelease"))) or "as it runs"


def _need_variable(file: Path, scheduler: str, where: str) -> None:
    if queue.can_be_set(file):
        return
    names = [each.name for each in sorted(file.parent.glob("*")) if queue.can_be_set(each)]
    valid = [name for name in names if name not in ("scheduler", "prices")]
    raise _unknown(file.name, scheduler, valid, where)


def _need_value(name: str, value: int, scheduler: str, known: Mapping[str, tuple[int, int]], where: str) -> None:
    """Before the drive has that scheduler: else it would go to and fro for a value that cannot be."""
    if name not in known:
        raise _unknown(name, scheduler, sorted(known), where)
    least, most = known[name]
    if not least <= value <= most:
        raise FairlaneError(f"{where}: {name} of {scheduler} must be from {least} to {most}, not {value}")


def _unknown(name: str, scheduler: str, valid: Sequence[str], where: str) -> FairlaneError:
    return FairlaneError(f"{where}: {name} cannot be set of {scheduler}; {offer(name, valid)}")


# --- Cgroups ---


def _need_files(mount: Path, rule: CgroupRule, *, load: bool) -> None:
    """Our files, which a cgroup with the io controller has while the module is there."""
    if sysfs.loaded("fairlane") or any((path / WEIGHT).exists() for path in others_weights.tree(mount)):
        return
    try:
        proc.modprobe("-q", "fairlane", *(() if load else ("-n",)))
    except FairlaneError as error:
        raise FairlaneError(
            f"{rule.where('')}: [[cgroup]]: no cgroup of {mount} has {WEIGHT}, and the module fairlane cannot be"
            f" loaded; install it for Linux {_release()}"
        ) from error


def _glob(mount: Path, pattern: str) -> list[Path]:
    """Again if a cgroup goes meanwhile."""
    for _ in range(10):
        with suppress(FileNotFoundError):
            return list(mount.glob(pattern))
    raise FairlaneError(f"{mount}: cgroups vanish faster than they can be listed; try again")


class _Cgroups:
    """What is to be in the cgroups' files; what was said first counts."""

    def __init__(self, mount: Path, chosen: dict[str, str], failed: set[str]) -> None:
        self.mount, self.chosen, self.failed = mount, chosen, failed  # failed: drives that do without their scheduler
        self.wanted: dict[tuple[Path, str, str], tuple[str, CgroupRule]] = {}  # cgroup, file, key -> value, why

    def add(self, rule: CgroupRule) -> Iterator[str]:
        """What of it is for no cgroup or drive that is there now."""
        found = sorted(path for path in _glob(self.mount, rule.path) if path.is_dir() and path != self.mount)
        numbers, without = self._drives(rule, rule.drives) if rule.drives else ({"": "default"}, [])
        said = {WEIGHT: rule.weight, LATENCY: rule.latency_us}
        for cgroup in found:
            for file, value in said.items():
                for key in filter(None, numbers.values() if value is not None else ()):
                    self.wanted.setdefault((cgroup, file, key), (str(value), rule))
        if not found:
            yield f"{rule.where('path')}: no cgroup matches {rule.path}"
        for device in (device for device, number in numbers.items() if number is None):
            yield f"{rule.where('drive')}: {device} has no number, so only what is for all drives holds there"
        for device in without:
            yield f"{rule.where('drive')}: {device} {NONE_OF_OURS}, so nothing of this holds there"

    def _drives(self, rule: CgroupRule, which: Drives) -> tuple[dict[str, str | None], list[str]]:
        """Those that it is for, each with its MAJ:MIN, if it has one; and those that match and cannot take it.

        One of these may have come since. So it is an error only if no other drive matches.
        """
        matching = [device for device in disks.schedulable(sysfs.SYS_BLOCK) if _matches(device, which)]
        able = [d for d in matching if d in self.failed or _scheduler(d, self.chosen) in schedulers.NAMES]
        if matching and not able:
            raise FairlaneError(
                f"{rule.where('drive')}: [[cgroup]] drive: {matching[0]} {NONE_OF_OURS}; give it one with [[drive]]"
            )
        numbers = {device: sysfs.number_if_any(device) for device in able if device not in self.failed}
        return numbers, [device for device in matching if device not in able]

    def changes(self) -> Iterator[Change]:
        enabled: set[Path] = set()
        for (cgroup, file, key), (value, rule) in self.wanted.items():
            path = cgroup / file
            where = rule.where("weight" if file == WEIGHT else "latency")
            if not path.exists():
                yield from self._controller(cgroup, enabled, rule)
            was = setting(path, key)
            if was != value:
                yield Change(path, was, value, where, key=key)

    def _controller(self, cgroup: Path, enabled: set[Path], rule: CgroupRule) -> Iterator[Change]:
        """What gives the cgroup the files of the io controller."""
        above = [path for path in reversed(cgroup.parents) if path.is_relative_to(self.mount)]
        for parent in above:
            if parent not in enabled and "io" not in (sysfs.said(parent / CONTROL) or "").split():
                enabled.add(parent)
                yield Change(parent / CONTROL, "-io", "+io", rule.where("path"))


def setting(file: Path, key: str) -> str:
    """What a cgroup's file says of the key, or NOT_SET."""
    lines = (line.split() for line in (sysfs.said(file) or "").splitlines())
    value = next((words[1] for words in lines if words[0] == key and len(words) > 1), NOT_SET)
    fallback = sysfs.said(file.with_name(f"{WEIGHT}.fallback")) or ""
    return NOT_SET if file.name == WEIGHT and key == "default" and USED in fallback.splitlines() else value
