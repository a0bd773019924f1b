# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane apply` and `restore`: whole or not at all, said by line, and put back. Files play the kernel."""

from __future__ import annotations

import configparser
import errno
import io
import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fairlane import cli, proc
from fairlane.backends import program
from fairlane.errors import FairlaneError
from fairlane.linux import cgroups, disks, failures, others_weights, sysfs
from fairlane.linux.inotify import Inotify
from fairlane.linux.others_weights import FALLBACK, meant, scaled_for_bfq, stretched, unscaled, widened
from fairlane.places import ROOT
from fairlane.settings import apply, plan, watch
from fairlane.settings.file import DriveRule, HostFile, load
from fairlane.settings.lines import Lines

GOOD = """\
[[drive]]                                # line 1
model = "Fast SSD*"
scheduler = "kyber-fairness"

[drive.variables]
period_nsec = 50000000                   # line 6

[[drive]]
name = "vd*"
scheduler = "fairlane"                   # line 10

[[cgroup]]
path = "web.slice/*"
weight = 300                             # line 14
latency = "2ms"

[[cgroup]]
path = "/sys/fs/cgroup/batch.slice"
weight = 50                              # line 19

[[cgroup]]
path = "batch.slice"
drive = { name = "vda" }
weight = 20                              # line 24
"""


class Kernel:
    """Answers writes as Linux does: brackets around the scheduler, lines of weights, tunables that come and go."""

    def __init__(self, root: Path) -> None:
        self.block, self.mount = root / "block", root / "cgroup"
        self.fails_at: int | None = None
        self.refuses: dict[Path, int] = {}  # what cannot have the controller for those below it, and Linux's errno
        self.writes = 0
        self.drive("nvme0n1", "259:0", "Fast SSD 980", "none [mq-deadline] kyber-fairness")
        self.drive("vda", "254:0", "", "[none] mq-deadline kyber-fairness")
        self.cgroup(self.mount)
        for name in ("web.slice", "web.slice/a.service", "web.slice/b.service", "batch.slice"):
            self.cgroup(self.mount / name)
        self.enable(self.mount)

    def drive(self, name: str, number: str, model: str, offered: str) -> None:
        files = {
            "dev": number,
            "diskseq": number.replace(":", ""),
            "device/model": model,
            "queue/scheduler": offered,
            "queue/nr_requests": "64",
            "fairlane/scheduler": "[none] fairlane d2fq",
        }
        for file, text in files.items():
            path = self.block / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        self.tunables(self.block / name / "queue" / "scheduler")

    def tunables(self, file: Path) -> None:
        folder = file.parent / "iosched" if file.parent.name == "queue" else file.parent
        folder.mkdir(exist_ok=True)
        for old in folder.glob("*_*"):
            old.unlink()
        if "[kyber-fairness]" in file.read_text():
            (folder / "period_nsec").write_text("100000000\n")
        if "[mq-deadline]" in file.read_text():
            (folder / "read_expire").write_text("500\n")

    def cgroup(self, path: Path) -> None:
        path.mkdir()
        (path / "cgroup.subtree_control").write_text("cpu\n")
        (path / "cgroup.controllers").write_text("cpu io\n")

    def without(self, gone: Path) -> Callable[[Path, str], None]:
        """write(), of which the first to that drive or cgroup comes just when it goes."""

        def write(path: Path, text: str) -> None:
            if path.is_relative_to(gone) and gone.exists():
                shutil.rmtree(gone)
                raise FairlaneError(f"cannot write {text!r} to {path}: No such device")
            self.write(path, text)

        return write

    def enable(self, path: Path) -> None:
        (path / "cgroup.subtree_control").write_text("cpu io\n")
        for inner in path.iterdir():
            if inner.is_dir():
                (inner / "io.weight").write_text("default 100\n")
                (inner / plan.WEIGHT).write_text("default 100\n")
                (inner / plan.LATENCY).write_text("default 0\n")
                (inner / FALLBACK).write_text("default 100\nused 1\n")

    def disable(self, path: Path) -> None:
        (path / "cgroup.subtree_control").write_text("cpu\n")
        for file in path.glob("*/io.*"):
            file.unlink()

    def write(self, path: Path, text: str) -> None:
        self.writes += 1
        if self.writes == self.fails_at:
            raise FairlaneError(f"cannot write {text!r} to {path}: {'Invalid argument'}")
        if path.name == plan.CONTROL and text == "+io" and path.parent in self.refuses:
            number = self.refuses[path.parent]
            raise FairlaneError(f"cannot write {text!r} to {path}: {os.strerror(number)}") from OSError(number, "")
        if path.name == "scheduler":
            names = path.read_text().replace("[", "").replace("]", "").split()
            path.write_text(" ".join(f"[{name}]" if name == text else name for name in names) + "\n")
            self.tunables(path)
        elif path.name == plan.CONTROL:
            (self.enable if text == "+io" else self.disable)(path.parent)
        elif path.is_relative_to(self.mount):
            self.weight(path, text)
        else:
            path.write_text(text + "\n")

    def weight(self, path: Path, text: str) -> None:
        key, _, value = text.partition(" ") if " " in text else ("default", "", text)
        lines = dict(line.split() for line in path.read_text().splitlines())
        lines[key] = value
        if value == "default":
            lines |= {"default": apply.OURS.get(path.name, "100")} if key == "default" else {}
            lines = {k: v for k, v in lines.items() if v != "default"}
        if path.name == plan.WEIGHT and key == "default":
            fallback = path.with_name(FALLBACK)
            fallback.write_text(f"default 100\nused {int(value == 'default')}\n")
        path.write_text("".join(f"{k} {v}\n" for k, v in lines.items()))

    def said(self) -> dict[str, str]:
        """All files."""
        files = (path for top in (self.block, self.mount) for path in sorted(top.rglob("*")) if path.is_file())
        return {str(path): path.read_text() for path in files}


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    program.build()  # which knows what variables may be
    found = Kernel(tmp_path)
    mounts = tmp_path / "mounts"
    mounts.write_text(f"cgroup2 {found.mount} cgroup2 rw 0 0\n")
    monkeypatch.setattr(sysfs, "SYS_BLOCK", found.block)
    monkeypatch.setattr(cgroups, "MOUNTS", mounts)
    monkeypatch.setattr(apply, "RUN", tmp_path / "run")
    monkeypatch.setattr(sysfs, "write", found.write)
    monkeypatch.setattr(others_weights, "write", found.weight)
    monkeypatch.setattr(disks, "ids", lambda device: {"nvme0n1": ["eui.0025385b71b0a1c2"]}.get(device, []))

    def modprobe(*args: str) -> None:
        raise FairlaneError(f"no module {args}")

    monkeypatch.setattr(proc, "modprobe", modprobe)
    return found


def run(tmp_path: Path, text: str, *args: str) -> int:
    (tmp_path / "fairlane.toml").write_text(text)
    return cli.main(["apply", "--config", str(tmp_path / "fairlane.toml"), *args])


# --- Which drives ---


