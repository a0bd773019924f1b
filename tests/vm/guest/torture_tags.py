# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: what cgroups hold of a drive's tags, and what else might hold a tenant's writes back."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import kit
from kit import Cgroup, Fio

from fairlane import proc

DEBUGFS = Path("/sys/kernel/debug")
WBT_ON, WBT_OFF = 1, 3  # the kernel's own numbers, on by default and off by default
# All elevators divide tags, wait for those that poll and charge metadata alike; so does fairlane, beside them.
EACH = ("kyber-fairness", "fairlane") if kit.BRIEFLY else kit.ALL_OURS
SHARING = EACH if kit.BRIEFLY else ("mqfq", "kyber-fairness", "mqflashfq", "fairlane")
# 32 scheduler tags a queue. 160 requests/s take little of the CPUs, so that all ask for what is theirs.
SLOW, LEAST = {"completion_nsec": 200_000_000, "hw_queue_depth": 16}, 0.7
if kit.CHECKED:
    SLOW |= {"hw_queue_depth": 8}  # and 16, so that fewer cgroups are more than these
elif kit.BRIEFLY:  # with others on the same CPUs, which readers and fio get by their number
    SLOW, LEAST = SLOW | {"hw_queue_depth": 64}, 0.4
ENOUGH = 20 if kit.CHECKED else 1000 if kit.BRIEFLY else 5000
MANY = 60 if kit.CHECKED else 300
BOTH_CPUS = {"cpus_allowed": "0,1", "cpus_allowed_policy": "split"}


def share_beside_300_groups(scheduler: str) -> float:
    """What a tenant of weight 900 gets beside one of 100 that has 300 cgroups (MANY) of one request each."""
    with kit.drive(scheduler, **SLOW) as disk:
        many, one = Cgroup(100).delegate(), Cgroup(900)
        groups = [Cgroup(None, many) for _ in range(MANY)]
        hog = Fio(disk, one, ioengine="libaio", iodepth=64, rw="randread", numjobs=4, **BOTH_CPUS)
        with kit.readers_of(disk, groups) as readers:
            kit.wait_all_read(readers, "all of them get on")
            kit.wait_for(lambda: one.requests(disk), "the one gets on")
            begun, begun_one = kit.done(disk), one.requests(disk)
            kit.wait_for(lambda: kit.done(disk) - begun >= ENOUGH, f"{ENOUGH} requests", limit_s=kit.LIMIT_S)
            share = (one.requests(disk) - begun_one) / (kit.done(disk) - begun)
        hog.stop()
        for group in (*groups, many, one):
            group.remove()
    kit.all_given_back()
    return share


def a_tenant_with_300_groups_gets_its_share() -> None:
    shares = {scheduler: share_beside_300_groups(scheduler) for scheduler in SHARING}
    print({scheduler: f"{share:.3f}" for scheduler, share in shares.items()})
    # When each leaf had a tag it was 0.02.
    assert kit.CHECKED or all(share >= LEAST for share in shares.values()), f"due 0.9: {shares}"


def writeback_throttling_is_off_meanwhile() -> None:
    if not os.path.ismount(DEBUGFS):
        subprocess.run(["mount", "-t", "debugfs", "none", DEBUGFS], check=True)
    with kit.drive("none") as disk:
        file = DEBUGFS / "block" / disk / "rqos/wbt/enabled"

        def state() -> int:
            return int(file.read_text())

        assert state() == WBT_ON
        for scheduler in kit.ALL_OURS:
            kit.set_scheduler(disk, scheduler)
            assert state() == WBT_OFF, scheduler
        kit.set_scheduler(disk, "none")
        assert state() == WBT_ON
        kit.queue(disk, "wbt_lat_usec").write_text("3000")
        kit.set_scheduler(disk, kit.OURS)
        assert state() not in (WBT_ON, WBT_OFF), "what was set by hand stays"


