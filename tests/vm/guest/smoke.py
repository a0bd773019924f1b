# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: the machine is as the tests expect it, and each kind of drive can be made, used and made again."""

import os
import sys
from pathlib import Path

from fairlane.experiment import profiles
from fairlane.linux import made_drives

clock = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource").read_text().strip()
controllers = Path("/sys/fs/cgroup/cgroup.subtree_control").read_text().split()
print("uptime", Path("/proc/uptime").read_text().split()[0], file=sys.stderr)
print("release", os.uname().release)
print("clock", clock)
print("cpus", os.cpu_count())
print("io", "io" in controllers)

for name in sys.argv[1:]:
    for _ in range(2):
        with made_drives.setup(profiles.load_profile(name)) as disk:
            queue = Path("/sys/block", disk, "queue")
            offered = set(queue.joinpath("scheduler").read_text().replace("[", "").replace("]", "").split())
            with Path("/dev", disk).open("rb") as device:
                read = len(device.read(4096))
            hardware_queues = len(list(Path("/sys/block", disk, "mq").iterdir()))
            print("drive", name, disk, read, hardware_queues, sorted({"mq-deadline", "kyber", "bfq"} - offered))
    assert not Path("/sys/block", disk).exists(), f"{disk} is still there"
