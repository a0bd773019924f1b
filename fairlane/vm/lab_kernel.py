# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The lab kernel: Linux 6.1 built here, from Debian's source, with I/O controls that Debian's own kernels leave out.

kernel/lab.config says what is in it, and nothing else is. It lies beside Debian's kernels in the cache, under a name
made from that file, so that a change of the file makes another kernel. What the cache holds is complete.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from fairlane import places, proc
from fairlane.errors import FairlaneError
from fairlane.vm import kernels
from fairlane.vm.kernels import Kernel, Say

NAME = "lab"
VERSION = "6.1"
CONFIG = places.ROOT / "kernel" / "lab.config"
CC = "gcc-12"  # what Debian builds its kernels with; our modules must be built with the same
TOOLS = {"flex": "flex", "bison": "bison", "bc": "bc", "make": "make", CC: CC, "xz": "xz-utils"}
STEPS = 1090  # files that make says it compiled; only progress depends on it
COMPILE_S, STEP_S = 3600.0, 600.0
GIB = 3  # of disk space while it is built; 150 MiB stay


def cached() -> Kernel | None:
    """The lab kernel of today's kernel/lab.config, if it was built."""
    root = _folder() / _digest()
    found = sorted((root / "boot").glob("vmlinuz-*"))
    return Kernel(found[-1].name.removeprefix("vmlinuz-"), root) if found else None


def ensure(say: Say = kernels.to_stderr, deb: Path | None = None) -> Kernel:
    """The lab kernel, built if it is not there; deb: a linux-source-6.1 package that is here already."""
    if kernel := cached():
        return kernel
    _check_tools()
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    with kernels.locked(folder / ".lock", COMPILE_S, say), proc.unwinding_signals():
        if kernel := cached():
            return kernel
        free = shutil.disk_usage(folder).free / (1 << 30)
        if free < GIB:
            raise FairlaneError(
                f"{folder}: {free:.1f} GiB free, and building the lab kernel takes {GIB}; free some, or set"
                " FAIRLANE_CACHE to a folder with room"
            )
        with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as temp:
            _build(Path(temp), deb, say).rename(folder / _digest())
    kernel = cached()
    assert kernel
    return kernel


def _folder() -> Path:
    return kernels.cache_dir() / NAME


def _digest() -> str:
    return hashlib.sha256(CONFIG.read_bytes()).hexdigest()[:12]


def _check_tools() -> None:
    missing = sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})
    if not (Path("/usr/include/libelf.h").exists() and Path("/usr/include/gelf.h").exists()):
        missing.append("libelf-dev")
    if missing:
        raise FairlaneError(f"building the lab kernel needs more tools; run `apt-get install {' '.join(missing)}`")


def fraction(said: str) -> float:
    """How far the build is when it says that, 0..1."""
    percent = re.search(r"(\d+) %$", said)
    return 0.2 + 0.7 * int(percent[1]) / 100 if percent else 0.9 if said.startswith(("installing", "building")) else 0.1


# --- Building ---


def _build(temp: Path, deb: Path | None, say: Say) -> Path:
    """Returns the folder of the finished kernel, which is to be moved into its place."""
    source = _unpack(deb or kernels.fetch_source(VERSION, temp, say), temp, say)
    say("configuring the lab kernel")
    _make(source, "allnoconfig", f"KCONFIG_ALLCONFIG={CONFIG}", what="configuring the lab kernel")
    if lost := lost_options(CONFIG.read_text(), (source / ".config").read_text()):
        raise FairlaneError(f"{CONFIG}: Linux {VERSION} does not take {', '.join(lost)}; correct the file")
    _compile(source, say)
    release = _make(source, "-s", "kernelrelease", what="asking for the kernel's release").split()[-1]
    root = temp / "root"
    (root / "boot").mkdir(parents=True)
    shutil.copy(source / "arch/x86/boot/bzImage", root / "boot" / f"vmlinuz-{release}")
    shutil.copy(source / ".config", root / "boot" / f"config-{release}")
    say("installing the lab kernel's modules and headers")
    _make(source, "modules_install", f"INSTALL_MOD_PATH={root}", what="installing the lab kernel's modules")
    for link in ("build", "source"):
        (root / "lib/modules" / release / link).unlink(missing_ok=True)
    kernel = Kernel(release, root)
    copy(source, kernel.headers, headers(source))
    kernel.block_src.mkdir()
    for header in (source / "block").glob("*.h"):
        shutil.copy(header, kernel.block_src)
    return root


