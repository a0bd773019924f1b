# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""How fast this machine's time stamp counter runs. QEMU's emulation has its guests read the same counter."""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform
import time

READ = bytes.fromhex("0f31 48c1e220 4809d0 c3")  # rdtsc; shl rdx, 32; or rax, rdx; ret
MEASURED_S = 0.05
TRIES = 50  # of which the quickest counts, as somebody else may have the CPU in between


@functools.cache
def khz() -> int | None:
    """Measured against the clock, right to a ten thousandth; None where there is no such counter."""
    if platform.machine() != "x86_64":
        return None
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as code:
        code.write(READ)
        start = ctypes.c_char.from_buffer(code)
        read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(start))

        def both() -> tuple[int, int]:
            """ns and the counter, at the same time."""
            found = []
            for _ in range(TRIES):
                before, count, after = time.monotonic_ns(), read(), time.monotonic_ns()
                found.append((after - before, before, count))
            _, at, count = min(found)
            return at, count

        first = both()
        time.sleep(MEASURED_S)
        last = both()
        del start  # else the memory cannot be given back
    return round((last[1] - first[1]) * 1_000_000 / (last[0] - first[0]))
