# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What fl-sim, the simulator, is given: see sim/config.h."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

from fairlane import __version__, schedulers
from fairlane.backends.job import Job
from fairlane.experiment import modelled_ssd
from fairlane.experiment.model import Cgroup, Profile, Scenario, TenantSpec
from fairlane.places import ROOT

CPU = ROOT / "microbench" / "cpu.toml"


NS, PS = 1e9, 1e12


BLOCK = 512


NVME_DEPTH = 1023  # Linux' nvme driver: queues of 1024 entries, one of which stays empty


# To tell beforehand how long a run takes: what any drive does, and how many requests starting fl-sim counts for, and
# filling a page of the drive's map.
USUAL_LATENCY_S, USUAL_IOPS, START, FILL = 80e-6, 600_000, 10_000, 12


# What null_blk has for a parameter that a profile leaves out.
NULL_BLK = {"size": 250 << 30, "irqmode": 1, "completion_nsec": 10_000, "hw_queue_depth": 64, "submit_queues": 1}


def block_of(profile: Profile) -> int:
    """The smallest block that the drive takes."""
    return profile.params.get("block_size", profile.params.get("bs", BLOCK))


def load_cpu() -> dict[str, Any]:
    """What microbench/ measured."""
    return tomllib.loads(CPU.read_text())


@dataclass(frozen=True)
class Simulation:
    """A job on a drive."""

    job: Job
    scenario: Scenario  # the job's, with its traces as fl-sim reads them
    drive: Profile


def description(what: Simulation, cpu: dict[str, Any]) -> dict[str, Any]:
    job, whole, scenario = what.job, what.scenario, what.scenario.at(what.job.point)
    point = {"point": {"cgroups": job.point}} if job.point is not None else {}
    prices = {"prices": {"read": whole.prices.read, "write": whole.prices.write}} if whole.prices else {}
    groups = sorted(scenario.groups, key=lambda group: _depth(scenario, group.name))
    return {
        "scenario": whole.name,
        "version": __version__,
        "knob": job.variant.knob,
        "label": job.variant.name,
        "seed": whole.seed + job.repeat,
        "repeat": job.repeat,
        **point,
        "cores": whole.cores,
        "warmup_ns": round(whole.warmup * NS),
        "run_ns": round(whole.seconds * NS),
        "tunables": tunables_of(job),
        "cpu": cpu_of(what, cpu),
        **prices,
        "drive": drive_of(what.drive, whole.queues or whole.cores),
        "cgroups": [_cgroup(group) for group in groups],
        "tenants": [_tenant(tenant, scenario, what.drive) for tenant in scenario.tenants],
    }


def _cgroup(group: Cgroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "weight": group.weight,
        "latency_ns": round(group.latency * NS),
        "parent": group.parent,
    }


def _depth(scenario: Scenario, name: str) -> int:
    parents = {group.name: group.parent for group in scenario.groups}
    depth, parent = 0, parents[name]
    while parent is not None:
        depth, parent = depth + 1, parents[parent]
    return depth


def _size(what: Simulation, point: int | None) -> tuple[int, int]:
    """Flows, without the root, as microbench/ counts them, and hardware queues."""
    scenario = what.scenario
    flows = len(scenario.groups) + len(scenario.at(point).tenants)
    return flows, drive_of(what.drive, scenario.queues or scenario.cores)["queues"]


def _alike(knob: str) -> str:
    """The first scheduler of its kind: one that was not measured is taken to cost as much, and results say so."""
    [host] = [each.host for each in schedulers.SCHEDULERS if each.name == knob]
    return next(each.name for each in schedulers.SCHEDULERS if each.host == host)


def _measured_cpu(knob: str, cpu: dict[str, Any]) -> dict[str, Any]:
    measured: dict[str, Any] = cpu["scheduler"].get(knob) or cpu["scheduler"][_alike(knob)]
    return measured


def not_measured(knob: str, cpu: dict[str, Any]) -> list[str]:
    """A note, if the CPU time of the scheduler was never measured."""
    if knob in cpu["scheduler"]:
        return []
    return [
        f"The CPU time of {knob} was not measured, and is taken to be that of {_alike(knob)};"
        f" to measure it, run make -C microbench cpu ONLY={knob}."
    ]


def beyond_what_was_measured(what: Simulation, cpu: dict[str, Any]) -> list[str]:
    """A note, if the scenario is anywhere larger than the runs that costs are from."""
    flows, queues = (max(sizes) for sizes in zip(*(_size(what, point) for point in what.scenario.points), strict=True))
    rows = _measured_cpu(what.job.variant.knob, cpu)["requests"]
    most_flows, most_queues = (max(row[column] for row in rows) for column in (0, 1))
    if flows <= most_flows and queues <= most_queues:
        return []
    return [
        f"There are {flows:,} flows and {queues:,} hardware queues; what the scheduler costs a request was measured"
        f" with at most {most_flows} and {most_queues}, and is taken to be the same beyond."
    ]


