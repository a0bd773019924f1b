# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Boots a kernel under QEMU on a copy-on-write view of this machine and runs something inside it.

The guest sees this machine's file system (changes to it are lost at the end), so the project, its Python and fio are
simply there; one folder is shared for writing. The guest's own half is guest.py. A VM never outlives this process's
interest in it: every wait has a limit, and whatever way we leave, QEMU's process group is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from fairlane import proc
from fairlane.errors import FairlaneError
from fairlane.vm import dmesg, kernels, supported, tsc
from fairlane.vm.guest import COMMAND, MARK, STATUS, UP
from fairlane.vm.kernels import Kernel

KERNEL = supported.own()
CPUS = 2
MEMORY = "2G"
BOOT_S = 90.0  # until the guest's half says that it is there; 10 s are usual under TCG on an idle machine
BOOTS = 2  # under TCG a boot once in a few hundred hangs before the kernel has started its second CPU
PATIENCE = 4  # times as long the next boot may take: perhaps the machine was only busy
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


class _Console:
    """What has been heard of a VM so far, and until when the next thing has to happen."""

    def __init__(self, timeout_s: float, pause_s: float, boot_s: float, silent_s: float) -> None:
        self.timeout_s = timeout_s
        self.pause_s = pause_s
        self.lines: deque[str] = deque(maxlen=500)
        self.up = False
        self._end = float("inf")
        self._booting_until = time.monotonic() + boot_s
        self._until = time.monotonic() + silent_s

    def listen(self, process: subprocess.Popen[bytes]) -> Iterator[str]:
        """What the program in the VM says, to its end."""
        for text, from_console in proc.each_line(process, lambda: self._until):
            if not self.up:
                self._until = self._booting_until
            if begins := not from_console and text == UP:
                self.up = True
                self._end = time.monotonic() + self.timeout_s
            if self.up and not from_console:  # a kernel may complain for as long as a program hangs
                self._until = min(self._end, time.monotonic() + self.pause_s)
            if begins:
                continue
            self.lines.append(text)
            if not from_console:
                yield text

    def overdue(self) -> str:
        """What did not happen in time."""
        if not self.up:
            return "did not boot in time"
        return f"said nothing for {self.pause_s:.0f} s" if self._until < self._end else "was not done in time"


Talk = Generator[str, None, Finished]


class Messages:
    """What a program in a VM tells (guest.py's tell()), as long as it runs; then `finished` is how it ended."""

    finished: Finished

    def __init__(self, said: Talk) -> None:
        self.said = said

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for line in self._lines():
            if line.startswith(MARK):
                yield json.loads(line.removeprefix(MARK))

    def _lines(self) -> Iterator[str]:
        self.finished = yield from self.said

    def check(self) -> None:
        """Raises a FairlaneError if the program failed; at its end."""
        if self.finished.status:
            last = proc.tail(self.finished.console, CONSOLE_LINES)
            raise FairlaneError(f"the run in the VM failed (exit status {self.finished.status}){last}")


def run(
    argv: Sequence[str], kernel: Kernel, shared: Path, *, on_line: OnLine = lambda _line: None, **how: Any
) -> Finished:
    """What talk() does, with each line handed to on_line."""
    said = talk(argv, kernel, shared, **how)
    while True:
        try:
            on_line(next(said))
        except StopIteration as end:
            return cast(Finished, end.value)


