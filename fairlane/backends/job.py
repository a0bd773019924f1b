# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Jobs, and what runs them.

A job is one run: a scenario under a knob or a variant of it, once. A backend is given jobs and yields each with its
results as soon as it is finished. Everything that runs something is a client of that: `fairlane run`, `replay`, `demo`,
`calibrate` and `bench`, and the measuring that some knobs are set from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from fairlane import schedulers
from fairlane.errors import FairlaneError
from fairlane.experiment.model import Profile, Scenario, Variant, from_dict, to_dict
from fairlane.experiment.results import Results, Run
from fairlane.linux import knobs
from fairlane.linux.knob import BY_WEIGHT, Tuning
from fairlane.progress import Progress

Tell = Callable[[Progress], None]
Completing = Generator["Finished", None, None]  # closed by whoever does not go through with it


def ignore(_now: Progress) -> None:
    """For whoever does not look at the progress."""


@dataclass(frozen=True)
class Needs:
    """Jobs, by their ids, whose results a knob is set from; a backend measures what is not among them."""

    most: str | None = None  # the same load under `none`: the most that the drive moves
    alone: str | None = None  # the tenant with priority alone
    tuned_with: Scenario | None = None  # the load that io.cost's speed is found with; None: the job's own


@dataclass(frozen=True)
class Job:
    """One run: a scenario under a knob or a variant of it, at one point of its sweep, once."""

    id: str  # no other job has it
    scenario: Scenario
    variant: Variant
    out: Path  # the folder for what the run leaves: fio's job file and output, or what fl-sim was given and found
    point: int | None = None  # of the sweep: how many cgroups
    repeat: int = 0
    tuning: Tuning = BY_WEIGHT
    needs: Needs = field(default_factory=Needs)
    about: str = ""  # for people, where the knob does not say it all
    raw: bool = True  # what the run leaves is kept

    @property
    def name(self) -> str:
        """Of its files in `out`."""
        return self.variant.name + (f"-{self.point}" if self.point is not None else "") + f"-{self.repeat}"

    @property
    def default_id(self) -> str:
        """Where no two scenarios have the same name."""
        return f"{self.scenario.name}/{self.name}"

    @property
    def title(self) -> str:
        """For people."""
        parts = [self.about or self.variant.name]
        if self.point is not None:
            parts.append(f"{self.point} cgroup{'s' * (self.point != 1)}")
        if self.scenario.repeats > 1:
            parts.append(f"repeat {self.repeat + 1} of {self.scenario.repeats}")
        return ", ".join(parts)

    @property
    def seconds(self) -> float:
        """How long its load runs."""
        return self.scenario.warmup + self.scenario.seconds


@dataclass(frozen=True)
class Finished:
    """A job, and its results: one run, or under `unavailable` why there is none."""

    job: Job
    results: Results


@dataclass(frozen=True)
class Options:
    """What the command line may say beside --on, where it means something."""

    kernel: str | None = None  # the VM's
    destroy_data: str | None = None  # the drive that may be overwritten
    cluster: str | None = None  # the address of a Dask scheduler


@dataclass(frozen=True)
class Pace:
    """For how long a backend measures: (seconds, warm-up)."""

    quick: tuple[float, float]  # isol-bench, --quick
    full: tuple[float, float]  # isol-bench
    calibration: tuple[float, float]
    map: tuple[float, float]
    batch_per_core: int = 2  # isol-bench --quick: batch tenants that a core is surely busy with
    bursts: tuple[float, ...] = (0.2, 1.0)  # isol-bench --quick: s
    settings: int = 3  # isol-bench --quick: of each knob in d3. Few make a front look lower than it is


