"""One task's records as Arrow batches, in Spark's own schema."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from kafkalog.api import open as open_log
from kafkalog.log_scan import LogScan
from kafkalog.spark.options import SourceOptions
from kafkalog.spark.ranges import OffsetRange
from kafkalog.spark.row_schema import arrow_schema

__all__ = ["arrow_batches"]

BATCH_ROWS = 10_000
BATCH_BYTES = 4 << 20


def arrow_batches(wanted: OffsetRange, columns: tuple[str, ...], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The records of a range, in order, as record batches of bounded size."""
    schema = arrow_schema(columns)
    with open_log(wanted.directory) as log:
        scan = LogScan(
            log, wanted.start, wanted.stop, columns, isolation=options.isolation,
            batch_rows=BATCH_ROWS, batch_bytes=BATCH_BYTES,
        )  # fmt: skip
        yield from pa.RecordBatchReader.from_stream(scan, schema=schema)
