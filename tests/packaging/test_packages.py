# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`make deb`'s packages on Debian 12 and 13, in a VM with systemd: installed, booted again, upgraded, the kernel
updated, booted, purged.

Root: an image is made, mounted, and what our packages and the newer kernel need is fetched. They themselves are
installed in the VM, without a network, as an operator does it on a host that runs.
"""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import roots

from fairlane import proc
from fairlane.places import ROOT
from fairlane.vm import dmesg, kernels, packages, qemu, supported

TOOLS = ("mmdebstrap", "dpkg-buildpackage", "mke2fs", "qemu-system-x86_64")
IMAGE_BYTES = 8 << 30
VM_S = 14400.0
DRIVE_BYTES, DRIVE_QUEUES = 1 << 30, 4
DRIVE_IOPS = 400  # what a busy machine's emulated CPU can do, too
WITHIN = 0.01
GUEST = Path(__file__).parent / "guest"

# Debian's base, what a load needs, and an initrd that an emulated CPU unpacks fast.
INCLUDE = (
    *("systemd-sysv", "udev", "dbus", "initramfs-tools", "zstd", "fio", "ca-certificates"),
    *("crun", "libpam-systemd", "passwd", "prometheus"),  # containers, a user's session, who scrapes our metrics
)
UNIT = """[Unit]
After=multi-user.target fairlane.service
[Service]
Type=exec
WorkingDirectory=/root
Environment=DEBIAN_FRONTEND=noninteractive LC_ALL=C
ExecStart=/usr/bin/python3 -m guest.host
[Install]
WantedBy=multi-user.target
"""
# As an operator has it who weighs drives, containers and users' sessions: docs/host.md.
FILES = {
    "/etc/systemd/system/host.service": UNIT,
    "/etc/systemd/system/user@.service.d/io.conf": "[Service]\nDelegate=cpu io memory pids\n",
    "/etc/modules-load.d/bfq.conf": "bfq\n",
    "/etc/fairlane.toml": """\
[[drive]]
name = "nvme*"
scheduler = "kyber-fairness"

[[cgroup]]
path = "system.slice/plug-a.service"
drive = { serial = "fairlane" }
weight = 200

[[cgroup]]
path = "system.slice/plug-b.service"
drive = { serial = "fairlane" }
weight = 300
""",
}
SETUP = """
useradd --uid 1000 --groups disk tenant
printf 'MODULES=list\\n' > /etc/initramfs-tools/conf.d/small
printf 'virtio_pci\\nvirtio_blk\\next4\\n' >> /etc/initramfs-tools/modules
printf '/dev/vda / ext4 defaults 0 1\\n' > /etc/fstab
ln -sf /etc/systemd/system/host.service /etc/systemd/system/multi-user.target.wants/host.service
systemctl mask apt-daily.timer apt-daily-upgrade.timer prometheus.service
apt-get -q update
"""
ENTER = 'mount -o loop "$1" "$2"\n' + roots.ENTER
INSTALL = "apt-get -q install -y --no-install-recommends"

# What a machine writes for itself as it runs, and other packages as they are set up.
OF_OTHERS = (
    *("/var/log/*", "/var/cache/*", "/var/lib/apt/*", "/var/lib/dpkg/*", "/var/lib/systemd/*", "/var/lib/dkms/mok.*"),
    *("/root/*", "/tmp/*", "/run/*", "/boot/initrd.img-*", "/lib/modules/*/modules.*", "*/__pycache__*"),
    *("/etc/.updated", "/var/.updated", "/var/lib/dbus/machine-id", "/var/backups/*"),
    *("/etc/alternatives/*", "/etc/ld.so.cache", "/var/lib/*/catalog/*", "/var/lib/python/*", "/var/tmp/*"),
)


@pytest.fixture(scope="session")
def debs() -> Iterator[tuple[Path, Path]]:
    """Two folders of packages; the second's have a higher version."""
    roots.need(*TOOLS)
    with tempfile.TemporaryDirectory(dir=kernels.cache_dir(), prefix="packages-") as temp:
        folders = Path(temp, "first"), Path(temp, "second")
        for folder, suffix in zip(folders, ("", "+1"), strict=True):
            proc.output(["make", "-C", ROOT, "deb", f"SUFFIX={suffix}"], what="make deb", limit_s=roots.STEP_S)
            shutil.copytree(ROOT / "build" / "deb", folder)
        yield folders


