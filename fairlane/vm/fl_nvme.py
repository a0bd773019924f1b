# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""fl-nvme, the modelled SSD as an NVMe drive of a VM: the program, and what QEMU is told of it."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fairlane import proc
from fairlane.errors import FairlaneError
from fairlane.places import INSTALLED, ROOT, SIMULATOR_ONLY
from fairlane.vm.qemu import MEMORY

BUILD_S = 300.0
READY_S = 120.0  # until its model is in the steady state; a second or two on an idle machine
END_S = 30.0

OPTIONS = {"time_scale": "--time-scale", "seed": "--seed"}
OTHERS = ("precondition", "memory", "queue_depth", "block_size")  # of vssd, and not told by a number here


def build(checked: bool = False) -> Path:
    """The program, made if its sources are newer than it is; checked: with sanitizers."""
    if INSTALLED:
        raise FairlaneError(f"fl-nvme is missing here: {SIMULATOR_ONLY}")
    target = "asan" if checked else "all"
    proc.output(["make", "-s", "-C", ROOT / "nvme", target], what="building fl-nvme", limit_s=BUILD_S)
    return ROOT / "build" / "nvme" / ("fl-nvme.asan" if checked else "fl-nvme")


def arguments(params: Mapping[str, int]) -> list[str]:
    """A profile's numbers as fl-nvme takes them."""
    words = [f"{OPTIONS[key]}={value}" for key, value in params.items() if key in OPTIONS]
    if params.get("precondition") == 0:
        words.append("--fresh")
    return words + [f"{key}={value}" for key, value in params.items() if key not in (*OPTIONS, *OTHERS)]


def qemu_opts(socket: Path) -> list[str]:
    """The drive for a VM of qemu.py; its memory must be shared, or the drive cannot reach it."""
    device = json.dumps({"driver": "vfio-user-pci", "socket": {"type": "unix", "path": str(socket)}})
    memory = f"memory-backend-memfd,id=shared,size={MEMORY},share=on"
    return ["-object", memory, "-machine", "memory-backend=shared", "-device", device]


@contextlib.contextmanager
def serving(program: Path, socket: Path, words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """fl-nvme with those arguments, ready at the socket; it ends with this, or with us."""
    # Killed, we could not end it: so the kernel does.
    command = ["setpriv", "--pdeathsig", "TERM", str(program), "--socket", str(socket), *words]
    with proc.unwinding_signals(), subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            _wait_until_ready(process)
            yield process
        finally:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_ready(process: subprocess.Popen[bytes]) -> None:
    """It says where it is once a client can connect."""
    assert process.stdout and process.stderr
    if not select.select([process.stdout], [], [], READY_S)[0]:
        raise FairlaneError(f"fl-nvme is not ready after {READY_S:.0f} s")
    if not process.stdout.readline():
        raise FairlaneError(f"fl-nvme ended at once: {process.stderr.read().decode(errors='replace').strip()}")
