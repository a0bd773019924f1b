# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Reading what the schedulers count, over and over, at a bounded cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fairlane.linux import contention
from fairlane.linux.stat_files import Cgroups, Reading

CPU_PART = 0.02  # of one CPU: with thousands of cgroups, readings are further apart


def spans(mount: Path, interval_s: float, wait: Callable[[float], None] = time.sleep) -> Iterator[list[Reading]]:
    """For each interval its readings, of which the first and the last are full; the last is the next one's first.

    After a reading comes none for as long as makes it CPU_PART of the time, even if the interval becomes longer by it.
    @wait is called with how long to wait in s, over and over.
    """
    cgroups = Cgroups(mount)

    def read(fully: bool) -> tuple[Reading, float]:
        """And how long after it the next one comes."""
        began_s = time.monotonic()
        found = cgroups.read(fully=fully)
        return found, max(contention.EVERY_S, (time.monotonic() - began_s) / CPU_PART)

    last, apart_s = read(True)
    while True:
        readings = [last]
        end_s = last.at_s + max(interval_s, apart_s)
        while (left_s := end_s - time.monotonic()) > 0:
            wait(min(left_s, apart_s))
            if end_s - time.monotonic() < apart_s / 2:
                break
            found, apart_s = read(False)
            readings.append(found)
        wait(max(0.0, end_s - time.monotonic()))
        last, apart_s = read(True)
        readings.append(last)
        yield readings
