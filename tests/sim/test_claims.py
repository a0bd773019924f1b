# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Claims about isolation, each a scenario named by it: whatever a tenant does, the others have what they are due.

A claim that does not hold yet says why in FAILS. Whoever mends it removes it from there: the test insists on that.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.backends.scenario_runs import run_scenario
from fairlane.backends.sim import Simulator
from fairlane.experiment import expectations, scenario_file
from fairlane.places import SCENARIOS

CLAIMS = {
    what.name.removeprefix("claims/"): what
    for path in sorted(SCENARIOS.glob("claims/*.toml"))
    for what in scenario_file.load_all(path)
}
LIGHT = "kyber-fairness: a credit that was given back goes to busy queues before the one that was woken"
LIMITED = "takes a writer that deep queues hold back for one that wants no more, and gives its reader's share away"
LEAVES = "kyber-fairness grants every cgroup a page at least, and fresh ones are first"
FAILS = {
    "a-light-tenant-beside-deep-ones-is-as-fast-as-under-none": f"{LIGHT}; mqflashfq: total 0.97 of none",
    "a-heavy-tenant-at-queue-depth-1-is-as-fast-as-under-none": f"{LIGHT}; mqflashfq: total 0.97 of none",
    "a-reader-and-a-writer-of-equal-weight-get-half-each": "kyber-fairness: latency targets override weights",
    "a-reader-of-weight-900-gets-nine-tenths-beside-a-writer-of-100-980pro": f"kyber-fairness {LIMITED}",
    "a-reader-of-weight-900-gets-nine-tenths-beside-a-writer-of-100-p4500": f"mqflashfq {LIMITED}",
    "a-tenant-on-each-core-costs-no-throughput-16": "mqflashfq: 0.953 of none",
    "a-tenant-on-each-core-costs-no-throughput-32": "mqflashfq: 0.953 of none",
    "a-tenant-that-pauses-gets-no-more-than-its-share": "mqflashfq: who returns is forgiven its debt",
    "a-tenant-with-300-groups-gets-its-share": LEAVES,
    "a-tenant-with-64-groups-gets-its-share": LEAVES,
    "calibrated-prices-are-charged-once": "kyber-fairness multiplies calibrated prices by the write price",
    "latency-targets-leave-shares-alone": "kyber-fairness: latency targets override weights",
}


@pytest.mark.parametrize("name", CLAIMS)
def test_claim_holds(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if name in FAILS:
        request.applymarker(pytest.mark.xfail(reason=FAILS[name], strict=True))
    what = CLAIMS[name]
    of = {variant.name: variant.knob for variant in what.variants}
    named = [knob for expect in what.expects for knob in (expect.of, expect.knob) if knob]
    knobs = list(dict.fromkeys(of.get(knob, knob) for knob in named))
    found = run_scenario(Simulator(), what, knobs, tmp_path)
    judged = expectations.evaluate(what, found, knobs)
    assert judged and all(outcome.ok is not None for outcome in judged)
    wrong = [f"{each.text}: {each.measured}, wanted {each.bound}" for each in expectations.failed(judged)]
    assert not wrong, "\n".join(wrong)
