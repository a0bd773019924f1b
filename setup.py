# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What pyproject.toml cannot say of a wheel: it carries fl-sim, built for this platform, and the data that it needs.

An editable installation carries nothing: it points at this folder.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # Debian 12's
    from wheel.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parent
DATA = (
    "profiles/**/*.toml",
    "scenarios/**/*.toml",
    "traces/*",
    "microbench/cpu.toml",
    "libfairlane/schedulers/list.h",
    "ssd/profile.h",
    "kernel/vssd/vssd.h",
)


class WithSimulator(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        carried = Path(self.build_lib) / "fairlane" / "carried"
        shutil.rmtree(carried, ignore_errors=True)  # of an earlier build
        for pattern in DATA:
            for file in ROOT.glob(pattern):
                self._copy(file, carried / file.relative_to(ROOT))
        with tempfile.TemporaryDirectory() as folder:
            # Static, so that a machine that has Python needs nothing else.
            subprocess.run(["make", "-s", "-C", ROOT / "sim", f"BUILD={folder}", "LDFLAGS=-static"], check=True)
            self._copy(Path(folder) / "fl-sim", carried / "build" / "sim" / "fl-sim")
        sys.path.insert(0, str(ROOT))
        from fairlane import schedulers  # noqa: PLC0415

        (carried / "code.json").write_text(json.dumps(schedulers.code(), indent=1))
        (carried / "commit").write_text(schedulers.commit() or "")

    def _copy(self, file: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


class WithProgram(Distribution):
    def has_ext_modules(self) -> bool:
        return True


class OfThisPlatform(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(distclass=WithProgram, cmdclass={"build_py": WithSimulator, "bdist_wheel": OfThisPlatform})
