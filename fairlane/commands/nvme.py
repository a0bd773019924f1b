# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane nvme`: a modelled SSD as the NVMe drive of a virtual machine."""

from __future__ import annotations

import argparse
import os

from fairlane.experiment import profiles
from fairlane.vm import fl_nvme


def main(args: argparse.Namespace) -> int:
    profile = profiles.load_modelled(args.profile)
    words = ["--socket", str(args.socket), "--name", f"fairlane {profile.name}", *fl_nvme.arguments(profile.params)]
    options = {"--file": args.file, "--size": args.size, "--time-scale": args.time_scale, "--serial": args.serial}
    words += [f"{name}={value}" for name, value in options.items() if value is not None]
    program = fl_nvme.build()
    os.execv(program, [str(program), *words])
