# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The `fairlane` command. Exit status: 0 ok, 1 a check failed, 2 wrong use or a broken machine, 130 after Ctrl-C."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

from fairlane import (
    __version__,
    bench,
    benchcompare,
    calibrate,
    check,
    cost,
    demo,
    doctor,
    files,
    host,
    kernels,
    knobs,
    labkernel,
    replay,
    report,
    scenario,
    schedulers,
    sim,
    suite,
    tables,
    trace,
    vm,
)
from fairlane.errors import FairlaneError
from fairlane.results import PLAN, Results, check_folder
from fairlane.scenario import Scenario

KERNELS = (*kernels.VERSIONS, labkernel.NAME)
KERNEL_DEFAULT = f"{vm.KERNEL}, or {labkernel.NAME} when --knobs names one that Debian's kernels lack"
RESULTS, REPORT, COMPARED, SCENARIO = "results.json", "report.html", "compared.html", "scenario.toml"


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    args = _parser().parse_args(arguments)
    args.command_line = shlex.join(["fairlane", *arguments])
    try:
        return int(args.function(args))
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except FairlaneError as error:
        print(f"fairlane: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"fairlane: {_said(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fairlane: interrupted; everything that was started is ended and undone", file=sys.stderr)
        return 130


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fairlane", description="Fair-share I/O, and the bench that shows it.")
    parser.add_argument("--version", action="version", version=f"fairlane {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: object, about: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=about, description=about)
        sub.set_defaults(function=function)
        return sub

    sub = command("demo", _demo, "Boot Linux in a VM and compare every scheduler, four tenants, a few minutes.")
    sub.add_argument("--out", type=_path, default=Path("out/demo"), metavar="DIR", help="default: %(default)s")
    sub.add_argument("--json", action="store_true", help="print the results as JSON")

    sub = command("run", _run, "Run scenarios and write results.json.")
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
    sub.add_argument("--cost", metavar="FILE", help="the drive's price list, for scenarios that name another or none")
    sub.add_argument("--destroy-data", metavar="DEV", help="the drive that a scenario with writes may overwrite")

    sub = command("replay", _replay, "Replay block traces, each a tenant of its own, and say what is in them.")
    sub.add_argument("traces", nargs="+", metavar="TRACE[:WEIGHT]", help="weight: 1 to 10000, default 100")
    sub.add_argument("--summary", action="store_true", help="only say what is in them")
    sub.add_argument("--on", default="vm", metavar="vm|host:DEV|sim[:PROFILE]", help="default: %(default)s")
    sub.add_argument("--knobs", metavar="A,B", help="default: all that the backend has")
    sub.add_argument("--speed", choices=scenario.SPEEDS, default="recorded", help="default: %(default)s")
    sub.add_argument("--threads", type=int, default=1, metavar="N", help="that share a trace; default: %(default)s")
    sub.add_argument("--depth", type=int, default=32, metavar="N", help="I/Os of each thread; default: %(default)s")
    sub.add_argument("--seconds", type=float, default=10.0, metavar="S", help="default: %(default)s")
    sub.add_argument("--format", choices=trace.FORMATS, help="of all the traces; default: as they look")
    sub.add_argument("--skip-bad", action="store_true", help="leave out lines that are broken, and say how many")
    sub.add_argument("--out", type=_path, default=Path("out/replay"), metavar="DIR", help="default: %(default)s")
    sub.add_argument("--json", action="store_true", help="print the results, or the summary, as JSON")
    sub.add_argument("--kernel", choices=KERNELS, help=f"the VM's; default: {KERNEL_DEFAULT}")
    sub.add_argument("--destroy-data", metavar="DEV", help="the drive that may be overwritten")

    sub = command("bench", _bench, "isol-bench: which knob isolates this drive, and at what cost; ends with a verdict.")
    sub.add_argument(
        "--suite", default=",".join(suite.PARTS), metavar="D1,D2", help="parts of it; default: %(default)s"
    )
    sub.add_argument("--knobs", default="all", metavar="all|A,B", help="default: all that the backend has")
    sub.add_argument("--on", default="vm", metavar="vm|host:DEV|sim[:PROFILE]", help="default: %(default)s")
    sub.add_argument("--quick", action="store_true", help="minutes, and not the paper's size")
    sub.add_argument("--out", type=_path, default=Path("out/bench"), metavar="DIR", help="default: %(default)s")
    sub.add_argument("--json", action="store_true", help="print the verdict as JSON")
    sub.add_argument("--kernel", choices=KERNELS, help=f"the VM's; default: {KERNEL_DEFAULT}")
    sub.add_argument("--destroy-data", metavar="DEV", help="the drive that may be overwritten")

    sub = command("calibrate", _calibrate, "Measure what each kind of request takes from a drive: its price list.")
    sub.add_argument("--on", required=True, metavar="sim:PROFILE|vm:PROFILE|host:DEV", help="the drive")
    sub.add_argument("--out", type=_path, metavar="FILE", help="the cost file; default: out/cost-DRIVE.toml")
    sub.add_argument(
        "--state",
        choices=calibrate.STATES,
        default="fresh",
        help="bring it into that state before: fresh (written once, not collecting yet), steady (random writes until"
        " its speed stays), or leave it as it is; default: %(default)s",
    )
    sub.add_argument("--sizes", metavar="A,B", help="default: every power of two from a page to what the drive takes")
    sub.add_argument("--page", metavar="SIZE", help="of flash; default: the modelled drive's, 16KiB for a real one")
    sub.add_argument("--cores", type=int, metavar="N", help=f"default: {calibrate.CORES}, or what a host has")
    sub.add_argument(
        "--seconds", type=float, metavar="S", help="for each mix; default: 10 on a host, 4 in a VM, 2 simulated"
    )
    sub.add_argument("--json", action="store_true", help="print what was found as JSON")
    sub.add_argument("--kernel", choices=KERNELS, help=f"the VM's; default: {vm.KERNEL}")
    sub.add_argument("--destroy-data", metavar="DEV", help="the drive that may be overwritten")

    sub = command("report", _report, "Make one HTML page of results; two of the same scenario, or suite, are compared.")
    sub.add_argument(
        "results", nargs="+", type=Path, metavar="DIR", help="a folder that `fairlane run` or `bench` wrote"
    )
    sub.add_argument(
        "--out", type=_path, metavar="FILE", help=f"default: {REPORT} in DIR; of several, {COMPARED} in the first"
    )

    sub = command("knobs", _knobs, "List the ways to ask Linux for isolation.")
    sub.add_argument("--on", metavar="host:DEV", help="also say which of them this kernel has for the drive")
    sub.add_argument("--json", action="store_true", help="print the list as JSON")

    sub = command(
        "kernel", _kernel, "Build the lab kernel for VMs: it has the I/O controls that Debian's kernels lack."
    )
    sub.add_argument("action", choices=("build",), help="build it, with our modules, unless that is done")

    sub = command("profiles", _profiles, "List the drives that a scenario, or --on sim:PROFILE, can name.")
    sub.add_argument("names", nargs="*", metavar="PROFILE", help="show the numbers of these, and where each is from")
    sub.add_argument("--json", action="store_true", help="print the list as JSON")

    sub = command("doctor", _doctor, "Say what of this machine is ready, and what to do about the rest.")
    sub.add_argument("--json", action="store_true", help="print the list as JSON")
    return parser


# --- The commands ---


def _demo(args: argparse.Namespace) -> int:
    page = args.out / REPORT
    check_folder(args.out, RESULTS, REPORT)
    results = demo.run(args.out / RESULTS, page, args.command_line)
    if args.json:
        _print_json(asdict(results))
        return 0
    out = tables.console()
    tables.results(results, out)
    tables.outcomes(results.expects, out)
    out.print(f"The report: {page}")
    return 0


def _run(args: argparse.Namespace) -> int:
    backend, where = _backend(args.on)
    _only_where_it_counts(args, backend)
    known = sim.KNOBS if backend == "sim" else tuple(knobs.TABLE)
    by_default = [name for name in known if name not in schedulers.EXAMPLES]
    names = by_default if args.knobs is None else [name.strip() for name in args.knobs.split(",") if name.strip()]
    knobs.check_names(names)
    if not names:
        raise FairlaneError(f"--knobs names none; valid are {', '.join(known)}")
    if backend == "sim":
        sim.check_knobs(names)
    loaded = [(path, what) for path in args.scenarios for what in scenario.load_all(path)]
    scenarios = [what for _, what in loaded]
    if backend != "sim":
        _check_traces(scenarios)
    if args.cost:
        prices = cost.load(args.cost)
        scenarios = [replace(what, cost=prices) for what in scenarios]
    twice = {what.name for what in scenarios if [each.name for each in scenarios].count(what.name) > 1}
    if twice:
        raise FairlaneError(f"two scenarios named {', '.join(sorted(twice))} would share a folder; run them one by one")
    folders = [args.out / what.name if len(scenarios) > 1 else args.out for what in scenarios]
    if backend == "sim":
        for (path, _), what in zip(loaded, scenarios, strict=True):
            sim.check(path, what, where, names)
    for folder in folders:
        check_folder(folder, RESULTS)
    out = tables.console()
    bad, everything = False, []
    for what, folder, results in _results(args, scenarios, names, folders):
        check.conclude(what, results, names, args.command_line, folder / RESULTS)
        bad = bad or bool(check.failed(results.expects))
        everything.append(asdict(results))
        if not args.json:
            tables.results(results, out)
            tables.outcomes(results.expects, out)
            out.print(f"{folder / RESULTS}")
    if args.json:
        _print_json(everything if len(everything) > 1 else everything[0])
    return 1 if args.check and bad else 0


def _replay(args: argparse.Namespace) -> int:
    backend, _ = _backend(args.on)
    if not args.summary:
        check_folder(args.out, RESULTS, SCENARIO)
    found = replay.look(args.traces, args.format, args.skip_bad, None if args.summary else args.out / "traces")
    for each in found:
        if each.skipped:
            lines = f"{len(each.skipped)} broken line{'s' * (len(each.skipped) > 1)} skipped"
            print(f"fairlane: {each.name}: {lines}; the first, {each.skipped[0]}", file=sys.stderr)
    if args.summary and args.json:
        _print_json([{"name": each.name, **asdict(each.summary)} for each in found])
    elif not args.json:
        tables.traces(found, tables.console())
    if args.summary:
        return 0
    file = args.out / SCENARIO
    with files.new_file(file) as write:
        write(replay.scenario_text(found, backend, args.speed, args.threads, args.depth, args.seconds))
    args.scenarios, args.check, args.cost = [file], False, None
    return _run(args)


def _check_traces(scenarios: Sequence[Scenario]) -> None:
    """Read every trace to its end, so that a VM need not boot to say what is wrong with one."""
    for path, devices in {(t.trace, t.devices) for what in scenarios for t in what.tenants if t.trace}:
        trace.summary(trace.read(Path(path), devices=devices))


def _results(
    args: argparse.Namespace, scenarios: list[Scenario], names: list[str], folders: list[Path]
) -> Iterator[tuple[Scenario, Path, Results]]:
    backend, where = _backend(args.on)
    if backend == "vm":
        jobs = [vm.Job(what, names, folder) for what, folder in zip(scenarios, folders, strict=True)]
        with tables.progress(scenarios[0].name if len(scenarios) == 1 else f"{len(scenarios)} scenarios") as progress:
            kernel = args.kernel or (vm.KERNEL if args.knobs is None else vm.kernel_for(names))
            found = vm.run_scenarios(jobs, args.out, progress, kernel)
        yield from zip(scenarios, folders, found, strict=True)
        return
    for what, folder in zip(scenarios, folders, strict=True):
        with tables.progress(what.name) as progress:
            if backend == "sim":
                results = sim.run(what, where, names, folder, progress)
            else:
                results = host.run(what, where or "", names, folder, progress, destroy_data=args.destroy_data)
        yield what, folder, results


def _bench(args: argparse.Namespace) -> int:
    backend, where = _backend(args.on)
    _only_where_it_counts(args, backend)
    parts = [part.strip().lower() for part in args.suite.split(",") if part.strip()]
    names = None if args.knobs == "all" else [name.strip() for name in args.knobs.split(",") if name.strip()]
    if backend == "host":
        host.check_device(where or "")
    what = bench.prepare(parts, names, args.on, backend, where, args.quick, args.kernel, args.out, args.destroy_data)
    told = tables.console(stderr=True)
    todo = len(what.todo)
    done = f"{len(what.units) - todo} of {len(what.units)} units are done; " if todo < len(what.units) else ""
    if todo:
        told.print(f"{args.out}: {done}{todo} to run, about {bench.estimate_s(what) / 60:.0f} min")
        try:
            with tables.progress("isol-bench") as progress:
                bench.run(what, progress)
        except KeyboardInterrupt:
            print(f"fairlane: interrupted; the same command goes on from here ({args.out})", file=sys.stderr)
            return 130
    found = bench.finish(what)
    if args.json:
        _print_json(found.summary)
        return 0
    out = tables.console()
    tables.verdict(found, out)
    out.print(f"The report: {found.page}")
    return 0


def _calibrate(args: argparse.Namespace) -> int:
    backend, where = _backend(args.on, profile_in_vm=True)
    _only_where_it_counts(args, backend)
    plan = calibrate.plan(
        backend,
        where,
        state=args.state,
        page=_size("--page", args.page) if args.page else None,
        sizes=[_size("--sizes", size) for size in (args.sizes or "").split(",") if size],
        cores=_positive("--cores", args.cores),
        seconds=_positive("--seconds", args.seconds),
        kernel=args.kernel or vm.KERNEL,
        destroy_data=args.destroy_data,
    )
    file = args.out or Path("out", f"cost-{plan.where}.toml")
    with files.new_file(file) as write:
        with tempfile.TemporaryDirectory(prefix="fairlane-") as folder, tables.progress("calibrate") as progress:
            if plan.estimate_s:
                progress(host.Progress(f"{len(plan.loads())} loads, {plan.estimate_s / 60:.0f} minutes", 0.0))
            found = calibrate.run(plan, Path(folder), progress)
        try:
            text = calibrate.file_text(found, args.command_line)
        except ValueError as error:
            raise FairlaneError(
                f"{error}: too little was measured in {plan.seconds:g} s; give more --seconds"
            ) from error
        write(text)
    if args.json:
        _print_json(asdict(found))
    else:
        tables.calibration(found, tables.console())
        tables.console().print(f"{file}")
    return 0


def _size(option: str, text: str) -> int:
    try:
        return scenario.parse_size(text.strip())
    except ValueError as error:
        raise FairlaneError(f"{option}: {error}") from error


Number = TypeVar("Number", int, float)


def _positive(option: str, number: Number | None) -> Number | None:
    if number is not None and not 0 < number <= scenario.MAX_SECONDS:
        raise FairlaneError(f"{option} {number}: must be more than 0, and less than a week")
    return number


def _report(args: argparse.Namespace) -> int:
    suites = [path for path in args.results if (path / PLAN).exists()]
    if len(args.results) > 1 and suites:
        if len(args.results) > 2 or len(suites) < 2:
            raise FairlaneError(
                f"{suites[0]} is a run of the suite, which is compared with one other run of the suite and nothing"
                " else: give two such folders"
            )
        found = benchcompare.compare(suites)
        page = args.out or suites[0] / COMPARED
        report.save(benchcompare.render(found), page)
        out = tables.console()
        tables.compared(found, out)
        out.print(f"The report: {page}", markup=False)
        return 0
    if suites:
        if args.out:
            raise FairlaneError(f"{suites[0]} is a run of the suite: its report is made by itself, and in its folder")
        made = bench.finish(bench.load(suites[0]))
        if made.evidence.missing:
            print(f"fairlane: {made.advice}", file=sys.stderr)
        print(made.page)
        return 0
    files = [file for path in args.results for file in _files(path)]
    first = args.results[0] if args.results[0].is_dir() else args.results[0].parent
    page = args.out or first / (REPORT if len(args.results) == 1 else COMPARED)
    report.write([Results.load(file) for file in files], page, [str(file.parent) for file in files])
    print(page)
    return 0


def _files(path: Path) -> list[Path]:
    """The results in a folder of one run, or of several."""
    if not path.is_dir():
        return [path]
    return [path / RESULTS] if (path / RESULTS).exists() else sorted(path.rglob(RESULTS)) or [path / RESULTS]


def _knobs(args: argparse.Namespace) -> int:
    rows = [{"name": knob.name, "about": knob.about} for knob in knobs.TABLE.values()]
    if args.on is not None:
        reasons = host.available(_device(args.on), list(knobs.TABLE))
        rows = [row | {"here": reasons[row["name"]] or "yes"} for row in rows]
    if args.json:
        _print_json(rows)
    else:
        headings = ("knob", "what it does", "here")[: len(rows[0])]
        tables.listing([tuple(row.values()) for row in rows], headings, tables.console())
    return 0


def _kernel(_args: argparse.Namespace) -> int:
    with tables.progress("lab kernel") as progress:

        def say(text: str) -> None:
            progress(host.Progress(text, labkernel.fraction(text)))

        kernel = labkernel.ensure(say)
        kernels.build_modules(kernel, say)
    print(f"{kernel.release} {kernel.vmlinuz}")
    return 0


def _profiles(args: argparse.Namespace) -> int:
    rows = [scenario.load_profile(name) for name in args.names or scenario.profiles()]
    if args.json:
        _print_json([asdict(row) for row in rows])
    elif args.names:
        for row in rows:
            tables.profile(row, scenario.PROFILES / f"{row.name}.toml", tables.console())
    else:
        cells = [(row.name, row.kind, row.description) for row in rows]
        tables.listing(cells, ("profile", "kind", "what it is"), tables.console())
    return 0


def _doctor(args: argparse.Namespace) -> int:
    found = list(doctor.checks())
    if args.json:
        _print_json([asdict(line) for line in found])
    else:
        out = tables.console()
        for line in found:
            word = "ok" if line.ok else "missing" if line.needed else "later"
            out.print(f"{word:8} {line.name:22} {line.detail}{'' if line.ok else f'  ->  {line.todo}'}", markup=False)
    return 2 if any(line.needed and not line.ok for line in found) else 0


def _only_where_it_counts(args: argparse.Namespace, backend: str) -> None:
    if args.kernel and backend != "vm":
        raise FairlaneError("--kernel chooses the VM's kernel; it says nothing with --on " + args.on)
    if args.destroy_data and backend != "host":
        raise FairlaneError("--destroy-data is about a real drive; it says nothing with --on " + args.on)


def _backend(on: str, profile_in_vm: bool = False) -> tuple[str, str | None]:
    """Which backend, and on which drive: a block device, or a modelled drive's profile (None: the scenario's)."""
    backend, colon, where = on.partition(":")
    modelled = ("sim", "vm") if profile_in_vm else ("sim",)
    if on == "vm" or (backend in modelled and bool(where) == bool(colon)):
        return backend, where or None
    if backend == "host" and where:
        return backend, where.removeprefix("/dev/")
    raise FairlaneError(
        f"--on {on}: unknown backend; valid are vm, host:DEV, such as host:nvme0n1, and sim or sim:PROFILE"
    )


def _device(on: str) -> str:
    backend, where = _backend(on)
    if backend != "host" or where is None:
        raise FairlaneError(f"--on {on}: must be host:DEV here, such as host:nvme0n1")
    return where


def _print_json(data: object) -> None:
    json.dump(data, sys.stdout, indent=1)
    print()
