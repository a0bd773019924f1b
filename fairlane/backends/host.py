# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The host backend: runs a scenario on this machine's kernel, with real cgroups and fio as the load.

Whatever ends a run (its end, an error, Ctrl-C, SIGTERM), the scheduler, its tunables, queue/nr_requests, the cgroups
and io.cost are afterwards as they were.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from fairlane import __version__
from fairlane.errors import FairlaneError
from fairlane.experiment import traces
from fairlane.experiment.figures import jain
from fairlane.experiment.model import Scenario, TenantSpec, shares
from fairlane.experiment.results import Results, Run, Tenant
from fairlane.isolbench.run_folder import Store, room
from fairlane.isolbench.suite import Unit
from fairlane.linux import cgroups, disks, fio, fio_logs, io_cost, knobs
from fairlane.proc import terminable, unwinding_signals
from fairlane.progress import Progress, Steps

OVERHEAD_S = 1.5  # of a run, for starting and collecting; only progress depends on it
MEASURE_S = io_cost.WARMUP + io_cost.SECONDS + OVERHEAD_S
VRATES = (100, 90, 80, 70, 60)  # percent of io.cost's measured model that are tried, from the fastest
FAIR = 0.99  # the fairness index at which io.cost is in control of the device


def run(
    scenario: Scenario,
    device: str,
    knob_names: list[str],
    out: Path,
    progress: Callable[[Progress], None],
    *,
    destroy_data: str | None = None,
    renew: Callable[[], None] | None = None,
) -> Results:
    """Run the scenario under each knob in turn on the block device; OUT keeps fio's job files and output.

    Before each run renew() brings the device back to the state that it began in; None: it cannot be brought back.

    Repeats take turns with the knobs, so that a machine that grows slower is unfair to none of them.
    """
    knobs.check_names(knob_names)
    target = disks.free_target(device, scenario, destroy_data)
    results = Results(scenario.name, f"host:{device}", scenario.seed, __version__, kernel=platform.release())
    results.device = disks.describe(device)
    results.machine = {"cpus": os.cpu_count(), "memory_bytes": _memory_bytes()}
    with terminable(), _claimed_for(device, renew):
        usable = _usable(device, knob_names, results)
        run_s = scenario.warmup + scenario.seconds + OVERHEAD_S
        runs_s = run_s * len(usable) * scenario.repeats * len(scenario.points)
        most = len(scenario.points) if _wants("bytes_per_s", usable) else 0
        cost = io_cost.STEPS + len(VRATES) if "io.cost" in usable else 0
        steps = Steps(runs_s + (most + cost) * MEASURE_S, progress)
        needs = _needs(_Bench(scenario, device, target, out, steps), usable)
        for repeat in range(scenario.repeats):
            for point in scenario.points:
                for name in usable:
                    job = _Job(scenario, device, target, knobs.TABLE[name], point, repeat)

                    def tell(part: float, title: str = job.title) -> None:
                        steps.step(title, run_s, part)

                    if renew:
                        renew()
                    got = _measured(job, needs[point], out / job.file, tell)
                    results.runs.append(got.run)
                    results.config.setdefault(name, got.config)
                    steps.finish(run_s)
    return results


def run_units(
    todo: Sequence[Unit],
    device: str,
    store: Store,
    progress: Callable[[Unit], None],
    *,
    destroy_data: str | None = None,
    renew: Callable[[], None] | None = None,
    bad: Callable[[], list[str]] = list,
) -> None:
    """Run a suite's units one after the other; each is in the store as soon as it is done.

    renew() brings a drive that was written to back to the state that it began in. bad() says what the kernel has
    complained of since it was last asked.
    """
    writes = next((unit.scenario for unit in todo if unit.scenario.writes), todo[0].scenario)
    target = disks.free_target(device, writes, destroy_data)
    written = False
    with room(store.folder), terminable(), _claimed_for(device, renew):
        reasons = available(device, list(dict.fromkeys(unit.knob for unit in todo)))
        for unit in todo:
            progress(unit)
            results = Results(unit.scenario.name, f"host:{device}", unit.scenario.seed, __version__)
            results.kernel = platform.release()
            results.machine = {"cpus": os.cpu_count(), "memory_bytes": _memory_bytes()}
            results.device = disks.describe(device)
            if why := reasons[unit.knob]:
                results.unavailable = {unit.knob: why}
            else:
                known = store.kept("io.cost")
                need = _need(unit, _Bench(writes, device, target, store.raw, Steps(1.0, lambda _now: None)), store)
                if renew and (written or known != store.kept("io.cost")):  # a model is measured with writes, too
                    renew()
                written = unit.scenario.writes
                job = _Job(unit.scenario, device, target, knobs.TABLE[unit.knob], None, 0, _tuning(unit, store))
                got = _measured(job, need, store.raw / unit.id, lambda _part: None)
                got.run.bad_dmesg = bad()
                results.runs, results.config = [got.run], {unit.knob: got.config}
            store.save(unit, results)


