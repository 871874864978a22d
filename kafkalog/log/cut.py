"""Flushing, rolling, truncating and deleting by the owner of a `Log`."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.storage.failure import is_disk_failure
from kafkalog.util.interrupts import deferred_interrupts

if TYPE_CHECKING:
    from kafkalog.log.log import Log
    from kafkalog.log.writable import WritableLog


def flush(log: Log) -> None:
    """Sync all data appended so far, its indexes and directory entries to disk.

    >>> log.flush()
    """
    with deferred_interrupts():
        log.opened_for_append().log.flush()


def roll(log: Log) -> int:
    """Start a new active segment and return its base offset (the log end); an empty active segment is replaced.

    >>> log.roll(), len(log.segments)
    (2, 2)
    """
    with deferred_interrupts():
        return log.opened_for_append().log.roll().base_offset


def truncate_to(log: Log, offset: int) -> bool:
    """Truncate the log to end at `offset`; return False if it ends there or earlier already.

    If `offset` is inside a batch, the whole batch is removed and the log end is `offset`, as in Kafka.

    >>> log.truncate_to(1), log.end_offset, list(log)
    (True, 1, [])
    """
    with deferred_interrupts():
        opened = log.opened_for_append()
        with opened.cleaning_paused():
            opened.announce_cut(operator.index(offset))
            cut = opened.log.truncate_to(operator.index(offset))
            if cut:
                opened.record_cut()
        return cut


def truncate_fully_and_start_at(log: Log, offset: int) -> None:
    """Delete all records; the log then starts and ends at `offset`, the offset of the next record.

    Use it to start a copy of a log whose first records are gone. Raises IllegalArgument for an offset that is
    negative or has more than 63 bits.

    >>> log.truncate_fully_and_start_at(1000)
    >>> log.append(b"value").first_offset
    1000
    """
    offset = operator.index(offset)
    if not 0 <= offset < 2**63:
        raise IllegalArgument(f"a log cannot start at {offset}", hint="give the offset of its next record")
    with deferred_interrupts():
        opened = log.opened_for_append()
        with opened.cleaning_paused():
            opened.announce_cut(offset)
            opened.log.truncate_fully_and_start_at(offset)
            opened.record_cut()


def delete_before(log: Log, offset: int) -> int:
    """Delete records below `offset` (-1: all up to the log end) and return the new log start offset.

    Segments that lie wholly below it are deleted. Reads below it raise OffsetOutOfRange, also after a reopen: the
    new start is on disk on return. Raises OffsetOutOfRange for an offset beyond the log end.

    >>> log.delete_before(1), [record.offset for record in log]
    (1, [1])
    """
    with deferred_interrupts():
        opened = log.opened_for_append()
        upto = opened.log.high_watermark if offset == -1 else operator.index(offset)
        # before the first file is deleted: after a crash no deleted record may reappear
        try:
            if opened.log.maybe_increment_log_start_offset(upto):
                opened.record_log_start()
        except StorageError as error:
            if is_disk_failure(error):
                raise
            # a full disk: retried once the deletes have freed space
        try:
            return _delete_segments_before(opened, upto)
        except StorageError as error:
            if is_disk_failure(error) or not opened.delete_now():
                raise
            return _delete_segments_before(opened, upto)


def _delete_segments_before(opened: WritableLog, offset: int) -> int:
    start = opened.log.delete_before(offset)
    opened.record_log_start()
    return start
