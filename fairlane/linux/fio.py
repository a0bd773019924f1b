# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""fio, the load generator: one process for all tenants, so that their measuring windows coincide.

Each tenant is one reporting group; its jobs enter its cgroup by themselves. What a tenant moved within the window is
what the kernel counted for its cgroup (io.stat), sampled as fio runs. fio's own totals are not that: they include what
a job completes when it drains its queue after the end, while its neighbours have stopped, and so flatter the tenants
of low weight. Every job logs its bandwidth every 10 ms, from which the tenants' series are put together.

A trace is converted to fio's own format and fed to the job through a socket, as often as it takes: fio reads a file
only once. Its requests are dealt to the tenant's jobs in turn.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from fairlane import proc
from fairlane.errors import FairlaneError
from fairlane.experiment.model import Scenario
from fairlane.linux import sysfs
from fairlane.linux.disks import Target
from fairlane.linux.fio_jobs import job_file
from fairlane.linux.fio_logs import Counts, Measured, Sample, collect, cut_short
from fairlane.linux.fio_traces import Converted, convert, fed

NEEDED = {  # what an old fio may lack
    "ioengine": "libaio",
    "unified_rw_reporting": "both",
    "cgroup_nodelete": "1",
    "log_unix_epoch": "1",
    "per_job_logs": "1",
    "rate_process": "poisson",
    "read_iolog_chunked": "1",
}
SAMPLE_S = 0.2  # how often CPU time is read and progress reported
GRACE_S = 60.0  # for fio to start its jobs, drain their queues and write its output
END_S = 5.0  # for fio to end by itself once told to


class DidNotEndError(FairlaneError):
    """The load was still running long after its time: the drive, or what is in its path, holds requests."""


# --- A load ---


def run(
    scenario: Scenario,
    target: Target,
    out: Path,
    *,
    cgroups: Mapping[str, str],
    counts: Counts = dict,
    seed: int,
    progress: Callable[[float], None],
) -> Measured:
    """Put the load on the device; OUT.fio and OUT.json keep the job file and fio's output. Calls progress with 0..1.

    Without cgroups and their counts the totals are fio's, good enough where it does not matter who got what.
    """
    with _prepared(scenario, target, out, cgroups, seed) as (jobs, output, traces, logs):
        with fed(scenario, target, traces, logs):
            samples = _execute(jobs, output, scenario.warmup + scenario.seconds, counts, progress)
        return collect(scenario, _report(output), logs, samples, target)


@contextmanager
def _prepared(
    scenario: Scenario, target: Target, out: Path, cgroups: Mapping[str, str], seed: int
) -> Iterator[tuple[Path, Path, dict[str, Converted], Path]]:
    """The job file, where fio's output goes, the traces, and a folder for logs that goes afterwards."""
    check()
    with tempfile.TemporaryDirectory(prefix="fairlane-") as folder:
        logs = Path(folder)
        out.parent.mkdir(parents=True, exist_ok=True)
        jobs, output = out.with_name(out.name + ".fio"), out.with_name(out.name + ".json")
        traces = {tenant.name: convert(tenant, target, logs) for tenant in scenario.tenants if tenant.trace}
        jobs.write_text(job_file(scenario, target, cgroups, logs, seed, traces))
        yield jobs, output, traces, logs


