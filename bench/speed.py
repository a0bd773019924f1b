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

from fairlane import sim
from fairlane.scenario import Profile, Scenario, TenantSpec, load_profile

SECONDS = 4.0
SIZES = ((1, 1), (4, 4), (16, 16), (64, 64), (256, 64), (1000, 64))  # tenants and cores


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cost(what: Scenario, knob: str, out: Path) -> tuple[int, float]:
    """Requests simulated, and the CPU time of each in ns: of the run, without that of a very short one."""
    used = []
    for scenario in (replace(what, seconds=0.001, warmup=0.0), replace(what, seconds=SECONDS, warmup=0.0)):
        before = cpu_s()
        found = sim.run(scenario, None, [knob], out, lambda _: None)
        used.append(cpu_s() - before)
    requests = found.runs[0].counters["device"]["requests"]
    return requests, (used[1] - used[0]) / requests * 1e9


def scenario(profile: Profile, tenants: int, cores: int, depth: int) -> Scenario:
    load = tuple(TenantSpec(f"t{i}", 100 + i % 10 * 100, iodepth=depth) for i in range(tenants))
    return Scenario("speed", profile, load, cores=cores)


def main() -> None:
    cases = [("optane, depth 32", scenario(load_profile("optane"), 1, 1, 32))]
    cases += [
        (f"p4500, {tenants} tenants, {cores} cores", scenario(load_profile("p4500"), tenants, cores, 8))
        for tenants, cores in SIZES
    ]
    print(f"{'':34} {'scheduler':16} {'requests':>10} {'ns each':>9} {'1000/s':>9}")
    with tempfile.TemporaryDirectory(prefix="fairlane-") as folder:
        for name, what in cases:
            for knob in sim.KNOBS:
                requests, ns = cost(what, knob, Path(folder))
                print(f"{name:34} {knob:16} {requests:10,} {ns:9.0f} {1e6 / ns:9,.0f}", flush=True)
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(f"most memory: {most / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
