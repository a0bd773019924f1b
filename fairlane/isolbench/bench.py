# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane bench`: the suite on a backend. What is done is kept, and started again it goes on from there."""

from __future__ import annotations

import difflib
import hashlib
import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fairlane import __version__, schedulers
from fairlane.backends import table
from fairlane.backends.job import Backend, Job, Needs, Options
from fairlane.errors import FairlaneError
from fairlane.experiment import price_lists
from fairlane.experiment.model import Variant
from fairlane.experiment.results import PLAN, Results
from fairlane.files import write_json
from fairlane.isolbench import published, suite, verdict
from fairlane.isolbench.published import Beside
from fairlane.isolbench.run_folder import Store, room
from fairlane.isolbench.suite import Unit
from fairlane.isolbench.suite_figures import Evidence
from fairlane.isolbench.verdict import Mark
from fairlane.progress import Progress, TimeLeft, Work

VERDICT = "verdict.json"
ASKED = {
    "parts": "--suite",
    "knobs": "--knobs",
    "on": "--on",
    "kernel": "--kernel",
    "prices": "--prices",
    "version": "the version",
}


@dataclass(frozen=True)
class Plan:
    """What was asked for; the same plan in the same folder is the same run."""

    parts: tuple[str, ...]
    knobs: tuple[str, ...]
    on: str
    scale: str
    kernel: str | None  # of the VM
    version: str = __version__
    prices: str | None = None  # the drive's price list, instead of the one in profiles/prices
    destroy_data: str | None = None  # a permission, which another start of the same run may lack
    code: Mapping[str, str] = field(default_factory=dict)  # of our schedulers
    commit: str | None = None  # of fairlane, when it was begun; for people


@dataclass(frozen=True)
class Bench:
    plan: Plan
    backend: Backend
    units: list[Unit]
    store: Store
    only: Unit | None = None  # is to be run

    @property
    def asked(self) -> list[Unit]:
        """All, or the one that is to be run, with its `none` and its tenant alone."""
        wanted = self.only and (self.only.id, self.only.baseline, self.only.alone)
        return [unit for unit in self.units if unit.id in wanted] if wanted else self.units

    @cached_property
    def todo(self) -> list[Unit]:
        """What had not run when this was first asked."""
        return [unit for unit in self.asked if not self.store.ran(unit)]

    @property
    def command(self) -> str:
        """How to run it again, or go on."""
        plan = self.plan
        words = ["fairlane", "bench", "--suite", ",".join(plan.parts), "--knobs", ",".join(plan.knobs), "--on", plan.on]
        words += ["--quick"] if plan.scale == "quick" else []
        words += ["--kernel", plan.kernel] if plan.kernel else []
        words += ["--prices", plan.prices] if plan.prices else []
        words += ["--destroy-data", plan.destroy_data] if plan.destroy_data else []
        return shlex.join([*words, "--out", str(self.store.folder)])


def prepare(
    parts: Sequence[str],
    names: Sequence[str] | None,
    backend: Backend,
    quick: bool,
    out: Path,
    prices: Callable[[], str | None] = lambda: None,
    only: str | None = None,
) -> Bench:
    """Check what was asked for and open the run folder; nothing is started yet.

    prices: says a price list's name or file, and may measure it: so it is asked last. only: the ID of the one unit that
    is to be run.
    """
    suite.check_parts(parts)
    if names is not None:
        backend.check_knobs(names)
    parts = [part for part in suite.PARTS if part in parts]  # in one order, whatever that of the command is
    asked = [name for name in backend.knobs if name in (backend.usual_knobs if names is None else names)]
    backend = backend.for_knobs(asked)
    how = suite.scale(quick, backend)
    units = suite.units(parts, asked, how, backend.drives())
    if not backend.idle:
        units = [unit for unit in units if not unit.tuning.idle]
    by_id = {unit.id: unit for unit in units}
    if only and only not in by_id:
        near = " or ".join(difflib.get_close_matches(only, by_id, 3, 0.3))
        raise FairlaneError(f"--unit: this run has no unit {only!r}; did you mean {near or next(iter(by_id))}?")
    _check_kind(out)
    named = prices()
    if named:
        costs = price_lists.load(named)
        units = [replace(unit, scenario=replace(unit.scenario, prices=costs)) for unit in units]
    plan = Plan(
        tuple(parts),
        tuple(asked),
        backend.on,
        how.name,
        backend.kernel,
        prices=named,
        destroy_data=backend.asked.destroy_data,
        code=schedulers.code(),
        commit=schedulers.commit(),
    )
    bench = Bench(plan, backend, units, Store(out), next((unit for unit in units if unit.id == only), None))
    _open(bench)
    return bench


