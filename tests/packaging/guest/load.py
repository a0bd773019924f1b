# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What reads from the drive on a host in a VM: units of systemd, and containers; and who gets what of it."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

DRIVE, SCHEDULER = "nvme0n1", "kyber-fairness"
BLOCK, CGROUPS = Path("/sys/block") / DRIVE, Path("/sys/fs/cgroup")
SYSTEM = CGROUPS / "system.slice"
SETTLE_S, TIMES, LIMIT_S = 5.0, 6, 900.0
SECONDS = 40.0  # 16,000 requests, as the drive is slow: a trial of work-conservation.h lends somebody some of 2 s
BUSY = 0.99
BUNDLES = Path("/root/bundles")

FIO = ["/usr/bin/fio", "--name=x", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=libaio", "--iodepth=64"]
FIO += ["--time_based", "--runtime=1d", f"--filename=/dev/{DRIVE}"]


def said(*argv: str, check: bool = True, limit_s: float = LIMIT_S) -> str:
    """Into a file, which a program that it leaves behind may keep open."""
    with tempfile.TemporaryFile("w+") as out:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, timeout=limit_s, check=False
        )
        out.seek(0)
        text = out.read()
    assert done.returncode == 0 or not check, f"{argv}: {done.returncode}\n{text}"
    return text


def wait_for(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not look():
        assert time.monotonic() < deadline, f"not within {LIMIT_S:.0f} s: {what}"
        time.sleep(0.5)


def read(file: Path) -> str:
    """Nothing if it is not there (yet)."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def scheduled(name: str = SCHEDULER, place: str = "queue") -> None:
    """Udev may find the drive long after the services are up."""
    wait_for(lambda: f"[{name}]" in read(BLOCK / place / "scheduler"), f"the drive has {name} in {place}")


def number() -> str:
    """MAJ:MIN."""
    return read(BLOCK / "dev")


# --- Loads ---


def unit(name: str, *properties: str, words: list[str] = FIO, before: tuple[str, ...] = ()) -> None:
    """A service that reads. before: words that make somebody else start it."""
    options = [f"--property={each}" for each in properties]
    said(*before, "systemd-run", "--quiet", "--collect", f"--unit={name}", *options, *words)


def stop(*names: str) -> None:
    said("systemctl", "stop", *names)


def container(name: str, weight: int, cgroup: str, *options: str) -> None:
    """One that reads, as an engine starts it for --blkio-weight: by crun, in the cgroup that it is given.

    What the host has in /usr is all that it sees.
    """
    bundle = BUNDLES / name
    root = bundle / "rootfs"
    for each in ("usr", "proc", "dev", "tmp"):
        (root / each).mkdir(parents=True, exist_ok=True)
    for each in ("bin", "lib", "lib64"):
        if not (root / each).is_symlink():
            (root / each).symlink_to(f"usr/{each}")
    major, minor = number().split(":")
    drive = {"path": f"/dev/{DRIVE}", "type": "b", "major": int(major), "minor": int(minor)}
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"},
        {"destination": "/usr", "type": "none", "source": "/usr", "options": ["bind", "ro"]},
    ]
    config = {
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs"},
        "process": {"args": FIO, "cwd": "/tmp", "env": ["PATH=/usr/bin"], "user": {"uid": 0, "gid": 0}},
        "mounts": mounts,
        "linux": {
            "namespaces": [{"type": "mount"}, {"type": "pid"}],
            "devices": [drive],
            "cgroupsPath": cgroup,
            "resources": {"blockIO": {"weight": weight}, "devices": [{"allow": True, "access": "rwm"}]},
        },
    }
    (bundle / "config.json").write_text(json.dumps(config))
    said("crun", *options, "run", "--detach", f"--bundle={bundle}", name)


def remove_containers(*names: str) -> None:
    for name in names:
        said("crun", "delete", "--force", name)


# --- Who gets what ---


def weigh(weights: Mapping[Path, int]) -> None:
    """Wait until it is these that count."""

    def now() -> dict[Path, int]:
        lines = {cgroup: read(cgroup / "io.fairlane.weight").splitlines() for cgroup in weights}
        return {cgroup: int(words[0].split()[1]) for cgroup, words in lines.items() if words}

    wait_for(lambda: now() == dict(weights), f"weights of {weights}, not {now()}")


def shares(
    cgroups: Mapping[str, Path], seconds: float = SECONDS, counted: Callable[[], Mapping[str, float]] = dict
) -> dict[str, Any]:
    """What each gets of all that they get, and what that was, while the drive was kept as busy as can be.

    Where other work takes the CPU it is not, and that says nothing of the shares of a busy drive.
    counted() gives somebody else's counts: the shares of the same time by these are "counted".
    """
    wait_for(lambda: all(read_bytes(cgroup) for cgroup in cgroups.values()), f"all read: {cgroups}")
    time.sleep(SETTLE_S)
    best: dict[str, float] = {}
    beside: dict[str, float] = {}
    for _ in range(TIMES):
        at, before = counted(), _counts(cgroups)
        time.sleep(seconds)
        moved, more = _since(before, _counts(cgroups)), _since(at, counted())
        if sum(moved.values()) > sum(best.values()):
            best, beside = moved, more
        if sum(best.values()) >= BUSY * seconds * 4096 * _iops():
            break
    got, rate = _fractions(best), sum(best.values()) / seconds / 4096
    # For the journal, of which a failure shows the end.
    print(got, f"of {rate:.0f} requests/s", flush=True)
    return {"shares": got, "counted": _fractions(beside), "requests_per_s": rate}


def _iops() -> int:
    """What the drive does, at most."""
    words = read(Path("/proc/cmdline")).split()
    return next(int(word.partition("=")[2]) for word in words if word.startswith("fairlane.iops="))


def _counts(cgroups: Mapping[str, Path]) -> dict[str, float]:
    return {name: read_bytes(cgroup) for name, cgroup in cgroups.items()}


def _since(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    return {name: count - before[name] for name, count in now.items()}


def _fractions(moved: Mapping[str, float]) -> dict[str, float]:
    return {name: count / sum(moved.values()) for name, count in moved.items()}


def read_bytes(cgroup: Path) -> int:
    """With the cgroups below."""
    return int(dict(word.split("=") for word in line_of_drive(cgroup / "io.stat")).get("rbytes", 0))


def line_of_drive(file: Path) -> list[str]:
    """What a cgroup's file says of the drive."""
    lines = (line.split() for line in read(file).splitlines())
    return next((words for key, *words in lines if key == number()), [])
