# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: what lies between two tenants and a drive, and that they have their shares through it, or why not.

Arguments: the modules' folder, then the names of sections, if not all are to run. What they find is printed, a line for
each load. One that fails does not keep the others from running: what is wrong with each is left in the shared folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import kit
from kit import run
from swapping import Use, forget_and_change, read_back, read_back_and_change, swap, swapping
from two_tenants import (
    DUE,
    LITTLE,
    MIB,
    WITHIN,
    Look,
    beside_none,
    drives,
    holds,
    is_charged_to_tenants,
    is_shared,
    load,
    tenants,
    wait_both_do_io,
)

from fairlane import proc
from fairlane.vm.guest import CGROUPS

FAST = 200  # for what is written in large pieces
LARGE_KIB = 64
FILE = 48 * MIB
MEMORY = 64 * MIB  # of a tenant
MANY = 1000  # requests, of such a drive
RESULTS = "stack.json"


# --- LVM ---


@contextlib.contextmanager
def volumes(disk: str) -> Iterator[list[Path]]:
    """One for each tenant."""
    run("vgcreate", "stack", f"/dev/{disk}")
    try:
        for name in ("heavy", "light"):
            run("lvcreate", "--yes", "--wipesignatures", "n", "--zero", "n", "-L", "128m", "-n", name, "stack")
        yield [Path("/dev/mapper/stack-heavy"), Path("/dev/mapper/stack-light")]
    finally:
        run("vgremove", "--force", "--yes", "stack")


def logical_volumes_keep_shares() -> None:
    with drives() as disks, volumes(disks[0]) as targets:
        for rw in ("randread", "randwrite"):
            holds(f"LVM, {rw}", disks, targets, rw=rw)


# --- dm-crypt ---


@contextlib.contextmanager
def encrypted(device: Path, name: str, *options: str) -> Iterator[Path]:
    key = kit.folder(f"key-{name}") / "key"
    key.write_bytes(bytes(range(64)))
    how: list[str | Path] = ["--type", "plain", "--cipher", "aes-xts-plain64", "--key-size", "512", "--key-file", key]
    run("cryptsetup", "open", "--batch-mode", *how, *options, device, name)
    try:
        yield Path("/dev/mapper", name)
    finally:
        run("cryptsetup", "close", name)


def one_encrypted_drive_keeps_shares_of_reads() -> None:
    with drives() as disks, encrypted(Path("/dev", disks[0]), "reads") as target:
        holds("dm-crypt, randread", disks, [target] * 2, rw="randread")


def one_encrypted_drive_charges_who_writes() -> None:
    """Its one thread sends what all have written, and waits for whoever waits: shares are not kept."""
    with drives() as disks, encrypted(Path("/dev", disks[0]), "writes") as target, tenants() as cgroups:
        with load(cgroups, [target] * 2, rw="randwrite"):
            ours = beside_none("dm-crypt, randwrite", disks, cgroups)
        is_charged_to_tenants(ours)


def one_encrypted_drive_without_queues_keeps_shares_of_writes() -> None:
    options = ("--perf-no_read_workqueue", "--perf-no_write_workqueue")
    with drives() as disks, encrypted(Path("/dev", disks[0]), "direct", *options) as target:
        holds("dm-crypt without workqueues, randwrite", disks, [target] * 2, rw="randwrite")


def an_encrypted_volume_for_each_keeps_shares_of_writes() -> None:
    with (
        drives() as disks,
        volumes(disks[0]) as (heavy, light),
        encrypted(heavy, "heavy") as one,
        encrypted(light, "light") as other,
    ):
        holds("dm-crypt for each, randwrite", disks, [one, other], rw="randwrite")


# --- md ---

ARRAY = Path("/dev/md0")


@contextlib.contextmanager
def array(level: int, disks: Sequence[str], *options: str) -> Iterator[list[Path]]:
    proc.modprobe({0: "raid0", 1: "raid1", 5: "raid456"}[level])
    parts = [f"/dev/{disk}" for disk in disks]
    how = [f"--level={level}", f"--raid-devices={len(disks)}", "--metadata=1.2", "--run", *options]
    os.environ["MDADM_NO_UDEV"] = "1"
    run("mdadm", "--create", ARRAY, *how, *parts)
    try:
        yield [ARRAY] * 2
    finally:
        run("mdadm", "--stop", ARRAY)


def mirrors_and_stripes_keep_shares() -> None:
    for level, name, options in ((1, "mirror", ["--assume-clean"]), (0, "stripes", [])):
        with drives(2) as disks, array(level, disks, *options) as targets:
            for rw in ("randread", "randwrite"):
                holds(f"md, {name}, {rw}", disks, targets, rw=rw)