def _unpack(deb: Path, temp: Path, say: Say) -> Path:
    say(f"unpacking {deb.name.split('_')[0]}")
    with proc.group(["dpkg-deb", "--fsys-tarfile", deb]) as process:
        assert process.stdout
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as package:
                inner = next(member for member in package if member.name.endswith(".tar.xz"))
                tarball = package.extractfile(inner)
                assert tarball
                with (temp / "source.tar.xz").open("wb") as file:
                    shutil.copyfileobj(tarball, file)
        except (StopIteration, tarfile.TarError, EOFError) as error:
            raise FairlaneError(f"{deb.name}: holds no kernel source that can be read ({error})") from error
    source = temp / "source"
    source.mkdir()
    argv: list[str | Path] = ["tar", "-xJf", temp / "source.tar.xz", "-C", source, "--strip-components=1"]
    proc.output(argv, what=f"unpacking {deb.name}", limit_s=STEP_S)
    (temp / "source.tar.xz").unlink()
    return source


def lost_options(wanted: str, got: str) -> list[str]:
    """The lines CONFIG_X=y of one configuration that the other has not."""
    lines = set(got.splitlines())
    return [line for line in wanted.splitlines() if line.startswith("CONFIG_") and line not in lines]


def _env() -> dict[str, str]:
    """Ours, without what another make told us; depmod is in a folder that only root has on the path."""
    env = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    return {**env, "PATH": f"{env.get('PATH', '')}:/usr/sbin:/sbin", "KBUILD_BUILD_USER": "fairlane"}


def _make(source: Path, *args: str, what: str) -> str:
    return proc.output(["make", "-C", source, f"CC={CC}", *args], what=what, limit_s=STEP_S, env=_env())


def _compile(source: Path, say: Say) -> None:
    jobs = os.cpu_count() or 1
    argv: list[str | Path] = ["make", "-C", source, f"-j{jobs}", f"CC={CC}", "bzImage", "modules"]
    said: list[str] = []
    count, shown = 0, -1

    def line(text: str, _err: bool) -> None:
        nonlocal count, shown
        said.append(text)
        count += bool(re.match(r" +(CC|AS|AR|LD|HOSTCC)\b", text))
        percent = min(99, 100 * count // STEPS)
        if percent // 5 > shown:
            shown = percent // 5
            say(f"compiling the lab kernel with {jobs} jobs: {percent} %")

    end = time.monotonic() + COMPILE_S
    try:
        with proc.group(argv, env=_env(), merge=True) as process:
            status = proc.lines(process, line, lambda: end)
    except proc.TimedOut:
        raise FairlaneError(f"compiling the lab kernel: not done within {COMPILE_S:.0f} s") from None
    if status:
        wrong = [text for text in said if "rror" in text] or said
        raise FairlaneError(f"compiling the lab kernel: make failed (exit status {status}){proc.tail(wrong)}")


# --- What a module is built against ---


def headers(source: Path) -> list[Path]:
    """The files of a built source tree that building a module takes; as Linux' own packages of headers have them."""

    def files(folder: Path, wanted: Callable[[Path], bool]) -> Iterable[Path]:
        return (path for path in folder.rglob("*") if (path.is_file() or path.is_symlink()) and wanted(path))

    arch = source / "arch" / "x86"
    found = {*source.glob("Makefile*"), *arch.glob("Makefile*"), source / ".config", source / "Module.symvers"}
    for folder in ("include", "scripts"):
        found.update(files(source / folder, lambda path: path.suffix not in (".o", ".cmd")))
    found.update(files(arch, lambda path: "include" in path.parts[len(source.parts) :] and path.suffix != ".cmd"))
    found.update(path for name in ("Kbuild.platforms", "Platform") for path in arch.rglob(name))
    if (objtool := source / "tools" / "objtool" / "objtool").exists():
        found.add(objtool)
    return sorted(found)


def copy(source: Path, into: Path, found: Iterable[Path]) -> None:
    for path in found:
        target = into / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target, follow_symlinks=False)
