# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The host backend leaves alone what it must not touch, and puts knobs and cgroups back; files play the kernel."""

import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlane.backends import host
from fairlane.backends.host import Host
from fairlane.backends.job import Job, Options
from fairlane.backends.measuring import Measuring, busy
from fairlane.backends.scenario_runs import ScenarioRun, run_scenario, run_scenarios
from fairlane.errors import FairlaneError
from fairlane.experiment.model import Cgroup, Profile, Scenario, TenantSpec, Variant
from fairlane.experiment.price_lists import PriceList
from fairlane.experiment.results import Results, Run, Series, Tenant
from fairlane.isolbench import bench
from fairlane.linux import cgroups, disks, fio, fio_logs, io_cost, knobs, queue, sysfs
from fairlane.linux.cgroups import Tree
from fairlane.linux.knob import BY_WEIGHT, Need, Setting, Tuning, differing, targeted
from fairlane.proc import terminable

TENANTS = (TenantSpec("a", 2000, rw="randrw", mix=75), TenantSpec("b", 500, bs=1 << 20))
TUNED = io_cost.Tuned(io_cost.Model(1000, 100, 50, 500, 40, 20), 0.5, "measured", {"read": 400.0})
WHAT = Scenario("x", Profile("null", "null_blk", ""), TENANTS)


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A drive in sysfs."""
    monkeypatch.setattr(sysfs, "SYS_BLOCK", tmp_path / "block")
    folder = tmp_path / "block" / "sdx"
    (folder / "queue" / "iosched").mkdir(parents=True)
    (folder / "holders").mkdir()
    files = {
        "dev": "8:16",
        "size": "2048",
        "queue/logical_block_size": "512",
        "queue/scheduler": "none [mq-deadline] bfq",
        "queue/max_sectors_kb": "512",
        "queue/nr_requests": "256",
        "queue/iosched/low_latency": "1",
    }
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Cgroups as a kernel with everything shows them."""
    top = tmp_path / "cg" / "top"
    paths = {tenant.name: top / tenant.name for tenant in TENANTS}
    for path in paths.values():
        path.mkdir(parents=True)
    for file in ("io.cost.model", "io.cost.qos"):
        (tmp_path / "cg" / file).touch()
    return Tree(tmp_path / "cg", top, paths, {tenant.name: tenant for tenant in TENANTS})


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = tmp_path / "proc"
    (folder / "self").mkdir(parents=True)
    (folder / "self/mountinfo").write_text("1 2 8:1 / / rw - ext4 /dev/sda1 rw\n")
    (folder / "swaps").write_text("Filename Type Size Used Priority\n/dev/sdb partition 1 0 -2\n")
    return folder


def set_knob(name: str, tree: Tree, need: Need | None = None, tuning: Tuning = BY_WEIGHT) -> dict[str, object]:
    setting = Setting("sdx", "8:16", tree, WHAT, need or Need(), tuning)
    with knobs.applied(knobs.TABLE[name], setting) as config:
        return config


# --- What must not be touched ---


def test_a_free_drive_is_free(device: Path, proc: Path) -> None:
    assert disks.in_use(device.name, proc) is None


def test_a_partitioned_drive_is_in_use(device: Path, proc: Path) -> None:
    (device / "sdx1").mkdir()
    (device / "sdx1" / "partition").write_text("1")
    assert disks.in_use(device.name, proc) == "has partitions"


def test_a_held_drive_is_in_use(device: Path, proc: Path) -> None:
    (device / "holders" / "dm-0").touch()
    assert disks.in_use(device.name, proc) == "is held by dm-0"


def test_a_mounted_drive_is_in_use(device: Path, proc: Path) -> None:
    (proc / "self/mountinfo").write_text("1 2 8:16 / /data rw - ext4 /dev/sdx rw\n")
    assert disks.in_use(device.name, proc) == "is mounted"


def test_a_kernel_without_swap_has_no_drive_in_use_as_that(device: Path, proc: Path) -> None:
    (proc / "swaps").unlink()
    assert disks.in_use("sdx", proc) is None


def test_a_swapped_to_drive_is_in_use(device: Path, proc: Path) -> None:
    (proc / "swaps").write_text("Filename\n/dev/sdx partition 1 0 -2\n")
    assert disks.in_use(device.name, proc) == "is in use as swap"


ALONE = os.O_RDONLY | os.O_EXCL


