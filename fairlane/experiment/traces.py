# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Block traces: recorded requests, read one by one, so that a trace of any length takes no memory.

    mqsim    MQSim's: arrival (ns), device, first sector, sectors, 0 for a write or 1 for a read; traces/README.md
    systor   SNIA, SYSTOR '17: Timestamp (s),Response,IOType (R, W),LUN,Offset,Size (bytes)
    msr      SNIA, MSR Cambridge: Timestamp (100 ns),Hostname,DiskNumber,Type (Read, Write),Offset,Size,ResponseTime
    blkparse what blkparse prints: the requests as they were queued (Q), in sectors of 512 bytes
    iolog    fio's, of version 2 (waits in us, each from the one before) or 3 (times in us); a device is a file's number

Reads and writes count; headers, summaries, discards, flushes and the like are passed over. Any other line is an error
that names it. A request that was written down after a later one, as several CPUs may do, arrives together with that
one; in MQSim's format, which the simulator reads by itself, it is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from fairlane.errors import FairlaneError
from fairlane.files import written

SECTOR = 512
MAX_BYTES = 1 << 30  # of a request; the simulator's limit
LOOKED_AT = 100  # lines from which a format is recognised
SYSTOR_HEADER = "Timestamp,Response,IOType,LUN,Offset,Size"
IOLOG = re.compile(r"fio version ([23]) iolog")
BLKPARSE = re.compile(r"\s*\d+,\d+\s+\d+\s+\d+\s+\d+\.\d+\s+\d+\s+\S+\s")
WHAT = {  # what a line of that format begins with
    "iolog": IOLOG,
    "systor": re.compile(rf"{SYSTOR_HEADER}|\d+(\.\d+)?,[^,]*,[RW]?,\d+,\d+,\d+$"),
    "msr": re.compile(r"\d+,[^,]*,\d+,(Read|Write),\d+,\d+,\d+$"),
    "blkparse": BLKPARSE,
    "mqsim": re.compile(r"[ \t]*\d+([ \t]+\d+){4}\s*$"),
}
FORMATS = tuple(WHAT)
COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"PK\x03\x04")  # gzip, bzip2, xz, zstd, zip


@dataclass(frozen=True, slots=True)
class Request:
    at_ns: int  # since the first of them, of the devices that were asked for
    write: bool
    offset: int  # bytes, as are
    bytes: int
    device: int = 0  # of those recorded


# A line's request, with the time as it was recorded, or None for a line to pass over; ValueError says what it must be.
Parser = Callable[[str], Request | None]


def read(
    path: Path, kind: str | None = None, devices: Collection[int] = (), skipped: list[str] | None = None
) -> Iterator[Request]:
    """Its requests, by time: of those devices, or of all. With `skipped`, errors go there, and the lines are left out.

    Without a format, the first lines tell it.
    """
    if kind:
        _check_plain(path)
    kind = kind or format_of(path)
    parse, last, number = _parser(kind), 0, 0
    first: int | None = None
    try:
        with path.open(errors="replace") as file:
            for number, line in enumerate(file, 1):
                try:
                    found = parse(line)
                    if found is None:
                        continue
                    _check(found)
                    if kind == "mqsim" and found.at_ns < last:
                        raise ValueError("the request arrives before that of the line above")
                except ValueError as error:
                    if skipped is None:
                        hint = "`fairlane replay --skip-bad` leaves such lines out"
                        raise FairlaneError(f"{path}: line {number}: {error}; {hint}") from error
                    skipped.append(f"line {number}: {error}")
                    continue
                last = max(last, found.at_ns)
                if not devices or found.device in devices:
                    first = last if first is None else first
                    yield replace(found, at_ns=last - first)
    except OSError as error:
        raise FairlaneError(f"{path}: cannot be read as a trace: {error.strerror}") from error
    if first is None:
        of = f" to the devices {', '.join(map(str, sorted(devices)))}" if devices else ""
        raise FairlaneError(f"{path}: has no request{of} in {number} lines of the format {kind}")


