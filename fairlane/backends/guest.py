# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The host backend inside the VM; backends/vm.py starts it there.

`python -m fairlane.backends.guest SHARED` does the jobs of SHARED/jobs.json, each on the drive that its profile
describes. As soon as one is finished, it is a file in SHARED, and a line on stdout says so.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from itertools import count, groupby
from pathlib import Path

from fairlane import proc
from fairlane.backends.host import Host
from fairlane.backends.job import Finished, from_json, to_json
from fairlane.errors import FairlaneError
from fairlane.experiment.results import run_from_dict
from fairlane.files import write_json
from fairlane.linux import made_drives
from fairlane.progress import Progress
from fairlane.vm import dmesg
from fairlane.vm.guest import kernel_log, tell

JOBS = "jobs.json"
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


def complaints() -> Callable[[], list[str]]:
    """What asks for what the kernel has complained of since it was last asked."""
    seen = 0

    def new() -> list[str]:
        nonlocal seen
        found = dmesg.bad(kernel_log())
        lines, seen = found[seen:], len(found)
        return lines

    return new


def run(shared: Path) -> int:
    """Do the jobs, all that want the same drive on one."""
    asked = json.loads((shared / JOBS).read_text())
    jobs = [from_json(job) for job in asked["jobs"]]
    done = {name: run_from_dict(run) for name, run in asked["done"].items()}
    driver = Path(asked["driver"]) if asked["driver"] else None
    new, numbers, before = complaints(), count(), 0
    for profile, group in groupby(jobs, key=lambda job: job.scenario.profile):
        same = list(group)

        def step(now: Progress, before: int = before, of: int = len(same)) -> None:
            tell({"step": now.step, "fraction": (before + of * now.fraction) / len(jobs)})

        try:
            with made_drives.setup(profile, driver) as device:
                if not before:
                    warm_up(device)
                scale = profile.params.get("time_scale", 1)
                renew = partial(made_drives.renew, profile)
                host = Host(device, renew=renew, time_scale=scale, complaints=new)
                for finished in host.run(same, step, done):
                    done.update((finished.job.id, run) for run in finished.results.runs)
                    _hand_over(finished, shared / f".finished-{next(numbers)}.json")
        except (FairlaneError, OSError) as error:
            tell({"error": str(error)})
            return 2
        before += len(same)
    return 0


def _hand_over(finished: Finished, file: Path) -> None:
    write_json(file, {"job": to_json(finished.job), "results": finished.results.to_dict()})
    tell({"finished": file.name})


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1])))
