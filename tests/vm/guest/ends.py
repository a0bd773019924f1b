# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: come to the end that the argument names."""

import sys
import time
from pathlib import Path

print("about to", sys.argv[1], flush=True)
match sys.argv[1]:
    case "panic":
        Path("/proc/sysrq-trigger").write_text("c")
    case "hang":
        time.sleep(3600)
    case "fail":
        Path("/dev/kmsg").write_text("<4>BUG: fairlane's own test of the log's check\n")
        sys.exit("no such luck")
