# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The command line: exit codes, what goes to stdout and what to stderr. The backend is played by made-up figures."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import cli, files
from fairlane.backends import program, vm
from fairlane.backends.job import Finished, Job, Tell
from fairlane.commands import demo
from fairlane.errors import FairlaneError
from fairlane.experiment import scenario_file
from fairlane.experiment.model import Scenario, shares
from fairlane.experiment.results import Results, Run, Tenant
from fairlane.linux import knobs
from fairlane.places import ROOT, SCENARIOS
from fairlane.progress import Progress
from fairlane.vm.kernels import Kernel

FIG1 = str(SCENARIOS / "kyber-fairness" / "fig1.toml")
SWEEP = str(SCENARIOS / "kyber-fairness" / "fig6.toml")


class Backend:
    """Gives every tenant its ideal share of a total that depends on the knob."""

    def __init__(self) -> None:
        self.totals = {"none": 1000.0, "bfq": 300.0}
        self.error: BaseException | None = None

    def __call__(self, jobs: list[Job], _known: object, _boot: object, tell: Tell) -> Iterator[Finished]:
        if self.error:
            raise self.error
        tell(Progress("booting [1]", 0.5))
        for job in jobs:
            what = job.scenario.at(job.point)
            run = self.run(what, job.variant.name, job.point)
            runs = [run] if job.variant.knob != "io.cost" else []
            lacking = {"io.cost": "not in [this] kernel"}
            yield Finished(job, Results(what.name, "host:x", 1, "0", "6.1", runs=runs, unavailable=lacking))

    def run(self, what: Scenario, knob: str, cgroups: int | None) -> Run:
        total = self.totals.get(knob, 990.0)
        tenants = [
            Tenant(t.name, t.weight, share, total * share, 1, 1, 1, lat_us={"p99": 5000.0})
            for t, share in ((t, shares(what)[t.name]) for t in what.tenants)
        ]
        point = {"cgroups": cgroups} if cgroups is not None else None
        return Run(knob, 0, 1.0, tenants, total, total, 1.0, None, point=point)


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Backend:
    """What the guest would hand over."""
    found = Backend()
    boot = vm.Boot(Kernel("6.1.0-1-amd64", Path("/nowhere")), Path("/nowhere"), "tcg", Path("/nowhere"), [])
    monkeypatch.setattr(vm, "ready", lambda *_args: boot)
    monkeypatch.setattr(vm, "converse", found)
    return found


@pytest.mark.usefixtures("backend")
def test_run_prints_a_table_and_the_outcomes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["run", FIG1, "--knobs", "none,bfq,kyber-fairness", "--check", "--out", str(tmp_path)]
    assert cli.main(args) == 0
    out, err = capsys.readouterr()
    assert "0.99x" in out
    assert "54.1%" in out
    assert out.count("ok: kyber-fairness") == 4
    assert "io.cost has no figures: not in [this] kernel" in out
    assert err == "kyber-fairness/fig1: booting [1]\n"
    saved = Results.load(tmp_path / "results.json")
    assert [outcome.ok for outcome in saved.expects] == [True] * 5
    assert saved.command == "fairlane " + " ".join(args)
    assert saved.device["profile"] == "null"


def test_a_failed_check_exits_with_1_only_when_asked_to_check(backend: Backend, tmp_path: Path) -> None:
    backend.totals["kyber-fairness"] = 500.0
    args = ["run", FIG1, "--knobs", "none,bfq,kyber-fairness", "--out", str(tmp_path)]
    assert cli.main(args) == 0
    assert cli.main([*args, "--check"]) == 1


