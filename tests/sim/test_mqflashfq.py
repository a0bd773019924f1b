# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""mqFlashFQ on the modelled drive: what its scenarios say they show, they show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simkit import FLAT, null_drive, run_of, simulate, tenant

from fairlane.backends.scenario_runs import run_scenario
from fairlane.backends.sim import Simulator
from fairlane.experiment import expectations, scenario_file
from fairlane.experiment.figures import jain
from fairlane.places import SCENARIOS

FOLDER = SCENARIOS / "mqflashfq"
KNOBS = ("none", "mqflashfq")
# Not the figures that take a minute: those on a drive that collects, and those with thousands of requests at a time.
QUICK = ("fig4a", "fig4b", "fig6a", "fig6b", "fig8", "weights", "two", "vm", "conserve")


@pytest.mark.parametrize("name", QUICK)
def test_it_shows_what_it_says(name: str, tmp_path: Path) -> None:
    for what in scenario_file.load_all(FOLDER / f"{name}.toml"):
        found = run_scenario(Simulator(), what, KNOBS, tmp_path)
        wrong = expectations.failed(expectations.evaluate(what, found, KNOBS))
        assert not wrong, [(what.name, each.text, each.measured, each.bound) for each in wrong]


@pytest.mark.parametrize("knob", ["mqflashfq", "kyber-fairness"])
def test_who_counts_bytes_does_not_halve_the_drive(knob: str, tmp_path: Path) -> None:
    """Without a price list our schedulers count bytes."""
    for what in scenario_file.load_all(FOLDER / "two.toml"):
        assert what.prices
        [found] = run_scenario(Simulator(), replace(what, prices=None), [knob], tmp_path).runs
        assert found.fairness_index and found.fairness_index > 0.99
        taken = [
            each.iops * what.prices.cost(spec.rw.removeprefix("rand"), spec.bs)
            for each, spec in zip(found.tenants, what.tenants, strict=True)
        ]
        assert (jain(taken) or 1) < 0.97


@pytest.mark.parametrize(("conserve", "least"), [(0, 0.1), (1, 0.5)])
def test_more_cgroups_than_tags_do_not_wait_for_each_other_for_ever(conserve: int, least: float) -> None:
    """Who is behind may wait for a tag, while those that have them all are ahead of it."""
    cores, requests = 4, 32
    tenants = [tenant(f"t{i}", 100, jobs=cores, depth=1, bytes=4096) for i in range(100)]
    drive = null_drive(cores, requests, 4_000_000)
    what = run_of(tenants, drive, "mqflashfq", cores, 1.0, tunables={"conserve": conserve}, prices=FLAT)
    got = [sum(each["series"]["bytes"]) // 4096 for each in simulate(what)["tenants"]]
    assert min(got) > 0.6 * max(got), "shares"
    assert sum(got) > least * cores * requests * 1000 / 4, "of all that the drive does"
