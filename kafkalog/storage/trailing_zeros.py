"""Zeros behind the last batch of a segment: space that its owner reserved, or records that the disk lost.

    a segment in use, or not closed cleanly    reserved: a crash leaves what `preallocate` reserved
    the last one, closed cleanly               reserved if its offset index is not trimmed either (`is_untrimmed`),
                                               and the log reaches its recovery point; else damage
    an earlier one                             nothing is lost if the next segment begins at the offset behind its last
                                               batch: a reader goes on there, `verify` reports the zeros; else damage

Readers, `verify`, `browse`, `ls` and recovery look here, backups through a reader.
"""

from __future__ import annotations

from kafkalog.storage.batch_search import WINDOW_BYTES
from kafkalog.storage.lazy_file import DataFile, read_at


def is_untrimmed(has_room: bool, last_indexed: int, end: int) -> bool:
    """Return True if an offset index has free space, and names no batch at or after byte `end` of its segment.

    `last_indexed` is the position in its last entry, 0 without one: a batch at 0 has none. Zeros after `end` are then
    free space too: a trimmed index, or an entry for a batch there, would contradict that.
    """
    return has_room and last_indexed < max(end, 1)


def only_zeros(file: DataFile, position: int, end: int) -> bool:
    """Return True if every byte from `position` to `end` is zero; holes of the file are not read."""
    while (position := file.next_data(position)) < end:
        data = read_at(file, min(WINDOW_BYTES, end - position), position)
        if not data or data.count(0) != len(data):
            return not data
        position += len(data)
    return True
