# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Whatever is done to a drive, its scheduler and the cgroups under load: nothing is lost, nothing hangs.

Each test has a VM that runs several things, as a boot takes as long as many of them; guest/torture_NAME.py has them,
one function each.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlane.vm import kernels, lab_kernel, supported

GuestRun = Callable[..., Any]  # see conftest.py

SCRIPTS = Path(__file__).parent / "guest"
AT_A_TIME = 2
TIMEOUT_S, BRIEF_S = 2700, 1500  # brief ones take up to 8 minutes on a slow machine


# What differs between our schedulers and kernels; the rest they share with the first, which has it all.
EACH = (
    "switching:switched_over_and_over,drive_removed,reloaded_over_and_over",
    "cgroups:moved_and_removed,more_cgroups_than_tags",
    "data:every_scheduler_in_turn",
    "interface:one_request_at_a_time,ioniced",
)

CGROUPS = "cgroups:moved_and_removed,a_reader_in_each,more_cgroups_than_tags,deeper_than_counts"
BESIDE = "one_request_at_a_time,prices,latencies,ioniced_submitters"  # of what has no elevator
UNLOADED = "cgroups:modules_go_though_io_of_a_removed_cgroup_is_held"

ON_VSSD = (
    "+vssd",
    "switching",
    CGROUPS,
    "data:every_scheduler_in_turn,flushes_fua_and_discards,file_system_with_writeback",
)


TORTURES = {
    "switching-cgroups": ("switching", CGROUPS, UNLOADED),
    "data-interface": ("data", "interface"),
    "kyber-fairness": EACH,
    "fairlane": ("@fairlane", "switching", CGROUPS, "data", f"interface:{BESIDE}"),
    "mqflashfq": ("@mqflashfq", *EACH),
    "d2fq": ("route",),
    "flashfq": ("@flashfq", *EACH),
    "mqfq": ("@mqfq", *EACH),
    "on-vssd": ON_VSSD,
    "vssd": ("vssd",),
    "tags": ("tags",),
    "claims": (
        "claims:a_tenant_with_64_groups_leaves_the_other_its_share,a_reader_of_weight_900_is_not_held_back_by_a_writer,"
        "pauses_between_large_requests_are_no_gain,writeback_is_shared_by_weight",
    ),
    "encrypted": ("claims:writeback_through_encryption_is_shared_by_weight",),
}
# What does not hold, and why; now and then, some of it does.
FAILS = {"encrypted": "dm-crypt's one thread waits for whoever waits (docs/using.md, What to expect)"}
SMOKE = "smoke:null,null-immediate,qemu-nvme"
# On kernels that check themselves: a boot takes minutes, so there are few, each with what may share one. Nothing is
# asked of times there, and each path is taken once or twice (kit.CHECKED).
CHECKED = {
    "kyber-fairness": ("switching", "cgroups", "data", "interface"),
    "others": (
        SMOKE,
        *("@mqflashfq", *EACH),
        *("@flashfq", *EACH),
        *("@mqfq", *EACH),
        *("@fairlane", "switching", CGROUPS, "data", f"interface:{BESIDE}"),
    ),
    "drives": (
        "route",
        "vssd",
        "tags",
        "above",
        *ON_VSSD,
    ),
    "faults": ("faults",),  # by itself: what failed may be missing afterwards
}
# What is not long: a boot each, with as much in it as fits, as a boot takes as long as several of them. Of those that
# differ little from others, each once.
BRIEFLY = {
    "data-interface": ("data", "interface"),
    "smoke-d2fq": (SMOKE, "route:what_an_operator_sees,switched_over_and_over,data_and_flushes"),
    "tags-vssd": ("tags", "vssd:shown_values,memory_bound,verified_under_every_scheduler,removed_under_load"),
    "smoke-mqflashfq-fairlane": (
        SMOKE,
        "@mqflashfq",
        "switching:switched_over_and_over",
        "cgroups:moved_and_removed,more_cgroups_than_tags",
        "@fairlane",
        "switching:switched_over_and_over,drive_removed",
        "cgroups:moved_and_removed",
        "data:flushes_fua_and_discards,requeues_and_shared_tags",
    ),
    "smoke": (SMOKE,),
}
FIRST, LAST = supported.tested()[0], supported.tested()[-1]
# The longest first, so that two at a time end together.
BRIEF = (
    (LAST, "smoke-mqflashfq-fairlane"),
    (FIRST, "data-interface"),
    (LAST, "tags-vssd"),
    (FIRST, "smoke-d2fq"),
    *((newest, "smoke") for newest in supported.booted() if newest not in supported.tested()),
)
PARAMS = [
    *(pytest.param(*which, True, id=f"{'-'.join(which)}-briefly") for which in BRIEF),
    *(
        pytest.param(
            kernel,
            name,
            False,
            id=f"{kernel}-{name}",
            marks=[pytest.mark.long, *([pytest.mark.xfail(reason=FAILS[name])] if name in FAILS else [])],
        )
        for kernel in kernels.VERSIONS
        for name in TORTURES
    ),
    *(
        pytest.param(checker.name, name, False, id=f"{checker.name}-{name}", marks=pytest.mark.checked)
        for checker in lab_kernel.CHECKERS
        for name in CHECKED
    ),
]

What = tuple[str, str, bool]


def words(kernel: str, name: str, briefly: bool) -> tuple[str, ...]:
    """What torture.py is told."""
    if kernel in lab_kernel.RECIPES:
        return CHECKED[name]
    return ("+briefly", *BRIEFLY[name]) if briefly else TORTURES[name]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, guest_run: GuestRun) -> Iterator[dict[What, Any]]:
    """Of all that were selected, two VMs at a time, each in a process of its own: mostly they wait."""
    asked = [
        (str(item.callspec.params["kernel"]), str(item.callspec.params["name"]), bool(item.callspec.params["briefly"]))
        for item in request.session.items
        if isinstance(item, pytest.Function) and "outcomes" in item.fixturenames
    ]
    modules = {kernel: kernels.build_modules(lab_kernel.find(kernel)) for kernel in sorted({on for on, *_ in asked})}
    with multiprocessing.get_context("fork").Pool(AT_A_TIME) as pool:
        yield {
            (kernel, name, briefly): pool.apply_async(
                guest_run,
                (SCRIPTS / "torture.py", modules[kernel], *words(kernel, name, briefly)),
                {
                    "kernel": kernel,
                    "qemu_nvme": SMOKE in words(kernel, name, briefly),
                    "timeout_s": BRIEF_S if briefly else TIMEOUT_S * (kernels.SLOWER if kernels.checks(kernel) else 1),
                },
            )
            for kernel, name, briefly in asked
        }


@pytest.mark.parametrize(("kernel", "name", "briefly"), PARAMS)
def test_torture(kernel: str, name: str, briefly: bool, outcomes: dict[What, Any]) -> None:
    print(outcomes[kernel, name, briefly].get().check().stdout)
