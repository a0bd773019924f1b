# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Wait until the settings may have to be applied again: a cgroup is made, somebody writes a weight, or asks for it.

cgroupfs tells inotify of what is done through it: mkdir and writes. What the kernel does by itself, nobody is told of,
nor of drives; for those, udev sends SIGHUP.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from fairlane.linux import inotify, others_weights
from fairlane.linux.inotify import Inotify
from fairlane.settings.plan import CONTROL

QUIET_S = 0.2  # changes often come several at a time
WRITTEN = (CONTROL, others_weights.LINUX, others_weights.BFQ)
SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)


def rounds(mount: Path) -> Iterator[bool]:
    """Yields at once, and then whenever there is something to do; True: also read the file again. Ends by SIGTERM."""
    with ExitStack() as stack:
        notices = stack.enter_context(Inotify())
        asked, ask = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, asked)
        stack.callback(os.close, ask)
        for number in SIGNALS:
            stack.callback(signal.signal, number, signal.signal(number, lambda *_: None))
        stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(ask))
        _tell_systemd()
        _watch(notices, mount)
        yield True
        while True:
            select.select([notices.fileno(), asked], [], [])
            time.sleep(QUIET_S)
            signals = _read(asked)
            if signals & {signal.SIGTERM, signal.SIGINT}:
                return
            events = notices.read()
            new = [event for event in events if event.mask & (inotify.CREATE | inotify.Q_OVERFLOW)]
            if new:
                _watch(notices, mount)
            if new or signals or any(event.name in WRITTEN for event in events):
                yield signal.SIGHUP in signals


def _tell_systemd() -> None:
    """That SIGHUP no longer ends us (Type=notify)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.sendto(b"READY=1", address.replace("@", "\0", 1))


def _read(pipe: int) -> set[int]:
    with suppress(BlockingIOError):
        return set(os.read(pipe, 4096))
    return set()


def _watch(notices: Inotify, mount: Path) -> None:
    """Each cgroup; those that are watched already stay so. What is made while we look, is seen or told of."""
    for cgroup in (mount, *others_weights.tree(mount)):
        with suppress(FileNotFoundError):
            notices.add_watch(cgroup, inotify.CREATE | inotify.MODIFY | inotify.ONLYDIR)
