# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Other programs, run so that nothing they start outlives us and no wait for them is without a limit."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from fairlane.errors import FairlaneError

GRACE_S = 3.0  # between asking a process group to end and killing it
MODPROBE_S = 60.0
TAIL_LINES = 15  # of a failed program's output that go into the message


class TimedOut(Exception):
    """The program said nothing, or did not end, for longer than it may."""


class Terminated(SystemExit):
    """SIGTERM or SIGHUP, as an exception, so that what was started is ended on the way out."""


@contextlib.contextmanager
def unwinding_signals() -> Iterator[None]:
    """Within it, SIGTERM and SIGHUP unwind the stack as Ctrl-C does instead of ending us on the spot."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def unwind(number: int, _frame: FrameType | None) -> None:
        raise Terminated(128 + number)

    default = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    for number in default:
        signal.signal(number, unwind)
    try:
        yield
    finally:
        for number in default:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Within it nothing is cut short: a signal that would unwind the stack waits for the end. For putting things back.

    By handlers, since a mask is each thread's own, and Python runs handlers in this one whichever got the signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, remember) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in dict.fromkeys(came):
            signal.raise_signal(late)


@contextlib.contextmanager
def group(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
    merge: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program in a process group of its own, with pipes; whoever is left of the group at the end is killed."""
    with unwinding_signals():
        process = None
        try:
            with shielded():  # a signal before we know its number would leave it behind
                process = subprocess.Popen(
                    [str(arg) for arg in argv],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT if merge else subprocess.PIPE,
                    env=env,
                    cwd=cwd,
                    pass_fds=pass_fds,
                    start_new_session=True,
                )
            yield process
        finally:
            if process:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        _signal_group(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline:
            process.poll()
            if not _signal_group(process.pid, 0):
                break
            time.sleep(0.02)
    finally:  # also when a second Ctrl-C cuts the wait short
        _signal_group(process.pid, signal.SIGKILL)
        process.wait(GRACE_S)
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()


def _signal_group(pgid: int, number: int) -> bool:
    """Whether there was still somebody in the group to get it."""
    try:
        os.killpg(pgid, number)
    except ProcessLookupError:
        return False
    return True


def each_line(
    process: subprocess.Popen[bytes], deadline: Callable[[], float]
) -> Generator[tuple[str, bool], None, int]:
    """Yields each line of output as it comes, as (line, whether it came from stderr), until the program ends.

    Returns its exit status. Raises TimedOut at the deadline, a time.monotonic() that may move as lines come in.
    """
    rest = {pipe.fileno(): b"" for pipe in (process.stdout, process.stderr) if pipe}
    errors = process.stderr.fileno() if process.stderr else -1
    with selectors.DefaultSelector() as selector:
        for fd in rest:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline() - time.monotonic()
            if left <= 0:
                raise TimedOut
            ready = selector.select(min(left, 0.5))
            for key, _ in ready:
                data = os.read(key.fd, 65536)
                *whole, rest[key.fd] = (rest[key.fd] + data).split(b"\n")
                if not data:
                    selector.unregister(key.fd)
                    whole = [rest[key.fd]] if rest[key.fd] else []
                for line in whole:
                    yield line.decode(errors="replace").rstrip("\r"), key.fd == errors
            if not ready and process.poll() is not None:
                break  # it ended, but something that it started still holds its pipes
    try:
        return process.wait(max(0.1, deadline() - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise TimedOut from None


def lines(process: subprocess.Popen[bytes], on_line: Callable[[str, bool], None], deadline: Callable[[], float]) -> int:
    """Hand each line of each_line() over; returns the exit status."""
    said = each_line(process, deadline)
    while True:
        try:
            on_line(*next(said))
        except StopIteration as end:
            return int(end.value)


def output(
    argv: Sequence[str | Path],
    *,
    what: str,
    limit_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """What a program printed; a FairlaneError with the end of it when it fails or takes too long."""
    said: list[str] = []
    deadline = time.monotonic() + limit_s
    try:
        with group(argv, env=env, cwd=cwd, merge=True) as process:
            status = lines(process, lambda line, _err: said.append(line), lambda: deadline)
    except FileNotFoundError as error:
        raise FairlaneError(f"{what}: {argv[0]} is not installed; run `make setup`") from error
    except TimedOut:
        raise FairlaneError(f"{what}: {argv[0]} did not end within {limit_s:.0f} s{tail(said)}") from None
    if status:
        raise FairlaneError(f"{what}: {argv[0]} failed (exit status {status}){tail(said)}")
    return "\n".join(said)


def modprobe(*args: str) -> None:
    output(["modprobe", *args], what="loading a module", limit_s=MODPROBE_S)


def tail(said: Sequence[str], count: int = TAIL_LINES) -> str:
    """The last lines, as the end of a message."""
    last = [line for line in said if line.strip()][-count:]
    return "".join(["; it said last:", *(f"\n    {line}" for line in last)]) if last else ""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as Ctrl-C does, through every `finally`; further ones change nothing.

    Every wait on the way out has a limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(number: int, _frame: FrameType | None) -> None:
        for other in signals:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    before = [signal.signal(number, stop) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
