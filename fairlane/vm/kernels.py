# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Debian's kernels, fetched with Debian's package tools into a cache folder and never installed; our modules for them.

What the cache holds for a release is complete (it is put together elsewhere and moved there as the last step), and
once it holds a release, nothing is fetched for it again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fairlane import proc, schedulers
from fairlane.errors import FairlaneError
from fairlane.places import ROOT

VERSIONS = ("6.1", "6.12")
# In the order in which they are loaded.
SCHEDULERS = ("fairlane.ko", *(f"{each.module}.ko" for each in schedulers.SCHEDULERS))
MODULES = ("fairlane-route.ko", *SCHEDULERS, "vssd.ko")
APT_UPDATE_S = 180
FETCH_S = 1200
UNPACK_S = 300
BUILD_S = 300

CHECKERS = ("kasan", "kcsan")  # what in a release's name says that this kernel checks itself, see lab_kernel.py
SLOWER = 6  # than others such a kernel may be, where there is a limit to a wait

Say = Callable[[str], None]


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
    def headers(self) -> Path:
        """What a module is built against."""
        return self.root / "usr" / "src" / f"linux-headers-{self.release}"

    @property
    def block_src(self) -> Path:
        """The block layer's private headers, which an I/O scheduler needs and the headers package lacks."""
        return self.root / "block"


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
    return [Kernel(release, folder / release) for release in sorted(releases, key=_natural) if release[0].isdigit()]


def ensure(version: str = "6.1", say: Say = to_stderr) -> Kernel:
    """The newest kernel of that version in the cache; when there is none, the newest that the distribution has."""
    if version not in VERSIONS:
        raise FairlaneError(f"unknown kernel version {version!r}; valid are {', '.join(VERSIONS)}")
    if kernel := _in_cache(version):
        return kernel
    folder = cache_dir() / "kernels"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / f".lock-{version}", FETCH_S, say), proc.unwinding_signals():
        if kernel := _in_cache(version):
            return kernel
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as temp:
            return _fetch(version, folder, Path(temp), say)


def _in_cache(version: str) -> Kernel | None:
    return next((kernel for kernel in reversed(cached()) if kernel.version == version), None)


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]


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


# --- Fetching ---


@dataclass(frozen=True)
class Apt:
    """apt's commands, with the options that make them look where we want."""

    options: tuple[str, ...] = ()

    def cache(self, *args: str) -> str:
        return proc.output(["apt-cache", *self.options, *args], what="looking for a kernel package", limit_s=60)


def _fetch(version: str, folder: Path, temp: Path, say: Say) -> Kernel:
    for tool in ("apt-get", "apt-cache", "dpkg-deb", "depmod"):
        if not (shutil.which(tool) or Path("/usr/sbin", tool).exists()):
            raise FairlaneError(f"{tool} is not installed; kernels come from Debian's package tools, so use Debian 12")
    say(f"looking for Debian's newest {version} kernel")
    debs = temp / "debs"
    debs.mkdir()
    apt = Apt()
    release = _newest(apt, version)
    if release is None:
        apt = _own_lists(temp, say)
        release = _newest(apt, version)
    if release is None:
        raise FairlaneError(
            f"no linux-image-{version}.* in this machine's package sources; 6.1 is in Debian 12 itself and 6.12 in its "
            "suites bookworm-security and bookworm-backports: add one of them to apt's sources"
        )
    try:
        packages = _packages(apt, release, version)
        _download(apt, packages, debs, release, say)
    except FairlaneError:
        if apt.options:
            raise
        apt = _own_lists(temp, say)  # the machine's lists name packages that are no longer there
        release = _newest(apt, version) or release
        packages = _packages(apt, release, version)
        _download(apt, packages, debs, release, say)
    kernel = Kernel(release, temp / "root")
    _unpack(kernel, debs, say)
    final = Kernel(release, folder / release)
    relocate_headers(kernel.headers, final.root)
    kernel.root.rename(final.root)
    return final


