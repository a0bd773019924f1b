# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The VM backend: boots a kernel under QEMU on a copy-on-write view of this machine and runs something inside it.

The guest sees this machine's file system (changes to it are lost at the end), so the project, its Python and fio are
simply there; one folder is shared for writing. The guest's own half is guest.py. A VM never outlives this process's
interest in it: every wait has a limit, and whatever way we leave, QEMU's process group is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from fairlane import dmesg, kernels, knobs, labkernel, proc
from fairlane.devices import NVME_SERIAL
from fairlane.errors import FairlaneError
from fairlane.guest import DMESG, JOBS, MARK, RESULTS, STATUS, UNITS, UP
from fairlane.host import Progress
from fairlane.kernels import Kernel
from fairlane.results import Results
from fairlane.scenario import Scenario, to_dict
from fairlane.suite import Unit, to_json

KERNEL = "6.1"
CPUS = 2
MEMORY = "2G"
BOOT_S = 90.0  # until the guest's half says that it is there; 10 s are usual under TCG on an idle machine
BOOTS = 2  # under TCG a boot once in a few hundred hangs before the kernel has started its second CPU
PROBE_S = 20.0
SILENT_S = 8.0  # a KVM that works prints the kernel's first line in a second or two
CONSOLE_LINES = 20
WRITABLE = ("/etc", "/lib", "/home", "/opt", "/srv", "/usr", "/var", "/tmp")

OnLine = Callable[[str], None]


class VmError(FairlaneError):
    """The VM did not boot, died half way, or took too long; the message ends with its console's last lines."""


@dataclass(frozen=True)
class Finished:
    """How a program in a VM ended."""

    status: int
    bad_dmesg: list[str]
    console: list[str]  # the last of what it and the kernel said


class _Watch:
    """What has been seen of a VM so far, and until when the next thing has to happen."""

    def __init__(self, on_line: OnLine, timeout_s: float, boot_s: float, silent_s: float) -> None:
        self.on_line, self.timeout_s = on_line, timeout_s
        self.console: deque[str] = deque(maxlen=500)
        self.up = False
        self._booting_until = time.monotonic() + boot_s
        self._until = time.monotonic() + silent_s

    def deadline(self) -> float:
        return self._until

    def line(self, text: str, from_console: bool) -> None:
        if not self.up:
            self._until = self._booting_until
        if not from_console and text == UP:
            self.up = True
            self._until = time.monotonic() + self.timeout_s
            return
        self.console.append(text)
        if not from_console:
            self.on_line(text)


