"""Backups, restores and redactions of a log of 1 KiB records, beside copies and sums of the same bytes.

BACKUP_MB is the size of the log that is backed up (default 1000), which needs disk space of three times that; REDACT_MB
that of the log that is redacted (default 1000). Figures are GB of the log for a second of one core's CPU, and where a
disk is waited for also for a second. The copy that is compared is synced.
"""

import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import kafkalog
from asv_benchmarks.measure import Peers, Row
from kafkalog.backup import create_backup, restore_backup, verify_backup
from kafkalog.redact import RedactReport, redact, redact_backups
from kafkalog.util.fileio import FileSystem

SEGMENTS = 100
FIRST_MS = 1_000_000
RECORD_BYTES, BATCH = 1024, 16
ROUNDS, MB_OF_ROUNDS = 3, 3000
"""A larger log is measured once."""
SETTLE_S = 3.0
"""A key index is used for files that have not changed for a while."""
PIECE_BYTES = 1 << 20


class Spent(NamedTuple):
    """CPU and wall seconds."""

    cpu: float
    wall: float


class Counting(FileSystem):
    """Counts the bytes that are read from segment files, and those written."""

    def __init__(self) -> None:
        self.bytes_read = self.bytes_written = 0
        self._segments: set[int] = set()
        for name in ("open", "close", "pread", "preadv", "pwrite", "pwritev"):
            setattr(self, name, getattr(self, f"_{name}"))

    def _open(self, path: str, flags: int, mode: int = 0o777) -> int:
        number = os.open(path, flags, mode)
        if ".log" in os.path.basename(path):
            self._segments.add(number)
        return number

    def _close(self, number: int) -> None:
        self._segments.discard(number)
        os.close(number)

    def _seen(self, number: int, size: int) -> int:
        self.bytes_read += size if number in self._segments else 0
        return size

    def _pread(self, number: int, size: int, position: int) -> bytes:
        data = os.pread(number, size, position)
        self._seen(number, len(data))
        return data

    def _preadv(self, number: int, buffers: Any, position: int) -> int:
        return self._seen(number, os.preadv(number, buffers, position))

    def _pwrite(self, number: int, data: Any, position: int) -> int:
        written = os.pwrite(number, data, position)
        self.bytes_written += written
        return written

    def _pwritev(self, number: int, buffers: Any, position: int) -> int:
        written = os.pwritev(number, buffers, position)
        self.bytes_written += written
        return written


def backup_rows(directory: Path, megabytes: int) -> list[Row]:
    """Return the rows of backups and restores, and of a redaction of a backup."""
    data = directory / "data"
    count, log_bytes = make_log(data, megabytes)
    return _backup_rows(directory, data, log_bytes, count) + _redact_rows(directory / "backups", log_bytes, count)


def redact_rows(directory: Path, megabytes: int) -> list[Row]:
    """Return the rows of redactions of one key, of which one segment has a record."""
    count, log_bytes = make_log(directory / "data", megabytes)
    return _redact_rows(directory / "data", log_bytes, count)


def key(number: int) -> bytes:
    """Return the key of a record, which no other has."""
    return b"user-%09d" % number


