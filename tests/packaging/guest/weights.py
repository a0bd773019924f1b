# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""On a host in a VM: weights of 200 and 300, given by whoever gives weights on a host; and what two get by them."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import load
from .load import BLOCK, CGROUPS, FIO, SYSTEM, read, said, wait_for

WEIGHTS = {"a": 200, "b": 300}
USER, UID = "tenant", 1000
UNITS = Path("/run/systemd/system")
SLICES = {"tree-a": 200, "tree-b": 300, "tree-b-x": 100, "tree-b-y": 200}
ANEW = ["/bin/sh", "-c", f"while :; do test -b /dev/{load.DRIVE} && {' '.join(FIO)}; sleep 1; done"]


def measure() -> dict[str, Any]:
    """Each case, and what was got. The module bfq is loaded, so that there is io.bfq.weight; no drive has it."""
    found = {
        **a_drives_weight_survives(),
        "units": units(),
        "slices": slices(),
        "session": session(),
        "containers, systemd, BFQ": containers("--systemd-cgroup"),
        "containers, cgroupfs, BFQ": containers(),
        "IODeviceWeight, BFQ's drive": device_weights_under_bfq(),
    }
    said("modprobe", "-r", "bfq")
    return found | {
        "containers, systemd": containers("--systemd-cgroup"),
        "containers, cgroupfs": containers(),
        **device_weights(),
    }


def services(names: tuple[str, ...] = tuple(WEIGHTS)) -> dict[str, Path]:
    return {name: SYSTEM / f"{name}.service" for name in names}


def weighed(cgroups: dict[str, Path], weights: dict[str, int]) -> dict[str, Any]:
    load.weigh({cgroups[name]: weight for name, weight in weights.items()})
    return load.shares(cgroups)


def units() -> dict[str, Any]:
    """systemd-run --property IOWeight=..."""
    for name, weight in WEIGHTS.items():
        load.unit(name, f"IOWeight={weight}")
    got = weighed(services(), WEIGHTS)
    load.stop(*WEIGHTS)
    return got


def slices() -> dict[str, Any]:
    """A slice with two services; and one whose slices have a service each."""
    for name, weight in SLICES.items():
        (UNITS / f"{name}.slice").write_text(f"[Slice]\nIOWeight={weight}\n")
    said("systemctl", "daemon-reload")
    loads = {"a1": "tree-a", "a2": "tree-a", "x": "tree-b-x", "y": "tree-b-y"}
    for name, within in loads.items():
        load.unit(name, f"Slice={within}.slice")
    top = CGROUPS / "tree.slice"
    b = top / "tree-b.slice"
    load.weigh({top / "tree-a.slice": 200, b: 300, b / "tree-b-x.slice": 100, b / "tree-b-y.slice": 200})
    got = load.shares({"a": top / "tree-a.slice", "x": b / "tree-b-x.slice", "y": b / "tree-b-y.slice"})
    load.stop(*loads)
    return got


def session() -> dict[str, Any]:
    """Services of a user's own systemd, to which the host's has delegated the io controller."""
    said("loginctl", "enable-linger", USER)
    runtime = Path("/run/user") / str(UID)
    wait_for((runtime / "systemd" / "private").exists, "the user's systemd runs")
    before = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--init-groups", "env", f"XDG_RUNTIME_DIR={runtime}")
    for name, weight in WEIGHTS.items():
        options = ["--user", "--quiet", "--collect", f"--unit={name}", f"--property=IOWeight={weight}"]
        said(*before, "systemd-run", *options, *FIO)
    manager = CGROUPS / "user.slice" / f"user-{UID}.slice" / f"user@{UID}.service"
    cgroups = {name: next(manager.rglob(f"{name}.service")) for name in WEIGHTS}
    got = weighed(cgroups, WEIGHTS)
    said("loginctl", "disable-linger", USER)
    load.stop(f"user@{UID}.service")
    return got


def containers(*options: str) -> dict[str, Any]:
    """--blkio-weight 200 and 300, in scopes of systemd's, or in cgroups that the runtime makes."""
    cgroups = {}
    for name, weight in WEIGHTS.items():
        if options:
            cgroups[name] = SYSTEM / f"crun-{name}.scope"
            load.container(name, weight, f"system.slice:crun:{name}", *options)
        else:
            cgroups[name] = CGROUPS / "libpod_parent" / f"libpod-{name}"
            load.container(name, weight, f"/libpod_parent/libpod-{name}")
    got = weighed(cgroups, WEIGHTS)
    got["files"] = [read(cgroup / file) for cgroup in cgroups.values() for file in ("io.weight", "io.bfq.weight")]
    load.remove_containers(*WEIGHTS)
    return got


