"""One batch redacted: format, codec, offsets, timestamps, producer and flags stay, and the checksum fits."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from kafkalog._core.batch.repack import with_payload
from kafkalog._core.batch.scan import BatchTable, scan
from kafkalog._core.clean.redact_rows import RedactedRow, redact_row
from kafkalog.errors import KafkalogError
from kafkalog.records.compression import compress
from kafkalog.records.convert import rebuild
from kafkalog.records.format import (
    BATCH_OVERHEAD_BYTES,
    CODEC_MASK,
    MAGIC_V0,
    MAGIC_V2,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
)
from kafkalog.records.plain_runs import plain_row, record_error
from kafkalog.redact.wanted import Change

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kafkalog.storage.segment_reader import Chunk


class NewChunk(NamedTuple):
    """The batches of a chunk after the redaction, their table with positions from 0, and the number of records."""

    data: memoryview
    table: BatchTable
    records: int


def checked_row(
    data: Buffer,
    table: BatchTable,
    row: int,
    offsets: array[int],
    change: Change,
    *,
    keys: frozenset[bytes] | None = None,
    base_position: int = 0,
    path: str | None = None,
) -> RedactedRow:
    """Redact one plain batch as `redact_row` does; InvalidRecord or CorruptRecord for a record that is not sound."""
    done = redact_row(
        data, table, row, offsets, value=change.value, erases_key=change.erases_key, keys=keys,
        base_position=base_position,
    )  # fmt: skip
    if done.status:
        error = record_error(done.status, done.record)
        error.path, error.offset, error.position = path, table.base_offset(row), table.position(row)
        raise error
    return done


def redact_chunk(chunk: Chunk, offsets: array[int], change: Change) -> NewChunk:
    """Return the batches of a chunk without what its records at `offsets` (rising) held. Errors as `checked_row`."""
    table, at = chunk.batches, chunk.position
    view = memoryview(chunk.data)
    begin = table.position(chunk.first) - at
    end = table.position(chunk.last - 1) + table.size(chunk.last - 1) - at
    out, copied, records = bytearray(), begin, 0
    for row in rows_with(table, chunk.first, chunk.last, offsets):
        new, changed = _redact_batch(chunk, row, offsets, change)
        if new is None:
            continue
        start = table.position(row) - at
        out += view[copied:start]
        out += new
        copied, records = start + table.size(row), records + changed
    data = view[begin:end]
    if records:
        out += view[copied:end]
        data = memoryview(out)
    return NewChunk(data, scan(data, check_crc=False), records)


def rows_with(table: BatchTable, first: int, last: int, offsets: array[int]) -> list[int]:
    """Return the rows from `first` up to `last` that may hold one of the offsets, rising."""
    rows: list[int] = []
    for offset in offsets:
        row = table.row_of(offset, last)
        if first <= row < last and (not rows or rows[-1] != row):
            rows.append(row)
    return rows


def _redact_batch(chunk: Chunk, row: int, offsets: array[int], change: Change) -> tuple[Buffer | None, int]:
    """Return the bytes of a redacted batch, None if nothing of it changes, and the number of records."""
    table = chunk.batches
    attributes, magic = table.attributes(row), table.magic(row)
    codec = attributes & CODEC_MASK
    try:
        if codec:
            block, plain = plain_row(chunk.data, table, row, base_position=chunk.position, path=chunk.path)
            done = checked_row(block, plain, 0, offsets, change, path=chunk.path)
        else:
            done = checked_row(
                chunk.data, table, row, offsets, change, base_position=chunk.position, path=chunk.path
            )
        if done.data is None:
            return None, 0
        if magic >= MAGIC_V2:
            begin = table.position(row) - chunk.position
            header = memoryview(chunk.data)[begin : begin + BATCH_OVERHEAD_BYTES]
            return with_payload(header, compress(codec, done.data), codec), len(done.changed)
        if not codec:
            return done.data, len(done.changed)
        stamped = magic > MAGIC_V0 and attributes & TIMESTAMP_TYPE_BIT
        append_time = table.max_timestamp_of(row) if stamped else NO_TIMESTAMP
        messages = scan(done.data, check_crc=False)
        return rebuild(done.data, messages, magic=magic, codec=codec, append_time=append_time).data, len(done.changed)
    except KafkalogError as error:
        error.path = chunk.path
        error.offset, error.position = table.base_offset(row), table.position(row)
        raise
