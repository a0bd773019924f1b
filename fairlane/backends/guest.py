# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The host backend inside the VM: what backends/vm.py starts there.

`scenarios SHARED` runs those of SHARED/jobs.json, each on the device that its profile describes. `units SHARED
ACCELERATOR` runs the units of a suite, SHARED/.units.json; SHARED is their run folder, and each unit's results are in
it as soon as they are there.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

from fairlane import proc
from fairlane.backends import host
from fairlane.errors import FairlaneError
from fairlane.experiment.model import from_dict
from fairlane.experiment.results import Results
from fairlane.isolbench import suite
from fairlane.isolbench.run_folder import Store
from fairlane.linux import made_drives
from fairlane.progress import Progress
from fairlane.vm import dmesg
from fairlane.vm.guest import kernel_log, tell

JOBS, RESULTS, UNITS = "jobs.json", "results.json", ".units.json"


WARM_UP_S = 3


def warm_up(device: str) -> None:
    """Read for a moment: an emulated CPU translates code when it first runs, and the first measurement would pay."""
    load = {
        "filename": f"/dev/{device}",
        "rw": "randread",
        "ioengine": "libaio",
        "iodepth": 32,
        "numjobs": 2,
        "direct": 1,
    }
    options = [f"--{key}={value}" for key, value in load.items()]
    command = ["fio", "--name=warm-up", "--readonly", "--time_based", f"--runtime={WARM_UP_S}", *options]
    proc.output(command, what="warming up", limit_s=60)


def scenarios(shared: Path) -> int:
    """Run each of SHARED/jobs.json; leaves results.json in the job's folder, or tells the host what is wrong."""
    jobs = json.loads((shared / JOBS).read_text())
    for number, job in enumerate(jobs):
        what, out = from_dict(job["scenario"]), Path(job["out"])

        def progress(now: Progress, name: str = what.name, number: int = number) -> None:
            step = f"{name}: {now.step}" if len(jobs) > 1 else now.step
            tell({"step": step, "fraction": (number + now.fraction) / len(jobs)})

        try:
            with made_drives.setup(what.profile) as device:
                if not number:
                    warm_up(device)
                renew = partial(made_drives.renew, what.profile)
                host.run(what, device, job["knobs"], out, progress, renew=renew).save(out / RESULTS)
        except FairlaneError as error:
            tell({"error": f"{what.name}: {error}"})
            return 2
    return 0


def units(shared: Path, accelerator: str) -> int:
    """Run those of SHARED/.units.json, all that want the same drive on one."""
    todo = [suite.from_json(unit) for unit in json.loads((shared / UNITS).read_text())]
    seen = len(dmesg.bad(kernel_log()))

    def bad() -> list[str]:
        nonlocal seen
        found = dmesg.bad(kernel_log())
        new, seen = found[seen:], len(found)
        return new

    store = VmStore(shared, suite.standard(todo[-1].scenario), accelerator)
    for profile, group in groupby(todo, key=lambda unit: unit.scenario.profile):
        try:
            with made_drives.setup(profile) as device:
                warm_up(device)
                host.run_units(
                    list(group),
                    device,
                    store,
                    lambda unit: tell({"unit": unit.id}),
                    renew=partial(made_drives.renew, profile),
                    bad=bad,
                )
        except (FairlaneError, OSError) as error:
            tell({"error": str(error)})
            return 2
    return 0


@dataclass(frozen=True)
class VmStore(Store):
    """Says in the results that this is a VM, and which drive was made in it."""

    accelerator: str

    def save(self, unit: suite.Unit, results: Results) -> None:
        profile = unit.scenario.profile
        results.backend, results.accel = "vm", self.accelerator
        results.device |= {"profile": profile.name, "description": profile.description, **profile.params}
        super().save(unit, results)


def main(argv: list[str]) -> int:
    match argv:
        case ["scenarios", shared]:
            return scenarios(Path(shared))
        case ["units", shared, accelerator]:
            return units(Path(shared), accelerator)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
