# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Linux's inotify(7), through the C library.

Of Python's bindings, Debian has none that is kept up and has a descriptor that select() can wait for.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import NamedTuple

MODIFY, CREATE, Q_OVERFLOW, ONLYDIR = 0x2, 0x100, 0x4000, 0x0100_0000  # of <sys/inotify.h>
HEAD = struct.Struct("iIII")  # struct inotify_event: watch, mask, cookie, and how long the name after it is
BUFFER = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)


class Event(NamedTuple):
    mask: int
    name: str  # within the folder that is watched


class Inotify:
    """A context manager; fileno() becomes readable when there are events."""

    def __init__(self) -> None:
        self._fd = _done(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify")

    def __enter__(self) -> Inotify:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def fileno(self) -> int:
        return self._fd

    def add_watch(self, path: Path, mask: int) -> None:
        """Raises OSError; FileNotFoundError when it is no longer there. What is watched already stays so."""
        _done(_libc.inotify_add_watch(self._fd, os.fsencode(path), ctypes.c_uint32(mask)), str(path))

    def read(self) -> list[Event]:
        """All that has happened since; none is no error."""
        events: list[Event] = []
        while True:
            try:
                data = os.read(self._fd, BUFFER)
            except BlockingIOError:
                return events
            while data:
                _, mask, _, length = HEAD.unpack_from(data)
                end = HEAD.size + length
                events.append(Event(mask, os.fsdecode(data[HEAD.size : end].rstrip(b"\0"))))
                data = data[end:]


def _done(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result
