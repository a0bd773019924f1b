# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""On a host in a VM, started by systemd at each boot: does there what an operator does, and notes in FOUND what came
of it.

The word fairlane.test=install+shares,weights on the kernel's command line has two steps for the first boot, and one
for the second. Needs no more than Debian's Python. No network: what apt installs, it has in its cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from . import load, weights
from .load import said

FOUND = Path("/root/found.json")  # one entry for each boot
SLICE = "system-gold.slice"
TENANTS = {
    "gold": load.SYSTEM / SLICE,
    "silver": load.SYSTEM / "silver.service",
    "bronze": load.SYSTEM / "crun-bronze.scope",
}
COUNTED_S = 120.0  # an emulated CPU may be half a second between two cgroups' counts
APT_S = 3600.0  # DKMS builds, on an emulated CPU
SETTINGS = Path("/etc/fairlane.toml")
COMPLETION = "/usr/share/bash-completion/completions/fairlane"
MANUALS = ("fairlane.1", "fairlane.toml.5")
SERVICES = ("fairlane", "fairlane-metrics")

METRICS = "http://127.0.0.1:9943/metrics"
PROMETHEUS = "127.0.0.1:9090"
SCRAPES = {
    "global": {"scrape_interval": "10s"},  # as long as a scrape may take: on an emulated CPU, more than 2 s
    "scrape_configs": [{"job_name": "fairlane", "static_configs": [{"targets": ["127.0.0.1:9943"]}]}],
}

FAILING = {"faulty": "queue", "faulty-admission-qos": "fairlane"}  # modules of tests/vm/schedulers; where it is chosen
FAULT = 1  # it forgets requests, or admits none
VERIFIED = ["/usr/bin/fio", "--name=x", "--rw=randwrite", "--bsrange=4k-64k", "--direct=1", "--ioengine=libaio"]
VERIFIED += ["--iodepth=32", "--size=2m", "--verify=crc32c", "--verify_fatal=1", f"--filename=/dev/{load.DRIVE}"]
VERIFIED += ["--verify_state_save=0"]  # else fio leaves a file in its working directory, /


def main() -> None:
    steps = next(word for word in Path("/proc/cmdline").read_text().split() if word.startswith("fairlane.test="))
    boots = steps.partition("=")[2].split(",")
    before = json.loads(FOUND.read_text()) if FOUND.exists() else []
    found: dict[str, Any] = {"release": os.uname().release}
    try:
        for step in boots[len(before)].split("+"):
            start = time.monotonic()
            found[step] = STEPS[step]()
            print(f"{step}: {time.monotonic() - start:.0f} s", flush=True)
        found["log"] = said("dmesg").splitlines()
    except BaseException:
        found["failed"] = traceback.format_exc() + said("journalctl", "-b", "-n", "60", "--no-pager", check=False)
    FOUND.write_text(json.dumps([*before, found]))
    more = len(before) + 1 < len(boots)
    subprocess.run(["systemctl", "reboot" if more and "failed" not in found else "poweroff"], check=True)


def apt(*words: str) -> None:
    said("apt-get", "-q", "-y", "--no-install-recommends", *words, limit_s=APT_S)


def debs(folder: str) -> list[str]:
    return [str(each) for name in ("fairlane", "fairlane-dkms") for each in Path(folder).glob(f"{name}_*.deb")]


def versions() -> list[str]:
    """Of the packages that are installed."""
    return said("dpkg-query", "-W", "-f", "${Version} ", "fairlane", "fairlane-dkms").split()


def install() -> dict[str, Any]:
    """With the file in place: from then on the drive has its scheduler, without a boot."""
    assert load.read(load.BLOCK / "queue" / "scheduler").count("[none]")
    apt("install", *debs("/root/first"))
    load.scheduled()
    said("systemctl", "enable", "--now", "fairlane-metrics")  # no package does
    return {"versions": versions()}


def shares() -> dict[str, Any]:
    """The file was applied; what a slice of weight 500, a unit of 300 and a container of 200 get."""
    load.scheduled()
    found: dict[str, Any] = {
        "module": said("modinfo", "-n", load.SCHEDULER).strip(),
        "signer": said("modinfo", "-F", "signer", load.SCHEDULER).strip(),
        "versions": versions(),
        "completion": said("bash", "-c", f". {COMPLETION}; complete -p fairlane").strip(),
        "manuals": [name for name in MANUALS if not list(Path("/usr/share/man").glob(f"*/{name}.gz"))],
    }
    for name in ("gold-1", "gold-2"):
        load.unit(name, f"Slice={SLICE}")
    said("systemctl", "set-property", "--runtime", SLICE, "IOWeight=500")
    load.unit("silver", "IOWeight=300")
    load.container("bronze", 200, "system.slice:crun:bronze", "--systemd-cgroup")
    load.weigh(dict(zip(TENANTS.values(), (500, 300, 200), strict=True)))
    config = Path("/root/prometheus.json")  # which is YAML, too
    config.write_text(json.dumps(SCRAPES))
    argv = ["prometheus", f"--config.file={config}", f"--web.listen-address={PROMETHEUS}"]
    load.unit("scrapes", words=[*argv, "--storage.tsdb.path=/root/prometheus"])
    found |= load.shares(TENANTS, COUNTED_S, scraped)
    found["why"] = said("fairlane", "why", "system.slice/crun-bronze.scope/container").splitlines()
    found["demo"] = said("fairlane", "demo", check=False).splitlines()
    found["doctor"] = {
        each["name"]: [each["ok"], each["detail"], each["todo"]]
        for each in json.loads(said("fairlane", "doctor", "--json"))
    }
    load.stop("gold-1", "gold-2", "silver", "scrapes")
    load.remove_containers("bronze")
    return found


