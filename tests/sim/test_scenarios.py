# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Every other scenario: what it expects holds in the simulator (claims/ is in test_claims.py).

What does not is in FAILS, with the reason. Whoever mends it removes it from there: the test insists on that.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from simkit import judge

from fairlane.experiment import expectations, scenario_file
from fairlane.places import SCENARIOS

FILES = {
    str(path.relative_to(SCENARIOS).with_suffix("")): path
    for path in sorted(SCENARIOS.rglob("*.toml"))
    if path.parent.name != "claims"
}
UNCOUNTED = "with mqfq half of the requests wait for a tag, a time that is not counted"
# The text of each expectation that does not hold, and why.
FAILS = {
    "d2fq/fig11a": {f"d2fq: mean latency of {who} (us), relative to mqfq": UNCOUNTED for who in ("small", "large")},
    "d2fq/fig11c": {"d2fq: p99 latency of w2 (us), relative to mqfq": UNCOUNTED},
    "d2fq/fig7": {
        "tau-1GiB: largest relative error of a share, from 1 s to 2 s": "1 GiB is more than is done in the first second"
    },
    "d2fq/fig8": {
        f"tau-1MiB: p99.9 latency of {who} (us), relative to tau-10MiB": "the ratio fed forward is right at once"
        for who in ("small", "medium", "large")
    },
    "d2fq/vm": {"d2fq: largest relative error of a share": "3.3 % for 3"},
    "d2fq/vm-cpu-bound": {"d2fq: CPU time per I/O, relative to mqfq": "0.99: it saves CPU time with more cores only"},
    "kyber-fairness/heavy-limited": {
        "kyber-fairness: total IOPS, relative to none": "0.93: the drive completes 64 at a time, every 16 ms. A window "
        "of the floor sees four or five times, and its search takes seconds and ends too low"
    },
    "mixes/writes": {"kyber-fairness: largest relative error of a share": "5.3 % for 5"},
}


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_what_a_scenario_expects_holds(name: str, tmp_path: Path) -> None:
    assert FAILS.keys() <= FILES.keys()
    fails: dict[str, str] = {}
    judged = 0
    for what in scenario_file.load_all(FILES[name]):
        outcomes = [each for each in judge(what, tmp_path / what.name) if each.ok is not None]
        judged += len(outcomes)
        for each in expectations.failed(outcomes):
            assert each.text not in fails, "two experiments fail alike: name them apart"
            fails[each.text] = f"{what.name}: {each.text}: {each.measured}, wanted {each.bound}"
    if not judged:
        pytest.skip("it expects nothing of what the simulator has")
    assert fails.keys() == FAILS.get(name, {}).keys(), "\n".join(fails.values())
