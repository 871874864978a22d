"""Arrow data of any library appended to a log."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow as pa
import pytest

import kafkalog
from kafkalog.aio import wrap
from kafkalog.errors import IllegalArgument, InvalidTimestamp, ReadOnlyLog, RecordTooLarge
from kafkalog.log.log import Log
from kafkalog.records.format import CompressionType

FUTURE_MS = 10**15
SCHEMA = pa.schema([("value", pa.binary()), ("key", pa.binary())])


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        yield log


def make_rows(first: int, last: int) -> pa.RecordBatch:
    numbers = range(first, last)
    return pa.record_batch([[b"v%d" % n for n in numbers], [b"k%d" % (n % 7) for n in numbers]], schema=SCHEMA)


def test_rows_follow_what_is_there(log: Log) -> None:
    log.append([b"before"])
    info = log.append_arrow(make_rows(0, 1000))
    assert (info.first_offset, info.last_offset, info.record_count, info.shallow_count) == (1, 1000, 1000, 1)
    assert log.end_offset == 1001
    assert [(r.value, r.key) for r in log[1:]] == [(b"v%d" % n, b"k%d" % (n % 7)) for n in range(1000)]
    assert log[500].timestamp == log[1].timestamp == info.max_timestamp


def test_each_library(log: Log) -> None:
    pieces: list[Any] = [
        pa.table({"value": ["one"]}),
        polars.DataFrame({"value": ["two"], "key": ["k"]}),
        duckdb.sql("SELECT 'three' AS value"),
        pandas.DataFrame({"value": ["four"]}),
        pa.RecordBatchReader.from_batches(SCHEMA, [make_rows(5, 6), make_rows(6, 7)]),
    ]
    for piece in pieces:
        log.append_arrow(piece)
    assert [r.value for r in log] == [b"one", b"two", b"three", b"four", b"v5", b"v6"]


def test_a_log_copied_into_another(log: Log, tmp_path: Path) -> None:
    """Records, times and headers are the same; topic, partition and offsets are those of the new log."""
    now = 1_700_000_000_000
    with kafkalog.open(tmp_path / "u-3", "a") as source:
        for n in range(3):
            source.append([(b"k%d" % n, None if n == 1 else b"v" * n, now + n, [("h", b"1"), ("n", None)][:n])])
        source.append([b"%d" % n for n in range(5000)])
        source.delete_before(1)
        log.append_arrow(source)
        expected = [(r.key, r.value, r.timestamp, r.headers) for r in source]
    assert [(r.key, r.value, r.timestamp, r.headers) for r in log] == expected
    assert len(expected) == 5002


def test_a_stream_larger_than_what_waits(log: Log) -> None:
    """It is written while it is read: half of it is in the log before the rest is produced."""
    seen: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(12):
            seen.append(log.end_offset)
            yield pa.record_batch([[b"x" * 1000] * 1000, [b"k"] * 1000], schema=SCHEMA)

    info = log.append_arrow(pa.RecordBatchReader.from_batches(SCHEMA, batches()))
    assert (info.first_offset, info.last_offset, info.shallow_count) == (0, 11_999, len(list(log.batches())))
    assert seen[0] == 0 < seen[-1]
    assert log.verify().ok


def test_options(log: Log) -> None:
    data = pa.table({"payload": [b"x" * 100] * 100, "id": [b"k"] * 100, "key": pa.array([1] * 100)})
    info = log.append_arrow(data, columns={"value": "payload", "key": "id"}, compression="zstd", batch_bytes=2000)
    assert info.shallow_count == len(list(log.batches())) > 5
    assert {b.header.compression for b in log.batches()} == {CompressionType.ZSTD}
    assert {(r.key, r.value) for r in log} == {(b"k", b"x" * 100)}


def test_the_topic_decides_about_codecs(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a", compression_type="lz4") as log:
        log.append_arrow(pa.table({"value": [b"x" * 100] * 10}), compression="gzip")
        assert {b.header.compression for b in log.batches()} == {CompressionType.LZ4}


def test_nothing_to_append(log: Log) -> None:
    info = log.append_arrow(pa.table({"value": pa.array([], pa.binary())}))
    assert (info.first_offset, info.last_offset, info.record_count, log.end_offset) == (-1, -1, 0, 0)


def test_what_cannot_be_appended(log: Log) -> None:
    log.append([b"before"])
    with pytest.raises(IllegalArgument, match="no column 'value'") as error:
        log.append_arrow(pa.table({"valeu": [b"a"]}))
    assert error.value.path == log.path
    with pytest.raises(IllegalArgument, match="did you mean value"):
        log.append_arrow(pa.table({"value": [b"a"]}), columns={"valu": "value"})
    with pytest.raises(IllegalArgument, match="'topic' is not a part of a record"):
        log.append_arrow(pa.table({"value": [b"a"]}), columns={"topic": "value"})
    with pytest.raises(TypeError, match="a list is no Arrow data"):
        log.append_arrow([b"a"])
    with pytest.raises(RecordTooLarge, match="row 1 makes a batch"):
        log.append_arrow(pa.table({"value": [b"a", b"x" * (2 << 20)]}))
    late = pa.array([FUTURE_MS], pa.timestamp("ms"))
    with pytest.raises(InvalidTimestamp):
        log.append_arrow(pa.table({"value": [b"a"], "timestamp": late}))
    assert log.end_offset == 1


def test_an_error_in_the_middle_tells_where_the_log_ends(log: Log) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(6):
            yield pa.record_batch([[b"x" * 1000] * 1000, [b"k"] * 1000], schema=SCHEMA)
        raise ValueError("no more of it")

    with pytest.raises(IllegalArgument, match="no more of it") as error:
        log.append_arrow(pa.RecordBatchReader.from_batches(SCHEMA, batches()))
    assert error.value.offset == log.end_offset > 0
    assert log.verify().ok


def test_a_log_for_reading(log: Log) -> None:
    log.append([b"v"])
    with kafkalog.open(log.path) as view, pytest.raises(ReadOnlyLog):
        view.append_arrow(pa.table({"value": [b"a"]}))


def test_asyncio(log: Log) -> None:
    async def run() -> int:
        alog = wrap(log)
        return (await alog.append_arrow(make_rows(0, 10), compression="gzip")).record_count

    assert asyncio.run(run()) == 10
    assert log.end_offset == 10


def test_the_usual_size_of_a_batch(tmp_path: Path) -> None:
    """A MiB, header counted."""
    with kafkalog.open(tmp_path / "t-0", "a", max_message_bytes=4 << 20) as log:
        log.append_arrow(pa.table({"value": [b"x" * 1000] * 3000}))
        sizes = [len(bytes(batch)) for batch in log.batches()]
    assert (1 << 20) - 1100 < sizes[0] <= 1 << 20 and len(sizes) == 3