def make_log(data: Path, megabytes: int) -> tuple[int, int]:
    """Write records of random bytes, one millisecond apart, with a key each; return their number, and the log's size.
    """
    count = megabytes * 1_000_000 // (RECORD_BYTES + 24)
    noise = random.Random(5).randbytes(PIECE_BYTES)
    size = RECORD_BYTES - len(key(0))
    segment_bytes = max(1 << 20, count * (RECORD_BYTES + 24) // SEGMENTS)
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic("t", 1, {"segment.bytes": segment_bytes, "retention.ms": -1})
        log = dirs["t", 0]
        for first in range(0, count, BATCH):
            log.append([
                (key(n), noise[(at := n * 7919 % (PIECE_BYTES - size)) : at + size], FIRST_MS + n)
                for n in range(first, min(first + BATCH, count))
            ])  # fmt: skip
    return count, sum(path.stat().st_size for path in data.rglob("*.log"))


def spent(work: Callable[[], object]) -> Spent:
    """Return what one run takes, with nothing of earlier ones left to write."""
    os.sync()
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Spent(time.process_time() - cpu, time.perf_counter() - wall)


def in_turns(works: Mapping[str, Callable[[], object]], target: Path, rounds: int) -> dict[str, Spent]:
    """Return the medians of some runs of each work, which writes to `target`; they take turns, for disks vary."""
    taken: dict[str, list[Spent]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            taken[name].append(spent(work))
            shutil.rmtree(target, ignore_errors=True)
    return {
        name: Spent(statistics.median(one.cpu for one in runs), statistics.median(one.wall for one in runs))
        for name, runs in taken.items()
    }


def read_all(paths: Iterable[Path], take: Callable[[bytes], object] = lambda data: None) -> None:
    """Read files from one end to the other."""
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while data := file.read(PIECE_BYTES):
                take(data)


def copy(data: Path, target: Path) -> None:
    """Copy a directory by reads and writes, and sync each file."""
    for path in sorted(data.rglob("*")):
        to = target / path.relative_to(data)
        if path.is_dir():
            to.mkdir(parents=True, exist_ok=True)
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        with to.open("wb", buffering=0) as file:
            read_all([path], file.write)
            os.fsync(file.fileno())


def _backup_rows(directory: Path, data: Path, log_bytes: int, count: int) -> list[Row]:
    gigabytes, backups, target = log_bytes / 1e9, directory / "backups", directory / "target"
    create_backup(data, backups)
    moment = FIRST_MS + count - 1 - count // 100

    def summed() -> None:
        read_all(sorted(data.rglob("*.log")), sha256().update)

    taken = in_turns(
        {
            "copy": lambda: copy(data, target), "sums": summed, "first": lambda: create_backup(data, target),
            "next": lambda: create_backup(data, backups), "verify": lambda: verify_backup(backups),
            "whole": lambda: restore_backup(backups, target),
            "moment": lambda: restore_backup(backups, target, at=moment),
        },
        target,
        ROUNDS if log_bytes <= MB_OF_ROUNDS * 1_000_000 else 1,
    )  # fmt: skip
    sums: Peers = {"SHA-256 of the bytes": gigabytes / taken["sums"].cpu}
    both: Peers = {**sums, "a copy": gigabytes / taken["copy"].cpu}
    synced: Peers = {"a synced copy": gigabytes / taken["copy"].wall}
    least = gigabytes / taken["copy"].wall * 0.8
    found = [Row("verify a backup", gigabytes / taken["verify"].cpu, 0, "GB/s", peers=sums)]
    found.append(Row("create a backup of an unchanged log", taken["next"].cpu, 1, "s CPU", True))
    for name, what, bar in (("first", "create a first backup", 0.0), ("whole", "restore a backup", least),
                            ("moment", "restore a moment", least)):  # fmt: skip
        found.append(Row(what, gigabytes / taken[name].cpu, 0, "GB/s", peers={**both}))
        found.append(Row(f"{what}, wall", gigabytes / taken[name].wall, bar, "GB/s", peers={**synced}))
    return found


def _redact_rows(place: Path, log_bytes: int, count: int) -> list[Row]:
    """Return the rows of redactions of a data directory, or of a directory of backups, which has no key index."""
    gigabytes, is_log = log_bytes / 1e9, (place / "t-0").exists()
    read = spent(lambda: read_all(sorted(place.rglob("*.log"))))
    peers: Peers = {"reading the bytes": gigabytes / read.cpu}
    wanted = (key(count * part // 16) for part in range(1, 16))
    found: list[Row] = []

    def measure(name: str, most_read: float) -> None:
        fs, one = Counting(), next(wanted)
        work: Callable[..., RedactReport] = redact if is_log else redact_backups
        taken = spent(lambda: _check(work(place, "t", keys=[one], apply=True, fs=fs)))
        written = f"{fs.bytes_written / 1e6:,.0f} MB written, {taken.wall:.2f} s wall"
        found.append(Row(name, gigabytes / taken.cpu, 0, "GB/s", peers={**peers}))
        times = fs.bytes_read / log_bytes
        found.append(Row(f"{name}: bytes read for each of the log", times, most_read, "", True, remark=written))

    extra = 10 / SEGMENTS  # one segment is rewritten and searched again, and the end of the log is looked for
    measure("redact one key" if is_log else "redact one key in a backup", 1.02 + extra)
    if is_log:
        with kafkalog.open(place / "t-0", "a") as log:
            log.roll()
            time.sleep(SETTLE_S)
            log.build_key_index()
        measure("redact one key, with a key index", 0.02 + extra)
    return found


def _check(report: RedactReport) -> None:
    if not report.ok or report.records < 1 or report.left:
        raise RuntimeError(str(report))
