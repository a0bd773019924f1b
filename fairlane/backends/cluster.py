# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Units on a Dask cluster: a task is a unit that is whole in itself, or a few that are short, so that handing them over
costs little. Dask gives tasks to workers, and gives those of a worker that dies to others. Here is only what Dask
cannot know:

- a worker whose simulator is another one must compute nothing: each task says which one it is for, and is refused by a
  worker that has another;
- a task that takes many times what it should: its units are given to another worker as well, and whoever is first has
  found what the other would, too. A worker that had such a task gets no more, as long as there are others;
- a unit that a worker fails at: it is given to workers that have not failed at it.

What is tried again is tried alone, and from the second time on one after the other: a unit that its worker dies of
takes what else that has with it, and is to be told from the others.

What a unit finds does not depend on where, or how often, it was computed.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

import distributed

from fairlane import proc
from fairlane.backends import on_worker
from fairlane.backends.program import Played
from fairlane.backends.units import Told, Unit
from fairlane.errors import FairlaneError

CONNECT_S = 20.0  # for the scheduler to answer
ANSWER_S = 20.0  # for a worker to say which simulator it has, or to hand over what it found
WORKERS_S = 600.0  # for a worker to be there, before or in the middle
TICK_S = 0.5  # between two looks at the workers
TASK_S, TASK_UNITS = 0.25, 64  # that units of one task should take together, if they are short; and at most so many
AHEAD = 2  # tasks that a worker has waiting for each that it computes
HANG_S, HANG_TIMES = 60.0, 10.0  # a task hangs after so long, and so many times what it should take
SUSPECT = 2  # tries, after which a unit may be the reason
TRIES = 4  # workers that a unit is given to, if it hangs or fails for another reason than what is in it
FETCHERS, FETCH_S = 8, 20.0  # results on their way here at once, and how long one may take
TRACES_MAX = 64 << 20  # bytes of one trace that travel to workers
LOST = "what is done is kept, and the same command goes on from there"


@dataclass(eq=False)
class _Open:
    """A unit that is not finished."""

    unit: Unit
    tries: int = 0
    failed_at: set[str] = field(default_factory=set)  # workers


@dataclass
class _Task:
    units: Sequence[_Open]
    future: Any
    began: float
    suspect: bool


Outcome = tuple[str, list[dict[str, Any] | str] | None] | Exception


