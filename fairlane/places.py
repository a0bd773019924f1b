# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Where things are in the project's folder."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


PROFILES = ROOT / "profiles"


SCENARIOS = ROOT / "scenarios"


TRACES = ROOT / "traces"
