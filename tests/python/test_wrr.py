# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane wrr`: what measurements say of a drive's weighted round robin, by made-up ones; and what it prints."""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import random
import stat
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from fairlane import cli
from fairlane.backends import host
from fairlane.backends import wrr as backend
from fairlane.errors import FairlaneError
from fairlane.experiment import wrr
from fairlane.experiment.wrr import (
    BURSTS,
    BY_DEPTH,
    BY_QUEUE,
    EQUAL,
    NEAR,
    RULES,
    SETTINGS,
    WORKS,
    Asked,
    Found,
    Point,
    Seen,
)
from fairlane.linux import disks, fio, nvme, queue, sysfs
from fairlane.linux import wrr as measuring

OURS = Seen("nvme0n1", "a drive", driver=True, has=True, on=True, refused=None, recommended=0)
LINUX = replace(OURS, driver=None, has=None, on=None, refused="no weighted round robin")


def measured(asked: Asked, going_by: Sequence[float], queues: int = 2, busy: float = 0.5) -> Point:
    one = 1 if asked.uneven else queues
    high, medium, low = going_by
    depths = (one * (63 if asked.shallow else 255), queues * 255, one * 170)
    iops = (100.0 * high, 100.0 * medium, 100.0 * low)
    return Point(asked.weights, asked.burst, (one, queues, one), depths, iops, busy)


def drive(rule: str, queues: int = 2, settings: Sequence[Asked] = SETTINGS) -> list[Point]:
    """What a drive that goes by that rule would show."""
    blank = [measured(asked, (1, 1, 1), queues) for asked in settings]
    return [measured(asked, RULES[rule](point), queues) for asked, point in zip(settings, blank, strict=True)]


def disturbed(point: Point, by: float, chance: random.Random) -> Point:
    """That part of the drive went from some to others."""
    shares = list(point.shares)
    giver, taker = chance.sample(range(3), 2)
    moved = min(by * chance.random(), shares[giver])
    shares[giver] -= moved
    shares[taker] += moved
    high, medium, low = (1000 * share for share in shares)
    return replace(point, iops=(high, medium, low))


@pytest.mark.parametrize("queues", [2, 3, 8])
@pytest.mark.parametrize("rule", RULES)
def test_a_drive_is_told_by_its_rule_however_the_shares_are_disturbed(rule: str, queues: int) -> None:
    chance = random.Random(f"{rule} {queues}")
    for _ in range(200):
        points = [disturbed(point, NEAR, chance) for point in drive(rule, queues)]
        assert wrr.rule_of(points) == rule, points


def test_with_one_hardware_queue_a_drive_that_ignores_weights_is_told_all_the_same() -> None:
    settings = [asked for asked in SETTINGS if not asked.uneven]
    for rule, said in ((WORKS, WORKS), (BURSTS, BURSTS), (BY_DEPTH, BY_DEPTH), (EQUAL, EQUAL), (BY_QUEUE, EQUAL)):
        assert wrr.rule_of(drive(rule, 1, settings)) == said
    assert "number of queues" not in wrr.judge(OURS, drive(WORKS, 1, settings)).says


@pytest.mark.parametrize("rule", [WORKS, BURSTS])
def test_a_run_that_was_disturbed_is_told_from_those_that_were_not(rule: str) -> None:
    points = drive(rule)
    assert wrr.odd(points) == []
    points[3] = replace(points[3], iops=(500.0, 300.0, 200.0))
    assert wrr.odd(points) == [3] and wrr.rule_of(points) is None


def test_of_a_run_that_was_repeated_the_first_is_told() -> None:
    points = drive(WORKS)
    points[1] = replace(points[1], before=((0.5, 0.3, 0.2),))
    verdict = wrr.judge(OURS, points)
    assert verdict.works and verdict.evidence[-1].startswith(
        "repeated: 50.0:30.0:20.0 % at first, and 57.1:28.6:14.3 %"
    )
    assert backend.from_dict(json.loads(json.dumps(asdict(Found(OURS, points))))) == Found(OURS, points)


@pytest.mark.parametrize("most", [1.5, 32])
def test_a_drive_that_takes_weights_only_up_to_some_value_follows_no_rule(most: float) -> None:
    points = [measured(asked, [min(weight, most) for weight in asked.weights]) for asked in SETTINGS]
    assert wrr.rule_of(points) is None
    assert "neither the weights nor" in wrr.judge(OURS, points).says


