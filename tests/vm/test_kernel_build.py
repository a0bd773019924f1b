# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Part of a kernel is built beside a backup that reads the same drive: it is quicker than under none."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlane.vm import lab_kernel

GuestRun = Callable[..., Any]  # see conftest.py

SCRIPT = Path(__file__).parent / "guest" / "kernel_build.py"
PART = "kernel/printk/"
# What building the part takes of Linux, besides the files at the top and every Kconfig: all of it is 1.5 GB.
FOLDERS = ("arch/x86", "include", "kernel", "scripts", "tools")
LEFT_OUT = ("tools/perf", "tools/testing")
KERNEL = "6.12"
TIMEOUT_S = 5400
pytestmark = pytest.mark.long


def needed(source: Path) -> Iterator[Path]:
    """The files, relative to the source."""
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        chosen = any(map(name.is_relative_to, FOLDERS)) and not any(map(name.is_relative_to, LEFT_OUT))
        top = len(name.parts) == 1 or name.name.startswith("Kconfig")
        if (chosen or top) and (path.is_symlink() or path.is_file()):
            yield name


def test_a_kernel_build_beside_a_backup_is_quicker_than_under_none(guest_run: GuestRun) -> None:
    with tempfile.TemporaryDirectory() as temp:  # nobody looks at 1.5 GB afterwards
        source, tarball = lab_kernel.part(PART, Path(temp)), Path(temp, "source.tar")
        with tarfile.open(tarball, "w") as tar:
            for name in needed(source):
                tar.add(source / name, name)
        print(guest_run(SCRIPT, source, tarball, PART, kernel=KERNEL, timeout_s=TIMEOUT_S).check().stdout)