def run(
    argv: Sequence[str],
    kernel: Kernel,
    shared: Path,
    *,
    timeout_s: float,
    qemu_opts: Sequence[str] = (),
    on_line: OnLine = lambda _line: None,
    accelerator: str | None = None,
    boot_s: float = BOOT_S,
    boots: int = BOOTS,
    cpus: int = CPUS,
    modules: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> Finished:
    """Boot the kernel and run argv in it as root, with `shared` writable at the same path as here.

    Each line that argv prints on stdout goes to on_line as it comes. Our modules in `modules` are loaded first.
    A boot may take boot_s, and is tried `boots` times if it hangs; timeout_s counts from then on. Raises VmError when
    there is no end to report; leaves dmesg.txt in `shared`.
    """
    shared = shared.resolve()
    if re.search(r"[\s,=]", str(shared)):
        raise FairlaneError(f"{shared}: a folder that a VM shares may hold no space, comma or equals sign in its path")
    (shared / STATUS).unlink(missing_ok=True)
    guest = [sys.executable, "-m", "fairlane.guest", "wrap", str(shared), str(modules or ""), *argv]
    command = _command(guest, kernel, shared, accelerator or accel(kernel), cpus, qemu_opts)
    # Should we be killed outright, `timeout` still ends QEMU.
    command = ["timeout", "--kill-after=5", f"{boot_s + timeout_s + 30:.0f}", *command]
    for left in reversed(range(boots)):
        watch = _Watch(on_line, timeout_s, boot_s, SILENT_S if accelerator == "kvm" else boot_s)
        try:
            with proc.group(command, env=_env(), pass_fds=pass_fds) as process:
                proc.lines(process, watch.line, watch.deadline)
            break
        except proc.TimedOut:
            if watch.up or not left:
                raise _died(kernel, watch, "was not done in time" if watch.up else "did not boot in time") from None
        except FileNotFoundError as error:
            raise FairlaneError(f"{command[0]} is not installed; run `make setup`") from error
    try:
        status = json.loads((shared / STATUS).read_text())
    except (OSError, ValueError):
        raise _died(kernel, watch, "died half way" if watch.up else "did not boot") from None
    (shared / STATUS).unlink()
    return Finished(status["status"], status["bad_dmesg"], list(watch.console))


def _died(kernel: Kernel, watch: _Watch, how: str) -> VmError:
    reasons = "".join(f"\n    {line}" for line in dmesg.bad(watch.console)[:3])
    why = f"; its kernel said:{reasons}\n" if reasons else ""
    return VmError(f"the VM with kernel {kernel.release} {how}{why}{proc.tail(list(watch.console), CONSOLE_LINES)}")


def _command(
    guest: Sequence[str], kernel: Kernel, shared: Path, accelerator: str, cpus: int, qemu_opts: Sequence[str]
) -> list[str]:
    # virtme-run is what vng starts, through a shell and with this machine's name and user; we need neither.
    options = {
        "--kimg": kernel.vmlinuz,
        "--mods": "auto",
        "--name": "fairlane",
        "--user": "root",
        "--cpus": cpus,
        "--memory": MEMORY,
        "--cwd": "/",
        "--script-sh": shlex.join(guest),
    }
    command = ["virtme-run", *(str(word) for option in options.items() for word in option)]
    command += [f"--overlay-rwdir={folder}" for folder in WRITABLE if Path(folder).is_dir()]
    command += [f"--rwdir={shared}", "--force-9p", "--disable-microvm", "--show-boot-console"]
    kernel_args = [
        "loglevel=5",
        "log_buf_len=4M",
    ]  # on a serial line the chatter costs seconds; what kills a kernel is shown
    if accelerator == "tcg":
        # Left alone, the kernel distrusts TCG's TSC and reads the HPET, at half as much again per I/O. TCG derives the
        # TSC of all CPUs from one clock, so it can be trusted. KVM has a clock of its own, which Linux prefers.
        command.append("--disable-kvm")
        kernel_args += ["tsc=reliable", "clocksource=tsc"]
    command += [f"--kopt={arg}" for arg in kernel_args]
    return [*command, *(["--qemu-opts", *qemu_opts] if qemu_opts else [])]


def _env() -> dict[str, str]:
    """Ours, with this Python's folder (virtme-run) and the system's tools on the path."""
    here = Path(sys.executable).parent
    return {**os.environ, "PATH": f"{here}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}


@contextlib.contextmanager
def nvme_drive(size: int, max_ioqpairs: int, iops: int = 0) -> Iterator[tuple[list[str], list[int]]]:
    """QEMU's options for an NVMe device on a sparse file, and the descriptors that they name.

    The device does at most that many I/Os per second; 0: as many as it can. The file has no name, so that nothing of it
    is left however we end.
    """
    with tempfile.TemporaryFile(dir=kernels.cache_dir()) as file:
        file.truncate(size)
        drive = f"file=/dev/fd/{file.fileno()},if=none,id=fairlane,format=raw,cache=unsafe,discard=unmap"
        if iops:
            drive += f",throttling.iops-total={iops}"
        device = f"nvme,serial={NVME_SERIAL},drive=fairlane,max_ioqpairs={max_ioqpairs}"
        yield ["-drive", drive, "-device", device], [file.fileno()]


# --- KVM or TCG ---


def accel(kernel: Kernel) -> str:
    """ "kvm" when a VM has been seen to work under it since this machine was started, otherwise "tcg"."""
    verdict = known_accel()
    if verdict is None:
        verdict = _probe(kernel)
        _remember(verdict)
    return verdict


def known_accel() -> str | None:
    """The verdict when there is no need to try, else None."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    with contextlib.suppress(OSError, ValueError, KeyError):
        known = json.loads(_verdict_file().read_text())
        if known["boot_id"] == _boot_id():
            return str(known["accel"])
    return None


def _probe(kernel: Kernel) -> str:
    with tempfile.TemporaryDirectory(prefix="fairlane-probe-") as temp:
        try:
            run(["true"], kernel, Path(temp), timeout_s=PROBE_S, boot_s=PROBE_S, boots=1, accelerator="kvm")
        except VmError:
            return "tcg"
    return "kvm"


def _verdict_file() -> Path:
    return kernels.cache_dir() / "accel.json"


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _remember(verdict: str) -> None:
    path = _verdict_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    temp = path.with_suffix(f".{os.getpid()}")
    temp.write_text(json.dumps({"boot_id": _boot_id(), "accel": verdict}))
    temp.replace(path)


# --- Scenarios ---


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
    return labkernel.NAME if any(knobs.TABLE[name].lab for name in names) else KERNEL


def ready(kernel_version: str, shared: Path, progress: Callable[[Progress], None]) -> Boot:
    """Have the kernel and our modules, and know how to run it."""

    def say(text: str) -> None:
        progress(Progress(text, 0.0))

    kernel = labkernel.ensure(say) if kernel_version == labkernel.NAME else kernels.ensure(kernel_version, say)
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
            [sys.executable, "-m", "fairlane.guest", "scenarios", str(boot.shared)],
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


# --- A suite's units ---


def run_units(todo: Sequence[Unit], boot: Boot, begun: Callable[[str], None]) -> None:
    """Run them in one boot, as the host backend does it there; what it shares is the suite's run folder.

    begun is told the id of each unit as it begins.
    """
    (boot.shared / UNITS).write_text(json.dumps([to_json(unit) for unit in todo]))
    errors: list[str] = []

    boot.progress(Progress(f"booting {boot.kernel.release} under {boot.accelerator.upper()}", 0.0))
    finished = run(
        [sys.executable, "-m", "fairlane.guest", "units", str(boot.shared), boot.accelerator],
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
