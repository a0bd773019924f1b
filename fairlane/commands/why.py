# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`fairlane why CGROUP`: what limits it, because of whom, and by what figures."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from fairlane.commands import top
from fairlane.commands.common import print_json
from fairlane.errors import FairlaneError
from fairlane.linux import cgroups, contention, stat_files, watching
from fairlane.linux.contention import Drive, Tenant
from fairlane.pages import why_text


def main(args: argparse.Namespace) -> int:
    if not 2 * contention.EVERY_S <= args.seconds < math.inf:
        raise FairlaneError(f"--seconds {args.seconds}: must be {2 * contention.EVERY_S:g} or more")
    mount = cgroups.find_mount()
    named = find(args.cgroup, mount)
    drives = top.asked(contention.drives(next(watching.spans(mount, args.seconds))), args.drive)
    names = stat_files.drives()
    found = [(drive, each, names.get(drive.number, (drive.number, ""))[0]) for drive, each in _of(named, drives)]
    if args.json:
        print_json([why_text.data(*each) for each in found])
    elif not found:
        print(f"{named} has sent no request to a drive that has a scheduler of ours.")
    else:
        for drive, tenant, name in found:
            print("\n  ".join([f"{name}: {why_text.sentence(tenant)}", *why_text.evidence(drive, tenant)]))
    return 0


def _of(name: str, drives: list[Drive]) -> list[tuple[Drive, Tenant]]:
    return [(drive, each) for drive in drives for each in drive.tenants if each.cgroup == name]


def find(asked: str, mount: Path) -> str:
    """The cgroup that is meant: by its path, below the mount or in full, or by its last part if only one has that."""
    known = [str(folder.relative_to(mount)) if folder != mount else stat_files.ROOT for folder in _folders(mount)]
    wanted = asked.removeprefix(f"{mount}").strip("/") or stat_files.ROOT
    if wanted in known:
        return wanted
    found = [name for name in known if name.rpartition("/")[2] == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        raise FairlaneError(f"{asked}: is several cgroups: {', '.join(sorted(found)[:5])}; give the path of one")
    raise FairlaneError(f"{asked}: no such cgroup in {mount}; give its path, such as system.slice/nginx.service")


def _folders(mount: Path) -> list[Path]:
    return list(stat_files.cgroups(mount))
