# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Descriptions of runs for fl-sim, and running it."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

from fairlane.backends.program import PROGRAM
from fairlane.backends.scenario_runs import run_scenario
from fairlane.backends.sim import KNOBS, Simulator
from fairlane.experiment import expectations, modelled_ssd
from fairlane.experiment.model import Scenario
from fairlane.experiment.results import Outcome
from fairlane.places import ROOT

ASAN = PROGRAM.with_suffix(".asan")
FREE = dict.fromkeys(
    ("submit_ns", "complete_ns", "wake_ns", "insert_ns", "dispatch_ns", "done_ns", "lock_ns", "lock_read_ps"), 0
)
COSTS = FREE | {"submit_ns": 2000, "complete_ns": 1500, "wake_ns": 2000, "dispatch_ns": 20, "lock_ns": 20}
# Prices as calibration would find them: a request takes as long whatever it is.
FLAT = {op: [4096] * 12 for op in ("read", "write")}
ALWAYS = [{"from_ns": 0, "to_ns": 10**15}]
LIMIT_S = 600

Json = dict[str, Any]


def null_drive(queues: int = 1, depth: int = 1023, latency_ns: int = 0, interval_ps: int = 0) -> Json:
    drive = {"kind": "null", "size": 1 << 40, "latency_ns": latency_ns, "interval_ps": interval_ps}
    return drive | {"queues": queues, "queue_depth": depth}


def ssd_drive(queues: int = 1, **fields: int) -> Json:
    drive: Json = {name: field.default for name, field in modelled_ssd.PROFILE.items()}
    drive |= {"kind": "ssd", "queues": queues, "queue_depth": 1023, "time_scale": 1, "precondition": True}
    assert not set(fields) - set(drive)
    return drive | fields


def tenant(name: str = "a", weight: int = 100, **keys: Any) -> Json:
    found: Json = {"name": name, "weight": weight, "parent": None, "jobs": 1, "depth": 1, "bytes": 4096}
    found |= {"read_percent": 100, "random": True, "think_ns": 0, "interval_ps": 0, "poisson": False, "cores": []}
    found["phases"] = ALWAYS
    assert not set(keys) - set(found) - {"metadata_percent", "discards"}
    if keys.get("discards"):
        found["read_percent"] = 0
    return found | keys


def player(trace: Path, name: str = "a", block: int = 512, **keys: Any) -> Json:
    """A tenant that plays a trace."""
    made_up = ("bytes", "read_percent", "random", "think_ns", "interval_ps", "poisson")
    found = {key: value for key, value in tenant(name, **keys).items() if key not in made_up}
    return {"full_speed": False} | found | {"trace": str(trace), "block": block}


def run_of(
    tenants: list[Json], drive: Json, knob: str = "none", cores: int = 1, seconds: float = 1.0, **keys: Any
) -> Json:
    found: Json = {"scenario": "test", "version": "0", "knob": knob, "label": knob, "seed": 1, "repeat": 0}
    found |= {"cores": cores, "tunables": {}}
    found |= {"warmup_ns": 10**8, "run_ns": round(seconds * 1e9), "cpu": COSTS, "drive": drive, "cgroups": []}
    found["tenants"] = tenants
    assert not set(keys) - set(found) - {"prices"}
    return copy.deepcopy(found | keys)  # the caller's to change


def start(text: bytes, program: Path = PROGRAM, *options: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([program, *options], input=text, capture_output=True, check=False, timeout=LIMIT_S)


def output(description: Json, program: Path = PROGRAM) -> bytes:
    """What fl-sim prints, which it does without complaint."""
    done = start(json.dumps(description).encode(), program)
    if done.returncode or done.stderr:  # not an assertion: an expected failure is never this
        raise RuntimeError(f"{program.name} ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
    return done.stdout


def refused(text: bytes) -> str:
    """The sentence that it says."""
    done = start(text, ASAN)
    assert (done.returncode, done.stdout) == (2, b"")
    said = done.stderr.decode()
    assert said.startswith("fl-sim: ")
    assert said.count("\n") == 1
    return said


def simulate(description: Json, program: Path = PROGRAM) -> Json:
    """The one run of its results."""
    found = json.loads(output(description, program))
    assert len(found["runs"]) == 1
    run: Json = found["runs"][0]
    return run


def build() -> None:
    subprocess.run(["make", "-s", "-C", ROOT / "sim", "all", "asan"], check=True)


def judge(what: Scenario, out: Path) -> list[Outcome]:
    """What came of each [[expect]] of a scenario, of those knobs that the simulator has."""
    of = {variant.name: variant.knob for variant in what.variants}
    named = [knob for expect in what.expects for knob in (expect.of, expect.knob) if knob]
    knobs = [knob for knob in dict.fromkeys(of.get(knob, knob) for knob in named) if knob in KNOBS]
    return expectations.evaluate(what, run_scenario(Simulator(), what, knobs, out), knobs) if knobs else []
