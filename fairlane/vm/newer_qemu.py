# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A QEMU that speaks vfio-user: the installed one from 10.1 on, else that of Debian 13's backports.

The latter is unpacked in the cache folder with all the libraries that it needs, started by its own loader, and never
installed. Once it is there, nothing is fetched again.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from fairlane import proc
from fairlane.errors import FairlaneError
from fairlane.vm import kernels, packages

NAME = "qemu-system-x86_64"
NEEDED = (10, 1)
SUITES = ("trixie", "trixie-security", "trixie-backports")


def ensure(say: packages.Say = kernels.to_stderr) -> Path:
    """The program, which may be run where it is only."""
    if (installed := shutil.which(NAME)) and version(installed) >= NEEDED:
        return Path(installed)
    folder = kernels.cache_dir() / "qemu"
    program = folder / NAME
    if program.exists():
        return program
    folder.parent.mkdir(parents=True, exist_ok=True)
    with kernels.locked(folder.with_name(".lock-qemu"), packages.FETCH_S, say), proc.unwinding_signals():
        if not program.exists():
            with kernels.workshop(folder.parent, ".fetch-qemu-") as temp:
                _fetch(folder, temp, say)
    return program


def version(program: str) -> tuple[int, ...]:
    said = proc.output([program, "--version"], what=f"asking {program} for its version", limit_s=60)
    found = re.search(r"version (\d+)\.(\d+)", said)
    return tuple(int(part) for part in found.groups()) if found else ()


def _fetch(folder: Path, temp: Path, say: packages.Say) -> None:
    apt = packages.own_lists(temp / "apt", SUITES, say)
    found = packages.with_dependencies(apt, "qemu-system-x86", temp, ("-t", SUITES[-1]))
    debs, root = temp / "debs", temp / "root"
    debs.mkdir()
    packages.download(apt, [f"{name}={version}" for name, version in found], debs, "QEMU", say)
    say("unpacking QEMU")
    for deb in sorted(debs.glob("*.deb")):
        proc.output(["dpkg-deb", "-x", deb, root], what=f"unpacking {deb.name}", limit_s=kernels.UNPACK_S)
    for path in (root / "usr/share").iterdir():
        if path.name not in ("qemu", "seabios"):
            shutil.rmtree(path)
    loader = next((path for path in sorted(root.rglob("ld-linux*.so.*")) if path.is_file()), None)
    if not loader or not (root / "usr/bin" / NAME).exists():
        raise FairlaneError(f"Debian's package qemu-system-x86 of {SUITES[-1]} holds no {NAME} that can be started")
    libraries = ":".join(str(folder / part) for part in kernels.library_folders(root))
    script = root / NAME
    script.write_text(
        f"#!/bin/sh\nexec {folder / loader.relative_to(root)} --library-path {libraries}"
        f" {folder}/usr/bin/{NAME} -L {folder}/usr/share/qemu -L {folder}/usr/share/seabios"
        ' "$@"\n'
    )
    script.chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)
    root.rename(folder)
