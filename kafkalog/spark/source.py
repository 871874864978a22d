"""The data source `kafkalog`, as Spark asks for it.

Spark starts a new Python for each step of a plan, so that what a step does not need is not imported for it: that would
be a quarter of a second for every query.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from kafkalog.spark.options import SourceOptions, columns_of
from kafkalog.spark.row_schema import ddl_of, wanted_columns

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

    from kafkalog.spark.filters import Pruning
    from kafkalog.spark.sink import BatchSink, StreamSink
    from kafkalog.spark.sink_options import SinkOptions

__all__ = ["KafkalogDataSource"]

_PUSHING: Final = "data_source_pushdown_filters"


class KafkalogDataSource(DataSource):
    """`spark.read.format("kafkalog")`: Kafka's log directories as the columns of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        """The name that `format` takes."""
        return "kafkalog"

    def schema(self) -> str:
        """The columns that the options ask for, as DDL."""
        return ddl_of(columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of a batch; one that takes filters where Spark is about to hand them over."""
        options = SourceOptions.parse(self.options, streaming=False)
        columns = wanted_columns(schema)
        if options.push_filters and _asked_by_pushdown():
            return _PushingReader(options, columns)
        return BatchReader(options, columns)

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """A batch write, which appends."""
        from kafkalog.spark.sink import BatchSink, refuse_overwrite

        if overwrite:
            raise refuse_overwrite()
        return BatchSink(_sink_options(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """A streaming write. Output mode complete appends the rows of each batch, as Spark's Kafka sink does."""
        from kafkalog.spark.sink import StreamSink

        return StreamSink(_sink_options(self.options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of a stream."""
        from kafkalog.spark.stream import StreamReader

        return StreamReader(SourceOptions.parse(self.options, streaming=True), wanted_columns(schema))


def _sink_options(options: Mapping[str, str], schema: StructType) -> SinkOptions:
    """The options of a write of these columns; IllegalArgument where they cannot be written."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from kafkalog.spark.sink_options import SinkOptions
    from kafkalog.spark.sink_task import check_columns

    found = SinkOptions.parse(options)
    check_columns(to_arrow_schema(schema, timezone="UTC"), found.topic)
    return found


def _asked_by_pushdown() -> bool:
    """True in the worker that hands filters over.

    Spark refuses every query of a reader that has `pushFilters` while `spark.sql.python.filterPushdown.enabled` is
    false, as it is by default, and a reader is not told of that setting. The worker that pushes filters runs only
    where it is true.
    """
    frame = sys._getframe(2)
    return frame.f_globals.get("__name__", "").endswith(_PUSHING) or frame.f_code.co_filename.endswith(f"{_PUSHING}.py")


class BatchReader(DataSourceReader):
    """A batch: offsets are frozen when it is planned."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns
        self.pruning: Pruning | None = None

    def partitions(self) -> list[InputPartition]:
        """The ranges of offsets that tasks read."""
        from kafkalog.spark.batch_plan import plan_batch

        return [InputPartition(one) for one in plan_batch(self.options, self.pruning)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The records of one range; none where Spark made a partition of no partitions."""
        if partition.value is None:
            return iter(())
        from kafkalog.spark.reading import arrow_batches

        return arrow_batches(partition.value, self.columns, self.options)


class _PushingReader(BatchReader):
    """A reader that takes the filters it can."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Takes the filters that it applies exactly; gives back the others."""
        from kafkalog.spark.filters import Pruning

        self.pruning = Pruning()
        return [one for one in filters if not self.pruning.take(one)]
