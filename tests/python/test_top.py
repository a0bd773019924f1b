# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Who waits for whom: what is read of the kernel's files, what follows from it, and how it is shown and exported."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from rich.console import Console

from fairlane import cli
from fairlane.commands import metrics as metrics_command
from fairlane.commands import why
from fairlane.errors import FairlaneError
from fairlane.linux import cgroups, contention, stat_files, sysfs, watching
from fairlane.linux.contention import CPU, DRIVE, IDLE, ITSELF, SHARE, STARVED, Tenant
from fairlane.linux.stat_files import Counts, Cpu, Reading, upper_us
from fairlane.pages import metrics, top_screen, why_text
from fairlane.pages.metrics import Metrics
from fairlane.pages.top_screen import View
from fairlane.places import ROOT

# As 6.1 writes them.
STAT = """\
8:0 wanted_pct=33.33 got_pct=41.07 rios=1200 wios=30 dios=1 oios=2 rbytes=4915200 wbytes=122880 dbytes=4096 \
cost=5038080 throttled_usec=15 metabytes=0 waited_usec=310000 took_usec=1000000
259:0 wanted_pct=0.00 got_pct=0.00 rios=1 wios=0 dios=0 oios=0 rbytes=4096 wbytes=0 dbytes=0 cost=4096 \
throttled_usec=0 metabytes=0 waited_usec=0 took_usec=80 vtime=5 gap=-1 highios=1 mediumios=0 lowios=0
"""
HISTOGRAM = "8:0 96=200 112=1000 7168=30 33554432=3\n259:0 80=1\n"
NUMBER, NAMES = "8:0", {"8:0": ("sda", "kyber-fairness")}
VICTIM, FLOOD, LITTLE = "victim.slice", "backup.slice", "system.slice/little.service"


def reading(at_s: float, **counts: Counts) -> Reading:
    """Of the three on one drive."""
    names = {"victim": VICTIM, "flood": FLOOD, "little": LITTLE}
    return Reading(at_s, {NUMBER: {names[key]: each for key, each in counts.items()}})


def steps(seconds: float, **per_s: Counts) -> list[Reading]:
    """Readings every 100 ms of who does so much per second."""
    return [
        reading(
            i / 10,
            **{
                key: Counts(
                    each.wanted,
                    reads=each.reads * i // 10,
                    read_bytes=each.read_bytes * i // 10,
                    cost=each.cost * i // 10,
                    waited_us=each.waited_us * i // 10,
                    took_us=each.took_us * i // 10,
                )
                for key, each in per_s.items()
            },
        )
        for i in range(round(seconds * 10) + 1)
    ]


def tenants(readings: list[Reading]) -> dict[str, Tenant]:
    [drive] = contention.drives(readings)
    return {each.cgroup: each for each in drive.tenants}


# The victim has 4 requests at a time, which wait for 31 % of their time.
AGGRESSOR = steps(
    2,
    victim=Counts(0.5, reads=1000, read_bytes=4096000, cost=100, waited_us=1_240_000, took_us=4_000_000),
    flood=Counts(0.5, reads=8700, read_bytes=35635200, cost=870, waited_us=30_000_000, took_us=32_000_000),
    little=Counts(0.0, reads=300, read_bytes=1228800, cost=30, waited_us=0, took_us=60_000),
)


# --- What is read ---


def test_a_stat_file_is_read() -> None:
    found = stat_files.parse_stat(STAT)
    assert found["8:0"] == Counts(0.3333, 1200, 30, 3, 4915200, 122880, 5038080, 310000, 1000000)
    assert found["259:0"].took_us == 80
    assert stat_files.parse_stat("") == {}


def test_modules_that_are_older_are_told_from_idle_ones() -> None:
    with pytest.raises(FairlaneError, match="older than this program"):
        stat_files.parse_stat(STAT.replace(" took_usec=1000000", ""))


