# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: what is written is read back, under every scheduler, with flushes, discards, requeues and a file system."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import kit
from kit import OTHERS, OURS, Cgroup, Fio

from fairlane import proc
from fairlane.vm.guest import CGROUPS

MEMORY = {"size": 64 << 20, "memory_backed": 1, "discard": 1, "irqmode": 2, "completion_nsec": 200_000}
PART = 16 << 20  # each writer has its own part of the drive
MIB = 1 if kit.BRIEFLY else 3  # that each writes; one of them twice as much
ONE, TWICE = f"{MIB}m", f"{2 * MIB}m"
VERIFY: dict[str, object] = {
    "rw": "randwrite",
    "bs": "",
    "bsrange": "4k-64k",
    "size": ONE,
    "verify": "crc32c",
    "verify_fatal": 1,
    "verify_backlog": 64,
    "iodepth": 32,
}


def verify(disk: str | Path, part: int, cgroup: Cgroup | None = None, /, **more: object) -> Fio:
    given = {**VERIFY, "offset": part * PART, **more}
    return Fio(disk, cgroup, **{key: value for key, value in given.items() if value != ""})


def run(*argv: str | Path) -> str:
    return proc.output(argv, what=str(argv[0]), limit_s=kit.LIMIT_S)


def every_scheduler_in_turn() -> None:
    with kit.drive(OURS, **MEMORY) as disk:
        cgroups = [Cgroup(1000), Cgroup(10)]
        for scheduler, depth in [(OURS, None), *((other, None) for other in OTHERS if kit.ALL), (OURS, 4), (OURS, 1)]:
            kit.set_scheduler(disk, scheduler)
            if depth:
                kit.queue(disk, "nr_requests").write_text(str(depth))
            fios = [
                verify(disk, 0, cgroups[0], ioengine="libaio"),
                verify(disk, 1, cgroups[1], ioengine="io_uring"),
            ]
            before = [cgroup.requests(disk) for cgroup in cgroups]
            for fio in fios:
                fio.finish()
            if scheduler == OURS:
                assert all(cgroup.requests(disk) > old for cgroup, old in zip(cgroups, before, strict=True))
        # And while they change; more than once, where a write takes as long as some switches.
        switches = 0
        while switches < 5:
            fios = [
                verify(disk, 0, cgroups[0], ioengine="libaio", loops=3),
                verify(disk, 1, cgroups[1], ioengine="io_uring", loops=3),
            ]

            def ended(fios: list[Fio] = fios) -> bool:
                return any(fio.process.poll() is not None for fio in fios)

            while not ended():
                kit.set_scheduler(disk, (OURS, *OTHERS)[switches % 5])
                kit.wait_flow(disk, "between two switches", ends=ended)
                switches += 1
            for fio in fios:
                fio.finish()
        print(switches, "switches while data were written and verified")
        for cgroup in cgroups:
            cgroup.remove()
    kit.all_given_back()


