# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Kernels built here from Debian's source: `lab`, `plain`, and those that check our code, `kasan` and `kcsan`.

lab has I/O controls that Debian's own kernels leave out, and plain lacks one that they have. The files kernel/*.config
say what is in a kernel, and nothing else is. It lies beside Debian's kernels in the cache, under a name made from those
files, so that a change of one makes another kernel. What the cache holds is complete.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fairlane import places, proc
from fairlane.errors import FairlaneError
from fairlane.vm import kernels, packages
from fairlane.vm.kernels import Kernel, Say

CONFIGS = places.ROOT / "kernel"
CC = "gcc"  # our modules must be built with the same
TOOLS = {"flex": "flex", "bison": "bison", "bc": "bc", "make": "make", CC: CC, "xz": "xz-utils"}
COMPILE_S, STEP_S = 4 * 3600.0, 1800.0  # only a hang takes so long, however busy the machine
GIB = 3  # of disk space while one is built; 150 MiB stay


@dataclass(frozen=True)
class Recipe:
    """What a kernel is made from."""

    name: str
    version: str  # of Linux
    layers: tuple[str, ...]  # kernel/LAYER.config, each laid over those before it
    steps: int  # files that make says it compiled; only progress depends on it

    @property
    def configs(self) -> list[Path]:
        return [CONFIGS / f"{layer}.config" for layer in self.layers]

    @property
    def folder(self) -> Path:
        return kernels.cache_dir() / self.name

    @property
    def root(self) -> Path:
        """Where it is when it is built."""
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in self.configs))
        return self.folder / digest.hexdigest()[:12]


LAB = Recipe("lab", "6.1", ("lab",), 1090)
PLAIN = Recipe("plain", "6.1", ("lab", "plain"), 1090)
# What finds errors in our code. The two cannot be in one kernel.
CHECKERS = (
    Recipe("kasan", "6.12", ("lab", "check", "kasan"), 1800),
    Recipe("kcsan", "6.12", ("lab", "check", "kcsan"), 1800),
)
RECIPES = {recipe.name: recipe for recipe in (LAB, PLAIN, *CHECKERS)}


def find(name: str, say: Say = kernels.to_stderr) -> Kernel:
    """A kernel by what --kernel calls it: one of ours, built if it is not there, or Debian's of that version."""
    return ensure(say, RECIPES[name]) if name in RECIPES else kernels.ensure(name, say)


def cached(recipe: Recipe = LAB) -> Kernel | None:
    """The kernel that today's files would make, if it was built."""
    found = sorted((recipe.root / "boot").glob("vmlinuz-*"))
    return Kernel(found[-1].name.removeprefix("vmlinuz-"), recipe.root) if found else None


def ensure(say: Say = kernels.to_stderr, recipe: Recipe = LAB) -> Kernel:
    """The kernel, built if it is not there."""
    if kernel := cached(recipe):
        return kernel
    _check_tools()
    recipe.folder.mkdir(parents=True, exist_ok=True)
    with kernels.locked(recipe.folder / ".lock", COMPILE_S, say), proc.unwinding_signals():
        if kernel := cached(recipe):
            return kernel
        with kernels.workshop(recipe.folder, ".build-") as temp:
            free = shutil.disk_usage(temp).free / (1 << 30)
            if free < GIB:
                raise FairlaneError(
                    f"{recipe.folder}: {free:.1f} GiB free, and building a kernel takes {GIB}; free some, or set"
                    " FAIRLANE_CACHE to a folder with room"
                )
            _build(recipe, temp, say).rename(recipe.root)
    kernel = cached(recipe)
    assert kernel
    return kernel


def part(folder: str, temp: Path, say: Say = kernels.to_stderr, recipe: Recipe = LAB) -> Path:
    """Its source, unpacked in temp, in which that folder is compiled, and so are the tools that this takes."""
    _check_tools()
    source = _configured(recipe, temp, say)
    say(f"compiling {folder} of the {recipe.name} kernel")
    _make(source, f"-j{os.cpu_count() or 1}", folder, what=f"compiling {folder} of the {recipe.name} kernel")
    return source


def _check_tools() -> None:
    missing = sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})
    if not (Path("/usr/include/libelf.h").exists() and Path("/usr/include/gelf.h").exists()):
        missing.append("libelf-dev")
    if missing:
        raise FairlaneError(f"building a kernel needs more tools; run `apt-get install {' '.join(missing)}`")


def fraction(said: str) -> float:
    """How far the build is when it says that, 0..1."""
    percent = re.search(r"(\d+) %$", said)
    return 0.2 + 0.7 * int(percent[1]) / 100 if percent else 0.9 if said.startswith(("installing", "building")) else 0.1


