# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Where things are in the project's folder, or in what a wheel or a package carries of it."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent

# What the simulator needs of the project's folder, under the same names there; setup.py puts it into a wheel.
CARRIED = PACKAGE / "carried"
INSTALLED = CARRIED.is_dir()

SIMULATOR_ONLY = (
    "what is installed has the simulator and the commands for a host, but nothing for VMs; use a checkout of the"
    " project (README.md says how)"
)

ROOT = CARRIED if INSTALLED else PACKAGE.parent
CODE = CARRIED / "code.json"  # schedulers.code() as it was when the wheel was built
COMMIT = CARRIED / "commit"  # the same of schedulers.commit(); empty: nobody knew

PROFILES = ROOT / "profiles"
SCENARIOS = ROOT / "scenarios"
TRACES = ROOT / "traces"
