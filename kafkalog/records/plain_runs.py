"""Runs of batches made plain, so that readers of uncompressed batches can read any format and codec.

Uncompressed batches stay in their buffer. A run with compressed batches is copied into an arena (`_core/batch/arena`):
one buffer of about RUN_BYTES, which the reader of the run keeps alive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkalog._core.batch.arena import Arena
from kafkalog._core.batch.decode import (
    STATUS_BATCH_RANGE,
    STATUS_MAGIC,
    STATUS_MESSAGE_SIZE,
    STATUS_OK,
    STATUS_TEXT,
    RecordTable,
)
from kafkalog._core.batch.scan import BatchTable
from kafkalog._core.batch.unpack import FIRST_FAULT, Unpacker
from kafkalog._core.bytes.store import MOST_BYTES
from kafkalog.errors import CorruptRecord, InvalidRecord, KafkalogError, UnsupportedForFormat
from kafkalog.records.codec_errors import unpack_error
from kafkalog.records.compression import DECODED_LIMIT_BYTES, check_codec, unpacker
from kafkalog.records.format import BATCH_OVERHEAD_BYTES, CODEC_MASK, MAGIC_V2

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kafkalog._core.arrow.column_builder import ColumnBuilder
    from kafkalog._core.clean.map_filler import MapFiller
    from kafkalog._core.keys.key_picker import KeyPicker
    from kafkalog._core.keys.key_walk import KeyWalk

RUN_BYTES: Final = 512 << 10
"""Decompressed bytes after which a run ends, so that they are still cached when decoded; no batch is split."""
_GUESSED_RATIO: Final = 4
_HINT: Final = "the data before it was read; a replica or a backup may have the rest"


class PlainRun:
    """Rows `first` up to `last` of `table`, all uncompressed; `data` holds their bytes from `base_position` on.

    Row i of `table` is row `row_before` + i of `batches`, the table of the data on disk. `failed` is True if the run
    ends early; `raise_failure` raises the reason, after the caller has used the rows before it.
    """

    __slots__ = ("_failure", "base_position", "batches", "data", "first", "last", "row_before", "table")

    def __init__(self, data: Buffer, batches: BatchTable, first: int, last: int, base_position: int) -> None:
        self.data = data
        self.batches = self.table = batches
        self.first = first
        self.last = last
        self.base_position = base_position
        self.row_before = 0
        self._failure: KafkalogError | None = None

    def unpack(self, limit_bytes: int) -> None:
        """Decompress as many of the rows into an arena as one run holds; the run ends there."""
        batches, first, last = self.batches, self.first, self.last
        guess = _GUESSED_RATIO * (batches.position(last - 1) + batches.size(last - 1) - batches.position(first))
        capacity = min(guess, 2 * RUN_BYTES)
        arena = Arena(self.data, batches, first, base_position=self.base_position, capacity=capacity)
        own = unpacker()
        status = arena.fill(own, last, enough=RUN_BYTES, limit_bytes=min(limit_bytes, MOST_BYTES))
        if status != STATUS_OK:
            self._failure = _unpack_failure(status, arena, own, batches)
        self.data, self.table = arena.finish(), arena.table
        self.first, self.last, self.base_position, self.row_before = 0, len(self.table), 0, first

    @property
    def failed(self) -> bool:
        """True if the row after the run could not be made plain, or if a reader met damage inside the run."""
        return self._failure is not None

    def record_damage(self, reader: RecordTable | ColumnBuilder | MapFiller | KeyWalk | KeyPicker) -> None:
        """Record the damage at which a reader of this run stopped, if any."""
        if reader.status == STATUS_OK:
            return
        row = self.row_before + reader.error_batch
        at = self.base_position + reader.error_position if self.table is self.batches else self.batches.position(row)
        error = record_error(reader.status, reader.error_record)
        self._failure = _located(error, self.batches, row, at)

    def raise_failure(self, path: str | None) -> None:
        """Raise the failure that ended the run, if any, with `path` as its file."""
        failure, self._failure = self._failure, None
        if failure is not None:
            failure.path = path
            try:
                raise failure
            finally:
                del failure  # otherwise the error, its traceback and this frame keep each other alive


def plain_runs(
    data: Buffer,
    batches: BatchTable,
    first: int = 0,
    last: int = -1,
    *,
    base_position: int = 0,
    limit_bytes: int = DECODED_LIMIT_BYTES,
) -> Iterator[PlainRun]:
    """Yield rows `first` up to `last` (exclusive; -1 is all) of a batch table made from `data` as plain runs.

    A failed run is the last one. `base_position` is the scan's, `limit_bytes` limits the decompressed size of one
    batch. A failure is InvalidRecord for damage, CorruptRecord for an incomplete message, or IllegalArgument for an
    unknown codec, each with the batch's offset and position.
    """
    last = len(batches) if last < 0 else last
    while first < last:
        run = plain_run(data, batches, first, last, base_position=base_position, limit_bytes=limit_bytes)
        yield run
        if run.failed:
            return
        first += run.last - run.first


def plain_run(
    data: Buffer,
    batches: BatchTable,
    first: int,
    last: int,
    *,
    base_position: int = 0,
    limit_bytes: int = DECODED_LIMIT_BYTES,
) -> PlainRun:
    """Return as many rows from `first` on as one run holds; arguments and failures as for `plain_runs`."""
    run = PlainRun(data, batches, first, last, base_position)
    if batches.codec and (last - first > 1 or batches.attributes(first) & CODEC_MASK):
        run.unpack(limit_bytes)
    return run


def plain_row(
    data: Buffer,
    batches: BatchTable,
    row: int,
    *,
    base_position: int = 0,
    path: str | None = None,
    limit_bytes: int = DECODED_LIMIT_BYTES,
) -> tuple[Buffer, BatchTable]:
    """Return the uncompressed bytes of one compressed batch, and a table of one row for them.

    They are a v2 header and its records, or the inner messages of a v0 or v1 wrapper with absolute offsets. Arguments
    as for `plain_runs`; a failure is raised as an error of the file `path`.
    """
    if batches.magic(row) >= MAGIC_V2 and batches.size(row) < BATCH_OVERHEAD_BYTES:
        text = f"the batch of {batches.size(row)} bytes is smaller than its header of {BATCH_OVERHEAD_BYTES}"
        # no local variable may hold the error: its traceback holds this frame, and the frame holds the chunk
        raise _located(CorruptRecord(text, path=path, hint=_HINT), batches, row, batches.position(row))
    run = PlainRun(data, batches, row, row + 1, base_position)
    run.unpack(limit_bytes)
    run.raise_failure(path)
    return run.data, run.table


def _unpack_failure(status: int, arena: Arena, own: Unpacker, batches: BatchTable) -> KafkalogError:
    """Return the error, with its place, for the batch after the last row of the arena."""
    row = arena.first + arena.rows
    at = batches.position(row)
    try:
        check_codec(batches.attributes(row) & CODEC_MASK)
    except KafkalogError as error:
        return _located(error.with_traceback(None), batches, row, at)
    if status < FIRST_FAULT:
        return _located(status_error(status, STATUS_TEXT[status]), batches, row, at)
    return _located(unpack_error(own, status), batches, row, at + arena.payload_position + own.position)


def record_error(status: int, record: int) -> KafkalogError:
    """Return the error for a status and the number of the record; -1 if the batch itself is damaged."""
    text = STATUS_TEXT[status]
    return status_error(status, text if record < 0 else f"record {record} of the batch: {text}")


def status_error(status: int, text: str) -> KafkalogError:
    """Return the error for a status of decode.STATUS_TEXT, without its place."""
    if status in (STATUS_MESSAGE_SIZE, STATUS_BATCH_RANGE):
        return CorruptRecord(text, hint=_HINT)
    if status == STATUS_MAGIC:
        return UnsupportedForFormat(text, hint=_HINT)
    return InvalidRecord(text, hint=_HINT)


def _located(error: KafkalogError, batches: BatchTable, row: int, position: int) -> KafkalogError:
    error.offset = batches.base_offset(row)
    error.position = position
    return error
