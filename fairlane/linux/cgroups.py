# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""One control group (cgroup v2) per tenant, made for a run and taken away after it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fairlane.errors import FairlaneError
from fairlane.experiment.model import Cgroup, TenantSpec
from fairlane.proc import shielded

MOUNTS = Path("/proc/mounts")
MEMINFO = Path("/proc/meminfo")
REMOVE_TIMEOUT_S = 10.0  # a cgroup is busy until its last process has been reaped


@dataclass(frozen=True)
class Tree:
    """The cgroups of one run."""

    mount: Path
    top: Path  # holds all the others
    paths: dict[str, Path]  # of each [[cgroup]] and tenant, parents first
    nodes: dict[str, Cgroup | TenantSpec]

    def inside(self, name: str) -> str:
        """The tenant's path as fio wants it, relative to the mount."""
        return str(self.paths[name].relative_to(self.mount))


def find_mount() -> Path:
    """Where cgroup v2 is mounted with the io controller."""
    for line in filter(None, os.fsdecode(MOUNTS.read_bytes()).split("\n")):  # a mount point may be of any bytes
        _, where, kind, *_ = line.split(" ")
        if kind == "cgroup2" and "io" in (Path(where) / "cgroup.controllers").read_text().split():
            return Path(where)
    raise FairlaneError(
        "no cgroup v2 hierarchy with the io controller on this machine; boot with systemd.unified_cgroup_hierarchy=1"
        " (fairlane doctor says more; benches and scenarios also run in a VM, with --on vm)"
    )


@contextmanager
def tree(groups: Sequence[Cgroup], tenants: Sequence[TenantSpec]) -> Iterator[Tree]:
    """Make the cgroups; on any exit kill what still runs in them, remove them and undo what was enabled."""
    mount = find_mount()
    named = {group.name: group for group in groups}
    top = mount / f"fairlane-{os.getpid()}"
    paths: dict[str, Path] = {}
    nodes: dict[str, Cgroup | TenantSpec] = {}
    with ExitStack() as undo:

        def add(node: Cgroup | TenantSpec) -> None:
            if node.name in paths:
                return
            if node.parent is not None:
                add(named[node.parent])
            path = (paths[node.parent] if node.parent is not None else top) / node.name
            undo.enter_context(_made(path))
            if isinstance(node, Cgroup):
                _enable_io(path)
            paths[node.name], nodes[node.name] = path, node

        try:
            with shielded():
                undo.enter_context(_root_enabled(mount))
                undo.enter_context(_made(top))
                _enable_io(top)
                for tenant in tenants:
                    add(tenant)
        except OSError as error:
            raise FairlaneError(
                f"cannot make cgroups under {mount}: {error.strerror} ({error.filename}); the host backend needs root"
            ) from error
        yield Tree(mount, top, paths, nodes)


def is_still(path: Path, inode: int) -> bool:
    """Is it there, and no other that has taken its name since?"""
    with suppress(FileNotFoundError):
        return path.stat().st_ino == inode
    return False


def io_stat(path: Path, number: str) -> dict[str, str]:
    """What the cgroup's io.stat says of the device (MAJ:MIN); empty before its first I/O."""
    for line in (path / "io.stat").read_text().splitlines():
        device, *pairs = line.split()
        if device == number:
            return dict(pair.split("=", 1) for pair in pairs)
    return {}


def moved(tree: Tree, name: str, number: str) -> tuple[int, int]:
    """Bytes that the cgroup has read from and written to the device (MAJ:MIN) so far."""
    values = io_stat(tree.paths[name], number)
    return int(values.get("rbytes", 0)), int(values.get("wbytes", 0))


def kernel_bytes() -> int:
    """What the kernel has of memory for its own objects; cgroups, and what knobs keep of each, are among them."""
    lines = (line.split() for line in MEMINFO.read_text().splitlines())
    return sum(1024 * int(line[1]) for line in lines if line[0] in ("Slab:", "Percpu:"))


def _enable_io(path: Path) -> None:
    (path / "cgroup.subtree_control").write_text("+io")


@contextmanager
def _root_enabled(mount: Path) -> Iterator[None]:
    control = mount / "cgroup.subtree_control"
    before = control.read_text().split()
    _enable_io(mount)
    try:
        yield
    finally:
        if "io" not in before:
            with shielded():
                control.write_text("-io")


@contextmanager
def _made(path: Path) -> Iterator[None]:
    path.mkdir()
    try:
        yield
    finally:
        with shielded():
            _remove(path)


def _remove(path: Path) -> None:
    kill = path / "cgroup.kill"
    if kill.exists():
        kill.write_text("1")
    limit = time.monotonic() + REMOVE_TIMEOUT_S
    while True:
        try:
            path.rmdir()
            return
        except OSError as error:
            if time.monotonic() > limit:
                raise FairlaneError(
                    f"{path}: cannot be removed ({error.strerror}); see what still runs in it"
                ) from error
            time.sleep(0.05)
