"""Grouping of segments that are rewritten into one (CLN-23, CLN-24, CLN-45).

    six segments of 70 bytes    limit 70 -> six groups, 140 -> three, 210 -> two
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog.storage.segment import MAX_RELATIVE_OFFSET, LogSegment


def group_segments(
    segments: Sequence[LogSegment], max_bytes: int, max_index_bytes: int, first_uncleanable_offset: int
) -> list[list[LogSegment]]:
    """Split consecutive `segments` into groups that each fit into one segment; one that is too large is alone.

    A group ends before the segment that would bring the log above `max_bytes`, or either index above `max_index_bytes`.
    A segment's last offset is taken to be the next one's base less 1, the last one's to be `first_uncleanable_offset`
    less 1: nothing is read for it. If that is more than 2^31 - 1 above the group's base, the segment begins the next
    group, unless it is empty.
    """
    groups: list[list[LogSegment]] = []
    log_bytes = offset_bytes = time_bytes = 0
    for index, segment in enumerate(segments):
        size = segment.size
        offset_size, time_size = segment.offset_index.size_in_bytes, segment.time_index.size_in_bytes
        end = segments[index + 1].base_offset if index + 1 < len(segments) else first_uncleanable_offset
        if (
            groups
            and log_bytes + size <= max_bytes
            and offset_bytes + offset_size <= max_index_bytes
            and time_bytes + time_size <= max_index_bytes
            and (size == 0 or end - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        ):
            groups[-1].append(segment)
            log_bytes, offset_bytes, time_bytes = log_bytes + size, offset_bytes + offset_size, time_bytes + time_size
        else:
            groups.append([segment])
            log_bytes, offset_bytes, time_bytes = size, offset_size, time_size
    return groups
