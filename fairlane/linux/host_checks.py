# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What a host has of what our schedulers need, and who else sets what they set; for `fairlane doctor`."""

from __future__ import annotations

import lzma
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairlane import proc
from fairlane.errors import FairlaneError
from fairlane.linux import competitors, disks, failures, nvme, sysfs

SHOWN = 3  # of a list
SECURE_BOOT = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"  # the last of its bytes
SIGNED = b"~Module signature appended~\n"
FLUSHES = (6, 5)  # from that Linux on, flushes and FUA go through a scheduler


@dataclass(frozen=True)
class Check:
    """One line: a thing, whether it is there, what is known of it, and what to do when it is not."""

    name: str
    ok: bool
    detail: str
    todo: str = ""
    needed: bool = True  # False: only some of what fairlane does needs it


def checks(release: str, versions: Sequence[str], root: Path = Path("/")) -> Iterator[Check]:
    """Of the machine that runs Linux @release; @versions: those that are supported. Files are looked at below @root."""
    yield from _kernel(release, versions, root)
    yield from _cgroups(root)
    yield from _competitors(root)
    yield from _drives(release, root)


# --- The kernel, and modules for it ---


def _kernel(release: str, versions: Sequence[str], root: Path) -> Iterator[Check]:
    version = ".".join(release.split(".")[:2])
    known = version in versions
    todo = f"supported are {', '.join(versions)}; docs/kernels.md says how to try another one"
    yield Check("running kernel", known, release, todo, needed=False)
    build = root / "lib/modules" / release / "build"
    detail = str(build) if build.is_dir() else f"not there for {release}"
    debian = release.endswith("-amd64")
    elsewhere = "this kernel is not Debian's: get it from where the kernel comes from"
    todo = f"apt-get install linux-headers-{release}" if debian else elsewhere
    yield Check("headers", build.is_dir(), detail, todo, needed=False)
    yield _source(release, version, root, "" if debian else elsewhere)
    loaded = (root / "sys/module/fairlane").is_dir()
    files = sorted((root / "lib/modules" / release).rglob("fairlane.ko*"))
    detail = "loaded" if loaded else f"{files[0]}, not loaded" if files else f"not installed for {release}"
    todo = "build and install them: docs/host.md; /var/lib/dkms/fairlane/*/build/make.log says why DKMS could not"
    yield Check("our modules", loaded or bool(files), detail, todo, needed=False)
    yield _signing(files, loaded, root)


def _source(release: str, version: str, root: Path, elsewhere: str) -> Check:
    """Elevators are built with headers that only the source has, of the very version of the kernel's other headers."""
    package = f"linux-source-{version}"
    needs = _packaged(f"linux-headers-{release}", "source:Version", root)
    has = _packaged(package, "Version", root)
    kept = root / "var/lib/fairlane-dkms" / f"{package}-{needs}"  # by packaging/dkms/build
    sources = root / "usr/src"
    found = [*sources.glob(package), *sources.glob(f"{package}.tar*")]
    if needs and kept.is_dir():
        return Check("kernel source", True, str(kept))
    if found and needs and has and needs != has:
        todo = f"apt-get install {package}={needs}"
        return Check("kernel source", False, f"{found[0]} is of {has}, and this kernel of {needs}", todo, needed=False)
    detail = str(found[0]) if found else "not there; modules of elevators are built with its block/*.h"
    return Check("kernel source", bool(found), detail, elsewhere or f"apt-get install {package}", needed=False)


def _packaged(package: str, field: str, root: Path) -> str:
    """What Debian's packages say; "": nothing, or there are none."""
    argv = ["dpkg-query", f"--admindir={root / 'var/lib/dpkg'}", "-W", "-f", f"${{{field}}}", package]
    with suppress(FairlaneError):
        return proc.output(argv, what="dpkg-query", limit_s=30.0)
    return ""


def _signing(files: list[Path], loaded: bool, root: Path) -> Check:
    """Whether the kernel takes only modules that somebody whom it trusts has signed, and so ours."""
    lockdown = sysfs.chosen(sysfs.said(root / "sys/kernel/security/lockdown") or "")
    why = []
    if sysfs.said(root / "sys/module/module/parameters/sig_enforce") == "Y":
        why.append("module.sig_enforce")
    if lockdown not in ("", "none"):
        why.append(f"lockdown is {lockdown}")
    boot = "Secure Boot is on" if _secure_boot(root) else "Secure Boot is off"
    if not why:
        return Check("module signing", True, f"not enforced; {boot}")
    detail = f"enforced ({', '.join(why)}; {boot})"
    if loaded:
        return Check("module signing", True, f"{detail}; our modules are loaded")
    if files and all(_signed(file) for file in files):
        todo = "have the key that signed our modules trusted: mokutil --import /var/lib/dkms/mok.pub, and reboot"
        return Check("module signing", False, f"{detail}; our modules are signed, and not loaded", todo, needed=False)
    todo = "sign our modules (DKMS does), and have its key trusted: mokutil --import /var/lib/dkms/mok.pub, and reboot"
    return Check("module signing", False, detail, todo, needed=False)


def _signed(module: Path) -> bool:
    """Also one that is compressed, as Debian 13 does; in another way than it, nobody knows here."""
    try:
        text = lzma.decompress(module.read_bytes()) if module.suffix == ".xz" else module.read_bytes()
    except lzma.LZMAError:
        return False
    return text.endswith(SIGNED)


def _secure_boot(root: Path) -> bool:
    try:
        return (root / "sys/firmware/efi/efivars" / SECURE_BOOT).read_bytes().endswith(b"\x01")
    except OSError:
        return False


# --- Cgroups ---