def fetch_source(version: str, temp: Path, say: Say) -> Path:
    """The distribution's newest package of that kernel's source, in temp."""
    package, debs = f"linux-source-{version}", temp / "debs"
    debs.mkdir()
    try:
        _download(Apt(), [package], debs, f"source {version}", say)
    except FairlaneError:
        _download(_own_lists(temp, say), [package], debs, f"source {version}", say)
    return next(debs.glob("*.deb"))


def _newest(apt: Apt, version: str) -> str | None:
    """The release of the newest kernel image, or None when apt knows none."""
    arch = proc.output(["dpkg", "--print-architecture"], what="asking for the architecture", limit_s=10).strip()
    pattern = rf"^linux-image-({re.escape(version)}\.\d+(?:-\d+)?(?:\+deb\d+)?-{arch})$"
    names = apt.cache("pkgnames", f"linux-image-{version}.").split()
    releases = [match[1] for name in names if (match := re.match(pattern, name))]
    return max(releases, key=_natural, default=None)


def _packages(apt: Apt, release: str, version: str) -> list[str]:
    """Image, headers with what they depend on, and source, all of the same version."""
    text = apt.cache("depends", "--no-recommends", "--no-suggests", f"linux-headers-{release}")
    needed = re.findall(r"Depends: (linux-(?:headers|kbuild)-\S+)", text)
    match = re.search(
        r"^Version: (\S+)", apt.cache("show", "--no-all-versions", f"linux-image-{release}"), re.MULTILINE
    )
    if not needed or not match:
        raise FairlaneError(f"apt does not know what linux-headers-{release} depends on; run apt-get update")
    return [f"linux-image-{release}", f"linux-headers-{release}", *needed, f"linux-source-{version}={match[1]}"]


