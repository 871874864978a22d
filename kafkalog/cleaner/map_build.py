"""First half of a clean: the offset map of the keys in the dirty part of a log (CLN-3 to CLN-7, CLN-46)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkalog._core.batch.scan import REASON_MAGIC, REASON_SIZE, BatchTable, scan
from kafkalog._core.clean.live_offsets import LiveOffsets
from kafkalog._core.clean.map_filler import MapFiller
from kafkalog._core.log.txns import AbortedRanges
from kafkalog.cleaner.scanned_ranges import ScannedRange, ScannedRanges
from kafkalog.cleaner.segment_reader import SegmentReader
from kafkalog.cleaner.types import CheckDone, CleanerStats, Throttled
from kafkalog.errors import CorruptRecord
from kafkalog.records.plain_runs import plain_runs
from kafkalog.records.unpacked_limit import check_unpacked, limit_of
from kafkalog.storage.file_slice import HINT, LOG_OVERHEAD, bad_size, claimed_size
from kafkalog.storage.log_walk import bound_of, check_rows
from kafkalog.storage.read import collect_aborted

if TYPE_CHECKING:
    from kafkalog._core.clean.offset_map import SkimpyOffsetMap
    from kafkalog.cleaner.cleanable import CleanableLog

DEFAULT_LOAD_FACTOR: Final = 0.9
"""The default of log.cleaner.io.buffer.load.factor."""


def build_map(
    log: CleanableLog,
    start: int,
    end: int,
    offset_map: SkimpyOffsetMap,
    stats: CleanerStats,
    *,
    reader: SegmentReader,
    load_factor: float = DEFAULT_LOAD_FACTOR,
    check_done: CheckDone,
    throttled: Throttled,
    live: LiveOffsets | None = None,
    scanned_ranges: ScannedRanges | None = None,
) -> bool:
    """Rebuild the map with the last offset of each key in [start, end); return True if all keys fit.

    The map is full at `load_factor` of its slots. It then ends before the record that did not fit, and its
    `latest_offset` is the last offset that it covers; else that is `end` - 1, even if no record has that offset
    (CLN-4). Null keys and the keys of aborted transactions and control records are ignored (CLN-6, CLN-14, CLN-18). An
    empty range leaves the map empty. `stats.map_messages_read` and `stats.map_bytes_read` count what was read. `live`,
    made for this range, gets the records that are the last of their keys; `scanned_ranges` gets the verified ranges.

    CorruptRecord or InvalidRecord, with file and position, for a damaged batch, InvalidRecord also for a record that is
    larger than the topic allows (`unpacked_limit`); StorageError. Only the map was changed then. An exception that
    `check_done` raises between two chunks is passed on.
    """
    offset_map.clear(expected=max(0, end - start))
    state = log.state
    dirty = state.segments.values(start, max(start, end))
    if not dirty:
        return True
    aborted = AbortedRanges(entry[1:4] for entry in collect_aborted(state.segments, dirty[0], start, end))
    most_bytes = limit_of(log.config)
    max_keys = int(offset_map.slots * load_factor)
    filler = MapFiller(offset_map, aborted, start_offset=start, end_offset=end, most=max_keys, live=live)
    scanned_ranges = ScannedRanges(0) if scanned_ranges is None else scanned_ranges
    try:
        for number, segment in enumerate(dirty, 1):
            # from the first batch if all of the segment is wanted: no index is consulted then
            starts_inside = segment.base_offset < start
            reader.begin(segment.records, segment.offset_index.lookup(start).position if starts_inside else 0)
            try:
                range_ = segment.base_offset, bound_of(state.segments, segment.base_offset)
                for data, table in _chunks(reader, *range_, check_done, throttled):
                    if most_bytes is not None:
                        check_unpacked(data, table, most_bytes, reader.position, reader.records.path)
                    before = filler.messages_read, filler.unusual
                    if not _add_keys(filler, reader, data, table):
                        return False
                    stats.map_bytes_read += table.valid_bytes
                    scanned_ranges.add(segment.base_offset, _scanned_range(filler, before, reader, table))
            finally:
                reader.end()
            offset_map.update_latest_offset((dirty[number].base_offset if number < len(dirty) else end) - 1)
    finally:
        stats.map_messages_read += filler.messages_read
        if live is not None:
            live.settle(offset_map, filler.messages_read)
    return True


def _scanned_range(
    filler: MapFiller, before: tuple[int, int], reader: SegmentReader, table: BatchTable
) -> ScannedRange:
    """Return the range that the filler took from the chunk; `before` are its earlier message and unusual counts."""
    messages, unusual = filler.messages_read - before[0], filler.unusual - before[1]
    return ScannedRange(
        reader.position, table.valid_bytes, table.first_offset, table.last_offset, messages, unusual == 0
    )


def _chunks(
    reader: SegmentReader, next_offset: int, bound: int, check_done: CheckDone, throttled: Throttled
) -> Iterator[tuple[memoryview, BatchTable]]:
    """Yield the reader's verified complete batches, as many at a time as fit, with offsets ascending up to `bound`."""
    carried = 0
    while True:
        check_done()
        data = reader.chunk()
        if not len(data):
            return
        throttled(len(data) - carried)
        table = scan(data, base_position=reader.position)
        next_offset = _check_table(table, next_offset, bound, reader.records.path)
        carried = len(data) - table.valid_bytes
        if len(table):
            yield data, table
            reader.advance(table.valid_bytes)
        else:
            reader.grow(claimed_size(bytes(data[:LOG_OVERHEAD])))


def _add_keys(filler: MapFiller, reader: SegmentReader, data: memoryview, table: BatchTable) -> bool:
    """Put the keys of a chunk into the map; return False if the map is full."""
    for run in plain_runs(data, table, base_position=reader.position):
        goes_on = filler.take(run.data, run.table, run.first, run.last, run.base_position)
        if filler.is_full:
            return False
        if not goes_on:
            run.record_damage(filler)
        run.raise_failure(reader.records.path)
    return True


def _check_table(table: BatchTable, next_offset: int, bound: int, path: str) -> int:
    """Return the offset that comes next.

    CorruptRecord for an impossible size field, an unknown format, a checksum that does not match, or offsets that do
    not ascend up to `bound`.
    """
    next_offset = check_rows(table, next_offset, bound, path)
    if table.stop_reason == REASON_SIZE:
        raise bad_size(table.stop_value, path, table.stop_position)
    if table.stop_reason == REASON_MAGIC:
        message = f"a batch has the unknown format {table.stop_value}"
        raise CorruptRecord(message, path=path, position=table.stop_position, hint=HINT)
    return next_offset
