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
    found = scenario.load_all(path)[0]  # of a file with cases, the first
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
    found = run(what, None if drive == "its own" else drive, tmp_path, *sim.KNOBS)
    assert [run.knob for run in found.runs] == list(sim.KNOBS) * len(what.points)
    assert all(run.total_iops > 0 for run in found.runs)
    assert found.device["profile"] == (what.profile.name if drive == "its own" else drive)
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
    assert "not checked" not in out and "The simulator has no bfq" in out
    found = Results.load(tmp_path / "results.json")
    assert found.backend == "sim"
    assert all(len(t.series.bytes) == 100 for r in found.runs for t in r.tenants if t.series)
    assert cli.main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "simulated host of 16 cores" in page and "in virtual time" in page
    assert not any(words in page for words in ("kernel unknown", "one boot", "no series recorded"))


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
    ("own", "asked", "got"),
    [("null", None, "null"), ("qemu-nvme", None, "qemu-nvme"), ("zssd", None, "zssd"), ("zssd", "null", "null")],
)
def test_which_drive_is_simulated(own: str, asked: str | None, got: str) -> None:
    what = Scenario("x", scenario.load_profile(own), (TenantSpec("a"),))
    assert sim.profile_of(what, asked).name == got


def test_a_drive_that_is_asked_for_is_as_in_profiles() -> None:
    what = scenario.load(scenario.SCENARIOS / "kyber-fairness" / "fig4-randread.toml")
    assert sim.profile_of(what, None).params["time_scale"] > 1
    assert "time_scale" not in sim.profile_of(what, "p4500").params


def test_another_drive_than_the_scenarios_own_is_said(tmp_path: Path) -> None:
    what = hasty(scenario.SCENARIOS / "kyber-fairness" / "qd1.toml")
    assert run(what, None, tmp_path, "none").notes == []
    (note,) = run(what, "p4500", tmp_path, "none").notes
    assert "written for the drive null and ran on p4500" in note
    assert "what it changes of null is left out" in note


def test_a_drive_that_a_scenario_slows_down_for_a_vm_is_as_slow_here(tmp_path: Path) -> None:
    own = scenario.load_profile("p4500")
    slow = replace(own, params={**own.params, "time_scale": 30, "size": 8 << 30, "memory": 1 << 30})
    load = (TenantSpec("a", rw="randread", jobs=4, iodepth=64),)
    at_full = run(Scenario("x", own, load, seconds=0.1, warmup=0.01), None, tmp_path, "none")
    slowed = run(Scenario("x", slow, load, seconds=3, warmup=0.3), None, tmp_path, "none")
    assert slowed.runs[0].total_iops == pytest.approx(at_full.runs[0].total_iops / 30, rel=0.05)
    assert "memory" not in slowed.device and slowed.device["time_scale"] == 30
    assert "slowed down 30 times" in slowed.notes[0]


def test_a_run_that_ends_early_leaves_what_was_there(tmp_path: Path) -> None:
    what = Scenario("x", scenario.load_profile("null"), (TenantSpec("a"),), seconds=0.1)
    run(what, None, tmp_path, *sim.KNOBS)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sim.run(replace(what, seconds=5), None, ["none"], tmp_path, interrupt)
    with pytest.raises(FairlaneError, match="cannot run x under none: a: cores must be"):
        run(replace(what, tenants=(TenantSpec("a", cores=(99,)),)), None, tmp_path, "none")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == before
    run(what, None, tmp_path, "none")
    assert {path.name for path in tmp_path.rglob("*.json")} == {"none-0.given.json", "none-0.found.json"}


def test_a_block_that_the_drive_does_not_take_is_said_as_for_a_real_one(tmp_path: Path) -> None:
    what = Scenario("x", scenario.load_profile("null"), (TenantSpec("a", bs=100),))
    with pytest.raises(FairlaneError, match="a bs: 100 is not a multiple of the 512 byte blocks of the drive null"):
        run(what, None, tmp_path, "none")


def test_what_a_scenario_changes_of_its_drive_stays_changed() -> None:
    what = scenario.load(scenario.SCENARIOS / "kyber-fairness" / "qd1.toml")
    assert sim.drive(sim.profile_of(what, None), 16)["queue_depth"] == 8


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
