"""The cost of durability: a commit of one record of 100 bytes in each mode, many threads, idempotent producers.

A commit waits for the disk, so these are wall times; ours and SQLite's (WAL, synchronous=FULL) are taken in turns, in
the same directory. A row has the median, and the 99th percentile as its own row.
"""

import os
import sqlite3
import statistics
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import kafkalog
from asv_benchmarks.benchmarks.common import batch
from asv_benchmarks.measure import Peers, Row, cpu_seconds, quantile, wall_seconds
from kafkalog._core.bytes.crc import crc32c
from kafkalog.log.open_writable import open_for_append
from kafkalog.util.fileio import FileSystem

VALUE = b"x" * 100
TURNS, COMMITS = 100, 8
THREADS = 8
PAIRS, SECONDS = 20, 0.2
Commit = Callable[[], object]


class Counting(FileSystem):
    """Counts the syncs."""

    def __init__(self) -> None:
        self.syncs = 0

    def fdatasync(self, fd: int) -> None:  # type: ignore[override]
        self.syncs += 1
        os.fdatasync(fd)

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        self.syncs += 1
        os.fsync(fd)


def rows(directory: Path) -> list[Row]:
    """Return the rows of modes, then of threads, then of producers."""
    return [*mode_rows(directory), *thread_rows(directory), *idempotent_rows(directory)]


def mode_rows(directory: Path) -> list[Row]:
    """Return p50 and p99 of a commit in each mode, in microseconds."""
    with ExitStack() as open_ones:
        modes = {name: commit_in(name, directory, open_ones) for name in BARS}
        sqlite = {"SQLite WAL FULL": _sqlite(directory, "FULL", open_ones)}
        sqlite["SQLite WAL NORMAL"] = _sqlite(directory, "NORMAL", open_ones)
        taken: dict[str, list[float]] = {name: [] for name in (*modes, *sqlite)}
        for turn in range(TURNS + 1):
            for name, commit in (*modes.items(), *sqlite.items()):
                times = [1e6 * wall_seconds(commit) for _ in range(COMMITS)]
                taken[name] += times if turn else []
    found = []
    for name, peer in BARS.items():
        for percent in (50, 99):
            value, others = (quantile(taken[one], percent) for one in (name, peer))
            bar = others * (1.5 if percent == 50 else 2)
            found.append(Row(f"commit, {name}, p{percent}", value, round(bar, 1), "us", True, {peer: others}))
    return found


BARS = {
    "sync=False": "SQLite WAL NORMAL",
    "sync=10 ms": "SQLite WAL FULL",
    "sync=True": "SQLite WAL FULL",
    "flush.messages=1": "SQLite WAL FULL",
    "writer(sync=True)": "SQLite WAL FULL",
}
"""A commit takes at most half more than that of a peer that promises as much (p99: twice, it is the disk's).

Our file grows with each commit, so that a sync writes its length as well; SQLite's is overwritten in place.
"""


def commit_in(name: str, directory: Path, open_ones: ExitStack) -> Commit:
    """Return what commits one record to a new log in the named mode; the log is closed with `open_ones`."""
    path = directory / f"mode{len(list(directory.iterdir()))}-0"
    if name == "flush.messages=1":
        log = open_ones.enter_context(kafkalog.open(path, "a", flush_messages=1))
    elif name == "writer(sync=True)":
        log = open_ones.enter_context(kafkalog.open(path, "a"))
        writer = open_ones.enter_context(log.writer(sync=True))
        return lambda: writer.append(VALUE).result()
    else:
        sync = {"sync=False": False, "sync=10 ms": 10, "sync=True": True}[name]
        log = open_ones.enter_context(kafkalog.open(path, "a", sync=sync))
    return lambda: log.append(VALUE)


def _sqlite(directory: Path, synchronous: str, open_ones: ExitStack) -> Commit:
    store = sqlite3.connect(directory / f"{synchronous}.db", isolation_level=None)
    open_ones.callback(store.close)
    store.execute("pragma journal_mode=wal")
    store.execute(f"pragma synchronous={synchronous}")
    store.execute("create table log (at integer primary key, value blob)")
    return lambda: store.execute("insert into log (value) values (?)", (VALUE,))


