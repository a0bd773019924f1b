# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: cgroups come and go with I/O in flight, and there are many of them."""

from __future__ import annotations

import mmap
import os
import random
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import kit
from kit import Cgroup, Fio

from fairlane.vm.guest import CGROUPS

# As far apart as can be takes the light ones half a minute, where shares are exact.
LIGHT, HEAVY = (1, 10000) if kit.ALL else (50, 200) if kit.CHECKED else (10, 1000)
HELD_MS = 600_000
READERS = 24 if kit.CHECKED else 200
WANDERING = 8 if kit.CHECKED else 24
LEVELS = 32  # kernel/policy.c: FL_LEVELS_MAX


def moved_and_removed() -> None:
    """Tasks wander from cgroup to cgroup; each is removed as soon as it is empty, its requests still in flight."""
    numbers = random.Random(1)
    with kit.drive(completion_nsec=4_000_000) as disk:
        kit.queue(disk, "nr_requests").write_text("16")
        heavy = Cgroup(HEAVY)
        hog = Fio(disk, heavy, ioengine="libaio", iodepth=64, rw="randread", numjobs=2)
        parent = Cgroup(50).delegate()
        readers_in, deep_in = Cgroup(LIGHT), Cgroup(LIGHT, parent)
        deep = Fio(disk, deep_in, ioengine="libaio", iodepth=32, rw="randrw")
        with kit.readers_of(disk, [readers_in] * WANDERING) as readers:
            kit.wait_for(lambda: deep_in.requests(disk) > 20 and heavy.requests(disk) > 20, "all do I/O")
            kit.wait_all_read(readers, "every reader gets on before the first move")
            for turn in range(kit.often(30, checked=4)):
                inside = parent if turn % 3 else None
                if turn % 2:
                    old, readers_in = readers_in, Cgroup(numbers.choice((LIGHT, 100, HEAVY)), inside)
                    new = readers_in
                else:
                    old, deep_in = deep_in, Cgroup(numbers.choice((LIGHT, 100, HEAVY)), inside)
                    new = deep_in
                new.take_all(old)
                old.remove()
                kit.wait_for(lambda: new.requests(disk) > 5, "I/O is the new cgroup's after a move")  # noqa: B023
            kit.wait_all_read(readers, "every reader gets on after the last move")
            deep.stop()
            hog.stop()
        for cgroup in (readers_in, deep_in, parent, heavy):
            cgroup.remove()
        kit.wait_for(lambda: kit.stat(CGROUPS, disk).get("wanted_pct") is not None, "the root is still there")
    kit.all_given_back()


