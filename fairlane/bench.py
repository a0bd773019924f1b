# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane bench`: the suite on a backend. What is done is kept, and started again it goes on from there."""

from __future__ import annotations

import json
import platform
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from fairlane import __version__, benchreport, host, knobs, sim, suite, verdict, vm
from fairlane.errors import FairlaneError
from fairlane.files import write_json
from fairlane.host import Progress
from fairlane.results import PLAN, Results
from fairlane.store import Store, room
from fairlane.suite import Unit
from fairlane.verdict import Evidence, Mark

RESULTS, REPORT = "results.json", "report.html"
ASKED = {"parts": "--suite", "knobs": "--knobs", "on": "--on", "kernel": "--kernel", "version": "the version"}
BOOT_S = 20.0
SIM_SPEED = 4.0  # real seconds for a simulated one, on two cores
OVERHEAD_S = {"vm": 2.0, "host": 1.5}  # of a unit: cgroups, starting fio, collecting


@dataclass(frozen=True)
class Plan:
    """What was asked for; the same plan in the same folder is the same run."""

    parts: tuple[str, ...]
    knobs: tuple[str, ...]
    on: str
    scale: str
    kernel: str | None  # of the VM
    version: str = __version__
    destroy_data: str | None = None  # a permission, which another start of the same run may lack


@dataclass(frozen=True)
class Bench:
    plan: Plan
    backend: str
    where: str | None
    units: list[Unit]
    store: Store

    @cached_property
    def todo(self) -> list[Unit]:
        """What had not run when this was first asked."""
        return [unit for unit in self.units if not self.store.ran(unit)]

    @property
    def command(self) -> str:
        """How to run it again, or go on."""
        plan = self.plan
        words = ["fairlane", "bench", "--suite", ",".join(plan.parts), "--knobs", ",".join(plan.knobs), "--on", plan.on]
        words += ["--quick"] if plan.scale == "quick" else []
        words += ["--kernel", plan.kernel] if plan.kernel else []
        words += ["--destroy-data", plan.destroy_data] if plan.destroy_data else []
        return shlex.join([*words, "--out", str(self.store.folder)])


def prepare(
    parts: Sequence[str],
    names: Sequence[str] | None,
    on: str,
    backend: str,
    where: str | None,
    quick: bool,
    kernel: str | None,
    out: Path,
    destroy_data: str | None = None,
) -> Bench:
    """Check what was asked for and open the run folder; nothing is started yet."""
    suite.check_parts(parts)
    known = sim.KNOBS if backend == "sim" else tuple(knobs.TABLE)
    if names is not None:
        if not names:
            raise FairlaneError(f"--knobs names none; valid are {', '.join(known)}")
        knobs.check_names(names)
        if backend == "sim":
            sim.check_knobs(names)
    parts = [part for part in suite.PARTS if part in parts]  # in one order, whatever that of the command is
    asked = [name for name in known if names is None or name in names]
    if backend == "vm" and kernel is None:
        kernel = vm.kernel_for(asked)
    how = suite.scale(quick, backend)
    units = suite.units(parts, asked, how, suite.drives(backend, where))
    if backend == "sim":  # which has a scheduler and its weights, and so no knob that could be idle
        units = [unit for unit in units if not unit.tuning.idle]
    plan = Plan(tuple(parts), tuple(asked), on, how.name, kernel, destroy_data=destroy_data)
    bench = Bench(plan, backend, where, units, Store.of(out, units[-1]))
    _open(bench)
    return bench


def _open(bench: Bench) -> None:
    """A folder of the same plan is taken up again; one of another is not touched once a unit of that is done.

    One that holds results and no plan is of another kind of run.
    """
    out = bench.store.folder
    file = out / PLAN
    data = json.loads(json.dumps({**bench.plan.__dict__, "units": [suite.to_json(unit) for unit in bench.units]}))
    if (out / RESULTS).exists() and not file.exists():
        raise FairlaneError(
            f"{out}: holds results of another kind of run than `fairlane bench`; choose another folder with --out"
        )
    if not file.exists() or not any((out / "units").glob("*.json")):
        with room(out):
            bench.store.forget("io.cost")  # which was measured for an older plan
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
    backend, _, where = plan.on.partition(":")
    return Bench(plan, backend, where or None, units, Store.of(out, units[-1]))


# --- Running ---


def estimate_s(bench: Bench) -> float:
    """Roughly how long the units that are left take."""
    todo = bench.todo
    if bench.backend == "sim":
        return sum(SIM_SPEED * unit.seconds for unit in todo)
    each: float = sum(unit.seconds + OVERHEAD_S[bench.backend] for unit in todo)
    model = any("io_cost" in knobs.TABLE[unit.knob].needs for unit in todo) and not bench.store.kept("io.cost")
    return each + host.tuning_s(bench.store.standard) * model + (BOOT_S if bench.backend == "vm" and todo else 0)


