# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Units on a Dask cluster: a task is a unit that is whole in itself, or a few that are short, so that handing them over
costs little. Dask gives tasks to workers, and gives those of a worker that dies to others. Here is only what Dask
cannot know:

- a worker whose simulator is another one must compute nothing: each task says which one it is for, and is refused by a
  worker that has another;
- a task that takes many times what it should: its units are given to another worker as well, and whoever is first has
  found what the other would, too. A worker that had such a task gets no more, as long as there are others.

Whatever is tried again is tried alone, so that a unit that is at fault takes no other with it, and is named.

What a unit finds does not depend on where, or how often, it was computed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import distributed

from fairlane import proc
from fairlane.backends import program
from fairlane.backends.program import Played
from fairlane.backends.units import Told, Unit
from fairlane.errors import FairlaneError

CONNECT_S = 20.0  # for the scheduler to answer
ANSWER_S = 20.0  # for a worker to say which simulator it has, or to hand over what it found
WORKERS_S = 600.0  # for a worker to be there, before or in the middle
TICK_S = 0.5  # between two looks at the workers
TASK_S = 0.25  # that units of one task should take together, if they are short
AHEAD = 2  # tasks that a worker has waiting for each that it computes
HANG_S, HANG_TIMES = 60.0, 10.0  # a task hangs after so long, and so many times what it should take
TRIES = 4  # workers that a unit is given to, if it hangs or fails for another reason than what is in it
FETCHERS, FETCH_S = 8, 20.0  # results on their way here at once, and how long one may take
TRACES_MAX = 64 << 20  # bytes of one trace that travel to workers
LOST = "what is done is kept, and the same command goes on from there"


# --- On a worker ---


def here() -> tuple[str, str]:
    """This worker's name, and its simulator."""
    worker = distributed.get_worker()
    return f"worker {worker.name} at {worker.address}", _simulator()


@cache
def _simulator() -> str:
    program.build()
    return program.identity()


_traces: dict[str, bytes] = {}  # that this worker has got


def keep(name: str, data: bytes) -> None:
    _traces[name] = data


