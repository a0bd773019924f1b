# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""README, CONTRIBUTING and docs say what is true: their commands work, and what they name and link to is there.

A line of an `sh` block is run, in a folder that looks like the project's. One whose comment begins with a mark of MARKS
wants more than a test has: it is only parsed, by the parser of the program that it calls.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fairlane import cli
from fairlane.places import ROOT

MARKS = ("VM", "root", "real drive", "long", "needs:")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "traces" / "README.md", *(ROOT / "docs").rglob("*.md")]
LIMIT_S = 600  # of one line
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PLACEHOLDER = re.compile(r"(?<![a-zA-Z])(?!README|CONTRIBUTING|LICENSE)[A-Z]{2,}(?![a-zA-Z])|\*")
SOURCE = re.compile(r"[\w.-]+\.(c|h|py|toml|md|svg)")
# Of Linux and its tools, and made on the page itself.
NOT_OURS = {"block/blk-iocost.c", "iocost_coef_gen.py", "my.toml"}


def param(page: Path) -> Any:
    """The pages of papers run their scenarios once more, which tests/sim does, too."""
    name = str(page.relative_to(ROOT))
    return pytest.param(page, id=name, marks=[pytest.mark.long] if name.startswith("docs/papers/") else [])


pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page: Path, language: str) -> list[str]:
    return [body for _, what, body in FENCE.findall(page.read_text()) if what == language]


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def commands(page: Path) -> Iterator[tuple[str, bool]]:
    """Every line of an sh block without its comment, and whether it is to be run."""
    for block in blocks(page, "sh"):
        for line in block.splitlines():
            command, _, comment = line.partition(" #")
            if command.strip() and not command.startswith("#"):
                yield command.strip(), not comment.strip().startswith(MARKS)


@cache
def folders() -> frozenset[str]:
    made = ("build", "out")
    return frozenset(each.name for each in ROOT.iterdir() if each.is_dir() and each.name not in made)


@cache
def names() -> frozenset[str]:
    """Of all files."""
    inside = (path.name for folder in folders() if not folder.startswith(".") for path in (ROOT / folder).rglob("*"))
    return frozenset([*inside, *(path.name for path in ROOT.iterdir())])


# --- Commands ---


@pages
def test_its_commands_are_read_by_their_programs(page: Path) -> None:
    for command, _ in commands(page):
        assert bash("-n", command).returncode == 0, f"no shell can read {command}"
        for each in re.split(r" && |; ", command):
            check(each)


@pytest.mark.parametrize("page", [param(page) for page in PAGES])
def test_its_commands_work(page: Path, tmp_path: Path) -> None:
    for entry in ROOT.iterdir():
        if entry.name != "out":
            (tmp_path / entry.name).symlink_to(entry)
    if scenarios := blocks(page, "toml"):
        (tmp_path / "my.toml").write_text(scenarios[0])
    for command, run in commands(page):
        if run:
            done = bash("-e", command, tmp_path)
            assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"


def bash(option: str, command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    words = ["bash", option, "-c", command]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def check(command: str) -> None:
    """Have the program's own parser read it."""
    if not command.startswith((".venv/bin/", "make ", "build/")):
        return  # a tool of the system
    program, *words = bash("-e", f"printf '%s\\n' {command}").stdout.splitlines()
    for word in words:
        assert not missing(word), f"{command}: there is no {word}"
    match Path(program).name, words:
        case "fairlane", _:
            try:
                cli.parser().parse_args(words)
            except SystemExit as error:
                pytest.fail(f"{command}: {error.__context__}")
        case "make", _:
            assert bash("-e", f"make -n {' '.join(words)}").returncode == 0 or "KDIR=" in command, command
        case "python", ["-m", module, *_]:
            assert importlib.util.find_spec(module), command
        case "python", [script, *_]:
            assert script.endswith(".py"), command
        case "pip" | "pytest", _:
            pass
        case name, _ if program.startswith("build/unit/"):
            assert f"{Path(name).stem}.c" in names(), command
        case _:
            pytest.fail(f"{command}: this test knows no {program}")


@pages
def test_commands_in_its_prose_have_the_options_that_are_said(page: Path) -> None:
    [actions] = (action.choices for action in cli.parser()._actions if isinstance(action.choices, dict))
    for code in INLINE.findall(prose(page)):
        words = code.removeprefix(".venv/bin/").split()
        if words[:1] == ["fairlane"] and len(words) > 1 and re.fullmatch(r"[a-z]+", words[1]):
            assert words[1] in actions, code
            known = actions[words[1]]._option_string_actions
            assert [word for word in words if word.startswith("--") and word.split("=")[0] not in known] == [], code
        elif words[:1] == ["make"] and len(words) > 1:
            assert bash("-e", f"make -n {' '.join(words[1:])}").returncode == 0, code
        elif words[:1] == ["pytest"]:
            assert not missing(words[1]), code


@pages
def test_its_other_blocks_can_be_read(page: Path) -> None:
    for block in blocks(page, "toml"):
        tomllib.loads(block)
    for block in blocks(page, "python"):
        compile(block, str(page), "exec")


def test_the_marks_are_those_that_contributing_names() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert [mark for mark in MARKS if f"`# {mark}" not in text] == []


# --- What is named, and linked to ---


@pages
def test_its_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if link.startswith(("http:", "https:")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link}: no such file"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading"


@pages
def test_the_files_that_it_names_are_there(page: Path) -> None:
    for code in INLINE.findall(prose(page)):
        for word in code.split():
            assert not missing(word), f"{code}: there is no {word}"


def missing(word: str) -> bool:
    """Whether it is the name of a file of ours that is not there."""
    if word in NOT_OURS or PLACEHOLDER.search(word) or not re.fullmatch(r"[\w./-]+", word):
        return False
    if "/" in word:
        return word.split("/", maxsplit=1)[0] in folders() and not (ROOT / word).exists()
    return bool(SOURCE.fullmatch(word)) and word not in names()


def anchors(page: Path) -> list[str]:
    """As GitHub makes them of the headings."""
    titles = re.findall(r"^#+ +(.*)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", title)) for title in titles)
    return [title.lower().replace(" ", "-") for title in plain]


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link).resolve() for link in LINK.findall(index.read_text())}
    assert set((ROOT / "docs").rglob("*.md")) - linked == {index}
