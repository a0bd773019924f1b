# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Knobs: the ways to ask Linux for isolation. A knob is an entry of TABLE; ours come from the list of schedulers."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from fairlane import schedulers
from fairlane.errors import FairlaneError, offer
from fairlane.experiment.model import Cgroup, Scenario, TenantSpec, Variant, shares
from fairlane.linux import io_cost, queue, sysfs
from fairlane.linux.cgroups import Tree
from fairlane.linux.knob import (
    CLASS_FIRST,
    CLASS_LAST,
    CLASS_MIDDLE,
    CLASSES,
    ByWeight,
    Knob,
    Priority,
    Setting,
    Tuning,
    target_us,
)

BFQ_WEIGHT_MAX = 1000
# Where Linux is older than 6.5: all that it has for real time. From 6.0 on it does nothing there, since whoever has
# asked for no class has best effort before this is looked at.
CLASS_FIRST_BEFORE = "none-to-rt"
# What no drive here can reach.
SLACK_BYTES_PER_S = 1e12
SLACK_US = 10_000_000
LIGHT, HEAVY, HEAVIEST = 100, 1000, 10000  # weights of a tenant with priority, beside others of 100: from none on
LATENCY = "io.fairlane.latency"
QOS_LEAST = 10  # percent of vrate, at least, where latency targets are to decide
QOS_PARTS = (1.0, 0.67, 0.44, 0.22, 0.11, 0.056, 0.028)  # of the targets: as far apart as those of isol-bench's authors


def _evenly(first: float, last: float, count: int) -> list[float]:
    return [round(first + (last - first) * n / (count - 1), 4) for n in range(count)]


# --- The knobs ---


class MqDeadline(Knob):
    times = ("read_expire", "write_expire", "prio_aging_expire")


class Kyber(Knob):
    times = ("read_lat_nsec", "write_lat_nsec")


class Bfq(ByWeight):
    def set(self, setting: Setting) -> dict[str, Any]:
        """Weights scaled into BFQ's range, and without its guesses at who is interactive, which would override them.

        Where nobody is to be held back, it does not idle, either, as isol-bench's authors have it for overhead.
        """
        heaviest = max(node.weight for node in setting.tree.nodes.values())
        shrink = min(1.0, BFQ_WEIGHT_MAX / heaviest)
        variables = {"low_latency": 0} | ({"slice_idle": 0} if setting.tuning.slack else {})
        for name, value in variables.items():
            setting.write(queue.iosched(setting.device) / name, str(value))
        return variables | setting.weights("io.bfq.weight", lambda weight: max(1, round(weight * shrink)))

    def published_priorities(self, _first: str) -> list[Priority]:
        weights = [100, *(round(weight) for weight in _evenly(225, 10000, 44))]
        return [Priority(f"weight {weight}", weight) for weight in weights]


class IoMax(Knob):
    needs = ("bytes_per_s",)

    def set(self, setting: Setting) -> dict[str, Any]:
        """Each tenant's share of the measured maximum in bytes and in I/Os, in its own mix of reads and writes."""
        limits = {}
        for tenant, most in self._limits(setting).items():
            values = {}
            for letter, part in (("r", tenant.reads), ("w", 1 - tenant.reads)):
                if part > 0:
                    values[f"{letter}bps"] = max(1, round(most * part))
                    values[f"{letter}iops"] = max(
                        1, round(most * part / (tenant.bs or 512) * _requests(setting.device, tenant.bs))
                    )
            line = " ".join(f"{key}={value}" for key, value in values.items())
            setting.write(setting.tree.paths[tenant.name] / "io.max", f"{setting.number} {line}")
            limits[tenant.name] = line
        return {"io.max": limits}

    def _limits(self, setting: Setting) -> dict[TenantSpec, float]:
        """bytes/s of each tenant that is to have a limit."""
        scenario, tuning = setting.scenario, setting.tuning
        if tuning.idle:
            return {}
        if tuning.slack:
            return dict.fromkeys(scenario.tenants, SLACK_BYTES_PER_S)
        assert setting.need.bytes_per_s is not None
        if tuning.others is not None:
            rest = replace(scenario, tenants=tuple(t for t in scenario.tenants if t.name != tuning.first))
            most = {name: share * tuning.others for name, share in shares(rest).items()}
        else:
            most = shares(scenario)
        return {t: most[t.name] * setting.need.bytes_per_s for t in scenario.tenants if t.name in most}

    def priorities(self, first: str) -> list[Priority]:
        return [self._others_at(first, fraction) for fraction in (0.9, 0.75, 0.6, 0.45, 0.3, 0.2, 0.1)]

    def published_priorities(self, first: str) -> list[Priority]:
        return [self._others_at(first, fraction) for fraction in _evenly(0.97, 0.03, 29)]

    def burst(self, first: str, _weight: int, others: float) -> Priority:
        return self._others_at(first, others)

    def _others_at(self, first: str, fraction: float) -> Priority:
        return Priority(f"others at {fraction:.0%}", tuning=Tuning(first=first, others=fraction))


