# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Units on this machine: as many at once as it has cores."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from fairlane import proc
from fairlane.backends import program
from fairlane.backends.program import Played
from fairlane.backends.units import Told, Unit


class Cores:
    def play(self, units: Sequence[Unit], told: Told) -> Generator[tuple[Unit, Played], None, None]:
        stop = threading.Event()
        pool = ThreadPoolExecutor(os.cpu_count())

        def one(unit: Unit) -> Played:
            found = program.play(unit.given, unit.folder, unit.name, lambda part: told.part(unit, part), stop)
            if not unit.job.raw:
                for file in program.files_of(unit.folder, unit.name):
                    file.unlink(missing_ok=True)
            return found

        with proc.unwinding_signals():
            try:
                told.begin()
                running = {pool.submit(one, unit): unit for unit in units}
                for done in as_completed(running):
                    yield running.pop(done), done.result()
            finally:
                stop.set()
                pool.shutdown(cancel_futures=True)
