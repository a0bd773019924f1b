# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane bench --on vm`: every knob of Linux and ours, in one boot of the lab kernel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlane import cli, schedulers
from fairlane.isolbench import bench, suite
from fairlane.linux import knobs
from fairlane.vm import lab_kernel

KNOBS = [knob for knob in knobs.TABLE if knob not in schedulers.EXAMPLES]
TINY = suite.Scale("quick", 1.0, 0.5, (1,), (1,), (2,), (), 1, (0.2,))


@pytest.mark.long  # the lab kernel may have to be built
@pytest.mark.parametrize(("on", "lacking"), [("vm", {"d2fq"}), ("vm:zssd", set())])
def test_every_knob_runs_on_the_lab_kernel(
    on: str, lacking: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "scale", lambda _quick, _backend: TINY)
    assert cli.main(["bench", "--quick", "--suite", "d4", "--knobs", "all", "--on", on, "--out", str(tmp_path)]) == 0
    kernel = lab_kernel.cached()
    assert kernel
    found = bench.results(bench.load(tmp_path))
    assert {run.knob for results in found.values() for run in results.runs} == set(KNOBS) - lacking
    assert {knob for results in found.values() for knob in results.unavailable} == lacking
    assert {results.kernel for results in found.values()} == {kernel.release}
    assert not [run.bad_dmesg for results in found.values() for run in results.runs if run.bad_dmesg]
    configs = {run.knob: results.config[run.knob] for results in found.values() for run in results.runs}
    assert configs["io.prio.class"]["io.prio.class"]["prio"] == "none-to-rt"
    assert "target=" in str(configs["io.latency"]["io.latency"])
    verdict = json.loads((tmp_path / "verdict.json").read_text())["verdict"]
    assert [row["knob"] for row in verdict] == KNOBS
    assert {row["knob"] for row in verdict if row["mark"] == "?"} == lacking
