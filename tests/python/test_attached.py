# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Drives that a VM is given from outside: which jobs share one, and what of ours drives it in the guest."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest

from fairlane.backends import attached
from fairlane.backends.job import Job, from_json, to_json
from fairlane.experiment.model import FL_NVME, Profile, Scenario, TenantSpec, Variant
from fairlane.experiment.profiles import load_profile
from fairlane.vm import fl_nvme, kernels, newer_qemu
from fairlane.vm.kernels import Kernel

ZSSD = replace(load_profile("zssd"), device=FL_NVME)


def job(name: str, profile: Profile = ZSSD, knob: str = "none", rw: str = "randread") -> Job:
    return Job(name, Scenario(name, profile, (TenantSpec("a", rw=rw),)), Variant(knob, knob), Path("out"))


def test_a_drive_that_is_written_to_is_made_anew_by_a_boot_of_its_own() -> None:
    qemu = Profile("q", "qemu-nvme", "", {"size": 1 << 30, "max_ioqpairs": 2, "iops": 0})
    jobs = [job("a"), job("b"), job("c", rw="randwrite"), job("d", rw="randwrite"), job("e", qemu), job("f", qemu)]
    jobs += [job("g", replace(ZSSD, device=None)), job("h", load_profile("p4500"), rw="randwrite")]
    boots = [[each.id for each in group] for _, group in groupby(jobs, key=attached.of)]
    assert boots == [["a", "b"], ["c"], ["d"], ["e", "f"], ["g", "h"]]


def test_a_job_on_fl_nvme_crosses_into_the_vm_unchanged() -> None:
    assert from_json(json.loads(json.dumps(to_json(job("a"))))) == job("a")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What fl-nvme was told, each time; nothing is built or fetched."""
    told: list[list[str]] = []

    @contextlib.contextmanager
    def serving(_program: Path, _socket: Path, words: list[str]) -> Iterator[None]:
        told.append(words)
        yield

    monkeypatch.setattr(fl_nvme, "build", lambda: Path("/fl-nvme"))
    monkeypatch.setattr(fl_nvme, "serving", serving)
    monkeypatch.setattr(newer_qemu, "ensure", lambda _say: Path("/qemu"))
    monkeypatch.setattr(kernels, "build_nvme", lambda kernel, _say: Path("/modules", kernel.version))
    return told


@pytest.mark.parametrize(
    ("release", "knobs", "driver"),
    [
        ("6.12.1-1", ("none", "d2fq"), Path("/modules/6.12/nvme/nvme.ko")),
        ("6.12.1-1", ("none", "fairlane"), None),
        ("6.1.0-1", ("d2fq",), None),
    ],
)
def test_our_driver_is_used_where_a_knob_needs_priorities_and_there_are_patches(
    release: str, knobs: tuple[str, ...], driver: Path | None, served: list[list[str]]
) -> None:
    jobs = [job(knob, knob=knob) for knob in knobs]
    with attached.attached(jobs, Kernel(release, Path("/nowhere")), lambda _text: None) as drive:
        assert drive.program == Path("/qemu") and drive.driver == driver
    [words] = served
    assert "wrr=1" in words and "--serial=fairlane" in words and "--name=fairlane zssd" in words


def test_a_virtual_ssd_is_made_inside(served: list[list[str]]) -> None:
    jobs = [job("a", replace(ZSSD, device=None))]
    with attached.attached(jobs, Kernel("6.12.1-1", Path("/nowhere")), lambda _text: None) as drive:
        assert drive == attached.Attached([], [])
    assert served == []