class IoPrioClass(MqDeadline):
    def set(self, setting: Setting) -> dict[str, Any]:
        """Three classes are all there is: real time from twice the mean weight on, idle from half of it down."""
        scenario, tuning = setting.scenario, setting.tuning
        if tuning.idle:
            return {}
        share = shares(scenario)
        classes = {}
        for tenant in scenario.tenants:
            relative = share[tenant.name] * len(share)
            kind = CLASS_FIRST if relative >= 2 else CLASS_LAST if relative <= 0.5 else CLASS_MIDDLE
            if tuning.slack:
                kind = CLASS_MIDDLE
            elif tuning.classes:
                kind = tuning.classes[tenant.name != tuning.first]
            classes[tenant.name] = self._write(setting, setting.tree.paths[tenant.name] / "io.prio.class", kind)
        return {"io.prio.class": classes}

    def _write(self, setting: Setting, file: Path, kind: str) -> str:
        """What is there in the end."""
        try:
            setting.write(file, kind)
        except FairlaneError as error:
            if kind != CLASS_FIRST or getattr(error.__cause__, "errno", None) != errno.EINVAL:
                raise
            kind = CLASS_FIRST_BEFORE
            setting.write(file, kind)
        return kind

    def priorities(self, first: str) -> list[Priority]:
        return self._pairs(first, ((CLASS_FIRST, CLASS_MIDDLE), (CLASS_MIDDLE, CLASS_LAST), (CLASS_FIRST, CLASS_LAST)))

    def published_priorities(self, first: str) -> list[Priority]:
        return self._pairs(first, product(CLASSES, CLASSES))

    def _pairs(self, first: str, pairs: Iterable[tuple[str, str]]) -> list[Priority]:
        return [Priority(" over ".join(pair), tuning=Tuning(first=first, classes=pair)) for pair in pairs]

    def burst(self, first: str, _weight: int, _others: float) -> Priority:
        return self._pairs(first, [(CLASS_MIDDLE, CLASS_LAST)])[0]


