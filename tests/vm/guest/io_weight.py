# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM whose kernel has no io.cost: io.weight is ours, and counts without a service.

io_weight.py MODULES
"""

from __future__ import annotations

import os
from pathlib import Path

import kit
from kit import Cgroup
from two_tenants import REQUESTS, beside_none, drives, is_shared, load, under_ours, wait_both_do_io

from fairlane.vm.guest import CGROUPS

WEIGHTS = (300, 100)


def main() -> None:
    os.nice(-15)  # what looks must not wait for what is looked at
    assert not (CGROUPS / "io.cost.qos").exists(), "this kernel has no io.cost"
    cgroups = [Cgroup() for _ in WEIGHTS]
    files = [cgroup.path / "io.weight" for cgroup in cgroups]
    assert [file.read_text() for file in files] == ["default 100\n"] * 2
    for file, weight in zip(files, WEIGHTS, strict=True):
        file.write_text(f"default {weight}")  # as systemd does
    assert files[0].read_text() == "default 300\n"
    with drives() as disks, load(cgroups, [Path("/dev", disks[0])] * 2, rw="randread", bs="4k", direct=1):
        wait_both_do_io(disks, cgroups)
        is_shared(beside_none("io.weight of 300 and 100", disks, cgroups))
        for cgroup in cgroups:
            cgroup.file("weight").write_text("100")
        equal = under_ours(disks, [cgroup.path for cgroup in cgroups], REQUESTS).share
        print(f"io.fairlane.weight of 100 each: heavy gets {equal:.3f}", flush=True)
        assert abs(equal - 0.5) < 0.1, "io.fairlane.weight counts if it was set"
        for cgroup in cgroups:
            cgroup.file("weight").write_text("default")
        is_shared(beside_none("io.weight again", disks, cgroups))
    for cgroup in cgroups:
        cgroup.remove()
    kit.all_given_back()


if __name__ == "__main__":
    main()
