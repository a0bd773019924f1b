# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Reading what the schedulers count, over and over, at a bounded cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fairlane.linux import contention, stat_files
from fairlane.linux.stat_files import Reading

CPU_PART = 0.02  # of one CPU: with thousands of cgroups, readings are further apart


def spans(mount: Path, interval_s: float, wait: Callable[[float], None] = time.sleep) -> Iterator[list[Reading]]:
    """For each interval its readings, of which the first and the last are full; the last is the next one's first.

    After a reading comes none for as long as makes it CPU_PART of the time, even if the interval becomes longer by it.
    @wait is called with how long to wait in s, over and over.
    """
    last = stat_files.read(mount)
    apart_s = _apart_s(last)
    while True:
        readings = [last]
        end_s = last.at_s + max(interval_s, apart_s)
        while (left_s := end_s - time.monotonic()) > 0:
            wait(min(left_s, apart_s))
            if end_s - time.monotonic() < apart_s / 2:
                break
            readings.append(stat_files.read(mount, fully=False))
            apart_s = _apart_s(readings[-1])
        wait(max(0.0, end_s - time.monotonic()))
        last = stat_files.read(mount)
        apart_s = _apart_s(last)
        readings.append(last)
        yield readings


def _apart_s(just: Reading) -> float:
    """From that reading, which has just been done, to the next."""
    return max(contention.EVERY_S, (time.monotonic() - just.at_s) / CPU_PART)
