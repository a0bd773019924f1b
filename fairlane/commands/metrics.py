# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane metrics`: what the schedulers count as OpenMetrics, once or for whoever scrapes them."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from socket import AF_INET, AF_INET6
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

from fairlane.errors import FairlaneError
from fairlane.linux import cgroups, contention, stat_files, watching
from fairlane.linux.stat_files import Reading
from fairlane.pages import metrics
from fairlane.pages.metrics import Metrics, WaitedFor

INTERVAL_S = 1.0
AGAIN_S = 10.0  # when there is nothing to read, look again after so long
# Whom a cgroup waited for: so many by name, each of whom was so much of an interval's wait once.
NAMED, PART = 100, 0.01
OTHERS = "(others)"  # all the rest


def main(args: argparse.Namespace) -> int:
    mount = cgroups.find_mount()
    if args.listen is None:
        once = Metrics(lambda: stat_files.read(mount), stat_files.drives, dict)
        sys.stdout.write(metrics.text(once))
        return 0
    host, port = address(args.listen)
    waits = Waits(mount)
    served = Metrics(waits.read, stat_files.drives, waits.so_far)
    try:
        server = make_server(host, port, make_wsgi_app(metrics.registry(served)), Server.of(host), Quiet)
    except OSError as error:
        raise FairlaneError(f"--listen {args.listen}: {error.strerror}; give another address or port") from error
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    print(f"fairlane metrics: http://{host}:{server.server_port}/metrics", file=sys.stderr, flush=True)
    try:
        waits.watch()
    finally:
        server.shutdown()
        thread.join()
    return 0


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise FairlaneError(f"--listen {text}: must be HOST:PORT, such as 127.0.0.1:9943")
    return host.strip("[]"), int(port)


class Server(ThreadingMixIn, WSGIServer):
    """A thread for each request. Debian 12's prometheus_client has one, too, but nobody could end it."""

    daemon_threads = True

    @classmethod
    def of(cls, host: str) -> type[Server]:
        cls.address_family = AF_INET6 if ":" in host else AF_INET
        return cls


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


class Waits:
    """Who waited for whom since the start. Written by watch(), read by the server's threads."""

    def __init__(self, mount: Path) -> None:
        self._mount = mount
        self._lock = threading.Lock()
        self._sums: dict[str, dict[str, dict[str, float]]] = {}

    def read(self) -> Reading | None:
        try:
            return stat_files.read(self._mount)
        except FairlaneError:  # no scheduler of ours now
            return None

    def so_far(self) -> WaitedFor:
        with self._lock:
            return {number: {name: dict(whom) for name, whom in found.items()} for number, found in self._sums.items()}

    def watch(self) -> None:
        """For ever; while no scheduler of ours is loaded, it looks for one."""
        while True:
            try:
                for readings in watching.spans(self._mount, INTERVAL_S):
                    began_s = time.thread_time()
                    self.add(readings)
                    time.sleep((time.thread_time() - began_s) / watching.CPU_PART)
            except FairlaneError as error:
                print(f"fairlane metrics: {error}; looking again in {AGAIN_S:g} s", file=sys.stderr, flush=True)
                time.sleep(AGAIN_S)

    def add(self, readings: Sequence[Reading]) -> None:
        """What is gone is forgotten: drives, cgroups that waited, and those that they waited for."""
        sums = {number: self._with(number, readings) for number in readings[-1].counts}
        with self._lock:
            self._sums = sums

    def _with(self, number: str, readings: Sequence[Reading]) -> dict[str, dict[str, float]]:
        there = {*readings[-1].counts[number], OTHERS}
        sums = {
            name: {whom: us for whom, us in found.items() if whom in there}
            for name, found in self._sums.get(number, {}).items()
            if name in there
        }
        for name, others in contention.divided(number, readings)[0].items():
            if name in there:
                mine, total = sums.setdefault(name, {}), sum(others.values())
                for whom, us in others.items():
                    new = whom in there and us >= PART * total and len(mine) < NAMED
                    key = whom if new or whom in mine else OTHERS
                    mine[key] = mine.get(key, 0.0) + us
        return sums
