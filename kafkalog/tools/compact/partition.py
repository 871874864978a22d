"""The clean of one partition: a dry run without locks, or with the data directory held."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog._core.log.producer_state import ProducerState
from kafkalog.cleaner.choosing import Offsets, cleanable_offsets
from kafkalog.cleaner.cleanable import CleanableLog, CleanRange
from kafkalog.cleaner.pass_ import clean
from kafkalog.cleaner.splits import after_splits
from kafkalog.cleaner.types import CleanerStats, CleanResult, bytes_of
from kafkalog.errors import NotAPartition
from kafkalog.manager.checkpoints import read_cleaner_offsets, record_cleaner_offset
from kafkalog.manager.log_dir import LogDir
from kafkalog.storage.index.transaction_index import TransactionIndex
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.names import txn_index_file_name
from kafkalog.storage.readonly.view import LogView
from kafkalog.storage.segments import LogSegments
from kafkalog.tools.offline_partition import OfflinePlan, ViewedSegment, in_locked_directories, open_offline
from kafkalog.tools.seen_producers import seen_producers
from kafkalog.types import OffsetPosition
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem

if TYPE_CHECKING:
    from kafkalog.storage.readonly.segment import ViewSegment

MAP_BYTES: Final = 128 << 20
"""Memory for the keys of one clean: log.cleaner.dedupe.buffer.size of one cleaner thread."""
Advance = Callable[[int], None]
"""Called with the number of bytes read since the last call."""


@dataclass(frozen=True)
class CompactPlan(OfflinePlan):
    """Parameters of one partition's clean, with the map's memory.

    With `from_start` the clean part is cleaned again, so that records whose delete horizon has passed are removed. With
    `roll` a new segment is begun first, so that the previous last one is cleaned too.
    """

    map_bytes: int = MAP_BYTES
    from_start: bool = False
    roll: bool = False


class Cleaned(NamedTuple):
    """Result of a partition's clean, real or dry run; sizes in bytes.

    [`first_dirty_offset`, `end_offset`) is the part that has become clean. `records` and `size` are totals below
    `end_offset` before the clean, `records_kept` and `size_kept` after it; `without_key` counts removed records without
    a key.
    """

    topic: str
    partition: int
    path: str
    first_dirty_offset: int
    end_offset: int
    records: int
    records_kept: int
    without_key: int
    size: int
    size_kept: int


@contextmanager
def _view(plan: CompactPlan, fs: FileSystem) -> Iterator[LogView | None]:
    """Open a partition for reading; give None for a directory without segments, which a broker opens as empty."""
    try:
        view = LogView(plan.place.path, fs=fs)
    except NotAPartition:
        yield None
        return
    with view:
        yield view


def look(plan: CompactPlan, fs: FileSystem, advance: Advance = lambda size: None) -> Cleaned | None:
    """Return the result that a clean would have; None if nothing is dirty. Nothing is locked or changed.

    A broker may write meanwhile. All keys of the dirty part go into the map, or as many as fit: then this is the result
    of the first round. CorruptRecord, StorageError.
    """
    with _view(plan, fs) as view:
        if view is None:
            return None
        viewed = _DryRunLog(view, plan, fs)
        first, end = _dirty_part(viewed.state, plan, fs)
        if first >= end:
            return None
        result = _clean_round(viewed, first, end, plan, advance, dry_run=True)
        return _combine(plan, first, result.end_offset, [result.stats])


def explain_nothing(plan: CompactPlan, fs: FileSystem) -> str | None:
    """Return the reason why no dirty record of a partition can be cleaned; None if no reason applies."""
    with _view(plan, fs) as view:
        if view is None:
            return "it has no segments"
        state = _DryRunLog(view, plan, fs).state
        first, end = _dirty_part(state, plan, fs)
        active = state.segments.active
        if first < end or end != active.base_offset or not active.size:
            return None
        return "its dirty records are in the last segment, which is cleaned only with --roll"


def dirty_bytes(plan: CompactPlan, fs: FileSystem) -> int:
    """Return the bytes that a clean has to read; 0 if nothing is dirty. Nothing is locked or changed. StorageError."""
    with _view(plan, fs) as view:
        if view is None:
            return 0
        viewed = _DryRunLog(view, plan, fs)
        first, end = _dirty_part(viewed.state, plan, fs)
        return sum(bytes_of(viewed.segments, first, end)) if first < end else 0


def clean_dirty(
    plans: Sequence[CompactPlan], fs: FileSystem, clock: Clock, advance: Advance = lambda size: None
) -> list[Cleaned]:
    """Clean the partitions and return the results. Only directories and logs with dirty records are locked and opened.
    """
    dirty = [plan for plan in plans if dirty_bytes(plan, fs)]
    results = in_locked_directories(dirty, lambda log_dir, plan: _clean(log_dir, plan, fs, clock, advance), fs)
    return [one for one in results if one is not None]


def _clean(log_dir: LogDir, plan: CompactPlan, fs: FileSystem, clock: Clock, advance: Advance) -> Cleaned | None:
    with open_offline(log_dir, plan, fs, clock) as log:
        return _clean_all(log, plan, fs, advance)


def _clean_all(log: UnifiedLog, plan: CompactPlan, fs: FileSystem, advance: Advance) -> Cleaned | None:
    """Clean in rounds until nothing is dirty: the map may be too small, or a segment may have to be split first."""
    if plan.roll and log.active_segment.size:
        log.roll()
    first, end = start, _ = _dirty_part(log.state, plan, fs)
    rounds: list[CleanerStats] = []

    while first < end:
        reached, stats = after_splits(partial(_clean_round, log, first, end, plan, advance))
        rounds.append(stats)
        record_cleaner_offset(plan.directory, log.topic_partition, reached, fs=fs)
        if reached <= first:
            break
        first = reached
    return _combine(plan, start, first, rounds) if rounds else None


def _dirty_part(state: Offsets, plan: CompactPlan, fs: FileSystem) -> tuple[int, int]:
    """Return the first dirty and the first uncleanable offset."""
    known = read_cleaner_offsets(plan.directory, fs=fs).get(plan.place.topic_partition)
    offsets = cleanable_offsets(state, plan.config, None if plan.from_start else known, plan.now_ms)
    bound = state.segments.floor(offsets.first_uncleanable_offset)
    end = offsets.first_uncleanable_offset if bound is None else bound.base_offset
    return offsets.first_dirty_offset, end


def _clean_round(
    log: CleanableLog,
    first: int,
    end: int,
    plan: CompactPlan,
    advance: Advance,
    *,
    dry_run: bool = False,
) -> CleanResult:
    """Run one round and return the offset that it reached, and its counters."""
    stats, done = CleanerStats(perf_counter()), 0

    def count(_: int) -> None:
        nonlocal done
        read = stats.map_bytes_read + stats.bytes_read
        if read > done:
            advance(read - done)
            done = read

    most = max(1, end - first) * 2  # no map needs more slots than there are offsets
    offset_map = SkimpyOffsetMap(max(24, min(plan.map_bytes, 24 * most)))
    part = CleanRange(log, first, end)
    return clean(part, offset_map, now_ms=plan.now_ms, throttled=count, stats=stats, dry_run=dry_run)


def _combine(plan: CompactPlan, first: int, end: int, rounds: Sequence[CleanerStats]) -> Cleaned:
    """Combine several rounds: records and bytes found by the first, records and bytes left by the last."""
    topic, number = plan.place.topic_partition
    size = rounds[0].bytes_read + sum(b.bytes_read - a.bytes_written for a, b in _pairs(rounds))
    records = rounds[0].messages_read + sum(b.messages_read - a.messages_written for a, b in _pairs(rounds))
    without_key = sum(one.invalid_messages_read for one in rounds)
    last = rounds[-1]
    kept = last.messages_written, last.bytes_written
    return Cleaned(topic, number, plan.place.path, first, end, records, kept[0], without_key, size, kept[1])


def _pairs(rounds: Sequence[CleanerStats]) -> Iterator[tuple[CleanerStats, CleanerStats]]:
    return zip(rounds, rounds[1:], strict=False)


class _NoIndex:
    """Stands for the indexes of a segment that another process owns: it is read from its start."""

    size_in_bytes: Final = 0

    def __init__(self, base_offset: int) -> None:
        self._start = OffsetPosition(base_offset, 0)

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the position to search an offset from: the segment's start."""
        return self._start


