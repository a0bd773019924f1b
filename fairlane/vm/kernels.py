# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Debian's kernels, fetched with Debian's package tools into a cache folder and never installed; our modules for them.

What the cache holds for a release is complete (it is put together elsewhere and moved there as the last step), and
once it holds a release, nothing is fetched for it again. A kernel may be of another Debian than this machine's. If this
machine cannot build modules for it, the compiler and the libraries of that Debian are kept beside it (see _add_tools).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fairlane import proc, schedulers
from fairlane.errors import FairlaneError, offer
from fairlane.places import ROOT
from fairlane.vm import packages, supported
from fairlane.vm.packages import Apt

Say = packages.Say
VERSIONS = supported.VERSIONS
# In the order in which they are loaded.
SCHEDULERS = ("fairlane.ko", *(f"{each.module}.ko" for each in schedulers.SCHEDULERS))
MODULES = ("fairlane-route.ko", *SCHEDULERS, "vssd.ko")
UNPACK_S = 300
NVME_DRIVER = "drivers/nvme/host"
BUILD_S = 1800  # as in lab_kernel.py

CHECKERS = ("kasan", "kcsan")  # what in a release's name says that this kernel checks itself, see lab_kernel.py
SLOWER = 6  # than others such a kernel may be, where there is a limit to a wait


def to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def checks(release: str) -> bool:
    return release.endswith(CHECKERS)


@dataclass(frozen=True)
class Kernel:
    """A kernel in the cache."""

    release: str  # as uname -r has it
    root: Path  # holds boot/ and lib/modules/RELEASE

    @property
    def version(self) -> str:
        return ".".join(self.release.split(".")[:2])

    @property
    def vmlinuz(self) -> Path:
        return self.root / "boot" / f"vmlinuz-{self.release}"

    @property
    def digest(self) -> str:
        """Of its image."""
        return hashlib.sha256(self.vmlinuz.read_bytes()).hexdigest()[:12]

    @property
    def headers(self) -> Path:
        """What a module is built against."""
        return self.root / "usr" / "src" / f"linux-headers-{self.release}"

    @property
    def block_src(self) -> Path:
        """The block layer's private headers, which an I/O scheduler needs and the headers package lacks."""
        return self.root / "block"

    @property
    def tools(self) -> Path:
        """What a module is built with, if not with this machine's own programs; else nothing is there."""
        return self.root / "tools"


def cache_dir() -> Path:
    override = os.environ.get("FAIRLANE_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = (Path(override) if override else base / "fairlane").absolute()
    if re.search(r"[\s,=]", str(path)):
        raise FairlaneError(
            f"{path}: the cache's path goes on a kernel's command line, so it may hold no space, comma or equals sign; "
            "set FAIRLANE_CACHE to another folder"
        )
    return path


def cached() -> list[Kernel]:
    """The kernels in the cache, oldest first."""
    folder = cache_dir() / "kernels"
    releases = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return [
        Kernel(release, folder / release) for release in sorted(releases, key=packages.natural) if release[0].isdigit()
    ]


def ensure(version: str, say: Say = to_stderr) -> Kernel:
    """The newest kernel of that version in the cache; when there is none, the newest that Debian has."""
    if version not in VERSIONS:
        raise FairlaneError(f"unknown kernel version {version!r}; {offer(version, VERSIONS)}")
    if kernel := _in_cache(version):
        return kernel
    folder = cache_dir() / "kernels"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / f".lock-{version}", packages.FETCH_S, say), proc.unwinding_signals():
        if kernel := _in_cache(version):
            return kernel
        with workshop(folder, f".fetch-{version}-") as temp:
            return _fetch(version, folder, temp, say)


def _in_cache(version: str) -> Kernel | None:
    return next((kernel for kernel in reversed(cached()) if kernel.version == version), None)


@contextlib.contextmanager
def locked(path: Path, limit_s: float, say: Say) -> Iterator[None]:
    """One process at a time; the others wait, but not for ever."""
    deadline = time.monotonic() + limit_s
    waiting = False
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise FairlaneError(f"{path}: another process has held this lock for {limit_s:.0f} s") from None
                if not waiting:
                    say("waiting for another fairlane that does the same")
                waiting = True
                time.sleep(0.2)
        yield


@contextlib.contextmanager
def workshop(folder: Path, prefix: str) -> Iterator[Path]:
    """A folder to make something in. What one that was killed has left goes first: under the lock of what is made."""
    for left in folder.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=prefix) as temp:
        yield Path(temp)


# --- Fetching ---