@dataclass
class Cluster:
    address: str
    clock: Callable[[], float] = time.monotonic
    known: set[str] = field(default_factory=set)  # workers that have our simulator
    refused: dict[str, str] = field(default_factory=dict)  # workers that have another, and what they said
    hanging: set[str] = field(default_factory=set)

    def play(self, units: Sequence[Unit], told: Told) -> Generator[tuple[Unit, Played], None, None]:
        told.say(f"connecting to {self.address}")
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
        self.simulator = on_worker.simulator()
        self.left = {unit.job.id: _Open(unit) for unit in units}
        self.waiting = deque(self.left.values())
        self.suspects: deque[_Open] = deque()  # wait, too
        self.running: dict[str, _Task] = {}  # by its key
        self.ended: SimpleQueue[tuple[str, Outcome]] = SimpleQueue()  # a task's key, and what became of it
        # What was found is fetched by threads: one that waits for a worker that is gone must not hold up the others.
        self.fetching = ThreadPoolExecutor(FETCHERS, "fairlane-fetch")
        self.traces = _traces_of(units)
        self.count = 0
        self.key = uuid4().hex  # of all that use the cluster: whoever has a task of the same key gets what that finds
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
                    self._submit(self._next())
                if self.suspects and room and not any(task.suspect for task in self.running.values()):
                    self._submit([self.suspects.popleft()])
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
        answers = {each: self.client.submit(on_worker.here, workers=[each], pure=False) for each in workers}
        for worker, answer in answers.items():
            try:
                said = answer.result(timeout=ANSWER_S)
            except TimeoutError:
                continue
            except Exception as error:  # such as that there is no fairlane
                said = str(error) or type(error).__name__
            if isinstance(said, str):
                self._refuse(worker, f"the worker at {worker} cannot simulate ({said}); install the same wheel there")
                continue
            where, its = said
            if its == self.simulator:
                self._hand_over(worker)
            else:
                self._refuse(worker, _other(where, its, self.simulator))

    def _hand_over(self, worker: str) -> None:
        """All traces, before its first unit: no worker waits for another that has one."""
        sent = [
            self.client.submit(on_worker.keep, name, path.read_bytes(), workers=[worker], pure=False)
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

    def _next(self) -> list[_Open]:
        """Of those that wait: one that is tried again, or as many as are short and leave some for everybody."""
        units = [self.waiting.popleft()]
        most = min(TASK_UNITS, math.ceil(len(self.left) / self.room))
        takes = self.told.expected_s(units[0].unit)
        while not units[0].tries and self.waiting and not self.waiting[0].tries and len(units) < most:
            takes += self.told.expected_s(self.waiting[0].unit)
            if takes > TASK_S:
                break
            units.append(self.waiting.popleft())
        return units

    def _submit(self, units: Sequence[_Open]) -> None:
        units = [each for each in units if each.unit.job.id in self.left]  # another worker may have had it, too
        if not units:
            return
        for each in units:
            each.tries += 1
        workers = self.cluster.known - self.cluster.hanging
        self.count += 1
        future = self.client.submit(
            on_worker.compute,
            self.simulator,
            [self._given(each.unit) for each in units],
            key=f"fairlane-{self.key}-{self.count}-{units[0].unit.name}",
            workers=sorted(workers - units[0].failed_at or workers),
            pure=False,
        )
        self.running[future.key] = _Task(units, future, self.clock(), units[0].tries > SUSPECT)
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
                self.ended.put((future.key, future.result(timeout=FETCH_S)))
            except Exception as error:  # whatever Dask failed with
                self.ended.put((future.key, error))

        with suppress(RuntimeError):  # nobody wants it any more
            self.fetching.submit(fetched)

    def _take(self, key: str, outcome: Outcome) -> Iterator[tuple[Unit, Played]]:
        """What became of a task."""
        task = self.running.pop(key, None)
        if task is None:
            return
        if isinstance(outcome, Exception):
            address, found = "", self._failed(task, outcome)
        else:
            address, answers = outcome
            if answers is None:  # it came a moment ago, in the place of one that we knew
                self.cluster.known.discard(address)
                self.looked = float("-inf")
                answers = [f"the worker at {address} has another version"] * len(task.units)
            found = [one if isinstance(one, str) else Played(**one) for one in answers]
        for each, one in zip(task.units, found, strict=True):
            if each.unit.job.id in self.left:
                yield from self._end(each, one, address)

    def _end(self, each: _Open, found: Played | str, address: str) -> Iterator[tuple[Unit, Played]]:
        """What became of a unit on that worker; a sentence, if it is the worker that failed."""
        at_it = [key for key, task in self.running.items() if each in task.units] if each.tries > 1 else []
        if isinstance(found, str) or found.status < 0:
            each.failed_at.add(address)
            if at_it:
                return
            if each.tries < SUSPECT:
                self.waiting.appendleft(each)
                return
            if each.tries < TRIES:
                self.suspects.append(each)
                return
        del self.left[each.unit.job.id]
        ended = [key for key in at_it if not any(other.unit.job.id in self.left for other in self.running[key].units)]
        if ended:
            self.client.cancel([self.running.pop(key).future for key in ended])
        yield each.unit, Played(1, [f"{TRIES} workers failed; the last: {found}"]) if isinstance(found, str) else found

    def _failed(self, task: _Task, error: Exception) -> Sequence[Played | str]:
        """What Dask says of a task that has no outcome: for each of its units."""
        if self.client.status != "running":
            raise self._lost() from error
        why: Played | str = str(error) or type(error).__name__
        if isinstance(error, distributed.KilledWorker):
            why = f"{error.allowed_failures + 1} workers died of it, the last {error.last_worker.address}"
            if len(task.units) == 1:
                why = Played(1, [why])
        if isinstance(error, TimeoutError) and task.future.status == "finished":  # who has it does not hand it over
            for worker in self.client.who_has([task.future]).get(task.future.key, ()):
                self._hangs(worker, task)
        return [why] * len(task.units)

    def _give_away(self, now: float) -> None:
        """To other workers: units of tasks that take many times what they should."""
        late = [
            (key, task)
            for key, task in self.running.items()
            if now - task.began > HANG_S and now - task.began > self._patience(task) and not task.future.done()
        ]
        if not late:
            return
        at = {key: worker for worker, keys in self.client.processing().items() for key in keys}
        for key, task in late:
            task.began = now
            worker = at.get(key)
            if worker is None:  # those that it was for are gone
                self.client.cancel([task.future])
                self.ended.put((key, RuntimeError("no worker lived through it")))
                continue
            self._hangs(worker, task)
            if worker in self.cluster.hanging:
                for each in task.units:
                    if each.tries < TRIES:
                        self._submit([each])

    def _hangs(self, worker: str, task: _Task) -> None:
        """It gets no more, as long as there are others. Where all seem to hang, those that did before may try again."""
        if worker in self.cluster.hanging or not self.cluster.known - {worker}:
            return
        if not self.cluster.known - self.cluster.hanging - {worker}:
            self.cluster.hanging.clear()
        self.cluster.hanging.add(worker)
        more = f" and {len(task.units) - 1} more" if len(task.units) > 1 else ""
        unit = task.units[0].unit.job.id
        self.told.say(f"the worker at {worker} does not answer for unit {unit}{more}, which others get now")

    def _patience(self, task: _Task) -> float:
        return max(HANG_S, (1 + AHEAD) * HANG_TIMES * sum(self.told.expected_s(each.unit) for each in task.units))


def _other(where: str, its: str, ours: str) -> str:
    return f"{where} has fairlane {its}, not {ours}; install the same wheel there"


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