def _own_lists(temp: Path, say: Say) -> Apt:
    """Package lists of our own, from the machine's own sources: this needs no root and leaves the machine's alone."""
    say("fetching Debian's package lists")
    lists, cache = temp / "lists", temp / "aptcache"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    (cache / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    apt = Apt(("-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}", "-o", "APT::Sandbox::User="))
    proc.output(["apt-get", "-q", *apt.options, "update"], what="fetching package lists", limit_s=APT_UPDATE_S)
    return apt


def _download(apt: Apt, packages: list[str], debs: Path, release: str, say: Say) -> None:
    what = f"fetching kernel {release}"
    uris = proc.output(
        ["apt-get", *apt.options, "download", "--print-uris", *packages], what=what, limit_s=60, cwd=debs
    )
    total = sum(int(size) for size in re.findall(r"^'\S+' \S+ (\d+)", uris, re.MULTILINE))
    shown = -1
    argv = ["apt-get", "-q", *apt.options, "-o", "APT::Sandbox::User=", "download", *packages]
    said: list[str] = []
    end = time.monotonic() + FETCH_S
    with proc.group(argv, cwd=debs, merge=True) as process:
        while True:
            turn = time.monotonic() + 1
            try:
                status = proc.lines(process, lambda line, _err: said.append(line), lambda: turn)  # noqa: B023
                break
            except proc.TimedOut:
                done = sum(path.stat().st_size for path in debs.rglob("*") if path.is_file())
                tenth = done * 10 // total if total else 0
                if tenth > shown:
                    shown = tenth
                    say(f"{what}: {done >> 20} of {total >> 20} MiB")
                if time.monotonic() > end:
                    raise FairlaneError(f"{what}: not done after {FETCH_S} s{proc.tail(said)}") from None
    if status:
        raise FairlaneError(f"{what}: apt-get download failed (exit status {status}){proc.tail(said)}")


# --- Unpacking ---


def _unpack(kernel: Kernel, debs: Path, say: Say) -> None:
    kernel.root.mkdir()
    for deb in sorted(debs.glob("*.deb")):
        say(f"unpacking {deb.name.split('_')[0]}")
        if deb.name.startswith("linux-source-"):
            extract_block_headers(deb, kernel.block_src)
        else:
            proc.output(["dpkg-deb", "-x", deb, kernel.root], what=f"unpacking {deb.name}", limit_s=UNPACK_S)
        deb.unlink()
    shutil.rmtree(kernel.root / "usr" / "share", ignore_errors=True)
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    proc.output(
        ["depmod", "-b", kernel.root, kernel.release],
        what=f"indexing the modules of {kernel.release}",
        limit_s=UNPACK_S,
        env={**os.environ, "PATH": path},
    )


def extract_block_headers(deb: Path, into: Path) -> None:
    """block/*.h out of the tarball in a linux-source package, read as a stream and no further than needed."""
    into.mkdir(parents=True)
    with proc.group(["dpkg-deb", "--fsys-tarfile", deb]) as process:
        assert process.stdout
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as package:
                source = next(member for member in package if member.name.endswith(".tar.xz"))
                with tarfile.open(fileobj=package.extractfile(source), mode="r|xz") as kernel:
                    _copy_block_headers(kernel, into)
        except (StopIteration, tarfile.TarError, EOFError) as error:
            raise FairlaneError(f"{deb.name}: holds no kernel source that can be read ({error})") from error
    if not any(into.iterdir()):
        raise FairlaneError(f"{deb.name}: holds no block/*.h")


def _copy_block_headers(kernel: tarfile.TarFile, into: Path) -> None:
    for member in kernel:
        parts = Path(member.name).parts
        inside = len(parts) > 1 and parts[1] == "block"
        if inside and len(parts) == 3 and parts[2].endswith(".h"):
            file = kernel.extractfile(member)
            if file:
                (into / parts[2]).write_bytes(file.read())
        elif not inside and any(into.iterdir()):
            return  # a folder's files come together, so there are no more


def relocate_headers(headers: Path, root: Path) -> None:
    """Make the headers' Makefile include its other half from where that is, and not from /usr/src."""
    makefile = headers / "Makefile"
    text, count = re.subn(r"^include (?:\S*)/usr/src/", f"include {root}/usr/src/", makefile.read_text(), flags=re.M)
    if not count:
        raise FairlaneError(
            f"{makefile}: has no `include /usr/src/...` line; this headers package is of an unknown kind"
        )
    makefile.write_text(text)


# --- Our modules ---


def modules_dir(kernel: Kernel) -> Path:
    return ROOT / "build" / "modules" / kernel.release


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
        argv = ["make", "-C", str(ROOT / "kernel"), f"KDIR={kernel.headers}", f"BLOCK={kernel.block_src}", f"OUT={out}"]
        argv += ["WERROR=1", "EXAMPLES=1"]
        # Under our own make, what its caller was told (-k, -j's job server) is not meant for this one.
        env = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
        proc.output(argv, what=f"building the modules for {kernel.release}", limit_s=BUILD_S, env=env)
        if missing := [name for name in MODULES if not (out / name).is_file()]:
            raise FairlaneError(f"{ROOT / 'kernel'}: make ended well but left no {', '.join(missing)} in {out}")
        stamp.write_text(now)
    return out


def _sources_digest(kernel: Kernel) -> str:
    digest = hashlib.sha256(str(kernel.headers).encode())
    for folder in ("kernel", "libfairlane", "ssd"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and (path.suffix in (".c", ".h", ".sh") or path.name in ("Makefile", "Kbuild")):
                digest.update(str(path.relative_to(ROOT)).encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()


def main(versions: list[str]) -> int:
    """`make modules`: print where the modules for each version are."""
    try:
        for version in versions or VERSIONS:
            print(build_modules(ensure(version)))
    except FairlaneError as error:
        to_stderr(f"fairlane: {error}")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
