# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What is done on a host about a scheduler that has failed: it is not chosen again, and all is in the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane import cli, proc
from fairlane.commands import report_bug
from fairlane.errors import FairlaneError
from fairlane.linux import failures, sysfs
from fairlane.linux.failures import Failure

KEPT = """\
drive nvme0n1 number 259:0 diskseq 7 place queue scheduler kyber-fairness at 1790000000
reason a request has waited longer than watchdog_msec while the drive was idle
variable period_nsec 100000000
hwq 0 depth 16 tags 64 taken_out 3
cgroup /system.slice/db.service weight 300  wanted_pct=50.00 rios=7
drive vda number 254:0 diskseq 2 place fairlane scheduler fairlane at 1790000001
reason a count of requests is below zero
"""
LOG = """\
[    1.0] random: crng init done
[    2.0] fairlane: nvme0n1: kyber-fairness has failed: a request has waited
[    3.0] audit: user=operator password=hunter2
[    4.0] BUG: kernel NULL pointer dereference
[    4.1] Call Trace:
[    4.2]  ? fl_insert_requests+0x12/0x90 [kyber_fairness]
[    4.3]  blk_mq_flush_plug_list+0x9/0x20
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {
        "kept": KEPT,
        "block/nvme0n1/diskseq": "7",
        "block/nvme0n1/dev": "259:0",
        "block/nvme0n1/device/model": "Fast SSD",
        "block/nvme0n1/queue/nr_requests": "64",
        "block/nvme0n1/queue/scheduler": "[none] kyber-fairness",
        "block/vda/diskseq": "9",
        "block/vda/dev": "254:0",
        "block/vda/queue/nr_requests": "64",
        "block/vda/queue/scheduler": "[none] kyber-fairness",
        "module/fairlane/srcversion": "ABCDEF",
        "module/fairlane/holders/kyber_fairness": "",
        "module/kyber_fairness/srcversion": "012345",
        "cmdline": "root=/dev/vda1 key=hunter2 nvme_core.multipath=N quiet",
        "fairlane.toml": "[[drive]]",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(failures, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(sysfs, "SYS_BLOCK", tmp_path / "block")
    monkeypatch.setattr(sysfs, "MODULES", tmp_path / "module")
    monkeypatch.setattr(report_bug, "COMMAND_LINE", tmp_path / "cmdline")
    monkeypatch.setattr(proc, "output", lambda *args, **more: LOG)
    return tmp_path


def test_what_the_kernel_keeps_is_read(host: Path) -> None:
    waited = "a request has waited longer than watchdog_msec while the drive was idle"
    assert failures.read(failures.KEPT) == [
        Failure("nvme0n1", "7", "queue", "kyber-fairness", waited),
        Failure("vda", "2", "fairlane", "fairlane", "a count of requests is below zero"),
    ]
    assert failures.read(host / "none") == []


def test_it_counts_for_that_scheduler_on_that_drive(host: Path) -> None:
    assert failures.given_up("nvme0n1", "kyber-fairness")
    assert not failures.given_up("nvme0n1", "mqfq"), "another scheduler"
    assert not failures.given_up("vda", "fairlane"), "another drive has taken the name since"


def test_the_report_has_what_is_needed_and_no_secret(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = host / "report.txt"
    assert cli.main(["report-bug", "--config", str(host / "fairlane.toml"), "--out", str(out)]) == 0
    assert "read it before you send it" in capsys.readouterr().out
    text = out.read_text()
    for wanted in (
        KEPT,
        "fairlane 0",
        "kernel ",
        "module kyber_fairness 012345",
        "Fast SSD",
        "[[drive]]",
        "has failed",
    ):
        assert wanted in text
    assert "command line nvme_core.multipath=N\n" in text
    assert "Call Trace" in text and "fl_insert_requests+0x12" in text and "blk_mq_flush_plug_list+0x9" in text
    assert "hunter2" not in text and "crng" not in text


def test_a_report_of_bytes_that_are_no_text_replaces_a_link_and_not_what_it_leads_to(host: Path) -> None:
    (host / "fairlane.toml").write_bytes(b"# caf\xe9\n[[drive]]\n")
    (host / "block/nvme0n1/device/model").write_bytes(b"Fast \xff SSD")
    failures.KEPT.write_bytes(KEPT.encode() + b"cgroup /caf\xe9.slice\n")
    secret, out = host / "secret", host / "report.txt"
    secret.write_text("kept")
    out.symlink_to(secret)
    assert cli.main(["report-bug", "--config", str(host / "fairlane.toml"), "--out", str(out)]) == 0
    assert "# caf\ufffd\n[[drive]]" in out.read_text() and "Fast \ufffd SSD" in out.read_text()
    assert secret.read_text() == "kept" and not out.is_symlink()


def test_a_drive_without_a_number_is_in_the_report(host: Path) -> None:
    (host / "block/nvme0n1/dev").unlink()
    assert "drive nvme0n1 of no number Fast SSD; queue/scheduler [none]" in "\n".join(report_bug.report(host / "none"))


def test_a_report_is_written_of_a_host_without_modules_and_log(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object, **more: object) -> str:
        raise FairlaneError("dmesg: not permitted")

    monkeypatch.setattr(proc, "output", refused)
    failures.KEPT.unlink()
    text = "\n".join(report_bug.report(host / "none.toml"))
    assert "our modules are not loaded" in text and "not read: dmesg: not permitted" in text and "not there" in text