@dataclass(frozen=True)
class Host:
    """An image with a Debian in it. Between two boots, commands run in it."""

    folder: Path

    @property
    def image(self) -> Path:
        return self.folder / "image"

    @property
    def mount(self) -> Path:
        return self.folder / "mount"

    def make(self, suite: str, *more: str) -> None:
        """more: suites of that Debian which its apt is to know, too."""
        self.mount.mkdir()
        with self.image.open("wb") as image:
            image.truncate(IMAGE_BYTES)
        roots.apart('mke2fs -q -t ext4 "$0"', str(self.image))
        sources = roots.sources(self.folder, suite, f"{suite}-security", *more)
        bootstrap = [*roots.BOOTSTRAP, f"--include={','.join(INCLUDE)}", suite, str(self.mount), str(sources)]
        roots.apart('mount -o loop "$0" "$1"; shift; exec "$@"', str(self.image), str(self.mount), *bootstrap)

    def set_up(self) -> None:
        for path, text in FILES.items():
            self.write(path, text)
        self.copy(GUEST, "root")
        self.run(SETUP)

    def run(self, script: str) -> str:
        return roots.apart(ENTER, "sh", str(self.image), str(self.mount), script)

    def write(self, path: str, text: str) -> None:
        self.run(f"mkdir -p {Path(path).parent}; cat > {path} <<'END_OF_FILE'\n{text}END_OF_FILE\n")

    def copy(self, source: Path, target: str) -> None:
        """Into the image."""
        script = 'mount -o loop "$0" "$1"; cp -r "$2" "$1/$3"'
        roots.apart(script, str(self.image), str(self.mount), str(source), target)

    def releases(self, series: str) -> list[str]:
        """Of Debian's ordinary kernels, oldest first."""
        names = self.run(f"apt-cache pkgnames linux-image-{series}.").split()
        pattern = rf"linux-image-({re.escape(series)}\.\d+(?:-\d+)?(?:\+deb[\d.]+)?-amd64)"
        return sorted((match[1] for name in names if (match := re.fullmatch(pattern, name))), key=packages.natural)

    def paths(self) -> set[str]:
        """All but what update-alternatives makes for other packages."""
        return {merged(path) for path in self.run("find / -xdev -not -lname '/etc/alternatives/*'").splitlines()}

    def owned(self) -> set[str]:
        return {merged(path) for path in self.run("cat /var/lib/dpkg/info/*.list").splitlines()}

    def boot(self, release: str, *steps: str) -> list[dict[str, Any]]:
        """What the guest found in each boot."""
        boot = self.folder / "boot"
        shutil.rmtree(boot, ignore_errors=True)
        script = 'mount -o loop "$0" "$1"; mkdir "$2"; cp "$1/boot/vmlinuz-$3" "$1/boot/initrd.img-$3" "$2"'
        roots.apart(script, str(self.image), str(self.mount), str(boot), release)
        self.run("rm -f /root/found.json")
        accel = qemu.known_accel() or "tcg"
        options, words = qemu.under_tcg() if accel == "tcg" else ([], [])
        words += ["root=/dev/vda", "rw", "console=ttyS0", "systemd.show_status=0", "loglevel=5"]
        words += [f"fairlane.test={','.join(steps)}", f"fairlane.iops={DRIVE_IOPS}"]
        argv = ["qemu-system-x86_64", "-accel", accel, "-smp", "2", "-m", "2G", "-nic", "none", "-display", "none"]
        argv += ["-kernel", str(boot / f"vmlinuz-{release}"), "-initrd", str(boot / f"initrd.img-{release}")]
        argv += ["-append", " ".join(words), *options]
        argv += ["-drive", f"file={self.image},if=virtio,format=raw,cache=unsafe", "-serial", "stdio"]
        console: list[str] = []
        with (
            qemu.nvme_drive(DRIVE_BYTES, DRIVE_QUEUES, DRIVE_IOPS) as (drive, fds),
            proc.group([*argv, *drive], pass_fds=fds, merge=True) as process,
        ):
            end = time.monotonic() + VM_S
            proc.lines(process, lambda text, _err: console.append(text), lambda: end)
        found: list[dict[str, Any]] = json.loads(self.run("cat /root/found.json"))
        for each in found:  # all that an hour has given, whatever is asserted first
            print({step: what for step, what in each.items() if step not in ("log", "failed")})
            print(*dmesg.bad(each.get("log", [])), sep="\n")
        assert len(found) == len(steps) and not any("failed" in each for each in found), "\n".join(
            each.get("failed", "") for each in found
        ) + "\n".join(console[-40:])
        return found


