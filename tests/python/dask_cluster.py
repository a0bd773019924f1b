# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A Dask cluster of processes on this machine, as a user starts one by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

DASK = Path(sys.executable).with_name("dask")
START_S = 120


@dataclass
class Dask:
    folder: Path
    address: str = ""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.folder / "scheduler.json"

    def start(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            argv = ["nice", str(DASK), *words]
            self.processes[name] = subprocess.Popen(argv, stdout=log, stderr=log, cwd=self.folder)

    def worker(self, name: str, *more: str, threads: int = 1) -> None:
        """Start one; it is there some seconds later."""
        kept = ("--no-nanny", "--no-dashboard", "--local-directory", str(self.folder / "scratch"))
        self.start(name, "worker", self.address, "--name", name, "--nthreads", str(threads), *kept, *more)

    def there(self, name: str) -> bool:
        return "Registered to" in (self.folder / f"{name}.log").read_text()

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self.processes[name].pid, number)

    def end(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()


@contextmanager
def cluster(folder: Path, workers: int = 0) -> Iterator[Dask]:
    dask = Dask(folder)
    try:
        dask.start("scheduler", "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
                   "--scheduler-file", str(dask.file))  # fmt: skip
        wait_for(dask.file.exists)
        dask.address = json.loads(dask.file.read_text())["address"]
        for n in range(workers):
            dask.worker(f"w{n}")
        yield dask
    finally:
        for name in list(dask.processes):
            dask.end(name)


def wait_for(what: object) -> None:
    assert callable(what)
    deadline = time.monotonic() + START_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)
