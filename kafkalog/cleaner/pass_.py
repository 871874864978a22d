"""One clean of one log: the map of the newest offsets by key, then every segment below its end written anew.

    [0, end of the map)  ->  groups that fit a segment  ->  `.cleaned` files  ->  on disk  ->  in their place

What is kept is decided in `retain.py`; this file reads, writes and swaps. Each byte is read once for the map and once
here, and written once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import perf_counter
from typing import Final

from kafkalog._core.live_offsets import LiveOffsets
from kafkalog._core.offset_map import BYTES_PER_SLOT, SkimpyOffsetMap
from kafkalog.cleaner.cleanable import Cleanable
from kafkalog.cleaner.groups import group_segments
from kafkalog.cleaner.map_build import build_map
from kafkalog.cleaner.retain import Retainer, last_records_of, legacy_delete_horizon_ms
from kafkalog.cleaner.segment_reader import SegmentReader
from kafkalog.cleaner.segment_writer import SegmentWriter
from kafkalog.cleaner.stretches import Stretches
from kafkalog.cleaner.transactions import CleanedTransactions
from kafkalog.cleaner.types import CheckDone, CleanerStats, CleanResult, Throttled
from kafkalog.errors import CleaningAborted, IllegalState, KafkalogError, SegmentOffsetOverflow
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.log_walk import bound_of, check_rows
from kafkalog.storage.read import collect_aborted
from kafkalog.storage.segment import LogSegment

_LOG: Final = logging.getLogger(__name__)
IO_BUFFER_BYTES: Final = 256 << 10
"""Half of log.cleaner.io.buffer.size: one buffer for reading, one for writing."""
LOAD_FACTOR: Final = 0.9
"""log.cleaner.io.buffer.load.factor."""
_LIVE_SHARE: Final = 32
"""For each 32 bytes of the map there may be another one that says of eight offsets which are the last of their keys."""


def clean(
    to_clean: Cleanable,
    offset_map: SkimpyOffsetMap,
    *,
    now_ms: int,
    load_factor: float = LOAD_FACTOR,
    io_buffer_bytes: int = IO_BUFFER_BYTES,
    check_done: CheckDone = lambda: None,
    throttled: Throttled = lambda size: None,
    stats: CleanerStats | None = None,
    dry_run: bool = False,
) -> CleanResult:
    """How far the log is clean now, and what that took: one round of CLN-3, as far as the map's load limit reaches.

    `now_ms` is what delete horizons count from. `check_done` is called between chunks and before each swap, `throttled`
    with bytes read and written. `stats` are counted while it goes on, where somebody else watches them. With `dry_run`
    nothing is written. What one group of segments became stays, whatever happens to the next one; otherwise an error
    leaves the log as it was.

    CleaningAborted of `check_done`, where the log was cut meanwhile, and where a segment had to be split first
    (CLN-26); IllegalState while it is being cleaned by another; CorruptRecord, StorageError.
    """
    stats = CleanerStats(perf_counter()) if stats is None else stats
    log = to_clean.log
    with log.being_cleaned() as cuts:
        one = _Pass(to_clean, offset_map, now_ms, load_factor, io_buffer_bytes, check_done, throttled, stats, cuts)
        try:
            end_offset = one.run(dry_run)
        except KafkalogError as error:
            if not isinstance(error, CleaningAborted) and not log.closed and not log.failed:
                log.check_unchanged(one.segments, cuts)  # else that is why
            raise
    stats.end_s = perf_counter()
    return CleanResult(end_offset, stats)


class _Pass:
    """What goes from segment to segment of one clean."""

    def __init__(
        self,
        to_clean: Cleanable,
        offset_map: SkimpyOffsetMap,
        now_ms: int,
        load_factor: float,
        io_buffer_bytes: int,
        check_done: CheckDone,
        throttled: Throttled,
        stats: CleanerStats,
        cuts: int,
    ) -> None:
        self.to_clean = to_clean
        self.log = to_clean.log
        self.config = to_clean.log.config
        self.offset_map = offset_map
        self.load_factor = load_factor
        self.check_done = check_done
        self.throttled = throttled
        self.stats = stats
        self.cuts = cuts
        self.reader = SegmentReader(io_buffer_bytes, self.log.fs)
        self.writer = SegmentWriter(io_buffer_bytes)
        self.transactions = CleanedTransactions()
        self.stretches = Stretches()
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
        """Below this file time tombstones of formats v0 and v1 go (CLN-8)."""
        dirty = self.to_clean.first_dirty_offset
        clean = [segment for segment in self.segments if segment.base_offset < dirty]
        last_ms = clean[-1].records.last_modified_ms() if clean else None
        return legacy_delete_horizon_ms(last_ms, self.config.delete_retention_ms)

    def run(self, dry_run: bool) -> int:
        """The first offset that is not clean."""
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
        """CleaningAborted where the log was cut between the choice and the clean: what is undecided is not cleaned."""
        state = self.log.state
        bound = min(state.last_stable_offset, state.segments.active.base_offset)
        if self.to_clean.first_uncleanable_offset > bound:
            what = f"log {self.log.name} was to be cleaned up to {self.to_clean.first_uncleanable_offset}"
            raise CleaningAborted(f"{what}, it is decided up to {bound}", path=self.log.path, hint="choose again")

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
            stretches=self.stretches,
        )
        self.stats.map_complete_s = perf_counter()
        end_offset: int = self.offset_map.latest_offset + 1
        return end_offset

    def _clean_group(self, group: Sequence[LogSegment]) -> None:
        """Put one segment in the place of a group: its base is the first one's, its time the last one's (CLN-25)."""
        owner = self._owner()
        cleaned = owner.new_cleaned_segment(group[0].base_offset)
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
            _LOG.info("log %s: segments %s become one of %d bytes", self.log.name, bases, cleaned.size)
            self._replace((cleaned,), group)
        except BaseException:
            owner.drop_unused((cleaned,))
            raise

    def _owner(self) -> UnifiedLog:
        """The log, to be written."""
        if not isinstance(self.log, UnifiedLog):
            raise IllegalState(f"log {self.log.name} is only looked at: it cannot be written", path=self.log.path)
        return self.log

    def _split(self, segment: LogSegment) -> None:
        owner = self._owner()
        parts = owner.parts_of_overflowed(segment)
        try:
            self._replace(parts, (segment,))
        except BaseException:
            owner.drop_unused(parts)
            raise

    def _replace(self, new: Sequence[LogSegment], old: Sequence[LogSegment]) -> None:
        try:
            self._owner().replace_segments(new, old, self.cuts)
        finally:
            if self.log.segments.get(new[0].base_offset) is new[0]:  # so it is after an error behind the swap, too
                gone = {segment.base_offset for segment in old}
                self.segments = tuple(segment for segment in self.segments if segment.base_offset not in gone)

    def _rewrite(self, group: Sequence[LogSegment], cleaned: LogSegment | None) -> None:
        last_records = last_records_of(self.log.producers)
        for at, segment in enumerate(group):
            end = group[at + 1].base_offset if at + 1 < len(group) else segment.read_next_offset()
            self.transactions.add_aborted(collect_aborted(self.log.state, segment, segment.base_offset, end))
            self.retainer.begin_segment(
                segment.path,
                retain_legacy_deletes=segment.records.last_modified_ms() > self.legacy_horizon_ms,
                last_records=last_records,
            )
            try:
                self._rewrite_segment(segment, cleaned)
            except SegmentOffsetOverflow as error:
                _LOG.warning("%s: it is split first", error)
                if cleaned is not None:  # the first part has the same name
                    self._owner().drop_unused((cleaned,))
                path = segment.path  # until it is renamed
                self._split(segment)
                raise CleaningAborted(
                    f"a segment of log {self.log.name} had to be split", path=path, hint="clean it again"
                ) from error
            aborted = self.transactions.take_retained()
            if aborted and cleaned is not None:
                for entry in aborted:
                    cleaned.add_aborted(entry)

    def _rewrite_segment(self, segment: LogSegment, cleaned: LogSegment | None) -> None:
        """Append what stays of a segment to `cleaned`, chunk by chunk (None: only count it)."""
        reader, stats = self.reader, self.stats
        next_offset, bound = segment.base_offset, bound_of(self.log.segments, segment.base_offset)
        reader.begin(segment.records)
        try:
            while reader.unread:
                self.check_done()
                stretch, most = self.stretches.at(segment.base_offset, reader.position)
                if stretch is not None and self.retainer.drops(stretch):
                    stats.bytes_read += stretch.size
                    stats.messages_read += stretch.messages
                    reader.skip(stretch.size)
                    next_offset = stretch.last_offset + 1
                    continue
                found = self.retainer.filter(reader.chunk(most), reader.position, is_checked=stretch is not None)
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
