# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The house: imports run one way, and what does not fit a screen or two says why."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import schedulers
from fairlane.places import ROOT

MODULE_LINES, FUNCTION_LINES = 450, 60
WHY = "Long because"  # how a first comment or docstring begins its reason
MODULES = sorted((ROOT / "fairlane").rglob("*.py"))


def test_imports_run_one_way() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_long_says_why(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    if WHY not in (ast.get_docstring(tree) or ""):
        assert len(text.splitlines()) <= MODULE_LINES
    for function in functions(tree):
        assert function.end_lineno is not None
        if WHY not in (ast.get_docstring(function) or ""):
            assert function.end_lineno - function.lineno < FUNCTION_LINES, function.name


SCHEDULER_LINES = {"fairlane": 800, "d2fq": 800}
ANY_SCHEDULER_LINES = 700


@pytest.mark.parametrize("name", schedulers.NAMES)
def test_a_scheduler_is_read_over_a_cup_of_coffee(name: str) -> None:
    lines = len((ROOT / "libfairlane" / "schedulers" / f"{name}.c").read_text().splitlines())
    assert lines <= SCHEDULER_LINES.get(name, ANY_SCHEDULER_LINES)