def test_a_pattern_for_all_drives_leaves_alone_what_only_plays_one(kernel: Kernel, tmp_path: Path) -> None:
    kernel.drive("loop0", "7:0", "", "[none] mq-deadline kyber-fairness")
    assert run(tmp_path, '[[drive]]\nname = "*"\nscheduler = "kyber-fairness"\n') == 0
    chosen = {path.name: (path / "queue/scheduler").read_text() for path in kernel.block.iterdir()}
    assert "[kyber-fairness]" in chosen["nvme0n1"] and "[kyber-fairness]" in chosen["vda"]
    assert "[none]" in chosen["loop0"]


MULTIPATH = """\
[[drive]]
name = "nvme*"
scheduler = "fairlane"

[[cgroup]]
path = "batch.slice"
drive = { name = "nvme0c0n1" }
weight = 20
"""


def test_a_path_of_several_has_a_scheduler_and_no_lines_and_their_head_is_left_alone(
    kernel: Kernel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Linux hides a path's device: it has no number. Until 6.8, the head has nr_requests, and offers a bare "none"."""
    kernel.drive("nvme0c0n1", "259:1", "Fast SSD 980", "[none] mq-deadline")
    (kernel.block / "nvme0c0n1/dev").unlink()
    head = kernel.block / "nvme0n1"
    (head / "queue/scheduler").write_text("none\n")
    (head / "fairlane/scheduler").unlink()
    before = kernel.said()
    assert run(tmp_path, MULTIPATH, "--dry-run") == 1
    assert run(tmp_path, MULTIPATH) == 0
    assert (
        "fairlane.toml:7: nvme0c0n1 has no number, so only what is for all drives holds there"
        in capsys.readouterr().out
    )
    assert "[fairlane]" in (kernel.block / "nvme0c0n1/fairlane/scheduler").read_text()
    assert (head / "queue/scheduler").read_text() == "none\n"
    assert (kernel.mount / "batch.slice" / plan.WEIGHT).read_text() == "default 100\n"
    assert run(tmp_path, MULTIPATH, "--dry-run") == 0
    assert cli.main(["restore"]) == 0
    assert kernel.said() == before


# --- What is wrong with a file ---

DRIVE = '[[drive]]\nname = "nvme0n1"\nscheduler = "kyber-fairness"\n'
CGROUP = '[[cgroup]]\npath = "batch.slice"\n'
PRICES = 'page = "4KiB"\n[price.read]\n4KiB = 1.0\n'

WRONG = {
    "no TOML": ('[[drive]]\nname = "x\n', "not valid TOML: Illegal character '\\n' (at line 2, column 10)"),
    "a key twice": (DRIVE + 'name = "x"\n', "not valid TOML: Cannot overwrite a value (at line 4, column 11)"),
    "an unknown table": (
        DRIVE + "\n[[drives]]\n",
        ":5: top level drives: unknown key; valid are drive, cgroup; did you",
    ),
    "one drive, not several": (
        '[drive]\nname = "x"\n',
        ":1: top level drive: there can be several; write it as [[drive]]",
    ),
    "an unknown key": (
        DRIVE + "sheduler = 1\n",
        ":4: [[drive]] sheduler: unknown key; valid are name, model, serial, id,",
    ),
    "no drive named": ('[[drive]]\nscheduler = "none"\n', ":1: [[drive]] name: is missing; say which drives, by name,"),
    "an empty pattern": (
        DRIVE.replace("nvme0n1", ""),
        ":2: [[drive]] name: '' names no drive; write it as in /sys/block",
    ),
    "a path for a name": (
        DRIVE.replace("nv", "/dev/nv"),
        ":2: [[drive]] name: '/dev/nvme0n1' names no drive; write it as",
    ),
    "a number for a model": (DRIVE + "model = 980\n", ":4: [[drive]] model: 980 is not a text"),
    "no scheduler": ('[[drive]]\nname = "nvme0n1"\n', ":1: [[drive]] scheduler: is missing"),
    "a misspelt scheduler": (
        DRIVE.replace("kyber-f", "kyber_f"),
        ":3: [[drive]] scheduler: 'kyber_fairness' is unknown;",
    ),
    "one that is not there": (
        DRIVE.replace("kyber-fairness", "bfq"),
        ":3: [[drive]] scheduler: nvme0n1 has no bfq (it has",
    ),
    "no such price list": (DRIVE + 'prices = "890pro"\n', ":4: [[drive]] prices: "),
    "half a price list": (
        DRIVE + 'prices = "half.toml"\n',
        ":4: [[drive]] prices: ",
    ),
    "prices for Linux's": (
        '[[drive]]\nname = "vda"\nscheduler = "mq-deadline"\nprices = "980pro"\n',
        ":4: [[drive]] prices: has no meaning with scheduler = 'mq-deadline', which goes by no price list",
    ),
    "variables of none": (
        '[[drive]]\nname = "vda"\nscheduler = "none"\n[drive.variables]\na = 1\n',
        ":4: [[drive]] variables: has no meaning with scheduler = 'none', which has no variables",
    ),
    "a text as a variable": (
        DRIVE + '[drive.variables]\nx = "1ms"\n',
        ":5: [drive.variables] x: '1ms' is not a whole number",
    ),
    "a variable's path": (
        DRIVE + '[drive.variables]\n"../x" = 1\n',
        ":5: [drive.variables] ../x: is no name of a variable",
    ),
    "a variable that is none": (
        '[[drive]]\nname = "nvme0n1"\nscheduler = "mq-deadline"\n[drive.variables]\nread_expires = 1\n',
        ":5: read_expires cannot be set of mq-deadline; valid are read_expire; did you mean read_expire?",
    ),
    "a variable that is none of the scheduler to come": (
        DRIVE + "[drive.variables]\nperiod_nsecs = 5\n",
        ":5: period_nsecs cannot be set of kyber-fairness; valid are",
    ),
    "a variable that is too much for the scheduler to come": (
        DRIVE + "[drive.variables]\nperiod_nsec = 5\n",
        ":5: period_nsec of kyber-fairness must be from 1000000 to",
    ),
    "a watchdog that is too slow": (
        DRIVE + "[drive.variables]\nwatchdog_msec = 600_001\n",
        ":5: watchdog_msec of kyber-fairness must be from 0 to 600000, not 600001",
    ),
    "prices among variables": (
        DRIVE + "[drive.variables]\nprices = 1\n",
        ":5: [drive.variables] prices: is no variable;",
    ),
    "no path": ("[[cgroup]]\nweight = 1\n", ":1: [[cgroup]] path: is missing"),
    "the root": (
        '[[cgroup]]\npath = "/sys/fs/cgroup/"\nweight = 1\n',
        ":2: [[cgroup]] path: '/sys/fs/cgroup/' is the root,",
    ),
    "outside": (
        '[[cgroup]]\npath = "a/../../b"\nweight = 1\n',
        ":2: [[cgroup]] path: 'a/../../b' leads out of /sys/fs/cgroup;",
    ),
    "stars": ('[[cgroup]]\npath = "a**/b"\nweight = 1\n', ":2: [[cgroup]] path: 'a**/b' has ** beside other letters;"),
    "nothing to give": (CGROUP, ":1: [[cgroup]] weight: is missing, and so is latency; give one of them"),
    "too much weight": (
        CGROUP + "weight = 10001\n",
        ":3: [[cgroup]] weight: 10001 is not a whole number from 1 to 10000",
    ),
    "no weight": (CGROUP + "weight = 0\n", ":3: [[cgroup]] weight: 0 is not a whole number from 1 to 10000"),
    "a weight in quotes": (CGROUP + 'weight = "300"\n', ":3: [[cgroup]] weight: '300' is not a whole number from 1 to"),
    "a unit of time": (CGROUP + 'latency = "2 m"\n', ":3: [[cgroup]] latency: '2 m' is not a time with a known unit;"),
    "too late": (
        CGROUP + "latency = 11\n",
        ":3: [[cgroup]] latency: 11 is neither 0 (no target) nor from 1 us to 10 s",
    ),
    "a drive's name only": (CGROUP + 'weight = 1\ndrive = "vda"\n', ":4: [[cgroup]] drive must be a table"),
    "an unknown which": (
        CGROUP + 'weight = 1\ndrive = { nam = "x" }\n',
        ":4: [[cgroup]] drive nam: unknown key; valid are",
    ),
    "a drive without ours": (
        CGROUP + 'weight = 1\ndrive = { name = "vda" }\n',
        ":4: [[cgroup]] drive: vda has none of our schedulers, which alone know weights for it;",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_by_line_and_nothing_is_changed(
    what: str, kernel: Kernel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, sentence = WRONG[what]
    (tmp_path / "half.toml").write_text(PRICES)
    before = kernel.said()
    assert run(tmp_path, f"{text}\n{CGROUP}weight = 7 # which could be done\n") == 2
    first = capsys.readouterr()
    assert (
        first.out == "" and first.err.startswith(f"fairlane: {tmp_path}/fairlane.toml") and first.err.count("\n") == 1
    )
    assert f"fairlane.toml{'' if sentence.startswith(':') else ': '}{sentence}" in first.err
    assert kernel.said() == before and kernel.writes == 0
    assert not (tmp_path / "run" / apply.STATE).exists()


def test_a_drive_without_a_scheduler_of_ours_keeps_nobody_else_from_a_weight(
    kernel: Kernel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = DRIVE + CGROUP + 'weight = 7\ndrive = { name = "*" }\n' + CGROUP.replace("batch", "web") + "weight = 9\n"
    assert run(tmp_path, text) == 0
    assert "fairlane.toml:7: vda has none of our schedulers, which alone know weights for it" in capsys.readouterr().out
    assert (kernel.mount / "batch.slice" / plan.WEIGHT).read_text() == "default 100\n259:0 7\n"
    assert (kernel.mount / "web.slice" / plan.WEIGHT).read_text() == "default 9\n"


def test_a_file_that_names_nothing_is_said(tmp_path: Path, kernel: Kernel, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "# nothing yet\n") == 0
    assert "fairlane.toml names no drive and no cgroup, so there is nothing to do" in capsys.readouterr().err
    assert kernel.writes == 0


def test_a_file_that_is_not_there_is_said(tmp_path: Path, kernel: Kernel, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["apply", "--config", str(tmp_path / "none.toml")]) == 2
    assert "none.toml: cannot be read as fairlane's settings: No such file" in capsys.readouterr().err


# --- What a right one does ---


def test_it_is_done_and_put_back(kernel: Kernel, tmp_path: Path) -> None:
    before = kernel.said()
    assert run(tmp_path, GOOD) == 0
    nvme, vda, web = kernel.block / "nvme0n1", kernel.block / "vda", kernel.mount / "web.slice"
    assert "[kyber-fairness]" in (nvme / "queue/scheduler").read_text()
    assert (nvme / "queue/iosched/period_nsec").read_text() == "50000000\n"
    assert "[fairlane]" in (vda / "fairlane/scheduler").read_text()
    assert (web / "cgroup.subtree_control").read_text() == "cpu io\n", "its children have got the files"
    for name in ("a.service", "b.service"):
        assert (web / name / plan.WEIGHT).read_text() == "default 300\n"
        assert (web / name / plan.LATENCY).read_text() == "default 2000\n"
    assert (kernel.mount / "batch.slice" / plan.WEIGHT).read_text() == "default 50\n254:0 20\n"
    assert cli.main(["restore"]) == 0
    assert kernel.said() == before
    assert not (tmp_path / "run" / apply.STATE).exists()


def test_a_dry_run_says_what_would_be_done(kernel: Kernel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = kernel.said()
    assert run(tmp_path, GOOD + '[[drive]]\nserial = "S6*"\nscheduler = "none"\n', "--dry-run") == 1
    file, nvme = tmp_path / "fairlane.toml", kernel.block / "nvme0n1"
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{nvme}/queue/scheduler: mq-deadline -> kyber-fairness   ({file}:3)"
    assert said[1] == f"{nvme}/queue/iosched/period_nsec: what comes with the scheduler -> 50000000   ({file}:6)"
    assert f"{kernel.mount}/batch.slice/io.fairlane.weight default: default -> 50   ({file}:19)" in said
    assert said[-1] == f'nothing to do yet: {file}:25: no drive has serial = "S6*"'
    assert kernel.said() == before and kernel.writes == 0
    assert run(tmp_path, GOOD) == 0
    assert run(tmp_path, GOOD, "--dry-run") == 0
    assert run(tmp_path, GOOD, "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out.rpartition("is to be\n")[2]) == {
        "changes": [],
        "unmatched": [],
        "refused": [],
    }


def test_whatever_cannot_be_written_all_is_as_it_was(
    kernel: Kernel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = kernel.said()
    assert run(tmp_path, GOOD, "--dry-run") == 1
    count = len(capsys.readouterr().out.splitlines())
    assert count > 8
    for failing in range(1, count + 1):
        kernel.writes, kernel.fails_at = 0, failing
        assert run(tmp_path, GOOD) == 2
        said = capsys.readouterr().err
        assert "Invalid argument; everything is as it was" in said and "fairlane.toml:" in said
        assert kernel.said() == before
        assert not (tmp_path / "run" / apply.STATE).exists()


def test_what_could_not_be_put_back_at_once_restore_puts_back(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, write = kernel.said(), kernel.write
    scheduler = kernel.block / "nvme0n1/queue/scheduler"

    def broken(path: Path, text: str) -> None:
        if "kyber-fairness]" in scheduler.read_text():
            raise FairlaneError(f"cannot write {text!r} to {path}: Input/output error")
        write(path, text)

    monkeypatch.setattr(sysfs, "write", broken)
    assert run(tmp_path, GOOD) == 2
    assert "and not all could be put back" in capsys.readouterr().err
    monkeypatch.setattr(sysfs, "write", write)
    assert cli.main(["restore"]) == 0
    assert kernel.said() == before


def test_applied_again_it_is_the_first_state_that_is_put_back(kernel: Kernel, tmp_path: Path) -> None:
    before = kernel.said()
    assert run(tmp_path, CGROUP + "weight = 7\n") == 0
    kernel.writes = 0
    assert run(tmp_path, CGROUP + "weight = 7\n") == 0
    assert kernel.writes == 0, "nothing was to be done"
    assert run(tmp_path, GOOD) == 0
    assert run(tmp_path, GOOD.replace("kyber-fairness", "mq-deadline").replace("period_nsec", "read_expire")) == 0
    assert (kernel.block / "nvme0n1/queue/iosched/read_expire").read_text() == "50000000\n"
    assert cli.main(["restore"]) == 0
    assert kernel.said() == before


def test_a_drive_that_came_since_is_not_put_back_into_another_ones_state(kernel: Kernel, tmp_path: Path) -> None:
    assert run(tmp_path, DRIVE) == 0
    (kernel.block / "nvme0n1" / "diskseq").write_text("99\n")
    assert cli.main(["restore"]) == 0
    assert "[kyber-fairness]" in (kernel.block / "nvme0n1" / "queue/scheduler").read_text()


def test_a_weight_that_somebody_has_set_is_put_back_as_that(kernel: Kernel, tmp_path: Path) -> None:
    file = kernel.mount / "batch.slice" / plan.WEIGHT
    sysfs.write(file, "100")
    before = kernel.said()
    assert run(tmp_path, CGROUP + "weight = 7\n") == 0
    assert cli.main(["restore"]) == 0
    assert kernel.said() == before and "used 0" in file.with_name(FALLBACK).read_text()


def test_of_several_that_match_the_first_counts(kernel: Kernel, tmp_path: Path) -> None:
    more = '[[cgroup]]\npath = "**/*"\nweight = 9\n' + '[[drive]]\nname = "*"\nscheduler = "mq-deadline"\n'
    assert run(tmp_path, GOOD + more) == 0
    assert "[kyber-fairness]" in (kernel.block / "nvme0n1/queue/scheduler").read_text()
    weights = {path.parent.name: path.read_text() for path in kernel.mount.rglob(plan.WEIGHT)}
    assert weights["a.service"] == "default 300\n" and weights["web.slice"] == "default 9\n"


def test_a_scheduler_that_has_failed_on_a_drive_is_not_chosen_there_again(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "failures"
    monkeypatch.setattr(failures, "KEPT", kept)
    text = (
        DRIVE + "[drive.variables]\nperiod_nsec = 50000000\n" + CGROUP + 'drive = { name = "nvme0n1" }\nweight = 20\n'
    )
    assert run(tmp_path, text) == 0
    kept.write_text(
        "drive nvme0n1 number 259:0 diskseq 2590 place queue scheduler kyber-fairness at 1\nreason it is lost\n"
    )
    assert run(tmp_path, text, "--dry-run") == 0, "while it is still chosen, all goes past it"
    scheduler = kernel.block / "nvme0n1/queue/scheduler"
    kernel.write(scheduler, "none")  # as udev's rule does
    before = kernel.said()
    capsys.readouterr()
    assert run(tmp_path, text) == 0
    assert kernel.said() == before
    said = capsys.readouterr().out
    assert (
        "fairlane.toml:3: kyber-fairness has failed on nvme0n1" in said
        and f"write kyber-fairness to {scheduler}" in said
    )
    assert run(tmp_path, DRIVE.replace("kyber-fairness", "mq-deadline")) == 0, "another scheduler is not concerned"
    assert "[mq-deadline]" in scheduler.read_text()
    kernel.write(scheduler, "kyber-fairness")  # by hand
    assert run(tmp_path, text) == 0
    assert "50000000" in (kernel.block / "nvme0n1/queue/iosched/period_nsec").read_text()


def test_a_drive_is_found_by_its_wwid(kernel: Kernel, tmp_path: Path) -> None:
    assert run(tmp_path, DRIVE.replace('name = "nvme0n1"', 'id = "eui.0025*"')) == 0
    assert "[kyber-fairness]" in (kernel.block / "nvme0n1/queue/scheduler").read_text()


def test_prices_are_written_as_the_list_says(kernel: Kernel, tmp_path: Path) -> None:
    assert run(tmp_path, DRIVE + 'prices = "980pro"\n') == 2, "this kernel's scheduler has no such file"
    assert "[mq-deadline]" in (kernel.block / "nvme0n1/queue/scheduler").read_text()


def test_restore_without_apply_says_so(kernel: Kernel, capsys: pytest.CaptureFixture[str]) -> None:
    before = kernel.said()
    assert cli.main(["restore"]) == 0
    assert "nothing was applied" in capsys.readouterr().out
    assert kernel.said() == before


def test_restore_is_refused_while_the_service_would_apply_it_again(
    kernel: Kernel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, GOOD) == 0
    before = kernel.said()
    with apply.watching():
        assert cli.main(["restore"]) == 2
    assert "stop it first (systemctl stop fairlane)" in capsys.readouterr().err
    assert kernel.said() == before
    assert cli.main(["restore"]) == 0


def test_restore_leaves_io_to_whoever_has_come_to_use_it_since(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    web = kernel.mount / "web.slice"
    users = {
        web / "a.service/io.max": "254:0 rbps=1048576 wbps=max riops=max wiops=max\n",
        web / "a.service/io.latency": "254:0 target=5000\n",
        web / "a.service/io.weight": "default 300\n",
        web / "a.service/cgroup.subtree_control": "cpu io\n",
    }
    for file, text in users.items():
        assert run(tmp_path, GOOD) == 0
        before = file.read_text() if file.exists() else ""
        file.write_text(text)
        assert cli.main(["restore"]) == 0
        assert f"but {web}/cgroup.subtree_control keeps io, as somebody has set {file} since" in capsys.readouterr().out
        assert (web / "cgroup.subtree_control").read_text() == "cpu io\n" and file.read_text() == text
        assert (web / "a.service" / plan.WEIGHT).read_text() == "default 100\n"
        assert not (tmp_path / "run" / apply.STATE).exists()
        file.write_text(before)
        kernel.disable(web)


@pytest.mark.parametrize(("name", "text"), [(plan.WEIGHT, "default 300\n"), (plan.LATENCY, "default 0\n254:0 2000\n")])
def test_restore_leaves_io_to_a_cgroup_that_was_given_a_weight_or_a_target_of_ours_by_hand(
    name: str, text: str, kernel: Kernel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    web = kernel.mount / "web.slice"
    assert run(tmp_path, GOOD) == 0
    kernel.cgroup(web / "new.service")
    kernel.enable(web)
    (web / "new.service" / name).write_text(text)
    kernel.weight(web / "new.service" / plan.WEIGHT, "default 300" if name == plan.WEIGHT else "default default")
    assert cli.main(["restore"]) == 0
    assert f"cgroup.subtree_control keeps io, as somebody has set {web}/new.service/{name}" in capsys.readouterr().out
    assert (web / "new.service" / name).read_text() == text


def test_restore_goes_past_a_file_of_schedulers_that_has_gone_with_its_module(kernel: Kernel, tmp_path: Path) -> None:
    assert run(tmp_path, GOOD) == 0
    (kernel.block / "nvme0n1/fairlane/scheduler").unlink()
    assert cli.main(["restore"]) == 0
    assert "[mq-deadline]" in (kernel.block / "nvme0n1/queue/scheduler").read_text()
    assert not (tmp_path / "run" / apply.STATE).exists()


def test_restore_leaves_out_a_cgroup_that_vanishes_meanwhile(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = kernel.said()
    assert run(tmp_path, GOOD) == 0
    gone = kernel.mount / "web.slice/a.service"
    monkeypatch.setattr(sysfs, "write", kernel.without(gone))
    assert cli.main(["restore"]) == 0
    assert kernel.said() == {path: text for path, text in before.items() if not path.startswith(f"{gone}/")}
    assert not (tmp_path / "run" / apply.STATE).exists()


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EOPNOTSUPP, errno.ENOENT], ids=errno.errorcode.get)
def test_a_tenant_cannot_keep_others_from_their_weights_by_a_cgroup_that_can_have_no_io(
    number: int, kernel: Kernel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    web, before = kernel.mount / "web.slice", kernel.said()
    kernel.cgroup(web / "a.service" / "below")
    inner = GOOD + '[[cgroup]]\npath = "web.slice/*/*"\nweight = 7\n'
    kernel.refuses[web] = number  # where it has processes of its own, or its threads are apart
    assert run(tmp_path, inner) == 1
    said = capsys.readouterr().out
    assert said.count("left out: ") == 1
    assert f":13: cannot write '+io' to {web}/cgroup.subtree_control: {os.strerror(number)}" in said
    assert str(web / "a.service") not in said, "nothing is said to be done below it"
    assert "[kyber-fairness]" in (kernel.block / "nvme0n1/queue/scheduler").read_text()
    assert (kernel.mount / "batch.slice" / plan.WEIGHT).read_text().startswith("default 50\n")
    (web / plan.CONTROL).write_text("cpu io\n")  # its owner enables it later
    assert cli.main(["restore"]) == 0
    assert (web / plan.CONTROL).read_text() == "cpu io\n", "apply had not"
    (web / plan.CONTROL).write_text("cpu\n")
    shutil.rmtree(web / "a.service" / "below")
    assert kernel.said() == before


def test_a_tenant_cannot_keep_others_from_their_weights_by_taking_io_back_meanwhile(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    web = kernel.mount / "web.slice"

    def write(path: Path, text: str) -> None:
        kernel.write(path, text)
        if path == web / plan.CONTROL:
            kernel.disable(web)

    monkeypatch.setattr(sysfs, "write", write)
    assert run(tmp_path, GOOD) == 1
    assert f"left out: {tmp_path}/fairlane.toml:14: {web}/a.service/" in capsys.readouterr().out
    assert (kernel.mount / "batch.slice" / plan.WEIGHT).read_text().startswith("default 50\n")


VANISHING = {  # what the file is about -> what goes
    GOOD: "cgroup/web.slice/a.service",
    DRIVE: "block/nvme0n1",
}


@pytest.mark.parametrize("text", VANISHING, ids=VANISHING.values())
@pytest.mark.parametrize("when", ["before the snapshot", "before its write", "at its write"])
def test_what_vanishes_while_it_is_applied_is_left_out(
    when: str, text: str, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / VANISHING[text]
    snapshot = apply._snapshot

    def first(changes: Sequence[plan.Change]) -> apply.Before:
        if when == "before the snapshot":
            shutil.rmtree(gone)
        found = snapshot(changes)
        if when == "before its write":
            shutil.rmtree(gone)
        return found

    monkeypatch.setattr(apply, "_snapshot", first)
    if when == "at its write":
        monkeypatch.setattr(sysfs, "write", kernel.without(gone))
    assert run(tmp_path, text + CGROUP + "weight = 50\n") == 0
    assert (kernel.mount / "batch.slice" / plan.WEIGHT).read_text().startswith("default 50\n")
    assert not gone.exists()


@pytest.fixture
def modules(kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Those that are loaded. vda has no weighted round robin."""
    (kernel.block / "vda/fairlane/scheduler").write_text("[none] fairlane\n")
    found = tmp_path / "module"

    def modprobe(*args: str) -> None:
        if "-n" not in args:
            (found / args[-1].removeprefix("fairlane-route-")).mkdir(parents=True)

    monkeypatch.setattr(proc, "modprobe", modprobe)
    monkeypatch.setattr(sysfs, "MODULES", found)
    return found


@pytest.mark.usefixtures("modules")
def test_no_drive_is_changed_for_one_that_cannot_have_d2fq(
    kernel: Kernel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, before = DRIVE + '[[drive]]\nname = "vda"\nscheduler = "d2fq"\n', kernel.said()
    assert run(tmp_path, text, "--dry-run") == 1, "before the module is loaded, nobody knows"
    for dry in ((), ("--dry-run",)):
        assert run(tmp_path, text, *dry) == 2
        assert (
            ":6: [[drive]] scheduler: vda has no weighted round robin that its driver uses, and d2fq leaves all to"
            " that; take another scheduler, such as fairlane" in capsys.readouterr().err
        )
    assert kernel.said() == before


@pytest.mark.usefixtures("modules")
def test_a_drive_that_cannot_have_d2fq_keeps_no_other_from_it(
    kernel: Kernel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, '[[drive]]\nname = "*"\nscheduler = "d2fq"\n' + CGROUP + "weight = 7\n") == 0
    assert ":3: [[drive]] scheduler: vda has no weighted round robin" in capsys.readouterr().out
    assert "[d2fq]" in (kernel.block / "nvme0n1/fairlane/scheduler").read_text()
    assert (kernel.mount / "batch.slice" / plan.WEIGHT).read_text() == "default 7\n"


def test_a_drive_that_vanishes_while_it_is_looked_at_is_left_out(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = plan._need_scheduler

    def vanish(rule: DriveRule, device: str, place: str, *, load: bool) -> None:
        if device == "nvme0n1":
            shutil.rmtree(kernel.block / device)
        real(rule, device, place, load=load)

    monkeypatch.setattr(plan, "_need_scheduler", vanish)
    assert run(tmp_path, '[[drive]]\nname = "*"\nscheduler = "kyber-fairness"\n') == 0
    assert "[kyber-fairness]" in (kernel.block / "vda/queue/scheduler").read_text()


# --- Weights that others have given ---


def test_what_systemd_does_to_a_weight_for_bfq_is_undone() -> None:
    assert [scaled_for_bfq(weight) for weight in (1, 50, 100, 200, 300, 10_000)] == [1, 50, 100, 109, 118, 1000]
    for weight in range(1, 10_001):
        assert meant(weight, scaled_for_bfq(weight), unit=True) == weight, "both files: exactly"
        bfq = scaled_for_bfq(weight)
        assert scaled_for_bfq(unscaled(bfq)) == bfq
        if bfq != others_weights.DEFAULT:  # which BFQ has when nobody wrote anything, too
            assert abs(unscaled(bfq) - weight) <= 5


@pytest.mark.parametrize(
    ("linux", "bfq", "unit", "weight"),
    [
        (300, None, False, 300),
        (300, 100, False, 300),  # BFQ was loaded later
        (100, 300, False, 300),  # a container runtime, where there is BFQ
        (100, 300, True, 300),  # and if systemd made the cgroup: it would have written both
        (stretched(300), 300, True, 300),  # a runtime through systemd, and by itself
        (None, 118, True, 303),
        (None, 118, False, 118),
        (200, 500, False, 200),
        (10_000, 1000, True, 10_000),
    ],
)
def test_a_weight_is_read_as_it_was_meant(linux: int | None, bfq: int | None, unit: bool, weight: int) -> None:
    assert meant(linux, bfq, unit=unit) == weight


@pytest.mark.parametrize(
    ("name", "linux", "bfq"),
    [
        ("system.slice/crun-a.scope", widened(200), "200"),  # crun through systemd, and by itself
        ("machine.slice/libpod-0123.scope", 100, "200"),  # by itself
        ("system.slice/docker-0123.scope", stretched(200), "200"),
        ("system.slice/docker-0123.scope", stretched(200), None),  # without BFQ
        ("docker/0123", stretched(200), None),
        ("libpod_parent/libpod-0123", stretched(200), "100"),  # BFQ was loaded later
        ("machine.slice/libpod-0123.scope", widened(200), None),  # as systemd writes it again
        ("machine.slice/libpod-0123.scope", None, "200"),
    ],
)
def test_a_containers_blkio_weight_counts_as_it_is_whoever_wrote_it(
    name: str, linux: int | None, bfq: str | None, tmp_path: Path
) -> None:
    cgroup = tmp_path / name
    cgroup.mkdir(parents=True)
    for file, weight in ((others_weights.LINUX, linux), (others_weights.BFQ, bfq)):
        if weight is not None:
            (cgroup / file).write_text(f"default {weight}\n")
    assert others_weights.of(cgroup) == {"default": 200}


def test_a_weight_that_crun_gives_the_cgroup_within_a_scope_counts_for_the_scope(tmp_path: Path) -> None:
    scope = tmp_path / "crun-a.scope"
    (scope / "container").mkdir(parents=True)
    for cgroup, linux, bfq in ((scope, 100, 100), (scope / "container", 100, 200)):  # as crun 1.8 leaves them
        (cgroup / others_weights.LINUX).write_text(f"default {linux}\n")
        (cgroup / others_weights.BFQ).write_text(f"default {bfq}\n")
    assert others_weights.of(scope) == {"default": 200}
    (scope / others_weights.LINUX).write_text("default 300\n")
    assert others_weights.of(scope) == {"default": 300}, "which systemd has been told of the scope"


def test_a_container_without_a_blkio_weight_has_what_systemd_says_or_none() -> None:
    for weight in (100, 200, 300, 500):
        assert meant(weight, None, unit=True, container=True) == weight
    assert meant(250, scaled_for_bfq(250), unit=True, container=True) == 250
    assert meant(widened(200), 200, unit=True) == widened(200), "of a unit that is no container it is systemd's"


def test_others_weights_become_the_fallback_and_restore_takes_them_back(
    kernel: Kernel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch, web = kernel.mount / "batch.slice", kernel.mount / "web.slice"
    before = kernel.said()
    (batch / "io.weight").write_text("default 300\n254:0 500\n")
    (web / "io.bfq.weight").write_text("default 250\n")
    assert run(tmp_path, "", "--dry-run") == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{batch}/{FALLBACK} default: 100 -> 300   (io.weight)"
    assert len(said) == 2, "the drive has no scheduler of ours"
    assert run(tmp_path, GOOD.partition("[[cgroup]]")[0]) == 0
    assert run(tmp_path, "", "--dry-run") == 0
    assert (batch / FALLBACK).read_text() == "default 300\nused 1\n254:0 500\n"
    assert (web / FALLBACK).read_text() == "default 250\nused 1\n"
    assert cli.main(["restore"]) == 0
    (batch / "io.weight").write_text("default 100\n")
    (web / "io.bfq.weight").unlink()
    assert kernel.said() == before


def test_io_weight_can_take_lines_for_each_drive_that_has_a_scheduler_of_ours(
    kernel: Kernel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = kernel.mount / others_weights.MODEL
    model.write_text("")
    text = '[[drive]]\nname = "nvme*"\nscheduler = "kyber-fairness"\n'
    assert run(tmp_path, text, "--dry-run") == 1
    assert f"{model} 259:0: default -> ctrl=auto   (so that io.weight takes lines" in capsys.readouterr().out
    assert run(tmp_path, text) == 0
    assert model.read_text() == "259:0 ctrl=auto\n", "no other drive"
    assert run(tmp_path, text, "--dry-run") == 0
    model.write_text("259:0 ctrl=user model=linear rbps=1\n")
    capsys.readouterr()
    assert run(tmp_path, GOOD.partition("[[cgroup]]")[0], "--dry-run") == 1
    said = capsys.readouterr().out
    assert f"{model} 254:0" in said and f"{model} 259:0" not in said, "what somebody has set stays"


def test_a_cgroup_that_is_gone_needs_no_weight(tmp_path: Path) -> None:
    others_weights.write(tmp_path / "gone" / FALLBACK, "default 300")


def test_what_else_is_wrong_with_a_fallback_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        others_weights.write(tmp_path, "default 300")


# --- A drive that is plugged in again ---

OURS, NOT_OURS = "none mq-deadline [kyber-fairness]", "none [mq-deadline] kyber-fairness"


def plug(kernel: Kernel, name: str, number: str, *, scheduler: str = OURS, wwid: str = "eui.1") -> None:
    kernel.drive(name, number, "", scheduler)
    (kernel.block / name / "wwid").write_text(wwid + "\n")
    (kernel.block / name / "bdi").mkdir()


def unplug(kernel: Kernel, name: str, number: str) -> None:
    """The lines for it go with it."""
    shutil.rmtree(kernel.block / name, ignore_errors=True)
    for file in kernel.mount.rglob("io.fairlane.*"):
        file.write_text("".join(line for line in file.read_text().splitlines(True) if not line.startswith(number)))


def kept_for_a_drive(kernel: Kernel) -> Lines:
    """One line, of nvme1n1."""
    plug(kernel, "nvme1n1", "259:1")
    kernel.weight(kernel.mount / "batch.slice" / plan.WEIGHT, "259:1 700")
    kept = Lines()
    kept.follow()
    return kept


def lines_of(kernel: Kernel, number: str) -> dict[str, str]:
    """What cgroups have for that drive."""
    found = ((file, line.split()) for file in kernel.mount.rglob("io.fairlane.*") for line in file.open())
    return {str(file.relative_to(kernel.mount)): value for file, (key, value) in found if key == number}


def test_what_cgroups_have_for_one_drive_is_there_when_it_is_plugged_in_again(kernel: Kernel) -> None:
    kernel.enable(kernel.mount / "web.slice")
    plug(kernel, "nvme1n1", "259:1")
    batch, web = kernel.mount / "batch.slice", kernel.mount / "web.slice"
    kept = Lines()
    assert kept.follow() == ()
    given = {"batch.slice/" + plan.WEIGHT: "700", "web.slice/" + FALLBACK: "204", "web.slice/" + plan.LATENCY: "2000"}
    given["web.slice/a.service/" + plan.WEIGHT] = given["web.slice/b.service/" + plan.WEIGHT] = "5"
    for name, value in given.items():
        kernel.weight(kernel.mount / name, f"259:1 {value}")
    assert kept.follow() == ()
    unplug(kernel, "nvme1n1", "259:1")
    assert kept.follow() == ()
    shutil.rmtree(web / "a.service")
    (web / "new").mkdir()  # an inode for whoever takes the name
    kernel.cgroup(web / "a.service")
    kernel.enable(web)
    plug(kernel, "nvme2n1", "259:2", scheduler=NOT_OURS)
    assert kept.follow() == (), "it has no scheduler yet that knows of lines"
    (kernel.block / "nvme2n1/queue/scheduler").write_text(OURS)
    kernel.weight(batch / plan.WEIGHT, "259:2 50")
    again = kept.follow()
    del given["web.slice/a.service/" + plan.WEIGHT]
    assert lines_of(kernel, "259:2") == given | {"batch.slice/" + plan.WEIGHT: "50"}
    assert len(again) == 3 and {each.where for each in again} == {"before it was unplugged"}
    kernel.weight(web / FALLBACK, "259:2 default")
    assert kept.follow() == (), "what is taken back stays so"
    unplug(kernel, "nvme2n1", "259:2")
    plug(kernel, "nvme1n1", "259:1")
    assert {change.text for change in kept.follow()} == {"259:1 50", "259:1 2000", "259:1 5"}


def test_a_drive_does_not_inherit_from_another_that_gives_the_same_wwid(kernel: Kernel) -> None:
    kept = kept_for_a_drive(kernel)
    plug(kernel, "nvme2n1", "259:2")
    assert kept.follow() == () and not lines_of(kernel, "259:2")
    unplug(kernel, "nvme1n1", "259:1")
    assert kept.follow() == () and not lines_of(kernel, "259:2")


def test_what_the_file_says_of_a_drives_name_is_not_kept_for_the_drive(kernel: Kernel, tmp_path: Path) -> None:
    """Else the drive that has had that name would have it, too, and restore would not take it back."""
    plug(kernel, "nvme1n1", "259:1")
    (tmp_path / "fairlane.toml").write_text(CGROUP + 'weight = 7\ndrive = { name = "nvme1n1" }\n')
    settings, kept = load(tmp_path / "fairlane.toml"), Lines()

    def follow() -> int:
        apply.apply(settings)
        return len(kept.follow(apply.applied()))

    assert follow() == 0 and lines_of(kernel, "259:1") == {"batch.slice/" + plan.WEIGHT: "7"}
    unplug(kernel, "nvme1n1", "259:1")
    assert follow() == 0
    plug(kernel, "nvme1n1", "259:2", wwid="eui.2")
    plug(kernel, "nvme2n1", "259:3", wwid="eui.1")
    assert follow() == 0 and lines_of(kernel, "259:2") and not lines_of(kernel, "259:3")


@pytest.mark.parametrize("number", [errno.ENODEV, errno.EIO], ids=errno.errorcode.get)
def test_a_line_that_the_kernel_does_not_take_is_told_unless_the_drive_is_gone_again(
    number: int, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = kept_for_a_drive(kernel)
    unplug(kernel, "nvme1n1", "259:1")
    plug(kernel, "nvme1n1", "259:2")

    def refuse(*_: Any) -> None:
        raise FairlaneError("not written") from OSError(number, "")

    with monkeypatch.context() as only:
        only.setattr(sysfs, "write", refuse)
        if number == errno.ENODEV:
            assert kept.follow() == ()
            return
        with pytest.raises(FairlaneError):
            kept.follow()
    assert len(kept.follow()) == 1, "it is tried again"


@pytest.mark.parametrize("whole", [True, False])
def test_a_drive_that_is_just_going_does_not_lose_what_is_kept_for_it(
    whole: bool, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = kept_for_a_drive(kernel)
    tree = others_weights.tree

    def going(mount: Path) -> Iterator[Path]:
        if whole:
            unplug(kernel, "nvme1n1", "259:1")
        else:  # its bdi is the first that goes, and with it the name in the lines
            (kernel.block / "nvme1n1" / "bdi").rmdir()
            file = kernel.mount / "batch.slice" / plan.WEIGHT
            file.write_text(file.read_text().replace("259:1", "(unknown)"))
        yield from tree(mount)

    with monkeypatch.context() as only:
        only.setattr(others_weights, "tree", going)
        assert kept.follow() == ()
    unplug(kernel, "nvme1n1", "259:1")
    plug(kernel, "nvme1n1", "259:5")
    assert [change.text for change in kept.follow()] == ["259:5 700"]


# --- What is no UTF-8, or no JSON ---


def test_names_of_any_bytes_are_no_obstacle(kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cgroups.MOUNTS.write_bytes(b"/dev/sda1 /media/caf\xe9 vfat rw 0 0\n" + cgroups.MOUNTS.read_bytes())
    (kernel.block / "nvme0n1/device/serial").write_bytes(b"S\xff1\n")
    kernel.cgroup(kernel.mount / os.fsdecode(b"web.slice/\xe9"))
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, "utf-8"))
    assert run(tmp_path, '[[drive]]\nserial = "S?1"\nscheduler = "kyber-fairness"\n' + GOOD) == 0
    sys.stdout.flush()
    assert f"{kernel.mount}/web.slice/\\udce9/io.fairlane.weight" in out.getvalue().decode()
    assert "[kyber-fairness]" in (kernel.block / "nvme0n1/queue/scheduler").read_text()
    assert cli.main(["restore"]) == 0


def test_a_broken_state_file_is_said_in_a_sentence_and_nothing_is_changed(
    kernel: Kernel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, CGROUP + "weight = 7\n") == 0
    (tmp_path / "fairlane.toml").write_text(GOOD)
    state, before = tmp_path / "run" / apply.STATE, kernel.said()
    for broken in (b'{"drives": ', b"\xff"):
        state.write_bytes(broken)
        for argv in (["restore"], ["apply", "--config", str(tmp_path / "fairlane.toml")]):
            assert cli.main(argv) == 2
            said = capsys.readouterr().err
            assert said.startswith(f"fairlane: {state}: what was there before") and said.count("\n") == 1
        assert kernel.said() == before and state.read_bytes() == broken


# --- The service ---


@pytest.fixture
def limit() -> Iterator[None]:
    """A wait that never ends fails."""

    def late(*_: Any) -> None:
        raise TimeoutError("nothing has woken it")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_it_wakes_for_cgroups_weights_and_signals(kernel: Kernel, limit: None) -> None:
    before = signal.getsignal(signal.SIGHUP)
    rounds = watch.rounds(kernel.mount)
    assert next(rounds) is True
    (kernel.mount / "web.slice" / "new").mkdir()
    assert next(rounds) is False
    (kernel.mount / "web.slice" / "new" / "io.weight").write_text("default 200\n")
    assert next(rounds) is False, "one that came since is watched, too"
    for name in (plan.WEIGHT, plan.LATENCY):
        (kernel.mount / "batch.slice" / name).write_text("259:1 200\n")
        assert next(rounds) is False, "what is written by hand is kept for a drive that is plugged in again"
    os.kill(os.getpid(), signal.SIGHUP)
    assert next(rounds) is True
    os.kill(os.getpid(), signal.SIGTERM)
    assert next(rounds, None) is None
    assert signal.getsignal(signal.SIGHUP) == before


def test_a_cgroup_that_is_made_while_all_are_looked_at_is_watched(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, limit: None
) -> None:
    new, tree = kernel.mount / "web.slice" / "new", others_weights.tree

    def made_meanwhile(mount: Path) -> Iterator[Path]:
        for cgroup in tree(mount):
            yield cgroup
            if cgroup == new.parent:  # it is listed next
                new.mkdir(exist_ok=True)

    monkeypatch.setattr(others_weights, "tree", made_meanwhile)
    rounds = watch.rounds(kernel.mount)
    assert next(rounds) is True
    assert next(rounds) is False, "it may have come too late for the first round"
    (new / "io.weight").write_text("default 200\n")
    assert next(rounds) is False
    os.kill(os.getpid(), signal.SIGTERM)
    assert next(rounds, None) is None


def test_it_is_ready_once_the_file_is_applied_and_then_looks_again_for_what_systemd_did_not_ask(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: None
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(tmp_path / "notify"))
        notify.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        rounds = watch.rounds(kernel.mount)
        assert next(rounds) is True
        with pytest.raises(BlockingIOError):
            notify.recv(100)
        assert next(rounds) is True, "a reload that was asked for meanwhile is the start, to systemd"
        assert notify.recv(100) == b"READY=1"
        (kernel.mount / "web.slice" / "new").mkdir()
        assert next(rounds) is False
        os.kill(os.getpid(), signal.SIGTERM)
        assert next(rounds, None) is None


def test_what_a_cgroup_has_refused_is_tried_again(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, limit: None) -> None:
    monkeypatch.setattr(watch, "AGAIN_S", 0.1)
    rounds = watch.rounds(kernel.mount, lacks=lambda: True)
    assert (next(rounds), next(rounds)) == (True, False), "though nobody tells that its processes are gone"
    os.kill(os.getpid(), signal.SIGTERM)
    assert next(rounds, None) is None


def test_what_is_wrong_later_is_said_and_the_service_goes_on(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "fairlane.toml"

    def rounds(_mount: Path, *_: Callable[[], bool]) -> Iterator[bool]:
        yield True
        file.write_text("nonsense = 1\n")
        yield True
        file.write_text(CGROUP + "weight = 8\n")
        yield False  # which does not read it again
        assert (kernel.mount / "batch.slice" / plan.WEIGHT).read_text() == "default 7\n"
        yield True

    monkeypatch.setattr(watch, "rounds", rounds)
    assert run(tmp_path, CGROUP + "weight = 7\n", "--watch") == 0
    assert (kernel.mount / "batch.slice" / plan.WEIGHT).read_text() == "default 8\n"
    assert "nonsense: unknown key" in capsys.readouterr().err
    assert run(tmp_path, "nonsense = 1\n", "--watch") == 2


def test_a_file_that_vanishes_at_a_bad_moment_does_not_end_the_service(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = apply.apply
    failing = False
    failed: list[bool] = []

    def once(settings: HostFile) -> plan.Plan:
        if failing:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", "web.slice")
        return real(settings)

    def rounds(_mount: Path, wrong: Callable[[], bool], _lacks: Callable[[], bool]) -> Iterator[bool]:
        nonlocal failing
        for each in (False, True, True, False):
            failing = each
            yield False
            failed.append(wrong())

    monkeypatch.setattr(apply, "apply", once)
    monkeypatch.setattr(watch, "rounds", rounds)
    assert run(tmp_path, CGROUP + "weight = 7\n", "--watch") == 0
    assert failed == [False, True, True, False]
    assert capsys.readouterr().err.count("No such file") == 1, "what stays wrong is said once"


def test_after_a_round_that_failed_it_waits_whatever_it_wrote_itself_and_then_tries_again(
    kernel: Kernel, limit: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = True
    monkeypatch.setattr(watch, "AGAIN_S", 0.1)
    rounds = watch.rounds(kernel.mount, lambda: failed)
    assert next(rounds) is True
    assert next(rounds) is False, "without an event"
    monkeypatch.setattr(watch, "AGAIN_S", 3600.0)
    (kernel.mount / "cgroup.subtree_control").write_text("cpu\n")  # as it is put back
    hangup = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGHUP))
    hangup.start()
    assert next(rounds) is True, "the signal has woken it, and nothing else"
    failed = False
    assert next(rounds) is False, "the event is not lost"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_where_cgroups_cannot_be_watched_they_are_looked_at_every_so_often(
    number: int, kernel: Kernel, limit: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Inotify, "add_watch" if number == errno.ENOSPC else "__init__", refuse)
    monkeypatch.setattr(watch, "AGAIN_S", 0.1)
    rounds = watch.rounds(kernel.mount)
    assert [next(rounds), next(rounds), next(rounds)] == [True, False, False]
    said = capsys.readouterr().err
    sysctl = "max_user_watches" if number == errno.ENOSPC else "max_user_instances"
    assert said.count("\n") == 1 and f"raise fs.inotify.{sysctl}" in said
    os.kill(os.getpid(), signal.SIGTERM)
    assert next(rounds, None) is None


@pytest.mark.parametrize("burst_s", [0.0, 3.0])
def test_rounds_that_cost_much_are_further_apart_once_they_have_cost_that_for_long(
    burst_s: float, kernel: Kernel, limit: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "CPU_BURST_S", burst_s)
    waited: list[float] = []
    plain = select.select

    def note(read: list[Any], *rest: Any) -> Any:
        if len(read) == 1:  # a signal is all that ends it
            waited.append(rest[-1])
            rest = (*rest[:-1], 0.01)
        return plain(read, *rest)

    monkeypatch.setattr(select, "select", note)
    rounds = watch.rounds(kernel.mount)
    assert next(rounds) is True
    end_s = time.thread_time() + 0.1
    while time.thread_time() < end_s:
        pass
    (kernel.mount / "web.slice" / "new").mkdir()
    assert next(rounds) is False
    assert waited[0] == watch.QUIET_S if burst_s else waited[0] >= 0.05 / watch.CPU_PART


def test_the_example_that_the_package_brings_is_a_good_one() -> None:
    settings = load(ROOT / "packaging" / "fairlane.toml")
    assert settings.drives and settings.cgroups


def test_the_unit_starts_what_there_is() -> None:
    unit = configparser.ConfigParser(strict=False)
    unit.read(ROOT / "packaging" / "systemd" / "fairlane.service")
    _, *words = unit["Service"]["ExecStart"].split()
    args = cli.parser().parse_args(words)
    assert args.command == "apply" and args.watch and str(args.config) == unit["Unit"]["ConditionPathExists"]


def test_a_reload_needs_no_other_program_than_a_shell() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read(ROOT / "packaging" / "systemd" / "fairlane.service")
    # Whoever runs the tests may ignore that signal, as nohup does.
    with subprocess.Popen(["env", "--default-signal=HUP", "sleep", "600"]) as watching:
        try:
            words = shlex.split(unit["Service"]["ExecReload"].replace("${MAINPID}", str(watching.pid)))
            subprocess.run(words, env={"PATH": "/nonexistent"}, check=True)
            assert words[0] == "/bin/sh" and watching.wait(60) == -signal.SIGHUP
        finally:
            watching.kill()
