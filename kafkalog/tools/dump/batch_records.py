"""The records of one batch of a `.log` file, whatever its format and codec, for the dump tool.

A magic above 2 counts as 2, and checksums are not checked.
"""

from __future__ import annotations

from typing import Final

from kafkalog._core.batch.decode import RecordTable
from kafkalog._core.batch.scan import scan
from kafkalog.errors import CorruptRecord, KafkalogError
from kafkalog.records import tables
from kafkalog.records.format import MAGIC_V2, NO_TIMESTAMP

MAGIC_AT: Final = 16


def records_of(batch: bytes, *, path: str, offset: int, position: int, lenient: bool = False) -> RecordTable:
    """Return the records of a complete batch.

    `lenient` as for `_core.batch.decode.decode`; InvalidRecord, CorruptRecord or IllegalArgument, with the batch's
    place, if it cannot be decompressed.
    """
    magic = int.from_bytes(batch[MAGIC_AT : MAGIC_AT + 1], "big", signed=True)
    if magic < 0:
        raise CorruptRecord(f"unknown batch format {magic}", path=path, offset=offset, position=position)
    data: bytes | bytearray = batch
    if magic > MAGIC_V2:
        data = bytearray(batch)
        data[MAGIC_AT] = MAGIC_V2
    table = scan(data, check_crc=False)
    if not len(table):
        raise CorruptRecord("the batch is incomplete", path=path, offset=offset, position=position)
    try:
        return tables.batch_table(data, table, 0, lenient=lenient, ordered=False)
    except KafkalogError as error:
        raise _located(error, path, offset, position) from error.__cause__


def largest_timestamp(batch: bytes, *, path: str, offset: int, position: int) -> int:
    """Return the largest timestamp of a complete batch's records, -1 if it has none.

    As in the reference, keys and values of v0 and v1 messages are not decoded.
    """
    records = records_of(batch, path=path, offset=offset, position=position, lenient=True)
    return max(records.timestamps, default=NO_TIMESTAMP)


def _located(error: KafkalogError, path: str, offset: int, position: int) -> KafkalogError:
    """Return the error with the batch's place in its file; its own position is relative to the batch."""
    error.path, error.offset = path, offset
    error.position = position + (error.position or 0)
    return error
