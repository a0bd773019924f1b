# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: one torture script after the other, to share a boot. Arguments: the modules' folder, the scripts' names."""

import runpy
import sys
from pathlib import Path

names = sys.argv[2:]
del sys.argv[2:]  # a script takes them for the parts of it to run
for name in names:
    print(f"-- {name}", flush=True)
    runpy.run_path(str(Path(__file__).with_name(f"torture_{name}.py")))