@cache
def check() -> None:
    """Raises a FairlaneError unless there is a fio that has what we ask of it."""
    if shutil.which("fio") is None:
        raise FairlaneError("fio is not installed; it is the load generator (on Debian: apt-get install fio)")
    options = [f"--{name}={value}" for name, value in NEEDED.items()]
    found = subprocess.run(
        ["fio", "--parse-only", "--name=probe", "--filename=/dev/null", *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        version = subprocess.run(["fio", "--version"], capture_output=True, text=True, check=False).stdout.strip()
        why = (found.stderr.strip().splitlines() or ["it does not say why"])[-1]
        raise FairlaneError(
            f"{version or 'this fio'} is too old: {why}; install fio 3.33, which Debian 12 has, or newer"
        )


def play_until(
    scenario: Scenario,
    target: Target,
    out: Path,
    *,
    cgroups: Mapping[str, str],
    seed: int,
    progress: Callable[[float], None],
    enough: Callable[[], bool],
) -> None:
    """The same load without measuring it, ended as soon as it is enough, which is asked after each progress()."""
    prepared = _prepared(scenario, target, out, cgroups, seed)
    with prepared as (jobs, output, traces, logs), fed(scenario, target, traces, logs):
        _execute(jobs, output, scenario.warmup + scenario.seconds, dict, progress, enough)


def fill(target: Target, progress: Callable[[float], None]) -> None:
    """Write all of the device once, in order, so that a read of any of it reads something. Calls progress with 0..1."""
    stat = sysfs.SYS_BLOCK / target.path.name / "stat"

    def written() -> int:
        return int(stat.read_text().split()[6]) * 512

    begin, seen, changed = written(), -1, time.monotonic()

    def deadline() -> float:
        nonlocal seen, changed
        now = written()
        if now != seen:
            seen, changed = now, time.monotonic()
            progress(min(1.0, (now - begin) / target.capacity))
        return changed + GRACE_S

    said: list[str] = []
    options = {"filename": target.path, "rw": "write", "bs": "1M", "iodepth": 32, "ioengine": "libaio", "direct": 1}
    try:
        with proc.group(["fio", "--name=fill", *(f"--{key}={value}" for key, value in options.items())]) as fio:
            status = proc.lines(fio, lambda line, _err: said.append(line), deadline)
    except FileNotFoundError as error:
        raise FairlaneError(
            "fio is not installed; it is the load generator (on Debian: apt-get install fio)"
        ) from error
    except proc.TimedOut:
        raise FairlaneError(f"{target.path}: nothing was written for {GRACE_S:.0f} s; is the device stuck?") from None
    if status:
        raise FairlaneError(f"fio cannot write all of {target.path}{proc.tail(said)}")


def _report(output: Path) -> dict[str, Any]:
    """fio puts notes and warnings before its JSON."""
    text = output.read_text()
    try:
        return dict(json.loads(text[text.find("{") :]))
    except ValueError as error:
        raise cut_short(output) from error


# --- Running the process ---


def _execute(
    jobs: Path,
    output: Path,
    expected_s: float,
    counts: Counts,
    progress: Callable[[float], None],
    enough: Callable[[], bool] = lambda: False,
) -> list[Sample]:
    """Run fio to its end, or until it is enough, and return what was sampled meanwhile; whatever happens, no fio is
    left behind."""
    with tempfile.TemporaryFile("w+") as console:
        fio = subprocess.Popen(
            ["fio", "--output-format=json", f"--output={output}", str(jobs)],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C is ours to handle
        )
        try:
            samples, stopped = _watch(fio, jobs, expected_s, counts, progress, enough)
        finally:
            with proc.shielded():
                _end(fio)
        console.seek(0)
        if fio.returncode and not stopped:
            said = " / ".join(console.read().splitlines()[-5:]) or output.read_text()[:500]
            raise FairlaneError(f"fio failed with exit code {fio.returncode} on {jobs}: {said}")
    return samples


def _watch(
    fio: subprocess.Popen[bytes],
    jobs: Path,
    expected_s: float,
    counts: Counts,
    progress: Callable[[float], None],
    enough: Callable[[], bool],
) -> tuple[list[Sample], bool]:
    """What was sampled, and whether fio was told to end before its time."""
    started = time.monotonic()
    samples: list[Sample] = []
    stopped = False
    while True:
        samples.append(Sample(time.time(), busy_seconds(), counts()))
        elapsed = time.monotonic() - started
        if elapsed > expected_s + GRACE_S:
            raise DidNotEndError(f"fio did not end within {expected_s + GRACE_S:.0f} s on {jobs}; is the device stuck?")
        progress(min(1.0, elapsed / expected_s))
        if not stopped and enough():
            stopped = True
            fio.send_signal(signal.SIGINT)  # its jobs end what they have begun
        try:
            fio.wait(SAMPLE_S)
        except subprocess.TimeoutExpired:
            continue
        samples.append(Sample(time.time(), busy_seconds(), counts()))
        return samples, stopped


def _end(fio: subprocess.Popen[bytes]) -> None:
    """Ask fio to end its jobs, then insist. Jobs that do not obey either die with their cgroup."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        if fio.poll() is not None:
            return
        fio.send_signal(signum)
        try:
            fio.wait(END_S)
        except subprocess.TimeoutExpired:
            continue


def busy_seconds(stat: Path = Path("/proc/stat")) -> float:
    """CPU time in seconds that all cores together have not been idle since boot."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.read_text().split(maxsplit=9)[1:9])
    return (user + nice + system + irq + softirq + steal) / 100  # USER_HZ