def format_of(path: Path) -> str:
    """The format that the first line has that is of any."""
    _check_plain(path)
    try:
        with path.open(errors="replace") as file:
            for line in islice(file, LOOKED_AT):
                for kind, pattern in WHAT.items():
                    if pattern.match(line):
                        return kind
    except OSError as error:
        raise FairlaneError(f"{path}: cannot be read as a trace: {error.strerror}") from error
    if not path.stat().st_size:
        raise FairlaneError(f"{path}: the file is empty")
    raise FairlaneError(f"{path}: no trace in a known format; `fairlane replay --format` takes {', '.join(FORMATS)}")


def _check_plain(path: Path) -> None:
    try:
        with path.open("rb") as file:
            if file.read(8).startswith(COMPRESSED):
                raise FairlaneError(f"{path}: is compressed; unpack it and give what comes out")
    except OSError as error:
        raise FairlaneError(f"{path}: cannot be read as a trace: {error.strerror}") from error


def _check(request: Request) -> None:
    if not 0 < request.bytes <= MAX_BYTES:
        raise ValueError(f"a request of {request.bytes} bytes; it must be of 1 to {MAX_BYTES}, which is 1 GiB")


# --- The formats ---


def _parser(kind: str) -> Parser:
    parsers: dict[str, Parser] = {"systor": _systor, "msr": _msr, "blkparse": _blkparse, "mqsim": _mqsim}
    return _Iolog() if kind == "iolog" else parsers[kind]


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{what}: {text!r} is no whole number")
    return int(text)


def _seconds_ns(text: str) -> int:
    """Exactly: a float does not hold the ns of a date."""
    match = re.fullmatch(r"([0-9]+)(?:\.([0-9]{1,9})[0-9]*)?", text)
    if match is None:
        raise ValueError(f"the time: {text!r} is no number of seconds")
    return int(match[1]) * 10**9 + int((match[2] or "").ljust(9, "0"))


def _columns(line: str, names: str) -> list[str]:
    columns = [column.strip() for column in line.split(",")]
    if len(columns) != names.count(",") + 1:
        raise ValueError(f"must be {names}")
    return columns


def _is_write(text: str, read: str, write: str) -> bool:
    if text not in (read, write):
        raise ValueError(f"{text!r} is neither {read} nor {write}")
    return text == write


def _mqsim(line: str) -> Request:
    columns = line.split()
    if len(columns) != 5:
        raise ValueError("must be five whole numbers: arrival in ns, device, first sector, sectors, type")
    names = ("arrival", "device", "first sector", "sectors", "type")
    at_ns, device, sector, sectors, _ = (_number(text, what) for text, what in zip(columns, names, strict=True))
    return Request(at_ns, _is_write(columns[4], "1", "0"), sector * SECTOR, sectors * SECTOR, device)


def _systor(line: str) -> Request | None:
    if line.strip() == SYSTOR_HEADER:
        return None
    at, _, op, lun, offset, size = _columns(line, SYSTOR_HEADER)
    write = _is_write(op, "R", "W")
    return Request(_seconds_ns(at), write, _number(offset, "Offset"), _number(size, "Size"), _number(lun, "LUN"))


def _msr(line: str) -> Request:
    at, _, disk, op, offset, size, _ = _columns(line, "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime")
    write, where = _is_write(op, "Read", "Write"), _number(offset, "Offset")
    return Request(_number(at, "Timestamp") * 100, write, where, _number(size, "Size"), _number(disk, "DiskNumber"))


def _blkparse(line: str) -> Request | None:
    """`8,0 3 1 0.000000000 697 Q W 223490 + 8 [program]`; whatever begins differently is of the summary."""
    if re.match(r"\s*\d+,\d+\s", line) is None:
        return None
    columns = line.split()
    if len(columns) < 7:
        raise ValueError("must be device, CPU, number, time, process, action, what, first sector + sectors")
    what = columns[6]
    flush = "F" in what and "+" not in columns  # with no data of its own
    if columns[5] != "Q" or "D" in what or flush or not ("R" in what or "W" in what):
        return None
    if len(columns) < 10 or columns[8] != "+":
        raise ValueError("must end with first sector + sectors, and the program's name")
    sector, sectors = _number(columns[7], "first sector"), _number(columns[9], "sectors")
    major, minor = map(int, columns[0].split(","))
    return Request(_seconds_ns(columns[3]), "W" in what, sector * SECTOR, sectors * SECTOR, major << 20 | minor)