def merged(path: str) -> str:
    """/usr/lib is /lib, and so on."""
    return re.sub(r"^/usr/(lib|lib64|bin|sbin)(?=/|$)", r"/\1", path)


@pytest.mark.long
@pytest.mark.parametrize(("suite", "series"), [("bookworm", "6.1"), ("trixie", "6.12")])
def test_installed_booted_updated_and_purged(suite: str, series: str, debs: tuple[Path, Path]) -> None:
    with tempfile.TemporaryDirectory(dir=kernels.cache_dir(), prefix="host-") as temp:
        host = Host(Path(temp))
        host.make(suite)
        lifetime(host, series, *debs)


BACKPORTS = "trixie-backports"
NEWER = [each.version for each in supported.TABLE if BACKPORTS in each.suites.get("trixie", ())]


@pytest.mark.long
@pytest.mark.parametrize("series", NEWER)
def test_on_a_newer_kernel(series: str, debs: tuple[Path, Path]) -> None:
    """Debian 13 with a kernel of its backports, from the installation to the purge; with Linux's driver, patched."""
    first, _ = debs
    with tempfile.TemporaryDirectory(dir=kernels.cache_dir(), prefix="host-") as temp:
        host = Host(Path(temp))
        host.make("trixie", BACKPORTS)
        host.set_up()
        release = host.releases(series)[-1]
        named = [f"linux-{what}" for what in (f"image-{release}", f"headers-{release}", f"source-{series}")]
        host.run(f"{INSTALL} -t {BACKPORTS} {' '.join(named)}")
        host.copy(first, "root")
        what_they_need(host)
        before = host.paths()
        [found] = host.boot(release, "install+shares")
        assert found["install"]["versions"] == 2 * [version(first)]
        with_nvme = series in kernels.nvme_versions()
        if with_nvme:
            with_the_driver(host, first, release)
        [gone] = host.boot(release, "purge")
        purged(host, gone, before, with_nvme=with_nvme)
        as_weighted(found, release, first)


def lifetime(host: Host, series: str, first: Path, second: Path) -> None:
    host.set_up()
    old, new = host.releases(series)[-2:]
    host.run(f"{INSTALL} linux-image-{old} linux-headers-{old}")
    for folder in (first, second):
        host.copy(folder, "root")
    what_they_need(host)
    builds_where_it_is_unpacked(host, old)
    what_the_vm_fetches(host, old)
    before = host.paths()

    # It takes more than an hour, so figures are judged at the end, when all that there is has been measured.
    installed, again = host.boot(old, "install+shares+fails", "shares+weights+upgrade+kernel")
    assert installed["install"]["versions"] == 2 * [version(first)]
    assert again["upgrade"] == {"versions": 2 * [version(second)], "same": ["reads"]}
    assert modules(host, new) == modules(host, old), "a new kernel has them, too"

    with_nvme = series in kernels.nvme_versions()
    if with_nvme:
        with_the_driver(host, second, new)
    [shared] = host.boot(new, "shares")  # by what DKMS has built there by itself
    built_anew(host, version(second), old, new)
    [gone] = host.boot(new, "purge")
    purged(host, gone, before, with_nvme=with_nvme)
    went_back_to_none(installed["fails"])
    by_everybodys_weights(again["weights"])
    as_weighted(installed, old, first)
    as_weighted(again, old, first)
    as_weighted(shared, new, second)


NAMES = tuple(name.removesuffix(".ko") for name in kernels.MODULES)


