"""One record by its offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog._core.record import Record
from kafkalog.chunks import records
from kafkalog.engine import out_of_range, refresh
from kafkalog.errors import OffsetOutOfRange
from kafkalog.storage.glance import record_at_offset

if TYPE_CHECKING:
    from kafkalog.engine import Engine


def record_at(log: Engine, offset: int) -> Record:
    """The record with exactly this offset; negative offsets count back from the log end.

    OffsetOutOfRange (a LookupError) outside the log, and where no record has the offset: in a gap that
    compaction left, or on a control record, the error names the next offset that has one.
    """
    segment = log.segment_of(offset)
    if segment is None:  # nothing that the last look found
        refresh(log)
        end = log.log_end_offset
        if offset < 0:
            offset += end
        if not log.log_start_offset <= offset < end:
            raise out_of_range(log, offset)
        segment = log.segment_of(offset)
    record = None if segment is None else record_at_offset(segment, offset, log)
    return _walked(log, offset) if record is None else record


def _walked(log: Engine, offset: int) -> Record:
    """The record, where the first look did not show it: damage is raised, a gap is told."""
    for record in records(log, offset, log.log_end_offset):
        if record.offset == offset:
            return record
        raise OffsetOutOfRange(
            f"no record has the offset; the next one has {record.offset}",
            path=log.path,
            offset=offset,
            hint=f"compaction or a control record leaves such gaps; take log[{record.offset}]",
        )
    raise OffsetOutOfRange(
        f"no record has the offset, and none follows before the log end {log.log_end_offset}",
        path=log.path,
        offset=offset,
        hint="compaction or a control record leaves such gaps",
    )
