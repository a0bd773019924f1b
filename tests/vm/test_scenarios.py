# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What the scenarios promise holds on a real kernel: shares, totals, work conservation, idling, hierarchy.

Each test judges one file of scenarios/kyber-fairness or scenarios/d2fq, or one case of scenarios/mqflashfq/vm.toml, run
with the knobs that its expectations compare. All that were selected run before the first is judged, in one boot for
each kernel and device. What they promise exactly takes a machine that does nothing else, and is not part of
`make test`: `pytest tests/vm/test_scenarios.py -m long`. It asks two of them for what a busy machine grants, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fairlane import places
from fairlane.backends.job import Options
from fairlane.backends.scenario_runs import ScenarioRun, run_scenario, run_scenarios
from fairlane.backends.sim import Simulator
from fairlane.backends.vm import Vm
from fairlane.experiment import expectations, scenario_file
from fairlane.experiment.model import Scenario
from fairlane.experiment.results import Results
from fairlane.experiment.summary import points
from fairlane.progress import Progress
from fairlane.vm import qemu, supported

FILES = [
    *sorted(places.SCENARIOS.glob("kyber-fairness/*.toml")),
    places.SCENARIOS / "mqflashfq" / "vm.toml",
    *sorted(places.SCENARIOS.glob("d2fq/vm*.toml")),
]
SCENARIOS = {what.name.removeprefix("kyber-fairness/"): what for path in FILES for what in scenario_file.load_all(path)}
ON_THE_LAST = ("nvme",)
ALSO_SIMULATED = ("fig4-seqread",)  # on a modelled SSD, so that the simulator must come to the same
RUNS = 3
QUICK = ("fig1", "fig4-seqread")  # on null_blk and on the virtual SSD
FAR = 4  # times; a busy machine makes shares worse, but none's not better
FIRST, LAST = supported.tested()[0], supported.tested()[-1]
CASES = [(LAST if name in ON_THE_LAST else FIRST, name) for name in SCENARIOS]
PARAMS = [pytest.param(kernel, name, id=f"{name}-{kernel}") for kernel, name in CASES]

Measured = dict[tuple[str, str], Results]
Tell = Callable[[Progress], None]
Judge = Callable[[Scenario, Results], list[str]]  # what is wrong


@pytest.fixture(scope="module")
def tell(request: pytest.FixtureRequest) -> Tell:
    """Shows a line for each step: there are minutes between two dots."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    steps: list[str] = []

    def line(now: Progress) -> None:
        if now.step not in steps[-1:]:
            with capture.global_and_fixture_disabled():
                print("" if steps else "\n", f"  {now.step}", flush=True)
            steps.append(now.step)

    return line


@pytest.fixture(scope="module")
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tell: Tell) -> Measured:
    asked = {
        (str(item.callspec.params["kernel"]), str(item.callspec.params["name"]))
        for item in request.session.items
        if isinstance(item, pytest.Function) and "measured" in item.fixturenames
    }
    found: Measured = {}
    for kernel in sorted({kernel for kernel, _name in asked}):
        names = sorted((name for on, name in asked if on == kernel), key=lambda name: (name == "nvme", name))
        results = _run([SCENARIOS[name] for name in names], tmp_path_factory.mktemp("scenarios"), kernel, tell)
        found |= {(kernel, name): result for name, result in zip(names, results, strict=True)}
    return found


@pytest.mark.parametrize(("kernel", "name"), [(FIRST, name) for name in QUICK])
def test_shares_are_far_nearer_than_under_none(
    kernel: str, name: str, measured: Measured, tmp_path: Path, tell: Tell
) -> None:
    _holds(_not_far, kernel, name, measured, tmp_path, tell)


@pytest.mark.long
@pytest.mark.parametrize(("kernel", "name"), PARAMS)
def test_scenario_holds(kernel: str, name: str, measured: Measured, tmp_path: Path, tell: Tell) -> None:
    _holds(_failed, kernel, name, measured, tmp_path, tell)


def _holds(judge: Judge, kernel: str, name: str, measured: Measured, tmp_path: Path, tell: Tell) -> None:
    """It has to hold in one of up to three runs: a busy machine spoils a run, a mistake in a scheduler spoils each."""
    what, results = SCENARIOS[name], measured[kernel, name]
    said = [judge(what, results)]
    while said[-1] and len(said) < RUNS:
        tell(Progress(f"{what.name}: once more, as it did not hold: {'; '.join(said[-1])}", 0.0))
        [results] = _run([what], tmp_path / str(len(said)), kernel, tell)
        said.append(judge(what, results))
    assert not said[-1], "\n".join(f"run {i}: {text}" for i, texts in enumerate(said, 1) for text in texts)


@pytest.mark.long
@pytest.mark.parametrize(("kernel", "name"), [(FIRST, name) for name in ALSO_SIMULATED])
def test_simulator_agrees(kernel: str, name: str, measured: Measured, tmp_path: Path) -> None:
    """Shares within 3 points. Totals are in docs/drives.md: they tell how much a busy machine leaves the VM, too."""
    what, results = SCENARIOS[name], measured[kernel, name]
    simulated = run_scenario(Simulator(), replace(what, cores=qemu.CPUS), _knobs(what), tmp_path)
    pairs = list(zip(points(simulated), points(results), strict=True))
    assert {ours.knob for ours, _ in pairs} == {"none", "kyber-fairness"}
    for ours, theirs in pairs:
        assert (ours.knob, ours.cgroups) == (theirs.knob, theirs.cgroups)
        assert [s.got for s in ours.shares] == pytest.approx([s.got for s in theirs.shares], abs=0.03)


def _knobs(what: Scenario) -> list[str]:
    return list(dict.fromkeys(knob for expect in what.expects for knob in (expect.of, expect.knob) if knob))


def _run(what: list[Scenario], out: Path, kernel: str, tell: Tell) -> list[Results]:
    runs = [ScenarioRun(each, _knobs(each), out / each.name) for each in what]
    return [results for _, results in run_scenarios(Vm(None, Options(kernel=kernel)), runs, tell)]


def _failed(what: Scenario, results: Results) -> list[str]:
    outcomes = expectations.evaluate(what, results, _knobs(what))
    assert all(outcome.ok is not None for outcome in outcomes), "an expectation could not be judged"
    return [
        f"{outcome.text}: {outcome.measured}, wanted {outcome.bound} {outcome.note or ''}"
        for outcome in expectations.failed(outcomes)
    ]


def _not_far(what: Scenario, results: Results) -> list[str]:
    found = {point.knob: point.share_error for point in points(results)}
    ours, none = found["kyber-fairness"], found["none"]
    assert ours is not None and none is not None
    return [] if FAR * ours < none else [f"a share is off by {ours:.3f}; under none, by {none:.3f}"]