def raid5_charges_the_root_for_writes() -> None:
    """Its own thread writes data and parity."""
    with drives(3) as disks, array(5, disks, "--assume-clean") as targets:
        holds("md, RAID 5, randread", disks, targets, rw="randread")
        with tenants() as cgroups, load(cgroups, targets, rw="randwrite"):
            ours = beside_none("md, RAID 5, randwrite", disks, cgroups)
        assert ours.root > 1 - LITTLE, f"a thread of md's did that: {ours}"


MD = Path("/sys/block/md0/md")
PARTS = 4  # of the array; Linux resyncs no region of 64 MiB where somebody reads, so tenants stay in the last one
UNLIMITED = 1_000_000  # KiB/s


def synced() -> int:
    """KiB that a mirror's resync or check has done; -1: there is none."""
    found = re.search(r"(?:resync|check) = .*\((\d+)/\d+\)", Path("/proc/mdstat").read_text())
    return int(found[1]) if found else -1


def sync_beside_tenants(what: str, action: str, slowest: int, fastest: int) -> Look:
    with drives(2, time_scale=FAST) as disks, array(1, disks, "--assume-clean") as targets, tenants() as cgroups:
        (MD / "sync_speed_max").write_text(str(fastest))
        (MD / "sync_speed_min").write_text(str(slowest))
        with load(cgroups, targets, rw="randread", offset=f"{100 - 100 // PARTS}%"):
            wait_both_do_io(disks, cgroups)
            (MD / "sync_action").write_text(action)
            kit.wait_for(lambda: synced() > 0, "it has begun")
            before, since = synced(), time.monotonic()
            ours = beside_none(f"md, a mirror's {what}, beside randread", disks, cgroups, MANY)
            after, seconds = synced(), time.monotonic() - since
        print(f"{(after - before) / seconds:.0f} KiB/s of {slowest} to {fastest}", flush=True)
        (MD / "sync_action").write_text("idle")
    assert after > before, f"it goes on: {before}, then {after}"
    return ours


def a_resync_is_charged_to_the_root_and_leaves_shares_of_the_rest() -> None:
    """It is never held back, but has limits of its own."""
    for what, slowest, fastest in (
        ("check at 250 KiB/s", 250, 250),
        ("check without a limit", UNLIMITED, UNLIMITED),
        ("check that gives way", 1, UNLIMITED),
    ):
        ours = sync_beside_tenants(what, "check", slowest, fastest)
        assert ours.root > LITTLE, f"it reads: {ours}"
        is_shared(ours)


# --- File systems ---

MKFS = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1", "-J", "size=4"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}


# So that no kernel thread does what mkfs has left.
OPTIONS = {"ext4": "noinit_itable"}


@contextlib.contextmanager
def file_system(kind: str, device: Path) -> Iterator[Path]:
    run(*MKFS[kind], device)
    folder = Path(tempfile.mkdtemp(prefix=kind))
    run("mount", "-t", kind, "-o", OPTIONS.get(kind, "defaults"), device, folder)
    try:
        yield folder
    finally:
        run("umount", folder)


def writeback(kind: str) -> None:
    """Each tenant writes a file through the page cache, and has little memory for it."""
    (CGROUPS / "cgroup.subtree_control").write_text("+memory")
    with drives(time_scale=FAST) as disks, file_system(kind, Path("/dev", disks[0])) as folder:
        kit.queue(disks[0], "max_sectors_kb").write_text(str(LARGE_KIB))
        with tenants(MEMORY) as cgroups:
            files = [folder / cgroup.path.name for cgroup in cgroups]
            options = {"direct": 0, "ioengine": "psync", "rw": "write", "bs": "64k", "size": FILE, "overwrite": 0}
            with load(cgroups, files, **options):
                ours = beside_none(f"{kind}, buffered writes", disks, cgroups)
                kit.set_scheduler(disks[0], "none")
    is_charged_to_tenants(ours)


def buffered_writes_to_ext4_are_charged_to_who_wrote() -> None:
    writeback("ext4")


def buffered_writes_to_xfs_are_charged_to_who_wrote() -> None:
    writeback("xfs")


def buffered_writes_to_btrfs_are_charged_to_who_wrote() -> None:
    writeback("btrfs")


def the_journal_of_ext4_is_charged_to_the_root() -> None:
    with drives() as disks, file_system("ext4", Path("/dev", disks[0])) as folder, tenants() as cgroups:
        files = [folder / cgroup.path.name for cgroup in cgroups]
        options = {"direct": 0, "ioengine": "psync", "rw": "randwrite", "size": MIB, "fsync": 1, "numjobs": 8}
        with load(cgroups, files, **options):
            ours = beside_none("ext4, 4 KiB and fsync()", disks, cgroups)
    assert ours.root + ours.ahead > LITTLE, f"each fsync() writes to the journal: {ours}"


# --- loop ---


@contextlib.contextmanager
def looped(file: Path) -> Iterator[Path]:
    file.write_bytes(os.urandom(2 * MIB))
    run("sync", file)
    proc.modprobe("loop")
    path = run("losetup", "--find", "--show", "--direct-io=on", file).strip()
    try:
        assert (Path("/sys/block") / Path(path).name / "loop/dio").read_text().strip() == "1"
        yield Path(path)
    finally:
        run("losetup", "--detach", path)


