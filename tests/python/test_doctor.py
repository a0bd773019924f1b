# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane doctor` says of a host what it found and what to do. Files play the machine."""

from __future__ import annotations

import lzma
import mmap
from pathlib import Path

import pytest

from fairlane.linux import host_checks
from fairlane.linux.host_checks import SECURE_BOOT, SIGNED, Check

RELEASE = "6.12.9-amd64"
DRIVE = {
    "sys/block/nvme0n1/device/model": "Fast SSD",
    "sys/block/nvme0n1/queue/nr_requests": "1023",
    "sys/block/nvme0n1/queue/scheduler": "[none] mq-deadline",
    "sys/block/nvme0n1/queue/write_cache": "write back",
    "sys/block/nvme0n1/queue/rotational": "0",
    "sys/block/nvme0n1/queue/iostats": "1",
    "sys/block/nvme0n1/mq/0/cpu_list": "0",
    "sys/block/nvme0n1/mq/1/cpu_list": "1",
}
GOOD = {
    **DRIVE,
    f"lib/modules/{RELEASE}/build/Makefile": "",
    f"lib/modules/{RELEASE}/updates/fairlane.ko": "code",
    "usr/src/linux-source-6.12.tar.xz": "",
    "sys/kernel/security/lockdown": "[none] integrity confidentiality",
    "sys/module/module/parameters/sig_enforce": "N",
    "sys/fs/cgroup/cgroup.controllers": "cpu io memory",
    "sys/fs/cgroup/cgroup.subtree_control": "cpu io memory",
    "sys/block/loop0/queue/nr_requests": "128",
    "sys/block/loop0/queue/write_cache": "write back",
}


def said(root: Path, files: dict[str, str], release: str = RELEASE) -> dict[str, Check]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return {check.name: check for check in host_checks.checks(release, ("6.1", "6.12", "7.3"), root)}


def registers(root: Path, cap: int) -> None:
    path = root / "sys/block/nvme0n1/device/device/resource0"
    path.parent.mkdir(parents=True)
    path.write_bytes(cap.to_bytes(8, "little").ljust(mmap.PAGESIZE, b"\0"))


DPKG = """\
Package: linux-headers-6.12.9-amd64
Status: install ok installed
Maintainer: nobody
Architecture: amd64
Source: linux
Version: 6.12.9-1
Description: headers

Package: linux-source-6.12
Status: install ok installed
Maintainer: nobody
Architecture: all
Source: linux
Version: {}
Description: source
"""


def test_the_kernels_source_is_of_the_very_version_of_its_headers(tmp_path: Path) -> None:
    assert said(tmp_path, {**GOOD, "var/lib/dpkg/status": DPKG.format("6.12.9-1")})["kernel source"].ok
    found = said(tmp_path, {"var/lib/dpkg/status": DPKG.format("6.12.10-1")})["kernel source"]
    assert not found.ok and "is of 6.12.10-1, and this kernel of 6.12.9-1" in found.detail
    assert found.todo == "apt-get install linux-source-6.12=6.12.9-1"
    kept = {"var/lib/fairlane-dkms/linux-source-6.12-6.12.9-1/Makefile": ""}
    assert said(tmp_path, kept)["kernel source"].ok, "DKMS has kept what it needs"


def test_of_a_host_that_has_all_each_line_is_well(tmp_path: Path) -> None:
    registers(tmp_path, 1 << 17 | 0x3FF)
    found = said(tmp_path, GOOD)
    assert [name for name, check in found.items() if not check.ok] == []
    assert found["nvme0n1"].detail == "Fast SSD, 2 hardware queues, none"
    assert found["nvme0n1 WRR"].detail == "the drive has it"
    assert found["module signing"].detail == "not enforced; Secure Boot is off"
    assert not any("loop" in name for name in found), "only drives"


def test_what_a_bare_host_lacks_is_said_with_what_to_do(tmp_path: Path) -> None:
    found = said(tmp_path, {"sys/fs/cgroup/cgroup.controllers": "cpu"}, "5.10.0-30-amd64")
    assert "supported are 6.1, 6.12, 7.3" in found["running kernel"].todo
    assert found["headers"].todo == "apt-get install linux-headers-5.10.0-30-amd64"
    assert found["kernel source"].todo == "apt-get install linux-source-5.10"
    assert "not installed for 5.10.0-30-amd64" in found["our modules"].detail
    assert "cgroup_no_v1=io" in found["io controller"].todo
    assert "buffered writes" in found["memory controller"].detail
    assert "io in cgroups" not in found
    bad = [check for check in found.values() if not check.ok]
    assert len(bad) == 6 and all(check.todo for check in bad)


