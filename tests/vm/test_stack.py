# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Through the stack: LVM, dm-crypt, md, loop, file systems with buffered writes, swap, namespaces of one controller.

Each section says who is charged for I/O that comes through a layer, and whether shares hold there; guest/stack.py has
them, one function each. A boot has all of a kernel that were selected. One alone:

    .venv/bin/pytest tests/vm/test_stack.py -m long -k "6.1- and logical_volumes"
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fairlane.vm import kernels, lab_kernel

GuestRun = Callable[..., Any]  # see conftest.py

SCRIPT = Path(__file__).parent / "guest" / "stack.py"
RESULTS = "stack.json"
TIMEOUT_S = 3600
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
LVM, CRYPT, MD = ("lvcreate", "lvm2"), ("cryptsetup", "cryptsetup-bin"), ("mdadm", "mdadm")
XFS, BTRFS = ("mkfs.xfs", "xfsprogs"), ("mkfs.btrfs", "btrfs-progs")
# Each section, and the tools that it needs, with Debian's package of each.
SECTIONS = {
    "logical_volumes_keep_shares": (LVM,),
    "one_encrypted_drive_keeps_shares_of_reads": (CRYPT,),
    "one_encrypted_drive_charges_who_writes": (CRYPT,),
    "one_encrypted_drive_without_queues_keeps_shares_of_writes": (CRYPT,),
    "an_encrypted_volume_for_each_keeps_shares_of_writes": (CRYPT, LVM),
    "mirrors_and_stripes_keep_shares": (MD,),
    "raid5_charges_the_root_for_writes": (MD,),
    "a_resync_is_charged_to_the_root_and_leaves_shares_of_the_rest": (MD,),
    "loop_devices_keep_shares": (),
    "buffered_writes_to_ext4_are_charged_to_who_wrote": (),
    "buffered_writes_to_xfs_are_charged_to_who_wrote": (XFS,),
    "buffered_writes_to_btrfs_are_charged_to_who_wrote": (BTRFS,),
    "the_journal_of_ext4_is_charged_to_the_root": (),
    "reading_back_from_swap_keeps_shares": (LVM,),
    "swapping_is_charged_to_who_swaps": (LVM,),
    "who_only_swaps_out_is_not_held_back": (LVM,),
    "namespaces_keep_shares_within_one_and_not_between_two": (),
}


NAMESPACE = 256 << 20
IOPS = 100  # of both together


def missing(section: str) -> str:
    """The packages."""
    return " ".join(package for tool, package in SECTIONS[section] if not shutil.which(tool, path=PATH))


@contextmanager
def controller() -> Iterator[tuple[list[str], list[int]]]:
    """QEMU's options for an NVMe controller with two namespaces, and the descriptors that they name."""
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile(dir=kernels.cache_dir())) for _ in range(2)]
        opts = ["-device", "nvme,id=stack,serial=stack,max_ioqpairs=2"]
        for number, file in enumerate(files, 1):
            file.truncate(NAMESPACE)
            drive = f"file=/dev/fd/{file.fileno()},if=none,id=stack{number},format=raw,cache=unsafe"
            opts += ["-drive", f"{drive},throttling.iops-total={IOPS},throttling.group=stack"]
            opts += ["-device", f"nvme-ns,drive=stack{number},bus=stack,nsid={number}"]
        yield opts, [file.fileno() for file in files]


@pytest.fixture(scope="module")
def outcome(request: pytest.FixtureRequest, guest_run: GuestRun) -> Callable[[str], Any]:
    """Of a kernel's VM, which has those of its sections that were selected and can run."""
    asked: dict[str, list[str]] = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and "outcome" in item.fixturenames:
            kernel, section = (str(item.callspec.params[key]) for key in ("kernel", "section"))
            if not missing(section):
                asked.setdefault(kernel, []).append(section)

    @cache
    def run(kernel: str) -> Any:
        modules = kernels.build_modules(lab_kernel.find(kernel))
        with controller() as (opts, fds):
            words = (modules, *asked[kernel])
            return guest_run(SCRIPT, *words, kernel=kernel, timeout_s=TIMEOUT_S, qemu_opts=opts, pass_fds=fds)

    return run


@pytest.mark.long
@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("kernel", kernels.VERSIONS)
def test_through_the_stack(kernel: str, section: str, outcome: Callable[[str], Any]) -> None:
    if packages := missing(section):
        pytest.skip(f"its tools are not here; try apt-get install {packages}")
    came = outcome(kernel).check()
    print(came.stdout)
    assert json.loads((came.shared / RESULTS).read_text())[section] == ""