class IoLatency(Knob):
    needs = ("bytes_per_s", "alone_us")
    # A window lasts 16 targets, 0.1 to 1 s. After each, 0.5 s apart at least, those with wider targets may have half as
    # much in the drive as before, from all of their tags on.
    period_s, periods = 1.0, 10

    def set(self, setting: Setting) -> dict[str, Any]:
        """Targets in us. By default what the tenant's outstanding I/Os take at its share of the measured maximum; a
        tenant that misses its own has those with a wider one held back."""
        scenario, tuning = setting.scenario, setting.tuning
        if tuning.idle:
            return {}
        targets = {}
        if tuning.slack:
            targets = dict.fromkeys((t.name for t in scenario.tenants), SLACK_US)
        elif tuning.first is not None and (target := target_us(tuning, setting.need)) is not None:
            targets = {tuning.first: target}
        else:
            assert setting.need.bytes_per_s is not None
            for tenant in scenario.tenants:
                outstanding = tenant.jobs * tenant.iodepth * (tenant.bs or 512)
                most = shares(scenario)[tenant.name] * setting.need.bytes_per_s
                targets[tenant.name] = max(1, round(outstanding / most * 1e6))
        for name, target in targets.items():
            setting.write(setting.tree.paths[name] / "io.latency", f"{setting.number} target={target}")
        return {"io.latency": {name: f"target={target}" for name, target in targets.items()}}

    def priorities(self, first: str) -> list[Priority]:
        return self._targets(first, (8.0, 5.0, 3.0, 2.0, 1.5, 1.2, 1.0))

    def published_priorities(self, first: str) -> list[Priority]:
        return self._targets(first, _evenly(16.0, 1.0, 45))

    def _targets(self, first: str, targets: Sequence[float]) -> list[Priority]:
        return [Priority(f"{t:g} x alone", tuning=Tuning(first=first, target_of_alone=t)) for t in targets]

    def burst(self, first: str, _weight: int, _others: float) -> Priority:
        return Priority("2 x alone", tuning=Tuning(first=first, target_of_alone=2.0))


class IoCost(ByWeight):
    """By its model: that is scaled to what the drive does under the load, and vrate is fixed."""

    needs: ClassVar[tuple[str, ...]] = ("io_cost",)

    @contextmanager
    def applied(self, setting: Setting) -> Iterator[dict[str, Any]]:
        if setting.tuning.idle:
            yield {}
            return
        model, qos = self.setting(setting)
        files = {"io.cost.model": model.line, "io.cost.qos": qos.line}
        with io_cost.applied(setting.tree.mount, setting.number, files, setting.write):
            tuned = setting.need.io_cost
            why = tuned.why if tuned and not setting.tuning.slack else "does not bind"
            yield {**files, "speed": why} | setting.weights("io.weight")

    def setting(self, setting: Setting) -> tuple[io_cost.Model, io_cost.Qos]:
        """What io.cost.model and io.cost.qos are to say."""
        if setting.tuning.slack:
            return io_cost.Model.slack(), io_cost.SLACK_QOS
        assert setting.need.io_cost is not None
        return self.tuned(setting.need.io_cost, setting.tuning)

    def tuned(self, found: io_cost.Tuned, tuning: Tuning) -> tuple[io_cost.Model, io_cost.Qos]:
        return found.by_model(tuning.speed)

    def priorities(self, _first: str) -> list[Priority]:
        return self._speeds((1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4))

    def published_priorities(self, _first: str) -> list[Priority]:
        return self._speeds(_evenly(1.0, 0.04, 33))

    def _speeds(self, speeds: Sequence[float]) -> list[Priority]:
        return [Priority(f"weight {HEAVIEST}, {v:.0%}", HEAVIEST, Tuning(speed=v)) for v in speeds]


class IoCostQos(IoCost):
    """With latency targets that its speed follows."""

    needs = ("io_cost", "io_cost_targets")
    settles = True

    def tuned(self, found: io_cost.Tuned, tuning: Tuning) -> tuple[io_cost.Model, io_cost.Qos]:
        return found.by_qos(tuning.least_vrate, tuning.targets)

    def priorities(self, _first: str) -> list[Priority]:
        by_weight = [Priority(f"weight {weight}", weight) for weight in (LIGHT, HEAVY)]
        return by_weight + [self._targets(part, QOS_LEAST) for part in (1.0, 0.5, 0.25, 0.125, 0.0625)]

    def published_priorities(self, _first: str) -> list[Priority]:
        lows = (95, 75, 50, 25, QOS_LEAST)
        pairs = product(lows, (1, 25, 100, 1000, 2000, 5000, HEAVIEST))
        by_weight = [Priority(f"weight {w}, from {v} %", w, Tuning(least_vrate=v)) for v, w in pairs]
        return by_weight + [self._targets(part, v) for v, part in product(lows, QOS_PARTS[1:])]

    def _targets(self, part: float, least: float) -> Priority:
        name = f"weight {HEAVIEST}, targets at {100 * part:g} %, from {least} %"
        return Priority(name, HEAVIEST, Tuning(targets=part, least_vrate=least))


