# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Linux' NVMe driver with our patches, on an fl-nvme that says it has priorities and refuses them: it keeps its disk.

refused.py MODULES
"""

from __future__ import annotations

from pathlib import Path

import kit
import wrr

import nvme
from fairlane import proc
from fairlane.vm.guest import prepare


def refusals(since: str) -> list[str]:
    return kit.log_after(since, " refused (")


def as_linux_has_it() -> None:
    since = kit.note("our driver is loaded")
    wrr.driver("wrr=1")
    assert wrr.refuses_d2fq(), "it has no priorities"
    assert kit.log_after(since, f"fairlane: {wrr.DISK}: no d2fq: the drive has no weighted round robin arbitration")
    assert (nvme.CONTROLLER / "queue_count").read_text() == "3\n", "one for each CPU"
    nvme.data_are_verified()
    nvme.reset_under_load()
    assert wrr.refuses_d2fq(), "nor has it after resets"
    nvme.discarded_blocks_are_zeroes()
    lines = refusals(since)
    print(*lines, sep="\n", flush=True)
    assert len(lines) == 1, "it is told of once, and not asked again"
    assert not kit.log_after(since, "IO queues")


def again_for_a_driver_that_comes() -> None:
    since = kit.note("our driver is loaded again")
    Path("/sys/bus/pci/drivers/nvme/unbind").write_text((nvme.CONTROLLER / "address").read_text())
    kit.wait_for(lambda: not nvme.DISK.exists(), "the disk goes")
    wrr.driver("wrr=1")
    assert len(refusals(since)) == 1
    proc.output(["rmmod", "nvme"], what="unloading nvme", limit_s=60)


def main() -> None:
    proc.modprobe("nvme")
    nvme.wait_for(nvme.DISK)
    prepare(wrr.MODULES)
    kit.sections(as_linux_has_it, again_for_a_driver_that_comes)


if __name__ == "__main__":
    main()
