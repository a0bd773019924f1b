# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What other processes take of this machine's CPUs, which an emulated CPU then lacks."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil


def watch() -> Callable[[], float]:
    """What says how many CPUs were busy on average, since it was last asked, but not for us or what we have started.

    A host that takes CPU time away from a machine that is virtual counts as others do.
    """
    since, before = time.monotonic(), _others_s()

    def cpus() -> float:
        nonlocal since, before
        now, used = time.monotonic(), _others_s()
        found = max(0.0, used - before) / max(now - since, 1e-3)
        since, before = now, used
        return round(found, 2)

    return cpus


def _others_s() -> float:
    """Seconds of CPU time, since the machine was booted."""
    times = psutil.cpu_times()  # of which user and nice hold what guests used
    busy = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
    return float(busy - sum(_used_s(process) for process in _ours()))


def _ours() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def _used_s(process: psutil.Process) -> float:
    try:
        return float(sum(process.cpu_times()[:4]))  # its own, and that of children that have ended
    except psutil.NoSuchProcess:
        return 0.0
