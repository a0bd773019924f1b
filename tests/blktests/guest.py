# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM, for run.py: CHECKOUT, the folder with the kernel's configuration, seconds, and the names of tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fairlane import proc, schedulers
from fairlane.experiment.model import Profile
from fairlane.linux import made_drives

checkout, boot, seconds, *tests = sys.argv[1:]
OURS = schedulers.ELEVATORS[0]
CONFIGFS = Path("/sys/kernel/config")

# The suite looks for the kernel's options there.
proc.output(["mount", "--bind", boot, "/boot"], what="showing the kernel's configuration", limit_s=10)
# And takes it for granted that this is mounted, where it makes its drives.
proc.output(["modprobe", "configfs"], what="loading configfs", limit_s=10)
if not CONFIGFS.is_mount():  # where it is built in, it is there
    proc.output(["mount", "-t", "configfs", "none", CONFIGFS], what="mounting configfs", limit_s=10)
# And that what a SCSI drive needs is loaded when one comes, as udev does.
proc.modprobe("sd_mod")
with made_drives.setup(Profile("blktests", "qemu-nvme", "", {})) as disk:
    scheduler = Path("/sys/block", disk, "queue/scheduler")
    if OURS in scheduler.read_text():
        scheduler.write_text(OURS)
    print(f"{disk}: {scheduler.read_text().strip()}", flush=True)
    with tempfile.NamedTemporaryFile("w", suffix=".config") as config:
        config.write(f"TEST_DEVS=(/dev/{disk})\nTIMEOUT={seconds}\n")
        config.flush()
        argv = ["./check", "-c", config.name, "-o", f"{os.environ['FAIRLANE_SHARED']}/results", *tests]
        status = subprocess.run(argv, cwd=checkout, stderr=subprocess.STDOUT, check=False).returncode
sys.exit(status)
