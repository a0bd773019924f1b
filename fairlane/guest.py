# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The guest's half of the VM backend; vm.py starts it as root in a freshly booted VM.

`wrap SHARED MODULES COMMAND...` prepares the machine, runs the command and leaves its exit status and the kernel's log
in SHARED. `scenarios SHARED` is such a command: it runs those of SHARED/jobs.json, each on the device that its profile
describes. `units SHARED ACCELERATOR` is another: it runs the units of a suite, SHARED/.units.json; SHARED is their run
folder, and each unit's results are in it as soon as they are there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from fairlane import devices, dmesg, host, knobs, proc, suite
from fairlane.errors import FairlaneError
from fairlane.host import Progress
from fairlane.kernels import MODULES
from fairlane.results import Results
from fairlane.scenario import from_dict
from fairlane.store import Store

MARK = "@fairlane "  # starts a line, with JSON after it, by which the guest talks to the host
UP = MARK + "up"
STATUS, DMESG = ".vm-status.json", "dmesg.txt"  # what wrap leaves in the shared folder
JOBS, RESULTS, UNITS = "jobs.json", "results.json", ".units.json"

SCHEDULERS = ("bfq", "kyber-iosched")  # modules in Debian's kernels; mq-deadline is built in
HUNG_TASK_S = 30  # Linux would say so of a stuck task after 120 s, when a short test is long over
INSMOD_S = 60.0
WARM_UP_S = 3

CGROUPS = Path("/sys/fs/cgroup")
VIRTIO_PORTS = Path("/sys/class/virtio-ports")


def wrap(shared: Path, modules: Path | None, command: list[str]) -> int:
    use_ports()
    print(UP, flush=True)
    status = 2
    try:
        prepare(modules)
        status = subprocess.run(command, check=False, env={**os.environ, "FAIRLANE_SHARED": str(shared)}).returncode
    except (FairlaneError, OSError) as error:
        tell({"error": str(error)})
    log = kernel_log()
    (shared / DMESG).write_text("".join(f"{line}\n" for line in log))
    temp = shared / f"{STATUS}.part"
    temp.write_text(json.dumps({"status": status, "bad_dmesg": dmesg.bad(log)}))
    temp.replace(shared / STATUS)
    return status


def use_ports() -> None:
    """Speak through the ports that virtme-run made for a script; its init finds them only where udev is installed.

    The alternative is the serial console, where our lines and the kernel's cut into each other.
    """
    ports = {path.joinpath("name").read_text().strip(): path.name for path in VIRTIO_PORTS.glob("*")}
    for fd, name in ((1, "virtme.stdout"), (2, "virtme.stderr")):
        if name in ports and os.isatty(fd):
            port = os.open(f"/dev/{ports[name]}", os.O_WRONLY)
            os.dup2(port, fd)
            os.close(port)


def prepare(modules: Path | None) -> None:
    """Cgroups with their I/O controller, every scheduler loaded, and a kernel that soon says when a task is stuck."""
    if not (CGROUPS / "cgroup.controllers").exists():
        proc.output(["mount", "-t", "cgroup2", "none", CGROUPS], what="mounting cgroups", limit_s=10)
    (CGROUPS / "cgroup.subtree_control").write_text("+io +cpu\n")
    hung_task = Path("/proc/sys/kernel/hung_task_timeout_secs")
    if hung_task.exists():
        hung_task.write_text(f"{HUNG_TASK_S}\n")
    for name in SCHEDULERS:
        devices.modprobe(name)
    if modules:
        devices.modprobe("configfs")  # the virtual SSD is made there
        for name in MODULES:
            proc.output(["insmod", modules / name], what=f"loading {name}", limit_s=INSMOD_S)


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


def kernel_log() -> list[str]:
    return proc.output(["dmesg"], what="reading the kernel's log", limit_s=30).splitlines()


def scenarios(shared: Path) -> int:
    """Run each of SHARED/jobs.json; leaves results.json in the job's folder, or tells the host what is wrong."""
    jobs = json.loads((shared / JOBS).read_text())
    known: dict[str, knobs.Need] = {}
    for number, job in enumerate(jobs):
        what, out = from_dict(job["scenario"]), Path(job["out"])

        def progress(now: Progress, name: str = what.name, number: int = number) -> None:
            step = f"{name}: {now.step}" if len(jobs) > 1 else now.step
            tell({"step": step, "fraction": (number + now.fraction) / len(jobs)})

        try:
            with devices.setup(what.profile) as device:
                if not number:
                    warm_up(device)
                renew = partial(devices.renew, what.profile)
                scale = what.profile.params.get("time_scale", 1)
                found = host.run(what, device, job["knobs"], out, progress, renew=renew, time_scale=scale, known=known)
                found.save(out / RESULTS)
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
            with devices.setup(profile) as device:
                warm_up(device)
                host.run_units(
                    list(group),
                    device,
                    store,
                    lambda unit: tell({"unit": unit.id}),
                    renew=partial(devices.renew, profile),
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


def tell(message: dict[str, Any]) -> None:
    print(MARK + json.dumps(message), flush=True)


def main(argv: list[str]) -> int:
    match argv:
        case ["wrap", shared, modules, *command] if command:
            return wrap(Path(shared), Path(modules) if modules else None, command)
        case ["scenarios", shared]:
            return scenarios(Path(shared))
        case ["units", shared, accelerator]:
            return units(Path(shared), accelerator)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