def scraped() -> dict[str, float]:
    """Bytes that the tenants have read, as a Prometheus has them from fairlane-metrics.service since it was asked.

    What it has from before may be from when they had just begun, without their weights.
    """
    count, now_s = f'fairlane_read_bytes_total{{drive="{load.DRIVE}"}}', time.time()
    load.wait_for(lambda: all(last > now_s for last in asked(f"timestamp({count})", max)), "a Prometheus has counts")
    return dict(zip(TENANTS, asked(count, sum), strict=True))


def asked(what: str, of: Callable[[list[float]], float]) -> list[float]:
    """A Prometheus, of each tenant and the cgroups in it; 0 of one of whom it knows nothing."""
    found = answer(f"http://{PROMETHEUS}/api/v1/query?{urlencode({'query': what})}")
    result = json.loads(found)["data"]["result"] if found else []
    tops = [str(cgroup.relative_to(load.CGROUPS)) for cgroup in TENANTS.values()]
    got = [(f"{each['metric']['cgroup']}/", float(each["value"][1])) for each in result]
    return [of([value for cgroup, value in got if cgroup.startswith(f"{top}/")] or [0.0]) for top in tops]


def fails() -> dict[str, Any]:
    """A scheduler fails under load: udev puts none in its place. No I/O is lost."""
    before = SETTINGS.read_text()
    SETTINGS.write_text(before[before.index("[[cgroup]]") :])  # of drives the file says nothing just now
    said("systemctl", "reload", "fairlane")
    (load.BLOCK / "queue" / "scheduler").write_text("none")
    reports = []
    for module, place in FAILING.items():
        said("modprobe", module)
        (load.BLOCK / place / "scheduler").write_text(module.removesuffix("-qos"))
        variables = load.BLOCK / ("queue/iosched" if place == "queue" else place)
        (variables / "fault").write_text(str(FAULT))
        (variables / "watchdog_msec").write_text("1000")
        said("systemd-run", "--quiet", "--wait", "--collect", *VERIFIED)  # fails if it reads anything else
        load.scheduled("none", place)
        said("fairlane", "report-bug", "--out", "/root/report.txt")
        reports.append(load.read(Path("/root/report.txt")).splitlines())
    SETTINGS.write_text(before)
    said("systemctl", "reload", "fairlane")
    load.scheduled()
    said("rmmod", *FAILING)
    return {"reports": reports}


def upgrade() -> dict[str, Any]:
    """To the packages in /root/second, while somebody reads."""
    load.unit("reads")
    before = {name: process(name) for name in ("reads", *SERVICES)}
    apt("install", *debs("/root/second"))
    load.scheduled()
    load.wait_for(served, "fairlane-metrics.service answers")
    after = {name: process(name) for name in before}
    load.stop("reads")
    return {"versions": versions(), "same": [name for name, pid in after.items() if pid == before[name]]}


def served() -> bool:
    """Is there an answer with our counts?"""
    return b"fairlane_read_bytes_total{" in answer(METRICS)


def answer(url: str) -> bytes:
    """What a server says; nothing if it is not up yet."""
    try:
        with urlopen(url, timeout=load.LIMIT_S) as response:
            body: bytes = response.read()
    except (URLError, ConnectionError):
        body = b""
    return body


def process(service: str) -> int:
    """Its main one."""
    said("systemctl", "is-active", service)
    return int(said("systemctl", "show", "--property=MainPID", "--value", service))


def kernel() -> None:
    """Update it: DKMS builds our modules for the new one."""
    apt("install", "linux-image-amd64", "linux-headers-amd64", "linux-source")


def purge() -> dict[str, Any]:
    """After the packages are gone: the drive's scheduler, our modules in memory, and which services still run."""
    load.scheduled()
    for name in SERVICES:
        process(name)
    apt("purge", "fairlane", "fairlane-dkms")
    return {
        "services": [said("systemctl", "is-active", name, check=False).strip() for name in SERVICES],
        "scheduler": load.read(load.BLOCK / "queue" / "scheduler"),
        "modules": [line.split()[0] for line in Path("/proc/modules").read_text().splitlines()],
    }


STEPS = {
    "install": install,
    "shares": shares,
    "weights": weights.measure,
    "fails": fails,
    "upgrade": upgrade,
    "kernel": kernel,
    "purge": purge,
}

if __name__ == "__main__":
    main()
