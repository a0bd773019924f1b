# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane run --on sim`: every scenario runs, on any drive, and what it cannot do is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fairlane import cli, scenario, sim
from fairlane.errors import FairlaneError
from fairlane.results import Results
from fairlane.scenario import Profile, Rate, Scenario, TenantSpec

EVERY = sorted(scenario.SCENARIOS.rglob("*.toml"))
FIG1 = scenario.SCENARIOS / "kyber-fairness" / "fig1.toml"
HASTE = 0.02  # of the time that a scenario takes


def hasty(path: Path) -> Scenario:
    found = scenario.load(path)
    tenants = tuple(
        replace(t, start=t.start * HASTE, stop=t.stop * HASTE if t.stop is not None else None) for t in found.tenants
    )
    return replace(found, seconds=found.seconds * HASTE, warmup=found.warmup * HASTE, tenants=tenants)


def run(what: Scenario, profile: str | None, out: Path, *knobs: str) -> Results:
    return sim.run(what, profile, knobs, out, lambda _: None)


@pytest.mark.parametrize("drive", ["its own", "optane"])
@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_every_scenario_runs(path: Path, drive: str, tmp_path: Path) -> None:
    what = hasty(path)
    profile = what.profile.name if drive == "its own" else drive
    found = run(what, profile, tmp_path, *sim.KNOBS)
    usable = [knob for knob in sim.KNOBS if not sim.unavailable(knob, sim.profile_of(what, profile))]
    names = [variant.name for knob in usable for variant in what.runs_of(knob)]
    assert [run.knob for run in found.runs] == names * len(what.points)
    assert set(found.unavailable) == set(sim.KNOBS) - set(usable)
    assert all(run.total_iops > 0 for run in found.runs)
    assert found.device["profile"] == profile
    for run_found in found.runs:
        at = what.at(run_found.point["cgroups"] if run_found.point else None)
        assert {t.name: t.share for t in run_found.tenants} == pytest.approx(scenario.shares(at))


def test_the_command_writes_results_that_can_be_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = FIG1.read_text().replace("seconds = 8", "seconds = 1").replace("warmup = 2", "warmup = 1")
    file = tmp_path / "x.toml"
    file.write_text(text)
    assert cli.main(["run", str(file), "--on", "sim:null", "--check", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "x on sim of null" in out
    assert out.count("ok: kyber-fairness") == 3
    assert Results.load(tmp_path / "results.json").backend == "sim"
    assert cli.main(["report", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["--on", "sim:moon"], "unknown profile 'moon'; valid are"),
        (["--on", "sim:"], "valid are vm, host:DEV"),
        (["--on", "sim", "--knobs", "none,bfq,io.cost"], "only our schedulers, not bfq, io.cost"),
    ],
)
def test_what_it_cannot_do_is_said(args: list[str], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", str(FIG1), *args]) == 2
    assert what in capsys.readouterr().err


def test_a_core_that_the_host_has_not_is_said(tmp_path: Path) -> None:
    what = Scenario("x", Profile("null", "null_blk", ""), (TenantSpec("a", cores=(3,)),), seconds=0.1, cores=2)
    with pytest.raises(FairlaneError, match="a: cores must be numbers from 0 to 1"):
        run(what, "null", tmp_path, "none")


@pytest.mark.parametrize(
    ("own", "asked", "got"), [("null", None, "p4500"), ("zssd", None, "zssd"), ("zssd", "null", "null")]
)
def test_which_drive_is_simulated(own: str, asked: str | None, got: str) -> None:
    what = Scenario("x", scenario.load_profile(own), (TenantSpec("a"),))
    assert sim.profile_of(what, asked).name == got


def test_what_a_scenario_changes_of_its_drive_stays_changed() -> None:
    what = scenario.load(scenario.SCENARIOS / "kyber-fairness" / "qd1.toml")
    assert sim.drive(sim.profile_of(what, "null"), 16)["queue_depth"] == 8


def test_a_rate_becomes_the_interval_of_each_job(tmp_path: Path) -> None:
    tenants = (
        TenantSpec("iops", jobs=2, iodepth=64, rate=Rate(iops=5000), poisson=True),
        TenantSpec("bytes", bs=8192, iodepth=64, rate=Rate(bytes_per_s=8192 * 2000)),
    )
    what = Scenario("x", scenario.load_profile("optane"), tenants, seconds=2, warmup=0.1)
    found = run(what, None, tmp_path, "none").runs[0]
    assert found.tenants[0].iops == pytest.approx(5000, rel=0.03)
    assert found.tenants[1].iops == pytest.approx(2000, rel=0.001)


def test_profiles_are_listed_with_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["profiles", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == scenario.profiles()
    assert all(row["description"] for row in rows)
    assert cli.main(["profiles"]) == 0
    assert "p4500" in capsys.readouterr().out
