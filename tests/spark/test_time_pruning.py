"""Plans by time: what a range of time leaves of a topic is what the library's own scan reads, and it has every row."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
from kafkalog.errors import IllegalArgument
from kafkalog.exchange.ranges import OffsetRange
from kafkalog.sidecars import identity
from kafkalog.spark import time_pruning
from kafkalog.spark.batch_plan import plan_batch
from kafkalog.spark.filters import Pruning
from kafkalog.spark.reading import arrow_batches
from kafkalog.where.bounds import MAX, MIN, Spans
from tests.spark.topics import TIME, make_topic, source_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS, LATE_MS = 4000, 700


def time_of(n: int) -> int:
    """Return the time of a record: one each 10 ms, every 500th of them late."""
    return TIME + 10 * n - (LATE_MS if n % 500 == 499 else 0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions of 4 MB each, in segments of 1 MiB, batches of 10 records."""
    data = tmp_path_factory.mktemp("data")
    for partition in (0, 1):
        with kafkalog.open(data / f"orders-{partition}", "a", segment_bytes=1 << 20) as log:
            for start in range(0, RECORDS, 10):
                log.append([(b"k", b"v" * 1000, time_of(n)) for n in range(start, start + 10)])
            log.roll()
    return data


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges stay apart however little is between them, and files just written count as settled."""
    monkeypatch.setattr(time_pruning, "BUNDLE_BYTES", 1)
    monkeypatch.setattr(identity, "SETTLED_NS", -1)


def planned(data: Path, times: Spans, **options: Any) -> list[OffsetRange]:
    pruning = Pruning()
    pruning.times = times
    return plan_batch(source_options(data, **options), pruning)


def read(data: Path, times: Spans, **options: Any) -> Iterator[tuple[int, int]]:
    """Yield partition and offset of what the tasks of a plan give to Spark."""
    given = source_options(data, columns="partition,offset", **options)
    for one in planned(data, times, columns="partition,offset", **options):
        for batch in arrow_batches(one, given.columns, given, times=times):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("span", [(10_000, 10_500), (0, 15), (20_000, MAX), (MIN, 300), (39_000, 80_000), (12, 12)])
def test_every_row_is_read_and_little_else(data: Path, tmp_path: Path, span: tuple[int, int]) -> None:
    first, stop = (one if abs(one) >= MAX else TIME + one for one in span)
    times: Spans = ((first, stop),) if first < stop else ()
    expected = {(part, n) for part in (0, 1) for n in range(RECORDS) if first <= time_of(n) < stop}
    for options in ({}, {"timeRanges": tmp_path / "times"}, {"timeRanges": tmp_path / "times"}):
        found = [*read(data, times, **options)]
        assert len(found) == len(set(found)) and expected <= set(found)
    offsets = sum(len(one) for one in planned(data, times, timeRanges=tmp_path / "times"))
    late = 2 * RECORDS // 500
    assert offsets <= len(expected) + (2 + late) * 250, offsets  # a piece of 256 KiB holds 250 records
    assert len(found) <= offsets


@pytest.mark.usefixtures("apart")
def test_a_plan_has_the_ranges_that_the_library_reads(data: Path, tmp_path: Path) -> None:
    times: Spans = ((TIME + 10_000, TIME + 10_500),)
    ranges = planned(data, times, timeRanges=tmp_path / "times")
    for partition in (0, 1):
        with kafkalog.open(data / f"orders-{partition}", time_ranges=tmp_path / "times") as log:
            where = f"time >= {TIME + 10_000} and time < {TIME + 10_500}"
            read_before = log._source.metrics.reads.total
            offsets = log.scan(["offset"], where=where).table()["offset"].to_pylist()
            read_bytes = log._source.metrics.reads.total - read_before
        own = [one for one in ranges if one.partition == partition]
        assert all(any(one.start <= offset < one.stop for one in own) for offset in offsets)
        assert 1000 * sum(len(one) for one in own) <= read_bytes
    assert len(list((tmp_path / "times").rglob("*.timeranges"))) == 2 * 3  # those behind the bound


def test_parts_with_little_between_them_share_a_task(data: Path, tmp_path: Path) -> None:
    times: Spans = ((TIME + 10_000, TIME + 10_500),)
    assert len(planned(data, times, timeRanges=tmp_path / "times")) == 2


def test_a_directory_that_is_a_log_s_own_is_refused(data: Path) -> None:
    with pytest.raises(IllegalArgument, match="data directory"):
        planned(data, ((TIME, TIME + 1),), timeRanges=data / "times")


def test_times_that_fell_meanwhile_and_a_log_that_grows(tmp_path: Path) -> None:
    make_topic(tmp_path / "data", batches=2)
    times: Spans = ((TIME + 10, TIME + 20),)
    options = {"timeRanges": tmp_path / "times"}
    assert {n for _, n in read(tmp_path / "data", times, **options)} >= set(range(10, 20))
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        log.append([(b"k", b"late", TIME + 15)])
        log.roll()
        log.truncate_to(45)
        log.append([(b"k", b"again", TIME + 11)] * 3)
        log.roll()
    found = {n for _, n in read(tmp_path / "data", times, **options)}
    assert found >= {*range(10, 20), 45, 46, 47} and max(found) == 47


def test_a_query_of_spark(spark: "SparkSession", data: Path, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        columns = "partition,offset,timestamp"
        frame = spark.read.format("kafkalog").option("subscribe", "orders").option("columns", columns)
        first = datetime.fromtimestamp(TIME / 1000, UTC) + timedelta(seconds=10)
        query = frame.option("timeRanges", str(tmp_path / "times")).option("maxPartitionBytes", 300_000).load(str(data))
        query = query.where((query.timestamp >= first) & (query.timestamp < first + timedelta(milliseconds=500)))
        rows = sorted((row.partition, row.offset) for row in query.collect())
        assert rows == [(part, n) for part in (0, 1) for n in range(RECORDS) if 10_000 <= time_of(n) - TIME < 10_500]
        assert query.rdd.getNumPartitions() <= 6
        whole = frame.option("maxPartitionBytes", 300_000).load(str(data))
        assert whole.rdd.getNumPartitions() > 20
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
