"""Record tables of batches of any format and codec, many batches at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkalog._core.batch.decode import STATUS_OK, RecordTable, decode
from kafkalog._core.batch.scan import BatchTable
from kafkalog.records.compression import DECODED_LIMIT_BYTES
from kafkalog.records.plain_runs import PlainRun, plain_run, plain_runs

if TYPE_CHECKING:
    from typing_extensions import Buffer


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
    """Yield record tables for rows `first` up to `last` (exclusive; -1 is all) of a batch table; none is empty.

    `data` is the buffer the batch table was made from, `base_position` is the scan's, `path` is the file that errors
    name, `limit_bytes` limits the decompressed size of one batch. After the records before it, damage raises
    InvalidRecord, an incomplete message CorruptRecord, an unknown codec IllegalArgument, each with the batch's offset
    and position.
    """
    if not batches.codec:  # the fast path for most chunks of most logs: nothing to decompress
        table = decode(data, batches, first, last, base_position=base_position, ordered=True)
        if len(table):
            yield table
        if table.status != STATUS_OK:
            run = PlainRun(data, batches, first, last, base_position)
            run.record_damage(table)
            run.raise_failure(path)
        return
    for run in plain_runs(data, batches, first, last, base_position=base_position, limit_bytes=limit_bytes):
        table = decode(run.data, run.table, run.first, run.last, base_position=run.base_position, ordered=True)
        run.record_damage(table)
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
    ordered: bool = True,
    limit_bytes: int = DECODED_LIMIT_BYTES,
) -> RecordTable:
    """Return the records of one batch; arguments and errors as for `record_tables`.

    `lenient` and `ordered` as for `_core.batch.decode.decode`.
    """
    run = plain_run(data, batches, row, row + 1, base_position=base_position, limit_bytes=limit_bytes)
    table = decode(
        run.data, run.table, run.first, run.last, base_position=run.base_position, lenient=lenient, ordered=ordered
    )
    run.record_damage(table)
    run.raise_failure(path)
    return table
