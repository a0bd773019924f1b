# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane kernel`: the kernels that are built here."""

from __future__ import annotations

import argparse

from fairlane.commands.common import only_in_a_checkout
from fairlane.pages import terminal
from fairlane.progress import Progress
from fairlane.vm import kernels, lab_kernel


def main(args: argparse.Namespace) -> int:
    only_in_a_checkout("kernel")
    for recipe in lab_kernel.CHECKERS if args.check else (lab_kernel.LAB,):
        build(recipe)
    return 0


def build(recipe: lab_kernel.Recipe) -> None:
    with terminal.progress(f"{recipe.name} kernel") as progress:

        def say(text: str) -> None:
            progress(Progress(text, lab_kernel.fraction(text)))

        kernel = lab_kernel.ensure(say, recipe)
        kernels.build_modules(kernel, say)
    print(f"{kernel.release} {kernel.vmlinuz}")
