"""Columns of Arrow: the builder fed with plain batches, in small pieces, against a record table of the same bytes."""

from kafkalog._core.arrow.capsules import array_of, schema_of, stream_of
from kafkalog._core.arrow.column_builder import ColumnBuilder
from kafkalog._core.arrow.columns import KIND_NAMES, Columns, gathered
from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.scan import BatchTable, scan

SEALS = True
ALL = bytes(range(len(KIND_NAMES)))
KEY, VALUE, HEADERS = (KIND_NAMES.index(name) for name in ("key", "value", "headers"))
OFFSET, TIMESTAMP = KIND_NAMES.index("offset"), KIND_NAMES.index("timestamp")


def run(data: memoryview) -> None:
    """Check that the same records come out, whatever the pieces; every export can be created and dropped."""
    table = scan(data, check_crc=False)
    kind = data[7] if len(data) > 7 else 0
    pieces, status = built(data, table, ALL, 1 + kind % 5)
    records = decode(data, table)
    assert (status == 0) == (records.status == 0)
    whole = gathered(pieces, ALL)
    rows = len(whole)
    assert rows == len(records)
    for column, wanted in ((OFFSET, records.offsets), (TIMESTAMP, records.timestamps)):
        assert list(whole.fixed(column)) == list(wanted)
    for column, name in ((KEY, "key"), (VALUE, "value"), (HEADERS, "headers")):
        assert whole.values(column, 0, min(rows, 4)) == [getattr(records[n], name) for n in range(min(rows, 4))]
    for piece in pieces[:2]:
        array_of(piece, len(piece) // 2, len(piece))
    stream_of(whole, rows // 3, rows)
    few = bytes((OFFSET, ALL[kind % len(ALL)])) if ALL[kind % len(ALL)] != OFFSET else bytes((OFFSET,))
    projected, _ = built(data, table, few, 100)
    assert sum(map(len, projected)) >= rows
    empty = gathered(built(data, table, ALL, 2, ())[0], ALL)
    assert len(empty) == rows and not any(empty.values(VALUE, 0, rows))
    schema_of(few)


def built(
    data: memoryview, table: BatchTable, kinds: bytes, most_rows: int, chosen: tuple[bytes, ...] | None = None
) -> tuple[list[Columns], int]:
    """All pieces, and the status at which it ended."""
    builder = ColumnBuilder(
        kinds, topic=b"t", partition=3, every=True, most_rows=most_rows, most_bytes=100, chosen=chosen
    )
    pieces: list[Columns] = []
    row, steps = 0, 0
    while row < len(table):
        row = builder.feed(data, table, row)
        steps += 1
        assert steps <= len(data) + 2
        if builder.status or not builder.full:
            break
        pieces.append(builder.take())
    if builder.rows:
        pieces.append(builder.take())
    return pieces, builder.status
