# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The suite's report."""

from typing import Any

from fairlane.verdict import Evidence, Mark


def render(plan: Any, evidence: Evidence, marks: dict[str, dict[str, Mark]]) -> str:
    return ""
