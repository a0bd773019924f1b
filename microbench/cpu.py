# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Measure the CPU time that things take on this machine, for the simulator: `make cpu` in this folder.

Three sources: cpu.c, for the schedulers' own code; fio on a file of this machine's drive, for everything else that a
request takes (system calls, file system, block layer, driver, interrupt); and the ping-pong of cpu.c between two
threads. Other load on the machine can only make a figure higher, so the lowest of several runs counts.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from fairlane import proc

RUNS = 5
FIO_RUNS = 3
FIO = (
    *("fio", "--name=submit", "--size=256m", "--direct=1", "--rw=randread", "--bs=4k", "--ioengine=libaio"),
    *("--iodepth=32", "--runtime=3", "--time_based", "--slat_percentiles=1", "--lat_percentiles=0"),
    *("--clat_percentiles=0", "--output-format=json"),
)
LIMIT_S = 60.0

# The D2FQ paper's Fig. 16: with the low-latency I/O stack (Lee et al., USENIX ATC 2019) instead of the block layer, one
# core does 54 % more I/Os. Linux has no such stack to be measured, so its CPU times are ours in that proportion.
LOW_LATENCY = 1.54

Row = tuple[float, ...]


def host(folder: Path) -> tuple[int, int]:
    """(ns to submit a request, ns to complete it): io_submit()'s median time, and the rest of the thread's CPU time."""
    found = []
    file = folder / "fio.bin"
    for _ in range(FIO_RUNS):
        text = proc.output([*FIO, f"--filename={file}"], what="measuring the block layer", limit_s=LIMIT_S)
        job = json.loads(text[text.find("{") :])["jobs"][0]
        ios, cpu_percent = job["read"]["total_ios"], job["usr_cpu"] + job["sys_cpu"]
        all_ns = cpu_percent / 100 * job["read"]["runtime"] * 1e6 / ios
        submit_ns = job["read"]["slat_ns"]["percentile"]["50.000000"]
        found.append((all_ns, submit_ns))
    file.unlink()
    all_ns, submit_ns = min(found)
    return round(submit_ns), round(all_ns - submit_ns)


def schedulers(program: Path, only: Sequence[str] = ()) -> tuple[dict[str, dict[tuple[int, int], Row]], float]:
    """By scheduler, flows and queues: ns to insert, dispatch, complete; the lock's times taken, reads, ns. And wake."""
    found: dict[str, dict[tuple[int, int], list[Row]]] = {}
    wakes = []
    for _ in range(RUNS):
        for line in proc.output([program, *only], what="measuring the schedulers", limit_s=LIMIT_S).splitlines():
            name, *values = line.split()
            if name == "wake":
                wakes.append(float(values[2]))
                continue
            flows, queues, *rest = map(float, values)
            found.setdefault(name, {}).setdefault((int(flows), int(queues)), []).append(tuple(rest))
    best = {name: {at: _best(rows) for at, rows in cells.items()} for name, cells in found.items()}
    return best, min(wakes)


def _best(rows: list[Row]) -> Row:
    hot = tuple(min(column) for column in list(zip(*rows, strict=True))[:3])
    return *hot, *min(rows, key=lambda row: row[5] / max(1.0, row[4]))[3:]


def lock(cells: dict[tuple[int, int], Row]) -> tuple[float, float]:
    """(ns each time it is taken, ns for each read under it): a line by relative least squares."""
    rows = [row[3:] for row in cells.values() if row[3]]
    if not rows:
        return 0.0, 0.0
    tt = sum((t / h) ** 2 for t, _, h in rows)
    rr = sum((r / h) ** 2 for _, r, h in rows)
    tr = sum(t * r / h**2 for t, r, h in rows)
    t1, r1 = sum(t / h for t, _, h in rows), sum(r / h for _, r, h in rows)
    det = tt * rr - tr * tr
    each, read = (t1 * rr - r1 * tr) / det, (r1 * tt - t1 * tr) / det
    if each < 0:
        return 0.0, r1 / rr
    return each, read


def low_latency(submit_ns: int, complete_ns: int) -> list[str]:
    return [
        "",
        "# The same without a block layer: not measured, see microbench/cpu.py.",
        "[low_latency]",
        f"submit_ns = {round(submit_ns / LOW_LATENCY)}",
        f"complete_ns = {round(complete_ns / LOW_LATENCY)}",
    ]


def scheduler_text(name: str, cells: dict[tuple[int, int], Row]) -> list[str]:
    each, read = lock(cells)
    return [
        "",
        "# Holding the lock that all cores share: each time, and for each read of shared memory under it.",
        "# requests: flows, hardware queues, ns to insert, to dispatch and to complete a request.",
        f'[scheduler."{name}"]',
        f"lock_ns = {each:.1f}",
        f"lock_read_ns = {read:.3f}",
        "requests = [",
        *(f"    [{f}, {q}, {', '.join(f'{ns:.1f}' for ns in row[:3])}]," for (f, q), row in cells.items()),
        "]",
    ]


def renew(program: Path, out: Path, names: list[str]) -> None:
    """Measure only those schedulers; what the file says of the others and of the host stays."""
    found, _ = schedulers(program, names)
    if unknown := [name for name in names if name not in found]:
        raise SystemExit(f"{program}: has no {', '.join(unknown)}; see libfairlane/schedulers/list.h")
    parts = out.read_text().rstrip().split("\n\n")
    parts = [part for part in parts if not any(f'[scheduler."{name}"]' in part for name in names)]
    text = [line for name in names for line in scheduler_text(name, found[name])]
    out.write_text("\n\n".join(parts) + "\n" + "\n".join(text) + "\n")


def write(program: Path, out: Path) -> None:
    submit_ns, complete_ns = host(program.parent)
    found, wake = schedulers(program)
    info = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), platform.machine())
    text = [
        "# SPDX-License-Identifier: GPL-2.0-only OR MIT",
        "# CPU time that things take, in ns; measured by `make -C microbench cpu`. See microbench/cpu.py.",
        "",
        "[machine]",
        f'cpu = "{cpu}"',
        f"cores = {os.cpu_count()}",
        f'kernel = "{platform.release()}"',
        f'date = "{datetime.date.today().isoformat()}"',
        "",
        "# A request without the scheduler's part, by fio on this machine's drive; having another thread do something.",
        "[host]",
        f"submit_ns = {submit_ns}",
        f"complete_ns = {complete_ns}",
        f"wake_ns = {round(wake / 2)}",
        *low_latency(submit_ns, complete_ns),
    ]
    for name, cells in found.items():
        each, read = lock(cells)
        text += scheduler_text(name, cells)
    out.write_text("\n".join(text) + "\n")
    errors = [abs((t * each + r * read) / h - 1) for t, r, h in (row[3:] for row in cells.values()) if h]
    print(f"{out}: submit {submit_ns} ns, complete {complete_ns} ns, wake {wake / 2:.0f} ns")
    print(f"lock of {name}: the line is off by {median(errors):.0%} in the median, {max(errors):.0%} at most")


if __name__ == "__main__":
    if len(sys.argv) > 3:
        renew(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
    else:
        write(Path(sys.argv[1]), Path(sys.argv[2]))
