# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""How good the modelled drives are: `python -m fairlane.drive_models COMMAND`.

fit [PROFILE...]                 the profiles against what is published of their drives
fit PROFILE... --search SECONDS  look for numbers that fit better
plots                            draw the plots of docs/drives.md anew (a minute; needs matplotlib)
beside SCENARIO...               the same scenarios on the simulator and, in a VM, on vssd and on fl-nvme
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fairlane.drive_models import beside, plots, published_figures
from fairlane.errors import FairlaneError
from fairlane.experiment.summary import BASELINE, OURS
from fairlane.pages import terminal
from fairlane.progress import Progress
from fairlane.vm import kernels, qemu


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
    return seconds


def _fit(args: argparse.Namespace) -> int:
    return published_figures.show_all(args.profiles, args.search)


def _plots(args: argparse.Namespace) -> int:
    with terminal.progress("plots") as progress:
        plots.draw(args.out, lambda name: progress(Progress(name, 0.0)))
    return 0


def _beside(args: argparse.Namespace) -> int:
    print(beside.compare(args.scenarios, args.knobs.split(","), args.out, args.kernel, args.reuse))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    about = (__doc__ or "").partition(":")[0]
    parser = argparse.ArgumentParser(prog="python -m fairlane.drive_models", description=about)
    commands = parser.add_subparsers(required=True)
    fit = commands.add_parser("fit", help="profiles against what is published of their drives")
    fit.set_defaults(function=_fit)
    fit.add_argument("profiles", nargs="*", metavar="PROFILE", help="all of which something is published")
    fit.add_argument("--search", type=_seconds, metavar="SECONDS", help="look for better numbers for that long")
    drawn = commands.add_parser("plots", help="draw the plots of docs/drives.md")
    drawn.set_defaults(function=_plots)
    drawn.add_argument("--out", type=Path, default=beside.DOCS, metavar="DIR", help="default: %(default)s")
    three = commands.add_parser("beside", help="the same scenarios on the simulator and, in a VM, on vssd and fl-nvme")
    three.set_defaults(function=_beside)
    three.add_argument("scenarios", nargs="+", type=Path, metavar="SCENARIO")
    three.add_argument("--knobs", default=f"{BASELINE},{OURS}", metavar="A,B", help="default: %(default)s")
    three.add_argument("--kernel", choices=kernels.VERSIONS, default=qemu.KERNEL, help="the VM's; default: %(default)s")
    three.add_argument("--out", type=Path, default=Path("out/trust"), metavar="DIR", help="default: %(default)s")
    three.add_argument("--reuse", action="store_true", help="take what is in DIR already, and run only what is not")
    args = parser.parse_args(argv)
    try:
        return int(args.function(args))
    except (FairlaneError, OSError) as error:
        print(f"fairlane.drive_models: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