# --- Building ---


def _build(recipe: Recipe, temp: Path, say: Say) -> Path:
    """Returns the folder of the finished kernel, which is to be moved into its place."""
    source = _configured(recipe, temp, say)
    _compile(recipe, source, say)
    root = temp / "root"
    _install(recipe, source, root, say)
    return root


def _configured(recipe: Recipe, temp: Path, say: Say) -> Path:
    """Its source, unpacked in temp."""
    source = _unpack(packages.fetch_source(recipe.version, temp, say), temp, say)
    say(f"configuring the {recipe.name} kernel")
    wanted = source / f"{recipe.name}.config"
    wanted.write_text(merged(recipe))
    _make(source, "allnoconfig", f"KCONFIG_ALLCONFIG={wanted}", what=f"configuring the {recipe.name} kernel")
    if lost := lost_options(wanted.read_text(), (source / ".config").read_text()):
        files = ", ".join(path.name for path in recipe.configs)
        raise FairlaneError(f"{files}: Linux {recipe.version} does not take {', '.join(lost)}; correct the file")
    return source


def merged(recipe: Recipe) -> str:
    """The lines of the recipe's files; of those for one option, the last."""
    lines: dict[str, str] = {}
    for path in recipe.configs:
        for line in path.read_text().splitlines():
            if option := re.match(r"(?:# )?(CONFIG_\w+)(?:=| is not set$)", line):
                lines[option[1]] = line
    lines["CONFIG_LOCALVERSION"] = f'CONFIG_LOCALVERSION="-fairlane-{recipe.name}"'
    return "".join(f"{line}\n" for line in lines.values())


def _install(recipe: Recipe, source: Path, root: Path, say: Say) -> None:
    what = f"installing the {recipe.name} kernel's modules"
    release = _make(source, "-s", "kernelrelease", what="asking for the kernel's release").split()[-1]
    (root / "boot").mkdir(parents=True)
    shutil.copy(source / "arch/x86/boot/bzImage", root / "boot" / f"vmlinuz-{release}")
    shutil.copy(source / ".config", root / "boot" / f"config-{release}")
    say(f"{what} and headers")
    _make(source, "modules_install", f"INSTALL_MOD_PATH={root}", what=what)
    for link in ("build", "source"):
        (root / "lib/modules" / release / link).unlink(missing_ok=True)
    kernel = Kernel(release, root)
    copy(source, kernel.headers, headers(source))
    kernel.block_src.mkdir()
    for header in (source / "block").glob("*.h"):
        shutil.copy(header, kernel.block_src)


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
    """The lines of one configuration that the other has not; what is not set may be missing."""
    lines = set(got.splitlines())
    unset = [line.removeprefix("# ").split()[0] for line in wanted.splitlines() if line.endswith(" is not set")]
    lost = [line for line in wanted.splitlines() if line.startswith("CONFIG_") and line not in lines]
    return lost + [f"# {option} is not set" for option in unset if f"{option}=y" in lines]


def _env() -> dict[str, str]:
    """Ours, without what another make told us; depmod is in a folder that only root has on the path."""
    env = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    return {**env, "PATH": f"{env.get('PATH', '')}:/usr/sbin:/sbin", "KBUILD_BUILD_USER": "fairlane"}


def _make(source: Path, *args: str, what: str) -> str:
    return proc.output(["make", "-C", source, f"CC={CC}", *args], what=what, limit_s=STEP_S, env=_env())


def _compile(recipe: Recipe, source: Path, say: Say) -> None:
    jobs = os.cpu_count() or 1
    argv: list[str | Path] = ["make", "-C", source, f"-j{jobs}", f"CC={CC}", "bzImage", "modules"]
    said: list[str] = []
    count, shown = 0, -1

    def line(text: str, _err: bool) -> None:
        nonlocal count, shown
        said.append(text)
        count += bool(re.match(r" +(CC|AS|AR|LD|HOSTCC)\b", text))
        percent = min(99, 100 * count // recipe.steps)
        if percent // 5 > shown:
            shown = percent // 5
            say(f"compiling the {recipe.name} kernel with {jobs} jobs: {percent} %")

    end = time.monotonic() + COMPILE_S
    try:
        with proc.group(argv, env=_env(), merge=True) as process:
            status = proc.lines(process, line, lambda: end)
    except proc.TimedOut:
        raise FairlaneError(f"compiling the {recipe.name} kernel: not done within {COMPILE_S:.0f} s") from None
    if status:
        wrong = [text for text in said if "rror" in text] or said
        raise FairlaneError(f"compiling the {recipe.name} kernel: make failed (exit status {status}){proc.tail(wrong)}")


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