def _check_kind(out: Path) -> None:
    if (out / "results.json").exists() and not (out / PLAN).exists():
        raise FairlaneError(
            f"{out}: holds results of another kind of run than `fairlane bench`; choose another folder with --out"
        )


def _open(bench: Bench) -> None:
    """A folder of the same plan is taken up again; one of another is not touched once a unit of that is done."""
    out = bench.store.folder
    file = out / PLAN
    data = json.loads(json.dumps({**bench.plan.__dict__, "units": [suite.to_json(unit) for unit in bench.units]}))
    if not file.exists() or not any((out / "units").glob("*.json")):
        with room(out):
            bench.store.forget_measured()  # for an older plan
            write_json(file, data)
        return
    try:
        before = json.loads(file.read_text())
    except ValueError as error:
        raise FairlaneError(f"{file}: not JSON ({error}); give another folder with --out") from error
    if differs := _differences(before, data):
        raise FairlaneError(
            f"{out} holds another run of the suite ({'; '.join(differs)}); give another folder with --out,"
            " or delete this one"
        )


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What a run was asked for and is asked for now, where that differs, in the words of the command line."""

    def said(value: Any) -> str:
        return ",".join(value) if isinstance(value, list) else str(value)

    found = [
        f"{name} was {said(before.get(key))}, is {said(now[key])}"
        for key, name in ASKED.items()
        if before.get(key) != now[key]
    ]
    if before.get("scale") != now["scale"]:
        was, now_is = ("given" if plan.get("scale") == "quick" else "not given" for plan in (before, now))
        found.append(f"--quick was {was}, is {now_is}")
    was, is_now = before.get("code", {}), now["code"]
    sources = (*now["knobs"], schedulers.SHARED, schedulers.SETTING)
    if other := [name for name in sources if was.get(name) != is_now.get(name)]:
        found.append(f"it was begun with other sources of {', '.join(other)}")
    if not found and before.get("units") != now["units"]:
        found.append("its units are others: the scenarios, the drive's profile or price list, or the CPUs")
    return found


def load(out: Path) -> Bench:
    """A run folder, for reports."""
    try:
        data: dict[str, Any] = json.loads((out / PLAN).read_text())
        units = [suite.from_json(unit) for unit in data.pop("units")]
        plan = Plan(**{**data, "parts": tuple(data["parts"]), "knobs": tuple(data["knobs"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FairlaneError(f"{out}: not a folder that `fairlane bench --out` wrote ({error})") from error
    return Bench(plan, table.named(plan.on, Options(plan.kernel, plan.destroy_data), drive=True), units, Store(out))


# --- Running ---


def job(bench: Bench, unit: Unit) -> Job:
    """The unit as a backend takes it."""
    usual = next(each for each in reversed(bench.units) if each.knob == suite.BASELINE)  # whoever the rivals are
    return Job(
        unit.id,
        unit.scenario,
        Variant(unit.knob, unit.knob),
        bench.store.raw / unit.id,
        repeat=unit.repeat,
        tuning=unit.tuning,
        needs=Needs(unit.baseline, unit.alone, suite.standard(usual.scenario)),
    )


def estimate_s(bench: Bench) -> float:
    """Roughly how long the units that are left take."""
    return bench.backend.estimate_s([job(bench, unit) for unit in bench.todo], bench.store.measured())


def run(bench: Bench, progress: Callable[[Progress], None]) -> None:
    """Run what has not run. Each unit is in the run folder as soon as it is finished."""
    if not bench.todo:
        return
    store, told = bench.store, _Told(bench, progress)
    _check_same(bench, bench.backend.identity(told.step, store.raw))
    jobs = [job(bench, unit) for unit in bench.todo]
    if bench.backend.repeatable:  # in no order that costs follow, so that the first tell how long the others take
        jobs = sorted(jobs, key=lambda job: hashlib.sha256(job.id.encode()).digest())
    needed = {name for each in jobs for name in (each.needs.most, each.needs.alone) if name}
    done = {name: run for name in needed if (run := store.run(name))} | store.measured()
    try:
        with room(store.folder), closing(bench.backend.run(jobs, told.step, done)) as finished:
            for each in finished:
                store.save(each.job.id, each.results)
                told.finished(each.job.id)
    except FairlaneError as error:
        if bench.backend.repeatable:  # which goes on with the others, and says how to run each that failed alone
            raise
        unit = next(iter(told.left), None)
        if unit is None:
            raise
        raise FairlaneError(
            f"{error}; what is done is kept. The same command goes on with this unit; with --unit {unit} it runs this"
            " one alone"
        ) from error


def _check_same(bench: Bench, now: Mapping[str, Any]) -> None:
    """Refuse to go on where that would mix kernels, accelerators or drives; what older results do not say is alike."""
    done = next((unit for unit in bench.units if bench.store.ran(unit)), None)
    if done is None:
        return
    found = bench.store.load(done.id)
    before = {**found.device, "kernel": found.kernel, "accel": found.accel}
    differs = [
        f"{key} {before[key]}, not {value}" for key, value in now.items() if before.get(key) not in (None, value)
    ]
    if differs:
        raise FairlaneError(
            f"{bench.store.folder} was begun with {' and '.join(differs)}; give another folder with --out, or delete"
            " this one"
        )


class _Told:
    """What is said of the progress: which of all units is being run, and when it will be over."""

    def __init__(self, bench: Bench, progress: Callable[[Progress], None]) -> None:
        self.total = len(bench.asked)
        self.left = {unit.id: bench.backend.job_s(job(bench, unit)) for unit in bench.todo}
        self.asked = len(self.left)
        self.progress = progress
        self.since: float | None = None  # when the last was finished, or the first begun
        self.worked_s = 0.0  # on units, and not on what is measured for knobs
        works = {unit.id: _work(unit, self.left[unit.id]) for unit in bench.todo}
        self.time = TimeLeft(works, lambda: self.worked_s)
        self.knows = bench.backend.repeatable  # it runs several at once, and says how long the rest takes

    def step(self, now: Progress) -> None:
        """What the backend says: before the first unit, of what it prepares; after that, the unit says it all.

        One that knows how long the rest takes, as soon as a unit is finished, says it throughout.
        """
        if now.news:
            self.progress(now)
            return
        if self.knows:
            part = (self.total - self.asked + now.fraction * self.asked) / self.total
            self.progress(Progress(f"{self._done} of {self.total} units", part, now.left_s))
        elif self.since is None and now.fraction > 0:
            self.since = time.monotonic()
            self._unit()
        elif self.since is None:
            self.progress(Progress(now.step, self._done / self.total))

    @property
    def _done(self) -> int:
        return self.total - len(self.left)

    def finished(self, unit_id: str) -> None:
        now = time.monotonic()
        took_s, self.since = now - (now if self.since is None else self.since), now
        if self.left.pop(unit_id, None) is not None:
            self.worked_s += took_s
            self.time.finished(unit_id, took_s)
        if self.left and not self.knows:
            self._unit()

    def _unit(self) -> None:
        """The next of those that are left is begun."""
        left_s = self.time.left_s
        text = f"{self._done + 1} of {self.total}: {next(iter(self.left))}"
        self.progress(Progress(text, self._done / self.total, sum(self.left.values()) if left_s is None else left_s))


def _work(unit: Unit, expected_s: float) -> Work:
    """What a unit costs beside that depends on its experiment and its knob."""
    traits = (f"{unit.part} {unit.experiment} {unit.x}", unit.knob)
    return Work(" ".join(traits), expected_s, traits)


# --- What it comes to ---


@dataclass(frozen=True)
class Found:
    evidence: Evidence
    marks: dict[str, dict[str, Mark]]
    published: list[Beside]  # the published marks that there are of these knobs, and ours
    advice: str
    summary: dict[str, Any]


def results(bench: Bench) -> dict[str, Results]:
    """What is there, by unit."""
    return {unit.id: bench.store.load(unit.id) for unit in bench.units if bench.store.done(unit)}


def finish(bench: Bench) -> Found:
    """Judge what is there; leaves verdict.json in the run folder."""
    evidence = Evidence(bench.units, results(bench))
    found = verdict.marks(evidence)
    beside = published.beside(evidence, found)
    summary = {"schema": 1, "command": bench.command, **vars(bench.plan), **verdict.summary(evidence)}
    summary |= {"published": published.summary(beside)} if beside else {}
    with room(bench.store.folder):
        write_json(bench.store.folder / VERDICT, summary)
    return Found(evidence, found, beside, summary["advice"], summary)
