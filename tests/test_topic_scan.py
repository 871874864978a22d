"""A topic as columns: all of its partitions, whatever their sizes, batches and codecs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import kafkalog
from kafkalog.errors import CorruptRecord, IllegalArgument, StorageError, UnknownTopicOrPartition
from kafkalog.storage.damage import Skipped
from tests.arrow_readers import SCHEMA
from tests.held_store import Held

T = 1_700_000_000_000
SIZES = (40, 0, 7)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A topic of three partitions, one of them empty; every other batch is compressed; a record a second."""
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("orders", len(SIZES))
        for partition, size in enumerate(SIZES):
            for n in range(size):
                value = b"%d of %d" % (n, partition)
                dirs["orders", partition].append((b"k", value, T + 1000 * n), compression="lz4" if n % 2 else None)
    return tmp_path


@pytest.fixture(params=["r", "a"])
def dirs(request: pytest.FixtureRequest, data: Path) -> Iterator[kafkalog.LogDirs]:
    mode: Literal["r", "a"] = request.param
    with kafkalog.open_dirs(data, mode) as opened:
        yield opened


def test_it_has_the_records_of_every_partition_in_order(dirs: kafkalog.LogDirs) -> None:
    scan = dirs.scan("orders")
    expected = [
        (log.partition, record.offset, record.value) for log in dirs.logs("orders") for record in log.records()
    ]
    assert len(expected) == sum(SIZES) and [one.log.partition for one in scan.scans] == [0, 1, 2]
    table = scan.table()
    rows = [table[number] for number in range(len(table))]
    assert [(row["partition"], row["offset"], row["value"]) for row in rows] == expected
    assert sum(len(piece) for piece in scan) == sum(len(piece) for piece in scan) == len(expected)  # read twice
    frame = scan.to_pandas()
    assert [*zip(frame["partition"], frame["offset"], frame["value"], strict=True)] == expected


def test_duckdb_polars_and_pyarrow_read_it(dirs: kafkalog.LogDirs) -> None:
    scan = dirs.scan("orders", ["partition", "value"])
    assert pa.schema(scan) == pa.schema([SCHEMA.field("partition"), SCHEMA.field("value")])
    counts = duckdb.execute("SELECT partition, count(*) FROM scan GROUP BY partition ORDER BY partition").fetchall()
    assert counts == [(0, 40), (2, 7)]
    assert pl.DataFrame(scan)["value"].to_list() == [b"%d of %d" % (n, p) for p in (0, 2) for n in range(SIZES[p])]


def test_bounds_by_time_hold_for_each_partition(dirs: kafkalog.LogDirs) -> None:
    scan = dirs.scan("orders", ["partition", "offset"], since=T + 5000, until=T + 8000, isolation="read_committed")
    assert [*zip(scan.table().partitions.tolist(), scan.table().offsets.tolist(), strict=True)] == [
        (0, 5), (0, 6), (0, 7), (2, 5), (2, 6),
    ]  # fmt: skip


def test_damage_is_raised_after_the_records_before_it_or_skipped(data: Path) -> None:
    path = data / "orders-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[content.index(b"4 of 0")] ^= 1
    path.write_bytes(content)
    with kafkalog.open_dirs(data) as dirs:
        rows = 0
        with pytest.raises(CorruptRecord, match="CRC") as caught:
            for piece in dirs.scan("orders"):
                rows += len(piece)
        assert rows == 4 and caught.value.path == str(path)
        skipped: list[Skipped] = []
        table = dirs.scan("orders", ["offset"], on_damage="skip", skipped=skipped).table()
        assert len(table) == sum(SIZES) - 1 and len(skipped) == 1


def test_what_is_refused(dirs: kafkalog.LogDirs) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="order"):
        dirs.scan("order")
    with pytest.raises(IllegalArgument, match="size"):
        dirs.scan("orders", ["size"])
    with pytest.raises(TypeError, match="did you mean isolation"):
        dirs.scan("orders", isolaton="read_committed")


def test_a_partition_that_may_be_offline_is_not_left_out(tmp_path: Path) -> None:
    with Held(tmp_path / "a", tmp_path / "b") as held:
        held.dirs.create_topic("t", 2)
        for partition in (0, 1):
            held.dirs["t", partition].append(b"value")
        assert len(held.dirs.scan("t").table()) == 2
        held.store._manager.fail_directory(tmp_path / "a", OSError(5, "Input/output error"))
        with pytest.raises(StorageError, match="topic t may have partitions that are not available"):
            held.dirs.scan("t")
        assert len(held.dirs["t", 1].table()) == 1