def modules(host: Host, release: str) -> list[str]:
    """Ours, that modprobe finds for it."""
    there = host.run(f"cd /lib/modules/{release}/updates/dkms 2>/dev/null && ls || true").split()
    return sorted(name.split(".")[0] for name in there)


def version(debs: Path) -> str:
    return next(debs.glob("fairlane-dkms_*.deb")).name.split("_")[1]


def with_the_driver(host: Host, debs: Path, release: str) -> None:
    """Linux's driver, patched."""
    said = host.run(f"{INSTALL} /root/{debs.name}/fairlane-nvme-dkms_*.deb")
    assert "nvme" in modules(host, release), said


def purged(host: Host, found: dict[str, Any], before: set[str], *, with_nvme: bool) -> None:
    """Nothing of ours is left: in the boot in which it was done, and of files that there were not before."""
    assert any("fairlane's build of Linux's driver" in line for line in found["log"]) == with_nvme
    got = found["purge"]
    assert "[none]" in got["scheduler"]
    assert got["services"] == 2 * ["inactive"]
    stays = {"fairlane_route"} if with_nvme else set()  # as long as the driver, which the root file system may be on
    assert stays == {name for name in got["modules"] if name in {each.replace("-", "_") for each in NAMES}}
    assert not dmesg.bad(found["log"]), "\n".join(found["log"])
    left = host.paths() - before
    assert not [path for path in left if "fairlane" in path and not path.startswith(("/var/log/", "/root/"))]
    unowned = sorted(left - host.owned())
    assert not [path for path in unowned if not any(fnmatch.fnmatch(path, pattern) for pattern in OF_OTHERS)]


def what_they_need(host: Host) -> None:
    """All packages that they depend on."""
    host.run(f"""
apt-get -q clean
{INSTALL} --download-only /root/first/fairlane_*.deb /root/first/fairlane-dkms_*.deb
{INSTALL} /var/cache/apt/archives/*.deb
""")


def builds_where_it_is_unpacked(host: Host, release: str) -> None:
    """For a kernel that is not the newest, so that its block headers are fetched; with a scheduler that can fail.

    They are kept. Without a place to fetch them from, it builds once more with these, and stops with a sentence else.
    """
    host.copy(ROOT / "tests" / "vm" / "schedulers", "root")
    *_, said, status = host.run(f"""
dpkg-deb -x /root/first/fairlane-dkms_*.deb /tmp/package
cd /tmp/package/usr/src/fairlane-*
mkdir -p tests/vm
mv /root/schedulers tests/vm
echo 'Dir::State::Lists "/nonexistent";' > /tmp/apt.conf
kernel='{release} /lib/modules/{release}/build'
TESTS=1 ./build $kernel > /tmp/said 2>&1 || {{ cat /tmp/said; exit 1; }}
mkdir /lib/modules/{release}/updates
mv out/faulty.ko out/faulty-admission-qos.ko /lib/modules/{release}/updates
rm -r out
APT_CONFIG=/tmp/apt.conf ./build $kernel > /tmp/said 2>&1 || {{ cat /tmp/said; exit 1; }}
rm -r out /var/lib/fairlane-dkms
APT_CONFIG=/tmp/apt.conf ./build $kernel 2>&1 || echo failed
rm -r /tmp/package /tmp/apt.conf /tmp/said
""").splitlines()
    assert status == "failed"
    assert said.startswith("fairlane-dkms: the block headers of Linux "), said


def what_the_vm_fetches(host: Host, release: str) -> None:
    """The source of its kernel; and the newer kernel, which stays in apt's cache."""
    host.run(f"""
apt-get -q clean
version=$(dpkg-query -W -f '${{source:Version}}' linux-headers-{release})
{INSTALL} "linux-source-$(echo {release} | cut -d. -f1-2)=$version"
apt-get -q clean
{INSTALL} --download-only linux-image-amd64 linux-headers-amd64 linux-source
""")


def built_anew(host: Host, version: str, *releases: str) -> None:
    """For several kernels at once; the block headers of the one that is not the newest are fetched."""
    said = host.run(f"dkms remove fairlane/{version} --all; dpkg-reconfigure fairlane-dkms")
    for release in releases:
        assert {"fairlane", "kyber-fairness", "fairlane-qos", "vssd"} <= set(modules(host, release)), said