def test_the_source_of_another_kernel_is_not_taken_for_this_one_s(tmp_path: Path) -> None:
    files = {"usr/src/linux-source-6.12.tar.xz": "", "usr/src/linux-source-6.12/Makefile": ""}
    assert not said(tmp_path, files, "6.1.0-56-amd64")["kernel source"].ok
    assert said(tmp_path, files, "6.12.118+deb13-amd64")["kernel source"].ok


def test_nobody_is_told_to_install_a_package_that_debian_does_not_have(tmp_path: Path) -> None:
    for release in ("6.12.0-custom", "6.8.0-45-generic", "6.11.4-301.fc41.x86_64"):
        found = said(tmp_path, {}, release)
        for name in ("headers", "kernel source"):
            assert "not Debian's" in found[name].todo and "apt-get" not in found[name].todo


def test_cgroups_of_the_old_kind_and_a_controller_that_nobody_has(tmp_path: Path) -> None:
    assert "unified_cgroup_hierarchy" in said(tmp_path / "v1", {})["cgroup v2"].todo
    found = said(tmp_path / "v2", {**GOOD, "sys/fs/cgroup/cgroup.subtree_control": "cpu"})
    assert "DefaultIOAccounting" in found["io in cgroups"].todo


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"sys/module/module/parameters/sig_enforce": "Y"}, "module.sig_enforce"),
        ({"sys/kernel/security/lockdown": "none [integrity] confidentiality"}, "lockdown is integrity"),
    ],
)
def test_a_kernel_that_takes_only_signed_modules(tmp_path: Path, files: dict[str, str], why: str) -> None:
    boot = tmp_path / "sys/firmware/efi/efivars" / SECURE_BOOT
    boot.parent.mkdir(parents=True)
    boot.write_bytes(b"\6\0\0\0\1")
    check = said(tmp_path, {**GOOD, **files})["module signing"]
    assert not check.ok and check.detail == f"enforced ({why}; Secure Boot is on)" and "sign our modules" in check.todo
    plain = tmp_path / f"lib/modules/{RELEASE}/updates/fairlane.ko"
    plain.write_bytes(b"code" + SIGNED)
    plain.with_suffix(".ko.xz").write_bytes(lzma.compress(b"code" + SIGNED))
    check = {each.name: each for each in host_checks.checks(RELEASE, (), tmp_path)}["module signing"]
    assert not check.ok and "our modules are signed" in check.detail and "trusted" in check.todo
    assert said(tmp_path, {"sys/module/fairlane/refcnt": "0"})["module signing"].ok


def test_who_else_sets_drives_and_weights(tmp_path: Path) -> None:
    found = said(
        tmp_path,
        {
            **GOOD,
            "etc/udev/rules.d/60-io.rules": 'ACTION=="add", ATTR{queue/scheduler}="bfq"',
            "etc/tuned/active_profile": "mine",
            "etc/tuned/profiles/mine/tuned.conf": "[disk]\nelevator=kyber",
            "sys/fs/cgroup/io.cost.qos": "259:0 enable=1 ctrl=auto",
            "sys/fs/cgroup/a.service/io.weight": "default 300",
            "sys/block/nvme0n1/queue/scheduler": "none [bfq]",
        },
    )
    assert "60-io.rules" in found["udev's rules"].detail and "tuned.conf" in found["tuned"].detail
    assert found["io.cost"].detail == "259:0" and found["bfq"].detail == "nvme0n1"
    assert found["weights of others"].detail == "a.service counts as 300 (systemd)"
    for name in ("udev's rules", "tuned", "io.cost", "bfq"):
        assert not found[name].ok and found[name].todo


def test_of_a_drive_what_bears_on_our_schedulers(tmp_path: Path) -> None:
    registers(tmp_path, 0x3FF)
    files = {
        **GOOD,
        "sys/block/nvme0n1/queue/iostats": "0",
        "sys/block/sda/queue/nr_requests": "64",
        "sys/block/sda/queue/rotational": "1",
        "proc/fairlane": "drive nvme0n1 number 259:0 diskseq 3 place queue scheduler mqfq at 1\nreason it has failed",
    }
    found = said(tmp_path, files, "6.1.0-56-amd64")
    assert "O_DSYNC" in found["nvme0n1 write cache"].todo and found["sda write cache"].ok
    assert "iostats" in found["nvme0n1 iostats"].todo
    assert "d2fq" in found["nvme0n1 WRR"].todo and "sda WRR" not in found
    assert "mqfq has failed on it" in found["nvme0n1"].detail and "report-bug" in found["nvme0n1"].todo
    assert "it rotates" in found["sda"].detail and not found["sda"].ok
    (tmp_path / "sys/block/nvme0n1/device/device/resource0").unlink()
    unknown = {each.name: each for each in host_checks.checks(RELEASE, (), tmp_path)}["nvme0n1 WRR"]
    assert not unknown.ok and "root" in unknown.todo and "iomem=relaxed" in unknown.todo
