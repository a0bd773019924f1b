# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The trust page shows what the package makes: its plots are there, their numbers are right, the three lives agree."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fairlane.backends import program, sim
from fairlane.backends.job import Completing, Job, Tell
from fairlane.backends.vm import Vm
from fairlane.drive_models import beside, plots, published_figures
from fairlane.drive_models.__main__ import main
from fairlane.experiment.results import Results
from fairlane.places import ROOT, SCENARIOS
from fairlane.vm import kernels, qemu

PAGE = ROOT / "docs" / "drives.md"
SCENARIO = """
[run]
seconds = 0.5
warmup = 0.2
cores = 16
[device]
profile = "p4500"
time_scale = 2
size = "8GiB"
memory = "1GiB"
[[tenant]]
name = "a"
weight = 300
jobs = 4
iodepth = 64
[[tenant]]
name = "b"
jobs = 4
iodepth = 64
"""


def test_every_plot_of_the_page_is_there_and_every_plot_there_is_on_the_page() -> None:
    shown = re.findall(r"\]\(trust/([\w-]+\.svg)\)", PAGE.read_text())
    assert sorted(shown) == sorted(path.name for path in beside.DOCS.glob("*.svg"))
    assert all("SPDX-License-Identifier" in (beside.DOCS / name).read_text()[:200] for name in shown)


def test_the_wait_that_is_plotted_is_that_of_theory() -> None:
    program.build()
    for server in plots.SERVERS:
        assert plots.waits(server, 0.5) == pytest.approx(plots.md1_wait(0.5), rel=0.02)


def test_the_shares_that_are_plotted_are_those_of_the_weights() -> None:
    published_figures.build()
    for weights in plots.RATIOS:
        wanted = [weight / sum(weights) for weight in weights]
        assert plots.class_shares(weights) == pytest.approx(wanted, rel=0.01)


def test_a_drive_written_in_order_collapses_at_once_and_an_empty_one_when_its_map_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program.build()
    monkeypatch.setattr(plots, "COLLAPSE_S", 12.0)
    empty, ordered = (dict(plots.collapse(state)) for state in ("empty", "written in order"))
    at = sorted(empty)
    assert min(empty[t] for t in at if t < 8 * (1 << 30) / 1e9) > 800  # MB/s, while the 8 GiB are being filled
    assert empty[at[-1]] < 700
    assert max(ordered[t] for t in at if t > 3) < 100


def test_the_same_scenario_in_all_three_places_is_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def boot(_vm: Vm, jobs: list[Job], tell: Tell) -> Completing:
        ran.extend(dict.fromkeys(f"{job.scenario.name} on {job.scenario.profile.device}" for job in jobs))
        return sim.Simulator().run(jobs, tell)

    monkeypatch.setattr(Vm, "run", boot)
    file = tmp_path / "x.toml"
    file.write_text(SCENARIO)
    args = ["beside", str(file), "--out", str(tmp_path / "out"), "--reuse"]
    assert main(args) == main(args) == 0
    assert ran == ["x on None", "x on fl-nvme"]  # the second time, what was there was taken
    assert Results.load(tmp_path / "out" / "simulator" / "x" / "results.json").machine["simulated_cores"] == qemu.CPUS
    assert [row["knob"] for row in json.loads((tmp_path / "out" / beside.BESIDE).read_text())] == [
        "none",
        "kyber-fairness",
    ]
    first, second = capsys.readouterr().out.split("| scenario")[1:]
    assert first == second
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in first.splitlines()[2:] if line]
    assert [row[1] for row in rows] == ["none"] * 3 + ["**kyber-fairness**"] * 3
    assert [row[2] for row in rows] == [*beside.PLACES] * 2
    for row in rows:
        assert len(row) == len(beside.HEADINGS)
    assert rows[3][3:] == rows[4][3:] == rows[5][3:]  # the same backend played all
    a, b = (float(share) for share in rows[3][5].split())
    assert a == pytest.approx(75, abs=2) and a + b == pytest.approx(100, abs=0.2)


def test_the_table_of_the_page_is_that_of_the_figures_that_are_plotted() -> None:
    rows = json.loads((beside.DOCS / beside.BESIDE).read_text())
    assert beside.table(rows) in PAGE.read_text()
    for row in rows:  # as the page says
        ours, *others = row["iops"]
        assert others == [pytest.approx(ours, rel=0.02)] * 2
        ours, *others = row["share_percent"]
        assert others == [pytest.approx(ours, abs=1.2)] * 2


def test_what_has_no_virtual_ssd_cannot_be_compared(capsys: pytest.CaptureFixture[str]) -> None:
    fig1 = SCENARIOS / "kyber-fairness" / "fig1.toml"
    assert main(["beside", str(fig1)]) == 2
    assert "kyber-fairness/fig1: not on a modelled SSD" in capsys.readouterr().err


def test_what_cannot_be_compared_is_said_before_anything_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sim.Simulator, "run", lambda *_: pytest.fail("it was simulated"))
    file = tmp_path / "x.toml"
    file.write_text(SCENARIO)
    with pytest.raises(SystemExit, match="2"):
        main(["beside", str(file), "--kernel", "5.10", "--out", str(tmp_path)])
    said = capsys.readouterr().err
    assert "invalid choice: '5.10'" in said and kernels.VERSIONS[-1] in said
    (tmp_path / "out").touch()
    assert main(["beside", str(file), "--out", str(tmp_path / "out")]) == 2
    assert f"{tmp_path / 'out' / 'simulator'}: cannot be written (Not a directory)" in capsys.readouterr().err


def test_what_plots_need_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", missing)
    assert main(["plots", "--out", str(tmp_path)]) == 2
    assert "pip install -e '.[plots]'" in capsys.readouterr().err
