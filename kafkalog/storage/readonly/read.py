"""Finding offsets and times in one state of a directory owned by another process; no record byte is kept."""

from __future__ import annotations

from kafkalog.storage.lookup import first_at
from kafkalog.storage.readonly.segment import ViewSegment
from kafkalog.storage.readonly.watch import ViewState
from kafkalog.storage.segment_reader import Extent
from kafkalog.types import FetchDataInfo, LogOffsetMetadata, OffsetAndTimestamp


def extent_of(state: ViewState, offset: int) -> Extent:
    """Return the segment in which a walk to `offset` begins.

    While its owner replaces segments, a `.swap` and the segments it replaces may both hold the same records.
    """
    segment = state.segments.floor(offset) or state.segments[0]
    following = state.segments.higher(segment.base_offset)
    size = state.end.size if following is None else segment.size
    bound = state.log_end_offset if following is None else following.base_offset
    data = segment.records.slice(0, size)
    return segment.extent(data, bound, is_last=following is None)


def read_state(state: ViewState, start_offset: int, max_length: int, min_one_message: bool) -> FetchDataInfo:
    """Return the data from `start_offset` on in the first segment that has any; an empty slice at the log end.

    If damage hides the offset, the slice begins at the damage, so that a read there raises the error.
    """
    segment = state.segments.floor(start_offset)
    while segment is not None:
        found = segment.translate_offset(start_offset)
        if found is not None:
            base_offset, position, size = found
            bound = state.end.size if segment is state.active else segment.size
            if position < bound:
                if min_one_message and max_length < size:
                    max_length = size
                return FetchDataInfo(
                    LogOffsetMetadata(base_offset, segment.base_offset, position),
                    segment.records.slice(position, min(max_length, bound - position)),
                    max_length < size,
                )
        hidden = segment.hidden_at(start_offset, state.end if segment is state.active else None)
        if hidden is not None:
            where = LogOffsetMetadata(start_offset, segment.base_offset, hidden)
            return FetchDataInfo(where, segment.records.slice(hidden, segment.size - hidden), True)
        segment = state.segments.higher(segment.base_offset)
    last = state.active
    where = LogOffsetMetadata(state.end.next_offset, last.base_offset, state.end.size)
    return FetchDataInfo(where, last.records.slice(state.end.size, 0))


def cut_at(found: FetchDataInfo, segment: ViewSegment | None, bound: int) -> FetchDataInfo:
    """Return `found`, a read from `segment`, up to the batch that holds offset `bound`, which is excluded (LOG-21)."""
    where, piece = found.fetch_offset_metadata, found.records
    if where.message_offset >= bound:
        return FetchDataInfo(where, piece.slice(0, 0))
    place = None if segment is None else segment.translate_offset(bound)
    if place is not None and place[1] < piece.position + piece.size:
        found.records = piece.slice(0, max(0, place[1] - piece.position))
    return found


def largest_timestamp(state: ViewState) -> OffsetAndTimestamp | None:
    """Return the first record with the largest timestamp; None if no record has one."""
    largest = max(segment.largest_timestamp for segment in state.segments)
    return None if largest < 0 else first_at(state.segments, largest, 0, state.log_end_offset)