def _fetch(version: str, folder: Path, temp: Path, say: Say) -> Kernel:
    for tool in ("apt-get", "apt-cache", "dpkg-deb", "depmod"):
        if not (shutil.which(tool) or Path("/usr/sbin", tool).exists()):
            raise FairlaneError(
                f"{tool} is not installed; kernels come from Debian's package tools, so use Debian 12 or 13"
            )
    say(f"looking for Debian's newest {version} kernel")
    debs = temp / "debs"
    debs.mkdir()

    def fetch(apt: Apt) -> str | None:
        release = packages.newest(apt, version)
        if release is not None:
            packages.download(apt, packages.of_kernel(apt, release, version), debs, f"kernel {release}", say)
        return release

    apt, release = packages.first(version, temp, say, fetch)
    kernel = Kernel(release, temp / "root")
    _unpack(kernel, debs, say)
    final = Kernel(release, folder / release)
    relocate_headers(kernel.headers, final.root)
    if not _builds_here(kernel):
        _add_tools(kernel, final, apt, temp, say)
    kernel.root.rename(final.root)
    return final


# --- Unpacking ---


def _unpack(kernel: Kernel, debs: Path, say: Say) -> None:
    kernel.root.mkdir()
    for deb in sorted(debs.glob("*.deb")):
        say(f"unpacking {deb.name.split('_')[0]}")
        if deb.name.startswith("linux-source-"):
            extract_source(deb, kernel.root)
        else:
            proc.output(["dpkg-deb", "-x", deb, kernel.root], what=f"unpacking {deb.name}", limit_s=UNPACK_S)
        deb.unlink()
    shutil.rmtree(kernel.root / "usr" / "share", ignore_errors=True)
    _put_where_it_used_to_be(kernel)
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    proc.output(
        ["depmod", "-b", kernel.root, kernel.release],
        what=f"indexing the modules of {kernel.release}",
        limit_s=UNPACK_S,
        env={**os.environ, "PATH": path},
    )


def _put_where_it_used_to_be(kernel: Kernel) -> None:
    """Debian 13 has modules in /usr/lib; of its later kernels all is with them."""
    modules, wanted = kernel.root / "usr" / "lib" / "modules", kernel.root / "lib" / "modules"
    if modules.is_dir():
        wanted.parent.mkdir(exist_ok=True)
        modules.rename(wanted)
    if not kernel.vmlinuz.exists():
        kernel.vmlinuz.parent.mkdir(exist_ok=True)
        (wanted / kernel.release / "vmlinuz").rename(kernel.vmlinuz)


def extract_source(deb: Path, root: Path) -> None:
    """What our modules need of a package linux-source: block/*.h, the NVMe driver, and the Makefile that says of which
    version they are."""
    argv: list[str | Path] = [ROOT / "kernel" / "block-headers.sh", deb, root, f"{NVME_DRIVER}/*.[ch]"]
    proc.output(argv, what="unpacking the block layer's headers and the NVMe driver", limit_s=UNPACK_S)


def relocate_headers(headers: Path, root: Path) -> None:
    """Make the headers' Makefile include its other half from where that is, and not from /usr/src."""
    makefile = headers / "Makefile"
    text, count = re.subn(
        r"^(include |KBUILD_OUTPUT=)\S*/usr/src/", rf"\g<1>{root}/usr/src/", makefile.read_text(), flags=re.M
    )
    if not count:
        raise FairlaneError(
            f"{makefile}: has no `include /usr/src/...` line; this headers package is of an unknown kind"
        )
    makefile.write_text(text)


# --- What a module is built with ---


def _builds_here(kernel: Kernel) -> bool:
    """Whether this machine has the compiler that the kernel is built with, and can run its headers' programs."""
    variables = kernel.headers / ".kernelvariables"
    compiler = re.search(r"^CC\b.*\b(gcc-\d+)$", variables.read_text(), re.M) if variables.exists() else None
    if compiler and not shutil.which(compiler[1]):
        return False
    try:
        programs = _programs(kernel.root / "usr")
        return "not found" not in proc.output(["ldd", *programs], what="looking at programs", limit_s=60)
    except FairlaneError:
        return False


