# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane bench --on vm`: every knob of Linux and ours, in one boot of the lab kernel."""

from __future__ import annotations

import json
from dataclasses import replace
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
    assert configs["io.prio.class"]["io.prio.class"]["prio"] == "restrict-to-be"
    assert "target=" in str(configs["io.latency"]["io.latency"])
    verdict = json.loads((tmp_path / "verdict.json").read_text())["verdict"]
    assert [row["knob"] for row in verdict] == KNOBS
    assert {row["knob"] for row in verdict if row["mark"] == "?"} == lacking


@pytest.mark.long
def test_what_only_the_full_size_asks_runs_in_a_vm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = replace(TINY, nested_apps=(2,), drives=((2, 1),), unsaturated=(2,), ratios=(1000,))
    monkeypatch.setattr(suite, "scale", lambda _quick, _backend: full)
    assert cli.main(["bench", "--suite", "d1,d2,d4", "--knobs", "bfq,fairlane", "--out", str(tmp_path)]) == 0
    what = bench.load(tmp_path)
    found = bench.results(what)
    extras = {unit.id for unit in what.units if unit.experiment.endswith(("-one", "-nested", "drives", "to1", "rated"))}
    assert {unit.split(".")[0] for unit in extras} == {
        *(f"d1-{kind}-{cgroups}-2" for kind in ("latency", "bandwidth") for cgroups in ("one", "nested")),
        "d1-drives-2",
        "d2-unsaturated-2",
        *(f"d4-{kind}-1000to1-0" for kind in suite.CRITICAL),
    }
    runs = [run for unit in extras for run in found[unit].runs]
    assert len(runs) == len(extras) and all(run.total_bytes_per_s for run in runs)
    memory = [run.counters["kernel_bytes"] for unit in extras if "nested" in unit for run in found[unit].runs]
    assert memory and all(each > 0 for each in memory), "what cgroups take of the kernel's memory"
