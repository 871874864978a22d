"""Benchmarks that read a log, in one thread or several, without changing it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Final

from kafkalog._core.bytes.residency import absent_runs
from kafkalog.bench.meter import BLOCK_OPS, Deadline, Meter
from kafkalog.bench.result import Result
from kafkalog.errors import OffsetOutOfRange
from kafkalog.log.open import open as open_log
from kafkalog.util.fileio import OS, File
from kafkalog.util.system_calls import SYSTEM

if TYPE_CHECKING:
    from kafkalog.bench.settings import Settings
    from kafkalog.log.log import Log

_UNITS: Final = {"readseq": "record", "readbatches": "batch", "readcolumns": "table", "readtime": "look-up",
                 "readrandom": "read", "verify": "verification"}  # fmt: skip
_Work = Callable[["Log", Meter, int, int, Random], None]


def read(name: str, path: str, settings: Settings, deadline: Callable[[], Deadline], *, is_ours: bool) -> Result:
    """Benchmark reading the log at `path`, opened for reading; `deadline` is called when reading starts.

    Each thread reads a share: of the offsets for sequential reads, else of the operations.
    """
    is_local = os.path.isdir(path)
    with open_log(path) as log:
        first, end = log.start_offset, log.end_offset
        if settings.cold and is_local:
            drop_pages(log.path, sync=is_ours)
        cached = cached_share(log.path) if is_local else None
        limit = deadline()
        threads = 1 if name == "verify" else min(settings.threads, max(end - first, 1))
        meters = [Meter(limit, settings.seed + n) for n in range(threads)]
        random = name in _AT_RANDOM
        count = settings.num if random else min(end - first, settings.num)
        bounds = [(0 if random else first) + count * n // threads for n in range(threads + 1)]
        work = _AT_RANDOM.get(name) or _THROUGH[name]
        if end > first:
            _in_threads(
                lambda n: work(log, meters[n], bounds[n], bounds[n + 1], Random(settings.seed + n)), meters, limit
            )
        asked = count if random and end > first else None
        notes = ("the log is empty",) if end == first else ()
    return Result.of(name, _UNITS[name], asked, meters, cached=cached, notes=notes)


def _in_threads(work: Callable[[int], None], meters: list[Meter], limit: Deadline) -> None:
    """Run `work` for each meter, each in a separate thread; an error of one of them, or a Ctrl-C, ends them all."""
    if len(meters) == 1:
        work(0)
        return
    with ThreadPoolExecutor(len(meters), thread_name_prefix="kafkalog-bench") as pool:
        try:
            for future in [pool.submit(work, n) for n in range(len(meters))]:
                future.result()
        except BaseException:
            limit.pass_now()
            raise


def _records(log: Log, meter: Meter, first: int, stop: int, random: Random) -> None:
    records = log.records(first, stop)
    while meter.read_through(records, stop - first) and not meter.was_cut:
        continue


def _batches(log: Log, meter: Meter, first: int, stop: int, random: Random) -> None:
    def counted() -> Iterator[None]:
        for batch in log.batches(first, stop):
            if batch.header.base_offset < first != log.start_offset:
                continue  # the thread before counts it
            meter.bytes += batch.size
            meter.records += batch.header.count or 0
            yield

    _through(meter, counted())


def _columns(log: Log, meter: Meter, first: int, stop: int, random: Random) -> None:
    def counted() -> Iterator[None]:
        for table in log.scan(start=first, stop=stop):
            meter.bytes += table.nbytes
            meter.records += len(table)
            yield

    _through(meter, counted())


def _through(meter: Meter, steps: Iterator[None]) -> None:
    while meter.each(islice(steps, BLOCK_OPS)) == BLOCK_OPS:
        continue


def _by_offset(log: Log, meter: Meter, first: int, stop: int, random: Random) -> None:
    offsets = range(log.start_offset, log.end_offset)

    def step(offset: int) -> None:
        try:
            record = log[offset]
        except OffsetOutOfRange:
            return  # a gap: only records that were found count
        key, value = record.key, record.value
        meter.bytes += (0 if key is None else len(key)) + (0 if value is None else len(value))
        meter.records += 1

    _at_random(meter, step, offsets, stop - first, random)


def _by_time(log: Log, meter: Meter, first: int, stop: int, random: Random) -> None:
    newest = log.offset_for_time(-3)
    oldest = next(log.records(), None)
    begin = max(0 if oldest is None else oldest.timestamp, 0)
    times = range(begin, max(begin, -1 if newest is None else newest.timestamp) + 1)

    def step(time: int) -> None:
        if log.offset_for_time(time) is not None:
            meter.records += 1

    _at_random(meter, step, times, stop - first, random)


def _at_random(meter: Meter, step: Callable[[int], None], among: range, count: int, random: Random) -> None:
    for done in range(0, count, BLOCK_OPS):
        block = random.choices(among, k=min(BLOCK_OPS, count - done))
        if meter.each(map(step, block)) < len(block):
            break


def _verify(log: Log, meter: Meter, first: int, stop: int, random: Random) -> None:
    meter.once(log.verify)
    meter.bytes, meter.records = log.size, log.end_offset - log.start_offset


_THROUGH: Final[dict[str, _Work]] = {
    "readseq": _records, "readbatches": _batches, "readcolumns": _columns, "verify": _verify
}  # fmt: skip
_AT_RANDOM: Final[dict[str, _Work]] = {"readrandom": _by_offset, "readtime": _by_time}


_MOST_RUNS = 1 << 20


def cached_share(directory: str) -> float | None:
    """Return the share of the bytes of a partition's files that is in memory; None if unknown."""
    size = absent = 0
    for file in _files(directory):
        with file:
            length = file.size()
            try:
                absent += sum(min(run, length - at) for at, run in absent_runs(file.fileno(), length, _MOST_RUNS))
            except OSError:
                return None
            size += length
    return 1 - absent / size if size else None


def drop_pages(directory: str, *, sync: bool) -> None:
    """Ask the system to drop cached pages of a partition's files, after a `sync`, since it keeps unsynced pages.

    `cached_share` shows the effect: a file system in memory cannot drop pages.
    """
    for file in _files(directory):
        with file:
            try:
                if sync:
                    file.sync()
                OS.advise(file.fileno(), 0, 0, SYSTEM.advice_dont_need)
            except OSError:
                continue


def _files(directory: str) -> list[File]:
    """Return the regular files, opened for reading, without files that were deleted meanwhile."""
    found = []
    try:
        for name in OS.names(directory):
            try:
                found.append(OS.open_file(os.path.join(directory, name), "r"))
            except OSError:
                continue
    except OSError:
        return []
    return found
