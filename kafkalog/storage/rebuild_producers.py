"""The producers of a log, known anew from its newest snapshot and the batches behind it (LOAD-20 to LOAD-25)."""

from __future__ import annotations

from kafkalog.storage.producer_state import ProducerStateManager
from kafkalog.storage.recovery import take_over_producers
from kafkalog.storage.segment import LogSegment
from kafkalog.storage.segments import LogSegments


def rebuild_producers(
    producers: ProducerStateManager,
    segments: LogSegments[LogSegment],
    log_start_offset: int,
    last_offset: int,
    now_ms: int,
    *,
    clean: bool,
) -> None:
    """Bring `producers` to `last_offset`, and put a snapshot of it on disk where it is new.

    After a clean end without any snapshot the log was written before there were producers: it is not read, empty
    snapshots are written at the last two bases and the end (LOAD-21).
    """
    marks = _marks(segments, last_offset)
    if clean and producers.snapshots.latest is None:
        for offset in marks:
            producers.map_end_offset = offset
            producers.take_snapshot()
        return
    was_empty = producers.is_empty and producers.map_end_offset >= last_offset
    producers.truncate_and_reload(log_start_offset, last_offset, now_ms)
    if last_offset > producers.map_end_offset and not was_empty:
        for segment in segments.values(producers.map_end_offset, last_offset):
            start = max(segment.base_offset, producers.map_end_offset, log_start_offset)
            producers.map_end_offset = start
            if segment.base_offset in marks:
                producers.take_snapshot()
            _read(producers, segment, start, last_offset)
    producers.map_end_offset = last_offset
    producers.take_snapshot()


def _marks(segments: LogSegments[LogSegment], last_offset: int) -> list[int]:
    """The offsets at which snapshots are kept: the last two bases and the end, rising."""
    return [*segments.base_offsets[-2:], last_offset]


def _read(producers: ProducerStateManager, segment: LogSegment, start: int, last_offset: int) -> None:
    """Take over the batches of a segment from offset `start` on, up to the one that holds `last_offset`."""
    first = segment.translate_offset(start)
    if first is None:
        return
    end = segment.translate_offset(last_offset)
    stop = segment.size if end is None else end[1]
    if stop <= first[1]:
        return
    for data, table in segment.records.slice(first[1], stop - first[1]).scanned():
        take_over_producers(None, producers, table, data)
