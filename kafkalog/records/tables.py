"""Record tables of batches of any format and codec: what needs decompressing is made plain first, many at a time.

Plain batches are decoded where they lie. Where a run has compressed ones, all of it goes into an arena (`_core/arena`):
one buffer, which the table keeps alive, and about TABLE_BYTES of it a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkalog._core.arena import Arena
from kafkalog._core.decode import STATUS_MAGIC, STATUS_MESSAGE_SIZE, STATUS_OK, STATUS_TEXT, RecordTable, decode
from kafkalog._core.scan import BatchTable
from kafkalog._core.store import MOST_BYTES
from kafkalog._core.unpack import FIRST_FAULT, Unpacker
from kafkalog.errors import CorruptRecord, InvalidRecord, KafkalogError, UnsupportedForFormat
from kafkalog.records.codec_errors import unpack_error
from kafkalog.records.compression import DECODED_LIMIT_BYTES, check_codec, unpacker
from kafkalog.records.format import BATCH_OVERHEAD_BYTES, MAGIC_V2

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kafkalog._core.store import Block

__all__ = [
    "TABLE_BYTES",
    "batch_table",
    "decoding_error",
    "plain_batch",
    "plain_row",
    "plain_rows",
    "record_tables",
    "status_error",
]

TABLE_BYTES: Final = 512 << 10
"""Decompressed bytes after which a table ends, so that they are in the cache when decoded; no batch is divided."""
_CODEC_MASK: Final = 7
_GUESSED_RATIO: Final = 4
_HINT: Final = "what lies before it was read; a replica or a backup may have the rest"


def record_tables(
    data: Buffer,
    batches: BatchTable,
    first: int = 0,
    last: int = -1,
    *,
    base_position: int = 0,
    path: str | None = None,
    limit_bytes: int = DECODED_LIMIT_BYTES,
) -> Iterator[RecordTable]:
    """The tables of rows `first` up to `last` (exclusive; -1 is all) of a batch table made from `data`, none empty.

    `base_position` is the one the scan was given, `path` the file that errors name, `limit_bytes` what one batch may
    decompress to. After the records before it, damage raises InvalidRecord, a message that is no whole one
    CorruptRecord, an unknown codec IllegalArgument, each with the batch's offset and position.
    """
    last = len(batches) if last < 0 else last
    while first < last:
        table, failure, rows = _next_table(data, batches, first, last, base_position, limit_bytes)
        if len(table):
            yield table
        if table.status != STATUS_OK:
            failure = _undecodable(table, batches, first, base_position)
        if failure is not None:
            failure.path = path
            try:
                raise failure
            finally:
                del failure, table  # else they, the traceback and this frame keep each other alive
        first += rows


def batch_table(
    data: Buffer,
    batches: BatchTable,
    row: int,
    *,
    base_position: int = 0,
    path: str | None = None,
    lenient: bool = False,
    limit_bytes: int = DECODED_LIMIT_BYTES,
) -> RecordTable:
    """The records of one batch, arguments and errors as for `record_tables`; `lenient` as for `_core.decode.decode`."""
    if not batches.attributes(row) & _CODEC_MASK:
        table = decode(data, batches, row, row + 1, base_position=base_position, lenient=lenient)
        failure = None
    else:
        table, failure = _unpacked(data, batches, row, row + 1, base_position, limit_bytes, lenient)
    if table.status != STATUS_OK:
        failure = _undecodable(table, batches, row, base_position)
    if failure is not None:
        failure.path = path
        try:
            raise failure
        finally:
            del failure, table  # as above
    return table


def plain_batch(
    data: Buffer,
    batches: BatchTable,
    row: int,
    *,
    base_position: int = 0,
    path: str | None = None,
    limit_bytes: int = DECODED_LIMIT_BYTES,
) -> Block:
    """The bytes of one compressed batch as they would be uncompressed; arguments and errors as for `record_tables`.

    They are a v2 header and its records, or the inner messages of a v0 or v1 wrapper with their absolute offsets.
    """
    return plain_row(data, batches, row, base_position=base_position, path=path, limit_bytes=limit_bytes)[0]


def plain_row(
    data: Buffer,
    batches: BatchTable,
    row: int,
    *,
    base_position: int = 0,
    path: str | None = None,
    limit_bytes: int = DECODED_LIMIT_BYTES,
) -> tuple[Block, BatchTable]:
    """`plain_batch` and a table of one row for it: that of the batch, without codec and with its new place and size."""
    if batches.magic(row) >= MAGIC_V2 and batches.size(row) < BATCH_OVERHEAD_BYTES:
        text = f"the batch of {batches.size(row)} bytes is smaller than its header of {BATCH_OVERHEAD_BYTES}"
        # no variable of this frame may hold the error: its traceback holds the frame, and the frame the chunk
        raise _located(CorruptRecord(text, path=path, hint=_HINT), batches, row, batches.position(row))
    plain, table, failure = plain_rows(data, batches, row, row + 1, base_position, limit_bytes)
    if failure is not None:
        failure.path = path
        try:
            raise failure
        finally:
            del failure  # as above
    return plain, table


def _next_table(
    data: Buffer, batches: BatchTable, first: int, last: int, base_position: int, limit_bytes: int
) -> tuple[RecordTable, KafkalogError | None, int]:
    """(table, what stopped it, rows in it) for as many rows as one table takes."""
    if not batches.codec:
        return decode(data, batches, first, last, base_position=base_position), None, last - first
    table, failure = _unpacked(data, batches, first, last, base_position, limit_bytes)
    return table, failure, len(table.batches)


def _unpacked(
    data: Buffer,
    batches: BatchTable,
    first: int,
    last: int,
    base_position: int,
    limit_bytes: int,
    lenient: bool = False,
) -> tuple[RecordTable, KafkalogError | None]:
    """The table of the rows from `first` on, and the error of the batch that could not be decompressed."""
    plain, table, failure = plain_rows(data, batches, first, last, base_position, limit_bytes)
    return decode(plain, table, lenient=lenient), failure


def plain_rows(
    data: Buffer, batches: BatchTable, first: int, last: int, base_position: int, limit_bytes: int
) -> tuple[Block, BatchTable, KafkalogError | None]:
    """As many rows from `first` on as one table takes, all plain: their bytes, a table for these, and what stopped it.

    The error has its place, but no path. Row i of the table is row `first` + i of `batches`.
    """
    guess = _GUESSED_RATIO * (batches.position(last - 1) + batches.size(last - 1) - batches.position(first))
    arena = Arena(data, batches, first, base_position=base_position, capacity=min(guess, 2 * TABLE_BYTES))
    own = unpacker()
    status = arena.fill(own, last, enough=TABLE_BYTES, limit_bytes=min(limit_bytes, MOST_BYTES))
    failure = None if status == STATUS_OK else _refused(status, arena, own, batches)
    return arena.finish(), arena.table, failure


def _refused(status: int, arena: Arena, own: Unpacker, batches: BatchTable) -> KafkalogError:
    """The error for the batch behind the last row of the arena, with its place."""
    row = arena.first + arena.rows
    at = batches.position(row)
    try:
        check_codec(batches.attributes(row) & _CODEC_MASK)
    except KafkalogError as error:
        return _located(error.with_traceback(None), batches, row, at)
    if status < FIRST_FAULT:
        return _located(status_error(status, STATUS_TEXT[status]), batches, row, at)
    return _located(unpack_error(own, status), batches, row, at + arena.payload_position + own.position)


def _undecodable(table: RecordTable, batches: BatchTable, first: int, base_position: int) -> KafkalogError:
    """The error for the batch at which decoding stopped."""
    unpacked = table.batches is not batches
    row = table.error_batch + (first if unpacked else 0)
    position = batches.position(row) if unpacked else base_position + table.error_position
    return decoding_error(table.status, table.error_text, table.error_record, batches, row, position)


def decoding_error(status: int, text: str, record: int, batches: BatchTable, row: int, position: int) -> KafkalogError:
    """The error for record `record` of batch `row`, at which decoding stopped: `status` and `text` say why."""
    return _located(status_error(status, f"record {record} of the batch: {text}"), batches, row, position)


def status_error(status: int, text: str) -> KafkalogError:
    """The error for a status of decode.STATUS_TEXT, without its place."""
    if status == STATUS_MESSAGE_SIZE:
        return CorruptRecord(text, hint=_HINT)
    if status == STATUS_MAGIC:
        return UnsupportedForFormat(text, hint=_HINT)
    return InvalidRecord(text, hint=_HINT)


def _located(error: KafkalogError, batches: BatchTable, row: int, position: int) -> KafkalogError:
    error.offset = batches.base_offset(row)
    error.position = position
    return error
