# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The nbdkit filter with real NBD clients: exports share by weight, data come back, and wrong options are refused.

The drive is so slow, and has so much outstanding, that a client may be without a processor for a while.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import nbd
import pytest

SLOW = 1000  # so many times slower: 760 requests a second
OUTSTANDING = 128
NEEDED = ("nbdkit", "nbdcopy", "nbdinfo", "nbdsh", "fio")
MISSING = [name for name in NEEDED if not shutil.which(name)]
OPTIONS = ["fairlane-tenants=gold:800,silver:200"]

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)}; try {nbd.PACKAGES}"),
]


def ran(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def nbdsh(socket: Path, script: str) -> None:
    """Python with `gold` and `silver`, each a connection to the export of that name."""
    connected = "".join(
        f"{name} = nbd.NBD(); {name}.connect_uri('nbd+unix:///{name}?socket={socket}')\n" for name in nbd.WEIGHTS
    )
    done = ran(["nbdsh", "-n", "-c", connected + script])
    assert done.returncode == 0, done.stderr


def logged(log: Path, action: str) -> list[tuple[int, int, str]]:
    """Offset and bytes of each request that came through our filter to nbdkit's log filter, and the line."""
    found = re.findall(rf"^.* {action} id=\d+ offset=(\w+) count=(\w+).*$", log.read_text(), re.MULTILINE)
    lines = [line for line in log.read_text().splitlines() if f" {action} id=" in line]
    return [(int(at, 16), int(count, 16), line) for (at, count), line in zip(found, lines, strict=True)]


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    nbd.build()


# d2fq would take longer, as it goes by periods of a second. tests/unit/test_library.c has all of them.
@pytest.mark.parametrize(
    ("scheduler", "depth"), [("fairlane", 0), ("kyber-fairness", 32), ("mqflashfq", 32), ("flashfq", 32), ("mqfq", 32)]
)
def test_exports_share_the_drive_by_weight(scheduler: str, depth: int) -> None:
    with nbd.server(nbd.drive(SLOW), nbd.options(scheduler, depth)) as socket:
        got = nbd.load(socket, 20, OUTSTANDING, warmup=8)
    assert sum(got.requests.values()) > 1000
    assert got.off <= 0.02, got


def test_without_the_filter_weights_are_nothing() -> None:
    """What the test above would find if the filter did nothing."""
    with nbd.server(nbd.drive(SLOW), None) as socket:
        assert nbd.load(socket, 10, OUTSTANDING).off > 0.5


def test_with_a_latency_target_less_is_in_the_drive() -> None:
    """So little is due to silver, which has one request at a time, that nobody would wait for its share."""
    quarter_ns = {}
    for target in ("", ":40ms"):
        with nbd.server(nbd.drive(SLOW), [f"fairlane-tenants=gold:10000,silver:1{target}"]) as socket:
            quarter_ns[target] = nbd.load(socket, 15, OUTSTANDING, silver=1).quarter_ns["silver"]
    assert quarter_ns[":40ms"] < 0.75 * quarter_ns[""], quarter_ns


def test_data_come_back_through_each_export(tmp_path: Path) -> None:
    image, back = tmp_path / "image", tmp_path / "back"
    image.write_bytes(bytes(range(256)) * 8192)
    with nbd.server(["memory", "2M"], OPTIONS) as socket:
        subprocess.run(["nbdcopy", str(image), f"nbd+unix:///gold?socket={socket}"], timeout=60, check=True)
        subprocess.run(["nbdcopy", f"nbd+unix:///silver?socket={socket}", str(back)], timeout=60, check=True)
        names = ran(["nbdinfo", "--list", f"nbd+unix:///?socket={socket}"]).stdout
        other = ran(["nbdinfo", f"nbd+unix:///bronze?socket={socket}"])
    assert back.read_bytes() == image.read_bytes()
    assert 'export="gold"' in names and 'export="silver"' in names
    assert other.returncode != 0


def test_a_large_zero_does_not_stop_another_export() -> None:
    """With one place in the drive, a zero that is one request would have every read wait until its end."""
    options = [*OPTIONS, "fairlane-scheduler=mqflashfq", "fairlane-depth=1"]
    script = """
zero = silver.aio_zero(256 << 20, 0)
silver.poll(1000)  # ms: it is on its way
for at in range(5):
    gold.pread(4096, at << 20)
silver.poll(0)
assert not silver.aio_command_completed(zero), "the reads waited for the whole zero"
"""
    with nbd.server(nbd.drive(20), options) as socket:
        nbdsh(socket, script)


def test_flushes_that_take_long_do_not_stop_another_export(tmp_path: Path) -> None:
    """With one place in the drive, which no flush takes. Each ends when the gate is there."""
    gate, log = tmp_path / "gate", tmp_path / "log"
    words = ["eval", "thread_model=echo parallel", "get_size=echo 1M", "can_write=exit 0", "pwrite=exit 1"]
    words += ["pread=head -c $3 /dev/zero", f"flush=until [ -e {gate} ]; do sleep 0.05; done"]
    script = f"""
import pathlib, time
flushes = [silver.aio_flush() for _ in range(8)]
silver.poll(1000)  # ms: they are on their way
read, until = gold.aio_pread(nbd.Buffer(4096), 0), time.monotonic() + 30
while not (went := gold.aio_command_completed(read)) and time.monotonic() < until:
    gold.poll(100)
silver.poll(0)
assert not any(silver.aio_command_completed(flush) for flush in flushes)
pathlib.Path("{gate}").touch()
assert went, "the read waited for flushes"
while silver.aio_in_flight():
    silver.poll(100)
assert all(silver.aio_command_completed(flush) for flush in flushes)
"""
    options = [*OPTIONS, "fairlane-scheduler=mqflashfq", "fairlane-depth=1"]
    with nbd.server(["--filter=log", *words, f"logfile={log}"], options) as socket:
        nbdsh(socket, script)
    assert log.read_text().count(" Flush id=") == 8


def test_large_requests_go_in_steps_that_end_at_whole_mebibytes(tmp_path: Path) -> None:
    image, log = tmp_path / "image", tmp_path / "log"
    image.write_bytes(bytes(16 << 20))
    script = """
first, count = (1 << 20) - 700, (3 << 20) + 1000
silver.pwrite(bytes(count), first)
silver.pread(count, first)
silver.zero(count, first)
silver.cache(count, first)
silver.trim(4 << 20, 0)
"""
    with nbd.server(["--filter=log", "file", str(image), f"logfile={log}"], OPTIONS) as socket:
        nbdsh(socket, script)
    steps = [((1 << 20) - 700, 700), (1 << 20, 1 << 20), (2 << 20, 1 << 20), (3 << 20, 1 << 20), (4 << 20, 300)]
    for action in ("Write", "Read", "Zero", "Cache"):
        assert [(at, count) for at, count, _ in logged(log, action)] == steps, action
    assert [(at, count) for at, count, _ in logged(log, "Trim")] == [(0, 4 << 20)]


def test_large_requests_that_are_not_aligned_have_the_right_data() -> None:
    script = """
data = bytearray(os.urandom(8 << 20))
gold.pwrite(data, 0)
for first, count in ((1, 3 << 20), ((1 << 20) - 300, (1 << 20) + 1), ((2 << 20) + 5, (4 << 20) - 7)):
    new = os.urandom(count)
    gold.pwrite(new, first)
    data[first : first + count] = new
    assert silver.pread(count, first) == new
    hole = (first + 1000, count - 3000)
    gold.zero(hole[1], hole[0])
    data[hole[0] : sum(hole)] = bytes(hole[1])
    assert silver.pread(8 << 20, 0) == data
"""
    with nbd.server(["memory", "8M"], OPTIONS) as socket:
        nbdsh(socket, "import os\n" + script)


def test_a_fast_zero_fails_at_once_or_not_at_all(tmp_path: Path) -> None:
    """Only its first step says that it is to be fast; later ones are zeroed, fast or not."""
    log = tmp_path / "log"
    with nbd.server(["--filter=log", "memory", "8M", f"logfile={log}"], OPTIONS) as socket:
        nbdsh(socket, "silver.zero(3 << 20, 0, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE)")
    lines = [line for _, _, line in logged(log, "Zero")]
    assert ["fast=1" in line for line in lines] == [True, False, False], lines
    assert ["trim=0" in line for line in lines] == [True, True, True], lines


def test_the_first_error_ends_a_large_request(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ["eval", "thread_model=echo parallel", "get_size=echo 8M", "can_write=exit 0", "can_zero=exit 0"]
    words += ["pread=exit 1", "pwrite=exit 1"]
    words += ["zero=if [ $4 -ge 1048576 ]; then echo ENOSPC full >&2; exit 1; fi"]
    script = """
import errno
try:
    silver.zero(8 << 20, 0)
    raise SystemExit("no error")
except nbd.Error as error:
    assert error.errnum == errno.ENOSPC, error
"""
    with nbd.server(["--filter=log", *words, f"logfile={log}"], OPTIONS) as socket:
        nbdsh(socket, script)
    assert [at for at, _, _ in logged(log, "Zero")] == [0, 1 << 20]


def test_an_export_without_a_name_of_its_own_is_with_all_others() -> None:
    with nbd.server(["memory", "2M"], ["fairlane-tenants=gold:800,*:100"]) as socket:
        done = ran(["nbdinfo", f"nbd+unix:///bronze?socket={socket}"])
    assert "export-size: 2097152" in done.stdout


def test_a_price_list_of_a_relative_path_holds_in_the_background(tmp_path: Path) -> None:
    """There, nbdkit is in another folder."""
    prices = " ".join(["4096"] * 12)
    (tmp_path / "prices").write_text(f"read {prices}\nwrite {prices}\n")
    socket, pid = tmp_path / "socket", tmp_path / "pid"
    words = ["nbdkit", "-U", str(socket), "-P", str(pid), f"--filter={nbd.BUILT / 'nbdkit-fairlane-filter.so'}"]
    subprocess.run([*words, "memory", "1M", *OPTIONS, "fairlane-prices=prices"], cwd=tmp_path, timeout=60, check=True)
    try:
        done = ran(["nbdinfo", f"nbd+unix:///gold?socket={socket}"])
    finally:
        with suppress(ProcessLookupError):  # it ended
            os.kill(int(pid.read_text()), signal.SIGTERM)
    assert "export-size: 1048576" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ([], "fairlane-tenants is missing: write fairlane-tenants=NAME:WEIGHT,..."),
        (["fairlane-tenants=gold"], "fairlane-tenants: gold has no weight; write NAME:WEIGHT"),
        (["fairlane-tenants=gold:0"], "fairlane-tenants: the weight of gold is 0; it must be 1 to 10000"),
        (["fairlane-tenants=gold:1,gold:2"], "fairlane-tenants: gold is there twice"),
        (["fairlane-tenants=gold:1:5"], "fairlane-tenants: 5 is no time; write it as 200us, 5ms or 1s"),
        ([*OPTIONS, "fairlane-scheduler=cfq"], "fairlane-scheduler: there is no cfq"),
        ([*OPTIONS, *["fairlane-scheduler=mqfq"] * 2], "fairlane-scheduler is there twice"),
        ([*OPTIONS, *["fairlane-depth=8"] * 2], "fairlane-depth is there twice"),
        ([*OPTIONS, *["fairlane-prices=/none"] * 2], "fairlane-prices is there twice"),
        ([*OPTIONS, "fairlane-set=budget=1", "fairlane-set=budget=2"], "fairlane-set is there twice"),
        ([*OPTIONS, "fairlane-scheduler=d2fq"], "fairlane-depth: d2fq does not work with 0"),
        ([*OPTIONS, "fairlane-set=nothing=1"], "fairlane-set: fairlane has no such variable"),
        ([*OPTIONS, "fairlane-set=budget=x"], "fairlane-set: write NAME=NUMBER,..."),
        ([*OPTIONS, "fairlane-set=waits=1"], "fairlane-set: fairlane does not take that value"),
        ([*OPTIONS, "fairlane-prices=/etc/passwd"], "fairlane-prices: /etc/passwd is no price list"),
        ([*OPTIONS, "fairlane-prices=/none"], "fairlane-prices: /none: No such file or directory"),
    ],
)
def test_wrong_options_end_nbdkit_with_a_sentence(options: list[str], error: str) -> None:
    words = ["nbdkit", "-f", "-U", "-", f"--filter={nbd.BUILT / 'nbdkit-fairlane-filter.so'}", "memory", "1M"]
    done = ran([*words, *options, "--run", "true"])
    assert done.returncode != 0
    assert error in done.stderr


def test_a_plugin_that_takes_one_request_at_a_time_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "plugin.sh"
    answers = "thread_model) echo serialize_all_requests;; get_size) echo 1M;; *) exit 2;;"
    script.write_text(f"#!/bin/sh\ncase $1 in {answers} esac\n")
    script.chmod(0o755)
    words = ["nbdkit", "-f", "-U", "-", f"--filter={nbd.BUILT / 'nbdkit-fairlane-filter.so'}", "sh", str(script)]
    done = ran([*words, *OPTIONS, "--run", "true"])
    assert done.returncode != 0
    assert "one request at a time" in done.stderr
