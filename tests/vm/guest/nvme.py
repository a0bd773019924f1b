# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Linux's own NVMe driver on fl-nvme: what it sees, data that are verified, resets under load.

nvme.py first    on a drive without data; leaves some, which it has flushed, when the host kills the drive
nvme.py again    the same drive, come back: what was flushed is there
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import struct
import subprocess
import time
from pathlib import Path

from fairlane import proc

DISK, CONTROLLER = Path("/dev/nvme0n1"), Path("/sys/class/nvme/nvme0")
SHARED = Path(os.environ["FAIRLANE_SHARED"])
WAIT_S = 300.0
MIB = 1 << 20
EACH = 200  # writes between resets

ADMIN_IOCTL = 0xC0484E41  # NVME_IOCTL_ADMIN_CMD: struct nvme_admin_cmd, 72 bytes
IDENTIFY, GET_LOG_PAGE, GET_FEATURES, SET_FEATURES = 0x06, 0x02, 0x0A, 0x09


def admin(opcode: int, nsid: int = 0, cdw10: int = 0, cdw11: int = 0, reply: int = 0) -> tuple[int, bytes]:
    """Its result and data; an error of the controller is an OSError or a status above 0."""
    data = ctypes.create_string_buffer(max(reply, 1))
    address = ctypes.addressof(data) if reply else 0
    command = bytearray(
        struct.pack("<BBHIIIQQIIIIIIIIII", opcode, 0, 0, nsid, 0, 0, 0, address, 0, reply, cdw10, cdw11, *[0] * 6)
    )
    with open("/dev/nvme0", "rb") as device:  # noqa: PTH123
        status = fcntl.ioctl(device, ADMIN_IOCTL, command)
    assert status == 0, f"opcode {opcode:#x}: status {status:#x}"
    return struct.unpack_from("<I", command, 68)[0], data.raw[:reply]


def wait_for(path: Path) -> None:
    end = time.monotonic() + WAIT_S
    while not path.exists():
        assert time.monotonic() < end, f"{path} is not there"
        time.sleep(0.1)


def what_linux_sees() -> None:
    assert (CONTROLLER / "model").read_text().strip() == "fairlane zssd"
    assert int(Path("/sys/block/nvme0n1/size").read_text()) * 512 == 256 * MIB
    assert int((CONTROLLER / "queue_count").read_text()) == 1 + os.cpu_count()  # type: ignore[operator]
    _, identity = admin(IDENTIFY, cdw10=1, reply=4096)
    assert identity[24:64].decode().strip() == "fairlane zssd"
    assert struct.unpack_from("<I", identity, 80)[0] == 0x10400
    admin(SET_FEATURES, cdw10=1, cdw11=0x07050300)
    assert admin(GET_FEATURES, cdw10=1)[0] == 0x07050300, "the weights that were set"
    admin(SET_FEATURES, cdw10=1, cdw11=0)


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
    _, smart = admin(GET_LOG_PAGE, nsid=0xFFFFFFFF, cdw10=127 << 16 | 2, reply=512)
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