@pytest.mark.parametrize(
    ("rule", "works", "says", "means"),
    [
        (WORKS, True, "works: shares are the weights'", "high got 256 times what low did"),
        (BY_DEPTH, False, "not known: the drive takes all that is outstanding", "no effect on loads as deep"),
        (EQUAL, False, "weights are ignored: all priorities", "do not use it on this drive"),
        (BY_QUEUE, False, "weights are ignored: all queues", "do not use it on this drive"),
        (BURSTS, False, "bursts count as 2^n", "as long as a burst is one command"),
    ],
)
def test_a_verdict_says_what_it_means_for_d2fq_and_fairlane(rule: str, works: bool, says: str, means: str) -> None:
    verdict = Found(OURS, drive(rule)).verdict
    assert verdict.works == works and verdict.says.startswith(says)
    assert "d2fq" in verdict.means and "fairlane" in verdict.means and means in verdict.means
    assert verdict.evidence[0] == "CAP.AMS: WRR; CC.AMS: WRR"


def kept(point: Point, weights: wrr.Three) -> Point:
    """The same run on a drive that makes these weights of those that it is asked for."""
    high, medium, low = (100.0 * weight for weight in weights)
    asked = None if weights == point.weights else point.weights
    return replace(point, weights=weights, iops=(high, medium, low), asked=asked)


def test_a_drive_that_changes_weights_works_by_those_that_it_has_and_it_is_said() -> None:
    points = []
    for point in drive(WORKS):
        high, medium, low = (min(weight, 32) for weight in point.weights)
        points.append(kept(point, (high, medium, low)))
    verdict = Found(OURS, points).verdict
    assert verdict.works and verdict.says.endswith("but it changes some that it is asked for")
    assert "asked for weights 256:16:1, it took 32:16:1" in verdict.evidence


def test_a_drive_whose_weights_stay_as_they_are_does_not_work_though_its_shares_are_theirs() -> None:
    verdict = Found(OURS, [kept(point, (8, 4, 2)) for point in drive(WORKS)]).verdict
    assert not verdict.works and verdict.says == "weights cannot be set: they stay 8:4:2"


def test_how_much_more_high_gets_is_that_of_bursts_of_one_command() -> None:
    """Without a limit to bursts, low got nothing in a run of 3 s, and high 291448753756 times that."""
    points = drive(WORKS)
    points[5] = replace(points[5], iops=(80.0, 20.0, 0.0))
    assert "high got 256 times what low did" in wrr.judge(OURS, points).means


def test_the_evidence_is_where_the_weights_are_missed_most() -> None:
    (_, _, worst) = wrr.judge(OURS, drive(EQUAL)).evidence
    assert worst.endswith("93.8:5.9:0.4 % due, 33.3:33.3:33.3 % got, at weights 256:16:1 in bursts of 1")


def test_where_the_cpus_are_short_nothing_is_said_of_a_drive_but_that_it_works() -> None:
    busy = [replace(point, busy=0.95) for point in drive(EQUAL)]
    verdict = wrr.judge(OURS, busy)
    assert not verdict.works and verdict.says.startswith("not known") and "95%" in verdict.evidence[-1]
    assert wrr.judge(OURS, [replace(point, busy=0.95) for point in drive(WORKS)]).works


@pytest.mark.parametrize(
    ("seen", "says", "means"),
    [
        (replace(LINUX, has=False, on=False), "the controller has no WRR (CAP.AMS)", "cannot be used on this drive"),
        (replace(LINUX, has=True, on=False), "Linux's own driver does not turn WRR on (CC.AMS = 0)", "docs/nvme.md"),
        (LINUX, "Linux's own driver does not turn WRR on (it sets CC.AMS to 0)", "has WRR cannot be seen"),
        (replace(LINUX, driver=False), "without wrr=1, does not turn WRR on", "has WRR cannot be seen"),
        (replace(LINUX, driver=False, has=True, on=False), "without wrr=1, does not", "load it with wrr=1"),
        (replace(LINUX, driver=True), "our driver found no WRR, or too few submission queues", "kernel's log"),
    ],
)
def test_where_weights_have_no_effect_it_is_said_why(seen: Seen, says: str, means: str) -> None:
    point = measured(wrr.WITHOUT, (1, 1, 1))
    verdict = wrr.judge(seen, [point])
    assert verdict.says.startswith("no effect: ") and says in verdict.says and means in verdict.means
    assert verdict.evidence[-1] == (
        "the weights were set, and of no effect: 76.2:19.0:4.8 % due, 33.3:33.3:33.3 % got,"
        " at weights 16:4:1 in bursts of 1"
    )


# --- What is set, and read ---


