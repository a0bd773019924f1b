# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The guest's wrapper around a program; qemu.py starts it as root in a freshly booted VM.

`wrap SHARED MODULES` prepares the machine, runs the command that SHARED names, and leaves its exit status and the
kernel's log there. (A kernel's own command line has room for 2,047 characters, and cuts off what is more.)
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fairlane import proc
from fairlane.errors import FairlaneError
from fairlane.vm import dmesg
from fairlane.vm.kernels import MODULES, SLOWER, checks

MARK = "@fairlane "  # starts a line, with JSON after it, by which the guest talks to the host
UP = MARK + "up"
COMMAND = ".vm-command.json"  # what wrap finds in the shared folder
STATUS, DMESG = ".vm-status.json", "dmesg.txt"  # and what it leaves there

SCHEDULERS = ("bfq", "kyber-iosched")  # modules in Debian's kernels; mq-deadline is built in
HUNG_TASK_S = 30  # Linux would say so of a stuck task after 120 s, when a short test is long over
INSMOD_S = 60.0
UDEV_S = 120.0
YOUNG_S = 6.0  # kmemleak does not report what is younger than 5 s

CGROUPS = Path("/sys/fs/cgroup")
UDEV = Path("/run/udev/control")  # there while it runs
UDEVD = (Path("/usr/lib/systemd/systemd-udevd"), Path("/lib/systemd/systemd-udevd"))
UDEV_COMES_S = 20.0
VIRTIO_PORTS = Path("/sys/class/virtio-ports")
KMEMLEAK = Path("/sys/kernel/debug/kmemleak")
KCSAN = Path("/sys/kernel/debug/kcsan")
# It watches one of so many accesses of a CPU's for so long, us. An emulated CPU does little in the usual 80 us, and may
# not even run: on a busy machine nothing was found with that. So seldom, and ten times as long.
KCSAN_PARAMETERS = {"skip_watch": 8000, "udelay_task": 800, "udelay_interrupt": 150}
LOCKDEP = Path("/proc/lockdep_stats")


def wrap(shared: Path, modules: Path | None, command: list[str]) -> int:
    use_ports()
    mount_cgroups()
    print(UP, flush=True)
    status = 2
    try:
        stop_udev()
        prepare(modules)
        status = subprocess.run(command, check=False, env={**os.environ, "FAIRLANE_SHARED": str(shared)}).returncode
    except (FairlaneError, OSError) as error:
        tell({"error": str(error)})
    log = [*kernel_log(), *blind(), *leaks()]
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


def stop_udev() -> None:
    """Where the host has udev, virtme-run's init starts it, and what a guest does would depend on that.

    It reads each drive that is new; and when a writer has closed one, it has Linux ask that drive for its properties
    again. So a drive is in use, or is found to have lost some of them, when nobody expects it.

    It is started beside us: where a boot takes minutes, it may come later.
    """
    end = time.monotonic() + UDEV_COMES_S
    while any(path.exists() for path in UDEVD) and not UDEV.exists() and time.monotonic() < end:
        time.sleep(0.1)
    if UDEV.exists():
        proc.output(["udevadm", "control", "--exit"], what="stopping udev", limit_s=UDEV_S)
        UDEV.unlink(missing_ok=True)  # left there, it says that udev runs
    os.environ["DM_DISABLE_UDEV"] = "1"  # dmsetup makes nodes in /dev/mapper itself


def mount_cgroups() -> None:
    """Mount cgroups with their I/O controller, after a first cgroup with memory's.

    At that one the kernel patches kmalloc() as it runs. QEMU 7.2 may keep what it translated of the breakpoint that
    Linux puts there meanwhile, and the kernel dies of an int3 that nobody expects; a boot that does so is tried again.
    """
    if not (CGROUPS / "cgroup.controllers").exists():
        proc.output(["mount", "-t", "cgroup2", "none", CGROUPS], what="mounting cgroups", limit_s=10)
    (CGROUPS / "cgroup.subtree_control").write_text("+io +cpu +memory\n")
    first = CGROUPS / "first"
    first.mkdir()
    first.rmdir()
    (CGROUPS / "cgroup.subtree_control").write_text("-memory\n")


def prepare(modules: Path | None) -> None:
    """Every scheduler loaded, and a kernel that soon says when a task is stuck."""
    hung_task = Path("/proc/sys/kernel/hung_task_timeout_secs")
    if hung_task.exists():
        hung_task.write_text(f"{HUNG_TASK_S * (SLOWER if checks(os.uname().release) else 1)}\n")
    if KCSAN.exists():  # it is off until then, so that the boot is quick
        for name, value in KCSAN_PARAMETERS.items():
            Path("/sys/module/kcsan/parameters", name).write_text(str(value))
        KCSAN.write_text("on")
    for name in SCHEDULERS:
        proc.modprobe(name)
    if modules:
        proc.modprobe("configfs")  # the virtual SSD is made there
        for name in MODULES:
            proc.output(["insmod", modules / name], what=f"loading {name}", limit_s=INSMOD_S)


def kernel_log() -> list[str]:
    return proc.output(["dmesg"], what="reading the kernel's log", limit_s=30).splitlines()


def blind() -> list[str]:
    """That a checker which this kernel has did not look, if so: its silence then says nothing."""
    said = []
    if KCSAN.exists() and re.search(r"^(enabled|setup_watchpoints): 0$", KCSAN.read_text(), re.MULTILINE):
        said.append("BUG: KCSAN did not look for races")
    if LOCKDEP.exists() and re.search(r"^ debug_locks: +0$", LOCKDEP.read_text(), re.MULTILINE):
        said.append("BUG: lockdep has stopped looking at locks")
    return said


def leaks() -> list[str]:
    """What kmemleak, where the kernel has it, says of memory to which nothing points any more."""
    if not KMEMLEAK.exists():
        return []
    for _ in range(2):  # an object is reported when its contents were the same at the scan before
        time.sleep(YOUNG_S)
        KMEMLEAK.write_text("scan")
    return KMEMLEAK.read_text().splitlines()


def tell(message: dict[str, Any]) -> None:
    print(MARK + json.dumps(message), flush=True)


def main(argv: list[str]) -> int:
    match argv:
        case ["wrap", shared, modules]:
            command = json.loads((Path(shared) / COMMAND).read_text())
            return wrap(Path(shared), Path(modules) if modules else None, command)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
