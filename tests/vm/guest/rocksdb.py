# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: RocksDB beside fio on a virtual SSD (D2FQ, Fig. 18 and 19): equal weights, what each gets and waits.

Arguments: a workload of YCSB, as near as db_bench comes to it, or none for C; and, for a drive of fl-nvme instead,
the NVMe driver that drives it. 160 threads work on 50,000 records of 1 KiB, past the page cache; fio reads 4 KiB
blocks with 4 threads and a queue depth of 128 each. Prints for each scheduler: bytes/s of both, by the drive's own
counts for each cgroup, and their ratio; the CPUs' use; the mean time of an operation, of the database and of fio,
over that with none; and the P99 of the database's.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fairlane import proc
from fairlane.experiment.model import FL_NVME, Profile
from fairlane.experiment.profiles import load_profile
from fairlane.linux import knobs, made_drives, queue
from fairlane.vm.guest import CGROUPS

# db_bench picks keys uniformly. Its D (read what was written last) would not reach the drive.
WORKLOADS = {
    "A": ["--benchmarks=readrandomwriterandom", "--readwritepercent=50"],  # half of the operations are updates
    "B": ["--benchmarks=readrandomwriterandom", "--readwritepercent=95"],
    "C": ["--benchmarks=readrandom", "--readonly=1"],
    "E": ["--benchmarks=seekrandom", "--seek_nexts=50", "--readonly=1"],  # without its 5 % of inserts
    "F": ["--benchmarks=updaterandom"],  # read, modify, write; YCSB's F has as many plain reads
}
WORKLOAD = sys.argv[1] if len(sys.argv) > 1 else "C"
DRIVER = Path(sys.argv[2]) if len(sys.argv) > 2 else None
SECONDS = 10.0
RECORDS = 50_000
THREADS = 160  # that have a read each outstanding: enough for half of the drive, which holds 128
# Slow enough to be the bottleneck even when the CPU is emulated; without garbage collection.
DRIVE = {"time_scale": 300, "map": 0, "size": 4 << 30, "memory": 1 << 30}
DATABASE = ["--compression_type=none", "--write_buffer_size=16777216", f"--num={RECORDS}", "--value_size=1024"]
DIRECT = ["--use_direct_reads=1", "--use_direct_io_for_flush_and_compaction=1", "--cache_size=65536"]
LOW_THRESHOLD = 1 << 20  # of D2FQ; its default is more than a second of so slow a drive
PAPERS = ("d2fq", "mqfq")  # whose sharing is the paper's claim
KNOBS = ("none", "bfq", *PAPERS, "kyber-fairness", "mqflashfq", "fairlane")
# Of the ratio. In an emulated VM all but C are short of CPU time, and do not always ask for half of the drive.
LEAST, MOST = (0.95 if WORKLOAD == "C" else 0.4), 1.08
UNFAIR = 0.8  # what nobody shares out is further off than that


@dataclass(frozen=True)
class Measured:
    """Of the database, and of fio."""

    bytes_per_s: tuple[float, float]
    latency_us: tuple[float, float]
    p99_us: float  # of the database's operations
    cpu: float  # the part of all CPUs' time that was used

    @property
    def ratio(self) -> float:
        return self.bytes_per_s[0] / self.bytes_per_s[1]

    def slower_than(self, none: Measured) -> tuple[float, float]:
        return self.latency_us[0] / none.latency_us[0], self.latency_us[1] / none.latency_us[1]

    def against(self, none: Measured) -> str:
        rates = " and ".join(f"{rate / 1e6:.1f}" for rate in self.bytes_per_s)
        of_none = sum(self.bytes_per_s) / sum(none.bytes_per_s)
        slower = " and ".join(f"{times:.2f}" for times in self.slower_than(none))
        return (
            f"database and fio move {rates} MB/s, ratio {self.ratio:.3f}, {of_none:.3f} of none's total, with"
            f" {self.cpu:.0%} of the CPUs; an operation takes {slower} times what it does with none, and the database's"
            f" P99 is {self.p99_us / 1000:.0f} ms"
        )


