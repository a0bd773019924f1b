# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""fio's job file for a scenario: a reporting group for each tenant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from fairlane.errors import FairlaneError
from fairlane.experiment.model import Scenario, TenantSpec
from fairlane.linux.disks import Target
from fairlane.linux.fio_traces import Converted, replay_lines

BIN_MS = 10


PERCENTILES = {"p50": "50.000000", "p95": "95.000000", "p99": "99.000000", "p99.9": "99.900000"}


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
                    replay_lines(tenant, nth, traces[tenant.name], logs)
                    if tenant.trace
                    else load_lines(tenant, block_size(tenant, target))
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
    step = math.lcm(*(block_size(tenant, target) for tenant in tenants))
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


def block_size(tenant: TenantSpec, target: Target) -> int:
    bs = tenant.bs or target.block
    if bs % target.block:
        raise FairlaneError(
            f"[[tenant]] {tenant.name} bs: {bs} is not a multiple of the {target.block} byte blocks of {target.path};"
            f' give such a multiple, or bs = "min"'
        )
    return bs


def load_lines(tenant: TenantSpec, bs: int) -> list[str]:
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
