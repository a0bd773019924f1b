# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The kernel cache, without fetching anything."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from fairlane import proc
from fairlane.errors import FairlaneError
from fairlane.vm import kernels, packages


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("FAIRLANE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def no_fetch(*_args: object) -> kernels.Kernel:
    raise AssertionError("nothing is to be fetched")


def test_what_the_cache_has_is_not_fetched(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_fetch", no_fetch)
    for release in ("6.1.0-9-amd64", "6.1.0-56-amd64", "6.12.9+deb12-amd64", "6.12.117+deb12-amd64"):
        (cache / release).mkdir(parents=True)
    assert kernels.ensure("6.1").release == "6.1.0-56-amd64"
    assert kernels.ensure("6.12").release == "6.12.117+deb12-amd64"


def test_an_interrupted_fetch_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_version: str, folder: Path, temp: Path, _say: kernels.Say) -> kernels.Kernel:
        assert temp.parent == folder == cache, "on the cache's file system, so that moving it there is one step"
        (temp / "root" / "boot").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(kernels, "_fetch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kernels.ensure("6.1")
    assert kernels.cached() == []
    assert [path.name for path in cache.iterdir()] == [".lock-6.1"]


def test_a_half_fetched_kernel_of_a_killed_process_is_not_taken_for_one(cache: Path) -> None:
    (cache / ".fetch-abc" / "root").mkdir(parents=True)
    assert kernels.cached() == []


def test_what_a_killed_fetch_has_left_goes_with_the_next_of_that_version(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (".fetch-6.1-abc", ".fetch-6.12-abc"):
        (cache / name / "root").mkdir(parents=True)
    monkeypatch.setattr(kernels, "_fetch", lambda _version, folder, *_: kernels.Kernel("6.1.0-9-amd64", folder))
    kernels.ensure("6.1")
    assert {path.name for path in cache.iterdir()} == {".lock-6.1", ".fetch-6.12-abc"}


def test_apt_is_asked_in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    asked: list[str] = []

    def output(*_args: object, env: Mapping[str, str], **_more: object) -> str:
        asked.append(env["LC_ALL"])
        return ""

    monkeypatch.setattr(proc, "output", output)
    packages.Apt().cache("depends", "linux-headers-6.1.0-9-amd64")
    assert asked == ["C"]


def test_a_lock_is_waited_for_but_not_for_ever(tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "lock"
    with (
        kernels.locked(path, 5, said.append),
        pytest.raises(FairlaneError, match="another process"),
        kernels.locked(path, 0.3, said.append),
    ):
        pass
    assert said == ["waiting for another fairlane that does the same"]
    with kernels.locked(path, 0.3, said.append):
        pass


def test_unknown_version_is_refused() -> None:
    with pytest.raises(FairlaneError, match=r"'5\.10'.*6\.1, 6\.12, 7\.2, 7\.3"):
        kernels.ensure("5.10")


@pytest.mark.parametrize("folder", ["a b", "a,b", "a=b"])
def test_a_cache_that_no_kernel_command_line_can_name_is_refused(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.setenv("FAIRLANE_CACHE", f"/tmp/{folder}")
    with pytest.raises(FairlaneError, match="FAIRLANE_CACHE"):
        kernels.cache_dir()


@pytest.mark.parametrize(
    "line", ["include /usr/src/linux-headers-6.1.0-56-common/Makefile", "include /old/usr/src/linux-headers-x/Makefile"]
)
def test_headers_find_their_other_half_where_it_is(tmp_path: Path, line: str) -> None:
    makefile = tmp_path / "Makefile"
    makefile.write_text(f"# kept\n{line}\n")
    kernels.relocate_headers(tmp_path, Path("/cache/6.1"))
    assert makefile.read_text() == f"# kept\ninclude /cache/6.1/usr/src/{line.rsplit('/', 2)[1]}/Makefile\n"


def test_headers_of_an_unknown_kind_are_refused(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("all:\n")
    with pytest.raises(FairlaneError, match="unknown kind"):
        kernels.relocate_headers(tmp_path, Path("/cache/6.1"))


def source_package(folder: Path, names: list[str]) -> Path:
    """A package such as linux-source-6.1, with these files in its tarball."""
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "usr" / "src").mkdir(parents=True)
    control = "Package: linux-source-6.1\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: a test\n"
    (tree / "DEBIAN" / "control").write_text(control)
    with tarfile.open(tree / "usr" / "src" / "linux-source-6.1.tar.xz", "w:xz") as tar:
        for name in names:
            info = tarfile.TarInfo(f"linux-source-6.1/{name}")
            info.size = len(name)
            tar.addfile(info, io.BytesIO(name.encode()))
    deb = folder / "linux-source-6.1_1_all.deb"
    subprocess.run(["dpkg-deb", "-b", tree, deb], check=True, timeout=60, stdout=subprocess.DEVNULL)
    return deb


def test_only_the_block_layers_headers_and_the_nvme_driver_are_taken(tmp_path: Path) -> None:
    wanted = ["Makefile", "block/elevator.h", "block/blk-mq.h", "drivers/nvme/host/pci.c", "drivers/nvme/host/nvme.h"]
    names = ["arch/x.h", "arch/Makefile", "block/blk.c", "block/partitions/check.h", "certs/y.h", *wanted]
    names += ["drivers/nvme/host/Kconfig", "drivers/nvme/common/auth.c"]
    root = tmp_path / "root"
    kernels.extract_source(source_package(tmp_path, names), root)
    found = [path for path in root.rglob("*") if path.is_file()]
    assert {str(path.relative_to(root)): path.read_text() for path in found} == {name: name for name in wanted}


def test_a_source_package_without_them_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FairlaneError, match=r"holds no block/\*\.h"):
        kernels.extract_source(source_package(tmp_path, ["arch/x.h"]), tmp_path / "root")


def test_a_kernel_without_its_nvme_driver_s_source_is_to_be_fetched_anew(tmp_path: Path) -> None:
    with pytest.raises(FairlaneError, match="remove this folder, so that it is fetched anew"):
        kernels.build_nvme(kernels.Kernel("6.12.1-amd64", tmp_path))


@pytest.fixture
def repo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A repository whose kernel/Makefile writes down that it was run."""
    monkeypatch.setattr(kernels, "ROOT", tmp_path)
    (tmp_path / "libfairlane").mkdir()
    (tmp_path / "libfairlane" / "x.c").write_text("1")
    (tmp_path / "kernel").mkdir()
    touch = " ".join(f"$(OUT)/{name}" for name in kernels.MODULES)
    (tmp_path / "kernel" / "Makefile").write_text(f"all:\n\techo ran >> ../ran\n\ttouch {touch}\n")
    return tmp_path


def test_modules_are_built_again_only_when_a_source_changed(repo: Path) -> None:
    kernel = kernels.Kernel("6.1.0-1-amd64", repo / "cached")
    said: list[str] = []
    for change in ("1", "1", "2"):
        (repo / "libfairlane" / "x.c").write_text(change)
        out = kernels.build_modules(kernel, said.append)
    assert out == repo / "build" / "modules" / "6.1.0-1-amd64"
    assert (repo / "ran").read_text() == "ran\nran\n"
    (out / kernels.MODULES[0]).unlink()
    kernels.build_modules(kernel, said.append)
    assert (repo / "ran").read_text() == "ran\nran\nran\n"


def test_modules_that_do_not_build_show_why_and_are_tried_again(repo: Path) -> None:
    (repo / "kernel" / "Makefile").write_text("all:\n\t@echo core.c:1: error: no; exit 1\n")
    kernel = kernels.Kernel("6.1.0-1-amd64", repo / "cached")
    for _ in range(2):
        with pytest.raises(FairlaneError, match=r"core\.c:1: error: no"):
            kernels.build_modules(kernel, lambda _text: None)