class Backend(ABC):
    """Where jobs are run. One more is a subclass in a file of its own, and a row in table.py."""

    name: ClassVar[str]  # as --on has it
    usage: ClassVar[str]  # how to write --on, for people
    options: ClassVar[tuple[str, ...]] = ()  # of Options, those that mean something here
    bare: ClassVar[bool] = True  # --on NAME is enough
    placed: ClassVar[bool] = True  # --on NAME:PLACE, a drive or a profile
    modelled: ClassVar[bool] = True  # its drives are those of profiles
    repeatable: ClassVar[bool] = False  # a run that is repeated finds exactly the same
    knobs: ClassVar[tuple[str, ...]]  # that it can ever have
    idle: ClassVar[bool] = True  # a knob can be there without being given any cgroup
    pace: ClassVar[Pace]
    replayed_on: ClassVar[str]  # what `fairlane replay` has in [device]

    def __init__(self, place: str | None = None, options: Options | None = None) -> None:
        self.place, self.asked = place, options or Options()

    @property
    def on(self) -> str:
        """As --on has it."""
        return f"{self.name}:{self.place}" if self.place else self.name

    @property
    def usual_knobs(self) -> list[str]:
        """What is run where nobody names knobs: examples run only where they are named."""
        return [name for name in self.knobs if name not in schedulers.EXAMPLES]

    def on_own_drives(self) -> Backend:
        """This one, but each scenario on its own drive, if that is a modelled one."""
        return type(self)(None, self.asked) if self.modelled else self

    @property
    def kernel(self) -> str | None:
        """The kernel that it boots, as --kernel has it."""
        return None

    def for_knobs(self, _names: Sequence[str]) -> Backend:
        """This one, or one like it that has all of these."""
        return self

    def check_knobs(self, names: Sequence[str]) -> None:
        """Refuse names of knobs that there are not, or not here, and none at all."""
        knobs.check_names(names)
        if not names:
            raise FairlaneError(f"--knobs is empty; valid are {', '.join(self.knobs)}")

    @property
    @abstractmethod
    def cores(self) -> int:
        """How many its runs have."""

    @abstractmethod
    def drives(self) -> tuple[Profile, Profile]:
        """Drives to compare knobs on: one as fast as it is, and one so slow that the CPU does not count."""

    def calibrated(self, profile: Profile) -> Profile:
        """How a modelled drive is played while it is calibrated."""
        return profile

    def check(self, _path: Path, scenario: Scenario, _knobs: Sequence[str]) -> None:  # noqa: B027
        """Refuse, before anything runs, what run() would refuse of that file's scenario."""

    def check_place(self) -> None:  # noqa: B027
        """Refuse a drive that does not exist, or that somebody uses."""

    @abstractmethod
    def identity(self, tell: Tell, out: Path) -> dict[str, Any]:
        """What must not change between two runs that are compared: the kernel, the accelerator, the drive."""

    def job_s(self, job: Job) -> float:
        """Roughly how long one takes, beside others in one run. Only progress depends on it."""
        return job.seconds

    @abstractmethod
    def estimate_s(self, jobs: Sequence[Job], done: Mapping[str, Run]) -> float:
        """Roughly how long the jobs take."""

    @abstractmethod
    def run(self, jobs: Sequence[Job], tell: Tell = ignore, done: Mapping[str, Run] = {}) -> Completing:
        """Run the jobs, in any order or at once, and yield each once, as soon as it is finished.

        `done` has runs of earlier jobs that these may need. What had to be measured for a knob is yielded, too: jobs
        that were not asked for, before the first that needs them.
        """


# --- Crossing into a VM ---


def to_json(job: Job) -> dict[str, Any]:
    tuned_with = job.needs.tuned_with
    needs = {**asdict(job.needs), "tuned_with": to_dict(tuned_with) if tuned_with else None}
    return {**asdict(job), "scenario": to_dict(job.scenario), "needs": needs, "out": str(job.out)}


def from_json(data: Mapping[str, Any]) -> Job:
    needs, tuning = data["needs"], dict(data["tuning"])
    if tuning["classes"]:
        tuning["classes"] = tuple(tuning["classes"])
    return Job(
        **{
            **data,
            "scenario": from_dict(data["scenario"]),
            "variant": Variant(**data["variant"]),
            "out": Path(data["out"]),
            "tuning": Tuning(**tuning),
            "needs": Needs(**{**needs, "tuned_with": from_dict(needs["tuned_with"]) if needs["tuned_with"] else None}),
        }
    )
