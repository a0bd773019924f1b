# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What the commands share."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from fairlane.errors import FairlaneError
from fairlane.experiment import traces
from fairlane.experiment.model import Scenario

RESULTS, REPORT, COMPARED, SCENARIO = "results.json", "report.html", "compared.html", "scenario.toml"


def check_traces(scenarios: Sequence[Scenario]) -> None:
    """Read every trace to its end, so that a VM need not boot to say what is wrong with one."""
    for path, devices in {(t.trace, t.devices) for what in scenarios for t in what.tenants if t.trace}:
        traces.summary(traces.read(Path(path), devices=devices))


def check_options(args: argparse.Namespace, backend: str) -> None:
    if args.kernel and backend != "vm":
        raise FairlaneError("--kernel chooses the VM's kernel; it says nothing with --on " + args.on)
    if args.destroy_data and backend != "host":
        raise FairlaneError("--destroy-data is about a real drive; it says nothing with --on " + args.on)


def parse_on(on: str, profile_in_vm: bool = False) -> tuple[str, str | None]:
    """Which backend, and on which drive: a block device, or a modelled drive's profile (None: the scenario's)."""
    backend, colon, where = on.partition(":")
    modelled = ("sim", "vm") if profile_in_vm else ("sim",)
    if on == "vm" or (backend in modelled and bool(where) == bool(colon)):
        return backend, where or None
    if backend == "host" and where:
        return backend, where.removeprefix("/dev/")
    raise FairlaneError(
        f"--on {on}: unknown backend; valid are vm, host:DEV, such as host:nvme0n1, and sim or sim:PROFILE"
    )


def print_json(data: object) -> None:
    json.dump(data, sys.stdout, indent=1)
    print()
