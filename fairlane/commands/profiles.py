# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane profiles`: the drives that a scenario can name."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from fairlane.commands.common import print_json
from fairlane.experiment import profiles
from fairlane.pages import terminal
from fairlane.places import PROFILES


def main(args: argparse.Namespace) -> int:
    rows = [profiles.load_profile(name) for name in args.names or profiles.profiles()]
    if args.json:
        print_json([asdict(row) for row in rows])
    elif args.names:
        for row in rows:
            terminal.profile(row, PROFILES / f"{row.name}.toml", terminal.console())
    else:
        cells = [(row.name, row.kind, row.description) for row in rows]
        terminal.listing(cells, ("profile", "kind", "what it is"), terminal.console())
    return 0
