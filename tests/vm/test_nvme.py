# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""fl-nvme under Linux's own NVMe driver, in a QEMU that speaks vfio-user; the program is built with sanitizers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fairlane import cli
from fairlane.backends import wrr
from fairlane.backends.job import ignore
from fairlane.experiment import profiles
from fairlane.experiment.results import Results
from fairlane.experiment.summary import points
from fairlane.places import SCENARIOS
from fairlane.vm import fl_nvme, kernels, newer_qemu, qemu

SCRIPTS = Path(__file__).parent / "guest"
KERNEL = "6.12"
SLOWED_DOWN = 400  # so that the drive, and not the emulated CPU, is the bottleneck
TIMEOUT_S = 1800.0


def run(folder: Path, kernel: str, argv: list[object], *more: str, qemu_opts: Sequence[str] = ()) -> None:
    """That script on a Z-SSD of fl-nvme, all of which end well."""
    socket = folder / "nvme.socket"
    words = [*fl_nvme.arguments(profiles.load_profile("zssd").params), "--name=fairlane zssd", "--size=256M", *more]
    with fl_nvme.serving(fl_nvme.build(checked=True), socket, words) as drive:
        finished = qemu.run(
            [sys.executable, *map(str, argv)],
            kernels.ensure(kernel),
            folder,
            timeout_s=TIMEOUT_S,
            qemu_opts=[*fl_nvme.qemu_opts(socket), *qemu_opts],
            program=newer_qemu.ensure(),
            on_line=print,
        )
        assert drive.poll() is None, "fl-nvme ended before its client"
    assert finished.status == 0, "\n".join(finished.console[-60:])
    assert not finished.bad_dmesg, "\n".join(finished.bad_dmesg)
    assert drive.returncode == 0, "fl-nvme did not end well"


@pytest.mark.long
def test_linux_s_driver_keeps_data_and_survives_resets(tmp_path: Path) -> None:
    run(tmp_path, KERNEL, [SCRIPTS / "nvme.py"])


@pytest.mark.long
@pytest.mark.parametrize("version", kernels.nvme_versions())
def test_linux_s_driver_with_our_patches_shares_by_weight(version: str, tmp_path: Path) -> None:
    kernel = kernels.ensure(version)
    modules = kernels.build_nvme(kernel)
    run(tmp_path, version, [SCRIPTS / "wrr.py", modules], f"--time-scale={SLOWED_DOWN}")


@pytest.mark.long
@pytest.mark.parametrize("what", ["priorities", "queues", "arbitration"])
@pytest.mark.parametrize("version", kernels.nvme_versions())
def test_a_drive_that_refuses_priorities_keeps_its_disk_with_our_patches(
    version: str, what: str, tmp_path: Path
) -> None:
    modules = kernels.build_nvme(kernels.ensure(version))
    run(tmp_path, version, [SCRIPTS / "refused.py", modules], f"--lie={what}")


@pytest.mark.long
@pytest.mark.parametrize("version", kernels.nvme_versions())
def test_d2fq_is_told_of_all_requests_of_a_drive_that_has_lost_its_priorities_with_our_patches(
    version: str, tmp_path: Path
) -> None:
    modules = kernels.build_nvme(kernels.ensure(version))
    run(tmp_path, version, [SCRIPTS / "fewer.py", modules], "--lie=later")


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "works", "says"),
    [
        ((), True, "works: "),
        (("--lie=weights",), False, "weights are ignored: "),
        (("--lie=bursts",), False, "bursts count as 2^n: "),
    ],
    ids=["honest", "lies of weights", "lies of bursts"],
)
def test_a_drive_whose_wrr_does_not_work_is_found_out(words: tuple[str, ...], works: bool, says: str) -> None:
    linux, ours = wrr.in_vm(KERNEL, wrr.PROFILE, 4.0, ignore, words)
    for found in (linux, ours):
        for point in found.points:
            print(point)
        print(found.verdict)
    assert linux.verdict.says.startswith("no effect: Linux's own driver does not turn WRR on")
    assert ours.seen.driver and ours.seen.refused is None
    assert ours.verdict.works == works and ours.verdict.says.startswith(says), ours.verdict


@pytest.mark.long
@pytest.mark.parametrize("version", kernels.nvme_versions())
def test_a_host_s_drive_is_measured_as_an_operator_would(version: str, tmp_path: Path) -> None:
    """Beside fl-nvme is a drive of QEMU's, with two namespaces."""
    modules = kernels.build_nvme(kernels.ensure(version))
    beside = ["-device", "nvme,serial=beside,id=beside"]
    for number in (1, 2):
        file = tmp_path / f"namespace{number}"
        with file.open("wb") as new:
            new.truncate(64 << 20)
        beside += ["-drive", f"file={file},if=none,id={file.name},format=raw"]
        beside += ["-device", f"nvme-ns,drive={file.name},bus=beside,nsid={number}"]
    run(tmp_path, version, [SCRIPTS / "wrr_host.py", modules], f"--time-scale={wrr.SLOWER}", qemu_opts=beside)


@pytest.mark.long
def test_a_scenario_runs_on_fl_nvme_and_d2fq_shares_it(tmp_path: Path) -> None:
    text = (SCENARIOS / "d2fq" / "vm.toml").read_text()
    for was, now in {
        "time_scale = 100 ": f'device = "fl-nvme"\ntime_scale = {SLOWED_DOWN} ',
        "iodepth = 32": "iodepth = 128",  # else most of it is in the drive, which has nothing to choose from
        "warmup = 6": "warmup = 12",
    }.items():
        assert was in text
        text = text.replace(was, now)
    file = tmp_path / "on-nvme.toml"
    file.write_text(text)
    argv = ["run", str(file), "--kernel", KERNEL, "--knobs", "none,d2fq", "--out", str(tmp_path / "out")]
    assert cli.main(argv) == 0
    found = Results.load(tmp_path / "out" / "results.json")
    assert found.device["device"] == "fl-nvme" and found.device["name"].startswith("nvme")
    off = {row.knob: row.share_error for row in points(found)}
    print(off)
    assert off["d2fq"] is not None and off["none"] is not None and off["d2fq"] < off["none"] / 2
