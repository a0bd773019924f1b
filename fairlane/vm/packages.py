# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Debian's packages, fetched with its own tools: from this machine's suites, and from others in the same archives.

Nothing is installed. Lists are kept apart from the machine's, so this needs no root.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlane import proc
from fairlane.errors import FairlaneError
from fairlane.vm.supported import codename, row

Say = Callable[[str], None]

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")  # has the keys of all Debians
APT_UPDATE_S = 180
FETCH_S = 1200


def natural(text: str) -> list[tuple[int, str]]:
    """Sorts releases by their numbers."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]


@dataclass(frozen=True)
class Apt:
    """apt's commands, with the options that make them look where we want."""

    options: tuple[str, ...] = ()

    def cache(self, *args: str) -> str:
        english = {**os.environ, "LC_ALL": "C"}  # its words for "Depends" are the user's language's
        argv = ["apt-cache", *self.options, *args]
        return proc.output(argv, what="looking for a kernel package", limit_s=60, env=english)


def fetch_source(version: str, temp: Path, say: Say) -> Path:
    """The newest package of that kernel's source, in temp."""
    package, debs = f"linux-source-{version}", temp / "debs"
    debs.mkdir()

    def fetch(apt: Apt) -> str | None:
        if package not in apt.cache("pkgnames", package).split():
            return None
        download(apt, [package], debs, f"source {version}", say)
        return package

    first(version, temp, say, fetch)
    return next(debs.glob("*.deb"))


def first(version: str, temp: Path, say: Say, fetch: Callable[[Apt], str | None]) -> tuple[Apt, str]:
    """What fetch returned, and for which package lists: of those that may have that version, the first that had it.

    The machine's own may be old, and name packages that are no longer there.
    """
    suites = row(version).suites
    failed: FairlaneError | None = None
    for name in ("", *sorted(suites, key=lambda name: name != codename())):  # its own Debian's first
        try:
            apt = own_lists(temp / f"apt-{name}", suites[name], say) if name else Apt()
            if (found := fetch(apt)) is not None:
                return apt, found
        except FairlaneError as error:
            failed = error
    if failed:
        raise failed
    tried = " or ".join(" and ".join(names) for names in suites.values())
    raise FairlaneError(
        f"no Linux {version} in this machine's package sources, nor, where these come from, in the suites {tried}; add"
        " a Debian mirror that has it to apt's sources"
    )


def newest(apt: Apt, version: str) -> str | None:
    """The release of the newest kernel image, or None when apt knows none."""
    arch = proc.output(["dpkg", "--print-architecture"], what="asking for the architecture", limit_s=10).strip()
    pattern = rf"^linux-image-({re.escape(version)}\.\d+(?:-\d+)?(?:\+deb[\d.]+)?-{arch})$"
    names = apt.cache("pkgnames", f"linux-image-{version}.").split()
    releases = [match[1] for name in names if (match := re.match(pattern, name))]
    return max(releases, key=natural, default=None)


def of_kernel(apt: Apt, release: str, version: str) -> list[str]:
    """Image, headers with what they depend on, and source, all of the same version."""
    image, headers = f"linux-image-{release}", f"linux-headers-{release}"
    needed = re.findall(r"Depends: (linux-(?:headers|kbuild)-\S+)", _depends(apt, headers))
    # Of later kernels the image is empty, and depends on packages with what used to be in it.
    needed += re.findall(rf"Depends: (linux-\w+-{re.escape(release)})$", _depends(apt, image), re.MULTILINE)
    match = re.search(r"^Version: (\S+)", apt.cache("show", "--no-all-versions", image), re.MULTILINE)
    if not needed or not match:
        raise FairlaneError(f"apt does not know what {headers} depends on; run apt-get update")
    return [image, headers, *needed, f"linux-source-{version}={match[1]}"]


def _depends(apt: Apt, package: str) -> str:
    return apt.cache("depends", "--no-recommends", "--no-suggests", package)


