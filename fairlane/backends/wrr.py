# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Whether a drive's weighted round robin works: of a drive of this machine, and of fl-nvme in a VM.

`python -m fairlane.backends.wrr NVME_KO SECONDS` is the VM's half: the drive there under Linux's own driver, and then
under ours.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fairlane import proc
from fairlane.backends import attached, host
from fairlane.backends.job import Tell
from fairlane.errors import FairlaneError
from fairlane.experiment import profiles
from fairlane.experiment.wrr import DRIVERS, SETTINGS, WITHOUT, Found, Point, Seen, odd
from fairlane.linux import disks, fio, made_drives, nvme, wrr
from fairlane.progress import Progress
from fairlane.vm import fl_nvme, kernels, newer_qemu, qemu
from fairlane.vm.guest import tell

PROFILE = "zssd"  # the drive in a VM
# Than real. So its queues last for a second: on a busy machine a VM stands still for tenths of that, and an empty queue
# leaves weights nothing to choose from.
SLOWER = 2000
SIZE = "256M"
SECONDS = {"host": 5.0, "vm": 8.0}  # of a run
SETTLING_S = 15.0  # until a run begins, and after it
AGAIN = 2  # a run that differs from the others is repeated so often at most
DRIVERS_S = 600.0  # to change drivers in a VM, and for all that is done there once


def on_host(device: str, seconds: float, say: Tell) -> Found:
    """Of a drive of this machine, which is only read."""
    disks.check_device(device)
    others = [each for each in nvme.Controller(device).disks if each != device]
    shared = f"{device} has the same controller, and so the same weights: stop that, or give another drive"
    target = disks.free_target(device, wrr.scenario(device, WITHOUT, seconds), None)
    if why := disks.somebody_uses(others):
        raise FairlaneError(f"{why}; {shared}")
    with ExitStack() as stack:
        stack.enter_context(proc.terminable())
        for each in (device, *others):
            stack.enter_context(disks.claimed(each, disks.ANOTHER if each == device else shared))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fairlane-"))
        fio.check()
        with wrr.kept(device):  # d2fq sets weights
            return _looked_at(device, target, seconds, Path(folder), say)


def _looked_at(device: str, target: disks.Target, seconds: float, folder: Path, say: Tell) -> Found:
    found = Found(wrr.look(device, host.available(device, [wrr.KNOB])[wrr.KNOB]))
    asked, points = [WITHOUT] if found.seen.refused else list(SETTINGS), found.points
    if len(wrr.hardware_queues(device)) == 1:
        asked = [each for each in asked if not each.uneven]
    placed = not found.seen.refused
    runs = [wrr.Run(target, each, seconds, folder / str(number), placed) for number, each in enumerate(asked)]
    driver = DRIVERS[found.seen.driver]
    for number, run in enumerate(runs):
        points.append(_measured(run, f"{driver}, run {number + 1} of {len(runs)}", number / len(runs), say))
    for _ in range(AGAIN if placed else 0):
        for number in odd(points):
            was = points[number]
            again = _measured(runs[number], f"{driver}, run {number + 1} again", 1.0, say)
            points[number] = replace(again, before=(*was.before, was.shares))
    return found


def _measured(run: wrr.Run, name: str, part: float, say: Tell) -> Point:
    say(Progress(f"{name}: weights {':'.join(map(str, run.asked.weights))}", part))
    return run.measured()


# --- In a VM ---


def in_vm(version: str, profile: str, seconds: float, say: Tell, words: Sequence[str] = ()) -> Iterator[Found]:
    """Of fl-nvme, which gets these words, too: under Linux's own driver, and under ours."""
    drive = profiles.load_modelled(profile)
    if not drive.params.get("wrr"):
        raise FairlaneError(f"--on vm:{profile}: has no weighted round robin; give one that has, such as vm:{PROFILE}")

    def told(text: str) -> None:
        say(Progress(text, 0.0))

    kernel = kernels.ensure(version, told)
    modules = kernels.build_nvme(kernel, told)
    program = newer_qemu.ensure(told)
    command = [*attached.words(drive), f"--time-scale={SLOWER}", f"--size={SIZE}", *words]
    runs = len(SETTINGS) + 1
    with tempfile.TemporaryDirectory(prefix="fairlane-") as folder:
        socket, shared = Path(folder, "socket"), Path(folder, "shared")
        shared.mkdir()
        with fl_nvme.serving(fl_nvme.build(), socket, command):
            told(f"booting {kernel.release}")
            talk = qemu.talk(
                [sys.executable, "-m", "fairlane.backends.wrr", str(modules / "nvme" / "nvme.ko"), str(seconds)],
                kernel,
                shared,
                timeout_s=DRIVERS_S + 3 * (wrr.TRIES + AGAIN) * runs * (seconds + wrr.WARM_UP_S + SETTLING_S),
                qemu_opts=fl_nvme.qemu_opts(socket),
                program=program,
                modules=modules,
            )
            with closing(talk) as said:
                yield from _heard(said, say)


def _heard(said: qemu.Talk, say: Tell) -> Iterator[Found]:
    messages = qemu.Messages(said)
    for message in messages:
        if "error" in message:
            raise FairlaneError(message["error"])
        if "found" in message:
            yield from_dict(message["found"])
        else:
            say(Progress(message["step"], message["fraction"]))
    if bad := messages.finished.bad_dmesg:
        raise FairlaneError(f"the VM's kernel complained, so its figures prove nothing{proc.tail(bad)}")
    messages.check()


def from_dict(data: dict[str, Any]) -> Found:
    points: list[dict[str, Any]] = [{key: _tuples(value) for key, value in point.items()} for point in data["points"]]
    return Found(Seen(**data["seen"]), [Point(**point) for point in points])


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def guest(driver: Path, seconds: float) -> int:
    """In the VM: each Found is a line on stdout."""

    def say(now: Progress) -> None:
        tell({"step": now.step, "fraction": now.fraction})

    for module in (None, driver):
        try:
            with made_drives.nvme(module) as device:
                tell({"found": asdict(on_host(device, seconds, say))})
        except (FairlaneError, OSError) as error:
            tell({"error": str(error)})
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(guest(Path(sys.argv[1]), float(sys.argv[2])))
