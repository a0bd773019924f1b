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
import math
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from fairlane import proc, trace
from fairlane.errors import FairlaneError
from fairlane.results import Series
from fairlane.scenario import Scenario, TenantSpec

SYS_BLOCK = Path("/sys/block")
BIN_MS = 10
PERCENTILES = {"p50": "50.000000", "p95": "95.000000", "p99": "99.000000", "p99.9": "99.900000"}
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


@dataclass(frozen=True)
class Target:
    """The block device under load."""

    path: Path
    capacity: int  # bytes
    block: int  # its smallest block, bytes


Counts = Callable[[], dict[str, tuple[int, int]]]  # bytes read and written so far by each tenant, as the kernel counts


@dataclass(frozen=True)
class Sample:
    """Counters at one moment."""

    when: float  # wall clock, s
    busy_s: float  # CPU time of the whole system since boot
    moved: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Load:
    """What one tenant moved within the measuring window."""

    read_bytes: float
    write_bytes: float
    ios: float
    lat_us: dict[str, float | None]
    series: Series


@dataclass(frozen=True)
class Measured:
    """What one fio process measured."""

    seconds: float  # length of the measuring window
    loads: dict[str, Load]  # by tenant
    busy_s: float | None  # CPU time spent by the whole system within the window
    window: tuple[float, float]  # when it began and ended, wall clock, s

    @property
    def bytes_per_s(self) -> float:
        return sum(load.read_bytes + load.write_bytes for load in self.loads.values()) / self.seconds

    @property
    def ios(self) -> float:
        return sum(load.ios for load in self.loads.values())


def job_file(
    scenario: Scenario,
    target: Target,
    cgroups: Mapping[str, str],
    logs: Path,
    seed: int,
    traces: Mapping[str, Converted] = {},
) -> str:
    """The text of fio's job file; cgroups gives the tenants' cgroups relative to the mount, and may be empty.

    traces has those of the tenants that play one; logs is the folder of fio's logs, and of the sockets that feed it.
    """
    lines = [
        "[global]",
        "ioengine=libaio",
        "direct=1",
        f"filename={target.path}",
        "time_based=1",
        "group_reporting=1",
        "unified_rw_reporting=both",
        "norandommap=1",
        "scramble_buffers=0",
        f"randseed={seed}",
        "clat_percentiles=0",
        "lat_percentiles=1",
        "percentile_list=" + ":".join(p.removeprefix("p") for p in PERCENTILES),
        f"bwavgtime={BIN_MS}",
        f"log_avg_msec={BIN_MS}",
        "per_job_logs=1",
        "log_unix_epoch=1",
    ]
    if cgroups:
        lines.append("cgroup_nodelete=1")
    piece, number = _piece(scenario, target), 0
    for tenant in scenario.tenants:
        for nth, (start, stop) in enumerate(tenant.phases(scenario.seconds)):
            first = start == 0.0
            lines += [
                "",
                f"[{tenant.name}]",
                *(["new_group=1"] if nth == 0 else []),
                *(
                    _replay(tenant, nth, traces[tenant.name], logs)
                    if tenant.trace
                    else _load(tenant, _block_size(tenant, target))
                ),
                f"iodepth={tenant.iodepth}",
                *([f"cpus_allowed={','.join(map(str, tenant.cores))}"] if tenant.cores else []),
                f"numjobs={tenant.jobs}",
                *([] if tenant.trace else _place(number * piece, piece)),
                f"startdelay={0 if first else _us(scenario.warmup + start)}",
                f"ramp_time={_us(scenario.warmup) if first else 0}",
                f"runtime={_us(stop - start)}",
                f"write_bw_log={logs / tenant.name}.{nth}",
                *([f"cgroup={cgroups[tenant.name]}"] if cgroups else []),
            ]
            number += 0 if tenant.trace else tenant.jobs
    return "\n".join(lines) + "\n"


def _piece(scenario: Scenario, target: Target) -> int:
    """How much of the drive each job has to itself; one that plays a trace has all of it."""
    tenants = [tenant for tenant in scenario.tenants if not tenant.trace]
    total = sum(tenant.jobs * len(tenant.phases(scenario.seconds)) for tenant in tenants)
    step = math.lcm(*(_block_size(tenant, target) for tenant in tenants))
    piece = target.capacity // max(total, 1) // step * step
    if not piece:
        raise FairlaneError(
            f"{target.path}: too small ({target.capacity} bytes) for {total} jobs of {step} byte blocks"
        )
    return piece


def _place(offset: int, piece: int) -> list[str]:
    return [f"offset={offset}", f"offset_increment={piece}", f"size={piece}"]


