"""One clean of one log: map the newest offset of each key, then rewrite every segment below the map's end.

    [0, end of the map)  ->  groups that fit a segment  ->  `.cleaned` files  ->  on disk  ->  in their place

`retain.py` decides what is kept; this file reads, writes and swaps. Each byte is read once for the map and once here,
and written once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import perf_counter
from typing import Final

from kafkalog._core.batch.scan import scan
from kafkalog._core.clean.live_offsets import LiveOffsets
from kafkalog._core.clean.offset_map import BYTES_PER_SLOT, SkimpyOffsetMap
from kafkalog.cleaner.cleanable import CleanRange
from kafkalog.cleaner.groups import group_segments
from kafkalog.cleaner.map_build import build_map
from kafkalog.cleaner.retain import Retainer, last_records_of, legacy_delete_horizon_ms
from kafkalog.cleaner.scanned_ranges import ScannedRanges
from kafkalog.cleaner.segment_reader import SegmentReader
from kafkalog.cleaner.segment_writer import SegmentWriter
from kafkalog.cleaner.transactions import CleanedTransactions
from kafkalog.cleaner.types import CheckDone, CleanerStats, CleanResult, LogToClean, Progress, Throttled
from kafkalog.errors import CleaningAborted, IllegalState, KafkalogError, SegmentOffsetOverflow
from kafkalog.records.unpacked_limit import check_unpacked, limit_of
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.log_parts.replacer import LogReplacer
from kafkalog.storage.log_walk import bound_of, check_rows
from kafkalog.storage.read import collect_aborted
from kafkalog.storage.segment import LogSegment

_LOG: Final = logging.getLogger(__name__)
IO_BUFFER_BYTES: Final = 256 << 10
"""Half of log.cleaner.io.buffer.size: one buffer for reading, one for writing."""
LOAD_FACTOR: Final = 0.9
"""log.cleaner.io.buffer.load.factor."""
_LIVE_SHARE: Final = 32
"""For each 32 bytes of the map, one more byte may mark which of eight offsets are the last of their keys."""


def clean(
    to_clean: CleanRange | LogToClean,
    offset_map: SkimpyOffsetMap,
    *,
    now_ms: int,
    load_factor: float = LOAD_FACTOR,
    io_buffer_bytes: int = IO_BUFFER_BYTES,
    check_done: CheckDone = lambda: None,
    throttled: Throttled = lambda size: None,
    stats: CleanerStats | None = None,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> CleanResult:
    """Clean a log once, as far as the map's load limit reaches, and return the new end and statistics (CLN-3).

    Delete horizons count from `now_ms`. `check_done` is called between chunks and before each swap, `throttled` with
    bytes read and written. `stats` are updated during the clean, for other threads to read, and `progress` is called
    with them after each `check_done`. With `dry_run` nothing is written. A group of segments that was replaced stays
    replaced even if a later group fails; otherwise an error leaves the log as it was.

    CleaningAborted from `check_done`, if the log was truncated meanwhile, or if a segment had to be split first
    (CLN-26); IllegalState while another thread cleans it; CorruptRecord, StorageError.
    """
    stats = CleanerStats(perf_counter()) if stats is None else stats
    log = to_clean.log

    def check() -> None:
        check_done()
        if progress is not None:
            progress(stats)
            check_done()  # the progress may have closed the log

    with log.being_cleaned() as truncations:
        one = _Pass(to_clean, offset_map, now_ms, load_factor, io_buffer_bytes, check, throttled, stats, truncations)
        try:
            end_offset = one.run(dry_run)
        except KafkalogError as error:
            if not isinstance(error, CleaningAborted) and not log.closed and not log.failed:
                log.check_unchanged(one.segments, truncations)  # a change of the log is then the cause
            raise
    stats.end_s = perf_counter()
    return CleanResult(max(end_offset, to_clean.first_dirty_offset), stats)  # an empty map ends at 0


class _Pass:
    """State that one clean carries from segment to segment."""

    def __init__(
        self,
        to_clean: CleanRange | LogToClean,
        offset_map: SkimpyOffsetMap,
        now_ms: int,
        load_factor: float,
        io_buffer_bytes: int,
        check_done: CheckDone,
        throttled: Throttled,
        stats: CleanerStats,
        truncations: int,
    ) -> None:
        self.to_clean = to_clean
        self.log = to_clean.log
        self.config = to_clean.log.config
        self.most_bytes = limit_of(self.config)
        self.offset_map = offset_map
        self.load_factor = load_factor
        self.check_done = check_done
        self.throttled = throttled
        self.stats = stats
        self.truncation_count = truncations
        self.reader = SegmentReader(io_buffer_bytes, self.log.fs)
        self.writer = SegmentWriter(io_buffer_bytes)
        self.transactions = CleanedTransactions()
        self.scanned_ranges = ScannedRanges()
        self.live = LiveOffsets(
            to_clean.first_dirty_offset,
            to_clean.first_uncleanable_offset,
            offset_map.slots * BYTES_PER_SLOT // _LIVE_SHARE,
        )
        self.retainer = Retainer(
            offset_map,
            self.transactions,
            now_ms=now_ms,
            delete_retention_ms=self.config.delete_retention_ms,
            upper_bound_offset=to_clean.first_uncleanable_offset,
            live=self.live,
        )
        self.legacy_horizon_ms = 0
        self.segments = self.log.segments.values(0, to_clean.first_uncleanable_offset)  # not replaced yet

    def _legacy_horizon_ms(self) -> int:
        """Return the file time below which tombstones of formats v0 and v1 are dropped (CLN-8)."""
        dirty = self.to_clean.first_dirty_offset
        clean = [segment for segment in self.segments if segment.base_offset < dirty]
        last_ms = clean[-1].records.last_modified_ms() if clean else None
        return legacy_delete_horizon_ms(last_ms, self.config.delete_retention_ms)

    def run(self, dry_run: bool) -> int:
        """Run the clean and return the first offset that is not clean."""
        self._check_bound()
        self.legacy_horizon_ms = self._legacy_horizon_ms()
        end_offset = self._build_map()
        uncleanable = self.to_clean.first_uncleanable_offset
        segments = [segment for segment in self.segments if segment.base_offset < end_offset]
        for group in group_segments(segments, self.config.segment_size, self.config.segment_index_bytes, uncleanable):
            if dry_run:
                self._rewrite(group, None)
            else:
                self._clean_group(group)
        self.stats.buffer_utilization = self.offset_map.utilization
        return end_offset

    def _check_bound(self) -> None:
        """Raise CleaningAborted if the log was truncated after it was chosen: undecided offsets are not cleaned."""
        state = self.log.state
        bound = min(state.last_stable_offset, state.segments.active.base_offset)
        if self.to_clean.first_uncleanable_offset > bound:
            message = f"log {self.log.name} was to be cleaned up to {self.to_clean.first_uncleanable_offset}"
            raise CleaningAborted(
                f"{message}, but it is decided only up to {bound}", path=self.log.path, hint="select the log again"
            )

    def _build_map(self) -> int:
        _LOG.info("building the offset map of log %s from %d", self.log.name, self.to_clean.first_dirty_offset)
        build_map(
            self.log,
            self.to_clean.first_dirty_offset,
            self.to_clean.first_uncleanable_offset,
            self.offset_map,
            self.stats,
            load_factor=self.load_factor,
            reader=self.reader,
            check_done=self.check_done,
            throttled=self.throttled,
            live=self.live,
            scanned_ranges=self.scanned_ranges,
        )
        self.stats.map_complete_s = perf_counter()
        end_offset: int = self.offset_map.latest_offset + 1
        return end_offset

    def _clean_group(self, group: Sequence[LogSegment]) -> None:
        """Replace a group by one segment with the first one's base offset and the last one's file time (CLN-25)."""
        replacer = self._replacer()
        cleaned = replacer.new_cleaned_segment(group[0].base_offset)
        self.writer.begin(cleaned)
        try:
            self._rewrite(group, cleaned)
            self.writer.finish()
            self.stats.write_calls = self.writer.writes
            cleaned.on_become_inactive()
            cleaned.set_last_modified(group[-1].records.last_modified_ns(), self.log.fs)
            cleaned.flush()
            self.check_done()
            bases = [segment.base_offset for segment in group]
            _LOG.info("log %s: merging segments %s into one of %d bytes", self.log.name, bases, cleaned.size)
            self._replace((cleaned,), group)
        except BaseException:
            replacer.drop_unused((cleaned,))
            raise

    def _replacer(self) -> LogReplacer:
        """Return the log's component that replaces segments."""
        if not isinstance(self.log, UnifiedLog):
            raise IllegalState(f"log {self.log.name} is open read-only: it cannot be written", path=self.log.path)
        return self.log.replacer

    def _split(self, segment: LogSegment) -> None:
        replacer = self._replacer()
        parts = replacer.split_overflowed(segment)
        try:
            self._replace(parts, (segment,))
        except BaseException:
            replacer.drop_unused(parts)
            raise

    def _replace(self, new: Sequence[LogSegment], old: Sequence[LogSegment]) -> None:
        try:
            self._replacer().replace_segments(new, old, self.truncation_count)
        finally:
            if self.log.segments.get(new[0].base_offset) is new[0]:  # also after an error that followed the swap
                replaced = {segment.base_offset for segment in old}
                self.segments = tuple(segment for segment in self.segments if segment.base_offset not in replaced)

    def _rewrite(self, group: Sequence[LogSegment], cleaned: LogSegment | None) -> None:
        last_records = last_records_of(self.log.producers)
        for segment in group:
            bound = bound_of(self.log.segments, segment.base_offset)
            self.transactions.add_aborted(collect_aborted(self.log.segments, segment, segment.base_offset, bound))
            self.retainer.begin_segment(
                segment.path,
                retain_legacy_deletes=segment.records.last_modified_ms() > self.legacy_horizon_ms,
                last_records=last_records,
            )
            try:
                self._rewrite_segment(segment, bound, cleaned)
            except SegmentOffsetOverflow as error:
                _LOG.warning("%s: splitting the segment first", error)
                if cleaned is not None:  # the first part has the same name
                    self._replacer().drop_unused((cleaned,))
                path = segment.path  # until it is renamed
                self._split(segment)
                raise CleaningAborted(
                    f"a segment of log {self.log.name} had to be split", path=path, hint="clean it again"
                ) from error
            aborted = self.transactions.take_retained()
            if aborted and cleaned is not None:
                for entry in aborted:
                    cleaned.add_aborted(entry)

    def _rewrite_segment(self, segment: LogSegment, bound: int, cleaned: LogSegment | None) -> None:
        """Append what is kept of a segment, whose offsets lie below `bound`, to `cleaned` (None: only count it)."""
        reader, stats, next_offset = self.reader, self.stats, segment.base_offset
        reader.begin(segment.records)
        try:
            while reader.unread:
                self.check_done()
                scanned_range, most = self.scanned_ranges.find(segment.base_offset, reader.position)
                if scanned_range is not None and self.retainer.drops(scanned_range):
                    stats.bytes_read += scanned_range.size
                    stats.messages_read += scanned_range.messages
                    reader.skip(scanned_range.size)
                    next_offset = scanned_range.last_offset + 1
                    continue
                chunk = reader.chunk(most)
                if self.most_bytes is not None:
                    table = scan(chunk, base_position=reader.position)
                    check_unpacked(chunk, table, self.most_bytes, reader.position, segment.path)
                found = self.retainer.filter(chunk, reader.position, is_checked=scanned_range is not None)
                if not found.bytes_read:
                    reader.grow(found.needed_bytes)
                    continue
                next_offset = check_rows(found.scanned, next_offset, bound, segment.path, reader.position)
                self.throttled(found.bytes_read)
                stats.bytes_read += found.bytes_read
                stats.messages_read += found.messages_read
                stats.invalid_messages_read += found.invalid_messages
                stats.bytes_written += found.bytes_retained
                stats.messages_written += found.messages_retained
                if found.bytes_retained:
                    if cleaned is not None:
                        self.writer.append(found.data, found.table)
                    self.throttled(found.bytes_retained)
                reader.advance(found.bytes_read)
        finally:
            reader.end()