def _programs(root: Path) -> Iterator[Path]:
    """All that Linux would start with the help of ld.so."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink() and os.access(path, os.X_OK) and ".so" not in path.name:
            with path.open("rb") as file:
                if (start := file.read(4096)).startswith(b"\x7fELF") and b"/ld-linux" in start:
                    yield path


def _add_tools(kernel: Kernel, final: Kernel, apt: Apt, temp: Path, say: Say) -> None:
    """All that the headers depend on, beside them, and each program a script that starts it with those libraries.

    So it runs whatever this machine's own libraries are, without a container and without root.
    """
    debs = temp / "tools"
    debs.mkdir()
    found = packages.with_dependencies(apt, f"linux-headers-{kernel.release}", temp)
    wanted = [f"{name}={version}" for name, version in found if not name.startswith("linux-")]
    packages.download(apt, wanted, debs, f"a compiler for {kernel.release}", say)
    say("unpacking the compiler")
    for deb in sorted(debs.glob("*.deb")):
        proc.output(["dpkg-deb", "-x", deb, kernel.tools], what=f"unpacking {deb.name}", limit_s=UNPACK_S)
        deb.unlink()
    shutil.rmtree(kernel.tools / "usr" / "share", ignore_errors=True)
    loader = next(path for path in sorted(kernel.tools.rglob("ld-linux*.so.*")))
    libraries = ":".join(str(final.tools / folder) for folder in library_folders(kernel.tools))
    for program in [*_programs(kernel.tools), *_programs(kernel.root / "usr")]:
        real = program.with_name(f".{program.name}.elf")
        program.rename(real)
        at, ld = (final.root / path.relative_to(kernel.root) for path in (real, loader))
        program.write_text(f'#!/bin/sh\nexec {ld} --library-path {libraries} --argv0 "$0" {at} "$@"\n')
        program.chmod(0o755)


def library_folders(root: Path) -> list[Path]:
    found = {path.parent.relative_to(root) for path in root.rglob("*.so.*") if path.is_file()}
    return sorted(path for path in found if path.name.endswith("-gnu"))


# --- Our modules ---


def modules_dir(kernel: Kernel) -> Path:
    return ROOT / "build" / "modules" / kernel.release


def nvme_versions() -> list[str]:
    """Of Linux, whose NVMe driver we have patches for."""
    return [version for version in VERSIONS if (ROOT / "kernel" / "nvme" / version).is_dir()]


def build_nvme(kernel: Kernel, say: Say = to_stderr) -> Path:
    """The folder with our modules for that kernel, and nvme/nvme.ko: Linux' driver with our patches."""
    source = kernel.root / NVME_DRIVER
    if not source.is_dir():
        raise FairlaneError(
            f"{kernel.root}: has no {NVME_DRIVER}, which comes with each kernel that is fetched now; remove this"
            " folder, so that it is fetched anew"
        )
    out = build_modules(kernel, say)
    driver, stamp = out / "nvme" / "nvme.ko", out / ".nvme-sources"
    with locked(out / ".lock", BUILD_S, say):
        now = _sources_digest(kernel)
        if driver.is_file() and stamp.is_file() and stamp.read_text() == now:
            return out
        say(f"building the NVMe driver for {kernel.release}")
        stamp.unlink(missing_ok=True)
        _make(kernel, out, "nvme", f"NVME={source}")
        stamp.write_text(now)
    return out


def build_modules(kernel: Kernel, say: Say = to_stderr) -> Path:
    """The folder with our modules for that kernel; built when a source has changed since the last time."""
    out = modules_dir(kernel)
    out.mkdir(parents=True, exist_ok=True)
    with locked(out / ".lock", BUILD_S, say):
        stamp, now = out / ".sources", _sources_digest(kernel)
        built = all((out / name).is_file() for name in MODULES)
        if built and stamp.is_file() and stamp.read_text() == now:
            return out
        say(f"building the modules for {kernel.release}")
        stamp.unlink(missing_ok=True)
        _make(kernel, out)
        if missing := [name for name in MODULES if not (out / name).is_file()]:
            raise FairlaneError(f"{ROOT / 'kernel'}: make ended well but left no {', '.join(missing)} in {out}")
        stamp.write_text(now)
    return out


def _make(kernel: Kernel, out: Path, *more: str) -> None:
    argv = ["make", "-C", str(ROOT / "kernel"), f"KDIR={kernel.headers}", f"BLOCK={kernel.block_src}", f"OUT={out}"]
    argv += ["WERROR=1", "EXAMPLES=1", "TESTS=1", *more]
    if not (kernel.root / "Makefile").exists():  # built here, as lab_kernel.py does: its release is its version
        argv.append(f"BLOCK_VERSION={kernel.release.partition('-')[0]}")
    # Under our own make, what its caller was told (-k, -j's job server) is not meant for this one.
    env = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    env["PATH"] = f"{kernel.tools / 'usr/bin'}:{env.get('PATH', os.defpath)}"
    proc.output(argv, what=f"building the modules for {kernel.release}", limit_s=BUILD_S, env=env)


def _sources_digest(kernel: Kernel) -> str:
    digest = hashlib.sha256(str(kernel.headers).encode())
    for folder in ("kernel", "libfairlane", "ssd", "tests/vm/schedulers"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and (path.suffix in (".c", ".h", ".sh", ".patch") or path.name in ("Makefile", "Kbuild")):
                digest.update(str(path.relative_to(ROOT)).encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()


def main(versions: list[str]) -> int:
    """`make modules`: print where the modules for each version are. own and booted name some of them."""
    named = {"own": (supported.own(),), "booted": supported.booted()}
    try:
        for version in [each for name in versions or ["booted"] for each in named.get(name, (name,))]:
            print(build_modules(ensure(version)))
    except FairlaneError as error:
        to_stderr(f"fairlane: {error}")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
