# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM, as root, as an operator would: `fairlane wrr --on host:DEV`, under Linux' own NVMe driver and under ours.

One drive is fl-nvme's. The other is QEMU's, which has no weighted round robin, but two namespaces.

wrr_host.py MODULES [SECTION...]
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from host import ended, refused, run, start, wait_for

from fairlane import proc
from fairlane.errors import FairlaneError
from fairlane.linux import nvme, sysfs
from fairlane.vm.guest import CGROUPS, prepare

MODULES = Path(sys.argv[1])
WEIGHTS = 0x07050300  # that somebody has set
LOOKED_AT = 4 << 20
SECONDS = ("--seconds", "4")
WRR_S = 1500.0  # each run brings tenants ahead, warms up and measures
FL_NVME = "fairlane zssd"  # its model


def drives() -> tuple[str, list[str]]:
    """fl-nvme's, and the two namespaces of QEMU's."""
    found = sorted(path.name for path in sysfs.SYS_BLOCK.glob("nvme*n*") if Path("/dev", path.name).exists())
    models = {name: sysfs.said(sysfs.SYS_BLOCK / name / "device/model") for name in found}
    ours = [name for name in found if models[name] == FL_NVME]
    return (ours or [""])[0], [name for name in found if name not in ours]


def loaded(*argv: str | Path) -> tuple[str, list[str]]:
    """That driver, and the drives it has found."""
    if Path("/sys/module/nvme").exists():  # udev was there before us
        proc.modprobe("-r", "nvme")
    proc.modprobe("nvme-core", "multipath=N")
    proc.output(argv, what="loading nvme", limit_s=60)
    wait_for(lambda: bool(drives()[0]) and len(drives()[1]) == 2, "the drives are there")
    return drives()


def settings(drive: str) -> dict[str, str]:
    files = [sysfs.SYS_BLOCK / drive / name for name in ("queue/scheduler", "queue/nr_requests", "fairlane/scheduler")]
    found = {str(file): file.read_text() for file in files if file.exists()}
    found["arbitration"] = f"{nvme.Controller(drive).arbitration:#x}"
    return {**found, "cgroups": cgroups()}


def cgroups() -> str:
    return " ".join(sorted(path.name for path in CGROUPS.iterdir() if path.is_dir()))


@contextlib.contextmanager
def untouched(drive: str) -> Iterator[None]:
    """Data, weights and settings are as before."""
    with contextlib.suppress(FairlaneError):  # QEMU's takes none
        nvme.Controller(drive).arbitration = WEIGHTS
    before, data = settings(drive), beginning(drive)
    yield
    assert settings(drive) == before, f"{settings(drive)}, before: {before}"
    assert beginning(drive) == data, "what is on the drive has changed"


def beginning(drive: str) -> bytes:
    with Path("/dev", drive).open("rb") as file:
        return file.read(LOOKED_AT)


@contextlib.contextmanager
def mounted(drive: str) -> Iterator[None]:
    folder = tempfile.mkdtemp()
    subprocess.run(["mkfs.ext4", "-q", "-F", f"/dev/{drive}"], check=True)
    subprocess.run(["mount", f"/dev/{drive}", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def wrr(drive: str, status: int, *says: str) -> None:
    with untouched(drive):
        said = run(status, "wrr", "--on", f"host:{drive}", *SECONDS, limit_s=WRR_S)
    print(said, flush=True)
    assert all(each in said for each in says), said


def linux_s_own_driver_has_no_effect(drive: str, _others: Sequence[str]) -> None:
    wrr(drive, 1, "no effect: Linux's own driver does not turn WRR on")


def an_ordinary_run_leaves_all_as_it_was(drive: str, _others: Sequence[str]) -> None:
    wrr(drive, 0, "works: shares are the weights'")


def a_mounted_namespace_is_refused(drive: str, _others: Sequence[str]) -> None:
    with mounted(drive):
        refused("wrr", "--on", f"host:{drive}", because=f"{drive} is mounted; give a drive that nothing else uses")


def another_namespace_in_use_is_refused(_drive: str, others: Sequence[str]) -> None:
    one, other = others
    shared = f"{one} has the same controller, and so the same weights: stop that, or give another drive"
    with mounted(other), untouched(one):
        refused("wrr", "--on", f"host:{one}", because=f"{other} is mounted; {shared}")
    with Path("/dev", other).open("rb"), untouched(one):
        refused("wrr", "--on", f"host:{one}", because=f"{other} is open in process {os.getpid()}")
    wrr(one, 1, "no effect: our driver found no WRR")


def nobody_mounts_another_namespace_meanwhile(_drive: str, others: Sequence[str]) -> None:
    one, other = others
    process = start("wrr", "--on", f"host:{one}", *SECONDS)
    wait_for(lambda: under_load(one), "the run is under way")
    words = ["mount", "-t", "ext4", f"/dev/{other}", tempfile.mkdtemp()]
    mount = subprocess.run(words, capture_output=True, text=True, check=False)
    assert mount.returncode and "busy" in mount.stderr, mount
    ended(process, 1, WRR_S)


def under_load(drive: str) -> bool:
    """More than what brings tenants ahead."""
    return int((sysfs.SYS_BLOCK / drive / "stat").read_text().split()[8]) > 100


def a_drive_that_disappears_half_way_is_said(drive: str, _others: Sequence[str]) -> None:
    before, controller = cgroups(), nvme.Controller(drive)
    process = start("wrr", "--on", f"host:{drive}", *SECONDS)
    for _ in range(3):  # runs
        wait_for(lambda: under_load(drive), "a run is under way")
        wait_for(lambda: not under_load(drive), "it ends")
    wait_for(lambda: under_load(drive), "the fourth is under way")
    time.sleep(1)
    (controller.folder / "device/remove").write_text("1")
    said = ended(process, 2)
    print(said, flush=True)
    last = said.splitlines()[-1]
    assert last.startswith(f"fairlane: {drive} has gone while it was measured"), last
    assert "Traceback" not in said
    assert not (sysfs.SYS_BLOCK / drive).exists()
    assert cgroups() == before, f"left over: {cgroups()}"


def main() -> None:
    prepare(MODULES)
    tests = {
        ("modprobe", "nvme"): (linux_s_own_driver_has_no_effect,),
        ("insmod", MODULES / "nvme" / "nvme.ko", "wrr=1"): (
            a_mounted_namespace_is_refused,
            another_namespace_in_use_is_refused,
            nobody_mounts_another_namespace_meanwhile,
            an_ordinary_run_leaves_all_as_it_was,
            a_drive_that_disappears_half_way_is_said,
        ),
    }
    for driver, all_of_it in tests.items():
        chosen = [test for test in all_of_it if test.__name__ in (sys.argv[2:] or test.__name__)]
        if not chosen:
            continue
        found = loaded(*driver)
        for drive in (found[0], *found[1]):
            Path("/dev", drive).write_bytes(os.urandom(LOOKED_AT))
        for test in chosen:
            begun = time.monotonic()
            test(*found)
            print(f"{test.__name__} {time.monotonic() - begun:.1f} s", flush=True)
        proc.output(["rmmod", "nvme"], what="unloading nvme", limit_s=60)


if __name__ == "__main__":
    main()
