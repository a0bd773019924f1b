# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane report-bug`: what whoever mends the schedulers has to know of this host, as one text."""

from __future__ import annotations

import argparse
import platform
import re
import time
from collections.abc import Iterator
from pathlib import Path

from fairlane import files, proc, schedulers
from fairlane.errors import FairlaneError
from fairlane.linux import disks, failures, queue, sysfs

COMMAND_LINE = Path("/proc/cmdline")
OS_RELEASE = Path("/etc/os-release")
# Of the kernel's command line, what bears on drives, cgroups and modules: other words may hold a password.
WORDS = re.compile(r"(cgroup_no_v1|elevator|lockdown|module\.sig_enforce|nvme\S*|scsi_mod\S*|systemd\.unified\S*)=")
# Of the kernel's log, what we say, and what says that something is broken, with its trace.
LOG = re.compile(
    r"\bfairlane\b|\bBUG: |\bWARNING: |\bOops\b|\bblocked for more than\b|\bsoft lockup\b|\bstall|\bCall Trace:"
    r"|\w\+0x[0-9a-f]+/0x[0-9a-f]+\b|\bnvme\S*: |\btask:\S+ +state:"
)
LINES = 2000  # of the log, the last
LIMIT_S = 30.0


def main(args: argparse.Namespace) -> int:
    with files.new_file(args.out, 0o600) as write:  # with the kernel's log, which not everybody may read
        write("\n".join(report(args.config)).encode(errors="backslashreplace"))
    print(f"{args.out} is written; read it before you send it, as it names this host's drives and cgroups")
    return 0


def report(config: Path) -> Iterator[str]:
    yield from _section("versions", _versions())
    yield from _section("schedulers that have failed", _kept())
    yield from _section("drives", _drives())
    yield from _section(str(config), (sysfs.said(config) or "not there").splitlines())
    yield from _section("the kernel's log", _log())


def _section(title: str, lines: Iterator[str] | list[str]) -> Iterator[str]:
    yield f"== {title}"
    yield from lines
    yield ""


def _versions() -> Iterator[str]:
    yield f"at {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}"
    yield f"fairlane {schedulers.version()}"
    yield f"kernel {platform.release()} {platform.version()} {platform.machine()}"
    said = re.search(r'^PRETTY_NAME="?([^"\n]*)', sysfs.said(OS_RELEASE) or "", re.MULTILINE)
    yield f"system {said[1] if said else 'unknown'}"
    words = (sysfs.said(COMMAND_LINE) or "").split()
    yield " ".join(["command line", *filter(WORDS.match, words)])
    for module in sorted({"fairlane", *(path.name for path in sysfs.MODULES.glob("fairlane*/holders/*"))}):
        yield f"module {module} {sysfs.said(sysfs.MODULES / module / 'srcversion') or 'not loaded'}"


def _kept() -> list[str]:
    if not failures.KEPT.exists():
        return ["none: our modules are not loaded"]
    try:
        return failures.KEPT.read_text("utf-8", "replace").splitlines() or ["none"]
    except OSError as error:
        return [f"not read: {error.strerror}; be root"]


def _drives() -> Iterator[str]:
    for device in disks.schedulable(sysfs.SYS_BLOCK):
        folder = sysfs.SYS_BLOCK / device
        model = sysfs.said(folder / "device" / "model") or "of no model"
        has = [
            f"{place}/scheduler {said}"
            for place in (queue.QUEUE, queue.ROUTED)
            if (said := sysfs.said(queue.scheduler_file(device, place)))
        ]
        yield f"drive {device} {sysfs.number_if_any(device) or 'of no number'} {model}; {'; '.join(has)}"
        for name in ("nr_requests", "write_cache", "rotational", "iostats", "wbt_lat_usec"):
            if value := sysfs.said(folder / "queue" / name):
                yield f"  {name} {value}"
        for name, value in queue.tunables(device).items():
            yield f"  {name} {' / '.join(value.splitlines())}"


def _log() -> list[str]:
    try:
        said = proc.output(["dmesg"], what="reading the kernel's log", limit_s=LIMIT_S)
    except FairlaneError as error:
        return [f"not read: {error}"]
    return [line for line in said.splitlines() if LOG.search(line)][-LINES:]