def _us(seconds: float) -> str:
    return f"{round(seconds * 1e6)}us"


def _block_size(tenant: TenantSpec, target: Target) -> int:
    bs = tenant.bs or target.block
    if bs % target.block:
        raise FairlaneError(
            f"[[tenant]] {tenant.name} bs: {bs} is not a multiple of the {target.block} byte blocks of {target.path};"
            f' give such a multiple, or bs = "min"'
        )
    return bs


def _load(tenant: TenantSpec, bs: int) -> list[str]:
    lines = [f"rw={tenant.rw}", f"bs={bs}"]
    if tenant.rw in ("rw", "randrw"):
        lines.append(f"rwmixread={tenant.mix}")
    if tenant.rate is not None:
        iops = tenant.rate.iops if tenant.rate.iops is not None else (tenant.rate.bytes_per_s or 0) / bs
        each = [max(1, round(iops * part / tenant.jobs)) for part in (tenant.reads, 1 - tenant.reads)]
        lines.append(f"rate_iops={each[0]},{each[1]}")
        if tenant.poisson:
            lines.append("rate_process=poisson")
    if tenant.thinktime:
        lines.append(f"thinktime={_us(tenant.thinktime)}")
    return lines


# --- Traces ---


@dataclass(frozen=True)
class Converted:
    """A tenant's trace as fio wants it."""

    files: list[Path]  # the requests of each job: lines of fio's version 3, without the head
    largest: int  # bytes of a request
    period_us: int  # from the first request until it comes again