def as_weighted(found: dict[str, Any], release: str, debs: Path) -> None:
    got = found["shares"]
    print(found["release"], got["shares"], got["counted"], f"{got['requests_per_s']:.0f} requests/s", sep="\n")
    print(*got["why"], sep="\n")
    assert found["release"] == release
    assert f"/{release}/updates/dkms/" in got["module"]
    assert got["versions"] == 2 * [version(debs)]
    wanted = {"gold": 0.5, "silver": 0.3, "bronze": 0.2}
    assert got["shares"] == pytest.approx(wanted, abs=WITHIN)
    assert got["counted"] == pytest.approx(wanted, abs=WITHIN)
    assert "bronze" in got["why"][0] and "sent no request" not in got["why"][0]
    assert got["signer"], "DKMS signs modules"
    assert got["completion"].endswith(" fairlane") and not got["manuals"], (got["completion"], got["manuals"])
    looked_at(got["doctor"])
    [sentence] = got["demo"]
    assert sentence.startswith("fairlane: fairlane demo: ") and "use a checkout" in sentence
    bad = [line for line in dmesg.bad(found["log"]) if not MEANT.search(line)]
    assert not bad, "\n".join(found["log"])


def looked_at(doctor: dict[str, tuple[bool, str, str]]) -> None:
    """What `fairlane doctor` says of this host while it shares."""
    print(*doctor.items(), sep="\n")
    kernel = ("running kernel", "headers", "kernel source", "our modules", "module signing")
    others = (
        "cgroup v2",
        "io controller",
        "memory controller",
        "io in cgroups",
        "udev's rules",
        "tuned",
        "io.cost",
        "bfq",
    )
    drive = ("nvme0n1", "nvme0n1 write cache", "nvme0n1 iostats", "nvme0n1 WRR")
    assert {*kernel, *others, *drive} <= set(doctor)
    assert not [name for name in (*kernel, *others, "nvme0n1", "nvme0n1 iostats") if not doctor[name][0]]
    assert doctor["our modules"][1] == "loaded" and "kyber-fairness" in doctor["nvme0n1"][1]
    assert "(a container's runtime)" in doctor["weights of others"][1]
    assert "iomem=relaxed" in doctor["nvme0n1 WRR"][2]


MEANT = re.compile(r"\bfairlane: nvme0n1: faulty(-admission)? has failed: ")


def went_back_to_none(found: dict[str, Any]) -> None:
    """What guest/host.py has of two schedulers that failed: the kernel's lines so far, and the state that was kept."""
    for times, (name, report) in enumerate(zip(("faulty", "faulty-admission"), found["reports"], strict=True), 1):
        lines = [line for line in report if MEANT.search(line)]
        print(lines[-1])
        assert len(lines) == times and f": {name} has failed: " in lines[-1], lines
        assert any(f" scheduler {name} at " in line for line in report), report


FROM_200_AND_300 = {"a": 0.4, "b": 0.6}
DUE = {
    "units": FROM_200_AND_300,
    "slices": {"a": 0.4, "x": 0.2, "y": 0.4},
    "session": FROM_200_AND_300,
    "containers, systemd, BFQ": FROM_200_AND_300,
    "containers, cgroupfs, BFQ": FROM_200_AND_300,
    "IODeviceWeight, BFQ's drive": FROM_200_AND_300,
    "containers, systemd": FROM_200_AND_300,
    "containers, cgroupfs": FROM_200_AND_300,
    "IODeviceWeight": FROM_200_AND_300,
    "a drive's weights": {"plug-a": 0.4, "plug-b": 0.6},
    "under another scheduler": {"plug-a": 0.4, "plug-b": 0.6},
    "plugged in again": {"plug-a": 0.4, "plug-b": 0.6},
    "IODeviceWeight, plugged in again": FROM_200_AND_300,
}


def by_everybodys_weights(found: dict[str, Any]) -> None:
    """What guest/weights.py has measured."""
    print(*found.items(), sep="\n")
    got = {what: found[what]["shares"] for what in DUE}
    assert got == {what: pytest.approx(due, abs=WITHIN) for what, due in DUE.items()}
