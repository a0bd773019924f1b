# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Studies: which scenarios are simulated with which parameters, written once, as a TOML file.

    description
    scenarios  files, relative to this one, or names of the project's own scenarios
    figures    that are kept: those of an [[expect]]; one of a tenant or a counter is "FIGURE of NAME"
    knobs      default: all that the simulator has
    drives     profiles that take the place of the scenarios' [device]; default: the scenarios' own
    seeds      a list, or how many, from 1 on; default: 1
    [vary.X]   keys of the scenarios' table X, each with a list of values, or with one: [vary.run], [vary.device],
               [vary.defaults], [vary.tunable.SCHEDULER] and [vary.tenant.NAME]

A unit is a scenario on a drive under a knob with one value of each parameter and one seed. A parameter of a scheduler
makes units of that scheduler only.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairlane.backends.job import Job
from fairlane.backends.scenario_runs import ScenarioRun
from fairlane.backends.sim import Simulator
from fairlane.errors import FairlaneError
from fairlane.experiment import scenario_file
from fairlane.experiment.model import Expect, Scenario
from fairlane.experiment.profiles import profiles
from fairlane.experiment.scenario_file import FIGURES, TENANT_FIGURES
from fairlane.experiment.values import (
    Table,
    as_integer,
    as_list,
    as_one_of,
    as_text,
    parse_size,
    parse_time,
    read_toml,
)
from fairlane.linux import knobs
from fairlane.places import SCENARIOS

KEYS = ("description", "scenarios", "knobs", "drives", "seeds", "figures", "vary")
VARIED = ("run", "device", "defaults", "tunable", "tenant")  # tables of a scenario
SEEDS_MAX = 100_000
UNITS_MAX = 10_000_000

Value = int | float | str


@dataclass(frozen=True)
class Figure:
    """One that is kept; `expect` says which it is."""

    name: str
    expect: Expect


@dataclass(frozen=True)
class Parameter:
    """A key of the scenarios, by the tables that it is in, and its values as they are written."""

    path: tuple[str, ...]
    values: tuple[Any, ...]

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def knob(self) -> str | None:
        """The one whose units alone have it."""
        return self.path[1] if self.path[0] == "tunable" else None


@dataclass(frozen=True)
class Study:
    path: Path
    name: str
    description: str
    scenarios: tuple[Path, ...]
    knobs: tuple[str, ...]
    drives: tuple[str | None, ...]
    seeds: tuple[int, ...]
    figures: tuple[Figure, ...]
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True)
class Unit:
    """One run, and what tells it from the others: the columns of its row but the figures."""

    job: Job
    where: dict[str, Value | None]


# --- Reading the file ---


def load(path: Path) -> Study:
    top = Table(path, "top level", read_toml(path, "a study"))
    top.only(KEYS)
    names = top.take("knobs", as_list(as_one_of(Simulator.knobs)), tuple(Simulator().usual_knobs))
    parameters = tuple(_parameters(path, top.data.get("vary", {}), names))
    return Study(
        path=path,
        name=path.stem,
        description=top.take("description", as_text, ""),
        scenarios=top.need("scenarios", as_list(_scenario(path))),
        knobs=tuple(dict.fromkeys(names)),
        drives=top.take("drives", as_list(as_one_of(profiles())), (None,)),
        seeds=top.take("seeds", _seeds, (1,)),
        figures=top.need("figures", as_list(_figure)),
        parameters=parameters,
    )


def _scenario(study: Path) -> Callable[[object], Path]:
    def convert(value: object) -> Path:
        text = as_text(value)
        for place in (study.parent / text, SCENARIOS / text, SCENARIOS / f"{text}.toml"):
            if place.is_file():
                return place
        raise ValueError(f"there is no scenario {text}, neither beside the study nor in {SCENARIOS}")

    return convert


def _seeds(value: object) -> tuple[int, ...]:
    if isinstance(value, list):
        return tuple(dict.fromkeys(as_list(as_integer(0, 2**31))(value)))
    return tuple(range(1, as_integer(1, SEEDS_MAX)(value) + 1))


def _figure(value: object) -> Figure:
    text = as_text(value)
    figure, of, name = text.partition(" of ")
    as_one_of((*FIGURES, *TENANT_FIGURES))(figure)
    if (figure in TENANT_FIGURES or figure == "counter") != bool(of and name):
        needs = "NAME" if figure in TENANT_FIGURES or figure == "counter" else ""
        raise ValueError(f'{text!r}: write it as "{figure}{" of " * bool(needs)}{needs}"')
    tenant = name if figure in TENANT_FIGURES else None
    return Figure(text, Expect(figure, "", tenant=tenant, counter=name if figure == "counter" else None))