def own_lists(folder: Path, suites: tuple[str, ...], say: Say) -> Apt:
    """Lists of those suites, from where the machine gets its packages: this needs no root, and leaves the machine's."""
    say(f"fetching the package lists of Debian's {' and '.join(suites)}")
    lists, cache, sources = folder / "lists", folder / "cache", folder / "sources.list"
    (lists / "partial").mkdir(parents=True)
    (cache / "archives" / "partial").mkdir(parents=True)
    sources.write_text(other_suites(archives(), suites))
    where = {"State::lists": lists, "Cache": cache, "Etc::sourcelist": sources, "Etc::sourceparts": "/dev/null"}
    options = [word for name, path in where.items() for word in ("-o", f"Dir::{name}={path}")]
    apt = Apt((*options, "-o", "APT::Sandbox::User="))
    proc.output(["apt-get", "-q", *apt.options, "update"], what="fetching package lists", limit_s=APT_UPDATE_S)
    return apt


def with_dependencies(apt: Apt, package: str, temp: Path, options: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """The package and all that it depends on, as if nothing were installed: names and versions."""
    status = temp / "status"
    status.touch()
    dry_run = ("-s", "--no-install-recommends", *options, "install", package)
    plan = proc.output(
        ["apt-get", *apt.options, "-o", f"Dir::State::status={status}", *dry_run],
        what=f"asking apt what {package} depends on",
        limit_s=60,
    )
    return re.findall(r"^Inst (\S+) \((\S+) ", plan, re.MULTILINE)


def archives() -> list[tuple[str, str]]:
    """Address and suite of all that apt's sources name that has Debian's component main."""
    argv = ["apt-get", "-q", "update", "--print-uris"]
    text = proc.output(argv, what="asking apt for its sources", limit_s=60)
    return re.findall(r"^'(\S+)/dists/(\S+?)/main/binary-\w+/Packages", text, re.MULTILINE)


def other_suites(archives: Sequence[tuple[str, str]], suites: Sequence[str]) -> str:
    """A sources.list with those suites, in the archives where this machine's own suites are."""
    here = codename()
    keyring = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    lines = []
    for suite in suites:
        names = (f"{here}-security",) if suite.endswith("-security") else (here, "stable", "oldstable")
        # Others use Debian's names for their suites, too, but have no updates of its kind.
        found = [uri for uri, name in archives if name in names]
        found.sort(key=lambda uri: not any(uri == at and name.endswith("-updates") for at, name in archives))
        if found:
            lines.append(f"deb {keyring}{found[0]} {suite} main\n")
    if not lines:
        raise FairlaneError(
            f"/etc/apt: no source of this machine's is Debian's suite {here or '(of unknown name)'}, so it is not known"
            f" where {suites[-1]} is; use Debian 12 or 13"
        )
    return "".join(lines)


def download(apt: Apt, packages: list[str], debs: Path, name: str, say: Say) -> None:
    what = f"fetching {name}"
    for left in debs.glob("*.deb"):  # of an earlier try
        left.unlink()
    uris = proc.output(
        ["apt-get", *apt.options, "download", "--print-uris", *packages], what=what, limit_s=60, cwd=debs
    )
    total = sum(int(size) for size in re.findall(r"^'\S+' \S+ (\d+)", uris, re.MULTILINE))
    shown = -1
    argv = ["apt-get", "-q", *apt.options, "-o", "APT::Sandbox::User=", "download", *packages]
    said: list[str] = []
    end = time.monotonic() + FETCH_S
    with proc.group(argv, cwd=debs, merge=True) as process:
        while True:
            turn = time.monotonic() + 1
            try:
                status = proc.lines(process, lambda line, _err: said.append(line), lambda: turn)  # noqa: B023
                break
            except proc.TimedOut:
                done = sum(path.stat().st_size for path in debs.rglob("*") if path.is_file())
                tenth = done * 10 // total if total else 0
                if tenth > shown:
                    shown = tenth
                    say(f"{what}: {done >> 20} of {total >> 20} MiB")
                if time.monotonic() > end:
                    raise FairlaneError(f"{what}: not done after {FETCH_S} s{proc.tail(said)}") from None
    if status:
        raise FairlaneError(f"{what}: apt-get download failed (exit status {status}){proc.tail(said)}")