def _need(unit: Unit, bench: _Bench, store: Store) -> knobs.Need:
    """What the unit's knob is set from: the same load under `none`, or a model that is measured once."""
    tuning, wants = unit.tuning, knobs.TABLE[unit.knob].needs
    if tuning.idle or tuning.slack:
        return knobs.Need()
    most = store.run(unit.baseline).total_bytes_per_s if unit.baseline and "bytes_per_s" in wants else None
    cost = None
    if "io_cost" in wants:
        kept = store.kept("io.cost")
        if not kept:
            kept = asdict(_io_cost_speed(replace(bench, scenario=store.standard), _io_cost_model(bench)))
            store.keep("io.cost", kept)
        cost = knobs.IoCost(**kept)
    return knobs.Need(cost, most)


def _tuning(unit: Unit, store: Store) -> knobs.Tuning:
    """With a target that is relative to the latency of the tenant with priority when it is alone."""
    if unit.knob != "io.latency" or unit.target_of_alone is None or unit.alone is None:
        return unit.tuning
    alone = store.run(unit.alone).tenants[0].lat_us["p50"]
    if alone is None:
        raise FairlaneError(f"{store.path(unit.alone)}: knows no latency; delete the file and start again")
    return replace(unit.tuning, target_us=max(1, round(alone * unit.target_of_alone)))


# --- One run ---


@dataclass(frozen=True)
class _Job:
    """One knob, one point of the sweep, one repeat."""

    scenario: Scenario
    device: str
    target: disks.Target
    knob: knobs.Knob
    point: int | None
    repeat: int
    tuning: knobs.Tuning = knobs.BY_WEIGHT

    @property
    def title(self) -> str:
        parts = [self.knob.name]
        if self.point is not None:
            parts.append(f"{self.point} cgroup{'s' * (self.point != 1)}")
        if self.scenario.repeats > 1:
            parts.append(f"repeat {self.repeat + 1} of {self.scenario.repeats}")
        return ", ".join(parts)

    @property
    def file(self) -> str:
        return self.knob.name + (f"-{self.point}" if self.point is not None else "") + f"-{self.repeat}"


@dataclass(frozen=True)
class _Got:
    run: Run
    config: dict[str, Any]


def _measured(job: _Job, need: knobs.Need, out: Path, progress: Callable[[float], None]) -> _Got:
    """Make the cgroups, apply the knob, run the load, and undo it all."""
    scenario = job.scenario.at(job.point)
    number = disks.device_number(job.device)
    with (
        cgroups.tree(scenario.groups, scenario.tenants) as tree,
        knobs.applied(job.knob, knobs.Setting(job.device, number, tree, scenario, need, job.tuning)) as config,
    ):
        inside = {tenant.name: tree.inside(tenant.name) for tenant in scenario.tenants}
        seed = scenario.seed + job.repeat
        measured = fio.run(
            scenario,
            job.target,
            out,
            cgroups=inside,
            counts=lambda: {tenant.name: cgroups.moved(tree, tenant.name, number) for tenant in scenario.tenants},
            seed=seed,
            progress=progress,
        )
        counters = {
            "device": knobs.numbers(knobs.tunables(job.device)),
            "tenants": knobs.tenant_counters(tree, number),
        }
    return _Got(_result(job, scenario, measured, counters), config)


def _result(job: _Job, scenario: Scenario, measured: fio_logs.Measured, counters: dict[str, Any]) -> Run:
    ideal = shares(scenario)
    seconds = measured.seconds
    tenants = []
    for spec in scenario.tenants:
        load = measured.loads[spec.name]
        tenants.append(
            Tenant(
                name=spec.name,
                weight=spec.weight,
                share=ideal[spec.name],
                bytes_per_s=(load.read_bytes + load.write_bytes) / seconds,
                iops=load.ios / seconds,
                read_bytes_per_s=load.read_bytes / seconds,
                write_bytes_per_s=load.write_bytes / seconds,
                cost_per_s=_cost_per_s(job, spec, load, seconds),
                lat_us=load.lat_us,
                series=load.series,
            )
        )
    ios = measured.ios
    return Run(
        knob=job.knob.name,
        repeat=job.repeat,
        point={"cgroups": job.point} if job.point is not None else None,
        seconds=seconds,
        tenants=tenants,
        total_bytes_per_s=sum(tenant.bytes_per_s for tenant in tenants),
        total_iops=ios / seconds,
        fairness_index=jain(tenant.bytes_per_s / tenant.share for tenant in tenants),
        cpu_ns_per_io=measured.busy_s * 1e9 / ios if measured.busy_s is not None and ios else None,
        counters=counters,
    )


def _cost_per_s(job: _Job, spec: TenantSpec, load: fio_logs.Load, seconds: float) -> float | None:
    """By the price list, of I/Os of the tenant's block size, or of its trace's sizes.

    The block layer neither splits nor merges them much.
    """
    if job.scenario.cost is None:
        return None
    if spec.trace:
        sizes = _of_trace(spec.trace, spec.devices, job.target)
    else:
        size = spec.bs or job.target.block
        sizes = {"read": Counter((size,)), "write": Counter((size,))}
    cost = 0.0
    for op, moved in (("read", load.read_bytes), ("write", load.write_bytes)):
        if known := sizes[op]:
            total = sum(size * many for size, many in known.items())
            cost += moved * sum(job.scenario.cost.cost(op, size) * many for size, many in known.items()) / total
    return cost / seconds


