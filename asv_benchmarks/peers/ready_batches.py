"""A data source that hands out one ready-made Arrow batch over and over: what Spark's own side of a read costs.

Options: rows (of all partitions together), partitions (Spark's), batch (rows a batch), value_bytes, columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

FIELDS = {
    "key": ("binary", pa.binary()),
    "value": ("binary", pa.binary()),
    "topic": ("string", pa.string()),
    "partition": ("int", pa.int32()),
    "offset": ("bigint", pa.int64()),
    "timestamp": ("timestamp", pa.timestamp("us", "UTC")),
    "timestampType": ("int", pa.int32()),
}
KEY_BYTES = 8
FIRST_US = 1_700_000_000_000_000


@dataclass
class Share(InputPartition):
    """The rows of one task."""

    number: int
    rows: int


class ReadyBatches(DataSource):
    """`format("readybatches")`, once registered."""

    @classmethod
    def name(cls) -> str:
        return "readybatches"

    def _columns(self) -> list[str]:
        named = self.options.get("columns", "")
        return named.split(",") if named else list(FIELDS)

    def schema(self) -> str:
        return ", ".join(f"{name} {FIELDS[name][0]}" for name in self._columns())

    def reader(self, schema: object) -> DataSourceReader:
        number = {name: int(self.options.get(name, 0)) for name in ("rows", "partitions", "batch", "value_bytes")}
        return _Reader(self._columns(), **number)


class _Reader(DataSourceReader):
    def __init__(self, columns: list[str], rows: int, partitions: int, batch: int, value_bytes: int) -> None:
        self._columns = columns
        self._rows = rows
        self._shares = partitions or 1
        self._batch = batch or 10_000
        self._value_bytes = value_bytes or 100

    def partitions(self) -> list[InputPartition]:
        return [Share(number, self._rows // self._shares) for number in range(self._shares)]

    def read(self, partition: Share) -> Iterator[pa.RecordBatch]:
        whole = ready_batch(self._columns, self._batch, self._value_bytes, partition.number)
        for left in range(partition.rows, 0, -self._batch):
            yield whole if left >= self._batch else whole.slice(0, left)


def ready_batch(columns: list[str], rows: int, value_bytes: int, number: int) -> pa.RecordBatch:
    """Return one batch of the schema of Spark's Kafka source."""
    count = np.arange(rows, dtype=np.int64)
    noise = np.random.default_rng(number).integers(97, 122, rows * value_bytes, dtype=np.uint8)
    made = {
        "key": _binary(np.char.zfill(count.astype(f"S{KEY_BYTES}"), KEY_BYTES).tobytes(), rows, KEY_BYTES),
        "value": _binary(noise.tobytes(), rows, value_bytes),
        "topic": pa.array(["rows"] * rows, pa.string()),
        "partition": pa.array(np.full(rows, number, np.int32)),
        "offset": pa.array(count),
        "timestamp": pa.array(FIRST_US + count * 1000, FIELDS["timestamp"][1]),
        "timestampType": pa.array(np.zeros(rows, np.int32)),
    }
    return pa.RecordBatch.from_arrays(
        [made[name] for name in columns], schema=pa.schema([(name, FIELDS[name][1]) for name in columns])
    )


def _binary(data: bytes, rows: int, width: int) -> pa.Array:
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * width)
    return pa.Array.from_buffers(pa.binary(), rows, [None, offsets, pa.py_buffer(data)])
