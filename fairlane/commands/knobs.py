# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane knobs`: the ways to ask Linux for isolation."""

from __future__ import annotations

import argparse

from fairlane.backends import host, table
from fairlane.backends.host import Host
from fairlane.commands.common import print_json
from fairlane.errors import FairlaneError
from fairlane.linux import knobs
from fairlane.pages import terminal


def main(args: argparse.Namespace) -> int:
    rows = [{"name": knob.name, "about": knob.about} for knob in knobs.TABLE.values()]
    if args.on is not None:
        reasons = host.available(_device(args.on), list(knobs.TABLE))
        rows = [row | {"here": reasons[row["name"]] or "yes"} for row in rows]
    if args.json:
        print_json(rows)
    else:
        headings = ("knob", "what it does", "here")[: len(rows[0])]
        terminal.listing([tuple(row.values()) for row in rows], headings, terminal.console())
    return 0


def _device(on: str) -> str:
    backend = table.named(on)
    if not isinstance(backend, Host):
        raise FairlaneError(f"--on {on}: must be host:DEV here, such as host:nvme0n1")
    return backend.device
