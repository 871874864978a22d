"""A topic by time: all partitions merged, with the order of each partition kept, in bounded memory."""

from collections.abc import Iterator
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafkalog
from kafkalog.dirs.merge import LEAST_BYTES, LEAST_ROWS, merged_by_time, piece_limits
from kafkalog.errors import CorruptRecord, IllegalArgument, UnknownTopicOrPartition
from tests.arrow_readers import SCHEMA

T = 1_700_000_000_000
Rows = list[list[list[int]]]


def batches_of(number: int, pieces: list[list[int]]) -> Iterator[pa.RecordBatch]:
    row = 0
    for times in pieces:
        column = pa.array(times, pa.timestamp("ms", "UTC"))
        places = pa.array(range(row, row + len(times)), pa.int64())
        yield pa.record_batch([pa.array([number] * len(times), pa.int32()), places, column], ["input", "row", "time"])
        row += len(times)


def merged_one_by_one(inputs: Rows) -> list[tuple[int, int]]:
    """The rule itself: always the oldest head, of equal ones that of the first input."""
    flat = [[time for piece in pieces for time in piece] for pieces in inputs]
    heads: list[tuple[int, int, int]] = []
    for number, times in enumerate(flat):
        if times:
            heappush(heads, (times[0], number, 0))
    found = []
    while heads:
        _, number, row = heappop(heads)
        found.append((number, row))
        if row + 1 < len(flat[number]):
            heappush(heads, (flat[number][row + 1], number, row + 1))
    return found


@given(
    st.lists(st.lists(st.lists(st.integers(-1, 12), max_size=6), max_size=5), max_size=5),
    st.integers(1, 7),
)
def test_the_merge_is_the_one_that_takes_the_oldest_head(inputs: Rows, batch_rows: int) -> None:
    streams = [batches_of(number, pieces) for number, pieces in enumerate(inputs)]
    batches = [*merged_by_time(streams, "time", batch_rows)]
    assert all(0 < batch.num_rows <= batch_rows for batch in batches)
    rows = [(row["input"], row["row"]) for batch in batches for row in batch.to_pylist()]
    assert rows == merged_one_by_one(inputs)


def test_one_record_batch_of_each_input_is_held() -> None:
    """Of sorted inputs that interleave, no input is read more than one record batch ahead of what was yielded."""
    read = [0, 0, 0]

    def counted(number: int) -> Iterator[pa.RecordBatch]:
        for batch in batches_of(number, [list(range(start, start + 10)) for start in range(0, 1000, 10)]):
            read[number] += batch.num_rows
            yield batch

    yielded = 0
    for batch in merged_by_time([counted(number) for number in range(3)], "time", 1 << 16):
        yielded += batch.num_rows
        assert sum(read) - yielded <= 3 * 10
    assert yielded == 3000


