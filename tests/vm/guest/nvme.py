# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Linux's own NVMe driver on fl-nvme: what it sees, data that are verified, resets under load."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import time
from pathlib import Path

from fairlane import proc
from fairlane.linux.nvme import IDENTIFY, IDENTITY_BYTES, Controller

DISK, CONTROLLER = Path("/dev/nvme0n1"), Path("/sys/class/nvme/nvme0")
SHARED = Path(os.environ["FAIRLANE_SHARED"])
WAIT_S = 300.0
MIB = 1 << 20
EACH = 200  # writes between resets

GET_LOG_PAGE = 0x02


def wait_for(path: Path) -> None:
    end = time.monotonic() + WAIT_S
    while not path.exists():
        assert time.monotonic() < end, f"{path} is not there"
        time.sleep(0.1)


def what_linux_sees() -> None:
    assert (CONTROLLER / "model").read_text().strip() == "fairlane zssd"
    assert int(Path("/sys/block/nvme0n1/size").read_text()) * 512 == 256 * MIB
    assert int((CONTROLLER / "queue_count").read_text()) == 1 + os.cpu_count()  # type: ignore[operator]
    controller = Controller(DISK.name)
    _, identity = controller.admin(IDENTIFY, 1, reply=IDENTITY_BYTES)
    assert identity[24:64].decode().strip() == "fairlane zssd"
    assert struct.unpack_from("<I", identity, 80)[0] == 0x10400
    controller.arbitration = 0x07050300
    assert controller.arbitration == 0x07050300, "the weights that were set"
    controller.arbitration = 0


def fio(name: str, *words: str) -> subprocess.Popen[bytes]:
    command = ["fio", f"--name={name}", f"--filename={DISK}", "--direct=1", "--ioengine=libaio", "--iodepth=32"]
    return subprocess.Popen([*command, "--output-format=json", f"--output={SHARED / name}.json", *words])


def verified(name: str, *words: str) -> None:
    with fio(name, "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", *words) as job:
        assert job.wait() == 0, f"fio {name} ended with {job.returncode}"
    (done,) = json.loads((SHARED / f"{name}.json").read_text())["jobs"]
    assert done["error"] == 0 and done["read"]["total_ios"] > 0


def data_are_verified() -> None:
    verified("small", "--rw=randwrite", "--bs=4k", "--size=8M")
    verified("mixed", "--rw=randrw", "--bsrange=512-256k", "--offset=16M", "--size=32M")
    verified("large", "--rw=write", "--bs=1M", "--offset=64M", "--size=64M", "--fsync=8")


def discarded_blocks_are_zeroes() -> None:
    proc.output(["blkdiscard", "--offset", str(4 * MIB), "--length", str(MIB), DISK], what="blkdiscard", limit_s=60)
    with DISK.open("rb") as disk:
        disk.seek(4 * MIB)
        assert disk.read(MIB) == bytes(MIB)


def writes() -> int:
    return int(Path("/sys/block/nvme0n1/stat").read_text().split()[4])


def reset_under_load() -> None:
    """Linux repeats what a reset has cut short: to fio, nothing has happened."""
    words = (
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--rw=randwrite",
        "--bs=16k",
        "--offset=128M",
        "--size=16M",
    )
    resets, last = 0, writes()
    with fio("reset", *words, "--loops=2") as job:
        while job.poll() is None:
            if writes() < last + EACH:
                time.sleep(0.02)
                continue
            (CONTROLLER / "reset_controller").write_text("1")
            resets, last = resets + 1, writes()
        assert job.wait() == 0, f"fio ended with {job.returncode}"
    print(f"{resets} resets")
    assert resets
    assert (CONTROLLER / "state").read_text().strip() == "live"


def logs() -> None:
    _, smart = Controller(DISK.name).admin(GET_LOG_PAGE, 127 << 16 | 2, reply=512)
    assert struct.unpack_from("<Q", smart, 64)[0] > 1000, "reads in the SMART log"
    assert struct.unpack_from("<Q", smart, 160)[0] == 0, "media errors"


def main() -> None:
    proc.modprobe("nvme")
    wait_for(DISK)
    for step in (what_linux_sees, data_are_verified, discarded_blocks_are_zeroes, reset_under_load, logs):
        started = time.monotonic()
        step()
        print(f"{step.__name__}: {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
