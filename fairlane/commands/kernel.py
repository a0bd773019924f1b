# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane kernel`: the lab kernel."""

from __future__ import annotations

import argparse

from fairlane.pages import terminal
from fairlane.progress import Progress
from fairlane.vm import kernels, lab_kernel


def main(_args: argparse.Namespace) -> int:
    with terminal.progress("lab kernel") as progress:

        def say(text: str) -> None:
            progress(Progress(text, lab_kernel.fraction(text)))

        kernel = lab_kernel.ensure(say)
        kernels.build_modules(kernel, say)
    print(f"{kernel.release} {kernel.vmlinuz}")
    return 0
