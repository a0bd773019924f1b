# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""libfairlane as a program finds it: what it exports, how it is installed and linked with, and what its pages say."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fairlane import __version__
from fairlane.places import ROOT

LIB = ROOT / "libfairlane"
PAGES = sorted((LIB / "man").glob("*.3"))
EXPORTS = re.findall(r"^\t(fairlane_\w+);", (LIB / "libfairlane.map").read_text(), re.MULTILINE)
LIMIT_S = 600


def ran(*words: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a package has it: built for one place, and put into another."""
    folder = tmp_path_factory.mktemp("lib")
    places = [f"BUILD={folder / 'build'}", "PREFIX=/usr", "LIBDIR=/usr/lib/here", f"DESTDIR={folder / 'root'}"]
    ran("make", "-s", "-j2", "-C", LIB, "CFLAGS=-O1", *places, "install")
    return folder / "root" / "usr"


def test_the_abi_is_that_of_the_list(installed: Path) -> None:
    ran("make", "-s", "-C", LIB, "CFLAGS=-O1", f"BUILD={installed.parents[1] / 'build'}", "abi")


def test_the_list_of_the_abi_can_fail(installed: Path, tmp_path: Path) -> None:
    """Another layout, and a symbol that is gone, are found."""
    copy = tmp_path / "project" / "libfairlane"
    shutil.copytree(LIB, copy)
    shutil.copy(ROOT / "pyproject.toml", copy.parent)
    for name, old, new in (
        ("libfairlane.h.in", "uint64_t drive_ns;", "uint64_t more, drive_ns;"),
        ("libfairlane.map", "\tfairlane_version;\n", ""),
    ):
        (copy / name).write_text((copy / name).read_text().replace(old, new))
    words = ["make", "-s", "-j2", "-C", str(copy), "CFLAGS=-O0", "abi"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode != 0
    assert "-symbol fairlane_version" in done.stdout
    assert "+struct fairlane_stat size 160" in done.stdout


def test_what_is_installed_is_of_the_projects_version(installed: Path) -> None:
    lib = installed / "lib" / "here"
    major = __version__.split(".", maxsplit=1)[0]
    assert (lib / "libfairlane.so").resolve().name == f"libfairlane.so.{__version__}"
    assert (lib / f"libfairlane.so.{major}").resolve() == (lib / "libfairlane.so").resolve()
    assert f'#define FAIRLANE_VERSION "{__version__}"' in (installed / "include" / "libfairlane.h").read_text()
    assert f"\nVersion: {__version__}\n" in (lib / "pkgconfig" / "libfairlane.pc").read_text()
    assert (ROOT / "packaging" / "debian" / "changelog").read_text().startswith(f"fairlane ({__version__}) ")


@pytest.mark.parametrize("how", ["shared", "static"])
def test_a_program_links_with_it_and_shares(installed: Path, tmp_path: Path, how: str) -> None:
    lib = installed / "lib" / "here"
    library = ["-L", str(lib), f"-Wl,-rpath,{lib}", "-lfairlane"] if how == "shared" else [str(lib / "libfairlane.a")]
    ran("gcc", "-I", installed / "include", LIB / "example.c", *library, "-o", tmp_path / "example")
    got = [int(count) for count in re.findall(r": (\d+) requests", ran(tmp_path / "example"))]
    assert sum(got) == 100000
    assert got[0] / got[1] == pytest.approx(3, rel=0.02)


@pytest.mark.skipif(not shutil.which("pkg-config"), reason="no pkg-config")
def test_pkg_config_finds_it(installed: Path) -> None:
    words = ["pkg-config", "--define-variable=prefix=/there", "--cflags", "--libs"]
    flags = ran(*words, installed / "lib" / "here" / "pkgconfig" / "libfairlane.pc").split()
    assert flags == ["-I/there/include", "-L/usr/lib/here", "-lfairlane"]


def test_the_header_is_one_of_c_and_of_cpp(installed: Path, tmp_path: Path) -> None:
    header = installed / "include" / "libfairlane.h"
    ran("gcc", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-x", "c", header)
    if shutil.which("g++"):
        ran("g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", header)


# --- Man pages ---


def test_each_function_has_a_page_that_says_how_it_is_declared(installed: Path) -> None:
    header = " ".join((installed / "include" / "libfairlane.h").read_text().split())
    texts = {page: page.read_text() for page in PAGES}
    for name in EXPORTS:
        [page] = [page for page, text in texts.items() if re.search(rf"^\.Nm {name}\b", text, re.MULTILINE)]
        body = texts[page]
        if one := re.search(rf"^\.Fn {name} (.*)$", body, re.MULTILINE):
            arguments = re.findall(r'"([^"]+)"|(void)', one[1])
        else:
            many = re.search(rf"^\.Fo {name}\n(.*?)^\.Fc", body, re.MULTILINE | re.DOTALL)
            assert many, name
            arguments = re.findall(r'^\.Fa "([^"]+)"()$', many[1], re.MULTILINE)
        declared = f"{name}({', '.join(a or b for a, b in arguments)});"
        assert declared in header, declared
        assert (installed / "share" / "man" / "man3" / f"{name}.3").exists()


@pytest.mark.skipif(not shutil.which("mandoc"), reason="no mandoc")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_as_mandoc_wants_them(page: Path) -> None:
    assert ran("mandoc", "-T", "lint", "-W", "warning", page) == ""
