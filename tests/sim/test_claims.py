# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Claims about isolation, each a scenario named by it: whatever a tenant does, the others have what they are due.

A claim that does not hold yet says why in FAILS. Whoever mends it removes it from there: the test insists on that.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from simkit import judge

from fairlane.experiment import expectations, scenario_file
from fairlane.places import SCENARIOS

CLAIMS = {
    what.name.removeprefix("claims/"): what
    for path in sorted(SCENARIOS.glob("claims/*.toml"))
    for what in scenario_file.load_all(path)
}
FAILS: dict[str, str] = {}


@pytest.mark.parametrize("name", CLAIMS)
def test_claim_holds(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if name in FAILS:
        request.applymarker(pytest.mark.xfail(reason=FAILS[name], strict=True))
    judged = judge(CLAIMS[name], tmp_path)
    assert judged and all(outcome.ok is not None for outcome in judged)
    wrong = [f"{each.text}: {each.measured}, wanted {each.bound}" for each in expectations.failed(judged)]
    assert not wrong, "\n".join(wrong)