@cache
def _of_trace(path: str, devices: tuple[int, ...], target: disks.Target) -> dict[str, Counter[int]]:
    """How many requests of each size, in bytes, it has of each operation."""
    found: dict[str, Counter[int]] = {"read": Counter(), "write": Counter()}
    for request in traces.read(Path(path), devices=devices):
        found["write" if request.write else "read"][traces.placed(request, target.capacity, target.block)[1]] += 1
    return found


# --- Before the runs ---


def available(device: str, names: Sequence[str]) -> dict[str, str | None]:
    """For each knob why this kernel cannot apply it to the drive, or None."""
    disks.check_device(device)
    with unwinding_signals(), cgroups.tree((), ()) as tree:
        return {name: knobs.unavailable(knobs.TABLE[name], device, tree.mount, tree.top) for name in names}


def _usable(device: str, names: list[str], results: Results) -> list[str]:
    """The knobs that this kernel has; the others and why go into the results."""
    reasons = available(device, names)
    results.unavailable = {name: reason for name, reason in reasons.items() if reason is not None}
    usable = [name for name in dict.fromkeys(names) if reasons[name] is None]
    if not usable:
        raise FairlaneError(
            "no knob can run: " + "; ".join(f"{name}: {why}" for name, why in results.unavailable.items())
        )
    return usable


@dataclass(frozen=True)
class _Bench:
    """What every measurement before the runs needs."""

    scenario: Scenario
    device: str
    target: disks.Target
    out: Path
    steps: Steps

    def progress(self, what: str, steps: int = 1) -> Callable[[float], None]:
        return lambda part: self.steps.step(f"measuring {what}", MEASURE_S * steps, part)


def _needs(bench: _Bench, usable: list[str]) -> dict[int | None, knobs.Need]:
    """Measure what io.cost and io.max are set from, for each point of the sweep."""
    needs = {}
    cost = _io_cost(bench) if "io.cost" in usable else None
    for point in bench.scenario.points:
        most = None
        if wanting := _wants("bytes_per_s", usable):
            tell = bench.progress(f"for {' and '.join(wanting)}")
            with _bare(bench.device):
                most = io_cost.most(bench.scenario.at(point), bench.target, bench.out, tell)
            bench.steps.finish(MEASURE_S)
        needs[point] = knobs.Need(cost, most)
    return needs


@contextmanager
def _bare(device: str) -> Iterator[None]:
    """The drive as it is without any knob."""
    with knobs.without_io_cost(cgroups.find_mount(), disks.device_number(device)), knobs.scheduler(device, "none"):
        yield


def _wants(what: str, usable: Sequence[str]) -> list[str]:
    """The knobs that are set from that part of Need."""
    return [name for name in usable if what in knobs.TABLE[name].needs]


def _io_cost(bench: _Bench) -> knobs.IoCost:
    """Measure io.cost's model, and the speed to run it at."""
    return _io_cost_speed(bench, _io_cost_model(bench))


def _io_cost_model(bench: _Bench) -> str:
    def tell(name: str, part: float) -> None:
        bench.progress(f"{name} for io.cost", io_cost.STEPS)(part)

    with _bare(bench.device):
        model = io_cost.io_cost_model(bench.scenario, bench.target, bench.out, tell)
    bench.steps.finish(MEASURE_S * io_cost.STEPS)
    return model


def _io_cost_speed(bench: _Bench, model: str) -> knobs.IoCost:
    """At which speed the model gives the weights their due with all tenants busy.

    At the full speed of the device, its own queue decides who is served and weights mean little; a lower speed costs
    throughput. So this looks for the highest that is fair, or else for the fairest.
    """
    busy = io_cost.busy(bench.scenario.at(bench.scenario.points[len(bench.scenario.points) // 2]))
    tried: list[tuple[float, int]] = []
    notes = []
    for vrate in VRATES:
        job = _Job(busy, bench.device, bench.target, knobs.TABLE["io.cost"], None, 0)
        need = knobs.Need(knobs.IoCost(model, vrate, ""))
        run = _measured(job, need, bench.out / f"measure-vrate-{vrate}", bench.progress("io.cost's speed")).run
        tried.append((run.fairness_index or 0.0, vrate))
        notes.append(f"{vrate} %: {run.total_iops:.0f} IOPS, fairness {run.fairness_index or 0:.3f}")
        if tried[-1][0] >= FAIR:
            break
    bench.steps.finish(MEASURE_S * len(VRATES))
    return knobs.IoCost(model, max(tried)[1], "; ".join(notes))


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


# --- What must not be touched ---


def _claimed_for(device: str, renew: Callable[[], None] | None) -> AbstractContextManager[None]:
    """A drive that is renewed goes away meanwhile, and so must not be open; but it is in a VM, where we are alone."""
    return nullcontext() if renew else disks.claimed(device)
