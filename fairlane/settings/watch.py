# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Wait until the settings may have to be applied again: a cgroup is made, somebody writes a weight, or asks for it.

cgroupfs tells inotify of what is done through it: mkdir and writes. What the kernel does by itself, nobody is told of,
nor of drives; for those, udev sends SIGHUP.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path

from fairlane.linux import inotify, others_weights
from fairlane.linux.inotify import Inotify
from fairlane.settings.plan import CONTROL, LATENCY, WEIGHT

QUIET_S = 0.2  # changes often come several at a time
AGAIN_S = 10.0  # after a round that failed, and where not all cgroups can be watched
# Rounds take that part of one CPU, and so much of it at once: with thousands of cgroups that come and go, they are
# further apart, up to AGAIN_S.
CPU_PART, CPU_BURST_S = 0.05, 3.0
WRITTEN = (CONTROL, others_weights.LINUX, others_weights.BFQ, WEIGHT, LATENCY)
ENDING = {signal.SIGTERM, signal.SIGINT}
LIMITS = {errno.ENOSPC: "fs.inotify.max_user_watches", errno.EMFILE: "fs.inotify.max_user_instances"}


def rounds(
    mount: Path, failed: Callable[[], bool] = lambda: False, lacks: Callable[[], bool] = lambda: False
) -> Iterator[bool]:
    """Yields at once, and then whenever there is something to do; True: also read the file again. Ends by SIGTERM.

    failed: whether the last round did. The next one is then AGAIN_S later, whatever comes but a signal: what a failed
    round has written and put back is told of, too.
    lacks: whether something was refused that may be taken another time, of which nobody is told: the next one is
    AGAIN_S later at the latest.
    """
    with ExitStack() as stack:
        asked, ask = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, asked)
        stack.callback(os.close, ask)
        for number in (signal.SIGHUP, *ENDING):
            stack.callback(signal.signal, number, signal.signal(number, lambda *_: None))
        stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(ask))
        watched = _Cgroups(mount, stack)
        signals = {int(signal.SIGHUP)}
        spare_s, ended_s, told = CPU_BURST_S, time.monotonic(), False
        while True:
            began_s = time.thread_time()
            yield signal.SIGHUP in signals
            if not told and _tell_systemd():
                signals = {int(signal.SIGHUP)}  # what was asked for before, systemd has taken for the start
                told = True
                continue
            due = failed()
            now_s = time.monotonic()
            spare_s = min(CPU_BURST_S, spare_s + (now_s - ended_s) * CPU_PART) - (time.thread_time() - began_s)
            ended_s = now_s
            select.select([asked], [], [], AGAIN_S if due else min(AGAIN_S, max(QUIET_S, -spare_s / CPU_PART)))
            while not ((signals := _read(asked)) or due | watched.changed()):
                files = [asked, *(file.fileno() for file in watched.files)]
                ready, _, _ = select.select(files, [], [], None if watched.all and not lacks() else AGAIN_S)
                due = not ready
                time.sleep(QUIET_S if ready else 0)
            if signals & ENDING:
                return


class _Cgroups:
    """Tells of what is made and written in them, if Linux lets all of them be watched."""

    def __init__(self, mount: Path, stack: ExitStack) -> None:
        self.mount = mount
        self.all = True
        self.files: list[Inotify] = []  # one, or none
        try:
            self.files.append(stack.enter_context(Inotify()))
        except OSError as error:
            self._limited(error)
        self._watch()

    def changed(self) -> bool:
        """Whether there is something to do since it was asked last."""
        events = [event for file in self.files for event in file.read()]
        new = any(event.mask & (inotify.CREATE | inotify.Q_OVERFLOW) for event in events)
        if new:
            self._watch()
        return new or any(event.name in WRITTEN for event in events)

    def _watch(self) -> None:
        """Each cgroup; those that are watched already stay so.

        One is watched before what is in it is listed. So what is made while we look, is seen or told of.
        """
        try:
            for cgroup in chain((self.mount,), others_weights.tree(self.mount)) if self.files else ():
                with suppress(FileNotFoundError):
                    self.files[0].add_watch(cgroup, inotify.CREATE | inotify.MODIFY | inotify.ONLYDIR)
        except OSError as error:
            self._limited(error)

    def _limited(self, error: OSError) -> None:
        if error.errno not in LIMITS:
            raise error
        if self.all:
            print(
                f"fairlane: Linux does not let all cgroups be watched, so they are looked at every {AGAIN_S:g} s; raise"
                f" {LIMITS[error.errno]} (sysctl) and restart the service",
                file=sys.stderr,
                flush=True,
            )
        self.all = False


def _tell_systemd() -> bool:
    """That all is as the file says, so that what comes after us may start (Type=notify); whether it is there."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.sendto(b"READY=1", address.replace("@", "\0", 1))
    return bool(address)


def _read(pipe: int) -> set[int]:
    with suppress(BlockingIOError):
        return set(os.read(pipe, 4096))
    return set()
