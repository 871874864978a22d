"""Reading one record by its offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog._core.batch.record import Record
from kafkalog.errors import OffsetOutOfRange
from kafkalog.reading.chunks import records
from kafkalog.reading.source import look, out_of_range, refresh
from kafkalog.storage.fast_lookup import record_at_offset

if TYPE_CHECKING:
    from kafkalog.reading.source import LogSource


def record_at(log: LogSource, offset: int) -> Record:
    """Return the record with exactly this offset; negative offsets count back from the log end.

    Raises OffsetOutOfRange (a LookupError) outside the log and at an offset without a record: in a gap that compaction
    left, or at a control record, the error names the next offset with a record.
    """
    look(log)
    segment = log.segment_of(offset)
    if segment is None:  # not in the log at the last look
        refresh(log)
        end = log.log_end_offset
        if offset < 0:
            offset = _offset_from_end(log, offset, end)
        if not log.log_start_offset <= offset < end:
            raise out_of_range(log, offset)
        segment = log.segment_of(offset)
    record = None if segment is None else record_at_offset(segment, offset, log)
    return _scan_to(log, offset) if record is None else record


def _offset_from_end(log: LogSource, index: int, end: int) -> int:
    """Return the offset `-index` before the log end; raise OffsetOutOfRange if that is before the log start."""
    start = log.log_start_offset
    if index + end >= start:
        return index + end
    raise OffsetOutOfRange(
        f"{-index} before the log end {end} is before the log start",
        path=log.path,
        offset=index,
        hint=f"the log has offsets [{start}, {end})",
    )


def _scan_to(log: LogSource, offset: int) -> Record:
    """Return the record by reading from `offset`; raise at damage, and OffsetOutOfRange in a gap."""
    from kafkalog._core.keys.key_picker import own_record

    for record in records(log, offset, log.log_end_offset):
        if record.offset == offset:
            return own_record(record)
        raise OffsetOutOfRange(
            f"no record has this offset; the next record has {record.offset}",
            path=log.path,
            offset=offset,
            hint=f"compaction and control records leave such gaps; use log[{record.offset}]",
        )
    raise OffsetOutOfRange(
        f"no record has this offset, and no record follows before the log end {log.log_end_offset}",
        path=log.path,
        offset=offset,
        hint="compaction and control records leave such gaps",
    )
