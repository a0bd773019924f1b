# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""nbdkit with our filter over a modelled drive, and NBD clients of two tenants; as a program: how they share it.

The drive is the Z-SSD of profiles/, so many times slower, without its map: reads and writes of a fresh drive.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fairlane.places import ROOT
from fairlane.schedulers import SCHEDULERS

BUILT = ROOT / "build" / "nbdkit"
WEIGHTS = {"gold": 800, "silver": 200}
START_S, STOP_S = 120, 60  # a busy machine's
PACKAGES = "apt-get install nbdkit nbdkit-plugin-dev libnbd-bin python3-libnbd fio"


def build() -> None:
    subprocess.run(["make", "-s", "-C", ROOT / "nbdkit"], check=True)


def drive(time_scale: int) -> list[str]:
    """The plugin, and the numbers of its drive."""
    numbers = tomllib.loads((ROOT / "profiles" / "zssd.toml").read_text())
    numbers |= {"map": 0, "time_scale": time_scale}
    words = [f"{name}={value}".replace("iB", "") for name, value in numbers.items()]
    return [str(BUILT / "nbdkit-ssd-plugin.so"), *(word for word in words if not word.startswith(("kind", "descr")))]


@contextmanager
def server(plugin: list[str], options: list[str] | None) -> Iterator[Path]:
    """Its socket. `options`: of our filter; None: without it."""
    words = ["nbdkit", "-f", "--threads", "128"]
    if options is not None:
        words += [f"--filter={BUILT / 'nbdkit-fairlane-filter.so'}"]
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "socket"
        process = subprocess.Popen([*words, "-U", str(socket), *plugin, *(options or [])])
        try:
            until = time.monotonic() + START_S
            while not socket.exists():
                assert process.poll() is None, "nbdkit ended"
                assert time.monotonic() < until, "nbdkit does not listen"
                time.sleep(0.05)
            yield socket
        finally:
            process.terminate()
            process.wait(STOP_S)


def options(scheduler: str, depth: int) -> list[str]:
    """Of the filter: at most `depth` requests in the drive, 0: as the scheduler likes."""
    tenants = ",".join(f"{name}:{weight}" for name, weight in WEIGHTS.items())
    words = [f"fairlane-tenants={tenants}", f"fairlane-scheduler={scheduler}"]
    if depth:
        words += [f"fairlane-set=budget={depth}" if scheduler == "fairlane" else f"fairlane-depth={depth}"]
    return words


@dataclass(frozen=True)
class Load:
    requests: dict[str, int]  # by tenant
    per_s: float  # of all
    quarter_ns: dict[str, int]  # by tenant: a quarter of its requests is done in that time

    @property
    def ratio(self) -> float:
        return self.requests["gold"] / self.requests["silver"]

    @property
    def off(self) -> float:
        """By how much a tenant is off its share, the one furthest off; 0.01 is one per cent."""
        total, weights = sum(self.requests.values()), sum(WEIGHTS.values())
        return max(abs(self.requests[name] / total * weights / weight - 1) for name, weight in WEIGHTS.items())


def load(socket: Path, seconds: float, outstanding: int, silver: int = 0, warmup: float = 2) -> Load:
    """fio's NBD engine, with a connection for each tenant; they begin and end together. `silver`: other than gold's."""
    words = ["fio", "--thread", "--ioengine=nbd", "--rw=randread", "--bs=4k", "--time_based"]
    words += [f"--ramp_time={warmup}", f"--runtime={seconds}", "--output-format=json", "--percentile_list=25"]
    for name, depth in (("gold", outstanding), ("silver", silver or outstanding)):
        words += [f"--name={name}", f"--iodepth={depth}", f"--uri=nbd+unix:///{name}?socket={socket}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds + 300, check=True)
    jobs = json.loads(done.stdout[done.stdout.find("{") :])["jobs"]
    reads = {job["jobname"]: job["read"] for job in jobs}
    return Load(
        {name: each["total_ios"] for name, each in reads.items()},
        sum(each["iops"] for each in reads.values()),
        {name: each["clat_ns"]["percentile"]["25.000000"] for name, each in reads.items()},
    )


def measure(seconds: float, time_scale: int, outstanding: int, depth: int) -> None:
    print(f"4 KiB reads, {outstanding} outstanding of each tenant, a drive {time_scale} times slower, {seconds} s each")
    print(f"{'':30} gold:silver  off by  of the plain server's throughput")
    choices = [("fairlane", 0), *((each.name, depth) for each in SCHEDULERS if each.role != "EXAMPLE")]
    for name, limit in choices:
        with server(drive(time_scale), None) as socket:  # they take turns: the machine may change
            plain = load(socket, seconds, outstanding)
        with server(drive(time_scale), options(name, limit)) as socket:
            ours = load(socket, seconds, outstanding)
        label = f"{name}, {f'{limit} in the drive' if limit else 'as much as is of use'}"
        print(f"{label:37} {ours.ratio:4.2f} {100 * ours.off:5.1f} %  {ours.per_s / plain.per_s:.2f} ", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="How exports of nbdkit share a modelled drive, 800:200.")
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement (default: 20)")
    parser.add_argument("--time-scale", type=int, default=200, help="so many times slower than a Z-SSD (default: 200)")
    parser.add_argument("--outstanding", type=int, default=64, help="requests of each tenant (default: 64)")
    parser.add_argument("--depth", type=int, default=24, help="requests in the drive, where it is set (default: 24)")
    args = parser.parse_args()
    build()
    measure(args.seconds, args.time_scale, args.outstanding, args.depth)


if __name__ == "__main__":
    main()
