"""Start and end of a read: plans over one state of a log; no record byte is read (LOG-20 to LOG-25)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog._core.log.values import OffsetPosition
from kafkalog.errors import OffsetOutOfRange
from kafkalog.storage.index.aborted_txns import AbortedTxn
from kafkalog.storage.segment import LogSegment
from kafkalog.storage.segment_reader import Extent
from kafkalog.storage.segments import LogSegments
from kafkalog.storage.transactions import AbortedTransaction
from kafkalog.types import FetchDataInfo, LogOffsetMetadata

if TYPE_CHECKING:
    from kafkalog.storage.log_state import State


def out_of_range(offset: int, start: int, end: int, path: str | None = None) -> OffsetOutOfRange:
    """Return the error for an offset outside the log's [start, end)."""
    where = "before the log start" if offset < start else "at or after the log end"
    hint = f"the log holds offsets [{start}, {end})"
    return OffsetOutOfRange(f"the offset is {where}", path=path, offset=offset, hint=hint)


def extent_of(state: State, offset: int, path: str) -> Extent:
    """Return the segment in which a walk to `offset` begins; OffsetOutOfRange outside log start ... log end."""
    if offset < state.log_start_offset or offset > state.log_end_offset:
        raise out_of_range(offset, state.log_start_offset, state.log_end_offset, path)
    segment = state.segments.floor(offset) or state.segments[0]
    following = state.segments.higher(segment.base_offset)
    size = state.end_position if segment.base_offset == state.end_base else segment.size
    bound = state.log_end_offset if following is None else following.base_offset
    data = segment.records.slice(0, size)
    return Extent(segment.base_offset, data, bound, following is None, segment.offset_index)


def read_state(
    state: State,
    start_offset: int,
    max_length: int,
    bound: LogOffsetMetadata,
    min_one_message: bool,
) -> FetchDataInfo:
    """Return the data from `start_offset` on, below `bound`, from one segment.

    OffsetOutOfRange outside log start ... log end. `bound` was read before the look-up, so that a reader sees
    nothing above it (KAFKA-2477). The metadata gives the position of the batch found, or that of the log end. A
    segment that ends below the offset is skipped (LOG-22).
    """
    if start_offset < state.log_start_offset or start_offset > state.log_end_offset:
        raise out_of_range(start_offset, state.log_start_offset, state.log_end_offset)
    segments = state.segments
    if start_offset >= bound.message_offset:
        place = bound if start_offset == bound.message_offset else locate(state, start_offset)
        return _empty(segments, place)
    bound_base = bound.segment_base_offset
    segment = segments.floor(start_offset)
    while segment is not None:
        base = segment.base_offset
        position: int | None = None  # end of its readable data in bytes; None if unknown
        if base < bound_base:
            position = segment.size if base != state.end_base else state.end_position
        elif base == bound_base:
            position = bound.relative_position_in_segment
        found: FetchDataInfo | None = segment.read(start_offset, max_length, position, min_one_message)
        if found is not None:
            return found
        segment = segments.higher(segment.base_offset)
    return _empty(segments, state.end_metadata)


def _empty(segments: LogSegments[LogSegment], place: LogOffsetMetadata) -> FetchDataInfo:
    segment = segments.get(place.segment_base_offset) or segments.active
    position = min(max(place.relative_position_in_segment, 0), segment.size)
    return FetchDataInfo(place, segment.records.slice(position, 0))


def add_aborted(state: State, start_offset: int, found: FetchDataInfo) -> None:
    """Add to `found`, a committed read, its aborted transactions, in the order of their markers (LOG-33).

    The segment read and the later ones are searched, up to the next index entry behind the data, also if there is none.
    """
    place = found.fetch_offset_metadata
    segment = state.segments.get(place.segment_base_offset)
    if place.message_offset >= state.log_end_offset or segment is None:
        return
    at = OffsetPosition(place.message_offset, place.relative_position_in_segment)
    bound = segment.offset_index.fetch_upper_bound_offset(at, found.records.size)
    following = state.segments.higher(segment.base_offset)
    if bound is not None:
        upper = bound.offset
    else:
        upper = state.log_end_offset if following is None else following.base_offset
    aborted = collect_aborted(state.segments, segment, start_offset, upper)
    found.aborted_transactions = tuple(AbortedTransaction(*entry[1:4]) for entry in aborted)


def collect_aborted(
    segments: LogSegments[LogSegment], segment: LogSegment, start_offset: int, upper_offset: int
) -> list[AbortedTxn]:
    """Return the aborted transactions that overlap [start, upper), from the indexes of `segment` and later ones."""
    aborted: list[AbortedTxn] = []
    following: LogSegment | None = segment
    while following is not None:
        search = following.txn_index.collect(start_offset, upper_offset)
        aborted += search.aborted
        following = None if search.is_complete else segments.higher(following.base_offset)
    return aborted


def locate(state: State, offset: int) -> LogOffsetMetadata:
    """Return the position of the batch that holds `offset`, or of the next one; the log end has its own (LOG-85).

    OffsetOutOfRange outside log start ... log end.
    """
    if offset == state.log_end_offset:
        return state.end_metadata
    if offset < state.log_start_offset or offset > state.log_end_offset:
        raise out_of_range(offset, state.log_start_offset, state.log_end_offset)
    segment = state.segments.floor(offset)
    while segment is not None:
        found = segment.translate_offset(offset)
        if found is not None:
            return LogOffsetMetadata(found[0], segment.base_offset, found[1])
        segment = state.segments.higher(segment.base_offset)
    return state.end_metadata


def locate_or_offset_only(state: State, offset: int) -> LogOffsetMetadata:
    """Return the position as `locate` does; the offset alone if it cannot be located (LOG-29)."""
    try:
        return locate(state, offset)
    except OffsetOutOfRange:
        return LogOffsetMetadata(offset)
