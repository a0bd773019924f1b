# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM, as root, as an operator would: commands on /dev/nvme0n1, which is somebody's. Their files, their cgroups and
their settings are as they were before, whatever happens.

The commands are processes of their own, so that one that is ended, or whose drive goes, is seen from outside.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fairlane.linux import made_drives
from fairlane.vm.guest import CGROUPS

DRIVE = "nvme0n1"
DEVICE = Path("/dev", DRIVE)
BLOCK = Path("/sys/block", DRIVE)
LOOKED_AT = 64 << 20
LIMIT_S = 300.0
BENCH_S = 1500.0
OUT = Path(os.environ["FAIRLANE_SHARED"])
LOAD = """
[run]
seconds = {seconds}

[device]
profile = "null" # --on says which drive it is

[[tenant]]
name = "heavy"
weight = 300
rw = "{rw}"
iodepth = 16
jobs = 2

[[tenant]]
name = "light"
weight = 100
rw = "{rw}"
iodepth = 16
jobs = 2
"""


def scenario(rw: str, seconds: float = 2) -> str:
    file = Path(tempfile.mkdtemp(), f"{rw}.toml")
    file.write_text(LOAD.format(rw=rw, seconds=seconds))
    return str(file)


def start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fairlane", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen[str], status: int, limit_s: float = LIMIT_S) -> str:
    """What it said."""
    try:
        said, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"it does not end:\n{process.communicate()[0][-2000:]}") from None
    assert process.returncode == status, f"exit status {process.returncode}, not {status}:\n{said[-2000:]}"
    return said


def run(status: int, *words: str, limit_s: float = LIMIT_S) -> str:
    said = ended(start(*words), status, limit_s)
    print(f"fairlane {' '.join(words)}\n{said}", file=sys.stderr, flush=True)
    return said


def refused(*words: str, because: str) -> None:
    said = run(2, *words).strip()
    assert because in said, f"it does not say {because!r}: {said}"
    assert "Traceback" not in said and said.count("\n") == 0, f"not one sentence: {said}"


def digest() -> str:
    """Of the beginning of what is on the drive; loads are spread over all of it."""
    with DEVICE.open("rb") as file:
        return hashlib.sha256(file.read(LOOKED_AT)).hexdigest()


def settings() -> dict[str, str]:
    """Of the drive, and which cgroups there are."""
    files = [BLOCK / "queue" / name for name in ("scheduler", "nr_requests", "wbt_lat_usec", "rq_affinity", "nomerges")]
    found = {str(file): file.read_text() for file in files if file.exists()}
    found["cgroups"] = " ".join(sorted(path.name for path in CGROUPS.iterdir() if path.is_dir()))
    found["controllers"] = (CGROUPS / "cgroup.subtree_control").read_text()
    return found


@contextlib.contextmanager
def untouched() -> Iterator[None]:
    """Data and settings are as before."""
    before, data = settings(), digest()
    yield
    assert digest() == data, "what is on the drive has changed"
    assert settings() == before, f"{settings()}, before: {before}"


