"""The data source `kafkalog` in Spark's interface.

Spark starts a new Python for each step of a plan. A step imports only what it needs: other imports would cost a quarter
of a second for every query.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from kafkalog.spark.options import SourceOptions, columns_of, is_decoding
from kafkalog.spark.row_schema import TYPES, arrow_of, ddl_of, wanted_columns

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from kafkalog.spark.filters import Pruning
    from kafkalog.spark.sink import BatchSink, StreamSink
    from kafkalog.spark.sink_options import SinkOptions
    from kafkalog.spark.typed_columns import TypedColumns

_PUSHING: Final = "data_source_pushdown_filters"


class KafkalogDataSource(DataSource):
    """`spark.read.format("kafkalog")`: Kafka's log directories as the columns of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "kafkalog"

    _typed: TypedColumns | None = None
    """What `schema` settled: Spark pickles the source after it, so that readers have the same types."""

    def schema(self) -> str | StructType:
        """Return the columns in the options; decoded ones in the types of a schema, or of the first values."""
        columns = columns_of(self.options)
        if not is_decoding(self.options):
            return ddl_of(columns)
        from kafkalog.spark.typed_columns import plan_types

        self._typed = plan_types(SourceOptions.parse(self.options, streaming=None), columns)
        return ddl_of(columns) if self._typed is None else _spark_schema(self._typed)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of a batch; it accepts filters if Spark is about to push them."""
        options = SourceOptions.parse(self.options, streaming=False)
        columns, typed = self._columns(schema, options)
        if options.push_filters and _asked_by_pushdown():
            return _PushingReader(options, columns, typed)
        return BatchReader(options, columns, typed)

    def _columns(self, schema: StructType, options: SourceOptions) -> tuple[tuple[str, ...], TypedColumns | None]:
        """Return the columns of a schema, the user's or the source's own, and how some of them are decoded.

        A key or a value that the user's schema has as binary stays bytes, and one that it does not have is not decoded.
        """
        kept = {one.name for one in schema.fields if one.dataType.simpleString() == TYPES.get(one.name)}
        asked = {one.name.removesuffix("_error") for one in schema.fields}
        decoded = asked & {name for name, _ in options.decoding} - kept
        if not decoded:
            return wanted_columns(schema), None
        typed = self._typed
        if typed is None:
            from kafkalog.spark.typed_columns import plan_types

            typed = plan_types(options, [one for one in TYPES if one in decoded])
        if typed is None:
            return wanted_columns(schema), None
        types = {one.name: one.dataType.simpleString() for one in _spark_schema(typed).fields}
        return wanted_columns(schema, types), typed

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """Return a batch write, which appends."""
        from kafkalog.spark.sink import BatchSink, refuse_overwrite

        if overwrite:
            raise refuse_overwrite()
        return BatchSink(_sink_options(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """Return a streaming write. Output mode complete appends the rows of each batch, as Spark's Kafka sink does."""
        from kafkalog.spark.sink import StreamSink

        return StreamSink(_sink_options(self.options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of a stream."""
        options = SourceOptions.parse(self.options, streaming=True)
        columns, typed = self._columns(schema, options)
        if hasattr(DataSourceStreamReader, "getDefaultReadLimit"):
            from kafkalog.spark.stream import StreamReader

            return StreamReader(options, columns, typed)
        from kafkalog.spark.unlimited_stream import UnlimitedStreamReader, check_unlimited

        check_unlimited(options)  # PySpark 4.1
        return UnlimitedStreamReader(options, columns, typed)


def _spark_schema(typed: TypedColumns) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(typed.schema, prefer_timestamp_ntz=True)


def _sink_options(options: Mapping[str, str], schema: StructType) -> SinkOptions:
    """Return the options of a write of these columns; raise IllegalArgument if they cannot be written."""
    from kafkalog.spark.sink_options import SinkOptions
    from kafkalog.spark.sink_task import check_columns

    found = SinkOptions.parse(options)
    check_columns(arrow_of(schema), found.topic)
    return found


def _asked_by_pushdown() -> bool:
    """Return True in the worker that pushes filters.

    While `spark.sql.python.filterPushdown.enabled` is false, the default, Spark rejects every query of a reader that
    has `pushFilters`, and a reader cannot see that setting. The worker that pushes filters runs only if it is true.
    """
    frame = sys._getframe(2)
    return frame.f_globals.get("__name__", "").endswith(_PUSHING) or frame.f_code.co_filename.endswith(f"{_PUSHING}.py")


class BatchReader(DataSourceReader):
    """A batch read: offsets are fixed when it is planned."""

    def __init__(
        self, options: SourceOptions, columns: tuple[str, ...], typed: TypedColumns | None = None
    ) -> None:
        self.options = options
        self.columns = columns
        self.typed = typed
        self.pruning: Pruning | None = None

    def partitions(self) -> list[InputPartition]:
        """Return the ranges of offsets that tasks read."""
        from kafkalog.spark.batch_plan import plan_batch

        return [InputPartition(one) for one in plan_batch(self.options, self.pruning)]

    def read(self, partition: InputPartition | None) -> Iterator[pyarrow.RecordBatch]:
        """Return the records of one range; none for the partition that Spark makes if there are none (4.1: None)."""
        if partition is None or partition.value is None:
            return iter(())
        from kafkalog.spark.reading import arrow_batches

        if self.pruning is None:
            return arrow_batches(partition.value, self.columns, self.options, typed=self.typed)
        return arrow_batches(
            partition.value, self.columns, self.options, times=self.pruning.times, typed=self.typed
        )  # fmt: skip


class _PushingReader(BatchReader):
    """A reader that accepts filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Apply the filters; return those that Spark must apply too."""
        from kafkalog.spark.filters import Pruning

        self.pruning = Pruning()
        return [one for one in filters if not self.pruning.apply(one)]
