# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: one torture script after the other, to share a boot.

Arguments: the modules' folder, then the names of scripts, each with its parts if not all are to run
(switching:drive_removed,depth_and_cpus_change). A word @NAME says which scheduler is under test from there on,
+vssd that the drive is a virtual SSD, +briefly that everything is done less often.
"""

import os
import subprocess
import sys
from pathlib import Path

modules, *words = sys.argv[1:]
for word in words:
    print(f"-- {word}", flush=True)
    if word.startswith("@"):
        os.environ["FAIRLANE_TORTURED"] = word[1:]
        continue
    if word == "+briefly":
        os.environ["FAIRLANE_TORTURED_BRIEFLY"] = "1"
        continue
    if word == "+vssd":
        os.environ["FAIRLANE_TORTURED_DRIVE"] = "vssd"
        continue
    name, _, parts = word.partition(":")
    script = Path(__file__).with_name(f"torture_{name}.py")
    subprocess.run([sys.executable, script, modules, *filter(None, parts.split(","))], check=True)