def tunables_of(job: Job) -> dict[str, int]:
    return {**job.scenario.tunables.get(job.variant.knob, {}), **job.variant.set}


def cpu_of(what: Simulation, cpu: dict[str, Any]) -> dict[str, int]:
    """As measured, with the next larger number of flows and hardware queues that was, or the largest."""
    mine = _measured_cpu(what.job.variant.knob, cpu)
    flows, queues = _size(what, what.job.point)
    rows = sorted(mine["requests"])
    fitting = [row for row in rows if row[0] >= flows and row[1] >= queues]
    enough_queues = [row for row in rows if row[1] >= queues] or rows
    _, _, insert, dispatch, done = fitting[0] if fitting else enough_queues[-1]
    return {
        **cpu["host"],
        **(cpu["low_latency"] if what.job.variant.low_latency else {}),
        "insert_ns": round(insert),
        "dispatch_ns": round(dispatch),
        "done_ns": round(done),
        "lock_ns": round(mine["lock_ns"]),
        "lock_read_ps": round(mine["lock_read_ns"] * 1000),
    }


def drive_of(profile: Profile, cores: int) -> dict[str, Any]:
    """The drive as fl-sim wants it: a modelled SSD has a hardware queue for each core, or group of cores."""
    if profile.kind == "ssd":
        values = {name: profile.params.get(name, known.default) for name, known in modelled_ssd.PROFILE.items()}
        played = {
            name: profile.params.get(name, modelled_ssd.PLAYED[name].default) for name in ("queue_depth", "time_scale")
        }
        fresh = profile.params.get("precondition") == 0
        return {"kind": "ssd", "queues": cores, **played, "precondition": not fresh, **values}
    if profile.kind == "null_blk":
        params = NULL_BLK | profile.params
        return {
            "kind": "null",
            "queues": min(params["submit_queues"], cores),
            "queue_depth": params["hw_queue_depth"],
            "size": params["size"],
            "latency_ns": params["completion_nsec"] if params["irqmode"] == 2 else 0,
            "interval_ps": 0,
        }
    return {
        "kind": "null",
        "queues": min(profile.params.get("max_ioqpairs", cores), cores),
        "queue_depth": NVME_DEPTH,
        "size": profile.params["size"],
        "latency_ns": 0,
        "interval_ps": round(PS / profile.params["iops"]) if profile.params.get("iops") else 0,
    }


def _tenant(tenant: TenantSpec, scenario: Scenario, profile: Profile) -> dict[str, Any]:
    return {
        "name": tenant.name,
        "weight": tenant.weight,
        "latency_ns": round(tenant.latency * NS),
        "parent": tenant.parent,
        "jobs": tenant.jobs,
        "depth": tenant.iodepth,
        **(_replay(tenant, profile) if tenant.trace else _load(tenant, profile)),
        "cores": list(tenant.cores),
        "phases": [
            {
                "from_ns": round((scenario.warmup + start) * NS) if start else 0,
                "to_ns": round((scenario.warmup + stop) * NS),
            }
            for start, stop in tenant.phases(scenario.seconds)
        ],
    }


def _replay(tenant: TenantSpec, profile: Profile) -> dict[str, Any]:
    return {"trace": tenant.trace, "block": block_of(profile), "full_speed": tenant.speed == "full"}


def iops_of(tenant: TenantSpec, profile: Profile) -> float:
    """The most that its rate allows; 0 without one."""
    rate = tenant.rate
    if rate is None:
        return 0.0
    return rate.iops if rate.iops is not None else (rate.bytes_per_s or 0.0) / (tenant.bs or block_of(profile))


def expected_requests(what: Simulation) -> float:
    """How many requests are simulated, roughly: what the time that a run takes is proportional to."""
    scenario, drive = what.scenario.at(what.job.point), what.drive
    whole = scenario.warmup + scenario.seconds
    scale = drive.params.get("time_scale", 1)
    asked = 0.0
    for tenant in scenario.tenants:
        at_once = tenant.jobs / (USUAL_LATENCY_S * scale + tenant.thinktime) * tenant.iodepth
        active = sum(stop - start for start, stop in tenant.phases(scenario.seconds)) / scenario.seconds
        asked += min(at_once, iops_of(tenant, drive) or at_once) * active
    made = drive_of(drive, scenario.queues or scenario.cores)
    filled = made["map"] // made["page"] if made.get("precondition") else 0
    return START + FILL * filled + whole * min(asked, USUAL_IOPS / scale)


def _load(tenant: TenantSpec, profile: Profile) -> dict[str, Any]:
    """What a tenant without a trace requests."""
    iops = iops_of(tenant, profile)
    return {
        "bytes": tenant.bs or block_of(profile),
        "read_percent": round(tenant.reads * 100),
        "random": tenant.rw.startswith("rand"),
        "think_ns": round(tenant.thinktime * NS),
        "interval_ps": round(PS * tenant.jobs / iops) if iops else 0,
        "poisson": tenant.poisson,
    }
