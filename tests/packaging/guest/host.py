# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""On a host in a VM, started by systemd at each boot: looks at what the packages do there, and notes it in FOUND.

The words after `fairlane.test=` on the kernel's command line say what each boot does. Needs no more than
Debian's Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOUND = Path("/root/found.json")  # one entry for each boot
DRIVE, SCHEDULER = "nvme0n1", "kyber-fairness"
WEIGHTS = {"gold": 500, "silver": 300, "bronze": 200}
SLICE = Path("/sys/fs/cgroup/system.slice")
SETTLE_S, SECONDS, TIMES, LIMIT_S = 10.0, 40.0, 3, 900.0
FIO = ["fio", "--name=x", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=libaio", "--iodepth=32"]


def main() -> None:
    steps = next(word for word in Path("/proc/cmdline").read_text().split() if word.startswith("fairlane.test="))
    before = json.loads(FOUND.read_text()) if FOUND.exists() else []
    todo = steps.partition("=")[2].split(",")[len(before)]
    found: dict[str, Any] = {"did": todo, "release": os.uname().release}
    try:
        {"shares": shares, "purge": purge}[todo](found)
        found["log"] = said("dmesg").splitlines()
    except BaseException:
        found["failed"] = traceback.format_exc() + said("journalctl", "-b", "-n", "60", "--no-pager", check=False)
    FOUND.write_text(json.dumps([*before, found]))
    more = len(before) + 1 < len(steps.split(","))
    subprocess.run(["systemctl", "reboot" if more and "failed" not in found else "poweroff"], check=True)


def said(*argv: str, check: bool = True) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0 or not check, f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def wait_for(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not look():
        assert time.monotonic() < deadline, f"not within {LIMIT_S:.0f} s: {what}"
        time.sleep(0.5)


def scheduler() -> str:
    """Udev may find the drive long after the services are up."""
    file = Path("/sys/block", DRIVE, "queue", "scheduler")
    return file.read_text().strip() if file.exists() else ""


def shares(found: dict[str, Any]) -> None:
    """The file was applied at boot; what three units get of the drive."""
    wait_for(lambda: f"[{SCHEDULER}]" in scheduler(), "the service has given the drive its scheduler")
    found["module"] = said("modinfo", "-n", SCHEDULER).strip()
    found["version"] = said("fairlane", "--version").strip()
    found["packages"] = said("dpkg-query", "-W", "fairlane", "fairlane-dkms").split()
    for name, weight in WEIGHTS.items():
        unit = ["systemd-run", "--quiet", f"--unit={name}", "--property", f"IOWeight={weight}"]
        said(*unit, *FIO, "--time_based", "--runtime=1d", f"--filename=/dev/{DRIVE}")
    wait_for(lambda: all(read_bytes(name) for name in WEIGHTS), "all read")
    time.sleep(SETTLE_S)
    # Where other work took the CPU, the drive was not kept busy, and it says nothing of the shares of a busy one.
    got = max((moved() for _ in range(TIMES)), key=lambda moved: sum(moved.values()))
    found["requests_per_s"] = sum(got.values()) / SECONDS / 4096
    found["shares"] = {name: value / sum(got.values()) for name, value in got.items()}
    found["why"] = said("fairlane", "why", "bronze.service").splitlines()
    found["metrics"] = said("fairlane", "metrics").splitlines()
    found["demo"] = said("fairlane", "demo", check=False).splitlines()
    said("systemctl", "stop", *WEIGHTS)


def moved() -> dict[str, int]:
    before = {name: read_bytes(name) for name in WEIGHTS}
    time.sleep(SECONDS)
    return {name: read_bytes(name) - before[name] for name in WEIGHTS}


def read_bytes(name: str) -> int:
    number = Path("/sys/block", DRIVE, "dev").read_text().strip()
    try:
        lines = (SLICE / f"{name}.service" / "io.fairlane.stat").read_text().splitlines()
    except FileNotFoundError:
        return 0
    words = next((line.split()[1:] for line in lines if line.split()[0] == number), [])
    return int(dict(word.split("=") for word in words).get("rbytes", 0))


def purge(found: dict[str, Any]) -> None:
    """After the packages are gone: the drive's scheduler, and our modules in memory."""
    wait_for(lambda: f"[{SCHEDULER}]" in scheduler(), "the service has given the drive its scheduler")
    found["apt"] = said("apt-get", "purge", "-y", "fairlane", "fairlane-dkms").splitlines()
    found["scheduler"] = scheduler()
    found["modules"] = [line.split()[0] for line in Path("/proc/modules").read_text().splitlines()]


if __name__ == "__main__":
    main()
