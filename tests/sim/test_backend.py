# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane run --on sim`: every scenario runs, on any drive, and what it cannot do is said."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fairlane import cli
from fairlane.backends import fl_sim, sim
from fairlane.backends.scenario_runs import ScenarioRun, run_scenario
from fairlane.drive_models import published_figures
from fairlane.errors import FairlaneError
from fairlane.experiment import profiles, scenario_file
from fairlane.experiment.model import Profile, Rate, Scenario, TenantSpec, shares
from fairlane.experiment.results import Results
from fairlane.places import PROFILES, ROOT, SCENARIOS

EVERY = sorted(SCENARIOS.rglob("*.toml"))
FIG1 = SCENARIOS / "kyber-fairness" / "fig1.toml"
HASTE = 0.02  # of the time that a scenario takes


def hasty(path: Path) -> Scenario:
    """Too short to show anything, on a drive that was written but once: to be steady takes longer than the run."""
    found = scenario_file.load_all(path)[0]  # of a file with cases, the first
    tenants = tuple(
        replace(t, start=t.start * HASTE, stop=t.stop * HASTE if t.stop is not None else None) for t in found.tenants
    )
    once = {"rewrite": 0} if "rewrite" in found.profile.params else {}
    drive = replace(found.profile, params=found.profile.params | once)
    short = replace(found, seconds=found.seconds * HASTE, warmup=found.warmup * HASTE)
    return replace(short, profile=drive, repeats=1, tenants=tenants)


def run(what: Scenario, profile: str | None, out: Path, *knobs: str) -> Results:
    return run_scenario(sim.Simulator(profile), what, knobs, out)


@pytest.mark.parametrize("drive", ["its own", "optane"])
@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_every_scenario_runs(path: Path, drive: str, tmp_path: Path) -> None:
    what = hasty(path)
    profile = None if drive == "its own" else drive
    found = run(what, profile, tmp_path, *sim.KNOBS)
    usable = [knob for knob in sim.KNOBS if not sim.unavailable(knob, sim.profile_of(what, profile))]
    names = [variant.name for knob in usable for variant in what.runs_of(knob)]
    assert [run.knob for run in found.runs] == names * len(what.points)
    assert set(found.unavailable) == set(sim.KNOBS) - set(usable)
    assert all(run.total_iops > 0 for run in found.runs)
    assert found.device["profile"] == (what.profile.name if drive == "its own" else drive)
    for run_found in found.runs:
        at = what.at(run_found.point["cgroups"] if run_found.point else None)
        assert {t.name: t.share for t in run_found.tenants} == pytest.approx(shares(at))


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
    what = Scenario("a", Profile("null", "null_blk", ""), (TenantSpec("a", cores=(3,)),), seconds=0.1, cores=2)
    with pytest.raises(FairlaneError, match=r"\[\[tenant\]\] a cores must be numbers from 0 to 1"):
        run(what, "null", tmp_path, "none")


@pytest.mark.parametrize(
    ("own", "asked", "got"),
    [("null", None, "null"), ("qemu-nvme", None, "qemu-nvme"), ("zssd", None, "zssd"), ("zssd", "null", "null")],
)
def test_which_drive_is_simulated(own: str, asked: str | None, got: str) -> None:
    what = Scenario("x", profiles.load_profile(own), (TenantSpec("a"),))
    assert sim.profile_of(what, asked).name == got


def test_a_drive_that_is_asked_for_is_as_in_profiles() -> None:
    what = scenario_file.load(SCENARIOS / "kyber-fairness" / "fig4-randread.toml")
    assert sim.profile_of(what, None).params["time_scale"] > 1
    assert "time_scale" not in sim.profile_of(what, "p4500").params


def test_another_drive_than_the_scenarios_own_is_said(tmp_path: Path) -> None:
    what = hasty(SCENARIOS / "kyber-fairness" / "qd1.toml")
    assert run(what, None, tmp_path, "none").notes == []
    (note,) = run(what, "p4500", tmp_path, "none").notes
    assert "written for the drive null and ran on p4500" in note
    assert "what it changes of null is left out" in note


def test_a_drive_that_a_scenario_slows_down_for_a_vm_is_as_slow_here(tmp_path: Path) -> None:
    own = profiles.load_profile("p4500")
    slow = replace(own, params={**own.params, "time_scale": 30, "size": 8 << 30, "memory": 1 << 30})
    load = (TenantSpec("a", rw="randread", jobs=4, iodepth=64),)
    at_full = run(Scenario("x", own, load, seconds=0.1, warmup=0.01), None, tmp_path, "none")
    slowed = run(Scenario("x", slow, load, seconds=3, warmup=0.3), None, tmp_path, "none")
    assert slowed.runs[0].total_iops == pytest.approx(at_full.runs[0].total_iops / 30, rel=0.05)
    assert "memory" not in slowed.device and slowed.device["time_scale"] == 30
    assert "slowed down 30 times" in slowed.notes[0]


