"""Conversion of batches to another format or codec: rebuilding uncompressed batches and converting whole buffers.

Up-conversion turns messages of format v0 and v1 into v2 batches, down-conversion v2 batches into messages, as brokers
up to 3.9 did for old clients (KIP-31, KIP-32, KIP-98; format.md sections 1 and 4). Whatever the target format cannot
hold is lost.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Never

from kafkalog._core.batch.decode import STATUS_TEXT
from kafkalog._core.batch.legacy import wrapper
from kafkalog._core.batch.repack import with_payload
from kafkalog._core.batch.rewrite import (
    STATUS_HEADERS,
    STATUS_NEGATIVE_TIME,
    STATUS_OFFSETS,
    STATUS_TOO_LONG,
    Rewritten,
    message_run,
    rewrite,
)
from kafkalog._core.batch.scan import REASON_PARTIAL, BatchTable, scan
from kafkalog._core.log.admit import end_of_magic
from kafkalog.errors import (
    CorruptRecord,
    IllegalArgument,
    InvalidRecord,
    InvalidTimestamp,
    KafkalogError,
    RecordTooLarge,
    UnsupportedCompression,
)
from kafkalog.records.compression import compress
from kafkalog.records.format import (
    BATCH_OVERHEAD_BYTES,
    CODEC_MASK,
    CONTROL_BIT,
    MAGIC_V0,
    MAGIC_V1,
    MAGIC_V2,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    CompressionType,
)
from kafkalog.records.plain_runs import plain_row
from kafkalog.util.keywords import unknown_keyword

if TYPE_CHECKING:
    from typing_extensions import Buffer

BATCH_BYTES: Final = 16384
"""Default size in bytes of the uncompressed messages that go into one v2 batch."""
_OFFSET: Final = struct.Struct(">q")
_LEADER_EPOCH: Final = struct.Struct(">i")
_FLAGS_AND_DELTA: Final = struct.Struct(">hi")
_MAGICS: Final = (MAGIC_V0, MAGIC_V1, MAGIC_V2)
_TOO_LONG: Final = "the records exceed 2 GiB as a batch of that format"


def convert(
    batches: Buffer,
    magic: int,
    *,
    only_down: bool = False,
    start_offset: int | None = None,
    batch_bytes: int = BATCH_BYTES,
    **unknown: Never,
) -> bytearray:
    """Convert the whole batches of a buffer, back to back, to format `magic` (0, 1 or 2); return a new buffer.

    Offsets, keys, values and codecs stay; timestamps do from v1 on, with their type. Batches of that format are copied,
    and with `only_down` those of a lower one too, as a broker did for an old consumer. Each v2 batch and each wrapper
    becomes one; adjacent uncompressed messages are joined into v2 batches of at most `batch_bytes`. Conversion to a
    lower format loses headers, producers, transactions, epochs and gaps around batches. It leaves out control batches,
    batches without records, and records of uncompressed batches below `start_offset`. An incomplete batch at the end is
    left out.

    Raises CorruptRecord for a wrong checksum, size or format, InvalidRecord for records that cannot be read,
    UnsupportedCompression for zstd in v0 or v1, RecordTooLarge above 2 GiB; each names the batch's offset and position.

    >>> from kafkalog import convert
    >>> convert(b"", 1)
    bytearray(b'')
    """
    if unknown:
        raise unknown_keyword("convert", unknown, ("batches", "magic", "only_down", "start_offset", "batch_bytes"))
    if magic not in _MAGICS:
        raise IllegalArgument(f"there is no format v{magic}", hint="magic is 0, 1 or 2")
    view = memoryview(batches).cast("B")
    table = scan(view)
    check_frames(table, "conversion would give damaged records a valid checksum")
    out = bytearray()
    row, rows = 0, table.count
    while row < rows:
        source = table.magic(row)
        end = end_of_magic(table, row)
        if source == magic or (only_down and source < magic):
            out += view[table.position(row) : table.position(end - 1) + table.size(end - 1)]
        else:
            _convert_rows(out, view, table, row, end, magic, start_offset, batch_bytes)
        row = end
    return out


def check_frames(table: BatchTable, hint: str) -> None:
    """Raise CorruptRecord unless the buffer holds whole, valid batches; a partial batch may follow them."""
    if table.stop_reason > REASON_PARTIAL:
        raise CorruptRecord(
            f"a batch has the invalid size field or format {table.stop_value}", position=table.stop_position, hint=hint
        )
    if table.first_invalid >= 0:
        batch = table[table.first_invalid]
        raise CorruptRecord(
            f"the batch of {batch.size} bytes has CRC {batch.crc}, but its bytes give {batch.computed_crc}",
            offset=batch.base_offset,
            position=batch.position,
            hint=hint,
        )


def _convert_rows(
    out: bytearray,
    view: memoryview,
    table: BatchTable,
    first: int,
    last: int,
    magic: int,
    start_offset: int | None,
    batch_bytes: int,
) -> None:
    """Convert rows of one format and append them to `out`."""
    row = first
    while row < last:
        end = message_run(table, row, last if magic == MAGIC_V2 else row + 1, batch_bytes)
        attributes = table.attributes(row)
        codec = attributes & CODEC_MASK
        stamped = table.magic(row) > MAGIC_V0 and attributes & TIMESTAMP_TYPE_BIT
        nothing = table.magic(row) == MAGIC_V2 and (attributes & CONTROL_BIT or table.records_in(row) == 0)
        if not nothing:
            try:
                if codec == CompressionType.ZSTD and magic < MAGIC_V2:
                    raise UnsupportedCompression(f"format v{magic} has no zstd: the batch cannot be converted")
                options: dict[str, Any] = {
                    "magic": magic,
                    "codec": codec,
                    "append_time": table.max_timestamp_of(row) if stamped else NO_TIMESTAMP,
                    "drop_headers": True,
                }
                if codec:
                    block, plain = plain_row(view, table, row)
                    rebuilt = rebuild(block, plain, **options)
                else:
                    rebuilt = rebuild(view, table, row, end, from_offset=start_offset, **options)
            except KafkalogError as error:
                error.offset = table.base_offset(row)
                error.position = table.position(row)
                raise
            out += rebuilt.data
        row = end


class Rebuilt(NamedTuple):
    """Rebuilt batch or message set: its bytes and what they hold.

    `plain_size` is its uncompressed size in bytes. REC-36 defines the offset of the largest timestamp.
    """

    data: bytearray
    record_count: int
    last_offset: int
    plain_size: int
    max_timestamp: int
    offset_of_max_timestamp: int


def rebuild(
    buffer: Buffer,
    table: BatchTable,
    first: int = 0,
    last: int = -1,
    *,
    magic: int = MAGIC_V2,
    codec: int = CompressionType.NONE,
    level: int | None = None,
    first_offset: int | None = None,
    from_offset: int | None = None,
    append_time: int = NO_TIMESTAMP,
    leader_epoch: int = -1,
    drop_headers: bool = False,
) -> Rebuilt:
    """Rebuild uncompressed rows as one v2 batch, or as a v0 or v1 message set, compressed with `codec`.

    Arguments and offsets as for `_core.batch.rewrite.rewrite`. Raises IllegalArgument for headers that the format
    cannot hold and for zstd in v0 or v1, InvalidTimestamp for one below -1, InvalidRecord, and RecordTooLarge past
    2 GiB.
    """
    wraps = codec != CompressionType.NONE and magic < MAGIC_V2
    rewritten = rewrite(
        buffer,
        table,
        first,
        last,
        magic=magic,
        first_offset=first_offset,
        from_offset=from_offset,
        relative=wraps and magic == MAGIC_V1,
        append_time=append_time,
        leader_epoch=leader_epoch,
        drop_headers=drop_headers,
    )
    if rewritten.data is None:
        raise _rewrite_error(rewritten, table, magic)
    data = rewritten.data
    if rewritten.count and codec != CompressionType.NONE:
        stamped = append_time >= 0 and magic > MAGIC_V0
        try:
            if not wraps:
                body = memoryview(data)[BATCH_OVERHEAD_BYTES:]
                data = with_payload(data, compress(codec, body, level=level), codec)
            else:
                data = wrapper(
                    compress(codec, data, level=level, magic=magic),
                    magic=magic,
                    codec=codec,
                    offset=rewritten.last_offset,
                    timestamp=append_time if stamped else rewritten.max_timestamp,
                    append_time=stamped,
                )
        except OverflowError:
            raise RecordTooLarge(_TOO_LONG) from None
    largest, offset = rewritten.max_timestamp, rewritten.offset_of_max_timestamp
    shallow = magic == MAGIC_V2 or codec != CompressionType.NONE
    if append_time >= 0:
        largest, offset = append_time, rewritten.last_offset if shallow else rewritten.base_offset
    elif shallow and largest >= 0:
        offset = rewritten.last_offset
    return Rebuilt(data, rewritten.count, rewritten.last_offset, len(rewritten.data), largest, offset)


def repack(
    buffer: Buffer,
    table: BatchTable,
    *,
    max_timestamp: int,
    codec: int = CompressionType.NONE,
    level: int | None = None,
    first_offset: int = 0,
    append_time: int = NO_TIMESTAMP,
) -> Rebuilt:
    """Return what `rebuild` would for the first row of `table`, an uncompressed v2 batch; copy its records unchanged.

    The records must be fresh (`RecordCheck.fresh`): only the header is rebuilt. `max_timestamp` (ms) is that of the
    records.
    """
    view = memoryview(buffer).cast("B")[table.position(0) : table.position(0) + table.size(0)]
    count = table.records_in(0)
    header = bytearray(view[:BATCH_OVERHEAD_BYTES])
    largest = max_timestamp if append_time < 0 else append_time
    stamp = 0 if append_time < 0 else TIMESTAMP_TYPE_BIT
    _OFFSET.pack_into(header, 0, first_offset)
    _LEADER_EPOCH.pack_into(header, 12, -1)
    _FLAGS_AND_DELTA.pack_into(header, 21, table.attributes(0) & (CONTROL_BIT | TRANSACTIONAL_BIT) | stamp, count - 1)
    _OFFSET.pack_into(header, 35, largest)
    try:
        records = compress(codec, view[BATCH_OVERHEAD_BYTES:], level=level)
    except OverflowError:
        raise RecordTooLarge(_TOO_LONG) from None
    last = first_offset + count - 1
    return Rebuilt(with_payload(header, records, codec), count, last, len(view), largest, last if largest >= 0 else -1)


def _rewrite_error(rewritten: Rewritten, table: BatchTable, magic: int) -> KafkalogError:
    """Return the typed error for the record that could not be written."""
    where: dict[str, Any] = {"offset": table.base_offset(rewritten.row)}
    if rewritten.status == STATUS_HEADERS:
        return IllegalArgument(f"record {rewritten.record} has headers, which format v{magic} does not have", **where)
    if rewritten.status == STATUS_NEGATIVE_TIME:
        text = "the timestamp is negative: give ms since 1970, or -1 for none"
        return InvalidTimestamp(f"record {rewritten.record}: {text}", record_errors=[(rewritten.record, text)], **where)
    if rewritten.status == STATUS_TOO_LONG:
        return RecordTooLarge(_TOO_LONG, **where)
    if rewritten.status == STATUS_OFFSETS:
        return InvalidRecord(f"the offset of record {rewritten.record} does not follow the one before it", **where)
    return InvalidRecord(f"record {rewritten.record} of the batch: {STATUS_TEXT[rewritten.status]}", **where)