def test_the_steps_of_a_histogram_join() -> None:
    """As mechanisms/times.h has them."""
    source = (ROOT / "libfairlane/mechanisms/times.h").read_text()
    assert "#define FL_TIMES_SHIFT 2 " in source
    froms = [index if index < 8 else (4 + index % 4) << (index // 4 - 1) for index in range(96)]
    assert [upper_us(each) for each in froms[:-1]] == froms[1:]
    assert stat_files.parse_histogram(HISTOGRAM)["8:0"] == {96: 200, 112: 1000, 7168: 30, 33554432: 3}


def test_what_lacks_cpu_time_is_read() -> None:
    pressure = "some avg10=1.00 avg60=0.00 avg300=0.00 total=1234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"
    assert stat_files.parse_cpu(pressure, "usage_usec 9\nthrottled_usec 77\n") == Cpu(1234, 77)
    assert stat_files.parse_cpu("", "") == Cpu(0, 0)


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    for name in (".", "web.slice", "web.slice/a", "db.slice", "db.slice/a"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / stat_files.STAT).write_text(STAT if name == "web.slice" else "")
        (tmp_path / name / stat_files.HISTOGRAM).write_text(HISTOGRAM if name == "web.slice" else "")
    (tmp_path / "without").mkdir()
    return tmp_path


def test_all_cgroups_are_read(mount: Path) -> None:
    found = stat_files.read(mount)
    assert list(found.counts["8:0"]) == ["web.slice"]
    assert found.histograms["259:0"]["web.slice"] == {80: 1}
    assert stat_files.Cgroups(mount).read(fully=False).histograms == {}


def test_cgroups_that_come_are_read_though_they_are_not_looked_for_each_time(mount: Path) -> None:
    cgroups, count = stat_files.Cgroups(mount), mount / "cgroup.stat"
    count.write_text("nr_descendants 4\nnr_dying_descendants 1\n")
    (mount / "web.slice" / "a" / stat_files.STAT).write_text(STAT)
    assert len(cgroups.read(fully=False).counts["8:0"]) == 2
    (mount / "new.slice").mkdir()
    (mount / "new.slice" / stat_files.STAT).write_text(STAT)
    assert len(cgroups.read(fully=False).counts["8:0"]) == 2
    count.write_text("nr_descendants 5\n")
    assert len(cgroups.read(fully=False).counts["8:0"]) == 3
    shutil.rmtree(mount / "web.slice")
    assert len(cgroups.read(fully=False).counts["8:0"]) == 1


def test_the_counts_of_all_cgroups_are_read_before_anything_else(mount: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So they are of one time, nearly: to read all that there is of each takes seconds on a slow machine."""
    said, asked = sysfs.said, []

    def recorded(file: Path) -> str | None:
        if file.name != "cgroup.stat":  # how many cgroups there are
            asked.append(file.name)
        return said(file)

    monkeypatch.setattr(sysfs, "said", recorded)
    assert stat_files.read(mount).histograms
    counts = asked.count(stat_files.STAT)
    assert counts > 1 and asked[:counts] == counts * [stat_files.STAT]


def test_a_machine_without_our_modules_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(FairlaneError, match="no scheduler of ours is loaded"):
        stat_files.read(tmp_path)


# --- Who waits, for whom ---


def test_the_time_that_one_waits_is_divided_by_who_was_served() -> None:
    victim = tenants(AGGRESSOR)[VICTIM]
    assert victim.waits == pytest.approx(0.31)
    assert victim.waits_for == pytest.approx({FLOOD: 0.31 * 0.87, VICTIM: 0.31 * 0.1, LITTLE: 0.31 * 0.03})
    assert victim.waits_most_for == FLOOD
    assert victim.present == pytest.approx(4.0)
    assert victim.got == pytest.approx(0.1)
    assert victim.wanted == 0.5


@pytest.mark.parametrize("seed", range(20))
def test_who_is_in_the_way_for_tens_of_ms_now_and_then_is_named(seed: int) -> None:
    """It takes three quarters of a drive for 10 to 50 ms, which others use all the time; then the victim waits."""
    rng = random.Random(seed)
    cost, waited_us, readings = {"little": 0, "flood": 0}, 0, []
    next_ms, burst_ms, burst_ends_ms = 0, 100, 100 + rng.randint(10, 50)
    for ms in range(10_000):
        if ms >= next_ms:
            next_ms = ms + round(1000 * contention.EVERY_S) + rng.randint(0, 2)
            served = {name: Counts(0.3, cost=each) for name, each in cost.items()}
            readings.append(reading(ms / 1000, **served, victim=Counts(0.3, waited_us=waited_us, took_us=waited_us)))
        if ms == burst_ends_ms:
            burst_ms = ms + rng.randint(50, 200)
            burst_ends_ms = burst_ms + rng.randint(10, 50)
        flooded = ms >= burst_ms
        cost["little"] += 10 if flooded else 20
        cost["flood"] += 30 * flooded
        waited_us += 1000 * flooded
    victim = tenants(readings)[VICTIM]
    assert victim.waits_most_for == FLOOD
    assert victim.waits_for[FLOOD] == pytest.approx(0.75, abs=0.15)


def test_who_is_served_while_nobody_waits_is_not_blamed() -> None:
    """One floods the drive in the first second, when nobody waits; the victim waits in the next, for another."""
    first = steps(1, victim=Counts(0.5, took_us=10, reads=10, cost=1), flood=Counts(0.5, reads=9000, cost=900))
    flood = first[-1].counts[NUMBER][FLOOD]
    idle = first[-1].counts[NUMBER][VICTIM]
    later = [
        reading(
            1 + i / 10,
            victim=Counts(0.5, reads=10 + i, cost=1 + i, waited_us=idle.waited_us + 1000 * i, took_us=10 + 2000 * i),
            flood=flood,
            little=Counts(0.5, reads=100 * i, cost=9 * i),
        )
        for i in range(11)
    ]
    found = tenants([*first, *later[1:]])[VICTIM]
    assert found.waits_most_for == LITTLE
    assert FLOOD not in found.waits_for


def test_counts_that_begin_anew_are_no_negative_rates() -> None:
    """The scheduler was chosen again meanwhile."""
    before = reading(0, victim=Counts(0.5, reads=1000, cost=1000, waited_us=5000, took_us=9000))
    after = reading(1, victim=Counts(0.5, reads=10, cost=10, waited_us=50, took_us=90))
    assert tenants([before, after])[VICTIM].requests == 10


@pytest.mark.parametrize(
    ("active", "wanted", "waits", "present", "pressed", "limit"),
    [
        (True, True, 0.31, 4.0, 0.0, SHARE),
        (True, True, 0.31, 4.0, 0.9, SHARE),
        (True, True, 0.02, 4.0, 0.9, CPU),
        (True, True, 0.02, 0.2, 0.1, ITSELF),
        (True, True, 0.02, 1.0, 0.1, DRIVE),
        (True, False, 0.31, 4.0, 0.0, SHARE),  # it is done, and what it did waited
        (False, True, None, 0.0, 0.0, STARVED),
        (False, False, None, 0.0, 0.0, IDLE),
    ],
)
def test_what_limits_a_cgroup(
    active: bool, wanted: bool, waits: float | None, present: float, pressed: float, limit: str
) -> None:
    assert contention.limit(active, wanted, waits, present, pressed) == limit


def test_who_gets_nothing_at_all_is_starved_and_not_idle() -> None:
    """Nothing of it is sent, so nothing counts its waiting."""
    waits, flood = Counts(0.5, reads=7, cost=7, took_us=900), Counts(0.5, reads=9000, cost=900)
    readings = [
        reading(i / 10, victim=waits, flood=replace(flood, cost=900 * i), little=Counts(0.0)) for i in range(31)
    ]
    found = tenants(readings)
    assert (found[VICTIM].limit, found[LITTLE].limit) == (STARVED, IDLE)
    [drive] = contention.drives(readings)
    assert VICTIM in {each.cgroup for each in View().shown(drive)}
    assert why_text.because_of(found[VICTIM]) == FLOOD
    assert f"nothing of it was sent or done in all this time. What the drive did meanwhile is 100 % for {FLOOD}" in (
        why_text.sentence(found[VICTIM])
    )


def test_a_quantile_lies_in_its_step() -> None:
    times = {96: 200, 112: 1000, 7168: 30, 33554432: 3}
    assert contention.quantile({}, 0.5) is None
    assert contention.quantile({100: 0}, 0.5) is None
    median, p99 = contention.quantile(times, 0.5), contention.quantile(times, 0.99)
    assert median is not None
    assert p99 is not None
    assert 112 <= median < 128
    assert 7168 <= p99 < 8192


# --- What is shown ---


def test_top_shows_who_waits_for_whom() -> None:
    drives = contention.drives(AGGRESSOR)
    view = View()
    view.note(drives)
    console = Console(width=150)
    with console.capture() as said:
        console.print(top_screen.screen(drives, NAMES, view))
    [line] = [line for line in said.get().splitlines() if line.split()[:1] == [VICTIM]]
    assert "31 %" in line
    assert "27 backup.slice, 3 itself, 1 little.service" in line
    plain = top_screen.plain(drives, NAMES, view)
    assert [line.split()[1] for line in plain[1:]] == [FLOOD, VICTIM, LITTLE], "who gets most is first"
    [data] = top_screen.data(drives, NAMES, view)
    assert json.loads(json.dumps(data))["cgroups"][1]["waits_for"][FLOOD] == pytest.approx(0.27, abs=0.01)


def test_keys_sort_and_filter() -> None:
    [drive] = contention.drives(AGGRESSOR)
    view = View(sort="name")
    assert [each.cgroup for each in view.shown(drive)] == sorted([VICTIM, FLOOD, LITTLE])
    assert all(view.key(key) for key in "r/*.slice\n")
    assert [each.cgroup for each in view.shown(drive)] == [VICTIM, FLOOD]
    assert view.key("s")
    assert view.sort != "name"
    assert not view.key("q")


def test_a_timeline_is_as_high_as_its_highest() -> None:
    assert top_screen.sparkline([0, 50, 100]) == "▁▅█"
    assert top_screen.sparkline([0, 0]) == "▁▁"


def test_why_names_who_it_waits_for_and_what_that_one_got() -> None:
    [drive] = contention.drives(AGGRESSOR)
    victim = next(each for each in drive.tenants if each.cgroup == VICTIM)
    assert why_text.sentence(victim) == (
        "victim.slice waits 31 % of the time that its requests take: 27 % for backup.slice, 3 % for itself,"
        " 1 % for system.slice/little.service. Its share limits it."
    )
    assert "backup.slice is due 50 % and got 87 %" in why_text.evidence(drive, victim)
    data = why_text.data(drive, victim, "sda")
    assert (data["because_of"], data["its_got"]) == (FLOOD, pytest.approx(0.87))


def test_why_finds_a_cgroup_by_its_last_part(mount: Path) -> None:
    assert why.find("web.slice", mount) == "web.slice"
    assert why.find(f"{mount}/web.slice/a", mount) == "web.slice/a"
    assert why.find("/", mount) == stat_files.ROOT
    with pytest.raises(FairlaneError, match="several"):
        why.find("a", mount)
    with pytest.raises(FairlaneError, match="no such cgroup"):
        why.find("x", mount)


# --- What is exported ---


def families(text: str) -> list[Metric]:
    return list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def exported(mount: Path) -> str:
    waits = metrics_command.Waits(mount)
    waits.add(AGGRESSOR)
    return metrics.text(Metrics(waits.read, lambda: NAMES, waits.so_far))


def test_metrics_are_those_of_the_files(mount: Path) -> None:
    found = {family.name: family for family in families(exported(mount))}
    waited = found["fairlane_waited_seconds"].samples
    assert {each.labels["drive"]: each.value for each in waited} == {"sda": 0.31, "259:0": 0.0}
    whom = {
        each.labels["whom"]: each.value
        for each in found["fairlane_waited_for_seconds"].samples
        if each.labels["cgroup"] == VICTIM
    }
    assert whom[FLOOD] == pytest.approx(0.87 * 2.48)
    buckets = [each for each in found["fairlane_latency_seconds"].samples if each.labels["drive"] == "sda"]
    counts = {each.labels.get("le"): each.value for each in buckets}
    assert (counts["0.000128"], counts["0.008192"], counts["+Inf"]) == (1200, 1230, 1233)


def test_a_cgroup_that_is_gone_is_exported_neither_as_who_waits_nor_as_whom(tmp_path: Path) -> None:
    waits = metrics_command.Waits(tmp_path)
    waits.add(AGGRESSOR)
    assert waits.so_far()[NUMBER][VICTIM].keys() == {VICTIM, FLOOD, LITTLE}
    last = AGGRESSOR[-1].counts[NUMBER]
    waits.add([AGGRESSOR[-1], reading(3, victim=last[VICTIM])])
    assert {name: list(whom) for name, whom in waits.so_far()[NUMBER].items()} == {VICTIM: [VICTIM]}
    waits.add([AGGRESSOR[-1], Reading(4, {})])
    assert waits.so_far() == {}


def test_however_many_are_active_each_waits_for_a_hundred_by_name(tmp_path: Path) -> None:
    waits = metrics_command.Waits(tmp_path)
    for first in range(0, 1000, 50):  # fifty of a thousand are served at a time
        before = {f"c{i}": Counts(0.0) for i in range(1000)}
        after = before | {f"c{first + i}": Counts(0.0, cost=1) for i in range(50)} | {"c0": Counts(0.0, waited_us=100)}
        waits.add([Reading(0, {NUMBER: before}), Reading(1, {NUMBER: after})])
    [(name, whom)] = waits.so_far()[NUMBER].items()
    assert name == "c0" and len(whom) == metrics_command.NAMED + 1
    assert sum(whom.values()) == pytest.approx(2000)


def test_a_full_reading_is_no_more_than_its_part_of_a_cpu_either(monkeypatch: pytest.MonkeyPatch) -> None:
    now, spent = 0.0, 0.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    def read(_cgroups: stat_files.Cgroups, *, fully: bool = True) -> Reading:
        nonlocal now, spent
        at_s = now
        now += (cost_s := 0.21 if fully else 0.05)
        spent += cost_s
        return Reading(at_s, {})

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(stat_files.Cgroups, "read", read)
    for _ in islice(watching.spans(Path(), 1.0, wait), 20):
        pass
    assert spent / now < 1.1 * watching.CPU_PART


def test_without_our_modules_there_are_no_metrics_and_no_error(tmp_path: Path) -> None:
    assert exported(tmp_path).splitlines()[-1] == "# EOF"


def test_a_cgroup_with_a_name_of_any_bytes_is_exported(mount: Path) -> None:
    (mount / "web.slice").rename(mount / os.fsdecode(b"caf\xe9.slice"))
    [family] = [each for each in families(exported(mount)) if each.name == "fairlane_reads"]
    assert {each.labels["cgroup"] for each in family.samples} == {"caf\\udce9.slice"}


def test_an_address_is_a_host_and_a_port() -> None:
    assert metrics_command.address("127.0.0.1:9943") == ("127.0.0.1", 9943)
    assert metrics_command.address("[::1]:1") == ("::1", 1)
    with pytest.raises(FairlaneError, match="HOST:PORT"):
        metrics_command.address("9943")


def test_metrics_are_served(mount: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    scraped = []

    def watch(_self: object) -> None:
        url = capsys.readouterr().err.split()[-1]
        request = Request(url, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        with urlopen(request, timeout=60) as answer:
            scraped.append(answer.read().decode())

    monkeypatch.setattr(metrics_command.Waits, "watch", watch)
    monkeypatch.setattr(cgroups, "find_mount", lambda: mount)
    assert cli.main(["metrics", "--listen", "127.0.0.1:0"]) == 0
    assert "fairlane_cost" in {family.name for family in families(scraped[0])}


DASHBOARD = ROOT / "packaging/grafana/fairlane.json"


def test_the_dashboard_asks_for_metrics_and_labels_that_there_are(mount: Path) -> None:
    samples = {each.name: set(each.labels) for family in families(exported(mount)) for each in family.samples}
    text = DASHBOARD.read_text()
    asked = re.findall(r"\b(fairlane_\w+)", text)
    assert set(asked) <= samples.keys()
    for panel in json.loads(text)["panels"]:
        for target in panel["targets"]:
            known = set().union(*(samples[name] for name in re.findall(r"\bfairlane_\w+", target["expr"])))
            by = re.findall(r"by \(([^)]*)\)", target["expr"])
            used = {name for each in by for name in each.split(", ")} | set(
                re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
            )
            assert used <= known, panel["title"]


@pytest.fixture
def prometheus(tmp_path: Path) -> Path:
    """Debian's, unpacked, not installed: its package starts a service."""
    if found := shutil.which("prometheus"):
        return Path(found)
    fetch = ["apt-get", "-q", "-o", "APT::Sandbox::User=", "download", "prometheus"]
    subprocess.run(fetch, cwd=tmp_path, check=True, timeout=600)
    [deb] = tmp_path.glob("prometheus_*.deb")
    subprocess.run(["dpkg", "-x", str(deb), str(tmp_path / "unpacked")], check=True, timeout=600)
    return tmp_path / "unpacked/usr/bin/prometheus"


@contextmanager
def scraping(prometheus: Path, target: str, folder: Path) -> Iterator[str]:
    """Every second. Gives the address of its API."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{free.getsockname()[1]}"
    job = {"job_name": "fairlane", "static_configs": [{"targets": [target]}]}
    config = folder / "prometheus.json"  # which is YAML, too
    config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}))
    argv = [str(prometheus), f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    with subprocess.Popen([*argv, f"--web.listen-address={at}"], stderr=(folder / "said").open("wb")) as process:
        try:
            yield f"http://{at}/api/v1/query"
        finally:
            process.terminate()


@pytest.mark.long
def test_a_real_prometheus_has_an_answer_for_every_panel_of_the_dashboard(
    mount: Path,
    prometheus: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing = {
        re.sub(r"=~\"\$\w+\"", '=~".*"', target["expr"]).replace("$__rate_interval", "30s")
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for target in panel["targets"]
    } | {"up == 1"}

    def watch(waits: metrics_command.Waits) -> None:
        target = capsys.readouterr().err.split()[-1].removeprefix("http://").removesuffix("/metrics")
        end = time.monotonic() + 120
        with scraping(prometheus, target, tmp_path_factory.mktemp("prometheus")) as api:
            while missing and time.monotonic() < end:
                time.sleep(1)
                waits.add(AGGRESSOR)
                missing.difference_update([each for each in missing if answered(api, each)])

    monkeypatch.setattr(metrics_command.Waits, "watch", watch)
    monkeypatch.setattr(cgroups, "find_mount", lambda: mount)
    assert cli.main(["metrics", "--listen", "127.0.0.1:0"]) == 0
    assert missing == set()


def answered(api: str, expression: str) -> bool:
    try:
        with urlopen(f"{api}?{urlencode({'query': expression})}", timeout=60) as answer:
            return bool(json.load(answer)["data"]["result"])
    except URLError as error:
        if isinstance(error.reason, ConnectionRefusedError):  # not yet
            return False
        raise


def test_the_dashboard_is_one_that_grafana_knows() -> None:
    """Each of its fields survives a round through the types that Grafana publishes."""
    register_default_plugins()
    ours = json.loads(DASHBOARD.read_text())
    known = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(ours)))
    assert lost(ours, known) == []


def lost(ours: Any, known: Any, path: str = "") -> list[str]:
    if isinstance(ours, dict):
        return [
            each
            for key, value in ours.items()
            for each in (lost(value, known[key], f"{path}.{key}") if key in known else [f"{path}.{key}"])
        ]
    if isinstance(ours, list):
        return [each for i, value in enumerate(ours) for each in lost(value, known[i], f"{path}[{i}]")]
    return [] if ours == known else [f"{path}: {known}"]


def test_the_service_runs_a_command_that_there_is() -> None:
    unit = (ROOT / "packaging/systemd/fairlane-metrics.service").read_text()
    [command] = re.findall(r"^ExecStart=/usr/bin/fairlane (.*)$", unit, re.MULTILINE)
    args = cli.parser().parse_args(command.split())
    assert metrics_command.address(args.listen)[0] == "127.0.0.1"
