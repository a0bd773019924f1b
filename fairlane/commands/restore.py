# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane restore`: what was there before the first `fairlane apply`."""

from __future__ import annotations

import argparse

from fairlane.settings import apply


def main(_args: argparse.Namespace) -> int:
    left = apply.restore()
    print("nothing was applied since the machine has started" if left is None else "everything is as it was")
    for line in left or ():
        print(f"but {line}")
    return 0