# --- For one drive ---


def start_with_device_weights(words: list[str] = FIO) -> None:
    for name, weight in WEIGHTS.items():
        load.unit(name, f"IODeviceWeight=/dev/{load.DRIVE} {weight}", words=words)


def lines(file: str) -> dict[str, int]:
    """What the file of each service says of the drive."""
    of_drive = {name: load.line_of_drive(cgroup / file) for name, cgroup in services().items()}
    return {name: int(words[0]) for name, words in of_drive.items() if words}


def device_weights_under_bfq() -> dict[str, Any]:
    """Given while the drive has BFQ, and kept by who takes it from BFQ."""
    said("systemctl", "stop", "fairlane")
    (BLOCK / "queue" / "scheduler").write_text("bfq")
    start_with_device_weights()
    wait_for(lambda: lines("io.bfq.weight") == {"a": 109, "b": 118}, "BFQ has both weights")
    said("systemctl", "start", "fairlane")
    load.scheduled()
    wait_for(lambda: lines("io.fairlane.weight.fallback") == WEIGHTS, "both are kept")
    got = load.shares(services())
    load.stop(*WEIGHTS)
    return got


def known() -> bool:
    """To io.cost, which is not told to throttle: then io.weight takes lines for the drive."""
    return load.number() in read(CGROUPS / "io.cost.model") and "enable=1" not in read(CGROUPS / "io.cost.qos")


def device_weights() -> dict[str, Any]:
    """Given by systemd while the service runs. They stay with us, also when the drive is plugged in again."""
    wait_for(known, "the service has told io.cost of the drive")
    start_with_device_weights(ANEW)
    wait_for(lambda: lines("io.fairlane.weight.fallback") == lines("io.weight") == WEIGHTS, "both weights are there")
    found = {"IODeviceWeight": load.shares(services())}
    change_scheduler()
    wait_for(lambda: lines("io.fairlane.weight.fallback") == WEIGHTS, "both weights are still there")
    said("systemctl", "start", "fairlane")
    load.scheduled()
    plug_again()
    load.scheduled()
    wait_for(lambda: lines("io.fairlane.weight.fallback") == WEIGHTS, "both weights are there again")
    wait_for(known, "the service has told io.cost of the drive that has come")
    assert not lines("io.weight")
    found["IODeviceWeight, plugged in again"] = load.shares(services())
    load.stop(*WEIGHTS)
    return found


def change_scheduler() -> None:
    """To none, and to another of ours. The service would take that back."""
    said("systemctl", "stop", "fairlane")
    for name in ("none", "mqflashfq"):
        (BLOCK / "queue" / "scheduler").write_text(name)
        time.sleep(1)


def a_drives_weight_survives() -> dict[str, Any]:
    """What /etc/fairlane.toml gives these services on this drive; one by hand, beside it."""
    wanted, by_hand = {"plug-a": 200, "plug-b": 300}, SYSTEM / "io.fairlane.weight"
    cgroups = services(tuple(wanted))
    for name in wanted:
        load.unit(name, words=ANEW)

    def by_hands() -> str:
        return f"{load.number()} 700"

    def all_there() -> bool:
        said = {name: f"{load.number()} {weight}" for name, weight in wanted.items()}
        return all(said[name] in read(cgroups[name] / "io.fairlane.weight").splitlines() for name in wanted)

    wait_for(all_there, "the file's weights for the drive")
    by_hand.write_text(by_hands())
    found = {"a drive's weights": load.shares(cgroups)}
    change_scheduler()
    wait_for(lambda: all_there() and by_hands() in read(by_hand).splitlines(), "weights are still there")
    found["under another scheduler"] = load.shares(cgroups)
    said("systemctl", "start", "fairlane")
    load.scheduled()
    plug_again()
    load.scheduled()
    wait_for(lambda: all_there() and by_hands() in read(by_hand).splitlines(), "weights for the drive that has come")
    found["plugged in again"] = load.shares(cgroups)
    by_hand.write_text(f"{load.number()} default")
    load.stop(*wanted)
    return found


def plug_again() -> None:
    """With the name that it had, as nobody has it open any more: of a drive of size 0, fio would read for ever."""
    Path("/sys/class/nvme/nvme0/device/remove").write_text("1")
    wait_for(lambda: not list(Path("/sys/class/nvme").glob("nvme*")), "the drive has gone")

    def nobody_reads() -> bool:
        found = [int(each.parent.name) for each in Path("/proc").glob("[0-9]*/comm") if read(each) == "fio"]
        for each in found:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        return not found

    wait_for(nobody_reads, "who read has ended")
    Path("/sys/bus/pci/rescan").write_text("1")