def _parameters(path: Path, vary: object, names: Sequence[str]) -> Iterator[Parameter]:
    table = Table(path, "[vary]", vary)
    table.only(VARIED)
    for key, inner in table.data.items():
        if key not in ("tunable", "tenant"):
            yield from _keys(path, (key,), inner)
            continue
        for name, innermost in Table(path, f"[vary.{key}]", inner).data.items():
            if key == "tunable" and name not in names:
                raise FairlaneError(f"{path}: [vary.tunable] {name}: is none of the study's knobs ({', '.join(names)})")
            yield from _keys(path, (key, name), innermost)


def _keys(path: Path, tables: tuple[str, ...], data: object) -> Iterator[Parameter]:
    where = f"[vary.{'.'.join(tables)}]"
    for key, value in Table(path, where, data).data.items():
        values = value if isinstance(value, list) else [value]
        if not values:
            raise FairlaneError(f"{path}: {where} {key}: has no values")
        if tables == ("run",) and key in ("seed", "repeats", "cases"):
            raise FairlaneError(f"{path}: {where} {key}: a study has seeds in its place")
        yield Parameter((*tables, key), tuple(values))


# --- Its units ---


def units(study: Study, out: Path) -> list[Unit]:
    """All of them, in the order of their rows; every parameter is checked as it would be in the scenario."""
    found: list[Unit] = []
    for path, drive in itertools.product(study.scenarios, study.drives):
        data = read_toml(path, "a scenario")
        for knob in study.knobs:
            mine = [each for each in study.parameters if each.knob in (None, knob)]
            for values in itertools.product(*(each.values for each in mine)):
                settings = list(zip(mine, values, strict=True))
                where = {each.name: _plain(value) for each, value in settings}
                for scenario in _scenarios(study, path, data, drive, settings):
                    found += _of(study, scenario, knob, where, len(found), out)
        if len(found) > UNITS_MAX:
            raise FairlaneError(f"{study.path}: has more than {UNITS_MAX:,} units; vary less")
    return found


def _of(
    study: Study, scenario: Scenario, knob: str, where: Mapping[str, Value], count: int, out: Path
) -> Iterator[Unit]:
    """The units of one scenario as it is set, under one knob."""
    first = ScenarioRun(replace(scenario, repeats=1), [knob], out).jobs
    for seed in study.seeds:
        seeded = replace(scenario, repeats=1, seed=seed)
        for job in first:
            name = f"{count:07d}-{scenario.name}-{scenario.profile.name}-{job.variant.name}"
            count += 1
            columns: dict[str, Value | None] = {"scenario": scenario.name, "drive": scenario.profile.name, "knob": knob}
            columns |= {"variant": job.variant.name, "cgroups": job.point, "seed": seed, **where}
            yield Unit(replace(job, id=name.replace("/", "-"), scenario=seeded, raw=False), columns)


def _scenarios(
    study: Study, path: Path, data: Mapping[str, Any], drive: str | None, settings: Sequence[tuple[Parameter, Any]]
) -> list[Scenario]:
    """The file's, with a drive and parameters in the place of its own."""
    changed = copy.deepcopy(dict(data))
    if drive is not None:
        changed["device"] = {"profile": drive}
    for key in ("repeats", "tuned_for"):  # a study has seeds; nothing that is simulated is set for another load
        changed.setdefault("run", {}).pop(key, None)
    for parameter, value in settings:
        _set(study, changed, parameter, value, path)
    try:
        found = scenario_file.parse(path, changed, tuple(knobs.TABLE))
    except FairlaneError as error:
        said = ", ".join(f"{parameter.name} = {value!r}" for parameter, value in settings)
        raise FairlaneError(f"{study.path}: with {said or 'no parameter'}: {error}") from error
    for scenario in found:
        _check_figures(study, scenario)
    return found


def _set(study: Study, data: dict[str, Any], parameter: Parameter, value: Any, path: Path) -> None:
    *tables, key = parameter.path
    if tables[0] == "tenant":
        places = [table for table in data.get("tenant", []) if table.get("name") == tables[1]]
        if not places:
            raise FairlaneError(f"{study.path}: [vary.tenant.{tables[1]}]: {path} has no [[tenant]] of that name")
        for place in places:  # each case of a scenario has its own
            place[key] = value
        return
    for name in tables:
        data = data.setdefault(name, {})
    data[key] = value


def _check_figures(study: Study, scenario: Scenario) -> None:
    """That there is one of each, wherever tenants have names of their own."""
    named = {tenant.name for tenant in scenario.tenants} | {group.name for group in scenario.groups}
    for figure in study.figures:
        tenant = figure.expect.tenant
        if tenant and (tenant not in named or scenario.sweep):
            have = "a sweep, whose tenants have no names" if scenario.sweep else ", ".join(sorted(named))
            raise FairlaneError(f"{study.path}: figures {figure.name}: {scenario.name} has {have}")


def _plain(value: Any) -> Value:
    """A parameter's value as a column has it: a size in bytes, a time in seconds."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return value
    if isinstance(value, str):
        for convert in (parse_size, parse_time):
            with suppress(ValueError):
                return convert(value)
        return value
    return str(value)