class _Iolog:
    """A file's number is its place among those named so far."""

    ACTIONS = ("add", "open", "close", "unlink", "sync", "datasync", "trim")

    def __init__(self) -> None:
        self.version = 0
        self.now_us = 0
        self.files: dict[str, int] = {}

    def __call__(self, line: str) -> Request | None:
        if not self.version:
            match = IOLOG.match(line)
            if match is None:
                raise ValueError('must be "fio version 2 iolog" or "fio version 3 iolog"')
            self.version = int(match[1])
            return None
        columns = line.split()
        if self.version == 3 and columns:
            self.now_us = _number(columns.pop(0), "the time")
        if len(columns) not in (2, 4):
            raise ValueError(f"must be {'time, ' * (self.version == 3)}file, action and, of I/O, offset and length")
        file, action = columns[:2]
        device = self.files.setdefault(file, len(self.files))
        if action in self.ACTIONS:
            return None
        if len(columns) != 4:
            raise ValueError(f"{action!r} needs an offset and a length, and is otherwise none of fio's actions")
        offset, size = _number(columns[2], "offset"), _number(columns[3], "length")
        if action == "wait" and self.version == 2:
            self.now_us += offset
            return None
        return Request(self.now_us * 1000, _is_write(action, "read", "write"), offset, size, device)


# --- What is in a trace: the columns of the Kyber-fairness paper's Table 4 ---


@dataclass(frozen=True)
class Summary:
    requests: int
    reads: int
    bytes: int
    seconds: float  # from the first request to the last

    @property
    def mean_bytes(self) -> float:
        return self.bytes / self.requests

    @property
    def bytes_per_s(self) -> float | None:
        """What the recorded speed requires of a drive."""
        return self.bytes / self.seconds if self.seconds else None

    @property
    def reads_to_writes(self) -> float | None:
        """Reads for each write, by number; None when it only reads."""
        writes = self.requests - self.reads
        return self.reads / writes if writes else None


def summary(requests: Iterable[Request]) -> Summary:
    """Of at least one request, as read() yields."""
    count = reads = size = last = 0
    for request in requests:
        count, reads = count + 1, reads + (not request.write)
        size, last = size + request.bytes, request.at_ns
    return Summary(count, reads, size, last / 1e9)


# --- Other places, other formats ---


def placed(request: Request, capacity: int, block: int) -> tuple[int, int]:
    """Offset and bytes on a drive of that capacity and block size, both in bytes; as sim/trace.c does it.

    An offset beyond the drive's end wraps; a request that began within it ends there.
    """
    end = capacity // block * block
    size = -(-request.bytes // block) * block
    if size > end:
        raise FairlaneError(f"a trace has a request of {request.bytes} bytes, for which the drive is too small")
    return min(request.offset % end // block * block, end - size), size


def mqsim_line(request: Request) -> str:
    """Of whole sectors, all those that the request touches."""
    sector = request.offset // SECTOR
    sectors = -(-(request.offset + request.bytes) // SECTOR) - sector
    return f"{request.at_ns} {request.device} {sector} {sectors} {int(not request.write)}\n"


def to_mqsim(requests: Iterable[Request], path: Path) -> None:
    """Whole or not at all: the requests may be read from that very file."""
    part = path.with_name(f".{path.name}.part")
    with written(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("w") as file:
                file.writelines(map(mqsim_line, requests))
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def iolog_line(path: Path, request: Request, offset: int, size: int) -> str:
    """Of fio's version 3, for which a time of 0 is no time."""
    return f"{request.at_ns // 1000 + 1} {path} {'write' if request.write else 'read'} {offset} {size}\n"


def iolog_head(path: Path) -> str:
    return f"fio version 3 iolog\n0 {path} add\n0 {path} open\n"


@dataclass(frozen=True)
class Replayed:
    name: str
    path: Path  # as given, or without the broken lines
    weight: int
    summary: Summary
    skipped: list[str]  # the broken lines, and why