class Ours(ByWeight):
    """One of our schedulers."""

    def set(self, setting: Setting) -> dict[str, Any]:
        return setting.weights("io.fairlane.weight") | self._latencies(setting) | self._prices(setting)

    def _latencies(self, setting: Setting) -> dict[str, Any]:
        """Targets in us, of the cgroups that have one."""
        nodes = {} if setting.tuning.idle else setting.tree.nodes
        targets = {name: round(node.latency * 1e6) for name, node in nodes.items() if node.latency}
        for name, target in targets.items():
            setting.write(setting.tree.paths[name] / LATENCY, str(target))
        return {LATENCY: targets} if targets else {}

    def _prices(self, setting: Setting) -> dict[str, str]:
        """Have it charge by the scenario's price list, if there is one."""
        if setting.scenario.prices is None:
            return {}
        text = setting.scenario.prices.text()
        setting.write(self.variables(setting.device) / "prices", text)
        return {"prices": text}


class OursRqQos(Ours):
    """It knows latency targets: here what the first tenant has when it is alone."""

    no_elevator = True
    latencies = True
    needs = ("alone_us",)
    drive_period_s = 0.02  # a search takes a few of these, the longer the dearer what is in the drive

    def priorities(self, first: str) -> list[Priority]:
        by_weight = [Priority(f"weight {weight}", weight) for weight in (LIGHT, HEAVY)]
        return by_weight + [self._target(first, HEAVIEST, loss) for loss in (12, 40, 60, 80)]

    def burst(self, first: str, weight: int, _others: float) -> Priority:
        return self._target(first, weight)

    def _target(self, first: str, weight: int, loss: int = 12) -> Priority:  # 12: as it is by default
        tuning = Tuning(first=first, target_of_alone=1.0)
        return Priority(f"weight {weight}, {loss} % for its target", weight, tuning, {"latency_loss": loss})


class OursRouting(Ours):
    no_elevator = True
    wrr = True
    period_s = 1.0


def _ours(what: schedulers.Scheduler) -> Knob:
    kind = {"ELEVATOR": Ours, "RQ_QOS": OursRqQos, "ROUTER": OursRouting}[what.host]
    modules = ("fairlane-route",) if kind.no_elevator else ()
    return kind(what.name, what.name, what.about, ("io.fairlane.weight",), (), (*modules, "fairlane", what.module))


IO_COST = "shares by io.weight, with a cost model measured on the device"
COST_FILES = ("io.weight",), ("io.cost.model", "io.cost.qos")
TABLE = {
    knob.name: knob
    for knob in (
        Knob("none", "none", "no scheduler: the most that the device gives, shared as it comes"),
        MqDeadline(
            "mq-deadline",
            "mq-deadline",
            "mq-deadline: bounds waiting times; knows no weights",
            modules=("mq-deadline",),
        ),
        Kyber("kyber", "kyber", "Kyber: holds latency targets; knows no weights", modules=("kyber-iosched",)),
        Bfq("bfq", "bfq", "BFQ: shares by io.bfq.weight", ("io.bfq.weight",), modules=("bfq",)),
        IoMax("io.max", "none", "a fixed limit per cgroup: its share of the measured maximum", ("io.max",)),
        IoPrioClass(
            "io.prio.class",
            "mq-deadline",
            "mq-deadline with a class per cgroup by its weight: real time, best effort or idle",
            ("io.prio.class",),
            modules=("mq-deadline",),
            lab=True,
        ),
        IoLatency(
            "io.latency",
            "none",
            "a latency target per cgroup: what it would have with its share of the measured maximum",
            ("io.latency",),
            lab=True,
        ),
        IoCost("io.cost", "none", f"{IO_COST}, scaled to what the device does under the load", *COST_FILES),
        IoCostQos("io.cost-qos", "none", f"{IO_COST} and latency targets that its speed follows", *COST_FILES),
        *map(_ours, schedulers.SCHEDULERS),
    )
}


