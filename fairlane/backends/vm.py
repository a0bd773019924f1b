# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The vm backend: boots a kernel under QEMU and runs the host backend inside it."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from fairlane import proc
from fairlane.backends.guest import JOBS, RESULTS, UNITS
from fairlane.errors import FairlaneError
from fairlane.experiment.model import Scenario, to_dict
from fairlane.experiment.results import Results
from fairlane.isolbench.suite import Unit, to_json
from fairlane.linux import knobs
from fairlane.progress import Progress
from fairlane.vm import kernels, lab_kernel
from fairlane.vm.guest import DMESG, MARK
from fairlane.vm.kernels import Kernel
from fairlane.vm.qemu import CONSOLE_LINES, CPUS, KERNEL, Finished, accel, known_accel, nvme_drive, run


@dataclass(frozen=True)
class Job:
    """A scenario, the knobs to run it with, and the folder that everything it leaves goes to."""

    scenario: Scenario
    knobs: list[str]
    out: Path


def run_scenarios(
    jobs: Sequence[Job],
    shared: Path,
    progress: Callable[[Progress], None],
    kernel_version: str = KERNEL,
) -> list[Results]:
    """Run the jobs one after the other in a VM, as the host backend does it there; their folders are `shared` or in it.

    All in one boot, except that a QEMU device of its own takes one. The first job that fails ends it.
    """

    boot = ready(kernel_version, shared, progress)
    found: list[Results] = []
    for _device, group in groupby(jobs, key=_qemu_device):
        found += _run_group(list(group), boot)
    return found


def kernel_for(names: Sequence[str]) -> str:
    """The kernel that has all of these knobs, as --kernel has it."""
    return lab_kernel.NAME if any(knobs.TABLE[name].lab for name in names) else KERNEL


def ready(kernel_version: str, shared: Path, progress: Callable[[Progress], None]) -> Boot:
    """Have the kernel and our modules, and know how to run it."""

    def say(text: str) -> None:
        progress(Progress(text, 0.0))

    kernel = lab_kernel.ensure(say) if kernel_version == lab_kernel.NAME else kernels.ensure(kernel_version, say)
    modules = kernels.build_modules(kernel, say)
    if known_accel() is None:
        say("trying whether KVM works here")
    return Boot(kernel, modules, accel(kernel), shared.resolve(), progress)


@dataclass(frozen=True)
class Boot:
    kernel: Kernel
    modules: Path
    accelerator: str
    shared: Path
    progress: Callable[[Progress], None]


def _qemu_device(job: Job) -> dict[str, Any] | None:
    profile = job.scenario.profile
    return profile.params if profile.kind == "qemu-nvme" else None


def _listener(tell: Callable[[dict[str, Any]], None], errors: list[str]) -> Callable[[str], None]:
    """For run()'s on_line: what the guest says goes to tell, or to errors."""

    def on_line(line: str) -> None:
        if line.startswith(MARK):
            message = json.loads(line.removeprefix(MARK))
            if "error" in message:
                errors.append(message["error"])
            else:
                tell(message)

    return on_line


def _check_ended(finished: Finished, errors: list[str]) -> None:
    if errors:
        raise FairlaneError(errors[0])
    if finished.status:
        said = proc.tail(finished.console, CONSOLE_LINES)
        raise FairlaneError(f"the run in the VM failed (exit status {finished.status}){said}")


def _run_group(jobs: list[Job], boot: Boot) -> list[Results]:
    boot.shared.mkdir(parents=True, exist_ok=True)
    outs = [job.out.resolve() for job in jobs]
    for out in outs:
        out.mkdir(parents=True, exist_ok=True)
        (out / RESULTS).unlink(missing_ok=True)
    todo = [
        {"scenario": to_dict(job.scenario), "knobs": job.knobs, "out": str(out)}
        for job, out in zip(jobs, outs, strict=True)
    ]
    (boot.shared / JOBS).write_text(json.dumps(todo, indent=1))
    errors: list[str] = []

    def tell(message: dict[str, Any]) -> None:
        boot.progress(Progress(message["step"], message["fraction"]))

    boot.progress(Progress(f"booting {boot.kernel.release} under {boot.accelerator.upper()}", 0.0))
    with contextlib.ExitStack() as stack:
        qemu_opts: list[str] = []
        fds: list[int] = []
        if params := _qemu_device(jobs[0]):
            drive = nvme_drive(params["size"], params["max_ioqpairs"], params["iops"])
            qemu_opts, fds = stack.enter_context(drive)
        finished = run(
            [sys.executable, "-m", "fairlane.backends.guest", "scenarios", str(boot.shared)],
            boot.kernel,
            boot.shared,
            timeout_s=sum(time_limit(job.scenario, job.knobs) for job in jobs),
            qemu_opts=qemu_opts,
            pass_fds=fds,
            on_line=_listener(tell, errors),
            accelerator=boot.accelerator,
            cpus=max(CPUS, *(1 + core for job in jobs for tenant in job.scenario.tenants for core in tenant.cores), 0),
            modules=boot.modules,
        )
    _check_ended(finished, errors)
    found = [Results.load(out / RESULTS) for out in outs]
    for results, out in zip(found, outs, strict=True):
        results.backend, results.accel = "vm", boot.accelerator
        for result in results.runs:
            result.bad_dmesg = result.bad_dmesg or finished.bad_dmesg
        results.save(out / RESULTS)
    if finished.bad_dmesg:
        raise FairlaneError(
            "the VM's kernel complained during the run, so its figures prove nothing; "
            f"{boot.shared / DMESG} has all of it{proc.tail(finished.bad_dmesg)}"
        )
    return found


def run_units(todo: Sequence[Unit], boot: Boot, begun: Callable[[str], None]) -> None:
    """Run them in one boot, as the host backend does it there; what it shares is the suite's run folder.

    begun is told the id of each unit as it begins.
    """
    (boot.shared / UNITS).write_text(json.dumps([to_json(unit) for unit in todo]))
    errors: list[str] = []

    boot.progress(Progress(f"booting {boot.kernel.release} under {boot.accelerator.upper()}", 0.0))
    finished = run(
        [sys.executable, "-m", "fairlane.backends.guest", "units", str(boot.shared), boot.accelerator],
        boot.kernel,
        boot.shared,
        timeout_s=600 + 3 * sum(unit.seconds + 10 for unit in todo),
        on_line=_listener(lambda message: begun(message["unit"]), errors),
        accelerator=boot.accelerator,
        modules=boot.modules,
    )
    (boot.shared / UNITS).unlink(missing_ok=True)
    _check_ended(finished, errors)


def time_limit(scenario: Scenario, knobs: list[str]) -> float:
    """Seconds that a scenario may take in a VM, with plenty to spare: what is not done by then hangs."""
    runs = len(knobs) * scenario.repeats * len(scenario.points)
    return 300 + 3 * runs * (scenario.seconds + scenario.warmup + 10)
