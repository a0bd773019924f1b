# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Recorded traces, converted to fio's format and fed to its jobs."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import BinaryIO

from fairlane.errors import FairlaneError
from fairlane.experiment import traces
from fairlane.experiment.model import Scenario, TenantSpec
from fairlane.linux.disks import Target


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
        for request in traces.read(path, devices=tenant.devices):
            offset, size = traces.placed(request, target.capacity, target.block)
            outs[requests % tenant.jobs].write(traces.iolog_line(target.path, request, offset, size))
            requests, largest, last = requests + 1, max(largest, size), request.at_ns
    if requests < tenant.jobs:
        raise FairlaneError(
            f"{path}: has {requests} requests for the {tenant.jobs} jobs of {tenant.name}; give it fewer"
        )
    if not last and tenant.speed == "recorded":
        raise FairlaneError(f'{path}: all requests arrive at once, which cannot be repeated; give speed = "full"')
    return Converted(files, largest, (last + last // max(1, requests - 1)) // 1000)


def replay_lines(tenant: TenantSpec, phase: int, converted: Converted, folder: Path) -> list[str]:
    """Without replay_no_stall, fio keeps the recorded times. bs is what it has buffers for from the beginning."""
    sockets = ":".join(str(_socket(folder, tenant, phase, job)) for job in range(tenant.jobs))
    full = ["replay_no_stall=1"] if tenant.speed == "full" else []
    return [f"read_iolog={sockets}", "read_iolog_chunked=1", f"bs={converted.largest}", *full]


def _socket(folder: Path, tenant: TenantSpec, phase: int, job: int) -> Path:
    return folder / f"{tenant.name}.{phase}.{job}"


@contextmanager
def fed(scenario: Scenario, target: Target, traces: Mapping[str, Converted], folder: Path) -> Iterator[None]:
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
        out.write(traces.iolog_head(target.path).encode())
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
