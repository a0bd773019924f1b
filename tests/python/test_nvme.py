# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""fl-nvme as a program: a client of its socket, its data when it is killed, and what it says of wrong use."""

from __future__ import annotations

import array
import contextlib
import errno
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.errors import FairlaneError
from fairlane.experiment import profiles
from fairlane.places import ROOT
from fairlane.vm import fl_nvme, newer_qemu

VERSION, DMA_MAP, DMA_UNMAP, GET_INFO, SET_IRQS, REGION_READ, REGION_WRITE = 1, 2, 3, 4, 8, 9, 10
BAR0 = 0
SIZE, BLOCK = 16 << 20, 512
MEMORY, BASE = 1 << 20, 0x10000000
ASQ, ACQ, SQ, CQ, DATA = (BASE + n * 4096 for n in range(5))
ENTRIES = 16
LIMIT_S = 60.0


class Gone(Exception):
    """The server has closed the connection."""


class Client:
    """A guest that has no virtual machine: its memory, and the messages of vfio-user."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(LIMIT_S)
        self.socket.connect(str(path))
        self.fd = os.memfd_create("guest")
        os.ftruncate(self.fd, MEMORY)
        self.memory = mmap.mmap(self.fd, MEMORY)
        self.tails = {0: 0, 1: 0}
        self.heads = {0: 0, 1: 0}

    def close(self) -> None:
        self.socket.close()
        self.memory.close()
        os.close(self.fd)

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionResetError:
                part = b""
            if not part:
                raise Gone
            data += part
        return data

    def send(self, raw: bytes) -> None:
        self.socket.sendall(raw)

    def call(self, command: int, data: bytes = b"", fds: tuple[int, ...] = ()) -> tuple[int, bytes]:
        """Its error and data."""
        header = struct.pack("<HHIII", 7, command, 16 + len(data), 0, 0)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            self.socket.sendmsg([header + data], rights)
        except BrokenPipeError:
            raise Gone from None
        number, replied, size, flags, error = struct.unpack("<HHIII", self._receive(16))
        assert (number, replied, flags & 0xF) == (7, command, 1)
        return error, self._receive(size - 16)

    def hello(self) -> None:
        error, data = self.call(VERSION, struct.pack("<HH", 0, 1) + b'{"capabilities":{}}\0')
        assert not error and struct.unpack_from("<HH", data) == (0, 1)

    def map(self) -> int:
        return self.call(DMA_MAP, struct.pack("<IIQQQ", 32, 3, 0, BASE, MEMORY), (self.fd,))[0]

    def read(self, offset: int) -> int:
        error, data = self.call(REGION_READ, struct.pack("<QII", offset, BAR0, 4))
        assert not error
        return int(struct.unpack_from("<I", data, 16)[0])

    def write(self, offset: int, value: int, size: int = 4) -> None:
        data = struct.pack("<QII", offset, BAR0, size) + value.to_bytes(size, "little")
        assert not self.call(REGION_WRITE, data)[0]

    def submit(self, queue: int, opcode: int, *, prp: int = 0, nsid: int = 0, cdws: tuple[int, ...] = ()) -> None:
        entry = struct.pack("<BBHIQQQQ", opcode, 0, self.tails[queue], nsid, 0, 0, prp, 0)
        entry += struct.pack("<6I", *cdws, *[0] * (6 - len(cdws)))
        at = (ASQ, SQ)[queue] - BASE + 64 * self.tails[queue]
        self.memory[at : at + 64] = entry
        self.tails[queue] = (self.tails[queue] + 1) % ENTRIES
        self.write(0x1000 + 8 * queue, self.tails[queue])

    def complete(self, queue: int) -> int:
        """The status of the next completion."""
        turn, at = divmod(self.heads[queue], ENTRIES)
        place = (ACQ, CQ)[queue] - BASE + 16 * at
        end = time.monotonic() + LIMIT_S
        while (status := struct.unpack_from("<H", self.memory, place + 14)[0]) & 1 == turn % 2:
            assert time.monotonic() < end, "no completion"
            time.sleep(0.001)
        self.heads[queue] += 1
        self.write(0x1004 + 8 * queue, self.heads[queue] % ENTRIES)
        return int(status) >> 1 & 0x7FF

    def start(self, hello: bool = True) -> None:
        """A drive that is ready, with a queue for I/O."""
        if hello:
            self.hello()
        assert self.map() == 0
        self.memory[: DATA - BASE] = bytes(DATA - BASE)
        self.write(0x24, (ENTRIES - 1) << 16 | (ENTRIES - 1))
        self.write(0x28, ASQ, 8)
        self.write(0x30, ACQ, 8)
        self.write(0x14, 4 << 20 | 6 << 16 | 1)
        assert self.read(0x1C) == 1
        self.submit(0, 0x05, prp=CQ, cdws=((ENTRIES - 1) << 16 | 1, 1))
        self.submit(0, 0x01, prp=SQ, cdws=((ENTRIES - 1) << 16 | 1, 1 << 16 | 1))
        assert [self.complete(0), self.complete(0)] == [0, 0]

    def io(self, opcode: int, lba: int, flags: int = 0) -> int:
        """A page."""
        self.submit(1, opcode, prp=DATA, nsid=1, cdws=(lba, 0, 7 | flags))
        return self.complete(1)

    def put(self, data: bytes) -> None:
        self.memory[DATA - BASE : DATA - BASE + 4096] = data

    def got(self) -> bytes:
        return self.memory[DATA - BASE : DATA - BASE + 4096]


@pytest.fixture(scope="session")
def program() -> Path:
    return fl_nvme.build(checked=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nvme.socket"


WORDS = (f"--size={SIZE}", "size=1073741824")


@contextlib.contextmanager
def client(path: Path) -> Iterator[Client]:
    guest = Client(path)
    try:
        yield guest
    finally:
        guest.close()


def page(number: int) -> bytes:
    return number.to_bytes(8, "little") * 512


def test_what_was_acknowledged_survives_a_kill(program: Path, path: Path, tmp_path: Path) -> None:
    words = (*WORDS, f"--file={tmp_path / 'data'}")
    fua, acknowledged = 1 << 30, 0
    with fl_nvme.serving(program, path, words) as drive, client(path) as guest:
        guest.start()
        for number in range(40):
            guest.put(page(number + 1))
            assert guest.io(0x01, number * 8, fua if number % 2 else 0) == 0
            acknowledged = number + 1
        guest.put(page(99))
        guest.submit(1, 0x01, prp=DATA, nsid=1, cdws=(41 * 8, 0, 7))  # on its way
        drive.kill()
        assert drive.wait() == -signal.SIGKILL
    assert path.exists(), "which the next one has to clear away"
    with fl_nvme.serving(program, path, words), client(path) as guest:
        guest.start()
        for number in range(acknowledged):
            assert guest.io(0x02, number * 8) == 0
            assert guest.got() == page(number + 1)


def test_a_client_that_goes_leaves_a_drive_for_the_next(program: Path, path: Path) -> None:
    with fl_nvme.serving(program, path, WORDS) as drive:
        with client(path) as guest:
            guest.start()
            guest.put(page(5))
            assert guest.io(0x01, 8) == 0
            for _ in range(ENTRIES - 1):
                guest.submit(1, 0x01, prp=DATA, nsid=1, cdws=(64, 0, 7))
        with client(path) as guest:
            guest.start()
            assert guest.io(0x02, 8) == 0
            assert guest.got() == page(5)
            with client(path) as other, pytest.raises(Gone):
                other.hello()
            assert guest.io(0x02, 8) == 0
        assert drive.poll() is None
    assert drive.returncode == 0
    assert not path.exists()


def test_several_at_once_are_different_drives(program: Path, tmp_path: Path) -> None:
    paths, identities = [tmp_path / "a", tmp_path / "b"], []
    with fl_nvme.serving(program, paths[0], WORDS), fl_nvme.serving(program, paths[1], WORDS):
        for path in paths:
            with client(path) as guest:
                guest.start()
                guest.submit(0, 0x06, prp=DATA, cdws=(1,))
                assert guest.complete(0) == 0
                identities.append((guest.got()[4:24], guest.got()[768:1024]))
    (serial, name), (other_serial, other_name) = identities
    assert serial != other_serial and name != other_name
    assert name.startswith(b"nqn.2014-08.org.nvmexpress:uuid:")


def test_memory_that_is_not_mapped_is_not_touched(program: Path, path: Path) -> None:
    with fl_nvme.serving(program, path, WORDS), client(path) as guest:
        guest.start()
        guest.submit(1, 0x02, prp=BASE + MEMORY, nsid=1, cdws=(0, 0, 7))
        assert guest.complete(1) == 0x04, "Data Transfer Error"
        assert guest.map() != 0, "mapped twice"
        error, _ = guest.call(DMA_UNMAP, struct.pack("<IIQQ", 24, 0, BASE, MEMORY))
        assert error == 0
        guest.write(0x1008, 5)  # a doorbell whose queue is in memory that is gone
        assert guest.read(0x1C) & 2, "fatal"
        guest.write(0x14, 0)
        assert guest.map() == 0
        assert guest.read(0x1C) == 0


def test_a_guest_whose_memory_is_no_file_cannot_enable_it(program: Path, path: Path) -> None:
    with fl_nvme.serving(program, path, WORDS), client(path) as guest:
        guest.hello()
        assert guest.call(DMA_MAP, struct.pack("<IIQQQ", 32, 3, 0, BASE, MEMORY))[0] == 0
        guest.write(0x24, (ENTRIES - 1) << 16 | (ENTRIES - 1))
        guest.write(0x28, ASQ, 8)
        guest.write(0x30, ACQ, 8)
        guest.write(0x14, 4 << 20 | 6 << 16 | 1)
        assert guest.read(0x1C) == 2, "fatal, and not ready"


def test_interrupts_come_by_eventfds_and_nothing_else(program: Path, path: Path, tmp_path: Path) -> None:
    def set_irq(vector: int, fd: int) -> int:
        return guest.call(SET_IRQS, struct.pack("<5I", 20, 0x24, 2, vector, 1), (fd,))[0]

    event, other = os.eventfd(0), os.open(tmp_path / "other", os.O_CREAT | os.O_RDWR)
    with fl_nvme.serving(program, path, WORDS), client(path) as guest:
        guest.hello()
        assert set_irq(0, other) == errno.EINVAL
        assert set_irq(65, event) == errno.EINVAL
        assert set_irq(0, event) == 0
        guest.start(hello=False)
        assert os.eventfd_read(event) > 0
    assert os.fstat(other).st_size == 0
    os.close(event)
    os.close(other)


def test_an_eventfd_that_is_full_and_blocks_holds_up_nobody(program: Path, path: Path) -> None:
    event = os.eventfd(0)
    with fl_nvme.serving(program, path, WORDS), client(path) as guest:
        guest.hello()
        assert guest.call(SET_IRQS, struct.pack("<5I", 20, 0x24, 2, 0, 1), (event,))[0] == 0
        os.set_blocking(event, True)  # a flag that both sides share
        os.eventfd_write(event, (1 << 64) - 2)
        guest.start(hello=False)  # whose commands end with an interrupt
        assert guest.call(SET_IRQS, struct.pack("<5I", 20, 0x21, 2, 0, 1))[0] == 0, "an interrupt that is asked for"
        assert guest.read(0x1C) == 1, "it is ready, and answers"
        assert os.eventfd_read(event) == (1 << 64) - 2
    os.close(event)


def test_a_guest_that_takes_its_memory_away_ends_only_its_drive(program: Path, path: Path) -> None:
    with fl_nvme.serving(program, path, WORDS) as drive, client(path) as guest:
        guest.start()
        os.ftruncate(guest.fd, 0)
        with pytest.raises(Gone):
            guest.write(0x1008, 1)
            guest.read(0)
        assert drive.wait(LIMIT_S) == 1
        assert drive.stderr
        assert b"took away memory" in drive.stderr.read()
    assert not path.exists()


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack("<HHIII", 1, GET_INFO, 32, 0, 0) + bytes(16),  # before the version
        struct.pack("<HHIII", 1, VERSION, 20, 0, 0) + struct.pack("<HH", 9, 9),  # of another protocol
        struct.pack("<HHIII", 1, VERSION, 3, 0, 0),  # shorter than a header
        struct.pack("<HHIII", 1, VERSION, 1 << 30, 0, 0),  # longer than any
        struct.pack("<HHIII", 1, VERSION, 20, 1, 0) + bytes(4),  # a reply
    ],
)
def test_who_does_not_speak_the_protocol_is_sent_away(program: Path, path: Path, raw: bytes) -> None:
    with fl_nvme.serving(program, path, WORDS):
        with client(path) as guest, pytest.raises(Gone):
            guest.send(raw)
            guest._receive(1)
        with client(path) as guest:
            guest.hello()


def test_a_message_may_come_in_pieces(program: Path, path: Path) -> None:
    message = struct.pack("<HHIII", 7, VERSION, 20, 0, 0) + struct.pack("<HH", 0, 1)
    with fl_nvme.serving(program, path, WORDS), client(path) as guest:
        for byte in message:
            guest.send(bytes([byte]))
        assert len(guest._receive(20)) == 20


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--size=1000"], "must be a whole number, or one with K, M, G or T, such as 4G, from 1048576"),
        (["--size=4GB"], "such as 4G, from 1048576"),
        (["--size=2T"], "at most the 1073741824 bytes of the model"),
        (["--time-scale=0"], "must be a whole number from 1 to 1000000, not 0"),
        (["color=7"], "no NAME=NUMBER of a drive"),
        (["channels=0"], "channels: must be a whole number from 1 to 256"),
        (["unit=4095"], "unit must be a power of two"),
        (["--file=/"], "cannot be opened"),
        (["--serial=" + "x" * 21], "must be of 1 to 20 characters"),
        (["--name=é"], "must be printable ASCII"),
        (["--lie=size"], "must be weights, bursts, priorities, queues, arbitration or later, not size"),
    ],
)
def test_wrong_use_is_said_in_a_sentence(program: Path, path: Path, words: list[str], said: str) -> None:
    command = [str(program), "--socket", str(path), *WORDS, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 2
    assert done.stderr.startswith("fl-nvme: ") and said in done.stderr and done.stderr.count("\n") == 1
    assert not path.exists()


def test_places_that_are_taken_are_left_alone(program: Path, path: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with fl_nvme.serving(program, path, (*WORDS, f"--file={data}")) as drive:
        with (
            pytest.raises(FairlaneError, match="in use by another fl-nvme"),
            fl_nvme.serving(program, tmp_path / "other", (*WORDS, f"--file={data}")),
        ):
            pass
        done = subprocess.run([program, "--socket", path], capture_output=True, text=True, check=False, timeout=LIMIT_S)
        assert (done.returncode, done.stderr) == (2, f"fl-nvme: {path}: is in use by another program\n")
        assert path.exists() and drive.poll() is None
    done = subprocess.run(
        [program, "--socket", path, "--size=32M", f"--file={data}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 2 and "give --size, or another file" in done.stderr
    assert data.stat().st_size == SIZE
    done = subprocess.run([program, "--socket", data], capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 2 and "is there already, and is no socket" in done.stderr
    assert data.exists()


@pytest.mark.parametrize("name", [name for name in profiles.profiles() if profiles.load_profile(name).kind == "ssd"])
def test_every_profile_of_a_model_is_a_drive(program: Path, path: Path, name: str) -> None:
    words = [*fl_nvme.arguments(profiles.load_profile(name).params), "--fresh", "--size=16M"]
    with fl_nvme.serving(program, path, words), client(path) as guest:
        guest.start()
        wrr = guest.read(0) >> 17 & 1
        assert wrr == profiles.load_profile(name).params.get("wrr", 1)


def test_how_a_profile_is_played_is_told_as_options() -> None:
    params = {"channels": 4, "time_scale": 10, "seed": 3, "precondition": 0, "memory": 1 << 20, "queue_depth": 7}
    assert fl_nvme.arguments(params) == ["--time-scale=10", "--seed=3", "--fresh", "channels=4"]


def test_the_command_becomes_the_drive(path: Path) -> None:
    command = [sys.executable, "-m", "fairlane", "nvme", "--profile", "optane", "--socket", str(path), "--size", "16M"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == f"fl-nvme: fairlane optane, {SIZE} bytes, at {path}\n"
        with client(path) as guest:
            guest.start()
        process.terminate()
        assert process.wait(LIMIT_S) == 0
    assert not path.exists()


def test_a_profile_without_a_model_is_no_drive(path: Path) -> None:
    command = [sys.executable, "-m", "fairlane", "nvme", "--profile", "null", "--socket", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 2 and "is no modelled SSD; valid are " in done.stderr


def test_a_qemu_that_is_new_enough_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qemu = tmp_path / newer_qemu.NAME
    qemu.write_text("#!/bin/sh\necho QEMU emulator version 10.1.2 '(Debian 1:10.1.2+ds-1)'\n")
    qemu.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert newer_qemu.version(str(qemu)) == (10, 1)
    assert newer_qemu.ensure() == qemu