def run(bench: Bench, progress: Callable[[Progress], None]) -> None:
    """Run what has not run."""
    todo = bench.todo
    if not todo:
        return
    watch = _Watch(bench, progress)
    for unit in todo:
        bench.store.path(unit.id).parent.mkdir(parents=True, exist_ok=True)
    if bench.backend == "sim":
        with room(bench.store.folder):
            _simulate(bench, todo, watch)
    elif bench.backend == "vm":
        assert bench.plan.kernel
        boot = vm.ready(bench.plan.kernel, bench.store.folder, lambda now: watch.say(now.step))
        _check_same(bench, {"kernel": boot.kernel.release, "accel": boot.accelerator})
        vm.run_units(todo, boot, watch.unit)
    else:
        device = bench.where or ""
        _check_same(bench, {"kernel": platform.release(), **host.identity(device)})
        host.run_units(todo, device, bench.store, lambda u: watch.unit(u.id), destroy_data=bench.plan.destroy_data)


def _check_same(bench: Bench, now: Mapping[str, Any]) -> None:
    """Refuse to go on where that would mix kernels, accelerators or drives; what older results do not say is alike."""
    done = next((unit for unit in bench.units if unit not in bench.todo), None)
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


class _Watch:
    """Progress over all units, and when it will be over."""

    def __init__(self, bench: Bench, progress: Callable[[Progress], None]) -> None:
        self.total = len(bench.units)
        self.lengths = {unit.id: unit.seconds + OVERHEAD_S.get(bench.backend, 0.0) for unit in bench.todo}
        self.progress, self.done = progress, self.total - len(bench.todo)
        self.started: float | None = None
        self.spent = 0.0

    def say(self, text: str) -> None:
        self.progress(Progress(text, self.done / self.total))

    def unit(self, unit_id: str) -> None:
        """That unit is begun; all before it are done."""
        now = time.monotonic()
        left = sum(self.lengths.values()) - self.spent
        if self.started is None:
            self.started = now
        rate = (now - self.started) / self.spent if self.spent else 1.0
        minutes = left * rate / 60
        self.spent += self.lengths.get(unit_id, 0.0)
        self.progress(
            Progress(
                f"{self.done + 1} of {self.total}: {unit_id} (about {minutes:.0f} min left)", self.done / self.total
            )
        )
        self.done += 1


def _simulate(bench: Bench, todo: Sequence[Unit], watch: _Watch) -> None:
    """Knobs with the same load at once, each on a core of this machine."""
    for same in _alike(todo):
        watch.unit(same[0].id)
        unit = same[0]
        folder = bench.store.raw / unit.id.replace(f".{unit.knob}.", ".")
        lacking = {u.knob: why for u in same if (why := sim.unavailable(u.knob, unit.scenario.profile))}
        usable = [u for u in same if u.knob not in lacking]
        for each in same:
            if each not in usable:
                none = Results(each.scenario.name, "sim", each.scenario.seed, __version__)
                bench.store.save(each, replace(none, unavailable={each.knob: lacking[each.knob]}))
        if usable:
            found = sim.run(unit.scenario, None, [u.knob for u in usable], folder, lambda _now: None)
            for each, run in zip(usable, found.runs, strict=True):
                own = {each.knob: found.config[each.knob]}
                bench.store.save(each, replace(found, runs=[run], config=own, unavailable={}))
        watch.done += len(same) - 1


def _alike(todo: Sequence[Unit]) -> Iterator[list[Unit]]:
    """Units of the same scenario and of different knobs."""

    def key(unit: Unit) -> tuple[str, str, float, str]:
        return unit.part, unit.experiment, unit.x or 0.0, repr(unit.scenario)

    for _key, group in groupby(sorted(todo, key=key), key=key):
        rest = list(group)
        while rest:
            names: dict[str, Unit] = {}
            for unit in rest:
                names.setdefault(unit.knob, unit)
            yield list(names.values())
            rest = [unit for unit in rest if unit not in names.values()]


# --- What it comes to ---


@dataclass(frozen=True)
class Found:
    evidence: Evidence
    marks: dict[str, dict[str, Mark]]
    advice: str
    summary: dict[str, Any]
    page: Path


def results(bench: Bench) -> dict[str, Results]:
    """What is there, by unit."""
    return {unit.id: bench.store.load(unit.id) for unit in bench.units if bench.store.done(unit)}


def finish(bench: Bench) -> Found:
    """Judge what is there; leaves results.json and report.html in the run folder."""
    evidence = Evidence(bench.units, results(bench))
    found = verdict.marks(evidence)
    summary = {"schema": 1, "command": bench.command, **vars(bench.plan), **verdict.summary(evidence)}
    page = bench.store.folder / REPORT
    with room(bench.store.folder):
        write_json(bench.store.folder / RESULTS, summary)
        page.write_text(
            benchreport.render(vars(bench.plan), bench.command, evidence, found, summary["advice"]),
            encoding="utf-8",
        )
    return Found(evidence, found, summary["advice"], summary, page)
