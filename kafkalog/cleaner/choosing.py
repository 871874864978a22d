"""Selection of the next log to clean and its range, from a log's state, settings, checkpoint and a time.

    log start      first dirty          first uncleanable      active segment, log end
        |---- clean ----|------ cleanable ------|------ left alone ------|
The first dirty offset is the checkpoint's. The first uncleanable one is the lowest of the last stable offset (so the
high watermark too: KAFKA-13194), the active segment's base, and the base of the first segment that is too young.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from kafkalog.cleaner.types import COMPACTION_LAG, DIRTY_RATIO, LogToClean
from kafkalog.config.topic import LogConfig
from kafkalog.errors import CorruptRecord, FormatError
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.retention import Extent
from kafkalog.storage.segment import LogSegment

_LOG: Final = logging.getLogger(__name__)


class Offsets(Extent[LogSegment], Protocol):
    """The state of a log that the rules read; all transactions below the last stable offset are decided."""

    @property
    def last_stable_offset(self) -> int: ...


class OffsetsToClean(NamedTuple):
    """The dirty offsets [first dirty, first uncleanable) that may be cleaned; none if both are equal.

    With `is_repaired` the checkpoint was invalid and must be set to `first_dirty_offset` at once (KAFKA-8764).
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    is_repaired: bool


class Candidate(NamedTuple):
    """A log that may be cleaned, and the ms by which its clean is overdue by `max.compaction.lag.ms`."""

    log: LogToClean
    delay_ms: int


class Choice(NamedTuple):
    """The result of a scan of all logs: those worth cleaning, the dirtiest first.

    `dirtiest_ratio` is the highest of all examined logs. `delayed` counts those overdue by `max.compaction.lag.ms`, by
    up to `longest_delay_ms`.
    """

    cleanable: tuple[LogToClean, ...]
    dirtiest_ratio: float
    delayed: int
    longest_delay_ms: int


def cleanable_offsets(state: Offsets, config: LogConfig, checkpoint: int | None, now_ms: int) -> OffsetsToClean:
    """Return the part of a log that may be cleaned, by the `checkpoint` of an earlier clean (None: there was none).

    A checkpoint outside log start ... log end is repaired: all is dirty then (CLN-32). `min.compaction.lag.ms` protects
    the log from the first dirty segment with a younger timestamp on (CLN-30).
    """
    start = state.log_start_offset
    first = start if checkpoint is None else checkpoint
    is_repaired = not start <= first <= state.log_end_offset
    if is_repaired:
        first = start
    bound = min(state.last_stable_offset, state.segments.active.base_offset)
    lag_ms = config.min_compaction_lag_ms
    if lag_ms > 0:
        dirty = state.segments.non_active_from(first)
        young = (one.base_offset for one in dirty if one.largest_timestamp > now_ms - lag_ms)
        bound = min(bound, next(young, bound))
    return OffsetsToClean(first, max(first, bound), is_repaired)


def compaction_delay_ms(state: Offsets, config: LogConfig, first_dirty_offset: int, now_ms: int) -> int:
    """Return the ms by which the oldest dirty record is overdue by `max.compaction.lag.ms`; 0 if it is not.

    A segment is as old as its first batch with a timestamp. The active segment does not count: it is rolled for this
    purpose (CLN-31).
    """
    due_ms: int = now_ms - config.max_compaction_lag_ms
    if due_ms <= 0:
        return 0
    dirty = state.segments.non_active_from(first_dirty_offset)
    times = (segment.first_batch_timestamp for segment in dirty)
    earliest_ms: int = min((time for time in times if time > 0), default=due_ms)
    return max(due_ms - earliest_ms, 0)


def candidate(log: UnifiedLog, checkpoint: int | None, now_ms: int) -> tuple[Candidate, OffsetsToClean]:
    """Return a log as it would be cleaned, and the offsets that follow from its checkpoint."""
    state, config = log.state, log.config
    offsets = cleanable_offsets(state, config, checkpoint, now_ms)
    first = offsets.first_dirty_offset
    if offsets.is_repaired and not (config.delete and checkpoint is not None and checkpoint < first):
        _LOG.warning("%s: the cleaner checkpoint %s is outside the log: all of it is dirty", log.name, checkpoint)
    delay_ms = compaction_delay_ms(state, config, first, now_ms)
    reason = COMPACTION_LAG if delay_ms > 0 else DIRTY_RATIO
    return Candidate(LogToClean.of(log, first, offsets.first_uncleanable_offset, reason), delay_ms), offsets


def dirty_bytes(log: UnifiedLog, checkpoint: int | None, now_ms: int) -> int:
    """Return the bytes that a clean would have to map; the log's size if they cannot be determined. No record is read.
    """
    try:
        offsets = cleanable_offsets(log.state, log.config, checkpoint, now_ms)
    except (OSError, CorruptRecord, FormatError):
        return int(log.size)
    return LogToClean.of(log, offsets.first_dirty_offset, offsets.first_uncleanable_offset).cleanable_bytes


def choose(candidates: Iterable[Candidate]) -> Choice:
    """Return the logs to clean: dirtier than `min.cleanable.dirty.ratio`, or due by `max.compaction.lag.ms`.

    The dirtiest comes first (CLN-29); a log without dirty bytes is never due.
    """
    found = tuple(candidates)
    delays = [one.delay_ms for one in found if one.delay_ms > 0]
    chosen = [one.log for one in found if should_be_cleaned(one.log)]
    chosen.sort(key=lambda log: log.cleanable_ratio, reverse=True)
    dirtiest = max((one.log.cleanable_ratio for one in found), default=0.0)
    return Choice(tuple(chosen), dirtiest, len(delays), max(delays, default=0))


def should_be_cleaned(log: LogToClean) -> bool:
    """Return True if the log should be cleaned without a request."""
    if log.needs_compaction_now and log.cleanable_bytes > 0:
        return True
    threshold: float = log.log.config.min_cleanable_dirty_ratio
    return log.cleanable_ratio > threshold