def test_a_run_that_ends_early_leaves_what_was_there(tmp_path: Path) -> None:
    what = Scenario("x", profiles.load_profile("null"), (TenantSpec("a"),), seconds=0.1)
    run(what, None, tmp_path, *sim.KNOBS)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_scenario(sim.Simulator(), replace(what, seconds=5), ["none"], tmp_path, interrupt)
    with pytest.raises(FairlaneError, match=r"cannot run x under none: \[\[tenant\]\] a cores must be"):
        run(replace(what, tenants=(TenantSpec("a", cores=(99,)),)), None, tmp_path, "none")
    (tmp_path / "failed" / "none-0.given.json").unlink()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == before
    run(what, None, tmp_path, "none")
    assert {path.name for path in tmp_path.rglob("*.json")} == {"none-0.given.json", "none-0.found.json"}


def test_one_that_fails_is_named_with_how_to_run_it_alone_and_the_others_are_run(tmp_path: Path) -> None:
    good = Scenario("good", profiles.load_profile("null"), (TenantSpec("a"),), seconds=0.1)
    bad = replace(good, name="bad", tenants=(TenantSpec("a", cores=(99,)),))
    jobs = [job for what in (bad, good) for job in ScenarioRun(what, ["none"], tmp_path / what.name).jobs]
    ran = []
    with pytest.raises(FairlaneError, match="to run unit bad/none-0 alone: ") as failed:
        for done in sim.Simulator().run(jobs):
            ran.append(done.job.id)
    assert ran == ["good/none-0"]
    command = str(failed.value).rpartition(": ")[2].split()
    alone = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (alone.returncode, "cores must be numbers from 0 to" in alone.stderr) == (2, True)


def test_a_block_that_the_drive_does_not_take_is_said_as_for_a_real_one(tmp_path: Path) -> None:
    what = Scenario("x", profiles.load_profile("null"), (TenantSpec("a", bs=100),))
    with pytest.raises(FairlaneError, match="a bs: 100 is not a multiple of the 512 byte blocks of the drive null"):
        run(what, None, tmp_path, "none")


def test_what_a_scenario_changes_of_its_drive_stays_changed() -> None:
    what = scenario_file.load(SCENARIOS / "kyber-fairness" / "qd1.toml")
    assert fl_sim.drive_of(sim.profile_of(what, None), 16)["queue_depth"] == 8


def test_a_rate_becomes_the_interval_of_each_job(tmp_path: Path) -> None:
    tenants = (
        TenantSpec("iops", jobs=2, iodepth=64, rate=Rate(iops=5000), poisson=True),
        TenantSpec("bytes", bs=8192, iodepth=64, rate=Rate(bytes_per_s=8192 * 2000)),
    )
    what = Scenario("x", profiles.load_profile("optane"), tenants, seconds=2, warmup=0.1)
    found = run(what, None, tmp_path, "none").runs[0]
    assert found.tenants[0].iops == pytest.approx(5000, rel=0.03)
    assert found.tenants[1].iops == pytest.approx(2000, rel=0.001)


def test_the_example_of_the_docs_is_a_good_one(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "scenarios.md").read_text()
    (tmp_path / "my.toml").write_text(text.partition("```toml\n")[2].partition("```")[0])
    out = tmp_path / "out"
    args = ["--on", "sim", "--knobs", "none,kyber-fairness", "--check", "--out", str(out)]
    assert cli.main(["run", str(tmp_path / "my.toml"), *args]) == 0
    db, web, backup = Results.load(out / "results.json").runs[1].tenants
    assert (db.share, web.share, backup.share) == pytest.approx((0.5, 0.25, 0.25))
    before, pause = ([t.moved(start, start + 1) or 0 for t in (db, web, backup)] for start in (3, 5))
    assert pause[2] == 0 < before[2]
    assert sum(pause) == pytest.approx(sum(before), rel=0.03)
    assert pause[0] / pause[1] == pytest.approx(2, rel=0.1)
    assert cli.main(["report", str(out)]) == 0
    page = (out / "report.html").read_text()
    assert re.search("kyber-fairness: every tenant within [12] % of its share, at (0.9[5-9]|1.0.) of none’s", page)
    assert "db, weight 200: wants 50.0 %" in page and "backup, weight 100: wants 25.0 %" in page


BROKEN = "0 0 0 8 1\n1 0 0 8 1\n# the end\n"


