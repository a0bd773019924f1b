# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""results.json: what a scenario's runs measured.

The file is a contract between the backends, the report and whoever reads it later. Rates are bytes/s and I/Os
per second, latencies microseconds; a figure that is not known is None (null in the file), never 0.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fairlane.errors import FairlaneError
from fairlane.experiment.figures import jain
from fairlane.files import write_json, written

SCHEMA = 1
PLAN = "plan.json"  # of a run of the suite, in its folder
OTHERS = "others_cpus"  # the counter of a run in a VM: how many of the host's CPUs were busy with other things
MUCH = 0.25  # of them: less does not matter
CPU_FULL = 0.75  # of the time of emulated CPUs: with more, who is to go on waits for a CPU now and then
LATENCIES = ("mean", "p50", "p95", "p99", "p99.9", "max")


@dataclass
class Series:
    """Bytes moved in each bin of the measuring window."""

    bin_ms: int
    bytes: list[int]

    def between(self, start: float, stop: float) -> list[int]:
        """Of the bins nearest to that time, in s of the measuring window."""
        first, last = (round(t * 1000 / self.bin_ms) for t in (start, stop))
        return self.bytes[first:last]


@dataclass
class Tenant:
    """What one tenant got in one run; averages are over the whole measuring window, idle parts included."""

    name: str
    weight: int
    share: float  # ideal fraction (0..1) of the total by the weights along its path, among this run's tenants
    bytes_per_s: float
    iops: float
    read_bytes_per_s: float
    write_bytes_per_s: float
    cost_per_s: float | None = None  # reference requests; None when the scenario has no price list
    lat_us: dict[str, float | None] = field(default_factory=dict)  # keys: LATENCIES
    series: Series | None = None

    def moved(self, start: float, stop: float) -> int | None:
        """Bytes from start to stop, in s of the measuring window, or None when there is no series to tell."""
        return None if self.series is None else sum(self.series.between(start, stop))

    def rate(self, start: float, stop: float) -> float | None:
        """Bytes/s in that time, as far as whole steps of the series go; None when there is none in it to tell."""
        found = self.series.between(start, stop) if self.series else []
        return sum(found) / len(found) * 1000 / self.series.bin_ms if self.series and found else None


@dataclass
class Part:
    """A part of the measuring window in which the tenants named can all use their shares, and no other is active."""

    start: float  # s
    stop: float
    shares: dict[str, float]  # tenant -> ideal fraction (0..1) of what is moved in this part


@dataclass
class Run:
    """One knob, one repeat, one point of a sweep."""

    knob: str
    repeat: int
    seconds: float
    tenants: list[Tenant]
    total_bytes_per_s: float
    total_iops: float
    fairness_index: float | None  # None when nothing was moved
    cpu_ns_per_io: float | None
    counters: dict[str, Any] = field(
        default_factory=dict
    )  # {"device": {name: value}, "tenants": {tenant: {name: value}}}
    point: dict[str, int] | None = None  # {"cgroups": N} in a sweep
    bad_dmesg: list[str] = field(default_factory=list)
    parts: list[Part] | None = None  # where shares mean something; None: in all of it, []: nowhere (see check.parts)

    def received(self, tenant: Tenant) -> float | None:
        """The fraction of the run's total that the tenant got, or None when nothing was moved."""
        return tenant.bytes_per_s / self.total_bytes_per_s if self.total_bytes_per_s else None

    @property
    def cost_fairness_index(self) -> float | None:
        """As fairness_index, over what the tenants got by cost; None when there was no price list."""
        costs = [(tenant.cost_per_s, tenant.share) for tenant in self.tenants]
        return jain(c / share for c, share in costs if c is not None) if all(c is not None for c, _ in costs) else None


@dataclass
class Outcome:
    """How one [[expect]] came out; ok is None when it cannot be judged because one of its knobs was not asked for."""

    text: str
    paper: str | None
    measured: float | None
    bound: str
    ok: bool | None
    note: str | None = None


