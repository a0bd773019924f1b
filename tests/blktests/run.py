#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Run the block layer's public tests (github.com/osandov/blktests) in a VM, with our modules loaded.

    .venv/bin/python tests/blktests/run.py CHECKOUT [TEST...] [--drive fl-nvme] [--kernel 6.12] [--without] [--out DIR]

CHECKOUT is a folder with the suite, in which `make` was run; nothing is written there. Tests are named as the suite
does: block, or block/005 block/021. Each loop of the suite over queue/scheduler goes over our schedulers, too, and the
device of tests that need one is a QEMU NVMe drive under one of ours, or fl-nvme, on which group nvme has its tests of a
drive. --without: without our modules, to compare.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairlane.backends import attached
from fairlane.errors import FairlaneError
from fairlane.experiment import profiles
from fairlane.vm import fl_nvme, kernels, lab_kernel, newer_qemu, qemu

GUEST = Path(__file__).with_name("guest.py")
LIMIT_S = 3600.0
BYTES, QUEUES = 2 << 30, 4
GROUPS = {"qemu": "block", "fl-nvme": "nvme"}  # by the drive
# The suite's line of a test that ended: block/001 (what it does)   [passed]
ENDED = re.compile(r"((?:block|nvme)/\d+)\b.*\[(passed|failed|not run)\]")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("tests", nargs="*", help="default: the group that fits the drive")
    parser.add_argument("--drive", default="qemu", choices=GROUPS)
    parser.add_argument("--kernel", default="6.12", choices=(*kernels.VERSIONS, *lab_kernel.RECIPES))
    parser.add_argument("--without", action="store_true", help="do not load our modules")
    parser.add_argument("--seconds", type=int, default=10, help="for each test that takes as long as it is told to")
    parser.add_argument("--out", type=Path, default=Path("out/blktests"), help="for the suite's results")
    args = parser.parse_intermixed_args()
    checkout, out = args.checkout.resolve(), args.out.resolve()
    if not (checkout / "check").is_file() or not (checkout / "src" / "openclose").is_file():
        print(f"{checkout}: not a checkout of blktests in which `make` was run", file=sys.stderr)
        return 2
    out.mkdir(parents=True, exist_ok=True)
    try:
        said, complaints = run(checkout, out, args)
    except FairlaneError as error:
        print(error, file=sys.stderr)
        return 2
    ends = {match[1]: match[2] for line in said if (match := ENDED.search(line))}
    print("; ".join(f"{count} {how}" for how, count in sorted(Counter(ends.values()).items())))
    for line in complaints:
        print("the kernel said:", line)
    return int("failed" in ends.values() or bool(complaints) or not ends)


@contextmanager
def of_qemu() -> Iterator[dict[str, Any]]:
    with qemu.nvme_drive(BYTES, QUEUES) as (options, fds):
        yield {"qemu_opts": options, "pass_fds": fds}


@contextmanager
def of_fl_nvme() -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="fairlane-") as folder:
        socket = Path(folder, "socket")
        words = [*attached.words(profiles.load_profile("zssd")), f"--size={BYTES}"]
        with fl_nvme.serving(fl_nvme.build(checked=True), socket, words) as drive:
            yield {"qemu_opts": fl_nvme.qemu_opts(socket), "program": newer_qemu.ensure()}
            if drive.poll() is not None:
                raise FairlaneError("fl-nvme ended before the VM did")


DRIVES = {"qemu": of_qemu, "fl-nvme": of_fl_nvme}


def run(checkout: Path, out: Path, args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """What the suite said, which is printed as it comes, and what the kernel complained of."""
    kernel = lab_kernel.find(args.kernel)
    said: list[str] = []

    def on_line(line: str) -> None:
        said.append(line)
        print(line, flush=True)

    tests = args.tests or [GROUPS[args.drive]]
    guest = [sys.executable, str(GUEST), str(checkout), str(kernel.root / "boot"), str(args.seconds), *tests]
    with DRIVES[args.drive]() as how:
        finished = qemu.run(
            guest,
            kernel,
            out,
            timeout_s=LIMIT_S,
            **how,
            modules=None if args.without else kernels.build_modules(kernel),
            on_line=on_line,
        )
    if finished.status > 1 or not any(ENDED.search(line) for line in said):
        last = "\n".join(finished.console[-20:])
        raise FairlaneError(f"{shlex.join(guest)} ended with exit status {finished.status}; the VM said last:\n{last}")
    return said, finished.bad_dmesg


if __name__ == "__main__":
    sys.exit(main())