def writeback_throttling_is_off_whatever_elevator_comes_and_goes() -> None:
    """Beside one of ours that is no elevator. BFQ turns it off, too, and on when it leaves, until ours comes again."""
    if not os.path.ismount(DEBUGFS):
        subprocess.run(["mount", "-t", "debugfs", "none", DEBUGFS], check=True)
    with kit.drive("none") as disk:
        file, elevator = DEBUGFS / "block" / disk / "rqos/wbt/enabled", kit.queue(disk, "scheduler")

        def becomes(state: int, when: str) -> None:
            kit.wait_for(lambda: int(file.read_text()) == state, f"wbt is {state} {when}")

        for scheduler in kit.BESIDE:
            ours = kit.scheduler_file(disk, scheduler)
            ours.write_text(scheduler)
            becomes(WBT_OFF, f"under {scheduler}")
            for other in ("bfq", "kyber"):
                elevator.write_text(other)
                becomes(WBT_OFF, f"under {other}")
                elevator.write_text("none")
                becomes(WBT_ON if other == "bfq" else WBT_OFF, f"after {other}")
                ours.write_text("none")
                ours.write_text(scheduler)
                becomes(WBT_OFF, f"under {scheduler} again")
            for other, left in (("bfq", WBT_OFF), ("kyber", WBT_ON)):
                ours.write_text(scheduler)
                elevator.write_text(other)
                ours.write_text("none")
                becomes(left, f"under {other} without {scheduler}")
                elevator.write_text("none")
                becomes(WBT_ON, f"without {other} and {scheduler}")
    kit.all_given_back()


def who_polls_waits_for_its_own_requests() -> None:
    """It asks for more than its part of the tags, and the requests that have them end only when it polls."""
    with kit.drive("none", poll_queues=1) as disk:
        for scheduler in EACH:
            kit.set_scheduler(disk, scheduler)
            cgroup = Cgroup(100)
            fio = Fio(disk, cgroup, ioengine="io_uring", hipri=1, iodepth=256, rw="randread", size="8m", loops=1)
            assert fio.finish() == 2048, scheduler
            cgroup.remove()
    kit.all_given_back()


def metadata_is_charged_to_who_reads_it() -> None:
    """The root sends it, so that nobody waits for a tenant's turn; io.fairlane.stat says for whom."""
    with kit.drive("none", size=96 << 20, memory_backed=1) as disk:
        folder = kit.folder("metadata")

        def run(*argv: str | Path) -> None:
            proc.output(argv, what=str(argv[0]), limit_s=kit.LIMIT_S)

        run("mkfs.ext4", "-q", "-F", "-b", "1024", "-E", "lazy_itable_init=0,lazy_journal_init=0", f"/dev/{disk}")
        run("mount", f"/dev/{disk}", folder)
        for i in range(20):
            folder.joinpath(str(i)).mkdir()
            for j in range(20):
                folder.joinpath(str(i), str(j)).touch()
        for scheduler in EACH:
            kit.set_scheduler(disk, scheduler)
            run("umount", folder)  # and forgets all
            run("mount", f"/dev/{disk}", folder)
            cgroup, before = Cgroup(100), kit.counts(disk)["reads"]
            run("sh", "-c", f"echo $$ > {cgroup.path}/cgroup.procs && ls -lR {folder}")
            reads, said = kit.counts(disk)["reads"] - before, cgroup.stat(disk)
            assert said["metabytes"] >= 1024 * reads / 4 > 0, f"{scheduler}: {reads} reads, {said}"
            run("umount", folder)
            cgroup.remove()
            run("mount", f"/dev/{disk}", folder)
        kit.set_scheduler(disk, "none")
        run("umount", folder)
    kit.all_given_back()


kit.sections(
    writeback_throttling_is_off_meanwhile,
    writeback_throttling_is_off_whatever_elevator_comes_and_goes,
    who_polls_waits_for_its_own_requests,
    metadata_is_charged_to_who_reads_it,
    a_tenant_with_300_groups_gets_its_share,
)
