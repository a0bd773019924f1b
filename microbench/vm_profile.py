# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Where the CPU time of a VM goes, by scheduler: `make profile` in this folder.

QEMU is asked again and again which instruction each CPU is at, and the guest's kernel for its symbols. A profiler
within the guest (perf, by the CPU's clock) saw the idle task alone. What is in the middle of an access to a device is
seen only once QEMU's lock is free, so such functions have at least what is said.
"""

from __future__ import annotations

import argparse
import bisect
import json
import os
import re
import socket
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairlane import proc, schedulers
from fairlane.backends import attached
from fairlane.experiment import scenario_file
from fairlane.linux import cgroups, disks, fio, knobs, made_drives, sysfs
from fairlane.linux.knob import Need, Setting
from fairlane.vm import fl_nvme, kernels, newer_qemu, qemu
from fairlane.vm.guest import tell

LOAD = Path(__file__).parent.parent / "scenarios/d2fq/nvme-cpu-bound.toml"
KNOBS = ("none", "d2fq", "mqfq")
SECONDS, WARMUP = 10.0, 3.0
FROM, UNTIL = 0.35, 0.95  # the part of a run that is looked at
EVERY_S = 0.005
LIMIT_S = 1200.0
USER_SPACE = 1 << 47
FUNCTIONS = 16  # that are listed by name
SELDOM = 0.001  # a module that is seen less often is not listed
SYMBOLS = "kallsyms"


@dataclass
class Seen:
    """Under one scheduler: how often each function was seen, and the CPU time of one request."""

    functions: Counter[tuple[str, str]] = field(default_factory=Counter)  # by module and name
    us_per_io: list[float] = field(default_factory=list)  # of all CPUs, idle or not; one for each run

    def us(self, times: int) -> float:
        return times / self.functions.total() * sum(self.us_per_io) / len(self.us_per_io)


# --- In the VM ---


def guest(shared: Path, driver: Path, repeats: int, names: list[str]) -> None:
    """Run the load under each scheduler in turn, and say when the host is to look."""
    scenario = replace(scenario_file.load(LOAD), seconds=SECONDS, warmup=WARMUP)
    with made_drives.setup(scenario.profile, driver) as device:
        (shared / SYMBOLS).write_text(Path("/proc/kallsyms").read_text())
        number, target = sysfs.device_number(device), disks.free_target(device, scenario, None)
        for name in names * repeats:
            with cgroups.tree(scenario.groups, scenario.tenants) as tree:
                setting, looked = Setting(device, number, tree, scenario, Need()), [False]

                def look(part: float, looked: list[bool] = looked, name: str = name) -> None:
                    if looked[0] != (FROM <= part < UNTIL):
                        looked[0] = not looked[0]
                        tell({"look": name if looked[0] else None})

                with knobs.applied(knobs.TABLE[name], setting):
                    inside = {tenant.name: tree.inside(tenant.name) for tenant in scenario.tenants}
                    got = fio.run(scenario, target, shared / name, cgroups=inside, seed=1, progress=look)
                tell({"look": None, "of": name, "us": 1e6 * got.seconds * (os.cpu_count() or 1) / got.ios})


# --- Outside ---


def sample(qmp: Path, looked_at: Callable[[], str | None], addresses: dict[str, list[int | None]]) -> None:
    """Until QEMU ends: where its CPUs are while somebody wants to know. None: halted."""
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rw") as talk:
        connection.connect(str(qmp))

        def ask(command: Mapping[str, object]) -> str:
            talk.write(json.dumps(command) + "\n")
            talk.flush()
            for line in talk:
                if "return" in (said := json.loads(line)):  # anything else is an event
                    return str(said["return"])
            raise ConnectionError

        registers = {"execute": "human-monitor-command", "arguments": {"command-line": "info registers -a"}}
        pause = threading.Event()
        try:
            ask({"execute": "qmp_capabilities"})
            while not pause.wait(EVERY_S):
                if name := looked_at():
                    found = re.findall(r"RIP=([0-9a-f]+).*?HLT=(\d)", ask(registers), re.DOTALL)
                    addresses[name] += [None if halted == "1" else int(at, 16) for at, halted in found]
        except (ConnectionError, ValueError):
            return


def symbols(file: Path) -> Callable[[int | None], tuple[str, str]]:
    """What says of an address in which module and function it is."""
    table = []
    for line in file.read_text().splitlines():
        address, kind, name, *module = line.split()
        if kind in "tTwW":
            table.append((int(address, 16), module[0].strip("[]") if module else "kernel", name))
    table.sort()
    starts = [start for start, _, _ in table]

    def at(address: int | None) -> tuple[str, str]:
        if address is None:
            return "idle", ""
        if address < USER_SPACE:
            return "fio", ""
        return table[bisect.bisect(starts, address) - 1][1:]

    return at


def profile(version: str, repeats: int, names: list[str]) -> dict[str, Seen]:
    kernel = kernels.ensure(version)
    driver = kernels.build_nvme(kernel) / "nvme" / "nvme.ko"
    seen: dict[str, Seen] = {name: Seen() for name in names}
    addresses: dict[str, list[int | None]] = defaultdict(list)
    looked_at: list[str | None] = [None]
    drive = scenario_file.load(LOAD).profile
    with tempfile.TemporaryDirectory(prefix="fairlane-") as folder:
        shared = Path(folder)
        nvme, qmp = shared / "nvme", shared / "qmp"
        with fl_nvme.serving(fl_nvme.build(), nvme, attached.words(drive)):
            messages = qemu.Messages(
                qemu.talk(
                    [sys.executable, __file__, "--guest", str(driver), "--repeats", str(repeats), *names],
                    kernel,
                    shared,
                    timeout_s=LIMIT_S,
                    qemu_opts=[*fl_nvme.qemu_opts(nvme), "-qmp", f"unix:{qmp},server,nowait"],
                    program=newer_qemu.ensure(),
                    modules=kernels.build_modules(kernel),
                )
            )
            sampler: threading.Thread | None = None
            for message in messages:
                looked_at[0] = message.get("look")
                if not sampler:
                    sampler = threading.Thread(target=sample, args=(qmp, lambda: looked_at[0], addresses), daemon=True)
                    sampler.start()
                if "us" in message:
                    seen[message["of"]].us_per_io.append(message["us"])
                    print(f"{message['of']}: {message['us']:.0f} us of CPU time for a request", file=sys.stderr)
            messages.check()
        where = symbols(shared / SYMBOLS)
    for name, found in addresses.items():
        seen[name].functions.update(map(where, found))
    return seen


def table(seen: dict[str, Seen]) -> None:
    """Microseconds of a request: by module, then by function."""

    def row(what: str, counts: Callable[[tuple[str, str]], bool]) -> None:
        times = [sum(n for key, n in each.functions.items() if counts(key)) for each in seen.values()]
        print(f"{what:44}" + "".join(f"{each.us(n):10.1f}" for each, n in zip(seen.values(), times, strict=True)))

    busiest = sum((each.functions for each in seen.values()), Counter[tuple[str, str]]())
    modules = Counter[str]()
    for (module, _), times in busiest.items():
        modules[module] += times
    print(f"{'us of CPU time for a request':44}" + "".join(f"{name:>10}" for name in seen))
    row("all", lambda _key: True)
    for module, _ in [each for each in modules.most_common() if each[1] > SELDOM * modules.total()]:
        row(f"  {module}", lambda key, module=module: key[0] == module)  # type: ignore[misc]
    print("of it in")
    functions = [key for key, _ in busiest.most_common() if key[1]]
    for function in functions[:FUNCTIONS]:
        row(f"  {function[1]} ({function[0]})", lambda key, function=function: key == function)  # type: ignore[misc]
    print(f"{'looked at so many times':44}" + "".join(f"{each.functions.total():10}" for each in seen.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kernel", default="6.12", choices=kernels.nvme_versions())
    parser.add_argument("--repeats", type=int, default=5, help="runs of each scheduler, which take turns")
    parser.add_argument("--guest", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", default=list(KNOBS), metavar="SCHEDULER")
    asked = parser.parse_args()
    if unknown := set(asked.names) - {"none", *schedulers.NAMES}:
        parser.error(f"{unknown.pop()} is none of ours; give some of none, {', '.join(schedulers.NAMES)}")
    if asked.guest:
        guest(Path(os.environ["FAIRLANE_SHARED"]), Path(asked.guest), asked.repeats, asked.names)
    else:
        with proc.unwinding_signals():
            table(profile(asked.kernel, asked.repeats, asked.names))


if __name__ == "__main__":
    main()
