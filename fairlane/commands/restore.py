# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane restore`: what was there before the first `fairlane apply`."""

from __future__ import annotations

import argparse

from fairlane.settings import apply


def main(_args: argparse.Namespace) -> int:
    print("everything is as it was" if apply.restore() else "nothing was applied since the machine has started")
    return 0
