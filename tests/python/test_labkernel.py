# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The lab kernel, without building it."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from fairlane.errors import FairlaneError
from fairlane.linux import knobs
from fairlane.vm import kernels, lab_kernel

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("FAIRLANE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fake_build(recipe: lab_kernel.Recipe, temp: Path, say: kernels.Say) -> Path:
    say(f"compiling the {recipe.name} kernel with 2 jobs: 50 %")
    root = temp / "root"
    (root / "boot").mkdir(parents=True)
    (root / "boot" / f"vmlinuz-{recipe.version}.9-fairlane-{recipe.name}").touch()
    return root


def test_it_has_what_debian_s_kernels_lack() -> None:
    lines = lab_kernel.merged(lab_kernel.LAB).splitlines()
    assert {"CONFIG_BLK_CGROUP_IOLATENCY=y", "CONFIG_BLK_CGROUP_IOPRIO=y"} <= set(lines)
    assert [knob.name for knob in knobs.TABLE.values() if knob.lab] == ["io.prio.class", "io.latency"]


def test_it_is_built_once_and_kept_beside_debian_s(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_kernel, "_check_tools", lambda: None)
    monkeypatch.setattr(lab_kernel, "_build", fake_build)
    said: list[str] = []
    kernel = lab_kernel.ensure(said.append)
    assert kernel.release == "6.1.9-fairlane-lab"
    assert kernel.vmlinuz.is_file()
    assert [lab_kernel.fraction(text) for text in said] == [0.55]
    monkeypatch.setattr(lab_kernel, "_build", None)
    assert lab_kernel.ensure(said.append) == kernel
    assert kernels.cached() == [], "it is not taken for Debian's 6.1"


def test_another_configuration_is_another_kernel(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_kernel, "_check_tools", lambda: None)
    monkeypatch.setattr(lab_kernel, "_build", fake_build)
    lab_kernel.ensure(lambda _text: None)
    other = tmp_path / "lab.config"
    other.write_text(lab_kernel.merged(lab_kernel.LAB) + "CONFIG_X=y\n")
    monkeypatch.setattr(lab_kernel, "CONFIGS", tmp_path)
    assert lab_kernel.cached() is None


def test_a_kernel_that_checks_is_one_of_its_own(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_kernel, "_check_tools", lambda: None)
    monkeypatch.setattr(lab_kernel, "_build", fake_build)
    built = [lab_kernel.find(recipe.name, lambda _text: None) for recipe in lab_kernel.CHECKERS]
    assert [kernel.release for kernel in built] == ["6.12.9-fairlane-kasan", "6.12.9-fairlane-kcsan"]
    assert lab_kernel.cached() is None


def test_the_last_file_of_a_recipe_has_the_last_word() -> None:
    lines = lab_kernel.merged(lab_kernel.RECIPES["kasan"]).splitlines()
    assert {"CONFIG_PREEMPT=y", "# CONFIG_PREEMPT_VOLUNTARY is not set"} <= set(lines)
    assert "CONFIG_PREEMPT_VOLUNTARY=y" not in lines
    wanted = ("KASAN", "PROVE_LOCKING", "PROVE_RCU", "DEBUG_ATOMIC_SLEEP", "DEBUG_KMEMLEAK")
    assert {f"CONFIG_{option}=y" for option in wanted} <= set(lines)
    assert "CONFIG_KCSAN=y" in lab_kernel.merged(lab_kernel.RECIPES["kcsan"]).splitlines()


def test_an_interrupted_build_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_args: object) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(lab_kernel, "_check_tools", lambda: None)
    monkeypatch.setattr(lab_kernel, "_build", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lab_kernel.ensure(lambda _text: None)
    assert [path.name for path in (cache / "lab").iterdir()] == [".lock"]


def test_a_missing_tool_is_named_with_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool in ("flex", "xz") else tool)
    with pytest.raises(FairlaneError, match="run `apt-get install flex xz-utils"):
        lab_kernel.ensure(lambda _text: None)


def test_a_full_disk_is_found_before_the_work(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_kernel, "_check_tools", lambda: None)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(9, 8, 1 << 30))
    with pytest.raises(FairlaneError, match=r"1\.0 GiB free, and building a kernel takes 3"):
        lab_kernel.ensure(lambda _text: None)


def test_an_option_that_linux_does_not_take_is_named() -> None:
    assert lab_kernel.lost_options("# x\nCONFIG_A=y\nCONFIG_B=m\n", "CONFIG_A=y\nCONFIG_B=y\n") == ["CONFIG_B=m"]
    assert lab_kernel.lost_options("# CONFIG_A is not set\n", "CONFIG_A=y\n") == ["# CONFIG_A is not set"]
    assert lab_kernel.lost_options("# CONFIG_A is not set\n", "") == []


def test_headers_are_what_a_module_is_built_against(tmp_path: Path) -> None:
    source, into = tmp_path / "source", tmp_path / "into"
    wanted = [
        "Makefile",
        ".config",
        "Module.symvers",
        "include/linux/fs.h",
        "scripts/basic/fixdep",
        "arch/x86/Makefile",
        "arch/x86/include/asm/io.h",
        "tools/objtool/objtool",
    ]
    for name in (*wanted, "fs/open.c", "scripts/basic/fixdep.o", "arch/x86/kernel/cpu.c", "block/blk.h"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).touch()
    lab_kernel.copy(source, into, lab_kernel.headers(source))
    assert sorted(str(p.relative_to(into)) for p in into.rglob("*") if p.is_file()) == sorted(wanted)
