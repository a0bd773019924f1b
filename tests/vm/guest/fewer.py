# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Linux' NVMe driver with our patches, on an fl-nvme that has too few queues for priorities after its first reset.

fewer.py MODULES
"""

from __future__ import annotations

from pathlib import Path

import kit
import wrr
from kit import Cgroup, Fio

import nvme
from fairlane import proc
from fairlane.vm.guest import prepare


def a_reset_leaves_one_submission_queue_for_each_completion_queue() -> None:
    since = kit.note("our driver is loaded")
    wrr.driver("wrr=1")
    assert not wrr.refuses_d2fq(), "it has priorities"
    (nvme.CONTROLLER / "reset_controller").write_text("1")
    kit.wait_for(lambda: (nvme.CONTROLLER / "state").read_text() == "live\n", "it is back")
    assert kit.log_after(since, "too few submission queues for several priorities")
    assert "[d2fq]" in wrr.CHOICE.read_text(), "the scheduler stays"


def the_scheduler_is_told_of_every_request() -> None:
    Path("/sys/block", wrr.DISK, "queue/nomerges").write_text("2")
    for batch in (1, 16):
        cgroup = Cgroup(100)
        deep = {"ioengine": "libaio", "iodepth": 64, "iodepth_batch_submit": batch, "iodepth_batch_complete_min": batch}
        fio = Fio(wrr.DISK, cgroup, **deep, rw="randread", size="16M", loops=1)
        sent, counted = fio.finish(), cgroup.requests(wrr.DISK)
        print(f"submitted {batch} at a time: {sent} reads, {counted} counted", flush=True)
        assert counted == sent
        cgroup.remove()


def it_can_be_left() -> None:
    wrr.CHOICE.write_text("none")
    assert "[none]" in wrr.CHOICE.read_text()
    nvme.data_are_verified()


def main() -> None:
    proc.modprobe("nvme")
    nvme.wait_for(nvme.DISK)
    prepare(wrr.MODULES)
    kit.sections(
        a_reset_leaves_one_submission_queue_for_each_completion_queue,
        the_scheduler_is_told_of_every_request,
        it_can_be_left,
    )


if __name__ == "__main__":
    main()
