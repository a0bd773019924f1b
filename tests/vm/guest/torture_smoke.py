# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: the machine is as the tests expect it, and each kind of drive can be made, used and made again.

Each of our schedulers, but those for drives with classes of queues, can be chosen, has what is read go through it, and
can be put away. The arguments: the modules' folder, then the drives.
"""

import os
import sys
from pathlib import Path

from fairlane import schedulers
from fairlane.experiment import profiles
from fairlane.linux import made_drives, queue
from fairlane.vm import qemu

clock = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource").read_text().strip()
controllers = Path("/sys/fs/cgroup/cgroup.subtree_control").read_text().split()
print("uptime", Path("/proc/uptime").read_text().split()[0], file=sys.stderr)
print("release", os.uname().release)
print("clock", clock)
assert os.cpu_count() == qemu.CPUS
assert "io" in controllers


def requests(disk: str) -> int:
    """That our scheduler has seen of the root cgroup."""
    line = next(line for line in Path("/sys/fs/cgroup/io.fairlane.stat").read_text().splitlines() if " rios=" in line)
    return int(line.partition(" rios=")[2].split()[0])


def try_ours(disk: str, name: str) -> None:
    for scheduler in schedulers.SCHEDULERS:
        if scheduler.host == "ROUTER":
            continue
        with queue.scheduler(disk, scheduler.name, queue.QUEUE if scheduler.host == "ELEVATOR" else queue.ROUTED):
            before = requests(disk)
            with Path("/dev", disk).open("rb") as device:
                os.posix_fadvise(device.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                assert len(device.read(4096)) == 4096
            assert requests(disk) > before, f"{scheduler.name} saw nothing of what was read"
        print("ours", name, scheduler.name)


for name in sys.argv[2:]:
    for again in (False, True):
        with made_drives.setup(profiles.load_profile(name)) as disk:
            assert {"mq-deadline", "kyber", "bfq"} <= set(queue.schedulers(disk)), "all schedulers"
            with Path("/dev", disk).open("rb") as device:
                assert len(device.read(4096)) == 4096
            assert len(list(Path("/sys/block", disk, "mq").iterdir())) == qemu.CPUS, "a hardware queue per CPU"
            if not again:
                try_ours(disk, name)
    assert not Path("/sys/block", disk).exists(), f"{disk} is still there"
