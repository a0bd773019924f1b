# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What is looked at while a run is under way: whether the knob is as it was set, and what the drive and io.cost do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from fairlane.backends.measuring import DRIVE_US
from fairlane.experiment.model import Scenario
from fairlane.linux import cgroups, fio_logs, io_cost, sysfs
from fairlane.linux.knob import Knob, Setting, differing
from fairlane.linux.knobs import IoCost

SETTLE_PERIODS, SETTLE_S = 5, 2.5  # of io.cost, in which vrate has to be still; and for how long at least
SETTLE_LONGEST_S = 15.0  # until it is
BEGIN_S = 0.5  # of the load, in which it is not looked at
PlayUntil = Callable[[Scenario, Path, Callable[[], bool]], None]


@dataclass(frozen=True)
class _Look:
    """What io.cost and its drive were at, at one moment."""

    when: float
    vrate: float
    times: io_cost.DriveTimes
    used: dict[str, int]  # the drive's time that each cgroup was charged so far


@dataclass(frozen=True)
class _Use:
    """What tenants used, from the first to the last time in a run that the kernel added it up.

    It does so once in io.cost's period, which is up to a second: from one look to another, a run of a few seconds would
    have a period too few, or one too many.
    """

    us: dict[str, int]  # of the drive's time, by tenant
    of_time: dict[str, float]  # the same of all, per second of real time: at "least", and at "most"

    @classmethod
    def of(cls, looks: Sequence[_Look]) -> _Use | None:
        """None: it was not added up twice."""
        added = [pair for pair in pairwise(looks) if pair[0].used != pair[1].used]
        if len(added) < 2:
            return None
        (before_first, first), (before_last, last) = added[0], added[-1]
        us = {name: last.used[name] - used for name, used in first.used.items()}
        # It was at some time between two looks.
        longest, shortest = last.when - before_first.when, max(before_last.when - first.when, 1e-6)
        total_s = sum(us.values()) / 1e6
        return cls(us, {"least": total_s / longest, "most": total_s / shortest})


class Watched:
    """A run, from its cgroups; under io.cost also from its drive."""

    def __init__(self, knob: Knob, setting: Setting, progress: Callable[[float], None]) -> None:
        self.setting, self.progress = setting, progress
        self.io_cost = knob if isinstance(knob, IoCost) and not setting.tuning.idle else None
        self.looks: list[_Look] = []
        self.wrong: list[str] = []
        self.counts = False  # the run that counts is under way
        self.settings_read_back: int | None = None  # in it; None: not yet
        self.kernel_bytes: int | None = None  # at the same moment

    @property
    def refused(self) -> str | None:
        """Why the figures say nothing: the knob was not as it was set."""
        wrong = "; ".join(self.wrong)
        return f"it did not do what it was set to ({wrong})" if wrong else None

    def look(self, part: float) -> None:
        """Called now and then; part of the run, 0..1, is over."""
        self.progress(part)
        vrate = io_cost.vrate(self.setting.tree.mount, self.setting.number) if self.io_cost else None
        if vrate is not None:
            times = io_cost.drive_times(sysfs.SYS_BLOCK / self.setting.device)
            self.looks.append(_Look(time.time(), vrate, times, self._usage()))
        if self.counts and part > 0.5 and self.settings_read_back is None:  # under load
            self.settings_read_back = len(self.setting.written)
            self.kernel_bytes = cgroups.kernel_bytes()
            self.wrong.extend(differing(self.setting))

    def settle(self, scenario: Scenario, play: PlayUntil, file: Path, targets_us: Mapping[str, float]) -> None:
        """Play the load as it is when the run begins, until the kernel has stopped moving vrate, or for so long that
        it will not.

        The kernel moves vrate once in a period, and only after a few of them.
        """
        window = max(SETTLE_S, SETTLE_PERIODS * io_cost.period_s(targets_us))
        first = min(tenant.start for tenant in scenario.tenants)
        tenants = tuple(replace(t, start=0.0, stop=None) for t in scenario.tenants if t.start == first)
        load = replace(scenario, tenants=tenants, seconds=SETTLE_LONGEST_S, warmup=BEGIN_S)
        before = len(self.looks)

        def still() -> bool:
            looks = self.looks[before:]
            if not looks or looks[-1].when - looks[0].when < BEGIN_S + window:
                return False
            since = looks[-1].when - window
            return io_cost.Seen.of([look.vrate for look in looks if look.when >= since]).settled

        play(load, file, still)

    def begin(self) -> None:
        """The run that counts begins."""
        self.counts = True

    def counters(self, config: Mapping[str, Any], measured: fio_logs.Measured) -> dict[str, Any]:
        """How much was read back; under io.cost also what that and the drive did."""
        found: dict[str, Any] = {"settings_read_back": self.settings_read_back}
        if not self.io_cost:
            return found
        looks = self._within(measured.window)
        if not looks:
            self.wrong.append("the kernel says no cost.vrate in the root cgroup's io.stat")
            return found
        (first, last), seen = (looks[0], looks[-1]), io_cost.Seen.of([look.vrate for look in looks])
        use = _Use.of(looks)
        _, qos = self.io_cost.setting(self.setting)
        if why := seen.wrong(qos, _steady(self.setting.scenario)):
            self.wrong.append(why)
        charged = {part: of_time / (seen.mean / 100) for part, of_time in (use.of_time if use else {}).items()}
        if self._targets_are_for_this_load and charged.get("most", 1.0) < io_cost.CHARGED:
            self.wrong.append(
                f"io.cost held nobody back: tenants used at most {charged['most']:.0%} of the time that cost.vrate gave"
                " them, so its latency targets are too loose"
            )
        return found | {
            DRIVE_US: last.times.means_us(first.times),
            "io.cost": {
                "vrate": asdict(seen),
                "range": [qos.low, qos.high],
                "usage_us": use.us if use else {name: last.used[name] - used for name, used in first.used.items()},
                "charged": charged,
                "speed": config["speed"],
            },
        }

    @property
    def _targets_are_for_this_load(self) -> bool:
        tuned = self.setting.need.io_cost
        return bool(tuned and tuned.load == self.setting.scenario.tenants and self.io_cost and self.io_cost.settles)

    def _within(self, window: tuple[float, float]) -> list[_Look]:
        return [look for look in self.looks if window[0] <= look.when <= window[1]]

    def _usage(self) -> dict[str, int]:
        """The drive's time that each cgroup was charged so far."""
        tree: cgroups.Tree = self.setting.tree
        return {name: io_cost.usage_us(path, self.setting.number) or 0 for name, path in tree.paths.items()}


def _steady(scenario: Scenario) -> bool:
    """Whether the load is the same all the time."""
    return not any(tenant.start or tenant.stop is not None or tenant.trace for tenant in scenario.tenants)
