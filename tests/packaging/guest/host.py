# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""On a host in a VM, started by systemd at each boot: looks at what the packages do there, and notes it in FOUND.

The words after `fairlane.test=` on the kernel's command line say what each boot does. Needs no more than
Debian's Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import traceback
from pathlib import Path
from typing import Any

from . import load, weights
from .load import said

FOUND = Path("/root/found.json")  # one entry for each boot
SLICE = "system-gold.slice"
TENANTS = {
    "gold": load.SYSTEM / SLICE,
    "silver": load.SYSTEM / "silver.service",
    "bronze": load.SYSTEM / "crun-bronze.scope",
}
SECONDS = 40.0


def main() -> None:
    steps = next(word for word in Path("/proc/cmdline").read_text().split() if word.startswith("fairlane.test="))
    before = json.loads(FOUND.read_text()) if FOUND.exists() else []
    todo = steps.partition("=")[2].split(",")[len(before)]
    found: dict[str, Any] = {"did": todo, "release": os.uname().release}
    try:
        load.scheduled()
        {"shares": shares, "weights": weighed, "purge": purge}[todo](found)
        found["log"] = said("dmesg").splitlines()
    except BaseException:
        found["failed"] = traceback.format_exc() + said("journalctl", "-b", "-n", "60", "--no-pager", check=False)
    FOUND.write_text(json.dumps([*before, found]))
    more = len(before) + 1 < len(steps.split(","))
    subprocess.run(["systemctl", "reboot" if more and "failed" not in found else "poweroff"], check=True)


def shares(found: dict[str, Any]) -> None:
    """The file was applied at boot; what a slice of weight 500, a unit of 300 and a container of 200 get."""
    found["module"] = said("modinfo", "-n", load.SCHEDULER).strip()
    found["version"] = said("fairlane", "--version").strip()
    found["packages"] = said("dpkg-query", "-W", "fairlane", "fairlane-dkms").split()
    for name in ("gold-1", "gold-2"):
        load.unit(name, f"Slice={SLICE}")
    said("systemctl", "set-property", "--runtime", SLICE, "IOWeight=500")
    load.unit("silver", "IOWeight=300")
    load.container("bronze", 200, "system.slice:crun:bronze", "--systemd-cgroup")
    load.weigh(dict(zip(TENANTS.values(), (500, 300, 200), strict=True)))
    found |= load.shares(TENANTS, SECONDS)
    found["why"] = said("fairlane", "why", "system.slice/crun-bronze.scope/container").splitlines()
    found["metrics"] = said("fairlane", "metrics").splitlines()
    found["demo"] = said("fairlane", "demo", check=False).splitlines()
    load.stop("gold-1", "gold-2", "silver")
    load.remove_containers("bronze")


def weighed(found: dict[str, Any]) -> None:
    shares(found)
    found["weights"] = weights.measure()


def purge(found: dict[str, Any]) -> None:
    """After the packages are gone: the drive's scheduler, and our modules in memory."""
    found["apt"] = said("apt-get", "purge", "-y", "fairlane", "fairlane-dkms").splitlines()
    found["scheduler"] = load.read(load.BLOCK / "queue" / "scheduler")
    found["modules"] = [line.split()[0] for line in Path("/proc/modules").read_text().splitlines()]


if __name__ == "__main__":
    main()
