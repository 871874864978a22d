"""Plain v2 batches without gaps, as producers send them, for targets that do not accept a log's batches unchanged.

A batch keeps its records, timestamps, codec and boundaries. If its records have consecutive offsets, their bytes are
copied and only the header changes; otherwise they are encoded again. Both change the checksum, so the old one is
checked first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog._core.batch.scan import scan
from kafkalog._core.bytes.crc import crc32c
from kafkalog.errors import CorruptRecord, KafkalogError
from kafkalog.records.convert import rebuild
from kafkalog.records.format import CODEC_MASK, MAGIC_V2, TIMESTAMP_TYPE_BIT
from kafkalog.records.plain_runs import plain_row

if TYPE_CHECKING:
    from kafkalog._core.batch.record import Record
    from kafkalog.storage.segment_reader import Chunk

NO_PRODUCER: Final = -1
_EPOCH_AT: Final = 12
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_PRODUCER_AT: Final = 43
_PRODUCER: Final = struct.Struct(">qhi")


class PlainBatch(NamedTuple):
    """A batch in its own buffer, and the runs of offsets that its records had in the source: (first offset, count)."""

    data: bytearray
    records: int
    runs: tuple[tuple[int, int], ...]
    next_offset: int


def plain_batches(chunk: Chunk, start: int) -> Iterator[PlainBatch]:
    """Yield the records of the chunk's batches from offset `start` on as plain batches, one for each batch.

    Batches without such records are left out; control batches must not be among the rows. Raises CorruptRecord for a
    wrong checksum, InvalidRecord for records that cannot be read.
    """
    table = chunk.batches
    for row in range(chunk.first, chunk.last):
        if table.last_offset_of(row) < start or (table.magic(row) >= MAGIC_V2 and not table.records_in(row)):
            continue
        try:
            found = _copied(chunk, row, start) or _encoded_again(chunk, row, start)
        except KafkalogError as error:
            error.path = error.path or chunk.path
            error.offset, error.position = table.base_offset(row), table.position(row)
            raise
        if found is not None:
            yield found


def bytes_of(chunk: Chunk, first: int, last: int) -> memoryview:
    """Return the bytes of the chunk's rows `first` up to `last`, which are adjacent."""
    table, end = chunk.batches, last - 1
    return memoryview(chunk.data)[table.position(first) - chunk.position :][
        : table.position(end) + table.size(end) - table.position(first)
    ]


def committed_batches(chunk: Chunk) -> bytearray:
    """Return the batches of the chunk's rows, without producers and transactions.

    Offsets, gaps and epochs stay. Raises CorruptRecord for a wrong checksum.
    """
    out = bytearray()
    for row in range(chunk.first, chunk.last):
        data = bytes_of(chunk, row, row + 1)
        header = chunk.batches[row]
        if header.magic >= MAGIC_V2 and header.producer_id != NO_PRODUCER:
            _check(header.is_valid, chunk, row)
            own = bytearray(data)
            own[_ATTRIBUTES_AT + 1] &= CODEC_MASK | TIMESTAMP_TYPE_BIT
            _finish(own, NO_PRODUCER, -1, -1)
            data = memoryview(own)
        out += data
    return out


def is_changed_from(chunk: Chunk, row: int, before: Chunk, row_before: int, *, may_be_compacted: bool) -> bool:
    """Return True if compaction, which removes records, or a redaction may have turned one batch into the other.

    Their offsets must be equal, and each record must be in the other batch, there or here possibly without a value and
    headers. Only a v2 batch keeps its offsets in a compaction. CorruptRecord, InvalidRecord.
    """
    new, old = chunk.batches[row], before.batches[row_before]
    if (new.base_offset, new.last_offset) != (old.base_offset, old.last_offset):
        return False
    found, known = chunk.batch_table(row), before.batch_table(row_before)
    if found.count != known.count and not (may_be_compacted and new.magic >= MAGIC_V2):
        return False
    records = {known.offsets[at]: known[at] for at in range(known.count)}
    return all(_may_be_same(records.get(found.offsets[at]), found[at]) for at in range(found.count))


def _may_be_same(one: Record | None, other: Record) -> bool:
    """Return True if the records are equal, or have the same time and one may be the other after a redaction."""
    if one is None or one == other:
        return one is not None
    is_emptied = any(not record.value and not record.headers for record in (one, other))
    return is_emptied and one.timestamp == other.timestamp and (one.key == other.key or not one.key or not other.key)


def stamp(data: bytearray, producer_id: int, epoch: int, sequence: int) -> None:
    """Set the producer and the sequence of a plain batch, with offset 0 and no leader epoch, and its checksum."""
    struct.pack_into(">q", data, 0, 0)
    struct.pack_into(">i", data, _EPOCH_AT, -1)
    _finish(data, producer_id, epoch, sequence)


def _finish(data: bytearray, producer_id: int, epoch: int, sequence: int) -> None:
    _PRODUCER.pack_into(data, _PRODUCER_AT, producer_id, epoch, sequence)
    struct.pack_into(">I", data, _CRC_AT, crc32c(memoryview(data)[_ATTRIBUTES_AT:]))


def _check(is_valid: bool, chunk: Chunk, row: int) -> None:
    if not is_valid:
        raise CorruptRecord(
            "the checksum of the batch does not fit its bytes", path=chunk.path,
            offset=chunk.batches.base_offset(row), position=chunk.batches.position(row),
        )  # fmt: skip


def _copied(chunk: Chunk, row: int, start: int) -> PlainBatch | None:
    """Return the batch with its records' bytes as they are; None if they have to be encoded again."""
    header = chunk.batches[row]
    _check(header.is_valid, chunk, row)
    base, count = header.base_offset, header.count
    if base < start or header.magic < MAGIC_V2 or header.attributes & TIMESTAMP_TYPE_BIT:
        return None
    if count != header.last_offset - base + 1:
        return None
    data = bytearray(bytes_of(chunk, row, row + 1))
    _make_plain(data)
    return PlainBatch(data, count, ((base, count),), base + count)


def _make_plain(data: bytearray) -> None:
    data[_ATTRIBUTES_AT] = 0
    data[_ATTRIBUTES_AT + 1] &= CODEC_MASK


def _encoded_again(chunk: Chunk, row: int, start: int) -> PlainBatch | None:
    """Return the records of a row from `start` on, at consecutive offsets; None if there are none.

    Records of a batch with an append time have that timestamp.
    """
    source = chunk.batches
    found = chunk.batch_table(row)
    offsets = [offset for offset in found.offsets if offset >= start]
    if not offsets:
        return None
    codec = source.attributes(row) & CODEC_MASK
    if codec:
        data, table = plain_row(chunk.data, source, row, base_position=chunk.position, path=chunk.path)
    else:
        data = bytes_of(chunk, row, row + 1)
        table = scan(data, check_crc=False)
    batch = rebuild(data, table, codec=codec, first_offset=0, from_offset=start).data
    _make_plain(batch)
    return PlainBatch(batch, len(offsets), tuple(_runs(offsets)), offsets[-1] + 1)


def _runs(offsets: list[int]) -> Iterator[tuple[int, int]]:
    begin = 0
    for index in range(1, len(offsets) + 1):
        if index == len(offsets) or offsets[index] != offsets[index - 1] + 1:
            yield offsets[begin], index - begin
            begin = index