def compute(simulator: str, given: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | str | None:
    """Run what is given, with traces that this worker has got under these names, by that simulator.

    A sentence, if this worker fails at it; None if its simulator is another. Nothing is raised: when a traceback cannot
    be pickled, Dask's client does not take the exception either, and waits for ever.
    """
    where, mine = here()
    if mine != simulator:
        return None
    try:
        return [{**vars(_compute(each)), "where": where} for each in given]
    except Exception as error:
        return f"{where}: {str(error) or type(error).__name__}"


def _compute(given: Mapping[str, Any]) -> Played:
    with tempfile.TemporaryDirectory(prefix="fairlane-") as folder:
        tenants = []
        for tenant in given["tenants"]:
            if "trace" in tenant:
                file = Path(folder) / tenant["trace"]
                file.write_bytes(_traces[tenant["trace"]])
                tenants.append({**tenant, "trace": str(file)})
            else:
                tenants.append(tenant)
        return program.play({**given, "tenants": tenants}, Path(folder), "unit")


def _other(where: str, its: str, ours: str) -> str:
    return f"{where} has fairlane {its}, not {ours}; install the same wheel there"


# --- On the machine that asks ---


class OtherVersionError(Exception):
    """The worker's simulator is another one."""


@dataclass
class _Try:
    """A task on a worker."""

    units: Sequence[Unit]
    future: Any
    began: float
    tries: int


@dataclass
class Cluster:
    address: str
    clock: Callable[[], float] = time.monotonic
    known: set[str] = field(default_factory=set)  # workers that have our simulator
    refused: dict[str, str] = field(default_factory=dict)  # workers that have another, and what they said
    hanging: set[str] = field(default_factory=set)

    def play(self, units: Sequence[Unit], told: Told) -> Generator[tuple[Unit, Played], None, None]:
        with self._connected() as client:
            yield from _Session(self, client, units, told).play()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what is wrong is told here
        with proc.unwinding_signals():
            try:
                client = distributed.Client(  # type: ignore[no-untyped-call]
                    self.address, timeout=CONNECT_S, set_as_default=False, name="fairlane"
                )
            except (OSError, ValueError, TypeError, ImportError) as error:
                raise FairlaneError(
                    f"--cluster {self.address}: no Dask scheduler answers there ({str(error) or type(error).__name__});"
                    " start one with `dask scheduler` and give its address, such as tcp://host:8786"
                ) from error
            try:
                yield client
            finally:
                with suppress(Exception):
                    client.close(timeout=3)  # type: ignore[no-untyped-call]


class _Session:
    """One run of units on the cluster."""

    def __init__(self, cluster: Cluster, client: Any, units: Sequence[Unit], told: Told) -> None:
        self.cluster, self.client, self.told, self.clock = cluster, client, told, cluster.clock
        self.simulator = program.identity()
        self.waiting = deque((unit, 1) for unit in units)
        self.running: dict[str, _Try] = {}  # by the task's key
        self.left = {unit.job.id for unit in units}
        self.ended: SimpleQueue[tuple[str, list[Played] | Exception]] = SimpleQueue()  # a task's key, and its end
        # What was found is fetched by threads: one that waits for a worker that is gone must not hold up the others.
        self.fetching = ThreadPoolExecutor(FETCHERS, "fairlane-fetch")
        self.traces = _traces_of(units)
        self.count = 0
        self.room = 0  # tasks that may be on their way
        self.looked = float("-inf")
        self.alone_since: float | None = None

    def play(self) -> Generator[tuple[Unit, Played], None, None]:
        self._first_workers()
        self.told.begin()
        try:
            while self.left:
                room = self._look()
                while self.waiting and len(self.running) < room:
                    self._submit(*self._next())
                with suppress(Empty):
                    yield from self._take(*self.ended.get(timeout=TICK_S))
        finally:
            self.fetching.shutdown(wait=False, cancel_futures=True)
            with suppress(Exception):
                self.client.cancel([each.future for each in self.running.values()], force=True)

    # --- Workers ---

    def _workers(self) -> dict[str, int]:
        """How many tasks each computes at once. Those that may."""
        try:
            threads: dict[str, int] = self.client.nthreads()
        except (OSError, RuntimeError, TimeoutError) as error:
            raise self._lost() from error
        if new := set(threads) - self.cluster.known - set(self.cluster.refused):
            self._ask(new)
        self.cluster.known &= set(threads)
        self.cluster.hanging &= set(threads)
        if not self.cluster.known - self.cluster.hanging:
            self.cluster.hanging.clear()
        return {each: threads[each] for each in self.cluster.known - self.cluster.hanging}

    def _ask(self, workers: set[str]) -> None:
        """Which simulator those have. One that does not answer is asked again at the next look."""
        answers = {each: self.client.submit(here, workers=[each], pure=False) for each in workers}
        for worker, answer in answers.items():
            try:
                where, its = answer.result(timeout=ANSWER_S)
            except TimeoutError:
                continue
            except Exception as error:  # whatever it failed with
                why = f"{str(error) or type(error).__name__}"
                self._refuse(worker, f"the worker at {worker} cannot simulate ({why}); install the same wheel there")
                continue
            if its == self.simulator:
                self._hand_over(worker)
            else:
                self._refuse(worker, _other(where, its, self.simulator))

    def _hand_over(self, worker: str) -> None:
        """All traces, before its first unit: no worker waits for another that has one."""
        sent = [
            self.client.submit(keep, name, path.read_bytes(), workers=[worker], pure=False)
            for path, name in self.traces.items()
        ]
        with suppress(Exception):  # one that does not take them is asked again at the next look
            for each in sent:
                each.result(timeout=ANSWER_S)
            self.cluster.known.add(worker)

    def _refuse(self, worker: str, why: str) -> None:
        self.cluster.refused[worker] = why
        self.told.say(f"refused: {why}")

    def _first_workers(self) -> None:
        """Wait for one; at the beginning, one that has another simulator is refused together with the whole run."""
        deadline = self.clock() + WORKERS_S
        while not self._workers() and not self.cluster.refused:
            self.told.say(f"waiting for workers at {self.cluster.address}")
            if self.clock() > deadline:
                raise FairlaneError(
                    f"--cluster {self.cluster.address}: has no workers; start one with"
                    f" `dask worker {self.cluster.address}` where this wheel is installed"
                )
            time.sleep(TICK_S)
        if self.cluster.refused:
            raise FairlaneError(f"--cluster {self.cluster.address}: {'; '.join(sorted(self.cluster.refused.values()))}")

    def _look(self) -> int:
        """At the workers, now and then; how many tasks may be on their way."""
        now = self.clock()
        if now - self.looked < TICK_S:
            return self.room
        self.looked = now
        workers = self._workers()
        self.room = (1 + AHEAD) * sum(workers.values())
        if workers:
            self.alone_since = None
        elif self.alone_since is None:
            self.alone_since = now
        elif now - self.alone_since > WORKERS_S:
            raise FairlaneError(f"--cluster {self.cluster.address}: has lost all its workers; {LOST}")
        else:
            self.told.say(f"no workers are left at {self.cluster.address}; waiting for one")
        if workers:
            self._give_away(now)
        return self.room

    def _lost(self) -> FairlaneError:
        return FairlaneError(f"--cluster {self.cluster.address}: the scheduler no longer answers; {LOST}")

    # --- Units ---

    def _next(self) -> tuple[list[Unit], int]:
        """Of those that wait: one that is tried again, or as many as are short; and how many tries that makes."""
        unit, tries = self.waiting.popleft()
        units, takes = [unit], self.told.expected_s(unit)
        while tries == 1 and self.waiting and self.waiting[0][1] == 1:
            takes += self.told.expected_s(self.waiting[0][0])
            if takes > TASK_S:
                break
            units.append(self.waiting.popleft()[0])
        return units, tries

    def _submit(self, units: Sequence[Unit], tries: int) -> None:
        self.count += 1
        future = self.client.submit(
            compute,
            self.simulator,
            [self._given(unit) for unit in units],
            key=f"fairlane-{os.getpid()}-{self.count}-{units[0].name}",
            workers=sorted(self.cluster.known - self.cluster.hanging),
            pure=False,
        )
        self.running[future.key] = _Try(units, future, self.clock(), tries)
        future.add_done_callback(self._fetch)

    def _given(self, unit: Unit) -> dict[str, Any]:
        given = unit.given
        tenants = [
            {**tenant, "trace": self.traces[Path(tenant["trace"])]} if "trace" in tenant else tenant
            for tenant in given["tenants"]
        ]
        return {**given, "tenants": tenants}

    def _fetch(self, future: Any) -> None:
        """Called by Dask, once it is known what became of the task."""

        def fetched() -> None:
            try:
                found = future.result(timeout=FETCH_S)
                if found is None:
                    raise OtherVersionError
                if isinstance(found, str):
                    raise RuntimeError(found)
                self.ended.put((future.key, [Played(**each) for each in found]))
            except Exception as error:  # whatever a worker, or Dask, failed with
                self.ended.put((future.key, error))

        with suppress(RuntimeError):  # nobody wants it any more
            self.fetching.submit(fetched)

    def _take(self, key: str, outcome: list[Played] | Exception) -> Iterator[tuple[Unit, Played]]:
        """What became of a task."""
        mine = self.running.pop(key, None)
        if mine is None:
            return
        found: Sequence[Played | None] = outcome if isinstance(outcome, list) else self._failed(mine, outcome)
        for unit, played in zip(mine.units, found, strict=True):
            if unit.job.id not in self.left:
                continue
            if played is None or (played.status < 0 and mine.tries < TRIES):
                self.waiting.appendleft((unit, mine.tries + 1))
                continue
            self.left.discard(unit.job.id)
            yield unit, played
        useless = [
            key for key, each in self.running.items() if not any(unit.job.id in self.left for unit in each.units)
        ]
        if useless:
            self.client.cancel([self.running.pop(key).future for key in useless])

    def _failed(self, mine: _Try, error: Exception) -> Sequence[Played | None]:
        """What a worker, or Dask, failed with. None for each unit that other workers are to compute."""
        again = [None] * len(mine.units)
        alone = len(mine.units) == 1
        if isinstance(error, distributed.KilledWorker):
            died = f"{error.allowed_failures + 1} workers died of it, the last {error.last_worker.address}"
            return [Played(1, [died])] if alone else again
        if isinstance(error, OtherVersionError | ImportError | AttributeError):  # a worker that came a moment ago
            self.looked = float("-inf")
            return again
        if self.client.status != "running":
            raise self._lost() from error
        if isinstance(error, TimeoutError):  # whoever has what was found does not hand it over
            for worker in self.client.who_has([mine.future]).get(mine.future.key, ()):
                self._hangs(worker, mine)
        if mine.tries < TRIES or not alone:
            return again
        return [Played(1, [f"{TRIES} workers failed; the last: {str(error) or type(error).__name__}"])]

    def _give_away(self, now: float) -> None:
        """To other workers: units of tasks that take many times what they should."""
        late = [each for each in self.running.values() if now - each.began > self._patience(each)]
        if not late:
            return
        at = {key: worker for worker, keys in self.client.processing().items() for key in keys}
        for each in late:
            worker = at.get(each.future.key)
            if worker:
                self._hangs(worker, each)
            each.began = now
            if each.tries < TRIES and (worker is None or worker in self.cluster.hanging):
                each.tries += 1
                for unit in each.units:
                    self._submit([unit], each.tries)

    def _hangs(self, worker: str, late: _Try) -> None:
        """It gets no more, as long as there are others."""
        if worker not in self.cluster.hanging and self.cluster.known - self.cluster.hanging - {worker}:
            self.cluster.hanging.add(worker)
            more = f" or one of {len(late.units) - 1} after it" if len(late.units) > 1 else ""
            self.told.say(f"the worker at {worker} hangs in unit {late.units[0].job.id}{more}, which others get now")

    def _patience(self, late: _Try) -> float:
        return max(HANG_S, (1 + AHEAD) * HANG_TIMES * sum(self.told.expected_s(unit) for unit in late.units))


def _traces_of(units: Sequence[Unit]) -> dict[Path, str]:
    """Files of this machine, and their names on workers."""
    found: dict[Path, str] = {}
    for tenant in (tenant for unit in units for tenant in unit.what.scenario.tenants if tenant.trace):
        path = Path(tenant.trace or "")
        if path in found:
            continue
        if path.stat().st_size > TRACES_MAX:
            raise FairlaneError(
                f"{path}: a trace of more than {TRACES_MAX >> 20} MiB does not travel to a cluster's workers;"
                " play a part of it, or run this without --cluster"
            )
        found[path] = f"{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}.trace"
    return found