def a_reader_in_each() -> None:
    with kit.drive(completion_nsec=20_000_000) as disk:
        groups = [Cgroup(1 + 50 * number) for number in range(READERS)]
        with ExitStack() as stack:
            readers = stack.enter_context(kit.readers_of(disk, groups))
            kit.wait_for(lambda: all(group.stat(disk) for group in groups), "each has its line")
            kit.wait_all_read(readers, f"all of {READERS} get on")

            def shares() -> list[float]:
                return [group.stat(disk).get("wanted_pct", 0) for group in groups]

            # Read one after the other, while tenants come to rest and wake, they need not add up exactly.
            kit.wait_for(lambda: kit.CHECKED or 80 < sum(shares()) < 120, f"shares add up: {sum(shares())}")
            said = shares()
            half = READERS // 2
            assert kit.CHECKED or sum(said[half:]) > 1.5 * sum(said[:half]), f"shares are not by weight: {said}"
            for group in groups:
                group.file("weight").write_text("100")

            def equal() -> bool:
                # On two emulated CPUs most readers wait for a CPU at any time, and have no share meanwhile. A share
                # is as old as the last refill, hence not exactly the same.
                active = [share for share in shares() if share]
                return kit.CHECKED or (len(active) >= READERS // 10 and max(active) < 2 * min(active))

            kit.wait_for(equal, f"equal weights make equal shares: {shares()}")
            kit.wait_all_read(readers, f"all of {READERS} get on with other weights")
        start = time.monotonic()
        for group in groups:
            group.remove()
        print(f"{READERS} cgroups removed in {time.monotonic() - start:.1f} s")
    kit.all_given_back()


def more_than_a_thousand() -> None:
    """Twelve tenants with a hundred cgroups each; walkers go through all of them, and each has I/O in flight there."""
    apart = 600 if kit.CHECKED else 150
    with kit.drive(completion_nsec=1_000_000) as disk:
        tenants = [Cgroup(weight).delegate() for weight in range(50, 650, 50)]
        groups = [Cgroup(100, tenant) for tenant in tenants for _ in range(100)]
        pids = [walk(disk, groups[start:] + groups[:start]) for start in range(0, len(groups), apart)]
        for pid in pids:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "a read failed"
        counted = [group.requests(disk) for group in groups]
        assert min(counted) == max(counted) == len(pids), f"each cgroup's reads are its own: {set(counted)}"
        for group in (*groups, *tenants):
            group.remove()
    kit.all_given_back()


def more_cgroups_than_tags() -> None:
    """Who is behind waits for a tag, those that have all of them are ahead of it: nobody waits for ever."""
    with kit.drive(completion_nsec=1_000_000) as disk:
        kit.queue(disk, "nr_requests").write_text("4")
        if kit.OURS == "mqflashfq":
            kit.queue(disk, "iosched/conserve").write_text("0")
        groups = [Cgroup(100) for _ in range(READERS // 2)]
        with kit.readers_of(disk, groups) as readers:
            for _ in range(kit.often(12, checked=1)):
                kit.wait_all_read(readers, "every reader gets on")
        for group in groups:
            group.remove()
    kit.all_given_back()


def deeper_than_counts() -> None:
    """One too far below the root counts as the one above it that is not, so nobody gains by nesting cgroups."""
    with kit.drive(completion_nsec=100_000) as disk:
        groups = [Cgroup(100)]
        while len(groups) < 2 * LEVELS:
            groups.append(Cgroup(100, groups[-1].delegate()))
        for _ in range(2):
            assert os.waitstatus_to_exitcode(os.waitpid(walk(disk, groups[-1:]), 0)[1]) == 0, "a read failed"
        counted = groups[LEVELS - 1]  # the first is at level 1
        assert counted.requests(disk) == 2, "its I/O is that one's"
        assert not groups[LEVELS].stat(disk) and not groups[-1].stat(disk)
        groups[-1].file("weight").write_text("300")
        for group in reversed(groups):
            group.remove()
    kit.all_given_back()


def walk(disk: str, groups: list[Cgroup]) -> int:
    """A process that reads a block in each of them."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        buffer = mmap.mmap(-1, kit.BLOCK)
        fd = os.open(f"/dev/{disk}", os.O_RDONLY | os.O_DIRECT)
        for number, group in enumerate(groups):
            (group.path / "cgroup.procs").write_text("0")
            os.preadv(fd, [buffer], number * kit.BLOCK)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def modules_go_though_io_of_a_removed_cgroup_is_held() -> None:
    """By a device above the drive, for long; or they say what they wait for, and go once that is done."""
    with kit.drive(completion_nsec=100_000) as disk:
        cgroup = Cgroup(100)
        with kit.mapped("held", f"0 2048 delay /dev/{disk} 0 {HELD_MS}"):
            reader = kit.Reader("mapper/held", cgroup)
            kit.wait_for(lambda: kit.waits_in_the_kernel(reader.pid), "the read is held")
            (CGROUPS / "cgroup.procs").write_text(str(reader.pid))
            cgroup.remove()
            kit.set_scheduler(disk, "none")
            since = kit.note("the modules go")
            with ThreadPoolExecutor() as pool:
                gone = pool.submit(kit.remove_modules)
                kit.wait_for(lambda: gone.done() or kit.log_after(since, "removed cgroups"), "they go, or tell")
                print("gone" if gone.done() else "told")
                reader.kill()
                kit.run("dmsetup", "suspend", "--noflush", "held")  # lets go of what it holds
                gone.result()
            kit.run("dmsetup", "resume", "held")
            reader.reap()
    kit.load_modules()


kit.sections(
    moved_and_removed,
    a_reader_in_each,
    more_than_a_thousand,
    more_cgroups_than_tags,
    modules_go_though_io_of_a_removed_cgroup_is_held,
)