# --- What there is, and applying it ---


def check_names(names: Sequence[str]) -> None:
    for name in names:
        if name not in TABLE:
            raise FairlaneError(f"unknown knob {name!r}; {offer(name, TABLE)}")


def not_played(variant: Variant) -> str | None:
    """What of the variant no kernel can be asked for, or None."""
    if variant.low_latency:
        return f"{variant.name} is without a block layer, which only the simulator's host can be (--on sim)"
    if variant.set and TABLE[variant.knob].scheduler == "none":
        return f"{variant.name} sets tunables of {variant.knob}, which has none; leave out its `set`"
    return None


def not_followed(name: str, scenario: Scenario) -> list[str]:
    """A note, if the scenario has latency targets that the knob knows nothing of."""
    nodes: list[Cgroup | TenantSpec] = [*scenario.groups, *scenario.tenants]
    if TABLE[name].latencies or not any(node.latency for node in nodes):
        return []
    names = " and ".join(name for name, knob in TABLE.items() if knob.latencies)
    return [f"Of all knobs, only {names} knows the scenario's latency targets; the others run without."]


def unavailable(knob: Knob, device: str, mount: Path, inner: Path) -> str | None:
    """Why this kernel cannot apply the knob to the device, or None; inner is any cgroup but the root. Loads modules."""
    for module in knob.modules:
        if not sysfs.loaded(module):
            subprocess.run(["modprobe", "-q", module], check=False, capture_output=True)
    if knob.no_elevator and not queue.scheduler_file(device, queue.ROUTED).exists():
        return f"{device} takes no scheduler of ours but elevators: there is no /sys/block/{device}/{queue.ROUTED}"
    if knob.scheduler not in queue.schedulers(device, knob.place):
        if knob.wrr and sysfs.loaded(knob.modules[-1]):
            return f"{device} has no weighted round robin that its driver uses, and {knob.name} leaves all to that"
        offered = ", ".join(queue.schedulers(device, knob.place))
        return f"/sys/block/{device}/{knob.place}/scheduler does not offer {knob.scheduler} (it offers {offered})"
    for folder, files in ((mount, knob.root_files), (inner, knob.files)):
        for file in files:
            if not (folder / file).exists():
                lab = "; the lab kernel has it (fairlane kernel build; in a VM, --kernel lab)" if knob.lab else ""
                return f"this kernel has no {file} in its cgroups{lab}"
    return None


@contextmanager
def applied(knob: Knob, setting: Setting) -> Iterator[dict[str, Any]]:
    """Apply the knob, yield what was set, and put everything back; weights and limits go with their cgroups."""
    with (
        io_cost.without(setting.tree.mount, setting.number),
        queue.scheduler(setting.device, knob.scheduler, knob.place),
    ):
        setting.written.append((queue.scheduler_file(setting.device, knob.place), knob.scheduler))
        with knob.applied(setting) as config:
            yield {"scheduler": knob.scheduler, **config}


def tenant_counters(tree: Tree, number: str) -> dict[str, dict[str, Any]]:
    """io.fairlane.stat of every tenant, where there is one."""
    counters = {}
    for name, path in tree.paths.items():
        file = path / "io.fairlane.stat"
        line = sysfs.line_of(file, number) if file.exists() else None
        if line:
            counters[name] = sysfs.numbers(dict(pair.split("=", 1) for pair in line.split()))
    return counters


def _requests(device: str, bs: int) -> int:
    """How many requests a block of that size becomes."""
    limit = int((sysfs.SYS_BLOCK / device / "queue/max_sectors_kb").read_text()) * 1024
    return max(1, -(-bs // limit))