@pytest.mark.parametrize("inputs", [1, 3, 64, 5000])
def test_the_inputs_share_the_budget(inputs: int) -> None:
    rows, size = piece_limits(inputs, 65_536, 8 << 20)
    assert LEAST_ROWS <= rows <= 65_536 and LEAST_BYTES <= size <= 8 << 20
    assert size * inputs <= 64 << 20 or size == LEAST_BYTES


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three partitions, one of them empty: a record a second in turn, then late ones; some compressed."""
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("orders", 3)
        for n in range(60):
            record = (b"k", b"%d" % n, T + 1000 * n)
            dirs["orders", 2 * (n % 2)].append(record, compression="lz4" if n % 3 else None)
        dirs["orders", 0].append((b"k", b"late", T + 5000))
        dirs["orders", 2].append((b"k", b"last", T + 70_000))
    return tmp_path


def test_records_of_all_partitions_come_by_time(data: Path) -> None:
    with kafkalog.open_dirs(data) as dirs:
        scan = dirs.scan("orders", order="time")
        table = scan.table()
        assert table.schema == SCHEMA == scan.schema
        values = [b"%d" % n for n in range(59)] + [b"late", b"59", b"last"]
        assert table["value"].to_pylist() == values
        assert dirs.scan("orders", ["value"], order="time").table().column_names == ["value"]
        assert sum(batch.num_rows for batch in dirs.scan("orders", ["offset"], order="time", batch_rows=7)) == 62
        assert dirs.scan("orders", ["value"], order="time", since=T + 57_000, until=T + 59_000).to_pandas()[
            "value"
        ].tolist() == [b"57", b"58", b"late"]


def test_duckdb_polars_and_pyarrow_read_it(data: Path) -> None:
    with kafkalog.open_dirs(data) as dirs:
        scan = dirs["orders"].scan(["partition", "value"], order="time")
        assert duckdb.execute("SELECT count(*), count(DISTINCT partition) FROM scan").fetchall() == [(62, 2)]
        assert pl.DataFrame(scan)["value"].to_list()[:3] == [b"0", b"1", b"2"]
        assert pa.schema(scan).names == ["partition", "value"]
        assert len(scan.to_polars()) == pa.table(scan).num_rows == 62


def test_an_error_of_a_partition_comes_after_the_rows_before_it(data: Path) -> None:
    path = data / "orders-2" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1  # the record `last`
    path.write_bytes(content)
    with kafkalog.open_dirs(data) as dirs:
        rows = 0
        with pytest.raises(CorruptRecord, match="CRC") as caught:
            for batch in dirs.scan("orders", order="time"):
                rows += batch.num_rows
        assert rows == 61 and caught.value.path == str(path)
        with pytest.raises(duckdb.Error, match=r"CRC.*orders-2"):
            duckdb.from_arrow(dirs.scan("orders", order="time")).count("value").fetchall()


@pytest.mark.parametrize("mode", ["r", "a"])
def test_a_topic_alone_is_an_object_of_its_partitions(data: Path, mode: str) -> None:
    with kafkalog.open_dirs(data, mode) as dirs:  # type: ignore[arg-type]
        orders = dirs["orders"]
        assert repr(orders) == "<TopicLogs orders, 3 partitions>" and orders.partitions == (0, 1, 2)
        assert orders[2] is dirs["orders", 2] and [log.partition for log in orders] == [0, 1, 2] and len(orders) == 3
        by_partition = [record.value for log in orders for record in log]
        assert orders.table(["value"])["value"].to_pylist() == by_partition
        assert orders.to_pandas(["value"])["value"].tolist() == orders.to_polars(["value"])["value"].to_list()
        assert orders.table(["value"], order="time")["value"].to_pylist() != by_partition


def test_a_topic_that_is_not_there(data: Path) -> None:
    with kafkalog.open_dirs(data) as dirs:
        with pytest.raises(UnknownTopicOrPartition, match="order"):
            dirs["order"]
        with pytest.raises(UnknownTopicOrPartition):
            dirs["orders"][7]


def test_what_is_refused(data: Path) -> None:
    with kafkalog.open_dirs(data) as dirs:
        with pytest.raises(IllegalArgument, match="order is 'timestamp'"):
            dirs.scan("orders", order="timestamp")  # type: ignore[call-overload]
        with pytest.raises(IllegalArgument, match=r"no start.*dirs\[topic, 0\]"):
            dirs.scan("orders", start=3)
        with pytest.raises(IllegalArgument, match="cursor and since"):
            dirs.scan("orders", cursor="reports", cursors=data.parent / "cursors", since=T)
        with pytest.raises(IllegalArgument, match="no cursor"):
            dirs.scan("orders", cursors="cursors")
        with pytest.raises(IllegalArgument, match='cursor="reports"'):
            dirs.scan("orders").commit()
        with pytest.raises(IllegalArgument, match="no column is given"):
            dirs.scan("orders", [], order="time")


def test_values_that_do_not_decode_keep_their_errors(tmp_path: Path) -> None:
    """The hidden time is not the last column where errors follow, also under a projection."""
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("orders", 2)
        dirs["orders", 0].append((b"k", b'{"id": 1}', T + 1000))
        dirs["orders", 1].append((b"k", b"no JSON", T))
        options: dict[str, Any] = {"order": "time", "value": "json", "on_undecodable": "null"}
        scan = dirs.scan("orders", **options)
        assert scan.columns[-1] == "value_error" and scan.schema == scan.table().schema
        found = duckdb.execute("SELECT partition, value.id, value_error IS NULL FROM scan").fetchall()
        assert found == [(1, None, False), (0, 1, True)]
        assert duckdb.execute("SELECT partition FROM scan WHERE value_error IS NOT NULL").fetchall() == [(1,)]
        for given in ({"columns": ["partition", "value"]}, {"project": {"partition": "partition", "id": "value.id"}}):
            scan = dirs.scan("orders", **given, **options)
            assert list(scan.columns) == scan.table().schema.names and scan.columns[2:] == ("value_error",)
            assert [error is None for error in scan.table()["value_error"].to_pylist()] == [False, True]


@pytest.mark.parametrize("field", ["size", "key", "offset"])
def test_another_field_may_be_named_as_the_time(tmp_path: Path, field: str) -> None:
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("orders", 2)
        dirs["orders", 0].append((b"b", b"of 11 bytes", T))
        dirs["orders", 1].append([(b"a", b"-", T + 1000), (b"a", b"-", T + 500)])
        for names in (["timestamp"], ["timestamp", "timestamp_"]):
            project = {"p": "partition"} | dict.fromkeys(names, field)
            found = dirs.scan("orders", project=project, order="time").table()
            assert found.column_names == ["p", *names] and found["p"].to_pylist() == [0, 1, 1]
            expected = {"size": [11, 1, 1], "key": [b"b", b"a", b"a"], "offset": [0, 0, 1]}[field]
            assert [found[name].to_pylist() for name in names] == [expected] * len(names)


def test_projections_that_are_refused(data: Path) -> None:
    with kafkalog.open_dirs(data) as dirs:
        with pytest.raises(IllegalArgument, match="no field is given"):
            dirs.scan("orders", project=[], order="time")
        with pytest.raises(IllegalArgument, match="given twice"):
            dirs.scan("orders", project=["offset", "offset"], order="time")
        with pytest.raises(TypeError, match=r"\['offset'\]"):
            dirs.scan("orders", project="offset", order="time")