def convert(tenant: TenantSpec, target: Target, folder: Path) -> Converted:
    path = Path(tenant.trace or "")
    files = [folder / f"{tenant.name}.{job}.iolog" for job in range(tenant.jobs)]
    requests = largest = last = 0
    with ExitStack() as stack:
        outs = [stack.enter_context(file.open("w")) for file in files]
        for request in trace.read(path, devices=tenant.devices):
            offset, size = trace.placed(request, target.capacity, target.block)
            outs[requests % tenant.jobs].write(trace.iolog_line(target.path, request, offset, size))
            requests, largest, last = requests + 1, max(largest, size), request.at_ns
    if requests < tenant.jobs:
        raise FairlaneError(
            f"{path}: has {requests} requests for the {tenant.jobs} jobs of {tenant.name}; give it fewer"
        )
    if not last and tenant.speed == "recorded":
        raise FairlaneError(f'{path}: all requests arrive at once, which cannot be repeated; give speed = "full"')
    return Converted(files, largest, (last + last // max(1, requests - 1)) // 1000)


def _replay(tenant: TenantSpec, phase: int, converted: Converted, folder: Path) -> list[str]:
    """Without replay_no_stall, fio keeps the recorded times. bs is what it has buffers for from the beginning."""
    sockets = ":".join(str(_socket(folder, tenant, phase, job)) for job in range(tenant.jobs))
    full = ["replay_no_stall=1"] if tenant.speed == "full" else []
    return [f"read_iolog={sockets}", "read_iolog_chunked=1", f"bs={converted.largest}", *full]


def _socket(folder: Path, tenant: TenantSpec, phase: int, job: int) -> Path:
    return folder / f"{tenant.name}.{phase}.{job}"


@contextmanager
def _fed(scenario: Scenario, target: Target, traces: Mapping[str, Converted], folder: Path) -> Iterator[None]:
    """Every job that plays a trace finds it in its socket, without an end."""
    with ExitStack() as stack:
        for tenant in scenario.tenants:
            if tenant.name not in traces:
                continue
            converted = traces[tenant.name]
            for phase in range(len(tenant.phases(scenario.seconds))):
                for job, file in enumerate(converted.files):
                    listener = stack.enter_context(socket.socket(socket.AF_UNIX))
                    listener.bind(str(_socket(folder, tenant, phase, job)))
                    listener.listen()
                    period_us = converted.period_us if tenant.speed == "recorded" else None
                    feeder = threading.Thread(target=_feed, args=(listener, file, target, period_us), daemon=True)
                    feeder.start()
                    stack.callback(feeder.join)
                    stack.callback(listener.shutdown, socket.SHUT_RDWR)  # for a fio that never came
        yield


def _feed(listener: socket.socket, file: Path, target: Target, period_us: int | None) -> None:
    """Until fio ends; each round with times that are a period later, or with the same, which then are not looked at."""
    with suppress(OSError), listener.accept()[0] as fio, fio.makefile("wb") as out, file.open("rb") as lines:
        out.write(trace.iolog_head(target.path).encode())
        for late_us in count(0, period_us or 0):
            lines.seek(0)
            if period_us is None:
                shutil.copyfileobj(lines, out)
            else:
                _later(lines, out, late_us)


def _later(lines: BinaryIO, out: BinaryIO, late_us: int) -> None:
    for line in lines:
        at_us, rest = line.split(b" ", 1)
        out.write(b"%d %b" % (int(at_us) + late_us, rest))


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
    check()
    with tempfile.TemporaryDirectory(prefix="fairlane-") as folder:
        logs = Path(folder)
        out.parent.mkdir(parents=True, exist_ok=True)
        jobs, output = out.with_name(out.name + ".fio"), out.with_name(out.name + ".json")
        traces = {tenant.name: convert(tenant, target, logs) for tenant in scenario.tenants if tenant.trace}
        jobs.write_text(job_file(scenario, target, cgroups, logs, seed, traces))
        with _fed(scenario, target, traces, logs):
            samples = _execute(jobs, output, scenario.warmup + scenario.seconds, counts, progress)
        return _collect(scenario, _report(output), logs, samples, target)


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


def fill(target: Target, progress: Callable[[float], None]) -> None:
    """Write all of the device once, in order, so that a read of any of it reads something. Calls progress with 0..1."""
    stat = SYS_BLOCK / target.path.name / "stat"

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
        raise _cut_short(output) from error


def _cut_short(file: Path) -> FairlaneError:
    """On a full disk fio ends as if nothing were wrong."""
    return FairlaneError(
        f"{file}: fio has not written all of it, so the disk may be full; free some space and start the same command"
        " again"
    )


# --- Running the process ---


def _execute(
    jobs: Path, output: Path, expected_s: float, counts: Counts, progress: Callable[[float], None]
) -> list[Sample]:
    """Run fio to its end and return what was sampled meanwhile; whatever happens, no fio is left behind."""
    with tempfile.TemporaryFile("w+") as console:
        fio = subprocess.Popen(
            ["fio", "--output-format=json", f"--output={output}", str(jobs)],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C is ours to handle
        )
        try:
            samples = _watch(fio, jobs, expected_s, counts, progress)
        finally:
            with proc.shielded():
                _end(fio)
        console.seek(0)
        if fio.returncode:
            said = " / ".join(console.read().splitlines()[-5:]) or output.read_text()[:500]
            raise FairlaneError(f"fio failed with exit code {fio.returncode} on {jobs}: {said}")
    return samples


def _watch(
    fio: subprocess.Popen[bytes], jobs: Path, expected_s: float, counts: Counts, progress: Callable[[float], None]
) -> list[Sample]:
    started = time.monotonic()
    samples: list[Sample] = []
    while True:
        samples.append(Sample(time.time(), busy_seconds(), counts()))
        elapsed = time.monotonic() - started
        if elapsed > expected_s + GRACE_S:
            raise FairlaneError(f"fio did not end within {expected_s + GRACE_S:.0f} s on {jobs}; is the device stuck?")
        progress(min(1.0, elapsed / expected_s))
        try:
            fio.wait(SAMPLE_S)
        except subprocess.TimeoutExpired:
            continue
        samples.append(Sample(time.time(), busy_seconds(), counts()))
        return samples


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


# --- Collecting what it wrote ---


def _collect(
    scenario: Scenario, report: Mapping[str, Any], logs: Path, samples: Sequence[Sample], target: Target
) -> Measured:
    entries = {tenant.name: _read_logs(logs, tenant) for tenant in scenario.tenants}
    stamps = sorted({ms for tenant in entries.values() for ms, _ in tenant})
    if not stamps:
        raise FairlaneError(f"scenario {scenario.name}: fio completed no I/O at all within {scenario.seconds:g} s")
    begin = _begin(scenario, stamps)
    window = begin / 1000, begin / 1000 + scenario.seconds
    passes = _passes(stamps)
    bins = round(scenario.seconds * 1000 / BIN_MS)
    groups = [job for job in report["jobs"] if isinstance(job.get("mixed"), dict)]
    loads = {}
    for tenant, group in zip(scenario.tenants, groups, strict=True):
        spread = _spread(entries[tenant.name], passes, begin)
        read, write = _moved(tenant.name, samples, window) or _moved_by_fio(group, spread, bins)
        loads[tenant.name] = Load(
            read_bytes=read,
            write_bytes=write,
            ios=(read + write) / (_mean_size(group["mixed"]) if tenant.trace else _block_size(tenant, target)),
            lat_us=_latency(group["mixed"]["lat_ns"]),
            series=_series(spread[:bins], read + write, bins),
        )
    return Measured(scenario.seconds, loads, _between([(s.when, s.busy_s) for s in samples], window), window)


def _begin(scenario: Scenario, stamps: Sequence[int]) -> int:
    """When the window began, in ms: BIN_MS before the first entry of any log.

    Without CPU time to spare, fio begins its logs late. The last entry, which no job ends before, then tells more.
    """
    phases = [phase for tenant in scenario.tenants for phase in tenant.phases(scenario.seconds)]
    first, last = min(start for start, _ in phases), max(stop for _, stop in phases)
    return min(stamps[0] - BIN_MS - round(first * 1000), stamps[-1] - round(last * 1000))


def _moved(name: str, samples: Sequence[Sample], window: tuple[float, float]) -> tuple[float, float] | None:
    """Bytes read and written within the window as the kernel counted, or None when it did not count for us."""
    if not all(name in sample.moved for sample in samples):
        return None
    read, write = (_between([(s.when, s.moved[name][way]) for s in samples], window) for way in (0, 1))
    return (read, write) if read is not None and write is not None else None


def _moved_by_fio(group: Mapping[str, Any], spread: Sequence[float], bins: int) -> tuple[float, float]:
    """The same from fio's totals, less the part that its logs show after the window."""
    inside = sum(spread[:bins]) / sum(spread) if spread and sum(spread) else 0.0
    return group["read"]["io_bytes"] * inside, group["write"]["io_bytes"] * inside


def _mean_size(mixed: Mapping[str, Any]) -> float:
    """Of what fio completed; of nothing, what does not divide."""
    return float(mixed["io_bytes"] / mixed["total_ios"]) if mixed["total_ios"] else 1.0


def _read_logs(logs: Path, tenant: TenantSpec) -> list[tuple[int, int]]:
    """(time in ms, KiB/s) of every entry of the tenant's jobs; a line is "time, rate, direction, ..."."""
    entries = []
    for path in logs.glob(f"{tenant.name}.*_bw.*.log"):
        text = path.read_text()
        try:
            entries += [(int(ms), int(rate)) for ms, rate, *_ in (line.split(",") for line in text.splitlines())]
        except ValueError as error:
            raise _cut_short(path) from error
        empty_though_room = not text and os.statvfs(path).f_bavail  # of a job that completed nothing
        if not text.endswith("\n") and not empty_though_room:
            raise _cut_short(path)
    return entries


def _passes(stamps: Sequence[int]) -> list[int]:
    """When fio took samples: of all jobs in one pass, within a few ms; a job that moved nothing gets no entry."""
    passes = [stamps[0] - BIN_MS]
    for ms in stamps:
        if ms - passes[-1] >= BIN_MS / 2:
            passes.append(ms)
    return passes


def _spread(entries: Sequence[tuple[int, int]], passes: Sequence[int], begin: int) -> list[float]:
    """Bytes per bin since begin: each entry is the mean rate since the pass before it."""
    last = max((ms for ms, _ in entries), default=begin)
    bins = [0.0] * ((last - begin) // BIN_MS + 2)
    for ms, rate in entries:
        since = passes[max(0, bisect_left(passes, ms - BIN_MS // 2 + 1) - 1)]
        for t in range(since, ms):
            if t >= begin:
                bins[(t - begin) // BIN_MS] += rate * 1.024
    return bins


def _series(spread: Sequence[float], moved: float, bins: int) -> Series:
    """The series, made to add up to what was moved: the logs know the shape well, but the times only to 1 ms."""
    total = sum(spread)
    series = [round(value * moved / total) for value in spread] if total else []
    return Series(BIN_MS, series + [0] * (bins - len(series)))


def _latency(lat_ns: Mapping[str, Any]) -> dict[str, float | None]:
    if not lat_ns["N"]:
        return dict.fromkeys(("mean", *PERCENTILES, "max"))
    percentiles = {name: lat_ns["percentile"][key] / 1000 for name, key in PERCENTILES.items()}
    return {"mean": lat_ns["mean"] / 1000, **percentiles, "max": lat_ns["max"] / 1000}


def _between(samples: Sequence[tuple[float, float]], window: tuple[float, float]) -> float | None:
    """How much a counter rose within the window, by straight lines between samples; None when they do not cover it."""

    def at(when: float) -> float | None:
        i = bisect_left(samples, (when, 0.0))
        if not 0 < i < len(samples):
            return None
        (t0, before), (t1, after) = samples[i - 1], samples[i]
        return before + (after - before) * (when - t0) / (t1 - t0)

    first, last = at(window[0]), at(window[1])
    return last - first if first is not None and last is not None else None
