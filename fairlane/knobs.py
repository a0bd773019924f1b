# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Knobs: the ways to ask Linux for isolation. Each says whether this kernel has it, sets weights, and undoes that."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairlane import iocost
from fairlane.cgroups import Tree
from fairlane.errors import FairlaneError
from fairlane.proc import shielded
from fairlane.scenario import KNOBS, OURS, Scenario, TenantSpec, shares

SYS_BLOCK = Path("/sys/block")
BFQ_WEIGHT_MAX = 1000
# Of elevators: what is meant in the drive's time.
MQ_DEADLINE_TIMES = ("read_expire", "write_expire", "prio_aging_expire")
KYBER_TIMES = ("read_lat_nsec", "write_lat_nsec")
CLASS_FIRST, CLASS_MIDDLE, CLASS_LAST = "none-to-rt", "restrict-to-be", "idle"  # in io.prio.class
# What no drive here can reach.
SLACK_BYTES_PER_S = 1e12
SLACK_US = 10_000_000
# Folders in /sys/block/DEVICE: where elevators are chosen, and schedulers that do without.
QUEUE, ROUTED = "queue", "fairlane"


@dataclass(frozen=True)
class Need:
    """What some knobs are set from; measured on the device beforehand, and only for the knobs that want it."""

    io_cost: iocost.Tuned | None = None
    bytes_per_s: float | None = None  # what the scenario's own mix moves without any knob


@dataclass(frozen=True)
class Tuning:
    """What a knob can be set to beside weights. All of it may be left out: then weights say everything."""

    idle: bool = False  # only the scheduler; no cgroup is given anything
    slack: bool = False  # limits and targets so wide that they cannot bind
    first: str | None = None  # the tenant that goes before all others, for what follows
    others: float | None = None  # io.max: the fraction of the maximum that the others may use together
    target_us: int | None = None  # io.latency: of the first tenant, and of no other
    classes: tuple[str, str] | None = None  # io.prio.class: of the first tenant, and of the others
    speed: float = 1.0  # io.cost: the part of the speed that was found for the drive


BY_WEIGHT = Tuning()


@dataclass(frozen=True)
class Setting:
    """A knob about to be applied: where, and to what."""

    device: str  # as in /sys/block
    number: str  # MAJ:MIN
    tree: Tree
    scenario: Scenario
    need: Need
    tuning: Tuning = BY_WEIGHT
    time_scale: int = 1  # how much slower the drive is than one that Linux' constants of time are for
    written: list[tuple[Path, str]] = field(default_factory=list)  # what was set, to be read back

    def write(self, path: Path, value: str) -> None:
        _write(path, value)
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
        files = {name: SYS_BLOCK / self.device / QUEUE / "iosched" / name for name in names}
        values = {name: int(file.read_text()) * self.time_scale for name, file in files.items() if file.exists()}
        for name, value in values.items():
            self.write(files[name], str(value))
        return values


@dataclass(frozen=True)
class Knob:
    name: str
    scheduler: str  # what is written to queue/scheduler, or if it routes, to fairlane/scheduler
    about: str
    files: tuple[str, ...] = ()  # cgroup files that the kernel must offer, in a cgroup below the root
    root_files: tuple[str, ...] = ()  # the same, in the root cgroup
    modules: tuple[str, ...] = ()  # that offer them
    needs: tuple[str, ...] = ()  # what of Need it is set from
    lab: bool = False  # Debian's kernels lack it; the lab kernel has it
    routes: bool = False  # it chooses classes of the drive's queues, without an elevator

    @property
    def place(self) -> str:
        """The folder in /sys/block/DEVICE with its scheduler file."""
        return ROUTED if self.routes else QUEUE