def talk(
    argv: Sequence[str],
    kernel: Kernel,
    shared: Path,
    *,
    timeout_s: float,
    pause_s: float | None = None,
    qemu_opts: Sequence[str] = (),
    accelerator: str | None = None,
    boot_s: float | None = None,
    boots: int = BOOTS,
    cpus: int = CPUS,
    modules: Path | None = None,
    pass_fds: Sequence[int] = (),
    program: Path | None = None,
) -> Talk:
    """Boot the kernel and run argv in it as root, with `shared` writable at the same path as here.

    Each line that argv prints on stdout is yielded as it comes. Our modules in `modules` are loaded first.
    A boot may take boot_s (default: BOOT_S, longer where the kernel checks itself), the next one longer, and `boots`
    are tried, also when the kernel dies in one; timeout_s counts from then on, and argv may print nothing for pause_s
    (default: timeout_s). Raises VmError when there is no end to report; leaves dmesg.txt in `shared`. `program` is
    another QEMU than the one that is installed.
    """
    shared = shared.resolve()
    if re.search(r"[\s,=]", str(shared)):
        raise FairlaneError(f"{shared}: a folder that a VM shares may hold no space, comma or equals sign in its path")
    (shared / STATUS).unlink(missing_ok=True)
    if boot_s is None:
        boot_s = BOOT_S * (kernels.SLOWER if kernels.checks(kernel.release) else 1)
    guest = [sys.executable, "-m", "fairlane.vm.guest", "wrap", str(shared), str(modules or "")]
    (shared / COMMAND).write_text(json.dumps(argv))
    command = _command(guest, kernel, shared, accelerator or accel(kernel), cpus, qemu_opts)
    if program:
        command[1:1] = ["--qemu-bin", str(program)]
    # Should we be killed outright, `timeout` still ends QEMU.
    longest_s = boot_s * PATIENCE ** (boots - 1)
    command = ["timeout", "--kill-after=5", f"{longest_s + timeout_s + 30:.0f}", *command]
    for left in reversed(range(boots)):
        limit_s = longest_s / PATIENCE**left
        console = _Console(timeout_s, pause_s or timeout_s, limit_s, SILENT_S if accelerator == "kvm" else limit_s)
        try:
            with proc.group(command, env=_env(), pass_fds=pass_fds) as process:
                yield from console.listen(process)
                ended = process.returncode
            # Emulation now and then breaks a kernel that patches itself as it boots: guest.mount_cgroups().
            if console.up or not left or not dmesg.bad(console.lines):
                break
        except proc.TimedOut:
            if console.up or not left:
                raise _died(kernel, console, console.overdue()) from None
        except FileNotFoundError as error:
            raise FairlaneError(f"{command[0]} is not installed; run `make setup`") from error
    try:
        status = json.loads((shared / STATUS).read_text())
    except (OSError, ValueError):
        how = "died half way" if console.up else "did not boot"
        raise _died(kernel, console, f"{how} (exit status {ended})") from None
    (shared / STATUS).unlink()
    return Finished(status["status"], status["bad_dmesg"], list(console.lines))


def _died(kernel: Kernel, console: _Console, how: str) -> VmError:
    reasons = "".join(f"\n    {line}" for line in dmesg.bad(console.lines)[:3])
    why = f"; its kernel said:{reasons}\n" if reasons else ""
    return VmError(f"the VM with kernel {kernel.release} {how}{why}{proc.tail(list(console.lines), CONSOLE_LINES)}")


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
        command.append("--disable-kvm")
        emulator, words = under_tcg()
        qemu_opts, kernel_args = [*qemu_opts, *emulator], [*kernel_args, *words]
    if kernels.checks(kernel.release):
        # A busy machine may give a CPU of the guest's nothing for longer than the usual 20 s. 120 s is the most.
        kernel_args.append("watchdog_thresh=60")
    command += [f"--kopt={arg}" for arg in kernel_args]
    return [*command, *(["--qemu-opts", *qemu_opts] if qemu_opts else [])]


def under_tcg() -> tuple[list[str], list[str]]:
    """What QEMU, and the kernel's command line, need where the CPU is emulated."""
    # QEMU 7.2 computes the flags of cmpxchg16b, which Linux's allocator uses, from stale state: an interrupt then
    # saves an operand's bits as flags, and the return from it is a double fault. Without it Linux does as well.
    options = ["-cpu", "max,-cx16"] if platform.machine() == "x86_64" else []
    # Left alone, the kernel distrusts TCG's TSC and reads the HPET, at half as much again per I/O. TCG derives the
    # TSC of all CPUs from one clock, so it can be trusted. KVM has a clock of its own, which Linux prefers.
    words = ["tsc=reliable", "clocksource=tsc"]
    # It is this machine's. Linux would measure it against a timer that on a busy machine is late: its clock then
    # ran five times too fast.
    if khz := tsc.khz():
        words.append(f"tsc_early_khz={khz}")
    return options, words


def _env() -> dict[str, str]:
    """Ours, with this Python's folder (virtme-run) and the system's tools on the path."""
    here = Path(sys.executable).parent
    return {**os.environ, "PATH": f"{here}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}


@contextlib.contextmanager
def nvme_drive(
    size: int, max_ioqpairs: int, iops: int = 0, serial: str = "fairlane"
) -> Iterator[tuple[list[str], list[int]]]:
    """QEMU's options for an NVMe device on a sparse file, and the descriptors that they name.

    The device does at most that many I/Os per second; 0: as many as it can. The file has no name, so that nothing of it
    is left however we end.
    """
    with tempfile.TemporaryFile(dir=kernels.cache_dir()) as file:
        file.truncate(size)
        drive = f"file=/dev/fd/{file.fileno()},if=none,id=fairlane,format=raw,cache=unsafe,discard=unmap"
        if iops:
            drive += f",throttling.iops-total={iops}"
        device = f"nvme,serial={serial},drive=fairlane,max_ioqpairs={max_ioqpairs}"
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
