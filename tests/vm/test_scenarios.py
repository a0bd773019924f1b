# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What the scenarios promise holds on a real kernel: shares, totals, work conservation, idling, hierarchy.

Each test runs one file of scenarios/kyber-fairness with the knobs that its expectations compare, all in one boot.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fairlane import check, scenario, vm
from fairlane.host import Progress
from fairlane.results import Outcome

FOLDER = scenario.SCENARIOS / "kyber-fairness"
NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))
ALSO_ON_6_12 = ("fig1", "nvme")
CASES = [("6.1", name) for name in NAMES] + [("6.12", name) for name in ALSO_ON_6_12]


@pytest.mark.parametrize(("kernel", "name"), CASES, ids=[f"{name}-{kernel}" for kernel, name in CASES])
def test_scenario_holds(kernel: str, name: str, tmp_path: Path) -> None:
    """Once; and if something does not hold then, the median of three has the last word: the machine may be noisy."""
    failed = _run(kernel, name, tmp_path / "once", repeats=1)
    if failed:
        failed = _run(kernel, name, tmp_path / "thrice", repeats=3)
    said = [f"{outcome.text}: {outcome.measured}, wanted {outcome.bound} {outcome.note or ''}" for outcome in failed]
    assert not failed, "\n".join(said)


def _run(kernel: str, name: str, out: Path, repeats: int) -> list[Outcome]:
    what = replace(scenario.load(FOLDER / f"{name}.toml"), repeats=repeats)
    asked = list(dict.fromkeys(knob for expect in what.expects for knob in (expect.of, expect.knob) if knob))
    results = vm.run_scenario(what, asked, out, _quiet, kernel)
    outcomes = check.evaluate(what, results, asked)
    assert all(outcome.ok is not None for outcome in outcomes), "an expectation could not be judged"
    return check.failed(outcomes)


def _quiet(_now: Progress) -> None:
    pass