TABLE = {
    knob.name: knob
    for knob in (
        Knob("none", "none", "no scheduler: the most that the device gives, shared as it comes"),
        Knob(
            "mq-deadline",
            "mq-deadline",
            "mq-deadline: bounds waiting times; knows no weights",
            modules=("mq-deadline",),
        ),
        Knob("kyber", "kyber", "Kyber: holds latency targets; knows no weights", modules=("kyber-iosched",)),
        Knob("bfq", "bfq", "BFQ: shares by io.bfq.weight", ("io.bfq.weight",), modules=("bfq",)),
        Knob(
            "io.max",
            "none",
            "a fixed limit per cgroup: its share of the measured maximum",
            ("io.max",),
            needs=("bytes_per_s",),
        ),
        Knob(
            "io.prio.class",
            "mq-deadline",
            "mq-deadline with a class per cgroup by its weight: real time, best effort or idle",
            ("io.prio.class",),
            modules=("mq-deadline",),
            lab=True,
        ),
        Knob(
            "io.latency",
            "none",
            "a latency target per cgroup: what it would have with its share of the measured maximum",
            ("io.latency",),
            needs=("bytes_per_s",),
            lab=True,
        ),
        *(
            Knob(
                name,
                "none",
                f"shares by io.weight, with a cost model measured on the device{how}",
                ("io.weight",),
                ("io.cost.model", "io.cost.qos"),
                needs=("io_cost",),
            )
            for name, how in (
                ("io.cost", ", scaled to what the device does under the load"),
                ("io.cost-qos", " and latency targets that its speed follows"),
            )
        ),
        *(
            Knob(name, name, f"{about} by io.fairlane.weight", ("io.fairlane.weight",), modules=("fairlane", name))
            for name, about in (
                ("kyber-fairness", "Kyber-fairness: shares"),
                ("mqflashfq", "mqFlashFQ: shares of the drive's time, by what requests cost,"),
                ("flashfq", "FlashFQ: the same with one lock for all cores, to compare with; shares"),
            )
        ),
        Knob(
            "d2fq",
            "d2fq",
            "D2FQ: shares by io.fairlane.weight, kept by the drive's own WRR arbitration",
            ("io.fairlane.weight",),
            modules=("fairlane-route", "fairlane", "d2fq"),
            routes=True,
        ),
        Knob(
            "mqfq",
            "mqfq",
            "MQFQ: shares by io.fairlane.weight, with start tags and a queue for each core",
            ("io.fairlane.weight",),
            modules=("fairlane", "mqfq"),
        ),
    )
}
assert tuple(TABLE) == KNOBS


def check_names(names: Sequence[str]) -> None:
    for name in names:
        if name not in TABLE:
            raise FairlaneError(f"unknown knob {name!r}; valid are {', '.join(TABLE)}")


def unavailable(knob: Knob, device: str, mount: Path, inner: Path) -> str | None:
    """Why this kernel cannot apply the knob to the device, or None; inner is any cgroup but the root. Loads modules."""
    for module in knob.modules:
        if not (Path("/sys/module") / module.replace("-", "_")).exists():
            subprocess.run(["modprobe", "-q", module], check=False, capture_output=True)
    if knob.routes and not _scheduler_file(device, ROUTED).exists():
        return f"{device}'s driver does not ask for classes of queues: there is no /sys/block/{device}/{ROUTED}"
    if knob.scheduler not in schedulers(device, knob.place):
        offered = ", ".join(schedulers(device, knob.place))
        return f"/sys/block/{device}/{knob.place}/scheduler does not offer {knob.scheduler} (it offers {offered})"
    if knob.routes and not _takes(device, knob):
        return f"{device} has no weighted round robin arbitration, and {knob.name} leaves all to that"
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
        without_io_cost(setting.tree.mount, setting.number),
        scheduler(setting.device, knob.scheduler, knob.place),
    ):
        config: dict[str, Any] = {"scheduler": knob.scheduler}
        setting.written.append((_scheduler_file(setting.device, knob.place), knob.scheduler))
        match knob.name:
            case "mq-deadline":
                yield config | setting.slowed(*MQ_DEADLINE_TIMES)
            case "kyber":
                yield config | setting.slowed(*KYBER_TIMES)
            case "bfq":
                yield config | _bfq(setting)
            case "io.max":
                yield config | _io_max(setting)
            case "io.prio.class":
                yield config | setting.slowed(*MQ_DEADLINE_TIMES) | _io_prio_class(setting)
            case "io.latency":
                yield config | _io_latency(setting)
            case "io.cost" | "io.cost-qos" if not setting.tuning.idle:
                with _io_cost(setting, *io_cost_setting(knob, setting)) as lines:
                    yield config | lines | setting.weights("io.weight")
            case name if name in OURS:
                yield config | setting.weights("io.fairlane.weight") | _prices(setting, name) | _tunables(setting, name)
            case _:
                yield config


# --- Whether it took effect ---


def differing(setting: Setting) -> list[str]:
    """What the kernel now says otherwise than it was set; the last word that was written to a file counts."""
    wrong = []
    for path, value in dict(setting.written).items():
        said = _said(path)
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


# --- The parts ---


def _scheduler_file(device: str, place: str) -> Path:
    return SYS_BLOCK / device / place / "scheduler"


def schedulers(device: str, place: str = QUEUE) -> list[str]:
    return _scheduler_file(device, place).read_text().replace("[", "").replace("]", "").split()


def current_scheduler(device: str, place: str = QUEUE) -> str:
    return _scheduler_file(device, place).read_text().partition("[")[2].partition("]")[0]