def test_weights_and_burst_are_one_number_as_the_standard_has_it() -> None:
    for burst in range(8):
        assert nvme.weights_and_burst(nvme.arbitration((256, 16, 1), burst)) == ((256, 16, 1), burst)
    assert nvme.arbitration((1, 1, 1), 0) == 0
    assert nvme.arbitration((256, 16, 1), 7) == 0xFF0F0007


def test_both_registers_are_read(tmp_path: Path) -> None:
    file = tmp_path / "device/resource0"
    assert nvme.registers(tmp_path) is None
    file.parent.mkdir()
    for cap, cc, found in (
        (0x3FF, 0x460001, nvme.Registers(False, False)),
        (1 << 17 | 0x3FF, 0x460001, nvme.Registers(True, False)),
        (1 << 17 | 0x3FF, 0x460801, nvme.Registers(True, True)),
    ):
        registers = cap.to_bytes(8, "little").ljust(nvme.CC, b"\0") + cc.to_bytes(4, "little")
        file.write_bytes(registers.ljust(mmap.PAGESIZE, b"\0"))
        assert nvme.registers(tmp_path) == found


def test_d2fq_s_own_rule_keeps_each_tenant_in_its_priority_for_millions_of_reads() -> None:
    """Below half of the threshold is high, from the threshold on low; a read of the load moves a tenant by 1."""
    drift = 50_000_000
    ahead = {name: reads * measuring.DEAR for name, reads in measuring.AHEAD.items()}
    threshold = measuring.THRESHOLD
    assert threshold / 2 + drift < ahead["medium"] < threshold - drift and ahead["low"] > threshold + drift
    assert threshold < 1 << 32, "the most that low_threshold may be"


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvme0n1, whose driver is ours, with wrr=1; its registers are hidden."""
    found = tmp_path / "controller"
    (found / "device/driver/module/parameters").mkdir(parents=True)
    (found / "device/driver/module/parameters/wrr").write_text("Y\n")
    disk = tmp_path / "block" / "nvme0n1"
    (disk / "fairlane").mkdir(parents=True)
    (disk / "device").symlink_to(found)
    (disk / "fairlane/scheduler").write_text("[none] fairlane\n")
    monkeypatch.setattr(sysfs, "SYS_BLOCK", tmp_path / "block")
    monkeypatch.setattr(sysfs, "MODULES", tmp_path / "module")
    monkeypatch.setattr(nvme, "registers", lambda _folder: None)
    monkeypatch.setattr(nvme.Controller, "recommended_burst", None)


@pytest.mark.usefixtures("ours")
def test_a_drive_that_offers_no_d2fq_is_told_from_a_module_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FairlaneError, match="what chooses among the drive's priorities: load our modules"):
        measuring.look("nvme0n1", "it is refused")
    (tmp_path / "module/d2fq").mkdir(parents=True)
    seen = measuring.look("nvme0n1", "it is refused")
    assert seen.driver and seen.refused == "it is refused"


class FakeController:
    """One that had the default weights, and refuses to set others as often as it is told."""

    node = Path("/dev/nvme0")
    disks: Sequence[str] = ("nvme0n1",)

    def __init__(self, refuses: int = 0, gone: bool = False) -> None:
        self.value, self.refuses, self.gone = BEFORE, refuses, gone

    @property
    def arbitration(self) -> int:
        return self.value

    @arbitration.setter
    def arbitration(self, value: int) -> None:
        if self.refuses:
            self.refuses -= 1
            raise FairlaneError("/dev/nvme0: does not take command 0x09 (Interrupted system call)")
        self.value = value


BEFORE = 0x07050300


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> FakeController:
    found = FakeController()
    monkeypatch.setattr(nvme, "Controller", lambda _device: found)
    monkeypatch.setattr(measuring, "SETTLES_S", 0.0)
    return found


def test_the_drive_s_weights_are_put_back_though_to_ask_for_d2fq_sets_others(
    controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    def available(*_args: object) -> dict[str, str | None]:
        controller.arbitration = nvme.arbitration((256, 16, 1), 0)
        return {measuring.KNOB: None}

    def look(*_args: object) -> Seen:
        assert controller.arbitration != BEFORE
        raise FairlaneError("something is wrong")

    for where, name, value in (
        (host, "available", available),
        (disks, "check_device", lambda _device: None),
        (disks, "free_target", lambda *_args: None),
        (disks, "claimed", lambda *_args: contextlib.nullcontext()),
        (fio, "check", lambda: None),
        (measuring, "scenario", lambda *_args: None),
        (measuring, "look", look),
    ):
        monkeypatch.setattr(where, name, value)
    with pytest.raises(FairlaneError, match="something is wrong"):
        backend.on_host("nvme0n1", 1.0, lambda _now: None)
    assert controller.arbitration == BEFORE


def test_weights_that_cannot_be_put_back_at_first_are_a_moment_later(controller: FakeController) -> None:
    with measuring.kept("nvme0n1"):
        controller.value, controller.refuses = 0, 2
    assert controller.value == BEFORE


def test_of_weights_that_cannot_be_put_back_it_is_said_how_to(controller: FakeController) -> None:
    with pytest.raises(FairlaneError) as error, measuring.kept("nvme0n1"):
        controller.value, controller.refuses = 0, 99
    assert str(error.value) == (
        "nvme0n1: its weights are not back (/dev/nvme0: does not take command 0x09 (Interrupted system call));"
        " `nvme set-feature /dev/nvme0 --feature-id=1 --value=0x7050300` sets them as they were"
    )


def test_a_drive_that_does_not_take_weights_needs_none_put_back(controller: FakeController) -> None:
    with measuring.kept("nvme0n1"):
        controller.refuses = 99


def test_a_drive_that_has_gone_is_said_in_one_sentence_whatever_failed_of_that(
    controller: FakeController, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def on_host(*_args: object) -> Found:
        with measuring.kept("nvme0n1"):
            controller.gone = True
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", "/sys/block/nvme0n1/dev")

    monkeypatch.setattr(backend, "on_host", on_host)
    assert cli.main(["wrr", "--on", "host:nvme0n1"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err == (
        "fairlane: nvme0n1 has gone while it was measured, and all that was set of it went with it\n"
    )


@pytest.mark.parametrize("fails", [2, 3])
def test_a_scheduler_that_cannot_be_put_back_is_tried_again_and_then_said(
    fails: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysfs, "SYS_BLOCK", tmp_path)
    monkeypatch.setattr(queue, "AGAIN_S", 0.0)
    file = tmp_path / "sdx/queue/scheduler"
    file.parent.mkdir(parents=True)
    file.write_text("none [bfq]")
    write, left = sysfs.write, 0

    def refuses(path: Path, value: str) -> None:
        nonlocal left
        if left and value == "bfq":
            left -= 1
            raise FairlaneError(f"cannot write {value!r} to {path}: Device or resource busy")
        write(path, value)

    monkeypatch.setattr(sysfs, "write", refuses)
    said = "cannot write 'bfq' to .*/sdx/queue/scheduler: Device or resource busy .3 times in a row.; write that there"
    seen = contextlib.nullcontext() if fails < queue.TRIES else pytest.raises(FairlaneError, match=said)
    with seen, queue.scheduler("sdx", "mq-deadline"):
        assert file.read_text() == "mq-deadline"
        left = fails
    assert file.read_text() == ("bfq" if fails < queue.TRIES else "none")


# --- Other namespaces of the same controller ---


@pytest.fixture
def block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """/sys/block with a controller of three namespaces, one of which has several paths, and another controller."""
    monkeypatch.setattr(sysfs, "SYS_BLOCK", tmp_path / "block")
    monkeypatch.setattr(disks, "IO_S", 0.0)
    monkeypatch.setattr(stat, "S_ISBLK", stat.S_ISCHR)  # /dev/null plays a drive that is open
    for name in ("nvme0", "nvme1"):
        (tmp_path / name / "device/driver").mkdir(parents=True)
        (tmp_path / name / "state").write_text("live\n")
    for number, name in enumerate(("nvme0n1", "nvme0n2", "nvme0n2/nvme0n2p1", "nvme0c0n3", "nvme0n3", "nvme1n1")):
        folder = tmp_path / "block" / name
        (folder / "holders").mkdir(parents=True)
        (folder / "dev").write_text(f"259:{number}\n")
        (folder / "stat").write_text("5 0 40 1 0 0 0 0 0 1 1\n")
        if name not in ("nvme0n2/nvme0n2p1", "nvme0n3"):
            (folder / "device").symlink_to(tmp_path / name[:5])
    (tmp_path / "block/nvme0n2/nvme0n2p1/partition").write_text("1\n")
    return tmp_path / "block"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = tmp_path / "proc"
    for name in ("self", "71/fd", "72"):
        (folder / name).mkdir(parents=True)
    (folder / "self/mountinfo").write_text("1 2 8:1 / / rw - ext4 /dev/sda1 rw\n")
    (folder / "swaps").write_text("Filename Type Size Used Priority\n")
    (folder / "71/comm").write_text("tester\n")
    (folder / "71/fd/0").symlink_to("/dev/null")
    return folder


def test_a_controller_knows_its_namespaces(block: Path) -> None:
    assert nvme.Controller("nvme0n1").disks == ["nvme0n1", "nvme0n2", "nvme0n3"]
    assert nvme.Controller("nvme1n1").disks == ["nvme1n1"]


def test_a_controller_that_linux_has_given_up_is_gone(block: Path) -> None:
    controller = nvme.Controller("nvme0n1")
    assert not controller.gone
    (controller.folder / "state").write_text("deleting (no IO)\n")
    assert controller.gone
    (controller.folder / "state").unlink()
    assert controller.gone


USES = {  # a file, and what it then says
    "nvme0n2 is held by dm-0": ("block/nvme0n2/holders/dm-0", ""),
    "nvme0n2p1 is mounted": ("proc/self/mountinfo", "1 2 259:2 / /data rw - ext4 /dev/nvme0n2p1 rw"),
    "nvme0n2 is in use as swap": ("proc/swaps", "Filename Type Size Used Priority\n/dev/nvme0n2 partition 1 0 -2"),
    "nvme0n2p1 is open in process 71 (tester)": ("block/nvme0n2/nvme0n2p1/dev", "1:3"),
    "nvme0n2 has I/O under way": ("block/nvme0n2/stat", "5 0 40 1 0 0 0 0 3 1 1"),
}


@pytest.mark.parametrize("said", USES)
def test_a_namespace_that_somebody_uses_is_found(said: str, block: Path, proc: Path) -> None:
    others = ["nvme0n2", "nvme0n3"]
    assert disks.somebody_uses(others, proc) is None, "that it has a partition is no use of it"
    file, text = USES[said]
    (block.parent / file).write_text(text)
    assert disks.somebody_uses(others, proc) == said


def test_a_namespace_that_is_now_and_then_read_is_found(
    block: Path, proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _s: (block / "nvme0n2/stat").write_text("6 0 48 1 0 0 0 0 0 1 1\n"))
    assert disks.somebody_uses(["nvme0n2", "nvme0n3"], proc) == "nvme0n2 has I/O under way"


def test_it_is_refused_before_anything_is_set_if_another_namespace_is_in_use(
    block: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where, name, value in (
        (disks, "check_device", lambda _device: None),
        (disks, "free_target", lambda *_args: None),
        (measuring, "scenario", lambda *_args: None),
    ):
        monkeypatch.setattr(where, name, value)
    (block / "nvme0n3/holders/md0").touch()
    said = "nvme0n3 is held by md0; nvme0n1 has the same controller, and so the same weights: stop that, or give"
    with pytest.raises(FairlaneError, match=said):
        backend.on_host("nvme0n1", 1.0, lambda _now: None)


# --- The command ---


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--on", "sim"], "--on sim: must be vm, vm:PROFILE or host:DEV here"),
        (["--on", "host:nothing"], "no block device 'nothing'"),
        (["--on", "vm:null"], "profile 'null' is no modelled SSD; valid are "),
        (["--on", "vm:p4500"], "--on vm:p4500: has no weighted round robin; give one that has, such as vm:zssd"),
        (["--on", "vm:nothing"], "profile 'nothing' is no modelled SSD"),
        (["--on", "moon"], "unknown backend"),
        (["--on", "host:nvme0n1", "--kernel", "6.12"], "--kernel chooses the VM's kernel"),
        (["--on", "vm", "--seconds", "0"], "--seconds 0: must be from 1 to 20"),
        (["--on", "vm", "--seconds", "21"], "--seconds 21: must be from 1 to 20"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_2(args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["wrr", *args]) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.count("\n") == 1


@pytest.mark.parametrize(("rule", "status"), [(WORKS, 0), (EQUAL, 1)])
def test_it_prints_a_table_and_a_verdict_that_is_its_exit_status(
    rule: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Found(OURS, drive(rule))
    monkeypatch.setattr(backend, "on_host", lambda *_args: found)
    assert cli.main(["wrr", "--on", "host:nvme0n1"]) == status
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines()]
    shown = next(words for words in lines if words[:1] == ["256:16:1"])
    assert (
        shown[1:5] == ["1", "2:2:2", "510:510:340", "93.8:5.9:0.4"]
        and found.verdict.says in out
        and found.verdict.means in out
    )
    assert sum("no limit" in line for line in out.splitlines()) == 1
    assert cli.main(["wrr", "--on", "host:nvme0n1", "--json"]) == status
    [said] = json.loads(capsys.readouterr().out)
    assert said["verdict"]["works"] == (status == 0)
    assert backend.from_dict(said) == found, "what a VM hands over"
    assert asdict(found)["points"][0]["weights"] == (1, 1, 1)
