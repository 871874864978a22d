"""Columns of Arrow out of a log, rows of Arrow into batches, and Spark's side of both."""

from collections.abc import Iterator

import kafkalog
from asv_benchmarks.benchmarks.common import NOW, fill_log, values
from asv_benchmarks.hot_paths.path import Place, Work, hot_path

COLUMNS = ["key", "value", "offset", "timestamp"]


def _log(place: Place) -> kafkalog.Log:
    path = place.directory / "hot-0"
    fill_log(path, 1000, place.size(1 << 20, 64 << 20))
    return kafkalog.open(path)


@hot_path("columns", "scan to Arrow, all columns", item="record")
def all_columns(place: Place) -> Iterator[Work]:
    with _log(place) as log:
        yield Work(lambda: sum(map(len, log.scan())))


@hot_path("columns", "scan to Arrow, offsets alone", item="record")
def offsets(place: Place) -> Iterator[Work]:
    with _log(place) as log:
        yield Work(lambda: sum(map(len, log.scan(["offset"]))))


@hot_path("columns", "table in memory", item="record")
def table(place: Place) -> Iterator[Work]:
    with _log(place) as log:
        yield Work(lambda: len(log.table()))


@hot_path("columns", "rows of Arrow to batches", item="record")
def encode_rows(place: Place) -> Iterator[Work]:
    import pyarrow as pa

    from kafkalog._core.arrow.encoder import ArrowEncoder
    from kafkalog._core.arrow.input import ArrowSource
    from kafkalog._core.arrow.rows import RowPlan, next_rows

    count = place.size(2_000, 200_000)
    some = values(count)
    made = pa.table({"value": pa.array(some, pa.binary()), "key": pa.array([v[:12] for v in some], pa.binary())})

    def once() -> int:
        source = ArrowSource(made)
        plan = RowPlan(source)
        encoder = ArrowEncoder(lambda topic: (4, 1 << 20, 0), topic="hot")
        while (rows := next_rows(source, plan)) is not None:
            at = 0
            while at < len(rows):
                at = encoder.feed(rows, at, NOW)
        encoder.seal()
        return sum(parcel.records for parcel in encoder.take())

    yield Work(once)


@hot_path("columns", "rows for Spark", item="record")
def spark_read(place: Place) -> Iterator[Work]:
    from kafkalog.spark.options import SourceOptions
    from kafkalog.spark.ranges import OffsetRange
    from kafkalog.spark.reading import arrow_batches

    path = place.directory / "hot-0"
    fill_log(path, 100, place.size(1 << 20, 64 << 20))
    with kafkalog.open(path) as log:
        wanted = OffsetRange("hot", 0, str(path), 0, log.end_offset)
    options = SourceOptions.parse({"path": str(place.directory), "subscribe": "hot"}, streaming=False)
    names = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    yield Work(lambda: sum(batch.num_rows for batch in arrow_batches(wanted, names, options)))


@hot_path("columns", "rows from Spark, staged", item="record")
def spark_write(place: Place) -> Iterator[Work]:
    import pyarrow as pa

    from kafkalog.landing.staging import Job
    from kafkalog.spark.sink_options import SinkOptions
    from kafkalog.spark.sink_task import stage_rows

    count = place.size(2_000, 200_000)
    rows = pa.RecordBatch.from_pydict({"value": pa.array(values(count), pa.binary())})
    options = SinkOptions.parse({"path": str(place.directory / "data"), "topic": "hot"})
    job, attempts = Job.batch("hot"), iter(range(10**9))

    def once() -> int:
        stage_rows([rows], options, job, 0, 0, next(attempts))
        return count

    yield Work(once)