@dataclass
class Results:
    scenario: str
    backend: str
    seed: int
    version: str
    kernel: str | None = None
    accel: str | None = None
    runs: list[Run] = field(default_factory=list)
    device: dict[str, Any] = field(default_factory=dict)
    config: dict[str, dict[str, Any]] = field(default_factory=dict)  # knob -> what was set -> value
    unavailable: dict[str, str] = field(default_factory=dict)  # knob that was asked for -> why it could not run
    expects: list[Outcome] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # sentences that whoever reads the figures must know
    command: str | None = None
    schema: int = SCHEMA

    @property
    def simulated(self) -> bool:
        """Whether a simulator ran it."""
        return "simulated_cores" in self.machine

    @property
    def knobs(self) -> list[str]:
        """The knobs that ran, in the order in which they first did."""
        return list(dict.fromkeys(run.knob for run in self.runs))

    def to_dict(self) -> dict[str, Any]:
        """As in the file."""
        data = asdict(self)
        for run in data["runs"]:
            if run["point"] is None:
                del run["point"]
        return data

    def save(self, path: Path) -> None:
        """Write the file whole or not at all."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: Path, todo: str = "run the scenario again") -> Results:
        """todo is what to do about a file that is damaged."""
        try:
            data = json.loads(path.read_text())
        except OSError as error:
            raise FairlaneError(
                f"{path}: cannot be read ({error.strerror}); give a folder that `fairlane run` or `bench` wrote"
            ) from error
        except ValueError as error:
            raise FairlaneError(f"{path}: not JSON ({error}); {todo}") from error
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise FairlaneError(f"{path}: not a results file of schema {SCHEMA}, which is this version's; {todo}")
        try:
            return cls.from_dict(data)
        except (KeyError, TypeError) as error:
            raise FairlaneError(f"{path}: not a complete results file ({error}); {todo}") from error

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Results:
        """What to_dict() made."""
        runs = [run_from_dict(run) for run in data["runs"]]
        expects = [Outcome(**outcome) for outcome in data.get("expects", [])]
        return cls(**{**data, "runs": runs, "expects": expects})


def disturbed(runs: Sequence[Run]) -> list[str]:
    """A sentence, if the host of the VM that they ran in had other things to do."""
    others = [cpus for run in runs if (cpus := run.counters.get(OTHERS, 0.0)) > MUCH]
    if not others:
        return []
    return [
        f"In {len(others)} of {len(runs)} runs, other processes kept up to {max(others):.1f} of this machine's CPUs"
        " busy. A VM needs them all, so figures may be off: run this again on an idle machine."
    ]


def short_of_cpu(results: Results) -> list[str]:
    """A sentence, if the emulated CPUs had hardly time left: then the drive need not have been the bottleneck."""
    cpus = results.machine.get("cpus")
    if results.accel != "tcg" or not cpus:
        return []
    used = [(run.knob, run.total_iops * (run.cpu_ns_per_io or 0.0) / 1e9 / cpus) for run in results.runs]
    full = [(knob, part) for knob, part in used if part > CPU_FULL]
    if not full:
        return []
    return [
        f"Under {', '.join(dict.fromkeys(knob for knob, _ in full))} the emulated CPUs were busy for up to"
        f" {max(part for _, part in full):.0%} of the time. There they may be the bottleneck, and not the drive, so"
        " shares and totals say little: run a copy of the scenario in which the drive has a larger time_scale, or use"
        " a faster machine."
    ]


def check_folder(folder: Path, *files: str) -> None:
    """Make the folder, and refuse one in which those files cannot be written: before what they are to hold is made.

    So is one that holds a run of the suite, whose files of those names are others.
    """
    if folder.exists() and not folder.is_dir():
        raise FairlaneError(f"{folder}: is not a folder; choose another one with --out")
    with written(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    if files and (folder / PLAN).exists():
        raise FairlaneError(f"{folder}: holds a run of `fairlane bench`; choose another folder with --out")
    for name in files:
        if (folder / name).is_dir():
            raise FairlaneError(f"{folder / name}: is a folder, not a file; choose another folder with --out")


def run_from_dict(data: dict[str, Any]) -> Run:
    parts = data.get("parts")
    tenants = [_tenant(tenant) for tenant in data["tenants"]]
    return Run(**{**data, "tenants": tenants, "parts": None if parts is None else [Part(**part) for part in parts]})


def _tenant(data: dict[str, Any]) -> Tenant:
    series = data.get("series")
    return Tenant(**{**data, "series": Series(**series) if series else None})