def _takes(device: str, knob: Knob) -> bool:
    """Whether the drive can do what a knob that routes needs: it refuses when it is asked."""
    file = _scheduler_file(device, knob.place)
    before = current_scheduler(device, knob.place)
    try:
        file.write_text(knob.scheduler)
    except OSError as error:
        return error.errno != errno.EOPNOTSUPP
    finally:
        if current_scheduler(device, knob.place) != before:
            with shielded():
                file.write_text(before)
    return True


def tunables(device: str) -> dict[str, str]:
    """The scheduler's files under queue/iosched and fairlane, counters included."""
    return {path.name: value for path, value in _tunable_files(device).items()}


def _tunable_files(device: str) -> dict[Path, str]:
    folders = [SYS_BLOCK / device / folder for folder in ("queue/iosched", ROUTED)]
    values = {path: _said(path) for folder in folders for path in sorted(folder.glob("*")) if path.name != "scheduler"}
    return {path: value for path, value in values.items() if value is not None}


def _said(path: Path) -> str | None:
    """What the file says, or None: some are write-only, and some are gone with their scheduler."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _settings(device: str) -> dict[Path, str]:
    """What can be set of the queue and its scheduler, and is lost with a change of schedulers.

    nr_requests is first: when it changes, schedulers set some of their own anew.
    """
    requests = SYS_BLOCK / device / QUEUE / "nr_requests"
    found = {path: value for path, value in _tunable_files(device).items() if path.stat().st_mode & 0o222}
    return {requests: value, **found} if (value := _said(requests)) else found


@contextmanager
def scheduler(device: str, name: str, place: str = QUEUE) -> Iterator[None]:
    """Put the scheduler in place with its defaults, and afterwards the one that was there with the settings it had."""
    files = [file for file in (_scheduler_file(device, ROUTED), _scheduler_file(device, QUEUE)) if file.exists()]
    before = {file: current_scheduler(device, file.parent.name) for file in files}
    settings = _settings(device)
    try:
        for file in files:
            _write(file, "none")
        _write(_scheduler_file(device, place), name)
        yield
    finally:
        with shielded():
            _write_all(_putting_back(before, settings))


def _putting_back(schedulers: dict[Path, str], settings: dict[Path, str]) -> Iterator[tuple[Path, str]]:
    """What to write to which file; each is looked at when those before it, which may change it, are written."""
    yield from dict.fromkeys(schedulers, "none").items()
    yield from schedulers.items()
    yield from ((path, value) for path, value in settings.items() if _said(path) not in (None, value))


def _variables(device: str, name: str) -> Path:
    return SYS_BLOCK / device / (ROUTED if TABLE[name].routes else f"{QUEUE}/iosched")


def _prices(setting: Setting, name: str) -> dict[str, str]:
    """Have one of our schedulers charge by the scenario's price list, if it has one."""
    if setting.scenario.cost is None:
        return {}
    text = setting.scenario.cost.text()
    setting.write(_variables(setting.device, name) / "prices", text)
    return {"prices": text}


def _tunables(setting: Setting, name: str) -> dict[str, int]:
    """What the scenario sets of that scheduler's tunables."""
    values = setting.scenario.tunables.get(name, {})
    for key, value in values.items():
        setting.write(_variables(setting.device, name) / key, str(value))
    return values


def _bfq(setting: Setting) -> dict[str, Any]:
    """Weights scaled into BFQ's range, and without its guesses at who is interactive, which would override them."""
    heaviest = max(node.weight for node in setting.tree.nodes.values())
    shrink = min(1.0, BFQ_WEIGHT_MAX / heaviest)
    setting.write(SYS_BLOCK / setting.device / "queue/iosched/low_latency", "0")
    return {"low_latency": 0} | setting.weights("io.bfq.weight", lambda weight: max(1, round(weight * shrink)))


def _io_max(setting: Setting) -> dict[str, Any]:
    """Each tenant's share of the measured maximum in bytes and in I/Os, in its own mix of reads and writes."""
    limits = {}
    for tenant, most in _limits(setting).items():
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


def _limits(setting: Setting) -> dict[TenantSpec, float]:
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


def _io_prio_class(setting: Setting) -> dict[str, Any]:
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
        setting.write(setting.tree.paths[tenant.name] / "io.prio.class", kind)
        classes[tenant.name] = kind
    return {"io.prio.class": classes}


