# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Two runs of the suite side by side, as a page."""

from __future__ import annotations

from fairlane.isolbench.compare import Comparison
from fairlane.isolbench.suite import PARTS
from fairlane.pages.template import template

NOTED = 0.1  # a figure that is so much more, or less, in B than in A is bold


def render(found: Comparison) -> str:
    """The page as text."""
    return template("benchcompare.html.j2").render(found=found, parts=PARTS, noted=NOTED)
