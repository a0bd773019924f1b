# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""How fast the simulator is on this machine: `make speed` in this folder.

Simulated requests per second of one core's time, that of setting up left out; and what a request costs as tenants and
cores become more.
"""

from __future__ import annotations

import resource
import tempfile
from dataclasses import replace
from pathlib import Path

from fairlane.backends import sim
from fairlane.backends.scenario_runs import run_scenario
from fairlane.experiment.model import Profile, Scenario, TenantSpec
from fairlane.experiment.profiles import load_profile

SIZES = ((1, 1, 20.0), (4, 4, 8.0), (16, 16, 4.0), (64, 64, 4.0), (256, 64, 4.0), (1000, 64, 4.0))  # tenants, cores, s
SETUPS = 3  # runs of no length, the quickest of which says what setting up takes


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(what: Scenario, knob: str, out: Path) -> tuple[int, float]:
    """Requests simulated, and the CPU time in s."""
    before = cpu_s()
    found = run_scenario(sim.Simulator(), what, [knob], out)
    return found.runs[0].counters["device"]["requests"], cpu_s() - before


def scenario(profile: Profile, tenants: int, cores: int, depth: int, seconds: float) -> Scenario:
    load = tuple(TenantSpec(f"t{i}", 100 + i % 10 * 100, iodepth=depth) for i in range(tenants))
    return Scenario("speed", profile, load, cores=cores, seconds=seconds, warmup=0.0)


def main() -> None:
    cases = [("optane, depth 32", scenario(load_profile("optane"), 1, 1, 32, 4.0))]
    cases += [
        (f"p4500, {tenants} tenants, {cores} cores", scenario(load_profile("p4500"), tenants, cores, 8, seconds))
        for tenants, cores, seconds in SIZES
    ]
    print(f"{'':34} {'scheduler':16} {'requests':>10} {'ns each':>9} {'1000/s':>9}")
    with tempfile.TemporaryDirectory(prefix="fairlane-") as folder:
        out = Path(folder)
        for name, what in cases:
            empty = replace(what, seconds=0.001)
            setup_s = min(run(empty, "none", out)[1] for _ in range(SETUPS))
            for knob in sim.KNOBS:
                if sim.unavailable(knob, what.profile):
                    continue
                requests, used_s = run(what, knob, out)
                ns = (used_s - setup_s) / requests * 1e9
                print(f"{name:34} {knob:16} {requests:10,} {ns:9.0f} {1e6 / ns:9,.0f}", flush=True)
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(f"most memory: {most / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