@pytest.mark.usefixtures("backend")
def test_several_scenarios_get_a_folder_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", FIG1, SWEEP, "--knobs", "none,kyber-fairness", "--json", "--out", str(tmp_path)]) == 0
    assert [found["scenario"] for found in json.loads(capsys.readouterr().out)] == [
        "kyber-fairness/fig1",
        "kyber-fairness/fig6",
    ]
    assert (tmp_path / "kyber-fairness/fig6/results.json").is_file()


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["run", "nothing.toml"], "nothing.toml: cannot be read"),
        (["run", FIG1, "--knobs", "cfq"], "unknown knob 'cfq'"),
        (["run", FIG1, "--knobs", ""], "--knobs is empty"),
        (["run", FIG1, "--on", "moon"], "valid are vm, host:DEV"),
        (["run", FIG1, "--on", "host:"], "valid are vm, host:DEV"),
        (["run", FIG1, "--on", "host:nothing", "--knobs", "none"], "no block device 'nothing'"),
        (["knobs", "--on", "host:nothing"], "no block device 'nothing'"),
        (["report", "/nowhere"], "/nowhere: cannot be read"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_2(args: list[str], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert what in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [(FairlaneError("the VM did not boot"), 2, "the VM did not boot"), (KeyboardInterrupt(), 130, "interrupted")],
)
def test_how_a_run_ends_is_its_exit_status(
    backend: Backend, tmp_path: Path, capsys: pytest.CaptureFixture[str], error: BaseException, status: int, says: str
) -> None:
    backend.error = error
    assert cli.main(["run", FIG1, "--out", str(tmp_path)]) == status
    assert says in capsys.readouterr().err


@pytest.mark.usefixtures("backend")
def test_the_demo_leaves_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in demo.KNOBS)
    assert "report.html" in out
    assert (tmp_path / "report.html").stat().st_size > 1000
    assert (tmp_path / "picture.svg").is_file()
    assert cli.main(["report", str(tmp_path), "--out", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").is_file()


def test_the_demo_is_the_size_it_should_be() -> None:
    what = scenario_file.load(demo.SCENARIO)
    assert [tenant.weight for tenant in what.tenants] == [1000, 500, 250, 100]
    assert (what.seconds + what.warmup) * len(demo.KNOBS) < 60


def test_knobs_lists_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["knobs", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == list(knobs.TABLE)
    assert cli.main(["knobs"]) == 0
    assert "io.bfq.weight" in capsys.readouterr().out


def test_two_scenarios_of_one_name_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["run", FIG1, FIG1, "--out", str(tmp_path)]) == 2
    assert "two scenarios named kyber-fairness/fig1 would share a folder" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--kernel=6.12", "--destroy-data=nvme0n1"])
def test_an_option_without_effect_here_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", FIG1, "--on", "sim", option]) == 2
    assert "has no effect with --on sim" in capsys.readouterr().err


def test_a_folder_of_runs_makes_one_report(backend: Backend, tmp_path: Path) -> None:
    assert cli.main(["run", FIG1, SWEEP, "--out", str(tmp_path)]) == 0
    assert cli.main(["report", str(tmp_path)]) == 0
    assert [path.parent for path in tmp_path.rglob("*.html")] == [tmp_path], "in the folder that was named"
    page = (tmp_path / "report.html").read_text()
    assert "kyber-fairness/fig1" in page and "kyber-fairness/fig6" in page


@pytest.mark.usefixtures("backend")
def test_two_folders_compared_keep_their_own_reports_and_are_told_apart_by_name(tmp_path: Path) -> None:
    for name in "ab":
        assert cli.main(["run", FIG1, "--out", str(tmp_path / name)]) == 0
        assert cli.main(["report", str(tmp_path / name)]) == 0
    before = (tmp_path / "a/report.html").read_text()
    assert cli.main(["report", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert (tmp_path / "a/report.html").read_text() == before
    page = (tmp_path / "a/compared.html").read_text()
    assert "no. 1" not in page
    for name in "ab":
        assert f'<th class="num">kyber-fairness/fig1 · 6.1 · {tmp_path / name}</th>' in page


@pytest.mark.parametrize("place", ["file", "file/x", "/dev/full", "/dev/full/x", "/proc"])
@pytest.mark.parametrize("on", ["sim", "vm"])
def test_a_place_that_cannot_be_written_to_is_told_before_anything_runs(
    place: str, on: str, backend: Backend, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    backend.error = AssertionError("something ran")
    (tmp_path / "file").touch()
    out = tmp_path / place  # as it is, if absolute
    assert cli.main(["run", FIG1, "--on", on, "--out", str(out)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(
        (f"fairlane: {out}: cannot be written (", f"fairlane: {out}: is not a folder; choose another")
    )
    assert err.count("\n") == 1


@pytest.mark.usefixtures("backend")
def test_a_folder_or_file_in_the_place_of_what_is_to_be_written_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "a" / "results.json").mkdir(parents=True)
    assert cli.main(["run", FIG1, "--out", str(tmp_path / "a")]) == 2
    assert f"{tmp_path / 'a' / 'results.json'}: is a folder, not a file" in capsys.readouterr().err
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "sim").touch()
    assert cli.main(["run", FIG1, "--on", "sim", "--out", str(tmp_path / "b")]) == 2
    assert f"{tmp_path / 'b' / 'sim'}: is a file" in capsys.readouterr().err


@pytest.mark.usefixtures("backend")
def test_a_disk_that_is_full_at_the_end_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def full(_number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert cli.main(["run", FIG1, "--knobs", "none", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    where = tmp_path / "results.json"
    assert said == f"fairlane: {where}: no space left; free some and start the same command again"


@pytest.mark.usefixtures("backend")
def test_a_folder_of_another_kind_of_run_is_not_overwritten(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = ["--out", str(tmp_path)]
    assert cli.main(["run", FIG1, *out]) == cli.main(["run", FIG1, *out]) == 0, "its own kind it replaces"
    before = (tmp_path / "results.json").read_text()
    capsys.readouterr()
    assert cli.main(["bench", "--quick", "--on", "sim", *out]) == 2
    said = f"{tmp_path}: holds results of another kind of run than `fairlane bench`; choose another folder with --out"
    assert capsys.readouterr().err == f"fairlane: {said}\n"
    assert not (tmp_path / "plan.json").exists()
    (tmp_path / "plan.json").touch()
    for argv in (["run", FIG1], ["replay", str(ROOT / "traces" / "tpcc-small.trace")], ["demo"]):
        assert cli.main([*argv, *out]) == 2
        said = f"{tmp_path}: holds a run of `fairlane bench`; choose another folder with --out"
        assert capsys.readouterr().err == f"fairlane: {said}\n"
    assert (tmp_path / "results.json").read_text() == before
    assert {path.name for path in tmp_path.iterdir()} == {"plan.json", "results.json"}


@pytest.mark.usefixtures("backend")
def test_two_commands_do_not_write_to_one_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    argv = (["run", FIG1], ["bench", "--quick", "--on", "sim"], ["demo"])
    with files.held(tmp_path):
        for each in argv:
            assert cli.main([*each, "--out", str(tmp_path)]) == 2
            said = f"fairlane: {tmp_path}: another command writes there now; wait for its end, or choose another folder"
            assert said in capsys.readouterr().err
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert cli.main(["run", FIG1, "--out", str(tmp_path)]) == 0


TPCC = str(ROOT / "traces" / "tpcc-small.trace")
REPLAY = ["replay", TPCC, "--on", "sim", "--knobs", "none", "--seconds", "0.1"]


@pytest.mark.parametrize("full", ["scenario.toml", "traces/.tpcc-small.trace.part", "none-0.given.json"])
def test_a_disk_that_fills_up_while_a_run_is_prepared_is_told(
    full: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """On which a file can be made, but not written."""
    real = Path.open

    def opened(self: Path, mode: str = "r", *rest: object, **named: object) -> object:
        name = str(self).replace("/.scenario.toml.", "/scenario.toml")
        device = Path("/dev/full") if mode == "w" and full in name else self
        return real(device, mode, *rest, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", opened)
    assert cli.main([*REPLAY, "--skip-bad", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"fairlane: {tmp_path}" if "json" not in full else "fairlane: /")
    assert said.endswith(": no space left; free some and start the same command again")


def test_a_disk_that_the_simulator_fills_up_is_told_as_any_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    real = program.PROGRAM
    monkeypatch.setattr(program, "PROGRAM", tmp_path / "fl-sim")
    program.PROGRAM.write_text(f'#!/bin/sh\n[ "$1" = -n ] || exec {real} -o /dev/full "$4"\n')  # of -p -o FOUND GIVEN
    program.PROGRAM.chmod(0o755)
    assert cli.main([*REPLAY, "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith("none-0.found.json: no space left; free some and start the same command again")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (PermissionError(13, "Permission denied", "/root/x/plan.json"), "/root/x/plan.json: Permission denied; give"),
        (OSError(28, "No space left on device", "/x"), "/x: no space left; free some and start the same command again"),
        (OSError(28, "No space left on device"), "no space left; free some and start the same command again"),
        (OSError(5, "Input/output error", "/x"), "/x: Input/output error"),
    ],
)
def test_what_the_system_refuses_is_told_with_where_and_what_to_do(
    error: OSError, says: str, backend: Backend, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    backend.error = error
    assert cli.main(["run", FIG1, "--out", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"fairlane: {says}") and err.count("\n") == 1


@pytest.mark.parametrize("command", [["bench"], ["run", FIG1], REPLAY, ["report", "out"], ["demo"]])
def test_an_out_that_names_no_place_is_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main([*command, "--out", ""])
    assert "argument --out: names no place" in capsys.readouterr().err


def test_a_command_needs_nothing_that_only_another_does(tmp_path: Path) -> None:
    """An environment from before there were studies and clusters runs scenarios."""
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('pyarrow', 'distributed', 'dask')))\n"  # each is missing
        "from fairlane import cli\n"
        f"sys.exit(cli.main(['run', {str(tmp_path / 'no.toml')!r}, '--on', 'sim']))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert (found.returncode, "no.toml" in found.stderr) == (2, True), found.stderr
