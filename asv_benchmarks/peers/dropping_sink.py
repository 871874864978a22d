"""A data sink that looks at no row: what Spark's own side of a write by Python costs."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage


class DroppingSink(DataSource):
    """`format("dropping")`, once registered."""

    @classmethod
    def name(cls) -> str:
        return "dropping"

    def writer(self, schema: object, overwrite: bool) -> DataSourceArrowWriter:
        return _Writer()


class _Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()
