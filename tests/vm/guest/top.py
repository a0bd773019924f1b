# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""In a VM: who is in whose way is named by `fairlane why` and `fairlane top`, and what they say adds up.

Argument: a scheduler. Three tenants of equal weight: the victim, the one that floods the drive, and one that asks for
little. Prints what the commands print; with tmux, also the screen of `fairlane top`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kit import Cgroup, Fio, drive, wait_flow, wait_for

from fairlane import cli
from fairlane.linux import watching
from fairlane.vm.guest import CGROUPS

VICTIM, FLOOD, LITTLE = "victim.slice", "backup.slice", "little.slice"
LIMIT_S = 300.0
SHARED = Path(os.environ["FAIRLANE_SHARED"])
SCREEN, READINGS = SHARED / "top.txt", SHARED / "readings.json"
# Slower than the emulated CPU.
SLOW = {"completion_nsec": 20_000_000, "hw_queue_depth": 8}


class Slice(Cgroup):
    def __init__(self, name: str) -> None:
        self.path = CGROUPS / name
        self.path.mkdir()


def fairlane(*words: str) -> str:
    """What the command prints. Here, and not in a process of its own: an emulated CPU takes a minute to begin one."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert cli.main(words) == 0, words
    return said.getvalue()


def why(disk: str, name: str) -> dict[str, Any]:
    [said] = json.loads(fairlane("why", name, "--drive", disk, "--seconds", "5", "--json"))
    return dict(said)


def looked_at(disk: str, victim: Slice) -> None:
    said = why(disk, VICTIM)
    print(said["sentence"])
    assert said["because_of"] == FLOOD, said
    assert said["limit"] in ("share", "drive"), said
    assert said["requests"] > 0 and said["p50_us"] <= said["p99_us"], said
    assert abs(sum(said["waits_for"].values()) - said["waits"]) < 0.02, "what it waits for whom is what it waits"
    assert said["served"][FLOOD] > said["served"].get(LITTLE, 0.0), said
    flood = why(disk, FLOOD)
    print(flood["sentence"])
    assert flood["limit"] == "share", "who floods the drive is held back"
    little = why(disk, LITTLE)
    print(little["sentence"])
    assert little["present"] < flood["present"] / 4, little
    histogram = (victim.path / "io.fairlane.histogram").read_text().split()[1:]
    counted = sum(int(pair.partition("=")[2]) for pair in histogram)
    assert 0 < counted <= victim.requests(disk), "each request is counted once, when it is done"
    readings = next(watching.spans(CGROUPS, 2))
    READINGS.write_text(json.dumps([asdict(each) for each in readings]))
    print(fairlane("top", "--once", "--interval", "3"))
    print(fairlane("why", VICTIM))
    text = fairlane("metrics")
    assert f'fairlane_waited_seconds_total{{cgroup="{FLOOD}",drive="{disk}"}}' in text, text
    assert text.endswith("# EOF\n")


def recorded() -> None:
    """The screen after some seconds; a key changes it."""
    tmux = ["tmux", "-L", "top", "-f", "/dev/null"]
    command = f"{sys.executable} -m fairlane top --interval 2"
    subprocess.run([*tmux, "new-session", "-d", "-x", "150", "-y", "16", command], check=True)

    def screen() -> str:
        return subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True, check=True).stdout

    wait_for(
        lambda: FLOOD in screen() and "▁▁" not in screen() and VICTIM in screen(), "top shows who is there", LIMIT_S
    )
    time.sleep(20)
    SCREEN.write_text(screen())
    print(screen())
    subprocess.run([*tmux, "send-keys", "s"], check=True)
    wait_for(lambda: "by iops" in screen(), "a key sorts by something else", LIMIT_S)
    subprocess.run([*tmux, "send-keys", "q"], check=True)
    tell = [*tmux, "has-session"]
    wait_for(lambda: subprocess.run(tell, capture_output=True, check=False).returncode != 0, "q ends top", LIMIT_S)


os.nice(-15)  # what looks must not wait for what is looked at
with drive(sys.argv[1], **SLOW) as disk:
    slices = {name: Slice(name) for name in (VICTIM, FLOOD, LITTLE)}
    loads = [
        Fio(disk, slices[VICTIM], rw="randread", ioengine="libaio", iodepth=4),
        Fio(disk, slices[FLOOD], rw="randwrite", ioengine="libaio", iodepth=32, numjobs=4),
        Fio(disk, slices[LITTLE], rw="randread", ioengine="psync", rate_iops=20),
    ]
    wait_flow(disk, "of all three")
    wait_for(lambda: all(each.requests(disk) > 20 for each in slices.values()), "everybody sends")
    looked_at(disk, slices[VICTIM])
    recorded()
    for load in loads:
        load.stop()
    for each in slices.values():
        each.remove()
