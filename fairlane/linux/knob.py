# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What a knob is: a way to ask Linux for isolation, what it can be set to, and whether it took effect.

The knobs themselves are in knobs.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from fairlane.experiment.model import Scenario
from fairlane.linux import io_cost, queue, sysfs
from fairlane.linux.cgroups import Tree


@dataclass(frozen=True)
class Need:
    """What some knobs are set from; measured on the device beforehand, and only for the knobs that want it."""

    io_cost: io_cost.Tuned | None = None
    bytes_per_s: float | None = None  # what the scenario's own mix moves without any knob
    alone_us: float | None = None  # the median latency of the first tenant when it is alone


@dataclass(frozen=True)
class Tuning:
    """What a knob can be set to beside weights. All of it may be left out: then weights say everything."""

    idle: bool = False  # only the scheduler; no cgroup is given anything
    slack: bool = False  # limits and targets so wide that they cannot bind
    first: str | None = None  # the tenant that goes before all others, for what follows
    others: float | None = None  # io.max: the fraction of the maximum that the others may use together
    target_us: int | None = None  # a latency target: of the first tenant, and of no other
    target_of_alone: float | None = None  # the same, relative to its median latency when it is alone
    classes: tuple[str, str] | None = None  # io.prio.class: of the first tenant, and of the others
    speed: float = 1.0  # io.cost: the part of the speed that was found for the drive
    least_vrate: float = io_cost.QOS_LOW  # io.cost-qos: percent of that speed
    targets: float = 1.0  # io.cost-qos: the part of the latency targets that were found for the drive


BY_WEIGHT, SLACK = Tuning(), Tuning(slack=True)
CLASSES = CLASS_LAST, CLASS_MIDDLE, CLASS_FIRST = "idle", "restrict-to-be", "promote-to-rt"  # in io.prio.class


def target_us(tuning: Tuning, need: Need) -> int | None:
    """Of the first tenant."""
    if tuning.target_of_alone is None or need.alone_us is None:
        return tuning.target_us
    return max(1, round(need.alone_us * tuning.target_of_alone))


def targeted(scenario: Scenario, tuning: Tuning, need: Need) -> Scenario:
    """The scenario with the latency target that the first tenant is to have."""
    target = target_us(tuning, need)
    if target is None:
        return scenario
    tenants = (replace(t, latency=target / 1e6) if t.name == tuning.first else t for t in scenario.tenants)
    return replace(scenario, tenants=tuple(tenants))


@dataclass(frozen=True)
class Setting:
    """A knob about to be applied: where, and to what."""

    device: str  # as in /sys/block
    number: str  # MAJ:MIN
    tree: Tree
    scenario: Scenario
    need: Need
    tuning: Tuning = BY_WEIGHT
    variant: Mapping[str, int] = field(default_factory=dict)  # tunables of the scheduler, beside the scenario's
    time_scale: int = 1  # how much slower the drive is than one that Linux' constants of time are for
    written: list[tuple[Path, str]] = field(default_factory=list)  # what was set, to be read back

    def write(self, path: Path, value: str) -> None:
        sysfs.write(path, value)
        self.written.append((path, value))

    def weights(self, file: str, scale: Callable[[int], int] = int) -> dict[str, Any]:
        """Write every cgroup's weight into that file of it."""
        if self.tuning.idle:
            return {}
        written = {name: scale(node.weight) for name, node in self.tree.nodes.items()}
        for name, weight in written.items():
            self.write(self.tree.paths[name] / file, str(weight))
        return {file: written}

    def slowed(self, *names: str) -> dict[str, int]:
        """Have the elevator's constants of time fit a drive that is slowed down."""
        if self.time_scale == 1:
            return {}
        files = {name: queue.iosched(self.device) / name for name in names}
        values = {name: int(file.read_text()) * self.time_scale for name, file in files.items() if file.exists()}
        for name, value in values.items():
            self.write(files[name], str(value))
        return values


@dataclass(frozen=True)
class Priority:
    """One way to give a tenant priority over all others."""

    name: str
    weight: int | None = None  # of that tenant; None: that of the others
    tuning: Tuning = BY_WEIGHT
    tunables: Mapping[str, int] = field(default_factory=dict)  # of the scheduler

    def asks(self, others: int) -> bool:
        """For priority, beside others of that weight."""
        if self.tuning.classes:
            own, rest = map(CLASSES.index, self.tuning.classes)
            return own > rest
        return self.tuning.first is not None or (self.weight or others) > others


AS_IT_IS = Priority("as it is")