@pytest.fixture
def node(device: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """/dev/sdx, which as a drive in Linux is had alone, with O_EXCL, by one at a time."""
    path, file = "/dev/sdx", tmp_path / "sdx"
    file.touch()
    real_open, real_close = os.open, os.close
    alone: list[int] = []

    def fake_open(name: str, flags: int, *rest: Any, **named: Any) -> int:
        if name != path:
            return real_open(name, flags, *rest, **named)
        if flags & os.O_EXCL and alone:
            raise OSError(errno.EBUSY, "Device or resource busy", path)
        fd = real_open(file, flags & ~os.O_EXCL)
        alone.extend([fd] * bool(flags & os.O_EXCL))
        return fd

    def fake_close(fd: int) -> None:
        if fd in alone:
            alone.remove(fd)
        real_close(fd)

    monkeypatch.setattr(os, "open", fake_open)
    monkeypatch.setattr(os, "close", fake_close)
    return path


def test_a_drive_whose_mount_is_not_to_be_seen_is_in_use(node: str, proc: Path) -> None:
    (proc / "self/mountinfo").write_text("1 2 0:42 / /data rw - btrfs /dev/sdx rw\n")  # nor would one in a container be
    assert disks.in_use("sdx", proc) is None
    mounted = os.open(node, ALONE)
    with pytest.raises(FairlaneError, match="sdx is in use by a file system or another program"):
        disks.free_target("sdx", WHAT, "sdx")
    os.close(mounted)
    assert disks.free_target("sdx", WHAT, "sdx")


def run_host(device: str, *names: str, out: Path = Path("/nowhere"), **how: Any) -> Results:
    return run_scenario(Host(device, Options(destroy_data=device), **how), WHAT, names, out)


def run_on(node: str, look: Callable[[], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **how: Any) -> None:
    """A run, and look() in the middle of it."""

    def measured(job: Job, *_args: object) -> host._Got:
        look()
        return host._Got(Run(job.variant.name, 0, 1.0, [], 0, 0, 1.0, None), {})

    monkeypatch.setattr(host, "available", lambda _device, names: dict.fromkeys(names))
    monkeypatch.setattr(host, "_measured", measured)
    run_host("sdx", "none", "mq-deadline", out=tmp_path, **how)


def test_a_second_run_on_a_drive_is_refused(node: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def look() -> None:
        with pytest.raises(OSError, match="busy"):
            os.open(node, ALONE)
        os.close(os.open(node, os.O_RDWR | os.O_DIRECT))  # as fio does

    run_on(node, look, monkeypatch, tmp_path)
    os.close(os.open(node, ALONE))


def test_a_second_suite_on_a_drive_is_refused(node: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def available(_device: str, names: list[str]) -> dict[str, str | None]:
        with pytest.raises(OSError, match="busy"):
            os.open(node, ALONE)
        return dict.fromkeys(names, "this kernel has none")

    monkeypatch.setattr(host, "available", available)
    what = bench.prepare(["d2"], ["bfq"], Host("sdx", Options(destroy_data="sdx")), True, tmp_path)
    bench.run(what, lambda _now: None)


def test_a_drive_that_is_renewed_can_go_away_meanwhile(
    node: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    removed: list[str] = []

    def renew() -> None:
        os.close(os.open(node, ALONE))
        removed.append(node)

    run_on(node, lambda: None, monkeypatch, tmp_path, renew=renew)
    assert removed


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("consent", [None, "sdy"])
def test_a_drive_is_overwritten_only_when_it_was_named(consent: str | None) -> None:
    with pytest.raises(FairlaneError, match="--destroy-data sdx"):
        disks.free_target("sdx", WHAT, consent)
    assert disks.free_target("sdx", WHAT, "sdx") == disks.Target(Path("/dev/sdx"), 1 << 20, 512)


@pytest.mark.usefixtures("device")
def test_reading_asks_for_nothing() -> None:
    assert disks.free_target("sdx", Scenario("x", WHAT.profile, (TenantSpec("r"),)), None)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("name", ["nothing", "", "..", "sdx/queue"])
def test_an_unknown_drive_is_refused(name: str) -> None:
    with pytest.raises(FairlaneError, match="no block device"):
        run_host(name, "none")


def test_a_drive_without_schedulers_such_as_zram_is_refused(device: Path) -> None:
    (device / "queue/nr_requests").unlink()
    with pytest.raises(FairlaneError, match=r"^sdx has no I/O scheduler, as its driver does without; give another dri"):
        run_host("sdx", "none")


def test_an_unknown_knob_is_refused_and_the_valid_ones_are_listed() -> None:
    with pytest.raises(FairlaneError, match="unknown knob 'cfq'; valid are none, mq-deadline"):
        run_host("sdx", "none", "cfq")
    with pytest.raises(FairlaneError, match=r"valid are .*; did you mean kyber-fairness"):
        run_host("sdx", "none", "kyber-fairnes")


# --- Knobs ---


@pytest.mark.usefixtures("device")
def test_the_scheduler_is_put_back(device: Path, tree: Tree) -> None:
    setting = Setting("sdx", "8:16", tree, WHAT, Need())
    scheduler = device / "queue/scheduler"
    with pytest.raises(KeyboardInterrupt), knobs.applied(knobs.TABLE["none"], setting):
        assert scheduler.read_text() == "none"
        raise KeyboardInterrupt
    assert scheduler.read_text() == "mq-deadline"


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("old", [True, False])
def test_a_class_above_best_effort_is_asked_for_as_the_kernel_has_it(
    old: bool, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sysfs.write

    def write(path: Path, value: str) -> None:
        if value == "promote-to-rt" and old:  # before Linux 6.5
            raise FairlaneError(f"cannot write to {path}") from OSError(errno.EINVAL, "Invalid argument")
        real(path, value)

    monkeypatch.setattr(sysfs, "write", write)
    first, *others = tree.paths
    pairs = knobs.TABLE["io.prio.class"].priorities(first)
    config = set_knob("io.prio.class", tree, tuning=pairs[-1].tuning)["io.prio.class"]
    assert config == {first: "none-to-rt" if old else "promote-to-rt"} | dict.fromkeys(others, "idle")
    burst = knobs.TABLE["io.prio.class"].burst(first, 1000, 0.3)
    assert burst.tuning.classes == ("restrict-to-be", "idle"), "which every kernel has"


def test_a_drive_is_told_from_another_of_its_name_by_size_model_and_serial_number(device: Path) -> None:
    assert disks.identity("sdx") == {"capacity_bytes": 1 << 20, "block_bytes": 512}, "one that says no more"
    (device / "device").mkdir()
    (device / "device/model").write_text("INTEL SSDPE2KX020T7\n")
    (device / "device/serial").write_text("  A1  \n")
    assert disks.identity("sdx").items() >= {"model": "INTEL SSDPE2KX020T7", "serial": "A1"}.items()


# --- Whether it took effect ---


@pytest.mark.parametrize(
    ("file", "written", "says"),
    [
        ("scheduler", "bfq", "none mq-deadline [bfq]"),
        ("io.weight", "250", "default 250"),
        ("io.prio.class", "idle", "idle"),
        ("io.max", "8:16 rbps=1000 wbps=500", "8:0 rbps=1 wbps=max\n8:16 rbps=1000 wbps=500 riops=max wiops=max"),
        (
            "io.cost.qos",
            "8:16 enable=1 min=100.00 max=100.00",
            "8:16 enable=1 ctrl=user rpct=0.00 min=100.00 max=100.00",
        ),
        ("read_expire", "15000", "15000"),
    ],
)
def test_what_the_kernel_says_as_it_was_set_took_effect(
    tree: Tree, tmp_path: Path, file: str, written: str, says: str
) -> None:
    path = tmp_path / file
    path.write_text(says + "\n")
    setting = Setting("sdx", "8:16", tree, WHAT, Need(), written=[(path, written)])
    assert differing(setting) == []


@pytest.mark.parametrize(
    ("file", "written", "says"),
    [
        ("scheduler", "bfq", "none [mq-deadline] bfq"),
        ("io.weight", "250", "default 100"),
        ("io.max", "8:16 rbps=1000", "8:16 rbps=max wbps=500"),
        ("io.max", "8:16 rbps=1000", "8:0 rbps=1000"),
        ("io.cost.qos", "8:16 enable=1 max=100.00", "8:16 enable=1 max=84.90"),
    ],
)
def test_what_the_kernel_says_otherwise_did_not(tree: Tree, tmp_path: Path, file: str, written: str, says: str) -> None:
    path = tmp_path / file
    path.write_text(says + "\n")
    setting = Setting("sdx", "8:16", tree, WHAT, Need(), written=[(path, written)])
    (wrong,) = differing(setting)
    assert wrong == f"{path} says {says!r}, not {written!r}"


def test_a_drive_that_is_slowed_down_has_the_elevator_s_times_slowed_down(device: Path, tree: Tree) -> None:
    for name in knobs.Kyber.times:
        (device / "queue/iosched" / name).write_text("2000000\n")
    setting = Setting("sdx", "8:16", tree, WHAT, Need(), time_scale=30)
    with knobs.applied(knobs.TABLE["kyber"], setting) as config:
        assert config["read_lat_nsec"] == config["write_lat_nsec"] == 60000000
        assert (device / "queue/iosched/read_lat_nsec").read_text() == "60000000"
    assert (device / "queue/iosched/read_lat_nsec").read_text() == "2000000"


def test_a_knob_that_was_not_as_it_was_set_has_no_figures(
    node: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def measured(job: Job, *_args: object) -> host._Got:
        refused = {"refused": "vrate was elsewhere"} if job.variant.knob == "io.cost" and job.repeat else {}
        return host._Got(Run(job.variant.knob, job.repeat, 1.0, [], 0, 0, 1.0, None, refused), {})

    monkeypatch.setattr(host, "available", lambda _device, names: dict.fromkeys(names))
    monkeypatch.setattr(Measuring, "need", lambda *_args: Need())
    monkeypatch.setattr(host, "_measured", measured)
    twice = replace(WHAT, repeats=2)
    found = run_scenario(Host("sdx", Options(destroy_data="sdx")), twice, ["none", "io.cost"], tmp_path)
    assert [run.knob for run in found.runs] == ["none", "none"]
    assert found.unavailable == {"io.cost": "vrate was elsewhere"}


def _fake_kernel(monkeypatch: pytest.MonkeyPatch, refuses: str) -> list[str]:
    """One that runs everything, but leaves io.cost nowhere as it was set while that is looked for in scenario
    `refuses`; and the names of what was run."""
    ran: list[str] = []

    def measured(job: Job, _target: object, _need: Need, *_args: object) -> host._Got:
        ran.append(f"{job.scenario.name} {job.id}")
        wrong = job.scenario.name == refuses and job.variant.knob.startswith("io.cost")
        counters: dict[str, Any] = {"refused": "vrate was still moving"} if wrong else {}
        counters |= {
            "io.cost": {"usage_us": dict.fromkeys("ab", 1), "vrate": dict.fromkeys(("low", "high", "mean"), 1)}
        }
        counters["io.cost"] |= {"range": [1, 1], "speed": ""}
        tenants = [Tenant(t.name, t.weight, 0.5, 100.0, 1.0, 50.0, 50.0, None, {}) for t in job.scenario.tenants]
        return host._Got(Run(job.variant.name, job.repeat, 1.0, tenants, 200.0, 2.0, 1.0, None, counters), {})

    monkeypatch.setattr(host, "available", lambda _device, names: dict.fromkeys(names))
    monkeypatch.setattr(host, "_measured", measured)
    return ran


def test_a_knob_that_cannot_be_set_for_a_scenario_is_left_out_of_that_alone(
    node: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran = _fake_kernel(monkeypatch, refuses="first")
    tenants = tuple(TenantSpec(name) for name in "ab")
    first, second = (
        replace(WHAT, name=name, tenants=tenants, repeats=2, seconds=n) for n, name in ((1, "first"), (2, "second"))
    )
    runs = [ScenarioRun(what, ["none", "io.cost"], tmp_path / what.name) for what in (first, second)]
    found = [results for _, results in run_scenarios(Host("sdx", Options(destroy_data="sdx")), runs)]
    assert [each.knobs for each in found] == [["none"], ["none", "io.cost"]]
    assert [len(each.runs) for each in found] == [2, 4]
    assert found[0].unavailable == {"io.cost": "io.cost cannot be set for first: vrate was still moving"}
    assert not found[1].unavailable
    tries = [name for name in ran if name.startswith("first measured-speed")]
    assert [name.split("-")[2] for name in tries] == ["0.98", "0.91", "0.87"], "once for both repeats, by halves"


def test_nothing_is_measured_for_a_knob_that_is_to_hold_nobody_back(
    node: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran = _fake_kernel(monkeypatch, refuses="none of them")
    what = replace(WHAT, name="x", tenants=(TenantSpec("a"),), slack=True)
    runs = [ScenarioRun(what, ["none", "io.cost"], tmp_path)]
    assert [job.tuning.slack for job in runs[0].jobs] == [True, True]
    _, results = next(run_scenarios(Host("sdx", Options(destroy_data="sdx")), runs))
    assert results.knobs == ["none", "io.cost"] and not any("measured" in name for name in ran)


def test_a_scenario_that_no_knob_can_be_set_for_is_told_when_the_others_have_run(
    node: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _fake_kernel(monkeypatch, refuses="first")
    tenants = tuple(TenantSpec(name) for name in "ab")
    whats = [replace(WHAT, name=name, tenants=tenants, seconds=n) for n, name in ((1, "first"), (2, "second"))]
    found: list[str] = []
    with pytest.raises(FairlaneError, match=r"^first: no knob can run: io.cost: io.cost cannot be set for first"):
        for run, _ in run_scenarios(
            Host("sdx", Options(destroy_data="sdx")), [ScenarioRun(what, ["io.cost"], tmp_path) for what in whats]
        ):
            found.append(run.scenario.name)
    assert found == ["second"]


def test_a_knob_under_which_the_load_does_not_end_costs_its_own_figures_and_no_other_s(
    node: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As io.cost-qos did once, in a VM whose CPU was short. Under `none` it is the drive that hangs."""
    stuck, said = "bfq", list[str]()

    def measured(job: Job, *_args: object) -> host._Got:
        if job.variant.knob == stuck:
            said.append("INFO: task fio:412 blocked for more than 120 seconds.")
            raise fio.DidNotEndError("fio did not end within 76 s; is the device stuck?")
        return host._Got(Run(job.variant.knob, job.repeat, 1.0, [], 1.0, 1.0, 1.0, None), {})

    def complaints() -> list[str]:
        new, said[:] = said[:], []
        return new

    monkeypatch.setattr(host, "available", lambda _device, names: dict.fromkeys(names))
    monkeypatch.setattr(host, "_measured", measured)
    backend = Host("sdx", Options(destroy_data="sdx"), complaints=complaints)
    found = run_scenario(backend, WHAT, ["none", "bfq", "kyber-fairness"], tmp_path)
    assert found.knobs == ["none", "kyber-fairness"]
    (why,) = found.unavailable.values()
    assert why.startswith("bfq: fio did not end within 76 s;") and "blocked for more than" in why
    assert not any(run.bad_dmesg for run in found.runs), "what the kernel said is bfq's"
    stuck = "none"
    with pytest.raises(FairlaneError, match=r"none.*: fio did not end within 76 s"):
        run_scenario(backend, WHAT, ["none", "bfq"], tmp_path)


@pytest.mark.parametrize(("depth", "most", "notes"), [(64, 150.0, 1), (64, 110.0, 0), (1, 150.0, 0)])
def test_a_knob_that_was_set_for_more_than_none_does_says_so(
    node: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, depth: int, most: float, notes: int
) -> None:
    """Where tenants always want more: one at queue depth 1 does not, and may leave some. It is set for what the first
    run of none moved, and the second one tells."""

    def measured(job: Job, *_args: object) -> host._Got:
        moved = most if job.variant.knob == "none" and not job.repeat else 100.0
        return host._Got(Run(job.variant.knob, job.repeat, 1.0, [], moved, 1.0, 1.0, None), {})

    monkeypatch.setattr(host, "available", lambda _device, names: dict.fromkeys(names))
    monkeypatch.setattr(host, "_measured", measured)
    what = replace(WHAT, tenants=(TenantSpec("a", iodepth=depth),), groups=(), repeats=2)
    found = run_scenario(Host("sdx", Options(destroy_data="sdx")), what, ["none", "io.max"], tmp_path)
    said = "io.max, repeat 2: none did 0.67 times what the knob is set for; do not go by its run."
    assert found.notes == [said] * notes


@pytest.mark.usefixtures("device")
def test_bfq_s_weights_are_scaled_into_its_range(tree: Tree) -> None:
    assert set_knob("bfq", tree)["io.bfq.weight"] == {"a": 1000, "b": 250}
    assert (tree.paths["b"] / "io.bfq.weight").read_text() == "250"


def test_a_tunable_that_a_knob_changed_is_put_back(device: Path, tree: Tree) -> None:
    set_knob("bfq", tree)
    assert (device / "queue/iosched/low_latency").read_text() == "1"


@pytest.fixture
def as_sysfs(device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a kernel: what has no write bit is not written, by root neither; a change of schedulers sets nr_requests
    anew, and a change of that does so with mq-deadline's depth."""
    write = Path.write_text

    def write_text(path: Path, text: str) -> int:
        if path.exists() and not path.stat().st_mode & 0o222:
            raise OSError(errno.EACCES, "Permission denied", str(path))
        if path.name == "scheduler":
            write(device / "queue/nr_requests", "256")
        if path.name == "nr_requests":
            write(device / "queue/iosched/async_depth", str(int(text) * 3 // 4))
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", write_text)


@pytest.mark.usefixtures("as_sysfs")
def test_tunables_are_put_back_beside_counters_that_nobody_can_write(device: Path) -> None:
    counter = device / "queue/iosched/dispatched"
    counter.write_text("12345")
    counter.chmod(0o444)
    with queue.scheduler("sdx", "none"):
        counter.unlink()
        counter.write_text("0")
        counter.chmod(0o444)
        (device / "queue/iosched/low_latency").write_text("0")
    assert (device / "queue/iosched/low_latency").read_text() == "1"
    assert queue.tunables("sdx") == {"dispatched": "0", "low_latency": "1"}


@pytest.mark.usefixtures("as_sysfs")
def test_nr_requests_is_put_back_and_then_what_hangs_on_it(device: Path) -> None:
    (device / "queue/nr_requests").write_text("1024")
    (device / "queue/iosched/async_depth").write_text("100")
    with queue.scheduler("sdx", "bfq"):
        assert (device / "queue/nr_requests").read_text() == "256"
    assert (device / "queue/nr_requests").read_text() == "1024"
    assert (device / "queue/iosched/async_depth").read_text() == "100"


@pytest.mark.usefixtures("as_sysfs")
def test_what_cannot_be_put_back_keeps_nothing_else_from_that(device: Path) -> None:
    first = device / "queue/iosched/first"
    first.write_text("7")
    with pytest.raises(FairlaneError, match=r"cannot write '7' to .*first"), queue.scheduler("sdx", "none"):
        first.write_text("8")
        first.chmod(0o444)
        (device / "queue/iosched/low_latency").write_text("0")
    assert (device / "queue/iosched/low_latency").read_text() == "1"


@pytest.mark.usefixtures("device")
def test_io_max_is_the_share_of_the_measured_maximum(tree: Tree) -> None:
    limits = set_knob("io.max", tree, Need(bytes_per_s=100 * 2**20))["io.max"]
    a, b = 0.8 * 100 * 2**20, 0.2 * 100 * 2**20
    assert limits == {
        "a": f"rbps={a * 0.75:.0f} riops={a * 0.75 / 4096:.0f} wbps={a * 0.25:.0f} wiops={a * 0.25 / 4096:.0f}",
        "b": f"rbps={b:.0f} riops={b / 2**20 * 2:.0f}",  # a block of 1 MiB is two requests of 512 KiB
    }
    assert (tree.paths["b"] / "io.max").read_text().startswith("8:16 rbps=")


def written(tree: Tree, file: str) -> dict[str, str | None]:
    """What is in that file of each tenant's cgroup."""
    files = {name: path / file for name, path in tree.paths.items()}
    return {name: path.read_text() if path.exists() else None for name, path in files.items()}


def test_io_prio_class_is_by_the_weight_among_all(device: Path, tree: Tree) -> None:
    set_knob("io.prio.class", tree)  # 1.6 times the mean weight, and 0.4 times
    assert written(tree, "io.prio.class") == {"a": "restrict-to-be", "b": "idle"}
    set_knob("io.prio.class", tree, tuning=Tuning(first="b", classes=("none-to-rt", "idle")))
    assert written(tree, "io.prio.class") == {"a": "idle", "b": "none-to-rt"}


def test_io_latency_is_what_the_share_of_the_maximum_takes(device: Path, tree: Tree) -> None:
    set_knob("io.latency", tree, Need(bytes_per_s=1e6))
    assert written(tree, "io.latency") == {"a": "8:16 target=5120", "b": "8:16 target=5242880"}
    set_knob("io.latency", tree, tuning=Tuning(first="b", target_us=700))
    assert written(tree, "io.latency")["b"] == "8:16 target=700"


def test_a_latency_target_is_written_in_us_and_read_back(device: Path, tree: Tree) -> None:
    (device / "fairlane").mkdir()
    (device / "fairlane/scheduler").write_text("[none] fairlane\n")
    tree.nodes["b"] = replace(TENANTS[1], latency=0.0003)
    setting = Setting("sdx", "8:16", tree, WHAT, Need())
    with knobs.applied(knobs.TABLE["fairlane"], setting) as config:
        assert config["io.fairlane.latency"] == {"b": 300}
        assert written(tree, "io.fairlane.latency") == {"a": None, "b": "300"}
        assert differing(setting) == []
        (tree.paths["b"] / "io.fairlane.latency").write_text("default 0\n")
        assert differing(setting) == [f"{tree.paths['b'] / 'io.fairlane.latency'} says 'default 0', not '300'"]


def test_a_target_relative_to_the_latency_alone_is_one_of_the_first_tenant() -> None:
    tuning = Tuning(first="b", target_of_alone=1.5)
    found = targeted(WHAT, tuning, Need(alone_us=50.0))
    assert [tenant.latency for tenant in found.tenants] == pytest.approx([0, 75e-6])
    assert replace(found, tenants=TENANTS) == WHAT
    assert targeted(WHAT, tuning, Need()) == targeted(WHAT, Tuning(first="b"), Need(alone_us=50.0)) == WHAT


def test_a_knob_that_knows_no_latency_targets_says_so_and_once() -> None:
    what = replace(WHAT, groups=(Cgroup("g", latency=0.001),))
    notes = {tuple(knobs.not_followed(name, what)) for name in knobs.TABLE if name != "fairlane"}
    assert notes == {("Of all knobs, only fairlane knows the scenario's latency targets; the others run without.",)}
    assert knobs.not_followed("fairlane", what) == []
    assert [knobs.not_followed(name, WHAT) for name in knobs.TABLE] == [[]] * len(knobs.TABLE)


@pytest.mark.parametrize("name", ["io.max", "io.latency", "io.prio.class", "io.cost", "bfq"])
def test_an_idle_knob_gives_no_cgroup_anything(device: Path, tree: Tree, name: str) -> None:
    set_knob(name, tree, tuning=Tuning(idle=True))
    assert [file for path in tree.paths.values() for file in path.iterdir()] == []


@pytest.mark.parametrize("name", ["io.max", "io.latency", "io.cost"])
def test_limits_that_do_not_bind_need_no_measurement(device: Path, tree: Tree, name: str) -> None:
    config = set_knob(name, tree, tuning=Tuning(slack=True))
    assert "10000000" in str(config)


def test_io_max_may_limit_all_but_one(device: Path, tree: Tree) -> None:
    set_knob("io.max", tree, Need(bytes_per_s=1e6), Tuning(first="a", others=0.3))
    assert written(tree, "io.max")["a"] is None
    assert (written(tree, "io.max")["b"] or "").startswith("8:16 rbps=300000 ")


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "8:16 ctrl=auto"),
        ("8:16 enable=0 ctrl=auto rpct=0.00 min=1.00", "8:16 enable=0 ctrl=auto"),
        ("8:16 enable=1 ctrl=user rpct=95.00", "8:16 enable=1 ctrl=user rpct=95.00"),
    ],
)
def test_io_cost_is_put_back(tree: Tree, before: str, after: str) -> None:
    (tree.mount / "io.cost.qos").write_text(before)
    config = set_knob("io.cost", tree, Need(TUNED))
    assert "min=100.00 max=100.00" in str(config["io.cost.qos"])
    assert config["io.weight"] == {"a": 2000, "b": 500}
    assert (tree.mount / "io.cost.qos").read_text() == after


AUTO, MANUAL = "enable=1 ctrl=auto rpct=0.00 min=1.00", "enable=1 ctrl=user rpct=95.00"


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("name", ["none", "bfq", "kyber-fairness", "io.max"])
@pytest.mark.parametrize(("before", "after"), [(AUTO, "enable=1 ctrl=auto"), (MANUAL, MANUAL)])
def test_an_io_cost_that_was_on_is_off_under_every_other_knob(tree: Tree, name: str, before: str, after: str) -> None:
    qos = tree.mount / "io.cost.qos"
    qos.write_text(f"8:0 enable=1\n8:16 {before}\n")
    setting = Setting("sdx", "8:16", tree, WHAT, Need(bytes_per_s=1e6))
    with pytest.raises(KeyboardInterrupt), knobs.applied(knobs.TABLE[name], setting):
        assert qos.read_text() == "8:16 enable=0"
        raise KeyboardInterrupt
    assert qos.read_text() == f"8:16 {after}"


@pytest.mark.parametrize("said", ["", "8:0 enable=1\n", "8:16 enable=0 ctrl=user rpct=95.00\n", None])
def test_an_io_cost_that_was_off_or_not_there_is_left_alone(device: Path, tree: Tree, said: str | None) -> None:
    qos = tree.mount / "io.cost.qos"
    qos.unlink() if said is None else qos.write_text(said)
    set_knob("none", tree)
    assert (qos.read_text() if qos.exists() else None) == said


def test_what_a_knob_is_set_from_is_measured_without_the_io_cost_that_was_on(
    device: Path, tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    qos = tree.mount / "io.cost.qos"
    qos.write_text("8:16 enable=1 ctrl=auto\n")
    seen: list[str] = []

    @contextmanager
    def made(_groups: object, tenants: tuple[TenantSpec, ...]) -> Iterator[Tree]:
        paths = {tenant.name: tree.top / tenant.name for tenant in tenants}
        for path in paths.values():
            path.mkdir(exist_ok=True)
            (path / "io.stat").touch()
        yield Tree(tree.mount, tree.top, paths, {tenant.name: tenant for tenant in tenants})

    def look(what: Scenario, *_args: object, **_named: object) -> fio_logs.Measured:
        seen.append(qos.read_text())
        loads = {t.name: fio_logs.Load(1e6, 0, 9, {}, Series(10, [])) for t in what.tenants}
        return fio_logs.Measured(1.0, loads, None, (0.0, 1.0))

    monkeypatch.setattr(cgroups, "tree", made)
    monkeypatch.setattr(fio, "run", look)
    target = disks.Target(Path("/dev/sdx"), 1 << 20, 512)

    def complete(job: Job, need: Need) -> Run:
        return host._measured(job, target, need, 1, lambda _part: None).run

    measuring = Measuring(complete, {}, 512, writes=True)
    most, model = (Job(name, WHAT, Variant(name, name), tmp_path) for name in ("io.max", "io.cost"))
    assert measuring.need(most).bytes_per_s == 2e6
    measuring._io_cost_model(model)
    assert seen == ["8:16 enable=0"] * (1 + len(io_cost.COEFFICIENTS))
    assert qos.read_text() == "8:16 enable=1 ctrl=auto"


def test_a_variant_sets_its_scheduler_and_what_cannot_be_played_is_refused_by_name(device: Path, tree: Tree) -> None:
    (device / "queue/iosched/slots").write_text("3\n")
    setting = Setting("sdx", "8:16", tree, WHAT, Need(), variant={"slots": 64})
    with knobs.applied(knobs.TABLE["bfq"], setting) as config:
        assert (device / "queue/iosched/slots").read_text() == "64"
        assert config["slots"] == 64
    assert (device / "queue/iosched/slots").read_text() == "3"
    assert knobs.not_played(Variant("bfq-64", "bfq", {"slots": 64})) is None
    assert (knobs.not_played(Variant("fast", "d2fq", low_latency=True)) or "").startswith("fast is without a block")
    assert (knobs.not_played(Variant("max-64", "io.max", {"x": 1})) or "").startswith("max-64 sets tunables of io.max")


@pytest.mark.usefixtures("device")
def test_a_missing_knob_says_why(tree: Tree) -> None:
    reason = knobs.unavailable(knobs.TABLE["kyber"], "sdx", tree.mount, tree.top)
    assert reason == "/sys/block/sdx/queue/scheduler does not offer kyber (it offers none, mq-deadline, bfq)"
    assert (
        knobs.unavailable(knobs.TABLE["io.max"], "sdx", tree.mount, tree.top)
        == "this kernel has no io.max in its cgroups"
    )
    assert knobs.unavailable(knobs.TABLE["none"], "sdx", tree.mount, tree.top) is None


def test_a_scheduler_that_routes_takes_the_place_of_an_elevator(device: Path, tree: Tree) -> None:
    folder = device / "fairlane"
    folder.mkdir()
    (folder / "scheduler").write_text("[none] d2fq\n")
    (folder / "hl_ratio").write_text("7\n")
    assert queue.tunables("sdx") == {"low_latency": "1", "hl_ratio": "7"}
    setting = Setting("sdx", "8:16", tree, WHAT, Need())
    with knobs.applied(knobs.TABLE["d2fq"], setting) as config:
        assert (folder / "scheduler").read_text() == "d2fq"
        assert (device / "queue/scheduler").read_text() == "none"
        assert config == {"scheduler": "d2fq", "io.fairlane.weight": {"a": 2000, "b": 500}}
    assert (folder / "scheduler").read_text() == "none"
    assert (device / "queue/scheduler").read_text() == "mq-deadline"


@pytest.mark.usefixtures("device")
def test_a_driver_that_asks_for_no_classes_cannot_have_d2fq(tree: Tree) -> None:
    reason = knobs.unavailable(knobs.TABLE["d2fq"], "sdx", tree.mount, tree.top)
    assert reason == "sdx takes no scheduler of ours but elevators: there is no /sys/block/sdx/fairlane"


def test_a_drive_that_does_not_offer_it_cannot_have_d2fq(
    device: Path, tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysfs, "MODULES", tmp_path)
    (device / "fairlane").mkdir()
    (device / "fairlane/scheduler").write_text("[none] d2fq\n")
    no_weight = knobs.unavailable(knobs.TABLE["d2fq"], "sdx", tree.mount, tree.top)
    assert no_weight == "this kernel has no io.fairlane.weight in its cgroups"
    (device / "fairlane/scheduler").write_text("[none] fairlane\n")
    no_module = knobs.unavailable(knobs.TABLE["d2fq"], "sdx", tree.mount, tree.top)
    assert no_module == "/sys/block/sdx/fairlane/scheduler does not offer d2fq (it offers none, fairlane)"
    (tmp_path / "d2fq").mkdir()
    reason = knobs.unavailable(knobs.TABLE["d2fq"], "sdx", tree.mount, tree.top)
    assert reason == "sdx has no weighted round robin that its driver uses, and d2fq leaves all to that"


def test_counters_are_read_for_the_device(tree: Tree) -> None:
    text = "8:0 used=1\n8:16 used=12 share=0.5\n"
    (tree.paths["a"] / "io.fairlane.stat").write_text(text)
    assert knobs.tenant_counters(tree, "8:16") == {"a": {"used": 12, "share": "0.5"}}


def test_tenants_are_made_busy_to_find_the_maximum() -> None:
    lazy = TenantSpec("a", jobs=4, start=5, stop=2, iodepth=1, thinktime=1, cores=(1,))
    (tenant,) = busy(Scenario("x", WHAT.profile, (lazy,))).tenants
    assert tenant == TenantSpec("a", jobs=4, iodepth=16)


# --- Cgroups ---


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the root cgroup. A real one removes a cgroup's files with it; here rmdir does so."""
    root = tmp_path / "cgroup2"
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpu io\n")
    (root / "cgroup.subtree_control").write_text("cpu\n")
    (tmp_path / "mounts").write_text(f"cgroup2 {root} cgroup2 rw 0 0\n")
    monkeypatch.setattr(cgroups, "MOUNTS", tmp_path / "mounts")
    remove = Path.rmdir

    def rmdir(path: Path) -> None:
        for file in path.iterdir():
            if file.is_file():
                file.unlink()
        remove(path)

    monkeypatch.setattr(Path, "rmdir", rmdir)
    return root


def test_cgroups_follow_the_scenario_and_are_gone_afterwards(mount: Path) -> None:
    groups = (Cgroup("g", 300), Cgroup("h", 200, "g"), Cgroup("unused"))
    with pytest.raises(ZeroDivisionError), cgroups.tree(groups, (TenantSpec("a", 5, "h"), TenantSpec("b"))) as found:
        top = f"fairlane-{os.getpid()}"
        assert [found.inside(name) for name in ("a", "b")] == [f"{top}/g/h/a", f"{top}/b"]
        assert {name: node.weight for name, node in found.nodes.items()} == {"g": 300, "h": 200, "a": 5, "b": 100}
        assert found.paths["a"].is_dir()
        raise ZeroDivisionError
    assert not list(mount.glob("fairlane*"))
    assert (mount / "cgroup.subtree_control").read_text() == "-io"


def test_without_cgroup_v2_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mounts").write_text("tmpfs / tmpfs rw 0 0\n")
    monkeypatch.setattr(cgroups, "MOUNTS", tmp_path / "mounts")
    with pytest.raises(FairlaneError, match="--on vm"), cgroups.tree((), ()):
        pass


# --- Signals while settings are put back ---

After = Callable[[Path, str, signal.Signals], None]


@pytest.fixture
def after_writing(monkeypatch: pytest.MonkeyPatch) -> After:
    """Has the signal arrive as soon as that has been written to the file."""
    write = Path.write_text

    def when(file: Path, text: str, number: signal.Signals) -> None:
        def write_text(path: Path, said: str) -> int:
            done = write(path, said)
            if (path, said) == (file, text):
                signal.raise_signal(number)
            return done

        monkeypatch.setattr(Path, "write_text", write_text)

    return when


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_waits_until_the_scheduler_is_put_back(
    device: Path, after_writing: After, number: signal.Signals
) -> None:
    with pytest.raises((KeyboardInterrupt, SystemExit)), terminable():
        with queue.scheduler("sdx", "bfq"):
            (device / "queue/iosched/low_latency").write_text("0")
            after_writing(device / "queue/scheduler", "none", number)
        raise AssertionError("it went on as if there had been none")
    assert (device / "queue/scheduler").read_text() == "mq-deadline"
    assert (device / "queue/iosched/low_latency").read_text() == "1"


@pytest.mark.usefixtures("device")
def test_a_signal_waits_until_io_cost_is_put_back(tree: Tree, after_writing: After) -> None:
    setting = Setting("sdx", "8:16", tree, WHAT, Need(TUNED))
    with pytest.raises(SystemExit), terminable(), knobs.applied(knobs.TABLE["io.cost"], setting):
        after_writing(tree.mount / "io.cost.qos", "8:16 enable=0", signal.SIGTERM)
    assert (tree.mount / "io.cost.qos").read_text() == "8:16 ctrl=auto"


def test_a_signal_waits_until_the_cgroups_are_gone(mount: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "REMOVE_TIMEOUT_S", 0.1)
    remove = Path.rmdir

    def rmdir(path: Path) -> None:
        signal.raise_signal(signal.SIGTERM)
        remove(path)

    with pytest.raises(SystemExit), terminable(), cgroups.tree((), TENANTS):
        monkeypatch.setattr(Path, "rmdir", rmdir)
    assert not list(mount.glob("fairlane*"))
    assert (mount / "cgroup.subtree_control").read_text() == "-io"


def test_a_suite_undoes_everything_also_when_it_ends_while_it_looks_at_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def available(_device: str, _names: list[str]) -> dict[str, str | None]:
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL, "it would end on the spot"
        signal.raise_signal(signal.SIGTERM)
        return {}

    monkeypatch.setattr(host, "available", available)
    monkeypatch.setattr(disks, "free_target", lambda *_args: disks.Target(Path("/dev/x"), 1 << 30, 512))
    monkeypatch.setattr(disks, "describe", lambda *_args: {})
    monkeypatch.setattr(disks, "identity", lambda *_args: {})
    what = bench.prepare(["d2"], ["bfq"], Host("x"), True, tmp_path)
    with pytest.raises(SystemExit):
        bench.run(what, lambda _now: None)


def test_looking_at_a_host_undoes_everything_also_after_sigterm(
    device: Path, mount: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_args: object) -> None:
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL, "it would end on the spot"
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(knobs, "unavailable", unavailable)
    with pytest.raises(SystemExit):
        host.available("sdx", ["none"])
    assert not list(mount.glob("fairlane*"))


def test_a_trace_costs_what_its_sizes_do(tmp_path: Path) -> None:
    trace = tmp_path / "x.trace"
    trace.write_text("0 0 0 8 1\n10 0 0 8 1\n20 0 0 16 1\n30 0 0 32 0\n")  # reads of 4, 4 and 8 KiB, a write of 16
    player = TenantSpec("p", trace=str(trace), speed="full")
    prices = PriceList("x", 4096, tuple(range(1, 13)), tuple(10 * n for n in range(1, 13)))
    target = disks.Target(Path("/dev/sdx"), 1 << 30, 512)
    load = fio_logs.Load(2 * 16384, 3 * 16384, 9, {}, Series(10, []))  # twice through its reads, three times its write
    wanted = 2 * (2 * prices.cost("read", 4096) + prices.cost("read", 8192)) + 3 * prices.cost("write", 16384)
    assert host._cost(prices, player, load, target) == pytest.approx(wanted)


def test_a_trace_is_played_at_full_speed_to_find_the_maximum() -> None:
    slow = TenantSpec("a", trace="x", iodepth=64)
    (tenant,) = busy(Scenario("x", WHAT.profile, (slow,))).tenants
    assert tenant == TenantSpec("a", trace="x", iodepth=64, speed="full")
