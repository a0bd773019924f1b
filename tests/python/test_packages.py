# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Kernels of this Debian and of others, without fetching any: where they would come from, and what is built with."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from fairlane import proc
from fairlane.errors import FairlaneError
from fairlane.vm import kernels, packages, supported

MAIN, SECURITY, OTHERS = "http://mirror/debian", "http://mirror/debian-security", "http://others/debian"


def on(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(supported, "codename", lambda: name)
    monkeypatch.setattr(packages, "codename", lambda: name)


# --- The table ---


@pytest.mark.parametrize(
    ("debian", "own", "tested", "booted"),
    [
        ("bookworm", "6.1", ("6.1", "6.12"), ("6.1", "6.12", "7.3")),
        ("trixie", "6.12", ("6.12",), ("6.12", "7.3")),
        ("", "6.12", ("6.12",), ("6.12", "7.3")),
    ],
)
def test_a_machine_takes_the_kernel_of_its_own_debian(
    monkeypatch: pytest.MonkeyPatch, debian: str, own: str, tested: tuple[str, ...], booted: tuple[str, ...]
) -> None:
    on(monkeypatch, debian)
    assert (supported.own(), supported.tested(), supported.booted()) == (own, tested, booted)


# --- Suites ---

ARCHIVES = [(OTHERS, "bookworm"), (MAIN, "bookworm"), (MAIN, "bookworm-updates"), (SECURITY, "bookworm-security")]


def other_suites(archives: list[tuple[str, str]], *suites: str) -> list[str]:
    lines = packages.other_suites(archives, suites).splitlines()
    return [line.replace(f"[signed-by={packages.KEYRING}] ", "") for line in lines]


def test_other_suites_are_where_the_machine_s_own_are(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "bookworm")
    assert other_suites(ARCHIVES, "trixie", "trixie-security", "trixie-backports") == [
        f"deb {MAIN} trixie main",
        f"deb {SECURITY} trixie-security main",
        f"deb {MAIN} trixie-backports main",
    ]


def test_security_updates_may_be_missing_but_not_debian(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "bookworm")
    assert other_suites([(MAIN, "bookworm")], "trixie", "trixie-security") == [f"deb {MAIN} trixie main"]
    assert other_suites([(MAIN, "stable")], "trixie") == [f"deb {MAIN} trixie main"]
    with pytest.raises(FairlaneError, match=r"/etc/apt: no source .* suite bookworm.* trixie is; use Debian 12 or 13"):
        other_suites([(OTHERS, "jammy")], "trixie")


def test_lists_are_looked_at_one_after_the_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The machine's, which may be old; those of its own Debian; those of others."""
    on(monkeypatch, "trixie")
    looked: list[str] = []

    def own_lists(_folder: Path, suites: tuple[str, ...], _say: packages.Say) -> packages.Apt:
        return packages.Apt((suites[0],))

    def fetch(apt: packages.Apt, last: str) -> str | None:
        where = "".join(apt.options) or "machine"
        looked.append(where)
        if where == "machine":
            raise FairlaneError("it names a package that is gone")
        return "6.12.9" if where == last else None

    monkeypatch.setattr(packages, "own_lists", own_lists)
    for last, seen in (("trixie", ["machine", "trixie"]), ("bookworm", ["machine", "trixie", "bookworm"])):
        looked.clear()
        assert packages.first("6.12", tmp_path, print, lambda apt, last=last: fetch(apt, last))[1] == "6.12.9"  # type: ignore[misc]
        assert looked == seen
    with pytest.raises(FairlaneError, match="a package that is gone"):
        packages.first("6.12", tmp_path, print, lambda apt: fetch(apt, "nowhere"))
    with pytest.raises(FairlaneError, match=r"no Linux 7\.3 .* trixie and trixie-backports; add a Debian mirror"):
        packages.first("7.3", tmp_path, print, lambda _apt: None)


class FakeApt(packages.Apt):
    def cache(self, *args: str) -> str:
        match args:
            case ["pkgnames", prefix]:
                names = ("7.3.4+deb13", "7.3.4+deb13-cloud", "7.3.10+deb13.1", "7.3.9+deb13", "7.3.11+deb13-amd64-dbg")
                return "\n".join(
                    f"linux-image-{name}-amd64" for name in names if f"linux-image-{name}".startswith(prefix)
                )
            case ["show", *_]:
                return "Package: x\nVersion: 7.3.10-1~bpo13+1\n"
            case ["depends", *_, package] if package.startswith("linux-headers-"):
                return "  Depends: gcc-14-for-host\n  Depends: linux-base\n  Depends: linux-headers-7.3-common\n"
            case ["depends", *_, package]:
                release = package.removeprefix("linux-image-")
                return (
                    f"  PreDepends: linux-base\n  Depends: linux-modules-{release}\n  Depends: linux-binary-{release}\n"
                )
        raise AssertionError(args)


def test_the_newest_release_is_taken_with_all_that_it_is_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "output", lambda *_args, **_how: "amd64\n")
    release = packages.newest(FakeApt(), "7.3")
    assert release == "7.3.10+deb13.1-amd64"
    assert packages.of_kernel(FakeApt(), release, "7.3") == [
        f"linux-image-{release}",
        f"linux-headers-{release}",
        "linux-headers-7.3-common",
        f"linux-modules-{release}",
        f"linux-binary-{release}",
        "linux-source-7.3=7.3.10-1~bpo13+1",
    ]