def _txn_index(folder: str, base_offset: int, fs: FileSystem) -> TransactionIndex:
    return TransactionIndex(os.path.join(folder, txn_index_file_name(base_offset)), base_offset, fs=fs)


class _DryRunSegment(ViewedSegment):
    """A segment of a view with the interface that a dry run needs."""

    def __init__(self, segment: ViewSegment, fs: FileSystem) -> None:
        super().__init__(segment)
        self.offset_index = self.time_index = _NoIndex(segment.base_offset)
        self.txn_index = _txn_index(os.path.dirname(segment.path), segment.base_offset, fs)

    def read_next_offset(self) -> int:
        """Return the offset after the last batch."""
        end = self.base_offset
        for table in self.records.tables():
            end = table.last_offset + 1
        return end


class _NextSegment:
    """The empty segment that a roll would begin."""

    size: Final = 0
    last_known_offset: Final = -1
    largest_timestamp: Final = -1

    def __init__(self, base_offset: int, folder: str, fs: FileSystem) -> None:
        self.base_offset = base_offset
        self.txn_index = _txn_index(folder, base_offset, fs)


class _DryRunState(NamedTuple):
    segments: LogSegments[Any]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int


class _DryRunLog:
    """A view with the interface of a log to be cleaned."""

    closed: Final = False
    failed: Final = False

    def __init__(self, view: LogView, plan: CompactPlan, fs: FileSystem) -> None:
        stable = view.last_stable_offset if plan.mark_is_end else min(view.last_stable_offset, view.high_watermark)
        segments: LogSegments[Any] = LogSegments(_DryRunSegment(segment, fs) for segment in view.segments)
        if plan.roll and segments.active.size:
            segments = segments.with_added(_NextSegment(view.log_end_offset, view.path, fs))
        self.state = _DryRunState(segments, view.log_start_offset, view.log_end_offset, stable)
        self.segments = segments
        self.log_start_offset = view.log_start_offset
        self.topic_partition = view.topic_partition
        self.name = view.name
        self.path = view.path
        self.config = plan.config
        self.fs = fs
        self._view = view
        self._now_ms = plan.now_ms

    @cached_property
    def producers(self) -> tuple[ProducerState, ...]:
        """The producers of the log; empty batches with their last sequences are kept."""
        return seen_producers(self._view, self._now_ms, self.fs)

    @contextmanager
    def being_cleaned(self) -> Iterator[int]:
        """Yield 0: nothing is cleaned, so other cleans need not be prevented."""
        yield 0

    def check_unchanged(self, segments: object, cuts: int) -> None:
        """Do nothing: the log's owner may change it, and the report covers what was read."""
