# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The vm backend: boots a kernel under QEMU and runs the host backend inside it.

Jobs go in as a file, and each comes back as one when it is finished: both in the folder that the VM shares.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from fairlane import proc
from fairlane.backends import attached, guest
from fairlane.backends.host import check_traces
from fairlane.backends.job import Backend, Completing, Finished, Job, Pace, Tell, from_json, ignore, to_json
from fairlane.backends.measuring import left_s
from fairlane.errors import FairlaneError
from fairlane.experiment.model import Profile, Scenario
from fairlane.experiment.profiles import load_modelled, load_profile
from fairlane.experiment.results import OTHERS, Results, Run
from fairlane.linux import knobs
from fairlane.progress import Progress
from fairlane.vm import kernels, lab_kernel, others, qemu
from fairlane.vm.guest import DMESG
from fairlane.vm.kernels import Kernel

BOOT_S = 20.0
OVERHEAD_S = 2.2  # of a job: cgroups, starting fio, collecting
RENEW_S = 10.0  # to make a drive anew that a job has written to
# The suite's drive, where --on names no other: the P4500 of profiles/. For overhead as fast as it is, so that the CPU
# is what is short; for the rest so much slower that an emulated CPU does not count: two of them have 0.1 to 0.2 ms for
# a request, so no drive may do more than 5,000 a second.
PROFILE, SLOW = "p4500", 100
SLOWER = {"980pro": 200, "zssd": 155, "optane": 115}
PARAMS = {"size": 8 << 30, "memory": 1 << 30}
# While it is calibrated: so slow that an emulated CPU keeps up with it on a machine that does other things, too; and
# for 80 ms of the drive's own time, in less of which its bursts of programs look like a speed that changes.
CALIBRATED_SLOW = 200
IMAGE = "kernel_image"  # in a result's device: a digest


class Vm(Backend):
    """A kernel of ours in a VM, on drives that are made there."""

    name = "vm"
    usage = "vm"
    options = ("kernel",)
    placed = False
    knobs = tuple(knobs.TABLE)
    # A burst of 0.2 s would be 2 ms of the slowed-down drive's own time: less than what is in it takes.
    pace = Pace(quick=(2.0, 0.8), full=(30.0, 5.0), calibration=(16.0, 4.0), map=(6.0, 2.0), bursts=(1.0, 3.0))
    # Slow enough to be the bottleneck even when the CPU is emulated.
    replayed_on = 'profile = "p4500"\ntime_scale = 30\nsize = "8GiB"\nmemory = "1GiB"'

    @property
    def kernel(self) -> str:
        return self.asked.kernel or qemu.KERNEL

    def for_knobs(self, names: Sequence[str]) -> Vm:
        return Vm(self.place, replace(self.asked, kernel=self.asked.kernel or kernel_for(names)))

    @property
    def cores(self) -> int:
        return qemu.CPUS

    def drives(self) -> tuple[Profile, Profile]:
        profile = load_profile(self.place or PROFILE)
        fast = replace(profile, params={**profile.params, **PARAMS})
        return fast, replace(fast, params={**fast.params, "time_scale": SLOWER.get(profile.name, SLOW)})

    def check_place(self) -> None:
        """The suite's drive is a modelled SSD."""
        if self.place:
            load_modelled(self.place)

    def calibrated(self, profile: Profile) -> Profile:
        return replace(profile, params={**profile.params, "time_scale": CALIBRATED_SLOW})

    def check(self, _path: Path, scenario: Scenario, _knobs: Sequence[str]) -> None:
        check_traces(scenario)

    def identity(self, tell: Tell, out: Path) -> dict[str, Any]:
        boot = ready(self.kernel, out, tell)
        return {"kernel": boot.kernel.release, IMAGE: boot.image, "accel": boot.accelerator}

    def job_s(self, job: Job) -> float:
        return job.seconds + OVERHEAD_S + (RENEW_S if job.scenario.writes else 0.0)

    def estimate_s(self, jobs: Sequence[Job], done: Mapping[str, Run]) -> float:
        boots = sum(1 for _ in groupby(jobs, key=attached.of))
        return sum(map(self.job_s, jobs)) + left_s(jobs, done) + boots * BOOT_S

    def run(self, jobs: Sequence[Job], tell: Tell = ignore, done: Mapping[str, Run] = {}) -> Completing:
        """All in one boot, except that a drive from outside takes one. The first job that fails ends it.

        The folders of the jobs are in one that the VM shares.
        """
        boot = ready(self.kernel, Path(os.path.commonpath([job.out.absolute() for job in jobs])), tell)
        known, told = dict(done), set[str]()
        for _drive, group in groupby(jobs, key=attached.of):
            for finished in converse(list(group), known, boot, tell):
                results, profile = finished.results, finished.job.scenario.profile
                results.backend, results.accel = self.name, boot.accelerator
                results.device |= {"profile": profile.name, "description": profile.description, **profile.params}
                results.device[IMAGE] = boot.image
                if profile.device:
                    results.device["device"] = profile.device
                known.update((finished.job.id, run) for run in results.runs)
                told |= {line for run in results.runs for line in run.bad_dmesg}
                yield finished
            # What it says when nothing runs any more, of no job. The next boot's log takes the place of this one's.
            if late := [line for line in boot.complaints if line not in told]:
                raise FairlaneError(
                    f"the VM's kernel complained, so its figures prove nothing; {boot.shared / DMESG} has all"
                    f"{proc.tail(late)}"
                )


