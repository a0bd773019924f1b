# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""How many instructions a request takes, by scheduler: `make instructions` in this folder.

Counted by valgrind's callgrind, so the same on any machine with the same compiler, however busy. All of the loop in
loop.h is counted: what the row `none` has is the host's, and the loop's own.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fairlane import proc, schedulers

SIZES = ((4, 1), (16, 4), (64, 16), (256, 64))  # flows, hardware queues
LIMIT_S = 3600.0  # flashfq with 256 flows, on a busy machine
CALLGRIND = ("valgrind", "--tool=callgrind", "--instr-atstart=no")


def count(program: Path, name: str, flows: int, queues: int) -> float:
    """Instructions for a request of the scheduler `name`."""
    what = f"counting {name}'s instructions"
    with tempfile.TemporaryDirectory(prefix="fairlane-") as folder:
        profile = f"--callgrind-out-file={folder}/profile"
        said = proc.output([*CALLGRIND, profile, program, name, str(flows), str(queues)], what=what, limit_s=LIMIT_S)
    collected = re.search(r"Collected : (\d+)", said)
    requests = re.search(r"^(\d+)$", said, re.MULTILINE)
    assert collected and requests, said
    return int(collected[1]) / int(requests[1])


def main(program: Path, only: Sequence[str]) -> None:
    print(f"{'':16}" + "".join(f"{f'{flows} x {queues}':>10}" for flows, queues in SIZES))
    for name in only or ("none", *schedulers.NAMES):
        print(f"{name:16}", end="")
        for flows, queues in SIZES:
            print(f"{count(program, name, flows, queues):10.0f}", end="", flush=True)
        print()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
