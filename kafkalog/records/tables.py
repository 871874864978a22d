"""Record tables of batches of any format and codec, many batches at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkalog._core.decode import RecordTable, decode
from kafkalog._core.scan import BatchTable
from kafkalog.records.compression import DECODED_LIMIT_BYTES
from kafkalog.records.plain_runs import plain_run, plain_runs

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["batch_table", "record_tables"]


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
    for run in plain_runs(data, batches, first, last, base_position=base_position, limit_bytes=limit_bytes):
        table = decode(run.data, run.table, run.first, run.last, base_position=run.base_position)
        run.note(table)
        if len(table):
            yield table
        run.raise_failure(path)


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
    run = plain_run(data, batches, row, row + 1, base_position=base_position, limit_bytes=limit_bytes)
    table = decode(run.data, run.table, run.first, run.last, base_position=run.base_position, lenient=lenient)
    run.note(table)
    run.raise_failure(path)
    return table
