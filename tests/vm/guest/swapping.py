# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A process in a cgroup that uses more memory than that has, so that it swaps.

Each of its threads waits for one page at a time, like a program that has been swapped out.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import random
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import kit
from kit import Cgroup, run

MIB = 1 << 20
MEMORY = 16 * MIB  # of the cgroup
SIZE = 40 * MIB
THREADS = 20
PART = SIZE // THREADS
_libc = ctypes.CDLL(None)  # without Python's lock, which a thread that waits for a page would keep from the others
_libc.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
_libc.memchr.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
Use = Callable[[int, int], None]  # of the memory that begins there, by that thread; once, to be called again and again


def _some_page() -> int:
    return random.randrange(0, SIZE, mmap.PAGESIZE)


def read_back(memory: int, _thread: int) -> None:
    """What is read was written to swap space once, and need not be again."""
    _libc.memchr(memory + _some_page(), 0, 1)


def read_back_and_change(memory: int, _thread: int) -> None:
    """So for each page that is read, another one is written."""
    _libc.memset(memory + _some_page(), random.randrange(1, 256), 1)


def forget_and_change(memory: int, thread: int) -> None:
    """Nothing is read back: the page is a new one."""
    page = memory + thread * PART + random.randrange(0, PART, mmap.PAGESIZE)
    _libc.madvise(page, mmap.PAGESIZE, mmap.MADV_DONTNEED)
    _libc.memset(page, 1, mmap.PAGESIZE)


@contextlib.contextmanager
def swap(device: Path) -> Iterator[None]:
    """Swap space there. A page at a time is read back: reading ahead would count as the tenant's, too."""
    cluster = Path("/proc/sys/vm/page-cluster")
    before = cluster.read_text()
    cluster.write_text("0")
    run("mkswap", device)
    run("swapon", device)
    try:
        yield
    finally:
        run("swapoff", device)
        cluster.write_text(before)


def _work(cgroup: Cgroup, use: Use, filled: mmap.mmap) -> NoReturn:
    try:
        (cgroup.path / "cgroup.procs").write_text("0")
        os.nice(15)
        memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        _libc.memset(start, 1, SIZE)  # a page of zeros would not be written

        def again_and_again(thread: int) -> None:
            while True:
                use(start, thread)

        filled[0] = 1
        threads = [threading.Thread(target=again_and_again, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


@contextlib.contextmanager
def swapping(cgroup: Cgroup, use: Use) -> Iterator[None]:
    """Threads there that use its memory in that way, once all of it was written to."""
    (cgroup.path / "memory.max").write_text(str(MEMORY))
    filled = mmap.mmap(-1, mmap.PAGESIZE)
    pid = os.fork()
    if pid == 0:
        _work(cgroup, use, filled)
    try:
        kit.wait_for(lambda: filled[0], "it has written to all its memory")
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        assert kit.exit_code(pid, "a killed process ends") == -signal.SIGKILL
    events = dict(line.split() for line in (cgroup.path / "memory.events").read_text().splitlines())
    assert events["oom_kill"] == "0", f"Linux killed it for its memory: {events}"
