"""Benchmarks that fill a log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkalog.bench.meter import BLOCK_OPS, Meter
from kafkalog.bench.result import Result
from kafkalog.log.open import open as open_log
from kafkalog.util.text import human_size

if TYPE_CHECKING:
    from kafkalog.bench.data import Data, Written
    from kafkalog.bench.meter import Deadline
    from kafkalog.bench.settings import Settings
    from kafkalog.log.append import OneRecord
    from kafkalog.log.log import Log
    from kafkalog.types import LogAppendInfo

    _Make = Callable[[int, int], list[Written]]

SYNC_SHARE: Final = 100
"""`fillsync` writes one in this many of the records, since each waits for the disk."""
_BLOCK_BYTES: Final = 8 << 20
_MAX_MESSAGE_BYTES: Final = 1_048_588


def fill(
    name: str, path: str, settings: Settings, data: Data, deadline: Deadline, *, keys: int | None = None
) -> Result:
    """Fill a new log in the empty directory `path`; `keys` limits its keys and makes its topic compacted."""
    total = max(1, settings.num // SYNC_SHARE) if name == "fillsync" else settings.num
    more: dict[str, Any] = {}
    if settings.batch_bytes > _MAX_MESSAGE_BYTES:
        more["max_message_bytes"] = settings.batch_bytes
    if keys is not None:
        more["cleanup_policy"] = "compact"
    meter = Meter(deadline, settings.seed)
    with open_log(path, "a", sync=name == "fillsync", segment_bytes=settings.segment_bytes, **more) as log:
        work = _FILLS[name]
        work(log, meter, settings, partial(data.records, keys=keys), total)
        meter.records = log.end_offset
        meter.bytes = meter.records * settings.record_bytes
        notes = (f"{human_size(log.size)} on disk",)
    unit, asked = ("batch", -(-total // settings.batch_size)) if name == "fillbatch" else ("record", total)
    return Result.of(name, unit, asked, [meter], notes=notes)


def _blocks(total: int, record_bytes: int, most: int = BLOCK_OPS) -> Iterator[tuple[int, int]]:
    """Yield the numbers [0, total) in ranges of some megabytes of records, at most `most` records each."""
    size = max(1, min(most, _BLOCK_BYTES // record_bytes))
    for first in range(0, total, size):
        yield first, min(first + size, total)


def _compressing(log: Log, settings: Settings) -> Callable[[OneRecord | Iterable[OneRecord]], LogAppendInfo]:
    return log.append if settings.compression == "none" else partial(log.append, compression=settings.compression)


def _one_by_one(log: Log, meter: Meter, settings: Settings, make: _Make, total: int) -> None:
    append = _compressing(log, settings)
    for first, stop in _blocks(total, settings.record_bytes):
        if meter.each(map(append, make(first, stop))) < stop - first:
            break


def _by_batch(log: Log, meter: Meter, settings: Settings, make: _Make, total: int) -> None:
    append, size = _compressing(log, settings), settings.batch_size
    count = -(-total // size)
    for first, stop in _blocks(count, settings.record_bytes * size):
        batches = [make(n * size, min((n + 1) * size, total)) for n in range(first, stop)]
        if meter.each(map(append, batches)) < stop - first:
            break


def _by_writer(log: Log, meter: Meter, settings: Settings, make: _Make, total: int) -> None:
    """Append with a writer; the time of the final flush counts, but not as an operation."""
    with log.writer(compression=settings.compression) as writer:
        for first, stop in _blocks(total, settings.record_bytes):
            keys, values, times = zip(*make(first, stop), strict=True)
            if meter.some(map(writer.append, values, keys, times), stop - first) < stop - first:
                break
        meter.add_time(writer.flush)


_FILLS: Final = {"fillseq": _one_by_one, "fillsync": _one_by_one, "fillwriter": _by_writer, "fillbatch": _by_batch}