def _io_latency(setting: Setting) -> dict[str, Any]:
    """Targets in us. By default what the tenant's outstanding I/Os take at its share of the measured maximum; a tenant
    that misses its own has those with a wider one held back."""
    scenario, tuning = setting.scenario, setting.tuning
    if tuning.idle:
        return {}
    targets = {}
    if tuning.slack:
        targets = dict.fromkeys((t.name for t in scenario.tenants), SLACK_US)
    elif tuning.target_us is not None and tuning.first is not None:
        targets = {tuning.first: tuning.target_us}
    else:
        assert setting.need.bytes_per_s is not None
        for tenant in scenario.tenants:
            outstanding = tenant.jobs * tenant.iodepth * (tenant.bs or 512)
            most = shares(scenario)[tenant.name] * setting.need.bytes_per_s
            targets[tenant.name] = max(1, round(outstanding / most * 1e6))
    for name, target in targets.items():
        setting.write(setting.tree.paths[name] / "io.latency", f"{setting.number} target={target}")
    return {"io.latency": {name: f"target={target}" for name, target in targets.items()}}


def _requests(device: str, bs: int) -> int:
    """How many requests a block of that size becomes."""
    limit = int((SYS_BLOCK / device / "queue/max_sectors_kb").read_text()) * 1024
    return max(1, -(-bs // limit))


@contextmanager
def without_io_cost(mount: Path, number: str) -> Iterator[None]:
    """Switch off an io.cost that somebody has on the drive, which would be beneath every other knob; then on again."""
    file = mount / "io.cost.qos"  # only the root cgroup has one, and not in every kernel
    before = _line_of(file, number) if file.exists() else None
    if before is None or "enable=1" not in before.split():
        yield
        return
    try:
        _write(file, f"{number} enable=0")
        yield
    finally:
        with shielded():
            _write(file, f"{number} {_restoring(before)}")


@contextmanager
def _io_cost(setting: Setting, model: iocost.Model, qos: iocost.Qos) -> Iterator[dict[str, str]]:
    files = {"io.cost.model": model.line, "io.cost.qos": qos.line}
    before = {file: _line_of(setting.tree.mount / file, setting.number) for file in files}
    try:
        for file, line in files.items():
            setting.write(setting.tree.mount / file, f"{setting.number} {line}")
        why = setting.need.io_cost.why if setting.need.io_cost and not setting.tuning.slack else "does not bind"
        yield files | {"speed": why}
    finally:
        with shielded():
            off = setting.tree.mount / "io.cost.qos", f"{setting.number} enable=0"
            back = (
                (setting.tree.mount / file, f"{setting.number} {_restoring(said)}") for file, said in before.items()
            )
            _write_all((off, *back))


def _restoring(line: str | None) -> str:
    """What to write to get back what a file of io.cost said; parameters would turn an automatic one manual."""
    values = (line or "ctrl=auto").split()
    return " ".join(value for value in values if "ctrl=auto" not in values or value.startswith(("ctrl=", "enable=")))


def _line_of(file: Path, number: str) -> str | None:
    """What a cgroup file says about the device, or None."""
    for line in file.read_text().splitlines():
        found, _, rest = line.partition(" ")
        if found == number:
            return rest
    return None


def tenant_counters(tree: Tree, number: str) -> dict[str, dict[str, Any]]:
    """io.fairlane.stat of every tenant, where there is one."""
    counters = {}
    for name, path in tree.paths.items():
        file = path / "io.fairlane.stat"
        line = _line_of(file, number) if file.exists() else None
        if line:
            counters[name] = numbers(dict(pair.split("=", 1) for pair in line.split()))
    return counters


def numbers(values: Mapping[str, str]) -> dict[str, Any]:
    """Values that are whole numbers as such, the others as they are."""
    return {key: int(value) if value.removeprefix("-").isdecimal() else value for key, value in values.items()}


def _write(path: Path, value: str) -> None:
    try:
        path.write_text(value)
    except OSError as error:
        raise FairlaneError(f"cannot write {value!r} to {path}: {error.strerror}") from error


def io_cost_setting(knob: Knob, setting: Setting) -> tuple[iocost.Model, iocost.Qos]:
    """What io.cost.model and io.cost.qos are to say."""
    if setting.tuning.slack:
        return iocost.Model.slack(), iocost.SLACK_QOS
    tuned = setting.need.io_cost
    assert tuned is not None
    return tuned.by_qos() if knob.name == "io.cost-qos" else tuned.by_model(setting.tuning.speed)


def _write_all(values: Iterable[tuple[Path, str]]) -> None:
    """Write each, also after one that cannot be, and only then say which those were."""
    failed = []
    for path, value in values:
        try:
            _write(path, value)
        except FairlaneError as error:
            failed.append(str(error))
    if failed:
        raise FairlaneError("; ".join(failed))
