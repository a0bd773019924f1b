# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""mqFlashFQ on the modelled drive: what its scenarios say they show, they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane import check, scenario, sim

FOLDER = scenario.SCENARIOS / "mqflashfq"
KNOBS = ("none", "mqflashfq")
# Not the figures that take a minute: those on a drive that collects, and those with thousands of requests at a time.
QUICK = ("fig4a", "fig4b", "fig6a", "fig6b", "fig8", "weights", "two", "conserve")


@pytest.mark.parametrize("name", QUICK)
def test_it_shows_what_it_says(name: str, tmp_path: Path) -> None:
    for what in scenario.load_all(FOLDER / f"{name}.toml"):
        found = sim.run(what, None, KNOBS, tmp_path, lambda _: None)
        wrong = check.failed(check.evaluate(what, found, KNOBS))
        assert not wrong, [(what.name, each.text, each.measured, each.bound) for each in wrong]