# --- What is unpacked ---

RELEASE = "7.3.4+deb13-amd64"


@pytest.mark.parametrize(
    "files", [("boot/vmlinuz", "lib/modules"), ("boot/vmlinuz", "usr/lib/modules"), ("", "usr/lib/modules")]
)
def test_a_kernel_is_found_wherever_its_package_has_it(tmp_path: Path, files: tuple[str, str]) -> None:
    image, modules = files
    kernel = kernels.Kernel(RELEASE, tmp_path)
    folder = tmp_path / modules / RELEASE
    folder.mkdir(parents=True)
    (folder / "x.ko").touch()
    at = tmp_path / f"{image}-{RELEASE}" if image else folder / "vmlinuz"
    at.parent.mkdir(exist_ok=True)
    at.touch()
    kernels._put_where_it_used_to_be(kernel)
    assert kernel.vmlinuz.is_file()
    assert (tmp_path / "lib" / "modules" / RELEASE / "x.ko").is_file()


@pytest.fixture
def unpacked(tmp_path: Path) -> kernels.Kernel:
    """A kernel with a program among its headers: a copy of one that is there."""
    kernel = kernels.Kernel(RELEASE, tmp_path / "fetched")
    kernel.headers.mkdir(parents=True)
    scripts = kernel.root / "usr" / "lib" / "linux-kbuild-7.3" / "scripts"
    scripts.mkdir(parents=True)
    shutil.copy(shutil.which("echo") or "/bin/echo", scripts / "fixdep")
    (scripts / "a.sh").write_text("#!/bin/sh\n")
    (scripts / "a.sh").chmod(0o755)
    return kernel


def test_a_kernel_whose_compiler_is_missing_is_not_built_for_with_another(unpacked: kernels.Kernel) -> None:
    variables = unpacked.headers / ".kernelvariables"
    variables.write_text("CCACHE = ccache\nCC = $(if $(X),$(CCACHE)) $(CROSS_COMPILE)gcc-99\n")
    assert not kernels._builds_here(unpacked)
    variables.unlink()
    assert kernels._builds_here(unpacked)


def test_a_program_that_is_no_program_here_is_noticed(unpacked: kernels.Kernel) -> None:
    program = next(unpacked.root.rglob("fixdep"))
    whole = program.read_bytes()
    assert b"GLIBC_2.34\0" in whole, "what is copied here is of this Debian"
    program.write_bytes(whole.replace(b"GLIBC_2.34\0", b"GLIBC_9.99\0"))
    assert not kernels._builds_here(unpacked)


def test_each_program_is_started_with_the_libraries_beside_the_kernel(
    unpacked: kernels.Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[list[str]] = []

    def fetched(_apt: packages.Apt, names: list[str], debs: Path, _name: str, _say: packages.Say) -> None:
        said.append(names)
        (debs / "libc6_2.41_amd64.deb").touch()

    def run(argv: list[str | Path], **_how: object) -> str:
        if argv[0] == "apt-get":
            return "Inst libc6 (2.41-12 Debian:13 [amd64])\nInst linux-kbuild-7.3 (7.3.4-1 Debian:13 [amd64])\n"
        assert argv[:2] == ["dpkg-deb", "-x"]
        into = Path(argv[3]) / "usr" / "lib" / "x86_64-linux-gnu"
        into.mkdir(parents=True)
        for name in ("ld-linux-x86-64.so.2", "libc.so.6"):
            shutil.copy(next(Path("/lib/x86_64-linux-gnu").glob(name)), into / name)
        return ""

    monkeypatch.setattr(packages, "download", fetched)
    monkeypatch.setattr(proc, "output", run)
    final = kernels.Kernel(RELEASE, tmp_path / "final")
    kernels._add_tools(unpacked, final, packages.Apt(), tmp_path, lambda _text: None)
    assert said == [["libc6=2.41-12"]], "the kernel's own packages are there already"
    unpacked.root.rename(final.root)
    program = final.root / "usr" / "lib" / "linux-kbuild-7.3" / "scripts" / "fixdep"
    assert str(final.tools) in program.read_text()
    assert os.access(program, os.X_OK)
    done = subprocess.run([program, "a b", "$c"], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "a b $c\n"
    assert (program.parent / "a.sh").read_text() == "#!/bin/sh\n"
