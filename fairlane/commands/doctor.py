# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane doctor`: what this machine has of all that fairlane needs, and what to do about the rest."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from fairlane import proc
from fairlane.backends import program
from fairlane.commands.common import print_json
from fairlane.errors import FairlaneError
from fairlane.linux import host_checks
from fairlane.linux.host_checks import Check
from fairlane.pages import terminal
from fairlane.places import INSTALLED
from fairlane.vm import kernels, lab_kernel, qemu, supported

CACHE_GIB = 3  # three kernels take 1.5 GiB, and the packages of one as much again while they are unpacked
COMPILE_S = 30.0
TOOLS = {
    "fio": "fio",
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "modprobe": "kmod",
    "depmod": "kmod",
    "make": "make",
    "gcc": "gcc",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
}


def checks() -> Iterator[Check]:
    """Everything that is looked at, one by one."""
    if not INSTALLED:
        yield from _lab()
    root = os.geteuid() == 0
    todo = "run as root: only root may apply, and use --on host:DEV"
    yield Check("root", root, "yes" if root else "no", todo, needed=False)
    yield from host_checks.checks(platform.release(), supported.VERSIONS)


def _lab() -> Iterator[Check]:
    """What a checkout needs for VMs and the simulator; trying KVM takes some seconds the first time."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check("python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer")
    for tool, package in TOOLS.items():
        where = _find(tool)
        yield Check(tool, where is not None, where or "missing", f"make setup, or: apt-get install {package}")
    where = shutil.which("virtme-run", path=str(Path(sys.executable).parent)) or _find("virtme-run")
    yield Check("virtme-ng", where is not None, where or "missing", "make setup")
    yield _disk()
    found = kernels.cached()
    for wanted in supported.booted():
        releases = [kernel.release for kernel in found if kernel.version == wanted]
        detail = releases[-1] if releases else "not fetched yet; the first run does so"
        yield Check(f"kernel {wanted}", bool(releases), detail, "make modules", needed=False)
    for kernel in found:
        built = all((kernels.modules_dir(kernel) / name).is_file() for name in kernels.MODULES)
        detail = "built" if built else "not built yet; the first run does so"
        yield Check(f"modules {kernel.version}", built, detail, "make modules", needed=False)
    lab = lab_kernel.cached()
    detail = lab.release if lab else "not built; only --kernel lab, and knobs that Debian's kernels lack, need it"
    yield Check("lab kernel", lab is not None, detail, "fairlane kernel build (5 to 10 min)", needed=False)
    checkers = [recipe.name for recipe in lab_kernel.CHECKERS if lab_kernel.cached(recipe)]
    detail = ", ".join(checkers) or "not built; only pytest -m checked needs them"
    yield Check(
        "checking kernels",
        len(checkers) == len(lab_kernel.CHECKERS),
        detail,
        "fairlane kernel build --check (15 min)",
        needed=False,
    )
    yield _kvm(found)
    yield from _simulator()


def _find(tool: str) -> str | None:
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _disk() -> Check:
    path = kernels.cache_dir()
    todo = f"free {CACHE_GIB} GiB there, or set FAIRLANE_CACHE to a folder with room"
    there = next(parent for parent in (path, *path.parents) if parent.is_dir())
    free = shutil.disk_usage(there).free / (1 << 30)
    return Check("disk space", free >= CACHE_GIB or len(kernels.cached()) > 1, f"{free:.1f} GiB for {path}", todo)


def _kvm(found: list[kernels.Kernel]) -> Check:
    todo = "nothing has to be done: VMs run under TCG, slower; ratios within one boot hold if nothing else runs"
    if not Path("/dev/kvm").exists():
        return Check("kvm", False, "no /dev/kvm", todo, needed=False)
    verdict = qemu.known_accel()
    if verdict is None and not found:
        return Check("kvm", False, "not tried yet; that takes a kernel", "make modules", needed=False)
    try:
        verdict = verdict or qemu.accel(found[-1])
    except FairlaneError as error:
        return Check("kvm", False, str(error).splitlines()[0], todo, needed=False)
    detail = "a VM works under it" if verdict == "kvm" else "/dev/kvm is there, but no VM works under it for this user"
    return Check("kvm", verdict == "kvm", detail, todo, needed=False)


def _simulator() -> Iterator[Check]:
    """What `--on sim` needs: make, which is looked at above, a C compiler, and a library."""
    todo = "make setup, or: apt-get install gcc libc6-dev"
    where = _find("cc")
    yield Check("cc", where is not None, where or "missing", todo)
    if where is None:
        return
    try:
        proc.output([where, "-xc", "-fsyntax-only", "-include", "jansson.h", os.devnull], what="", limit_s=COMPILE_S)
        yield Check("libjansson", True, "its header is there")
    except FairlaneError:
        yield Check("libjansson", False, "no jansson.h", "make setup, or: apt-get install libjansson-dev")
    built = program.PROGRAM.is_file()
    detail = str(program.PROGRAM) if built else "not built yet; the first run does so"
    yield Check("simulator", built, detail, "make -C sim", needed=False)


def main(args: argparse.Namespace) -> int:
    found = list(checks())
    if args.json:
        print_json([asdict(line) for line in found])
    else:
        out = terminal.console()
        for line in found:
            word = "ok" if line.ok else "missing" if line.needed else "note"
            out.print(f"{word:8} {line.name:22} {line.detail}{'' if line.ok else f'  ->  {line.todo}'}", markup=False)
    return 2 if any(line.needed and not line.ok for line in found) else 0