def flushes_fua_and_discards() -> None:
    """All at once, with cgroups that are throttled, on a drive with a volatile cache and on one without."""
    for cache in (1, 0):
        with kit.drive(OURS, **MEMORY, cache_size=cache) as disk:
            cgroups = [Cgroup(kit.WEIGHTS[0]), Cgroup(kit.WEIGHTS[-1]), Cgroup(100), Cgroup(100)]
            if cache:
                said = kit.queue(disk, "write_cache").read_text()
                assert "write back" in said, f"the drive has no volatile cache: {said}"
            reader = Fio(disk, cgroups[0], ioengine="libaio", iodepth=64, rw="randread", size=PART)
            trimmer = Fio(disk, cgroups[1], ioengine="psync", rw="randtrim", bs="64k", offset=3 * PART, size=PART // 2)
            before = kit.counts(disk)
            fios = [
                verify(disk, 1, cgroups[2], ioengine="libaio", fdatasync=4),
                verify(disk, 2, cgroups[3], ioengine="psync", sync="dsync", bsrange="4k-16k", iodepth=1),
            ]
            tail = 3 * PART + PART // 2
            for _ in range(5):
                run("blkdiscard", "--offset", str(tail), "--length", str(PART // 2), Path("/dev", disk))
            for fio in fios:
                fio.finish()
            cgroups[0].wait_for("rios", disk)  # on a busy machine, they may only begin now
            cgroups[1].wait_for("dios", disk)
            reader.stop()
            trimmer.stop()
            after = kit.counts(disk)
            grown = {kind: after[kind] - before[kind] for kind in after}
            assert grown["discards"] > 5 and (grown["flushes"] > 5 or not cache), f"what the drive did: {grown}"
            print("with" if cache else "without", "a cache:", grown)
            for cgroup in cgroups:
                cgroup.remove()
    kit.all_given_back()


def file_system_with_writeback() -> None:
    """ext4 with a journal: buffered writes reach the drive through kernel threads, charged to their cgroup."""
    (CGROUPS / "cgroup.subtree_control").write_text("+memory")
    with kit.drive(OURS, **MEMORY, cache_size=1) as disk:
        drive, folder = Path("/dev", disk), kit.folder("mnt")
        run("mkfs.ext4", "-q", "-F", drive)
        run("mount", "-o", "discard", drive, folder)
        heavy, light = Cgroup(1000), Cgroup(10)
        fios = [
            verify(folder / "a", 0, heavy, offset=0, direct=0, fsync=32, ioengine="psync", iodepth=1),
            verify(folder / "b", 0, light, offset=0, direct=0, end_fsync=1, ioengine="psync", iodepth=1, size=TWICE),
            verify(folder / "c", 0, light, offset=0, fdatasync=8, ioengine="libaio"),
        ]
        for fio in fios:
            fio.finish()
        print("writeback:", int(heavy.stat(disk)["wbytes"]), int(light.stat(disk)["wbytes"]), "bytes")
        wrote = [cgroup.stat(disk)["wbytes"] for cgroup in (heavy, light)]
        assert wrote[0] >= MIB << 20 and wrote[1] >= 3 * MIB << 20, f"charged to the writer: {wrote}"
        # Dirty pages outlive the cgroup that made them.
        shell = f"echo 0 > {light.path}/cgroup.procs; head -c 4000000 /dev/urandom > {folder}/d"
        subprocess.run(["sh", "-c", shell], check=True)
        light.remove()
        said = run("sha256sum", folder / "d")
        run("umount", folder)
        run("fsck.ext4", "-f", "-n", drive)
        run("mount", drive, folder)
        assert run("sha256sum", folder / "d") == said, "what a removed cgroup wrote is not what is read"
        run("umount", folder)
        heavy.remove()
    kit.all_given_back()


def attached() -> int:
    """How many SCSI drives Linux has asked all that it wants to know, since it booted."""
    return kit.run("dmesg").count("] Attached SCSI disk")


def takes_fua(disk: str) -> bool:
    return kit.queue(disk, "fua").read_text() == "1\n"


def requeues_and_shared_tags() -> None:
    """A SCSI drive that refuses commands now and then, so that they are requeued; tags for all queues together."""
    tracing = kit.tracing()
    proc.modprobe("sd_mod")
    for shared in (0, 1):
        before = {path.name for path in Path("/sys/block").iterdir()}

        def known(drives: int = attached()) -> bool:
            return attached() > drives

        options = ["dev_size_mb=64", "submit_queues=2", "ndelay=200000", "max_queue=16", "opts=0x10"]
        proc.modprobe("scsi_debug", *options, *(["host_max_queue=16"] if shared else []))

        def found(before: set[str] = before) -> str:
            new = {path.name for path in Path("/sys/block").iterdir()} - before
            return next((name for name in new if Path("/dev", name).exists()), "")

        disk = kit.wait_for(found, "the SCSI drive appears")
        # It refuses nothing until Linux knows it: a MODE SENSE that is refused is not repeated, and a drive whose cache
        # nobody knows gets no FUA writes. Linux asks twice, before and after the drive appears.
        kit.wait_for(known, "the SCSI drive is known")
        kit.wait_for(functools.partial(takes_fua, disk), "the drive takes FUA writes")
        Path("/sys/bus/pseudo/drivers/scsi_debug/every_nth").write_text(str(25 * MIB))
        kit.set_scheduler(disk, OURS)
        event = tracing / "events/block/block_rq_requeue"
        (event / "enable").write_text("1")
        (tracing / "trace").write_text("")
        cgroups = [Cgroup(1000), Cgroup(10)]
        fios = [
            verify(disk, 0, cgroups[0], ioengine="libaio"),
            verify(disk, 1, cgroups[1], ioengine="io_uring", iodepth=1, bsrange="4k-8k"),
            # FUA writes, which 6.1 keeps from elevators until they are requeued, among flushes.
            verify(disk, 2, cgroups[0], ioengine="psync", sync="dsync", iodepth=1),
            verify(disk, 3, cgroups[1], ioengine="libaio", fdatasync=4),
        ]
        for fio in fios:
            fio.finish()
        assert takes_fua(disk), "the drive takes no FUA writes"
        requeues = (tracing / "trace").read_text().count("block_rq_requeue:")
        (event / "enable").write_text("0")
        print(requeues, "requeues", "with shared tags" if shared else "")
        assert requeues > 3, "nothing was requeued: this shows nothing"
        for cgroup in cgroups:
            cgroup.remove()
        kit.set_scheduler(disk, "none")
        kit.wait_for(lambda: kit.remove_module("scsi_debug") == 0, "the SCSI drive can be removed")
    kit.all_given_back()


kit.sections(every_scheduler_in_turn, flushes_fua_and_discards, file_system_with_writeback, requeues_and_shared_tags)
