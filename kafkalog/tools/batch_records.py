"""The records of one batch, whatever its format and codec: the dump tool's only door to decompression."""

from __future__ import annotations

from typing import Final

from kafkalog._core.decode import STATUS_TEXT, RecordTable, decode
from kafkalog._core.scan import scan
from kafkalog.errors import InvalidRecord
from kafkalog.records.dispatch import check_readable
from kafkalog.records.format import MAGIC_V2, NO_TIMESTAMP

MAGIC_AT: Final = 16
ATTRIBUTES_AT: Final = {True: 22, False: 17}
CODEC_MASK: Final = 7


def plain_batch(batch: bytes, *, path: str, offset: int, position: int) -> bytes:
    """The batch as it would be without compression: a v2 header and its records, or a run of v0 and v1 messages.

    Size fields, attributes and checksums of the result have no meaning. A file's magic above 2 counts as 2.
    The codecs and formats this version does not read are refused by name.
    """
    magic = min(batch[MAGIC_AT], MAGIC_V2)
    codec = batch[ATTRIBUTES_AT[magic == MAGIC_V2]] & CODEC_MASK
    check_readable(magic, codec, path=path, offset=offset, position=position)
    return batch


def records_of(batch: bytes, *, path: str, offset: int, position: int) -> RecordTable:
    """The records of a whole batch; the checksum is not looked at. InvalidRecord for records that cannot be read."""
    plain = bytearray(plain_batch(batch, path=path, offset=offset, position=position))
    plain[MAGIC_AT] = min(plain[MAGIC_AT], MAGIC_V2)
    table = scan(plain, check_crc=False)
    if len(table) and not table.records_in(0):
        return decode(plain, table, 0, 0)
    records = decode(plain, table)
    if records.status or not len(table):
        what = STATUS_TEXT[records.status] if records.status else "it is no whole batch"
        raise InvalidRecord(f"the batch cannot be read: {what}", path=path, offset=offset, position=position)
    return records


def largest_timestamp(batch: bytes, *, path: str, offset: int, position: int) -> int:
    """The largest timestamp among the records of a whole batch, -1 where it has none."""
    records = records_of(batch, path=path, offset=offset, position=position)
    return max(records.timestamps, default=NO_TIMESTAMP)
