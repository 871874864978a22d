"""Readers of Arrow data for the tests: objects around capsules, and rows as the records they came from."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kafkalog._core.arrow import capsules as arrow
from kafkalog._core.arrow.column_builder import ColumnBuilder
from kafkalog._core.arrow.columns import KIND_NAMES, Columns, gathered
from kafkalog._core.batch.scan import scan

ALL = bytes(range(len(KIND_NAMES)))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


class Stream:
    """Columns as an object with `__arrow_c_stream__`."""

    def __init__(self, columns: Columns, first: int = 0, last: int | None = None) -> None:
        self.arguments = columns, first, len(columns) if last is None else last

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return arrow.stream_of(*self.arguments, requested_schema)


class Given:
    """An object that hands out an existing stream capsule."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.capsule


def pieces_of(data: bytes, kinds: bytes = ALL, **options: Any) -> list[Columns]:
    """The pieces that the sound, plain batches in `data` make."""
    builder = ColumnBuilder(kinds, **options)
    batches = scan(data)
    assert batches.stop_position == len(data)
    row, pieces = builder.feed(data, batches), []
    while builder.full:
        pieces.append(builder.take())
        row = builder.feed(data, batches, row)
    assert builder.status == 0, builder.error_text
    assert builder.ended or row == len(batches)
    return [*pieces, builder.take()]


def columns_of(data: bytes, kinds: bytes = ALL, **options: Any) -> Columns:
    """Return the records as one Columns object."""
    return gathered(pieces_of(data, kinds, **options), kinds)


def checked(source: Any, schema: Any = None) -> pa.Table:
    """Return pyarrow's table of an object with a stream, with every buffer validated."""
    reader = pa.RecordBatchReader.from_stream(source, schema=schema)
    batches = list(reader)
    for batch in batches:
        batch.validate(full=True)
    table = pa.Table.from_batches(batches, reader.schema)
    table.validate(full=True)
    return table


def records_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """(offset, timestamp in ms, key, value, headers) of each row, as a Record has them."""
    whole = table.set_column(
        table.schema.get_field_index("timestamp"), "timestamp", table["timestamp"].cast(pa.int64())
    )
    return [
        (
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in whole.to_pylist()
    ]


def as_tuples(records: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return offset, timestamp, key, value and headers of Record objects."""
    return [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]