def loop_devices_keep_shares() -> None:
    with (
        drives() as disks,
        file_system("ext4", Path("/dev", disks[0])) as folder,
        looped(folder / "heavy") as one,
        looped(folder / "light") as other,
    ):
        for rw in ("randread", "randwrite"):
            holds(f"loop for each, {rw}", disks, [one, other], rw=rw)
        holds("one loop for both, randread", disks, [one, one], rw="randread")


# --- Swap ---


def swap_beside_reads(what: str, use: Use, swaps: int) -> Look:
    """One of the tenants swaps, and the other one reads.

    Each thread waits for its page, so there are more of them than there is room in the drive. And the drive is never
    given so much to write at a time that it takes half a minute.
    """
    (CGROUPS / "cgroup.subtree_control").write_text("+memory")
    with drives(time_scale=FAST, queue_depth=4) as disks, volumes(disks[0]) as (area, target):
        kit.queue(disks[0], "max_sectors_kb").write_text(str(LARGE_KIB))
        with (
            swap(area),
            tenants() as cgroups,
            swapping(cgroups[swaps], use),
            load([cgroups[1 - swaps]], [target], rw="randread"),
        ):
            wait_both_do_io(disks, cgroups)
            ours = beside_none(f"swap, {what}, beside randread", disks, cgroups, MANY)
            kit.set_scheduler(disks[0], "none")  # to end without what is owed
    is_charged_to_tenants(ours)
    return ours


def reading_back_from_swap_keeps_shares() -> None:
    is_shared(swap_beside_reads("read back", read_back, 0))


def swapping_is_charged_to_who_swaps() -> None:
    """What is written goes ahead and is paid for later; what is read back waits like other reads."""
    ours = swap_beside_reads("read back and changed", read_back_and_change, 0)
    assert ours.ahead > LITTLE, f"it writes: {ours}"


def who_only_swaps_out_is_not_held_back() -> None:
    """Who reads nothing back has no next requests that would pay for what it writes."""
    ours = swap_beside_reads("written only", forget_and_change, 1)
    assert ours.ahead > 1 - DUE + LITTLE, f"the light one gets more than it is due: {ours}"


# --- Namespaces of one controller ---


def namespaces_keep_shares_within_one_and_not_between_two() -> None:
    """Each is a drive to Linux, with a scheduler of its own. Between them its controller decides: here, by turns."""
    proc.modprobe("nvme")
    disks = ["nvme0n1", "nvme0n2"]
    paths = [Path("/dev", disk) for disk in disks]
    kit.wait_for(lambda: all(path.exists() for path in paths), "both namespaces are there")
    try:
        holds("one NVMe namespace for both, randread", disks[:1], paths[:1] * 2, rw="randread")
        with tenants() as cgroups, load(cgroups, paths, rw="randread"):
            wait_both_do_io(disks, cgroups)
            ours = beside_none("an NVMe namespace for each, randread", disks, cgroups)
    finally:
        proc.modprobe("-r", "nvme")
    is_charged_to_tenants(ours)
    assert abs(ours.share - 0.5) <= WITHIN, f"weights do not count between namespaces: {ours}"


SECTIONS = (
    logical_volumes_keep_shares,
    one_encrypted_drive_keeps_shares_of_reads,
    one_encrypted_drive_charges_who_writes,
    one_encrypted_drive_without_queues_keeps_shares_of_writes,
    an_encrypted_volume_for_each_keeps_shares_of_writes,
    mirrors_and_stripes_keep_shares,
    raid5_charges_the_root_for_writes,
    a_resync_is_charged_to_the_root_and_leaves_shares_of_the_rest,
    loop_devices_keep_shares,
    buffered_writes_to_ext4_are_charged_to_who_wrote,
    buffered_writes_to_xfs_are_charged_to_who_wrote,
    buffered_writes_to_btrfs_are_charged_to_who_wrote,
    the_journal_of_ext4_is_charged_to_the_root,
    reading_back_from_swap_keeps_shares,
    swapping_is_charged_to_who_swaps,
    who_only_swaps_out_is_not_held_back,
    namespaces_keep_shares_within_one_and_not_between_two,
)


def result(section: Callable[[], None]) -> str:
    """What is wrong; "": nothing."""
    try:
        section()
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    os.nice(-15)  # what looks must not wait for what is looked at
    results = {}
    for section in SECTIONS:
        name = section.__name__
        if not sys.argv[2:] or name in sys.argv[2:]:
            print(f"-- {name}", flush=True)
            results[name] = result(section)
    Path(os.environ["FAIRLANE_SHARED"], RESULTS).write_text(json.dumps(results))
    if not any(results.values()):
        kit.all_given_back()


if __name__ == "__main__":
    main()
