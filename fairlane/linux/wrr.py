# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Measures a drive's weighted round robin: a tenant for each priority of submission queues, with deep queues of reads.

d2fq puts the tenants where they are wanted. It goes by how far a tenant is ahead of the one furthest behind, and prices
say how far a read brings it. Before the load, a few reads of a size that is very dear bring two of the three ahead, and
what the load reads is next to free: so all of them stay where they are. io.fairlane.stat then says whether they did.
The weights that d2fq asks for are replaced by ours, and it is told not to adjust them as long as a run lasts.

How far a read brings a tenant, and which distance is far, depend on how many tenants are active. So all three are,
before the first dear read and from then on: each has a process that reads now and then.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fairlane import proc
from fairlane.errors import FairlaneError
from fairlane.experiment.model import Profile, Scenario, TenantSpec
from fairlane.experiment.wrr import CLASSES, Asked, Point, Seen
from fairlane.linux import cgroups, fio, io_cost, knobs, nvme, queue, sysfs
from fairlane.linux.cgroups import Tree
from fairlane.linux.disks import Target

KNOB = "d2fq"
HIGH, MEDIUM, LOW = CLASSES
WARM_UP_S = 2.0
MOST_SECONDS = 20.0  # of a run: within PERIOD_NS, and a read in low waits for less than Linux does for a command
QUEUES = 8  # hardware queues that are used at most
DEPTH = 256  # reads of a tenant's job at most: what is in the drive is not in its queues
BYTES, DEAR_BYTES = 4096, 16384  # of the load's reads, and of those that bring a tenant ahead
DEAR = 1 << 24  # what the latter cost, as much as anything may; the former cost 1
AHEAD = {MEDIUM: 32, LOW: 64}  # so many of the latter
THRESHOLD = AHEAD[MEDIUM] * DEAR * 7 // 4  # from there on low, from half of it on medium
PERIOD_NS = 100 * 10**9  # the longest: it sets no weights as long as a run lasts
# In so long it looks who is active. Once it has seen all, the longest: whoever is late does not count as idle.
FIRST_GRACE_NS, GRACE_NS = 3 * 10**9, 10 * 10**9
NOW_AND_THEN_US = 500_000
PLACED = 0.98  # of a tenant's reads must have been where they belong
TRIES = 3
SETTLES_S = 1.0
READ_S = 120.0  # for those that bring tenants ahead; a slowed-down drive takes a second


def look(device: str, refused: str | None) -> Seen:
    """What there is without measuring; refused says why d2fq cannot be chosen."""
    controller = nvme.Controller(device)
    registers = nvme.registers(controller.folder)
    there = queue.scheduler_file(device, queue.ROUTED).exists() and sysfs.loaded(KNOB)
    if refused and controller.driver and not there:
        raise FairlaneError(f"{refused}; it is what chooses among the drive's priorities: load our modules")
    return Seen(
        device=device,
        model=sysfs.said(controller.folder / "model") or "no model",
        driver=controller.driver,
        has=registers.has_wrr if registers else None,
        on=registers.wrr_is_on if registers else None,
        refused=refused,
        recommended=controller.recommended_burst,
    )


def hardware_queues(device: str) -> list[int]:
    """A CPU of each."""
    lists = sorted((sysfs.SYS_BLOCK / device / "mq").glob("*/cpu_list"), key=lambda path: int(path.parent.name))
    cpus = [int(said.split(",")[0].split("-")[0]) for path in lists if (said := path.read_text().strip())]
    return list(dict.fromkeys(cpus))[:QUEUES] or [0]


