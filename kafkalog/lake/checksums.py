"""Checksum of the record before a position of a sync: it differs if the log was truncated and appended to."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from kafkalog._core.bytes.crc import crc32c
from kafkalog.cursors.place import record_checksum
from kafkalog.errors import KafkalogError
from kafkalog.reading.chunks import batch_chunks

if TYPE_CHECKING:
    from kafkalog.reading.source import LogSource

GAP: Final = 1 << 32
"""Value in place of a checksum, equal to none, if neither a record nor a marker lies before the position."""
_MARKER: Final = struct.Struct(">cqqh")


def position_checksum(source: LogSource, position: int, known: int | None = None) -> int | None:
    """Return a checksum of the record, or of the transaction marker, before `position`; GAP if neither is there.

    A marker is identified by its offset, its producer and that producer's epoch, which compaction does not change.
    None for a position outside of the log, and if the log is damaged there. `known` as for `record_checksum`.
    """
    found = record_checksum(source, position, known)
    if found is not None or not source.log_start_offset < position <= source.log_end_offset:
        return found
    try:
        for chunk in batch_chunks(source, position - 1, position):
            for row in range(chunk.first, chunk.last):
                header = chunk.batches[row]
                if header.is_control and header.base_offset <= position - 1 <= header.last_offset:
                    return crc32c(_MARKER.pack(b"m", position - 1, header.producer_id, header.producer_epoch))
    except KafkalogError:
        return None  # damage: nothing to compare with
    return GAP