def thread_rows(directory: Path) -> list[Row]:
    """Return the rate of commits of eight threads over that of one, medians of slots in turns, and commits per sync."""
    found = []
    for name, bar in (("writer(sync=True)", 5.0), ("append, sync=True", 3.0)):
        taken: dict[int, list[tuple[float, float]]] = {1: [], THREADS: []}
        for turn in range(PAIRS):
            for threads, slots in taken.items():
                slots.append(_together(directory / f"{name[0]}{turn}x{threads}-0", name, threads))
        rate = {threads: statistics.median(slot[0] for slot in slots) for threads, slots in taken.items()}
        shared = {threads: statistics.median(slot[1] for slot in slots) for threads, slots in taken.items()}
        peers: Peers = {
            "commits/s": f"{rate[1]:.0f} -> {rate[THREADS]:.0f}",
            "commits a sync": f"{shared[1]:.2f} -> {shared[THREADS]:.2f}",
        }
        found.append(Row(f"{THREADS} threads over one, {name}", rate[THREADS] / rate[1], bar, "x", False, peers))
    return found


def _together(path: Path, name: str, threads: int) -> tuple[float, float]:
    """Return (commits per second, commits per sync) of some threads, each with one record in progress."""
    fs, stop, counts = Counting(), threading.Event(), [0] * threads
    with ExitStack() as open_ones:
        opened = open_for_append(path, sync=name.startswith("append"), fs=fs)
        log = open_ones.enter_context(kafkalog.Log(opened.log, opened))
        writer = open_ones.enter_context(log.writer(sync=True)) if name.startswith("writer") else None

        def run(number: int) -> None:
            while not stop.is_set():
                if writer is None:
                    log.append(VALUE)
                else:
                    writer.append(VALUE).result()
                counts[number] += 1

        running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
        for thread in running:
            thread.start()
        time.sleep(SECONDS / 4)
        before, syncs, began = sum(counts), fs.syncs, time.perf_counter()
        time.sleep(SECONDS)
        commits, spent, syncs = sum(counts) - before, time.perf_counter() - began, fs.syncs - syncs
        stop.set()
        for thread in running:
            thread.join()
    return commits / spent, commits / max(1, syncs)


def idempotent_rows(directory: Path) -> list[Row]:
    """Return the extra CPU, in percent, of ready batches with producer id and sequence over those without."""
    found = []
    for count, group in ((1, 1), (100, 1), (1, 50), (100, 20)):
        plain, idempotent = _ready(count, group, None), _ready(count, group, 7)
        logs = [
            kafkalog.open(directory / f"{name}{count}x{group}-0", "a", segment_bytes=1 << 29)
            for name in ("plain", "idempotent")
        ]
        taken: list[list[float]] = [[], []]
        for _ in range(15):
            for at, (log, batches) in enumerate(zip(logs, (plain, idempotent), strict=True)):
                taken[at].append(_appended(log, batches))
        for log in logs:
            log.close()
        base, other = (sorted(times)[len(times) // 2] for times in taken)
        what = f"batches of {count}" if group == 1 else f"{group} batches of {count} in one call"
        found.append(
            Row(f"idempotent over plain append, {what}", (other / base - 1) * 100, 15, "%", True,
                {"us a batch": f"{base * 1e6:.2f} -> {other * 1e6:.2f}"})
        )  # fmt: skip
    return found


def _appended(log: kafkalog.Log, batches: list[bytearray]) -> float:
    """Return the CPU seconds of a batch; the log is emptied, and with it its producers."""
    spent = cpu_seconds(partial(deque, map(log.append_bytes, batches), 0))
    log.truncate_to(0)
    return spent / 2000


def _ready(count: int, group: int, producer_id: int | None) -> list[bytearray]:
    """Return 2000 batches, `group` of them back to back, with consecutive sequences if they have a producer."""
    one, made = batch(count), []
    for number in range(2000):
        data = bytearray(one)
        if producer_id is not None:
            struct.pack_into(">qhi", data, 43, producer_id, 0, number * count)
            struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
        made.append(data)
    return [bytearray(b"".join(made[at : at + group])) for at in range(0, len(made), group)]
