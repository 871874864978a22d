"""Rows of a table that is loaded into a topic."""

from datetime import UTC, datetime

import pyarrow as pa

from tests.lake.tables import T

COLUMNS_OF_TABLE = {"id": pa.int64(), "name": pa.string(), "at": pa.timestamp("us", "UTC"), "data": pa.binary()}
SCHEMA = pa.schema([*COLUMNS_OF_TABLE.items()])


def rows(first: int, count: int) -> pa.Table:
    """Rows with an id, a name, a time and bytes."""
    at = [datetime.fromtimestamp((T + n) / 1000, UTC) for n in range(first, first + count)]
    made = [[*range(first, first + count)], [f"n{n % 7}" for n in range(first, first + count)], at]
    return pa.table([*made, [b"%d" % n for n in range(first, first + count)]], schema=SCHEMA)


COLUMNS = {"key": "name", "value": "data", "timestamp": "at"}