def _cgroups(root: Path) -> Iterator[Check]:
    mount = root / "sys/fs/cgroup"
    controllers = sysfs.said(mount / "cgroup.controllers")
    if controllers is None:
        todo = "boot with systemd.unified_cgroup_hierarchy=1"
        yield Check("cgroup v2", False, f"not mounted at {mount}", todo, needed=False)
        return
    yield Check("cgroup v2", True, f"mounted at {mount}")
    there = controllers.split()
    detail = "there" if "io" in there else "not in cgroup v2; it is taken by v1 or was left out of the kernel"
    yield Check("io controller", "io" in there, detail, "boot with cgroup_no_v1=io", needed=False)
    detail = "there" if "memory" in there else "not in cgroup v2, so buffered writes are charged to nobody's cgroup"
    yield Check("memory controller", "memory" in there, detail, "boot with cgroup_no_v1=memory", needed=False)
    enabled = "io" in (sysfs.said(mount / "cgroup.subtree_control") or "").split()
    if "io" in there:
        detail = "enabled for the cgroups at the top" if enabled else "no cgroup has it, and so none has a weight"
        todo = "name cgroups in /etc/fairlane.toml, or set DefaultIOAccounting=yes in /etc/systemd/system.conf"
        yield Check("io in cgroups", enabled, detail, todo, needed=False)


# --- Who else sets drives and weights ---


def _competitors(root: Path) -> Iterator[Check]:
    mount = root / "sys/fs/cgroup"
    rules = competitors.udev_rules(_below(root, competitors.UDEV))
    tuned = competitors.tuned(_below(root, [competitors.ACTIVE])[0], _below(root, competitors.TUNED))
    todo = "nothing has to be done while fairlane.service runs, which comes after them; else take the line out"
    yield Check("udev's rules", not rules, _list(rules, "none writes a drive's scheduler"), todo, needed=False)
    todo = "make a profile without elevator=, or leave such drives out of /etc/fairlane.toml"
    yield Check("tuned", not tuned, _list(tuned, "sets no drive's scheduler"), todo, needed=False)
    costly = competitors.io_cost(mount)
    todo = "echo 'MAJ:MIN enable=0' > /sys/fs/cgroup/io.cost.qos, or give those drives no scheduler of ours"
    yield Check("io.cost", not costly, _list(costly, "throttles nobody"), todo, needed=False)
    bfq = [
        each
        for each in disks.schedulable(root / "sys/block")
        if sysfs.chosen(sysfs.said(_queue(root, each, "scheduler")) or "") == "bfq"
    ]
    todo = "name those drives in /etc/fairlane.toml, or leave them to BFQ: it goes by io.bfq.weight, not by ours"
    yield Check("bfq", not bfq, _list(bfq, "no drive has it"), todo, needed=False)
    yield Check("weights of others", True, _list(competitors.owners(mount), "none is set"))


def _below(root: Path, paths: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(root / path.relative_to("/") for path in paths)


def _list(found: Sequence[object], none: str) -> str:
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(map(str, found[:SHOWN])) + more if found else none


# --- Drives ---


def _queue(root: Path, device: str, name: str) -> Path:
    return root / "sys/block" / device / "queue" / name


def _drives(release: str, root: Path) -> Iterator[Check]:
    failed = {each.device: each for each in failures.read(root / "proc/fairlane")}
    for device in disks.schedulable(root / "sys/block"):
        folder = root / "sys/block" / device
        model = sysfs.said(folder / "device/model") or "no model"
        queues = len(list((folder / "mq").glob("*")))
        chosen = [
            name
            for place in ("queue", "fairlane")
            if (name := sysfs.chosen(sysfs.said(folder / place / "scheduler") or ""))
        ]
        scheduler = next((name for name in chosen if name != "none"), "none")
        detail = f"{model}, {queues} hardware queue{'s' * (queues != 1)}, {scheduler}"
        if device in failed:
            detail += f"; {failed[device].scheduler} has failed on it"
            todo = "fairlane report-bug, and send what it writes"
            yield Check(device, False, detail, todo, needed=False)
        else:
            rotates = sysfs.said(_queue(root, device, "rotational")) == "1"
            todo = "leave it to BFQ: our schedulers are for drives that do not rotate"
            yield Check(device, not rotates, detail + "; it rotates" * rotates, todo, needed=False)
        yield from _of_drive(device, release, root)


def _of_drive(device: str, release: str, root: Path) -> Iterator[Check]:
    back = sysfs.said(_queue(root, device, "write_cache")) == "write back"
    passes = back and tuple(int(part) for part in release.split(".")[:2]) < FLUSHES
    detail = "volatile" if back else "none, or it keeps what it has"
    todo = "use Linux 6.5 or newer, if tenants write with O_DSYNC: before, such writes have no share"
    yield Check(f"{device} write cache", not passes, detail, todo, needed=False)
    counts = sysfs.said(_queue(root, device, "iostats")) != "0"
    detail = "on" if counts else "off: without them, fairlane top knows no latencies"
    yield Check(f"{device} iostats", counts, detail, f"echo 1 > /sys/block/{device}/queue/iostats", needed=False)
    if not device.startswith("nvme"):
        return
    registers = nvme.registers(root / "sys/block" / device / "device")
    detail, todo = "the drive lacks it", "use another scheduler: only d2fq needs it"
    if registers is None:
        detail = "not known: the drive's registers cannot be read"
        todo = (
            "run as root, without lockdown, on a kernel booted with iomem=relaxed: else Debian's let nobody read them"
        )
    can = registers is not None and registers.has_wrr
    yield Check(f"{device} WRR", can, "the drive has it" if can else detail, todo, needed=False)
