# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane wrr`: does a drive's weighted round robin work?"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict

from fairlane.backends import table, wrr
from fairlane.backends.host import Host
from fairlane.backends.job import Tell
from fairlane.backends.vm import Vm
from fairlane.commands.common import print_json
from fairlane.errors import FairlaneError
from fairlane.experiment.wrr import Found
from fairlane.linux.wrr import MOST_SECONDS
from fairlane.pages import terminal, wrr_text
from fairlane.vm import kernels, supported

MIN_SECONDS = 1.0


def main(args: argparse.Namespace) -> int:
    if args.seconds is not None and not MIN_SECONDS <= args.seconds <= MOST_SECONDS:
        raise FairlaneError(f"--seconds {args.seconds:g}: must be from {MIN_SECONDS:g} to {MOST_SECONDS:g}")
    said = []
    with terminal.progress("wrr") as progress:
        for found in _found(args, progress):
            said.append(found)
            if not args.json:
                wrr_text.write(found, terminal.console())
    if args.json:
        print_json([{**asdict(found), "verdict": asdict(found.verdict)} for found in said])
    return 0 if said[-1].verdict.works else 1


def _found(args: argparse.Namespace, progress: Tell) -> Iterator[Found]:
    backend = table.named(args.on, drive=True)
    if isinstance(backend, Host):
        if args.kernel:
            raise FairlaneError(f"--kernel chooses the VM's kernel; it has no effect with --on {args.on}")
        yield wrr.on_host(backend.device, args.seconds or wrr.SECONDS[backend.name], progress)
    elif isinstance(backend, Vm):
        known = kernels.nvme_versions()
        version = args.kernel or next((each for each in (supported.own(), *known) if each in known), known[0])
        yield from wrr.in_vm(version, backend.place or wrr.PROFILE, args.seconds or wrr.SECONDS[backend.name], progress)
    else:
        raise FairlaneError(f"--on {args.on}: must be vm, vm:PROFILE or host:DEV here, such as host:nvme0n1")
