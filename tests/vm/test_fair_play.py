# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""docs/fair-play.md: every knob of Linux is set as the page says, and the kernel says so under load."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from fairlane.backends.job import Options
from fairlane.backends.scenario_runs import run_scenario
from fairlane.backends.vm import Vm
from fairlane.experiment import scenario_file
from fairlane.experiment.figures import share_error
from fairlane.experiment.results import Results
from fairlane.linux import knobs
from fairlane.places import SCENARIOS
from fairlane.vm import lab_kernel

DEMO = replace(scenario_file.load(SCENARIOS / "demo.toml", tuple(knobs.TABLE)), seconds=1.0, warmup=0.5)
# Steady or not: each knob has a drive of its own, made by an emulated CPU.
DEMO = replace(DEMO, profile=replace(DEMO.profile, params=DEMO.profile.params | {"rewrite": 0}))
SCALE = DEMO.profile.params["time_scale"]
# What is read back at least: the scheduler, and what the page says is set for each of the four tenants or the drive.
SETTINGS = {
    "none": 1,
    "mq-deadline": 1 + 3,
    "kyber": 1 + 2,
    "bfq": 1 + 1 + 4,
    "io.max": 1 + 4,
    **{name: 1 + 4 for name in ("fairlane", "kyber-fairness", "mqflashfq", "flashfq", "mqfq")},
}
IO_COST = 1 + 2 + 4
LAB = {"io.latency": 1 + 4, "io.prio.class": 1 + 3 + 4}


def run(names: Iterable[str], out: Path, kernel: str | None = None) -> Results:
    return run_scenario(Vm(None, Options(kernel=kernel)), DEMO, list(names), out)


def test_what_a_knob_is_set_to_took_effect_under_load(tmp_path: Path) -> None:
    found = run([*SETTINGS, "io.latency"], tmp_path)
    assert list(found.unavailable) == ["io.latency"], "a knob that the kernel says is set otherwise has no figures"
    assert found.unavailable["io.latency"].startswith("this kernel has no io.latency in its cgroups; the lab kernel")
    assert {run.knob: run.counters["settings_read_back"] for run in found.runs} == SETTINGS
    config = found.config
    assert config["kyber"]["read_lat_nsec"] == 2_000_000 * SCALE
    assert config["mq-deadline"]["read_expire"] == 500 * SCALE
    assert config["bfq"]["low_latency"] == 0


@pytest.mark.long  # its model is measured
def test_so_did_io_cost_s_model(tmp_path: Path) -> None:
    found = run(["io.cost"], tmp_path)
    assert found.unavailable == {}
    (one,) = found.runs
    seen = one.counters["io.cost"]
    assert one.counters["settings_read_back"] == IO_COST
    assert (seen["vrate"]["low"], seen["vrate"]["high"]) == (100, 100), "it neither began elsewhere nor moved"
    error = share_error(seen["usage_us"], {tenant.name: tenant.share for tenant in one.tenants})
    assert error is not None and error < 0.1, "io.cost decides who is served, and not the drive's own queue"


@pytest.mark.long  # its targets are looked for, and vrate settles before each run
def test_so_did_latency_targets_for_io_cost(tmp_path: Path) -> None:
    found = run(["io.cost-qos"], tmp_path)
    assert found.unavailable == {}
    (one,) = found.runs
    seen = one.counters["io.cost"]
    assert one.counters["settings_read_back"] == IO_COST
    assert seen["range"] == [50, 150]
    assert all(used > 0 for used in seen["usage_us"].values())
    assert "rpct=99.00" in found.config["io.cost-qos"]["io.cost.qos"]


@pytest.mark.long  # the lab kernel may have to be built
def test_so_did_that_of_the_knobs_that_debian_s_kernels_lack(tmp_path: Path) -> None:
    found = run(LAB, tmp_path, lab_kernel.LAB.name)
    assert found.unavailable == {}
    assert {run.knob: run.counters["settings_read_back"] for run in found.runs} == LAB