def kernel_for(names: Sequence[str]) -> str:
    """The kernel that has all of these knobs, as --kernel has it."""
    return lab_kernel.LAB.name if any(knobs.TABLE[name].lab for name in names) else qemu.KERNEL


@dataclass(frozen=True)
class Boot:
    """A kernel that is ready to be booted."""

    kernel: Kernel
    modules: Path
    accelerator: str
    shared: Path
    complaints: list[str]  # of the kernels that were
    image: str = ""  # a digest of the kernel's: one that is built again has the same release


def ready(kernel_version: str, shared: Path, tell: Tell) -> Boot:
    """Have the kernel and our modules, and know how to run it."""

    def say(text: str) -> None:
        tell(Progress(text, 0.0))

    kernel = lab_kernel.find(kernel_version, say)
    modules = kernels.build_modules(kernel, say)
    if qemu.known_accel() is None:
        say("trying whether KVM works here")
    return Boot(kernel, modules, qemu.accel(kernel), shared.resolve(), [], kernel.digest)


def converse(jobs: Sequence[Job], done: Mapping[str, Run], boot: Boot, tell: Tell) -> Iterator[Finished]:
    """Boot, and have the guest's half do the jobs, which leaves a file of each as it is finished."""
    for job in jobs:
        job.out.mkdir(parents=True, exist_ok=True)
    jobs = [replace(job, out=job.out.resolve()) for job in jobs]
    names = {name for job in jobs for name in (job.needs.most, job.needs.alone) if name}
    known = {
        name: {**asdict(run), "tenants": [{**asdict(tenant), "series": None} for tenant in run.tenants]}
        for name, run in done.items()
        if name in names or name.startswith("measured-")
    }
    file = boot.shared / guest.JOBS
    with contextlib.ExitStack() as stack:
        drive = stack.enter_context(attached.attached(jobs, boot.kernel, lambda text: tell(Progress(text, 0.0))))
        asked = {"jobs": [to_json(job) for job in jobs], "done": known, "driver": drive.driver and str(drive.driver)}
        stack.callback(file.unlink, missing_ok=True)
        file.write_text(json.dumps(asked))
        tell(Progress(f"booting {boot.kernel.release} under {boot.accelerator.upper()}", 0.0))
        said = qemu.talk(
            [sys.executable, "-m", "fairlane.backends.guest", str(boot.shared)],
            boot.kernel,
            boot.shared,
            timeout_s=time_limit(jobs, done),
            pause_s=max(time_limit([job], done) for job in jobs),  # it speaks several times in each
            qemu_opts=drive.qemu_opts,
            pass_fds=drive.fds,
            program=drive.program,
            accelerator=boot.accelerator,
            cpus=max(qemu.CPUS, *(1 + core for job in jobs for t in job.scenario.tenants for core in t.cores), 0),
            modules=boot.modules,
        )
        yield from _heard(stack.enter_context(contextlib.closing(said)), boot, tell)


def _heard(said: qemu.Talk, boot: Boot, tell: Tell) -> Iterator[Finished]:
    """What the guest says, as long as it does."""
    errors: list[str] = []
    others_cpus = others.watch()
    messages = qemu.Messages(said)
    for message in messages:
        if "error" in message:
            errors.append(message["error"])
        elif "finished" in message:
            file = boot.shared / message["finished"]
            data = json.loads(file.read_text())
            file.unlink()
            results = Results.from_dict(data["results"])
            cpus = others_cpus()
            for run in results.runs:
                run.counters[OTHERS] = cpus
            yield Finished(from_json(data["job"]), results)
        else:
            tell(Progress(message["step"], message["fraction"]))
    boot.complaints.extend(messages.finished.bad_dmesg)
    if errors:
        raise FairlaneError(errors[0])
    messages.check()


def time_limit(jobs: Sequence[Job], done: Mapping[str, Run]) -> float:
    """Seconds that jobs may take in a VM, with plenty to spare: what is not done by then hangs."""
    return 300 + 3 * (sum(job.seconds + 10 for job in jobs) + left_s(jobs, done))