def scenario(device: str, asked: Asked, seconds: float, placed: bool = True) -> Scenario:
    """A tenant for each priority, if they are placed, with a job for each hardware queue."""
    cpus = hardware_queues(device)
    tags = int((sysfs.SYS_BLOCK / device / "mq/0/nr_tags").read_text())
    one = {HIGH, LOW} if asked.uneven else set()
    depths = {name: max(4, min(DEPTH, tags // 4)) for name in CLASSES}
    if placed:  # in low, no more may wait than a third of half of the tags; the others have what they take
        depths[LOW] = max(1, min(DEPTH, tags // 6))
    if asked.shallow:
        depths[HIGH] //= 4
    tenants = tuple(
        TenantSpec(
            name,
            jobs=len(mine),
            bs=BYTES,
            iodepth=depths[name],
            cores=tuple(mine),
        )
        for name, mine in ((name, cpus[:1] if name in one else cpus) for name in CLASSES)
    )
    return Scenario("wrr", Profile(device, "host", "a drive"), tenants, seconds=seconds, warmup=WARM_UP_S)


@contextmanager
def kept(device: str) -> Iterator[None]:
    """Weights and burst are afterwards as they were, or it is said why not."""
    controller = nvme.Controller(device)
    before = controller.arbitration
    try:
        yield
    finally:
        with proc.shielded():
            _put_back(controller, device, before)


def _put_back(controller: nvme.Controller, device: str, before: int) -> None:
    """Each try begins with a wait: the driver may be about to set what d2fq asked for, or a reset be under way."""
    why = ""
    for _ in range(TRIES):
        time.sleep(SETTLES_S)
        if controller.gone:
            raise FairlaneError(f"{device} has gone while it was measured, and all that was set of it went with it")
        try:
            if controller.arbitration != before:
                controller.arbitration = before
            if (now := controller.arbitration) == before:
                return
            why = f"they are {now:#010x}"
        except FairlaneError as error:
            why = str(error)
    raise FairlaneError(
        f"{device}: its weights are not back ({why}); `nvme set-feature {controller.node} --feature-id=1"
        f" --value={before:#x}` sets them as they were"
    )


@dataclass(frozen=True)
class Run:
    """One measurement."""

    target: Target
    asked: Asked
    seconds: float
    out: Path  # its files' name
    placed: bool  # the tenants have a priority each; else there are none

    @property
    def device(self) -> str:
        return self.target.path.name

    def measured(self) -> Point:
        what = scenario(self.device, self.asked, self.seconds, self.placed)
        name = KNOB if self.placed else "none"
        for _ in range(TRIES):
            with (
                cgroups.tree((), what.tenants) as tree,
                io_cost.without(tree.mount, sysfs.device_number(self.device)),
                queue.scheduler(self.device, name, queue.ROUTED if self.placed else queue.QUEUE),
            ):
                if point := self._loaded(what, tree):
                    return point
        raise FairlaneError(
            f"{self.device}: {KNOB} did not keep the tenants in the priorities where they were put, {TRIES} times in a"
            " row; try again when the machine has less to do"
        )

    def _loaded(self, what: Scenario, tree: Tree) -> Point | None:
        """None: they were not where they belong."""
        number, controller = sysfs.device_number(self.device), nvme.Controller(self.device)
        with self._placed(tree):
            value = self._set(controller)
            before, cpus = _classes(tree, number), _Cpus(what)
            measured = fio.run(
                what,
                self.target,
                self.out,
                cgroups={tenant.name: tree.inside(tenant.name) for tenant in what.tenants},
                counts=lambda: {t.name: cgroups.moved(tree, t.name, number) for t in what.tenants},
                seed=what.seed,
                progress=cpus.look,
            )
            if (now := controller.arbitration) != value:
                raise FairlaneError(
                    f"{controller.node}: its arbitration was {now:#010x} after the load, and {value:#010x} before; let"
                    " nothing else set it"
                )
            if self.placed and not _where_they_belong(before, _classes(tree, number)):
                return None
        high, medium, low = (measured.loads[name].ios / measured.seconds for name in CLASSES)
        queues = [len(tenant.cores) for tenant in what.tenants]
        depths = [tenant.jobs * tenant.iodepth for tenant in what.tenants]
        weights, burst = nvme.weights_and_burst(value) if self.placed else (self.asked.weights, self.asked.burst)
        return Point(
            weights,
            burst,
            (queues[0], queues[1], queues[2]),
            (depths[0], depths[1], depths[2]),
            (high, medium, low),
            cpus.busy,
            asked=None if weights == self.asked.weights else self.asked.weights,
        )

    def _set(self, controller: nvme.Controller) -> int:
        """The weights and burst that the controller now has: it may take others, and without priorities none."""
        value = nvme.arbitration(self.asked.weights, self.asked.burst)
        try:
            controller.arbitration = value
        except FairlaneError:
            if self.placed:
                raise
        return controller.arbitration

    @contextmanager
    def _placed(self, tree: Tree) -> Iterator[None]:
        """Two of the tenants are ahead of the first, and none is idle."""
        if not self.placed:
            yield
            return
        folder = sysfs.SYS_BLOCK / self.device / queue.ROUTED
        values = {
            "low_threshold": THRESHOLD,
            "prices": _prices(),
            "feed_forward": 0,
            "fixed_ratio": 0,
            "period_nsec": PERIOD_NS,
            "grace_nsec": FIRST_GRACE_NS,
        }
        for name, value in values.items():
            sysfs.write(folder / name, str(value))
        with ExitStack() as stack:
            readers = []
            for name in CLASSES:
                options = {"iodepth": 1, "time_based": 1, "runtime": 3600, "thinktime": NOW_AND_THEN_US}
                readers.append(stack.enter_context(proc.group(self._reader(tree, name, BYTES, options), merge=True)))
            self._wait_for(lambda: int((folder / "active_flows").read_text()) >= len(CLASSES), readers)
            sysfs.write(folder / "grace_nsec", str(GRACE_NS))
            for name, reads in AHEAD.items():
                command = self._reader(tree, name, DEAR_BYTES, {"iodepth": reads, "number_ios": reads})
                proc.output(command, what=f"reading {self.device}", limit_s=READ_S)
            yield

    def _reader(self, tree: Tree, name: str, size: int, options: Mapping[str, object]) -> list[str | Path]:
        """fio in the tenant's cgroup."""
        given = {"name": name, "filename": self.target.path, "direct": 1, "ioengine": "libaio", "rw": "randread"}
        given |= {"bs": size, **options}
        enter = 'echo 0 > "$0" && exec fio --readonly "$@" > /dev/null'
        words = [f"--{key}={value}" for key, value in given.items()]
        return ["sh", "-c", enter, tree.paths[name] / "cgroup.procs", *words]

    def _wait_for(self, look: Callable[[], bool], readers: Sequence[subprocess.Popen[bytes]]) -> None:
        end = time.monotonic() + READ_S
        while not look():
            for each in readers:
                if each.poll() is not None and each.stdout:
                    said = each.stdout.read().decode(errors="replace").splitlines()
                    raise FairlaneError(f"{self.device}: cannot be read{proc.tail(said)}")
            if time.monotonic() > end:
                raise FairlaneError(f"{self.device}: nothing was read for {READ_S:.0f} s; is the drive stuck?")
            time.sleep(0.02)


class _Cpus:
    """How busy those of the load are while it is measured."""

    def __init__(self, what: Scenario) -> None:
        self.names = {f"cpu{cpu}" for tenant in what.tenants for cpu in tenant.cores}
        self.begins = what.warmup / (what.warmup + what.seconds)
        self.looks: list[tuple[float, dict[str, float]]] = []

    def look(self, part: float) -> None:
        if self.begins <= part < 1:
            lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
            # All but idle and iowait; guests' time is in user's.
            busy = {words[0]: sum(map(int, words[1:4] + words[6:9])) / 100 for words in lines if words[0] in self.names}
            self.looks.append((time.monotonic(), busy))

    @property
    def busy(self) -> float:
        """The busiest."""
        if len(self.looks) < 2:
            return 0.0
        (began, first), (ended, last) = self.looks[0], self.looks[-1]
        return max(last[name] - first[name] for name in first) / (ended - began)


def _prices() -> str:
    """Of reads and writes of 512 bytes, 1 KiB and so on."""
    each = " ".join(str(DEAR if 512 << n == DEAR_BYTES else 1) for n in range(12))
    return f"read {each}\nwrite {each}\n"


def _stat(tree: Tree, number: str, name: str) -> dict[str, int]:
    """The tenant's line in io.fairlane.stat."""
    values = knobs.tenant_counters(tree, number).get(name, {})
    return {key: value for key, value in values.items() if isinstance(value, int)}


def _classes(tree: Tree, number: str) -> dict[str, dict[str, int]]:
    """How many requests of each tenant went to each priority, so far."""
    found = {name: _stat(tree, number, name) for name in CLASSES}
    return {name: {each: stat.get(f"{each}ios", 0) for each in CLASSES} for name, stat in found.items()}


def _where_they_belong(before: Mapping[str, Mapping[str, int]], after: Mapping[str, Mapping[str, int]]) -> bool:
    sent = {name: {each: after[name][each] - before[name][each] for each in CLASSES} for name in CLASSES}
    return all(counts[name] >= PLACED * max(1, sum(counts.values())) for name, counts in sent.items())
