# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A Debian of its own, made by mmdebstrap from where this machine gets its packages. For root.

What is mounted is so in a namespace of its own, and gone however it ends.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fairlane import proc
from fairlane.vm import packages

STEP_S = 3600.0
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
BOOTSTRAP = ["mmdebstrap", "--mode=root", "--variant=apt"]
# A shell in the root in $2; $3 is what it does.
ENTER = """
mount -t proc proc "$2/proc"
mount --rbind /dev "$2/dev"
cp /etc/resolv.conf "$2/etc/resolv.conf"
exec chroot "$2" sh -ec "$3"
"""


def need(*tools: str) -> None:
    missing = [tool for tool in tools if not shutil.which(tool, path=f"{os.environ['PATH']}:{PATH}")]
    if os.geteuid() or missing:
        pytest.fail(f"this test is for root, with {', '.join(tools)} installed (missing: {missing})")


def sources(folder: Path, *suites: str) -> Path:
    """apt's file of them."""
    file = folder / "sources.list"
    file.write_text(packages.other_suites(packages.archives(), suites))
    return file


def apart(script: str, *args: str, limit_s: float = STEP_S) -> str:
    """What the script printed, with mounts and processes that end with it."""
    argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", script, *args]
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root", "LC_ALL": "C", "PATH": PATH}
    return proc.output(argv, what="in a Debian of its own", limit_s=limit_s, env=env)
