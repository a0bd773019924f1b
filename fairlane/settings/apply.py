# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Make drives and cgroups as a plan says, whole or not at all, and put back what was there before the first time.

What was there is kept in RUN until it is put back. A drive or a cgroup that is gone since is left out: the one that now
has its name is another.
"""

from __future__ import annotations

import errno
import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import IO, Any

from fairlane import files
from fairlane.errors import FairlaneError
from fairlane.linux import cgroups, disks, others_weights, queue, sysfs
from fairlane.proc import shielded
from fairlane.settings import plan
from fairlane.settings.file import HostFile
from fairlane.settings.plan import CONTROL, Change, Plan

RUN = Path("/run/fairlane")
STATE, WATCHED = "before.json", "watched"

# Of "+io": the cgroup has processes of its own, or is threaded, or somebody has taken the controller from it meanwhile.
REFUSED = (errno.EBUSY, errno.EOPNOTSUPP, errno.ENOENT)
# What a cgroup loses with its parent's controller io, and what such a file says as long as nobody has set anything.
LOST = {
    "io.max": "",
    "io.latency": "",
    "io.weight": "default 100",
    "io.bfq.weight": "default 100",
    "io.prio.class": "no-change",
}
OURS = {plan.WEIGHT: "100", plan.LATENCY: "0"}  # of our own files: the default, beside what others' weights make of it

Before = dict[str, dict[str, Any]]  # drives, and cgroups, as json keeps them


def apply(settings: HostFile) -> Plan:
    """Do what the file says, and give cgroups without a weight of ours what others' files mean.

    Returns what was done, and what was not as a cgroup refused it.
    """
    with _locked():
        found = plan.make(settings, load=True)
        if found.changes:
            done, left = _do(found.changes)
            found = replace(found, changes=done, refused=tuple(left))
        # Also what was seen before: with BFQ go the weights that it had for a drive.
        _follow(found.others)
        if found.changes:  # cgroups that have got our files, drives that have got our schedulers
            _follow(plan.others({}))
        return found


def restore() -> list[str] | None:
    """Put back what was there before the first apply(): what is left as it is, and why; None: there was none."""
    with _locked(), (RUN / WATCHED).open("w") as watched:
        if not _free(watched):
            raise FairlaneError(
                "`fairlane apply --watch` is running, and would apply all of it again; stop it first"
                " (systemctl stop fairlane)"
            )
        file = RUN / STATE
        before = _read(file)
        _take_back()  # of drives, as long as they have schedulers of ours
        left = None
        if before is not None:
            left = _put_back(before)
            file.unlink()
        _take_back()
        return left


def applied() -> set[tuple[Path, str]]:
    """Files of cgroups, each with the number of a drive or whatever else it has lines for, that restore() puts back."""
    before = _read(RUN / STATE) or {"cgroups": {}}
    return {
        (Path(cgroup) / name, key)
        for cgroup, entry in before["cgroups"].items()
        for name, keys in entry["files"].items()
        for key in keys
    }


def _take_back() -> None:
    with suppress(FairlaneError):
        others_weights.take_back(cgroups.find_mount())


@contextmanager
def watching() -> Iterator[None]:
    """While this is so, restore() refuses: what it puts back would be applied again at once."""
    with _locked():
        lock = (RUN / WATCHED).open("w")
    with lock:
        if not _free(lock):
            raise FairlaneError("another `fairlane apply --watch` is running; stop it first")
        yield


def _free(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _locked() -> Iterator[None]:
    """One at a time: the service, udev and people."""
    try:
        RUN.mkdir(mode=0o700, parents=True, exist_ok=True)  # whoever can open the locks could hold them
        lock = (RUN / "lock").open("w")
    except OSError as error:
        raise FairlaneError(f"{RUN}: cannot be used ({error.strerror}); be root") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _follow(changes: Iterable[Change]) -> None:
    for change in changes:
        others_weights.write(change.file, change.text)


def _do(changes: Sequence[Change]) -> tuple[tuple[Change, ...], list[str]]:
    """All, or nothing and an error; but for what a cgroup refuses, whose tenant could else keep all others from theirs.

    What is done, and why the rest is not.
    """
    now = _snapshot(changes)
    file = RUN / STATE
    kept = _read(file)
    first = kept or {"drives": {}, "cgroups": {}}
    with shielded():
        files.write_json(file, _merged(first, now))
        done: list[Change] = []
        without: dict[Path, str] = {}  # cgroups; why those below them are left out
        try:
            for change in changes:
                if without.keys().isdisjoint(change.file.parent.parents):
                    done.append(change)
                    if why := _write(change):
                        without.setdefault(done.pop().file.parent, why)
        except FairlaneError as error:
            try:
                left = _put_back(_snapshot_of(now, done))
            except FairlaneError as other:  # `fairlane restore` may put it back later
                raise FairlaneError(f"{error}; and not all could be put back: {other}") from error
            if kept is None:
                file.unlink()
            else:
                files.write_json(file, kept)
            raise FairlaneError("; ".join([str(error), "everything is as it was", *left])) from error
        if without:
            files.write_json(file, _merged(first, _snapshot_of(now, done)))
    return tuple(done), list(without.values())


def _write(change: Change) -> str:
    """Why the cgroup refuses it; "": it is written, or what it is for is gone."""
    try:
        if not change.file.exists():  # sysfs would say that permission is denied
            raise FairlaneError(f"{change.file} is not there")
        sysfs.write(change.file, change.text)
    except FairlaneError as error:
        if not _is_there(change):
            return ""
        if change.device or (change.file.exists() and not _refused(change, error)):
            raise FairlaneError(f"{change.where}: {error}") from error
        return f"{change.where}: {error}"
    return ""


def _refused(change: Change, error: FairlaneError) -> bool:
    return change.file.name == CONTROL and getattr(error.__cause__, "errno", None) in REFUSED


def _is_there(change: Change) -> bool:
    """The drive, or the cgroup."""
    return (sysfs.SYS_BLOCK / change.device if change.device else change.file.parent).exists()


# --- What was there ---


def _read(file: Path) -> Before | None:
    try:
        found: Before = json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise FairlaneError(
            f"{file}: what was there before the first apply cannot be read ({error}); reboot, which"
            " puts all back, or remove that file and do without"
        ) from error
    return found


def _snapshot(changes: Sequence[Change]) -> Before:
    """Of all that the changes touch, and that is still there."""
    found: Before = {"drives": {}, "cgroups": {}}
    for change in changes:
        if change.device:
            if change.device not in found["drives"] and _is_there(change):
                found["drives"][change.device] = _drive(change.device)
            continue
        cgroup = change.file.parent
        with suppress(FileNotFoundError):
            entry = found["cgroups"].setdefault(str(cgroup), {"id": cgroup.stat().st_ino, "files": {}})
            entry["files"].setdefault(change.file.name, {})[change.key] = change.was
    return found


def _snapshot_of(now: Before, done: Sequence[Change]) -> Before:
    """What of it is to be put back when only these were written."""
    drives = {change.device for change in done}
    touched = {(str(change.file.parent), change.file.name, change.key) for change in done if not change.device}
    return {
        "drives": {device: was for device, was in now["drives"].items() if device in drives},
        "cgroups": {
            path: {
                "id": entry["id"],
                "files": {
                    name: {key: was for key, was in keys.items() if (path, name, key) in touched}
                    for name, keys in entry["files"].items()
                },
            }
            for path, entry in now["cgroups"].items()
        },
    }


def _drive(device: str) -> dict[str, Any]:
    places = [place for place in (queue.ROUTED, queue.QUEUE) if queue.scheduler_file(device, place).exists()]
    return {
        "id": disks.sequence(device),
        "schedulers": {place: queue.current_scheduler(device, place) for place in places},
        "settings": {str(path): value for path, value in queue.settings(device).items()},
    }


def _merged(first: Before, now: Before) -> Before:
    """What was there the first time; of what is new since, what is there now."""
    drives = {
        device: first["drives"][device]
        if device in first["drives"] and first["drives"][device]["id"] == was["id"]
        else was
        for device, was in now["drives"].items()
    }
    groups: dict[str, Any] = {}
    for path, entry in now["cgroups"].items():
        old = first["cgroups"].get(path)
        if old is None or old["id"] != entry["id"]:
            groups[path] = entry
            continue
        names = {**old["files"], **entry["files"]}
        groups[path] = {
            "id": entry["id"],
            "files": {name: entry["files"].get(name, {}) | old["files"].get(name, {}) for name in names},
        }
    kept = {path: entry for path, entry in first["cgroups"].items() if cgroups.is_still(Path(path), entry["id"])}
    return {"drives": first["drives"] | drives, "cgroups": kept | groups}


def _put_back(before: Before) -> list[str]:
    """What belongs to one drive's line is unset before its scheduler goes, and set after it is there.

    What is gone meanwhile is left out. What is left as it is, and why, is returned.
    """
    groups = [
        (Path(path), entry["files"])
        for path, entry in before["cgroups"].items()
        if cgroups.is_still(Path(path), entry["id"])
    ]
    drives = [
        (device, was)
        for device, was in before["drives"].items()
        if (sysfs.SYS_BLOCK / device).exists() and disks.sequence(device) == was["id"]
    ]
    of_drives = (each for drive in drives for each in _of_drive(*drive))
    left: list[str] = []
    with shielded():
        writes = chain(_unsetting(groups), of_drives, _setting(groups), _without_io(groups, left))
        sysfs.write_all(writes, may_be_gone=True)
    return left


Groups = Sequence[tuple[Path, Mapping[str, Mapping[str, str]]]]


def _unsetting(groups: Groups) -> Iterator[tuple[Path, str]]:
    for cgroup, of_cgroup in groups:
        for name, keys in of_cgroup.items():
            for key, was in keys.items():
                if name != CONTROL and was == plan.NOT_SET and plan.setting(cgroup / name, key) != was:
                    yield cgroup / name, plan.NOT_SET if key == "default" else f"{key} {was}"


def _setting(groups: Groups) -> Iterator[tuple[Path, str]]:
    for cgroup, of_cgroup in groups:
        for name, keys in of_cgroup.items():
            for key, was in keys.items():
                if name != CONTROL and was != plan.NOT_SET and plan.setting(cgroup / name, key) != was:
                    yield cgroup / name, f"{key} {was}"


def _without_io(groups: Groups, left: list[str]) -> Iterator[tuple[Path, str]]:
    for cgroup, of_cgroup in sorted(groups, reverse=True):  # inner ones first
        for was in of_cgroup.get(CONTROL, {}).values():
            if needs := next(_needing_io(cgroup), None):
                left.append(f"{cgroup / CONTROL} keeps io, as somebody has set {needs} since")
            else:
                yield cgroup / CONTROL, was


def _needing_io(cgroup: Path) -> Iterator[Path]:
    """Files of its children: those that say that they use the controller."""
    with suppress(FileNotFoundError):  # it is gone itself
        for file in sorted(cgroup.glob(f"*/{CONTROL}")):
            if "io" in (sysfs.said(file) or "").split():
                yield file
        for name, unset in LOST.items():
            yield from (file for file in sorted(cgroup.glob(f"*/{name}")) if sysfs.said(file) not in (None, unset))
        for name, default in OURS.items():
            for file in sorted(cgroup.glob(f"*/{name}")):
                lines = (sysfs.said(file) or "").splitlines()
                if len(lines) > 1 or plan.setting(file, "default") not in (plan.NOT_SET, default):
                    yield file


def _of_drive(device: str, was: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    settings = {Path(path): value for path, value in was["settings"].items()}
    files = {queue.scheduler_file(device, place): name for place, name in was["schedulers"].items()}
    wanted = {file: name for file, name in files.items() if file.exists()}  # some go with their module
    # The file of schedulers beside the elevator may have come with the module since.
    for place in (queue.ROUTED, queue.QUEUE):
        file = queue.scheduler_file(device, place)
        if file.exists():
            wanted.setdefault(file, "none")
    now = {file: queue.current_scheduler(device, file.parent.name) for file in wanted}
    yield from queue.putting_back({} if now == wanted else wanted, settings)
