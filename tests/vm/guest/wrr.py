# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Linux' NVMe driver with our patches, on fl-nvme: priorities, shares, and data that are verified through resets.

wrr.py MODULES [SECTION...]
"""

from __future__ import annotations

import errno
import sys
import time
from functools import partial
from pathlib import Path

import kit
from kit import Cgroup, Fio

import nvme
from fairlane import proc
from fairlane.linux.nvme import Controller
from fairlane.vm.guest import prepare

MODULES = Path(sys.argv[1])
DRIVER = MODULES / "nvme" / "nvme.ko"
DISK = nvme.DISK.name
CHOICE = Path("/sys/block", DISK, "fairlane/scheduler")
WEIGHTS = (8, 6, 4, 2)
WARM, COUNTED = 10_000, 8000  # requests; d2fq changes its weights once in a second, for some 1,000 of them
OPERATORS = 0x07050303  # weights 8:6:4, bursts of 8


def driver(*parameters: str) -> None:
    """Our driver in the place of the one that is loaded, once Linux has looked at its disk."""
    kit.wait_for(lambda: Path("/sys/module/nvme/refcnt").read_text() == "0\n", "nobody uses nvme")
    proc.output(["rmmod", "nvme"], what="unloading nvme", limit_s=60)
    proc.output(["insmod", DRIVER, *parameters], what="loading our nvme", limit_s=60)
    nvme.wait_for(CHOICE)


def refuses_d2fq() -> bool:
    """To whoever asks for it all the same: it is not offered."""
    try:
        CHOICE.write_text("d2fq")
    except OSError as error:
        assert error.errno == errno.EOPNOTSUPP, error
        assert "d2fq" not in CHOICE.read_text().split()
        return True
    return False


def without_priorities_there_is_no_d2fq() -> None:
    """Linux' own driver, and ours without its parameter."""
    assert refuses_d2fq(), "Linux' own driver has no priorities"
    driver()
    assert refuses_d2fq(), "ours has none, unless it is told to"
    assert (nvme.CONTROLLER / "queue_count").read_text() == "3\n"


def weights_are_given_back() -> None:
    """Those that an operator has set, and after a reset nobody's."""
    driver("wrr=1")
    controller = Controller(DISK)
    own = controller.arbitration
    for before in (own, OPERATORS, OPERATORS):
        controller.arbitration = before
        CHOICE.write_text("d2fq")
        kit.wait_for(lambda: controller.arbitration not in (own, OPERATORS), "the scheduler sets weights")
        CHOICE.write_text("none")
        kit.wait_for(partial(lambda was: controller.arbitration == was, before), "what was there before is set again")
    (nvme.CONTROLLER / "reset_controller").write_text("1")
    time.sleep(2)
    assert controller.arbitration == own, "they are the controller's own after a reset"


def weights_are_kept() -> None:
    driver("wrr=1")
    none = off("none")
    CHOICE.write_text("d2fq")
    ours = off("d2fq")
    assert ours < none / 2, f"of the drive, {ours:.3f} is not whose it should be, and {none:.3f} with none"


def reads(cgroup: Cgroup) -> int:
    """That Linux counts for it."""
    words = (cgroup.path / "io.stat").read_text().split()
    return sum(int(word.removeprefix("rios=")) for word in words if word.startswith("rios="))


def off(scheduler: str) -> float:
    """How much of the drive went to others than weights say; four tenants, all of them deep in their queues."""
    cgroups = [Cgroup(weight * 100) for weight in WEIGHTS]
    load = {"ioengine": "libaio", "iodepth": 128, "numjobs": 2, "rw": "randread", "bs": "8k"}
    fios = [Fio(DISK, cgroup, **load) for cgroup in cgroups]

    def done() -> list[int]:
        return [reads(cgroup) for cgroup in cgroups]

    kit.wait_for(lambda: sum(done()) > WARM, f"{WARM} reads under {scheduler}")
    before, began = done(), time.monotonic()
    kit.wait_for(lambda: sum(done()) > sum(before) + COUNTED, f"{COUNTED} reads under {scheduler}")
    counted = [now - was for now, was in zip(done(), before, strict=True)]
    print(f"{scheduler}: {counted}, {sum(counted) / (time.monotonic() - began):.0f} IOPS", flush=True)
    for fio in fios:
        fio.stop()
    for cgroup in cgroups:
        cgroup.remove()
    due = [weight / sum(WEIGHTS) for weight in WEIGHTS]
    return sum(abs(count / sum(counted) - want) for count, want in zip(counted, due, strict=True)) / 2


def data_survive_resets_and_weights_do() -> None:
    """A scheduler that puts requests into three queues, whose commands a reset cuts short."""
    period = CHOICE.with_name("period_nsec")
    period.write_text(str(100 * 10**9))  # it sets no weights of its own accord
    nvme.data_are_verified()
    controller = Controller(DISK)
    weights = controller.arbitration
    assert weights >> 8, "the scheduler has set weights"
    (nvme.CONTROLLER / "reset_controller").write_text("1")
    kit.wait_for(lambda: controller.arbitration == weights, "they are set after a reset")
    nvme.reset_under_load()
    assert controller.arbitration >> 8
    nvme.discarded_blocks_are_zeroes()


def the_driver_goes_while_a_scheduler_is_chosen() -> None:
    fio = Fio(DISK, ioengine="libaio", iodepth=64, rw="randread")
    kit.wait_flow(DISK, "before the driver goes")
    unbind = Path("/sys/bus/pci/drivers/nvme/unbind")
    unbind.write_text((nvme.CONTROLLER / "address").read_text())
    kit.wait_for(lambda: not CHOICE.exists(), "the disk goes")
    fio.end()
    proc.output(["rmmod", "nvme"], what="unloading nvme", limit_s=60)


def main() -> None:
    proc.modprobe("nvme")
    nvme.wait_for(nvme.DISK)
    prepare(MODULES)
    kit.sections(
        without_priorities_there_is_no_d2fq,
        weights_are_given_back,
        weights_are_kept,
        data_survive_resets_and_weights_do,
        the_driver_goes_while_a_scheduler_is_chosen,
    )


if __name__ == "__main__":
    main()