def wait_for(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not look():
        assert time.monotonic() < deadline, f"not within {LIMIT_S:.0f} s: {what}"
        time.sleep(0.02)


def under_load() -> bool:
    return int((BLOCK / "stat").read_text().split()[8]) > 0


def reads_leave_data_alone() -> None:
    with untouched():
        said = run(
            0, "run", scenario("randread"), "--on", f"host:{DRIVE}", "--knobs", "none,bfq,kyber-fairness,fairlane",
            "--out", str(OUT / "reads"),
        )  # fmt: skip
        assert all(knob in said for knob in ("none", "bfq", "kyber-fairness", "fairlane"))


def writes_have_to_be_allowed() -> None:
    writes = ["run", scenario("randwrite"), "--on", f"host:{DRIVE}", "--knobs", "none,kyber-fairness"]
    because = f"if that is meant, add --destroy-data {DRIVE}"
    with untouched():
        refused(*writes, "--out", str(OUT / "writes"), because=because)
        refused(*writes, "--out", str(OUT / "writes"), "--destroy-data", "nvme1n1", because=because)
        calibrate = ["calibrate", "--on", f"host:{DRIVE}", "--out", str(OUT / "prices.toml")]
        refused(*calibrate, because=f"--destroy-data {DRIVE}")
        refused("bench", "--quick", "--on", f"host:{DRIVE}", "--out", str(OUT / "all"), because=because)
    before = settings()
    run(0, *writes, "--out", str(OUT / "writes"), "--destroy-data", DRIVE)
    assert settings() == before


def a_drive_in_use_is_refused() -> None:
    subprocess.run(["mkfs.ext4", "-q", "-F", str(DEVICE)], check=True)
    folder = Path(tempfile.mkdtemp())
    reads = ["run", scenario("randread"), "--on", f"host:{DRIVE}", "--out", str(OUT / "mounted")]
    subprocess.run(["mount", str(DEVICE), str(folder)], check=True)
    try:
        (folder / "precious").write_text("data")
        refused(*reads, because=f"{DRIVE} is mounted; give a drive that nothing else uses")
        refused("bench", "--quick", "--on", f"host:{DRIVE}", "--destroy-data", DRIVE, "--out", str(OUT / "mounted"),
                because=f"{DRIVE} is mounted")  # fmt: skip
        assert (folder / "precious").read_text() == "data"
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    refused("run", scenario("randread"), "--on", "host:nvme7n1", because="no block device 'nvme7n1'")


def a_run_that_is_ended_puts_everything_back() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        with untouched():
            process = start("run", scenario("randread", 60), "--on", f"host:{DRIVE}", "--knobs", "kyber-fairness",
                            "--out", str(OUT / "ended"))  # fmt: skip
            wait_for(under_load, "the run is under way")
            process.send_signal(number)
            ended(process, 130 if number == signal.SIGINT else 128 + number)


def the_bench_goes_on_where_it_was_interrupted() -> None:
    """Only reads: trade-off and bursts."""
    bench = ["bench", "--quick", "--suite", "d4", "--knobs", "kyber-fairness", "--on", f"host:{DRIVE}"]
    bench += ["--out", str(OUT / "bench")]
    with untouched():
        process = start(*bench)
        wait_for(lambda: len(list((OUT / "bench" / "units").glob("*.json"))) >= 3, "three units are done")
        process.send_signal(signal.SIGINT)
        ended(process, 130)
        said = run(0, *bench, limit_s=BENCH_S)
        assert "kyber-fairness" in said and (OUT / "bench" / "report.html").exists()


def a_drive_that_disappears_half_way_is_said() -> None:
    before = settings()["cgroups"]
    process = start("run", scenario("randread", 60), "--on", f"host:{DRIVE}", "--knobs", "kyber-fairness", "--out",
                    str(OUT / "gone"))  # fmt: skip
    wait_for(under_load, "the run is under way")
    (BLOCK / "device" / "device" / "remove").write_text("1")
    said = ended(process, 2)
    print(said, file=sys.stderr, flush=True)
    assert "Traceback" not in said
    assert not BLOCK.exists()
    cgroups = " ".join(sorted(path.name for path in CGROUPS.iterdir() if path.is_dir()))
    assert cgroups == before, f"left over: {cgroups}"


def main() -> None:
    serial = (BLOCK / "device" / "serial").read_text().strip()
    assert serial != made_drives.NVME_SERIAL, "a drive of our own may be overwritten; this one is somebody's"
    DEVICE.write_bytes(os.urandom(LOOKED_AT))
    for test in (
        reads_leave_data_alone,
        writes_have_to_be_allowed,
        a_run_that_is_ended_puts_everything_back,
        the_bench_goes_on_where_it_was_interrupted,
        a_drive_in_use_is_refused,
        a_drive_that_disappears_half_way_is_said,
    ):
        begun = time.monotonic()
        test()
        print(f"{test.__name__} {time.monotonic() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