@dataclass(frozen=True)
class Knob:
    """A way to ask Linux for isolation. By default one that knows no weights, and is as it is."""

    name: str
    scheduler: str  # what is written to queue/scheduler, or to fairlane/scheduler
    about: str
    files: tuple[str, ...] = ()  # cgroup files that the kernel must offer, in a cgroup below the root
    root_files: tuple[str, ...] = ()  # the same, in the root cgroup
    modules: tuple[str, ...] = ()  # that offer them
    lab: bool = False  # Debian's kernels lack it; the lab kernel has it

    needs: ClassVar[tuple[str, ...]] = ()  # what of Need it is set from
    no_elevator: ClassVar[bool] = False  # it is one of ours beside the elevator, in fairlane/scheduler
    latencies: ClassVar[bool] = False  # it goes by the latency targets of the scenario
    wrr: ClassVar[bool] = False  # it chooses classes of the drive's queues, which have to be there
    period_s: ClassVar[float] = 0.1  # how often it looks at the load and the drive, to adjust itself
    periods: ClassVar[int] = 5  # after so many it has adjusted itself
    drive_period_s: ClassVar[float] = 0.0  # the same, of one that counts in what the drive does, at its own speed
    settles: ClassVar[bool] = False  # the kernel moves it under load, until it has found its place
    times: ClassVar[tuple[str, ...]] = ()  # of its elevator: what is meant in the drive's time

    @property
    def place(self) -> str:
        """The folder in /sys/block/DEVICE with its scheduler file."""
        return queue.ROUTED if self.no_elevator else queue.QUEUE

    def variables(self, device: str) -> Path:
        """The folder with its scheduler's tunables."""
        return sysfs.SYS_BLOCK / device / queue.ROUTED if self.no_elevator else queue.iosched(device)

    @contextmanager
    def applied(self, setting: Setting) -> Iterator[dict[str, Any]]:
        """Set what there is to set beside the scheduler, which is there; yield what that was, and put it back.

        Weights and limits go with their cgroups, and the scheduler's tunables with the scheduler.
        """
        yield setting.slowed(*self.times) | self.set(setting) | self.tunables(setting)

    def set(self, _setting: Setting) -> dict[str, Any]:
        """What is set of the tenants' cgroups, and of the scheduler."""
        return {}

    def tunables(self, setting: Setting) -> dict[str, int]:
        """What the scenario, and a variant, set of the scheduler's tunables."""
        values = {**setting.scenario.tunables.get(self.name, {}), **setting.variant}
        for key, value in values.items():
            setting.write(self.variables(setting.device) / key, str(value))
        return values

    def priorities(self, _first: str) -> list[Priority]:
        """All that it can be set to when the first tenant has priority, from none to the most."""
        return [AS_IT_IS]

    def published_priorities(self, first: str) -> list[Priority]:
        """The same, as many as isol-bench's authors tried of it."""
        return self.priorities(first)

    def burst(self, _first: str, _weight: int, _others: float) -> Priority:
        """What comes nearest to that weight of the first tenant, which leaves the others that share."""
        return AS_IT_IS


class ByWeight(Knob):
    """A knob that knows weights."""

    def priorities(self, _first: str) -> list[Priority]:
        return [Priority(f"weight {w}", w) for w in (100, 200, 500, 1000, 2000, 5000, 10000)]

    def burst(self, _first: str, weight: int, _others: float) -> Priority:
        return Priority(f"weight {weight}", weight)


# --- Whether it took effect ---


def differing(setting: Setting) -> list[str]:
    """What the kernel now says otherwise than it was set; the last word that was written to a file counts."""
    wrong = []
    for path, value in dict(setting.written).items():
        said = sysfs.said(path)
        if said is None or not _agrees(said, value, setting.number):
            wrong.append(f"{path} says {said or 'nothing'!r}, not {value!r}")
    return wrong


def _agrees(said: str, value: str, number: str) -> bool:
    """Whether a file says what was written to it: a line for the device, the scheduler in brackets, or a value."""
    if value.startswith(f"{number} "):
        lines = [line.split()[1:] for line in said.splitlines() if line.startswith(f"{number} ")]
        return bool(lines) and all(any(_same(word, one) for one in lines[0]) for word in value.split()[1:])
    if "[" in said:
        return f"[{value}]" in said.split()
    words = said.split()
    return words == value.split() or value in words[-1:]  # weights: "default 100"


def _same(a: str, b: str) -> bool:
    """KEY=VALUE; numbers may be written in another way."""
    (key, _, one), (other_key, _, other) = a.partition("="), b.partition("=")
    if key != other_key:
        return False
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other
