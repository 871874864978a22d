"""Filtering of obsolete records out of batches: the reference's MemoryRecords.filterTo (CLN-6 to CLN-22).

Records do not become objects, nor do uncompressed batches. Batches of format v0 and v1 become v2, as in brokers from
4.0 on (KIP-724).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog._core.batch.scan import BatchTable, scan
from kafkalog._core.clean.clean_rules import STATUS_MARKER, Retention
from kafkalog._core.clean.rewrite_kept import (
    STATUS_CHECKSUM,
    STATUS_OFFSETS,
    STATUS_TOO_LONG,
    STEP_COMPRESS,
    STEP_DONE,
    RecordFilter,
)
from kafkalog.errors import CorruptRecord, KafkalogError, RecordTooLarge
from kafkalog.records.compression import DECODED_LIMIT_BYTES, compress_into
from kafkalog.records.convert import check_frames
from kafkalog.records.memory import MemoryRecords
from kafkalog.records.plain_runs import plain_runs, record_error

if TYPE_CHECKING:
    from typing_extensions import Buffer

_HINT: Final = "the log was not cleaned and is unchanged; a replica or a backup may have the batch"
_TEXT: Final = {
    STATUS_CHECKSUM: "the batch no longer matches its CRC",
    STATUS_MARKER: "the control batch has no readable marker",
    STATUS_OFFSETS: "the offset of a record does not follow that of the one before it",
}


class FilterResult:
    """Result of filtering a chunk, with the counters of the reference's FilterResult; -1 if no record was kept.

    `scanned` is the batch table of the chunk. `data` may be a part of the chunk; `table` is its batch table, with
    positions from 0. `bytes_read` counts the whole batches at the chunk's start. If there is none, `needed_bytes` is
    the size that the first batch claims, or 0 if the chunk is too short to show it. Of `messages_read`, which counts
    records, `invalid_messages` had no key and were dropped (CLN-6).
    """

    __slots__ = (
        "bytes_read",
        "bytes_retained",
        "data",
        "invalid_messages",
        "max_offset",
        "max_timestamp",
        "messages_read",
        "messages_retained",
        "needed_bytes",
        "scanned",
        "shallow_offset_of_max_timestamp",
        "table",
    )

    def __init__(self, chunk: memoryview, scanned: BatchTable, done: RecordFilter) -> None:
        self.scanned = scanned
        self.data = done.finish()
        is_unchanged = len(self.data) == scanned.valid_bytes and done.bytes_retained == done.bytes_read
        self.table = scanned if is_unchanged and self.data.obj is chunk.obj else scan(self.data, check_crc=False)
        self.bytes_read = done.bytes_read
        self.messages_read = done.messages_read
        self.bytes_retained = done.bytes_retained
        self.messages_retained = done.messages_retained
        self.invalid_messages = done.invalid_messages
        self.max_offset = done.max_offset
        self.max_timestamp = done.max_timestamp
        self.shallow_offset_of_max_timestamp = done.shallow_offset_of_max_timestamp
        self.needed_bytes = 0 if scanned.valid_bytes else MemoryRecords(chunk).first_batch_size() or 0

    def __repr__(self) -> str:
        return (
            f"<FilterResult {self.messages_retained} of {self.messages_read} records, "
            f"{self.bytes_retained} of {self.bytes_read} B>"
        )


def filter_to(
    chunk: Buffer,
    retention: Retention,
    *,
    path: str | None = None,
    position: int = 0,
    limit_bytes: int = DECODED_LIMIT_BYTES,
    is_checked: bool,
) -> FilterResult:
    """Filter the whole batches of `chunk`, which begins at byte `position` of the file `path`, by `retention`.

    Batches that are kept entirely are copied unchanged. The others keep codec, times, producer and, if v2, their offset
    range; a delete horizon is set where one begins (CLN-8, CLN-10, CLN-44). `limit_bytes` limits the decompressed size
    of one batch. Raises CorruptRecord and InvalidRecord, with file, position and offset, for an impossible size or
    format, a wrong checksum (a rebuilt batch would get a right one) and unreadable records. With `is_checked` the
    caller has already compared these batches' checksums; they are compared again only for batches that are dropped or
    rebuilt, since the others keep their checksums.
    """
    view = memoryview(chunk).cast("B")
    table = scan(view, check_crc=not is_checked)
    try:
        check_frames(table, _HINT)
        done = RecordFilter(retention, view, table)
        if not table.codec:
            done.begin_run(view, table, 0, 0, len(table))
            _write_run(done, table)
            return FilterResult(view, table, done)
        for run in plain_runs(view, table, limit_bytes=limit_bytes):
            if run.failed:
                run.raise_failure(path)
            done.begin_run(run.data, run.table, run.row_before, run.first, run.last)
            _write_run(done, table)
        return FilterResult(view, table, done)
    except OverflowError:
        raise RecordTooLarge("the cleaned batches exceed 2 GiB", path=path, position=position) from None
    except KafkalogError as error:
        error.path = path
        error.position = position + (error.position or 0)
        raise


def _write_run(done: RecordFilter, table: BatchTable) -> None:
    """Filter one run of plain rows and recompress those that were compressed."""
    status = done.step()
    while status == STEP_COMPRESS:
        compress_into(done.store, done.codec, done.payload)
        done.seal()
        status = done.step()
    if status != STEP_DONE:
        raise _filter_error(status, done, table)


def _filter_error(status: int, done: RecordFilter, table: BatchTable) -> KafkalogError:
    """Return the typed error for a batch that cannot be filtered."""
    row = done.error_row
    if status == STATUS_TOO_LONG:
        error: KafkalogError = RecordTooLarge("a record of the batch would reach 2 GiB in format v2")
    elif status in _TEXT:
        error = CorruptRecord(_TEXT[status], hint=_HINT)
    else:
        error = record_error(status, done.error_record)
    error.offset = table.base_offset(row)
    error.position = table.position(row)
    return error
