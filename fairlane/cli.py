# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The `fairlane` command. Exit status: 0 ok, 1 a check failed, 2 wrong use or a broken machine, 130 after Ctrl-C."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fairlane import files, schedulers
from fairlane.calibration.calibrate import CORES, STATES
from fairlane.commands.common import COMPARED, REPORT
from fairlane.errors import FairlaneError
from fairlane.experiment.model import SPEEDS
from fairlane.experiment.traces import FORMATS
from fairlane.isolbench.drive_map import STEPS
from fairlane.isolbench.suite import PARTS
from fairlane.pages.top_screen import SORTS
from fairlane.settings.file import DEFAULT as SETTINGS
from fairlane.vm import kernels, lab_kernel, qemu

KERNELS = (*kernels.VERSIONS, *lab_kernel.RECIPES)
KERNEL_DEFAULT = f"{qemu.KERNEL}, or {lab_kernel.LAB.name} when --knobs names one that Debian's kernels lack"
CLUSTER = "a Dask scheduler's, such as tcp://host:8786, whose workers simulate; default: all cores of this machine"
BENCH_ON = "where, and on which drive (vm:zssd has queues of several priorities, for d2fq); default: %(default)s"
BENCH_PRICES = "the drive's price list; default: the one in profiles/prices, or else one that is measured first"
LAB = "install it, or use the project's wheel or a checkout, which bring all that is for the lab"
Add = Callable[[str, str], argparse.ArgumentParser]


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    args = parser().parse_args(arguments)
    args.command_line = shlex.join(["fairlane", *arguments])
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: cgroups and files have names of any bytes
    try:
        return _run_command(args)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except FairlaneError as error:
        print(f"fairlane: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"fairlane: {_said(error)}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("fairlane"):
            raise
        print(f"fairlane {args.command}: needs the Python package {error.name}; {LAB}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fairlane: interrupted; everything that was started is ended and undone", file=sys.stderr)
        return 130


def _run_command(args: argparse.Namespace) -> int:
    """Only that command's code is loaded: `fairlane run` needs none of what studies and clusters do."""
    return int(importlib.import_module(f"fairlane.commands.{args.command.replace('-', '_')}").main(args))


def _path(text: str) -> Path:
    if not text:  # which would be the working directory
        raise argparse.ArgumentTypeError("names no place")
    return Path(text)


def _said(error: OSError) -> str:
    """What to do about an error that nobody on the way knew better."""
    if error.errno in files.NO_SPACE:
        return str(files.NoSpace(error.filename)) if error.filename else files.NO_SPACE_ANYWHERE
    if error.filename is None:
        return str(error)
    todo = "; give a place that you may use, or be root" if isinstance(error, PermissionError) else ""
    return f"{error.filename}: {error.strerror}{todo}"


# --- What each command takes ---


class _Version(argparse.Action):
    """As argparse's own, but only asks git when it is asked."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(f"fairlane {schedulers.version()}")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fairlane", description="Fair-share I/O, and the bench that shows it.")
    parser.add_argument("--version", action=_Version, help="show the version and the commit, and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, about: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=about, description=about)
        sub.set_defaults(command=name)
        return sub

    for add in (
        _demo,
        _run,
        _replay,
        _bench,
        _study,
        _calibrate,
        _map,
        _report,
        _knobs,
        _kernel,
        _profiles,
        _nvme,
        _wrr,
        _doctor,
        _apply,
        _restore,
        _top,
        _why,
        _metrics,
        _report_bug,
    ):
        add(command)
    return parser


def _demo(command: Add) -> None:
    sub = command("demo", "Boot Linux in a VM and compare knobs with four tenants, in a few minutes.")
    sub.add_argument("--out", type=_path, default=Path("out/demo"), metavar="DIR", help="default: %(default)s")
    sub.add_argument("--json", action="store_true", help="print the results as JSON")


def _run(command: Add) -> None:
    sub = command("run", "Run scenarios and write results.json.")
    sub.add_argument("scenarios", nargs="+", type=Path, metavar="SCENARIO", help="a scenario's TOML file")
    sub.add_argument(
        "--on",
        default="vm",
        metavar="vm|host:DEV|sim[:PROFILE]",
        help="where (sim: by default on the scenario's own drive); default: %(default)s",
    )
    sub.add_argument("--knobs", metavar="A,B", help="default: all that the backend has")
    sub.add_argument("--out", type=_path, default=Path("out"), metavar="DIR", help="default: %(default)s")
    sub.add_argument("--check", action="store_true", help="exit 1 if an [[expect]] of a scenario fails")
    sub.add_argument("--json", action="store_true", help="print the results as JSON")
    sub.add_argument("--kernel", choices=KERNELS, help=f"the VM's; default: {KERNEL_DEFAULT}")
    sub.add_argument("--prices", metavar="FILE", help="the drive's price list, for scenarios that name another or none")
    sub.add_argument("--destroy-data", metavar="DEV", help="the drive that a scenario with writes may overwrite")


def _replay(command: Add) -> None:
    sub = command("replay", "Replay block traces, each a tenant of its own, and say what is in them.")
    sub.add_argument("traces", nargs="+", metavar="TRACE[:WEIGHT]", help="weight: 1 to 10000, default 100")
    sub.add_argument("--summary", action="store_true", help="only say what is in them")
    sub.add_argument("--on", default="vm", metavar="vm|host:DEV|sim[:PROFILE]", help="default: %(default)s")
    sub.add_argument("--knobs", metavar="A,B", help="default: all that the backend has")
    sub.add_argument("--speed", choices=SPEEDS, default="recorded", help="default: %(default)s")
    sub.add_argument("--threads", type=int, default=1, metavar="N", help="that share a trace; default: %(default)s")
    sub.add_argument("--depth", type=int, default=32, metavar="N", help="I/Os of each thread; default: %(default)s")
    sub.add_argument("--seconds", type=float, default=10.0, metavar="S", help="default: %(default)s")
    sub.add_argument("--format", choices=FORMATS, help="of all the traces; default: as they look")
    sub.add_argument("--skip-bad", action="store_true", help="leave out lines that are broken, and say how many")
    sub.add_argument("--out", type=_path, default=Path("out/replay"), metavar="DIR", help="default: %(default)s")
    sub.add_argument("--json", action="store_true", help="print the results, or the summary, as JSON")
    sub.add_argument("--kernel", choices=KERNELS, help=f"the VM's; default: {KERNEL_DEFAULT}")
    sub.add_argument("--destroy-data", metavar="DEV", help="the drive that may be overwritten")


def _bench(command: Add) -> None:
    sub = command("bench", "isol-bench: which knob isolates this drive, and at what cost; ends with a verdict.")
    sub.add_argument("--suite", default=",".join(PARTS), metavar="D1,D2", help="parts of it; default: %(default)s")
    sub.add_argument("--knobs", default="all", metavar="all|A,B", help="default: all that the backend has")
    sub.add_argument("--on", default="vm", metavar="vm[:PROFILE]|host:DEV|sim[:PROFILE]", help=BENCH_ON)
    sub.add_argument("--quick", action="store_true", help="minutes on sim, 2.5 hours in a VM; not the paper's size")
    sub.add_argument("--prices", metavar="FILE", help=BENCH_PRICES)
    sub.add_argument("--unit", metavar="ID", help="run that one alone, with its `none` and its tenant alone")
    sub.add_argument("--cluster", metavar="ADDRESS", help=f"with --on sim: {CLUSTER}")
    sub.add_argument("--out", type=_path, default=Path("out/bench"), metavar="DIR", help="default: %(default)s")
    sub.add_argument("--json", action="store_true", help="print the verdict as JSON")
    sub.add_argument("--kernel", choices=KERNELS, help=f"the VM's; default: {KERNEL_DEFAULT}")
    sub.add_argument("--destroy-data", metavar="DEV", help="the drive that may be overwritten")


def _study(command: Add) -> None:
    sub = command("study", "Simulate scenarios over any of their parameters; ends with a table and a page.")
    sub.add_argument("study", type=Path, metavar="STUDY", help="a study's TOML file")
    sub.add_argument("--cluster", metavar="ADDRESS", help=CLUSTER)
    sub.add_argument("--out", type=_path, metavar="DIR", help="default: out/STUDY")
    sub.add_argument("--json", action="store_true", help="print what was written where as JSON")


def _calibrate(command: Add) -> None:
    sub = command("calibrate", "Measure what each kind of request takes from a drive: its price list.")
    sub.add_argument("--on", required=True, metavar="sim:PROFILE|vm:PROFILE|host:DEV", help="the drive")
    sub.add_argument("--out", type=_path, metavar="FILE", help="the price list; default: out/prices-DRIVE.toml")
    sub.add_argument(
        "--state",
        choices=STATES,
        default="fresh",
        help="bring it into that state before: fresh (written once, not collecting yet), steady (random writes until"
        " its speed stays), or leave it as it is; default: %(default)s",
    )
    sub.add_argument("--sizes", metavar="A,B", help="default: every power of two from a page to what the drive takes")
    sub.add_argument("--page", metavar="SIZE", help="of flash; default: the modelled drive's, 16KiB for a real one")
    sub.add_argument("--cores", type=int, metavar="N", help=f"default: {CORES}, or what a host has")
    sub.add_argument(
        "--seconds", type=float, metavar="S", help="for each mix; default: 10 on a host, 4 in a VM, 2 simulated"
    )
    sub.add_argument("--json", action="store_true", help="print what was found as JSON")
    sub.add_argument("--kernel", choices=KERNELS, help=f"the VM's; default: {qemu.KERNEL}")
    sub.add_argument("--destroy-data", metavar="DEV", help="the drive that may be overwritten")


def _map(command: Add) -> None:
    sub = command("map", "Draw a drive: latency over read and write load, and what latency costs in throughput.")
    sub.add_argument("--on", required=True, metavar="sim:PROFILE|vm:PROFILE|host:DEV", help="the drive")
    sub.add_argument(
        "--steps",
        type=int,
        default=STEPS,
        metavar="N",
        help="from no load to as much as the drive does, of reads and of writes; default: %(default)s",
    )
    sub.add_argument(
        "--seconds", type=float, metavar="S", help="for each point; default: 4 on a host, 6 in a VM, 0.4 simulated"
    )
    sub.add_argument("--out", type=_path, metavar="DIR", help="default: out/map-DRIVE")
    sub.add_argument("--json", action="store_true", help="print what was found as JSON")
    sub.add_argument("--kernel", choices=KERNELS, help=f"the VM's; default: {qemu.KERNEL}")
    sub.add_argument(
        "--destroy-data", metavar="DEV", help="the real drive that may be overwritten; without it, it is only read"
    )


def _report(command: Add) -> None:
    sub = command("report", "Make one HTML page of results; two of the same scenario, or suite, are compared.")
    sub.add_argument(
        "results", nargs="+", type=Path, metavar="DIR", help="a folder that `fairlane run` or `bench` wrote"
    )
    sub.add_argument(
        "--out", type=_path, metavar="FILE", help=f"default: {REPORT} in DIR; of several, {COMPARED} in the first"
    )
    sub.add_argument(
        "--picture",
        type=_path,
        metavar="FILE.svg",
        help="also draw, in one picture, who got how much; of a run of the suite, what latency costs",
    )
    sub.add_argument("--markdown", action="store_true", help="print the figures as a table in Markdown")


def _knobs(command: Add) -> None:
    sub = command("knobs", "List the ways to ask Linux for isolation.")
    sub.add_argument("--on", metavar="host:DEV", help="also say which of them this kernel has for the drive")
    sub.add_argument("--json", action="store_true", help="print the list as JSON")


def _kernel(command: Add) -> None:
    sub = command("kernel", "Build the lab kernel for VMs: it has the I/O controls that Debian's kernels lack.")
    sub.add_argument("action", choices=("build",), help="build it, with our modules, unless that is done")
    sub.add_argument(
        "--check",
        action="store_true",
        help="instead, the two that check our modules as they run: kasan (memory, locks, RCU) and kcsan (data races)",
    )


def _profiles(command: Add) -> None:
    sub = command("profiles", "List the drives that a scenario, or --on sim:PROFILE, can name.")
    sub.add_argument("names", nargs="*", metavar="PROFILE", help="show the numbers of these, and where each is from")
    sub.add_argument("--json", action="store_true", help="print the list as JSON")


def _nvme(command: Add) -> None:
    sub = command("nvme", "Be the NVMe drive of a virtual machine that speaks vfio-user, with the timing of a profile.")
    sub.add_argument("--profile", required=True, metavar="PROFILE", help="of a modelled SSD")
    sub.add_argument("--socket", type=_path, required=True, metavar="PATH", help="where the machine connects")
    sub.add_argument(
        "--file", type=_path, metavar="PATH", help="keeps the data, sparsely; default: memory, until the end"
    )
    sub.add_argument("--size", metavar="BYTES", help="of the drive, such as 4G; default: the profile's")
    sub.add_argument("--time-scale", metavar="N", help="the drive is N times slower than real; default: 1")
    sub.add_argument("--serial", metavar="TEXT", help="its serial number; default: made from the socket's path")


def _wrr(command: Add) -> None:
    sub = command("wrr", "Say whether an NVMe drive's weighted round robin works, which d2fq leaves all to.")
    sub.add_argument("--on", required=True, metavar="host:DEV|vm[:PROFILE]", help="the drive; it is only read")
    sub.add_argument("--seconds", type=float, metavar="S", help="for each run; default: 5 on a host, 8 in a VM")
    sub.add_argument("--json", action="store_true", help="print what was found as JSON")
    sub.add_argument("--kernel", choices=kernels.nvme_versions(), help="the VM's; default: this Debian's, or the first")


def _doctor(command: Add) -> None:
    sub = command("doctor", "Say what of this machine is ready, and what to do about the rest.")
    sub.add_argument("--json", action="store_true", help="print the list as JSON")


# --- On a host whose drives have schedulers of ours ---


def _apply(command: Add) -> None:
    sub = command("apply", "On this host: give drives and cgroups the schedulers and weights that a file says.")
    sub.add_argument("--config", type=_path, default=SETTINGS, metavar="FILE", help="default: %(default)s")
    sub.add_argument("--dry-run", action="store_true", help="only say what would be written, and exit 1 if anything")
    sub.add_argument(
        "--watch",
        action="store_true",
        help="go on, and do the same for each cgroup that comes; SIGHUP: read FILE again",
    )
    sub.add_argument("--json", action="store_true", help="print what is written as JSON")


def _restore(command: Add) -> None:
    command("restore", "On this host: put back what was there before the first `fairlane apply`.")


def _top(command: Add) -> None:
    sub = command("top", "Show who gets how much of a drive, who waits, and for whom; live on a terminal.")
    sub.add_argument("--drive", metavar="DEV", help="default: all that have a scheduler of ours")
    sub.add_argument("--sort", choices=tuple(SORTS), default="got", help="default: %(default)s")
    sub.add_argument("--filter", default="", metavar="NAME", help="only cgroups with this in their path")
    sub.add_argument("--interval", type=float, default=1.0, metavar="S", help="default: %(default)s")
    sub.add_argument("--once", action="store_true", help="one interval as plain lines")
    sub.add_argument("--json", action="store_true", help="print each interval as a line of JSON")


def _why(command: Add) -> None:
    sub = command("why", "Say what limits a cgroup, because of whom, and by what figures.")
    sub.add_argument("cgroup", metavar="CGROUP", help="its path, or the last part of it")
    sub.add_argument("--drive", metavar="DEV", help="default: all that have a scheduler of ours")
    sub.add_argument("--seconds", type=float, default=3.0, metavar="S", help="to look at it; default: %(default)s")
    sub.add_argument("--json", action="store_true", help="print it as JSON")


def _metrics(command: Add) -> None:
    sub = command("metrics", "Print what the schedulers count as OpenMetrics, or serve it to a Prometheus.")
    sub.add_argument("--listen", metavar="HOST:PORT", help="serve it there, such as on 127.0.0.1:9943")


def _report_bug(command: Add) -> None:
    sub = command("report-bug", "Write all that is known here of a scheduler that has failed to a file, for a report.")
    sub.add_argument("--config", type=_path, default=SETTINGS, metavar="FILE", help="default: %(default)s")
    sub.add_argument("--out", type=_path, default=Path("fairlane-bug.txt"), metavar="FILE", help="default: %(default)s")