@pytest.mark.parametrize(
    ("run_keys", "device", "tenant", "says"),
    [
        ("", "page = 5000", "", "[device] page: 5000 is not a power of two"),
        ("", 'size = "4TiB"\nmap = "1TiB"', "", "[device] the tables of its map would take more than 1 GiB"),
        ("", "planes = 2\nbuffer = 4096", "", "[device] buffer must hold at least two pages"),
        ("cores = 2", "", "cores = [5]", "[[tenant]] b cores must be numbers from 0 to 1, of the 2 cores"),
        ("cgroups = [1, 2]\ncores = 2", "", "cores = [5]", "[[tenant]] b cores must be numbers from 0 to 1"),
        ("", "", 'bs = "2GiB"', "[[tenant]] b bs must be a whole number from 512 to 1073741824"),
        (
            "",
            "",
            'rate = "0.0001 iops"',
            "[[tenant]] b rate: the simulator plays no less than an I/O of each",
        ),
        ("", "", "bs = 1000", "[[tenant]] b bs: 1000 is not a multiple of the 512 byte blocks"),
        ("seconds = 604800", "", 'trace = "broken.trace"', "[[tenant]] b trace {}: line 3: must be five whole numbers"),
        ("", "", 'trace = "empty.trace"', "{}: the file is empty"),
    ],
)
def test_what_only_the_simulator_knows_is_said_of_the_file_before_anything_runs(
    run_keys: str, device: str, tenant: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.trace").write_text(BROKEN)
    (tmp_path / "empty.trace").touch()
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    text = '[run]\n{}\n[device]\nprofile = "p4500"\n{}\n[[tenant]]\nname = "a"\n'
    good.write_text(text.format("seconds = 604800", ""))  # would take for ever
    bad.write_text(text.format(run_keys, device) + f'[[tenant]]\nname = "b"\n{tenant}\n')
    assert cli.main(["run", str(good), str(bad), "--on", "sim", "--out", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    named = re.search(r'"(\w+\.trace)"', tenant)
    assert f"{bad}: {says.format(tmp_path / named[1] if named else '')}" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_what_a_null_drive_cannot_have_is_said_with_the_key_that_was_written(tmp_path: Path) -> None:
    own = profiles.load_profile("null")
    what = Scenario("x", replace(own, params={**own.params, "hw_queue_depth": 0}), (TenantSpec("a"),))
    with pytest.raises(FairlaneError, match=r"x.toml: \[device\] hw_queue_depth must be a whole number from 1"):
        sim.Simulator().check(tmp_path / "x.toml", what, ["none"])


def test_a_host_larger_than_what_costs_were_measured_on_is_noted(tmp_path: Path) -> None:
    def notes(tenants: int, cores: int) -> list[str]:
        many = tuple(TenantSpec(f"t{i}") for i in range(tenants))
        what = Scenario("x", profiles.load_profile("optane"), many, seconds=0.01, warmup=0, cores=cores)
        return run(what, None, tmp_path, "kyber-fairness").notes

    assert notes(256, 64) == []
    assert "256 and 64, and is taken to be the same beyond" in notes(257, 4)[0]
    assert "There are 2 flows and 65 hardware queues" in notes(2, 65)[0]


def test_write_amplification_is_in_the_table_and_the_report_where_there_is_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rw, shown in (("randwrite", True), ("randread", False)):
        file, out = tmp_path / "x.toml", tmp_path / rw
        file.write_text(
            f'[run]\nseconds = 0.2\nwarmup = 0.5\n[device]\nprofile = "p4500"\n'
            f'[[tenant]]\nname = "a"\nrw = "{rw}"\njobs = 8\niodepth = 64\n'
        )
        assert cli.main(["run", str(file), "--on", "sim", "--knobs", "none", "--out", str(out)]) == 0
        assert cli.main(["report", str(out)]) == 0
        counters = Results.load(out / "results.json").runs[0].counters["device"]
        assert (counters["write_amplification"] or 0) > 1 if shown else counters["write_amplification"] is None
        assert ("ampl." in capsys.readouterr().out) == shown
        assert ("write ampli-" in (out / "report.html").read_text()) == shown


def test_a_profile_is_shown_with_the_source_of_each_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["profiles", "p4500", "zssd"]) == 0
    out = capsys.readouterr().out
    assert "68,000 ns" in out and "fitted within [NAND]" in out and "Product Specification" in out
    assert "Z-NAND as presented" in out
    assert cli.main(["profiles", "moon"]) == 2
    assert "unknown profile 'moon'; valid are" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(published_figures.PUBLISHED.glob("*.toml")), ids=lambda path: path.stem)
def test_every_number_of_a_profile_says_where_it_is_from(path: Path) -> None:
    lines = (PROFILES / path.name).read_text().splitlines()
    numbers = {line.split(" ")[0]: line.partition(" # ")[2] for line in lines if re.match(r"\w+ = [\d\"]", line)}
    del numbers["kind"], numbers["description"]
    assert [name for name, source in numbers.items() if not source.strip()] == []
    fitted = {name for name, source in numbers.items() if re.match("fitted(?! by hand)", source)}
    assert fitted == set(published_figures.load_published(path.stem).search)  # those that a command fits again


def test_a_scheduler_that_was_not_measured_costs_what_the_first_of_its_kind_does() -> None:
    [note] = fl_sim.not_measured("round-robin", {"scheduler": {"fairlane": {}, "kyber-fairness": {}}})
    assert "taken to be that of kyber-fairness" in note


def test_profiles_are_listed_with_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["profiles", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == profiles.profiles()
    assert all(row["description"] for row in rows)
    assert cli.main(["profiles"]) == 0
    assert "p4500" in capsys.readouterr().out