@contextlib.contextmanager
def mounted(disk: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rocksdb-"))
    proc.output(["mkfs.ext4", "-q", "-F", "-E", "nodiscard", f"/dev/{disk}"], what="making a file system", limit_s=120)
    proc.output(["mount", f"/dev/{disk}", folder], what="mounting it", limit_s=60)
    try:
        yield folder
    finally:
        proc.output(["umount", folder], what="unmounting it", limit_s=120)


def fill(folder: Path, kept: Path) -> None:
    """A database in `kept`, and a file for fio on the drive."""
    argv = ["db_bench", "--benchmarks=fillseq", *DATABASE, "--disable_wal=1", f"--db={kept}"]
    proc.output(argv, what="filling the database", limit_s=300)
    argv = ["fio", "--name=fill", f"--filename={folder}/fio", "--size=64m", "--rw=write", "--bs=1m", "--end_fsync=1"]
    proc.output(argv, what="filling fio's file", limit_s=300)


def renew(folder: Path, kept: Path) -> Path:
    """The database as it was filled, on the drive and not in memory."""
    database = folder / "db"
    shutil.rmtree(database, ignore_errors=True)
    shutil.copytree(kept, database)
    proc.output(["sync"], what="writing it all", limit_s=300)
    Path("/proc/sys/vm/drop_caches").write_text("3")
    return database


def moved(cgroup: Path, number: str) -> int:
    """Bytes read and written."""
    for line in (cgroup / "io.stat").read_text().splitlines():
        found, *values = line.split()
        if found == number:
            counts = dict(value.split("=", 1) for value in values)
            return int(counts.get("rbytes", 0)) + int(counts.get("wbytes", 0))
    return 0


@contextlib.contextmanager
def running(cgroup: Path, number: str, *argv: object) -> Iterator[subprocess.Popen[str]]:
    """A program in the cgroup that has begun to use the drive, until it ends or, at the end, is killed."""
    began = moved(cgroup, number)
    words = ["sh", "-c", 'echo 0 > "$0" && exec "$@"', cgroup / "cgroup.procs", *argv]
    process = subprocess.Popen(
        [str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        deadline = time.monotonic() + 60
        while moved(cgroup, number) == began:
            assert time.monotonic() < deadline, f"{argv[0]} uses the drive"
            time.sleep(0.1)
        yield process
    finally:
        (cgroup / "cgroup.kill").write_text("1")  # fio's jobs leave its process group
        process.wait()
        while (cgroup / "cgroup.procs").read_text():
            time.sleep(0.01)


def cpu_times() -> tuple[int, int]:
    """Used, and in all, in ticks of all CPUs."""
    times = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(times) - times[3] - times[4], sum(times)


@contextlib.contextmanager
def chosen(disk: str, knob: str) -> Iterator[None]:
    with queue.scheduler(disk, knob, knobs.TABLE[knob].place):
        if knob == "d2fq":
            Path("/sys/block", disk, "fairlane", "low_threshold").write_text(str(LOW_THRESHOLD))
        yield


def measured(disk: str, database: Path, cgroups: list[Path], knob: str) -> Measured:
    number = Path("/sys/block", disk, "dev").read_text().strip()
    db_bench = ["db_bench", "--use_existing_db=1", *WORKLOADS[WORKLOAD], *DATABASE, *DIRECT, f"--db={database}"]
    db_bench += [f"--threads={THREADS}", f"--duration={round(2.5 * SECONDS)}", "--ops_between_duration_checks=1"]
    db_bench.append("--histogram")
    fio = ["fio", "--name=t", f"--filename={database.parent}/fio", "--size=64m", "--rw=randread", "--bs=4k"]
    fio += ["--direct=1", "--ioengine=libaio", "--iodepth=128", "--numjobs=4", "--time_based", "--runtime=600"]
    fio += ["--group_reporting", "--output-format=json"]

    def counts() -> list[int]:
        return [moved(cgroup, number) for cgroup in cgroups]

    with (
        chosen(disk, knob),
        running(cgroups[1], number, *fio) as fio_process,  # first, since db_bench ends by itself
        running(cgroups[0], number, *db_bench) as database_process,
    ):
        time.sleep(SECONDS)
        before, cpu_before = counts(), cpu_times()
        time.sleep(SECONDS)
        after, cpu_after = counts(), cpu_times()
        for process in (fio_process, database_process):
            assert process.poll() is None, f"it still runs, not: {process.communicate()[0][-2000:]}"
        database_said, _ = database_process.communicate(timeout=60 + 2 * SECONDS)
        fio_process.send_signal(signal.SIGINT)  # end, and say what was measured
        fio_said, _ = fio_process.communicate(timeout=60)
    operation = re.search(r"([\d.]+) micros/op", database_said)
    p99s = [float(found) for found in re.findall(r"P99: ([\d.]+)", database_said)]  # of reads, and of writes
    assert operation and p99s, f"db_bench says how long operations took, not only: {database_said}"
    fio_found, _ = json.JSONDecoder().raw_decode(fio_said, fio_said.index("{"))
    read = fio_found["jobs"][0]["read"]
    used, ticks = (now - then for now, then in zip(cpu_after, cpu_before, strict=True))
    database_bytes, fio_bytes = (now - then for now, then in zip(after, before, strict=True))
    return Measured(
        (database_bytes / SECONDS, fio_bytes / SECONDS),
        (float(operation[1]), read["lat_ns"]["mean"] / 1000),
        max(p99s),
        used / ticks,
    )


def main() -> None:
    drive = Profile("rocksdb", "ssd", "", {**load_profile("zssd").params, **DRIVE}, FL_NVME if DRIVER else None)
    (CGROUPS / "cgroup.subtree_control").write_text("+memory\n")  # so that what the kernel writes back is charged, too
    cgroups = [CGROUPS / name for name in ("database", "fio")]
    for cgroup in cgroups:
        cgroup.mkdir()
    found: dict[str, Measured] = {}
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as kept,
        made_drives.setup(drive, DRIVER) as disk,
        mounted(disk) as folder,
    ):
        fill(folder, Path(kept, "db"))
        for knob in KNOBS:
            found[knob] = measured(disk, renew(folder, Path(kept, "db")), cgroups, knob)
            print(f"YCSB {WORKLOAD}, {knob}: {found[knob].against(found['none'])}", flush=True)
    for cgroup in cgroups:
        cgroup.rmdir()
    # Through the NVMe driver, B's ratio differs from run to run by more than schedulers do (docs/papers/d2fq.md); what
    # its operations take, below, does not.
    for knob in PAPERS if not (DRIVER and WORKLOAD == "B") else ():
        assert LEAST <= found[knob].ratio <= MOST, f"{knob}: {found[knob].ratio:.3f} is not between {LEAST} and {MOST}"
    if WORKLOAD == "E":  # whose scans ask for as much as fio does
        return
    assert found["none"].ratio < UNFAIR, f"without a scheduler, they share equally anyway: {found['none'].ratio:.3f}"
    for knob in PAPERS:
        database, fio = found[knob].slower_than(found["none"])
        assert database < 1 < fio, f"{knob} makes the database quicker and fio slower: {database:.2f} and {fio:.2f}"


if __name__ == "__main__":
    main()
