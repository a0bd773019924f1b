# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: RocksDB against fio on a virtual SSD (D2FQ, Fig. 18): equal weights, and what each gets.

db_bench reads records of 1 KiB at random, each from the drive (YCSB's workload C, uniform); fio reads 4 KiB blocks with
4 threads and a queue depth of 128. Arguments: none, or how long to measure in seconds. Prints, for each scheduler, the
bytes per second of both and their ratio, as the drive's own counts by cgroup have them.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from fairlane import devices, knobs, proc
from fairlane.guest import CGROUPS
from fairlane.scenario import Profile, load_profile

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
RECORDS = 50_000
THREADS = 160  # that have a read each outstanding: enough for half of the drive, which holds 128
# Slow enough to be the bottleneck even when the CPU is emulated; fresh, as it is only read once it is filled.
DRIVE = {"time_scale": 300, "map": 0, "size": 4 << 30, "memory": 1 << 30}
BOUNDS = {"d2fq": (0.95, 1.08), "mqfq": (0.95, 1.08)}
UNFAIR = 0.8  # what nobody shares out is further off than that
COMMON = ["--benchmarks=readrandom", "--use_existing_db=1", "--readonly=1", "--compression_type=none"]


@contextlib.contextmanager
def mounted(disk: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rocksdb-"))
    proc.output(["mkfs.ext4", "-q", "-F", "-E", "nodiscard", f"/dev/{disk}"], what="making a file system", limit_s=120)
    proc.output(["mount", f"/dev/{disk}", folder], what="mounting it", limit_s=60)
    try:
        yield folder
    finally:
        proc.output(["umount", folder], what="unmounting it", limit_s=120)


def fill(folder: Path) -> None:
    argv = ["db_bench", "--benchmarks=fillseq", f"--num={RECORDS}", "--value_size=1024", "--compression_type=none"]
    argv += [f"--db={folder}/db", "--disable_wal=1", "--write_buffer_size=16777216"]
    proc.output(argv, what="filling the database", limit_s=300)
    argv = ["fio", "--name=fill", f"--filename={folder}/fio", "--size=64m", "--rw=write", "--bs=1m", "--end_fsync=1"]
    proc.output(argv, what="filling fio's file", limit_s=300)
    proc.output(["sync"], what="writing it all", limit_s=300)


def started(cgroup: Path, *argv: object) -> subprocess.Popen[bytes]:
    words = ["sh", "-c", 'echo 0 > "$0" && exec "$@"', cgroup / "cgroup.procs", *argv]
    return subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL)


def read_bytes(cgroup: Path, number: str) -> int:
    for line in (cgroup / "io.stat").read_text().splitlines():
        found, *values = line.split()
        if found == number:
            return int(dict(value.split("=") for value in values)["rbytes"])
    return 0


def measured(disk: str, folder: Path, cgroups: list[Path], knob: str) -> float:
    """The database's bytes per second over fio's."""
    number = Path("/sys/block", disk, "dev").read_text().strip()
    with knobs.scheduler(disk, knob, knobs.TABLE[knob].place):
        Path("/proc/sys/vm/drop_caches").write_text("3")
        duration = round(3 * SECONDS + 60)
        database = ["db_bench", *COMMON, f"--num={RECORDS}", f"--db={folder}/db", f"--threads={THREADS}"]
        database += ["--use_direct_reads=1", "--cache_size=65536", f"--duration={duration}"]
        fio = ["fio", "--name=t", f"--filename={folder}/fio", "--size=64m", "--rw=randread", "--bs=4k", "--direct=1"]
        fio += ["--ioengine=libaio", "--iodepth=128", "--numjobs=4", "--time_based", f"--runtime={duration}"]
        running = [started(cgroup, *argv) for cgroup, argv in zip(cgroups, (database, fio), strict=True)]
        try:
            deadline = time.monotonic() + 60
            while not all(read_bytes(cgroup, number) for cgroup in cgroups):
                assert time.monotonic() < deadline, "both read from the drive"
                time.sleep(0.1)
            time.sleep(SECONDS)
            before = [read_bytes(cgroup, number) for cgroup in cgroups]
            time.sleep(SECONDS)
            got = [(read_bytes(cgroup, number) - then) for cgroup, then in zip(cgroups, before, strict=True)]
            assert all(process.poll() is None for process in running), "both still run"
        finally:
            for cgroup, process in zip(cgroups, running, strict=True):
                (cgroup / "cgroup.kill").write_text("1")  # fio's jobs leave its process group
                process.wait()
                while (cgroup / "cgroup.procs").read_text():
                    time.sleep(0.01)
    said = " ".join(f"{part / SECONDS / 1e6:.1f}" for part in got)
    print(f"{knob}: database and fio read {said} MB/s, ratio {got[0] / got[1]:.3f}", flush=True)
    return got[0] / got[1]


def main() -> None:
    zssd = load_profile("zssd")
    cgroups = [CGROUPS / name for name in ("database", "fio")]
    for cgroup in cgroups:
        cgroup.mkdir()
    with devices.setup(Profile("rocksdb", "ssd", "", {**zssd.params, **DRIVE})) as disk, mounted(disk) as folder:
        fill(folder)
        ratios = {knob: measured(disk, folder, cgroups, knob) for knob in ("none", *BOUNDS)}
    for cgroup in cgroups:
        cgroup.rmdir()
    assert ratios["none"] < UNFAIR, f"without a scheduler, they share equally anyway: {ratios}"
    for knob, (least, most) in BOUNDS.items():
        assert least <= ratios[knob] <= most, f"{knob}: {ratios[knob]:.3f} is not between {least} and {most}"


if __name__ == "__main__":
    main()
