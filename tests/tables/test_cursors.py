"""Queries and scans that continue where one ended: a cursor moves only on request."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import polars
import pytest

import kafkalog
from kafkalog.errors import CursorInUse, IllegalState, OffsetOutOfRange
from kafkalog.tables.topic_table import TopicTable


@pytest.fixture
def dirs(tmp_path: Path) -> Iterator[kafkalog.LogDirs]:
    with kafkalog.open_dirs(tmp_path / "data", "a") as opened:
        for topic in ("orders", "users"):
            opened.create_topic(topic, 2)
            opened[topic, 0].append([b"one", b"two"])
            opened[topic, 1].append(b"three")
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "cursors"


def test_a_scan_continues_behind_the_committed_one(dirs: kafkalog.LogDirs, store: Path) -> None:
    for commits, expected in ((False, 3), (True, 3), (True, 0)):
        with dirs.scan("orders", ["value"], cursor="reports", cursors=store) as scan:
            dirs["users", 0].append(b"of another topic")
            assert len(scan.table()) == expected
            assert not commits or scan.commit() == {0: 2, 1: 1}
    with dirs.scan("orders", cursor="reports", cursors=store, order="time") as scan:
        dirs["orders", 1].append(b"too late for this scan")
        assert scan.table().num_rows == 0
        assert scan.commit() == {0: 2, 1: 1}  # the ends as of its creation
    with dirs["orders"].scan(["value"], cursor="reports", cursors=store) as scan:
        assert scan.table()["value"].to_pylist() == [b"too late for this scan"]
    with dirs.scan("orders", ["value"], cursor="others", cursors=store) as scan:
        assert len(scan.table()) == 4


def test_queries_see_the_same_range_until_a_commit(dirs: kafkalog.LogDirs, store: Path) -> None:
    count = "SELECT count(*) FROM orders"
    with duckdb.connect() as connection:
        with kafkalog.duckdb.register(connection, dirs, cursor="reports", cursors=store) as tables:
            assert connection.execute(count).fetchall() == [(3,)]
            dirs["orders", 0].append(b"four")
            assert connection.execute(count).fetchall() == [(3,)]
            assert connection.execute(f"{count} WHERE \"offset\" > 0").fetchall() == [(1,)]
        with kafkalog.duckdb.register(connection, dirs, cursor="reports", cursors=store) as tables:
            assert connection.execute(count).fetchall() == [(4,)]  # nothing was committed
            assert tables.commit() == {"orders": {0: 3, 1: 1}}
            assert connection.execute(count).fetchall() == [(0,)]
            dirs["orders", 0].append(b"five")
            assert connection.execute(count).fetchall() == [(0,)] and tables.commit() == {"orders": {0: 3, 1: 1}}
            assert connection.execute("SELECT decode(value) FROM orders").fetchall() == [("five",)]
            assert connection.execute("SELECT count(*) FROM users").fetchall() == [(3,)]


def test_frames_of_polars_see_the_same_range_until_a_commit(dirs: kafkalog.LogDirs, store: Path) -> None:
    with kafkalog.polars.frames(dirs, cursor="reports", cursors=store) as frames:
        orders = frames["orders"]
        assert orders.collect().height == 3 and [*frames] == ["orders", "users"] and len(frames) == 2
        dirs["orders", 0].append(b"four")
        assert orders.collect().height == 3
        assert orders.filter(polars.col("offset") > 0).select("value").collect().rows() == [(b"two",)]
    with kafkalog.polars.frames(dirs, {"orders": "o"}, cursor="reports", cursors=store) as frames:
        assert frames["o"].select("value").collect().height == 4  # nothing was committed
        assert frames.commit() == {"orders": {0: 3, 1: 1}}
        assert frames["o"].collect().height == 0
        dirs["orders", 0].append(b"five")
        assert frames["o"].collect().height == 0 and frames.commit() == {"orders": {0: 3, 1: 1}}
        assert frames["o"].collect(engine="streaming")["value"].to_list() == [b"five"]
        with pytest.raises(CursorInUse):
            kafkalog.polars.frames(dirs, ["orders"], cursor="reports", cursors=store)["orders"].collect()
        with pytest.raises(KeyError):
            frames["orders"]
    with duckdb.connect() as connection:  # the cursor is one and the same
        with kafkalog.duckdb.register(connection, dirs, ["orders"], cursor="reports", cursors=store):
            assert connection.execute("SELECT decode(value) FROM orders").fetchall() == [("five",)]


def test_what_a_failed_frame_read_is_not_committed(dirs: kafkalog.LogDirs, store: Path) -> None:
    with kafkalog.polars.frames(dirs, cursor="reports", cursors=store) as frames:
        assert frames["orders"].collect().height == 3 and frames.commit()
        dirs["orders", 0].truncate_to(1)
        with pytest.raises(OffsetOutOfRange, match="lost its position"):
            frames["orders"].collect()
        with pytest.raises(IllegalState, match="a commit would count"):
            frames.commit()


def test_one_reader_holds_a_cursor(dirs: kafkalog.LogDirs, store: Path) -> None:
    with dirs.scan("orders", cursor="reports", cursors=store):
        with pytest.raises(CursorInUse):
            dirs.scan("orders", cursor="reports", cursors=store)
        with dirs.scan("users", cursor="reports", cursors=store) as scan:
            assert len(scan.table()) == 3
    dirs.scan("orders", cursor="reports", cursors=store).close()


def test_an_error_of_the_arguments_releases_it(dirs: kafkalog.LogDirs, store: Path) -> None:
    for _ in range(2):
        with pytest.raises(kafkalog.errors.IllegalArgument, match="no column"):
            dirs.scan("orders", ["valu"], cursor="reports", cursors=store)


def test_a_position_that_the_log_lost_is_an_error(dirs: kafkalog.LogDirs, store: Path) -> None:
    with dirs.scan("orders", cursor="reports", cursors=store) as scan:
        scan.commit()
    dirs["orders", 0].truncate_to(1)
    with pytest.raises(OffsetOutOfRange, match="reports"):
        dirs.scan("orders", cursor="reports", cursors=store)


def test_records_written_again_below_a_committed_end_are_not_skipped(dirs: kafkalog.LogDirs, store: Path) -> None:
    """The scan read other records at these offsets than those that a truncation has left room for."""
    with dirs.scan("orders", ["value"], cursor="reports", cursors=store) as scan:
        assert len(scan.table()) == 3
        dirs["orders", 0].truncate_to(1)
        dirs["orders", 0].append([b"another two", b"three"])
        assert scan.commit() == {0: 2, 1: 1}
    with pytest.raises(OffsetOutOfRange, match="record 1 differs from the one that was read"):
        dirs.scan("orders", cursor="reports", cursors=store)


def test_an_added_partition_is_read_after_the_next_commit(dirs: kafkalog.LogDirs, store: Path) -> None:
    query = "SELECT count(*) FROM orders"
    with duckdb.connect() as connection:
        with kafkalog.duckdb.register(connection, dirs, ["orders"], cursor="reports", cursors=store) as tables:
            assert connection.execute(query).fetchall() == [(3,)]
            dirs.alter_topic("orders", partitions=3)
            dirs["orders", 2].append([b"four", b"five", b"six"])
            assert connection.execute(query).fetchall() == [(3,)]
            dirs["orders", 2].delete_before(1)
            assert connection.execute(query).fetchall() == [(3,)]
            assert tables.commit() == {"orders": {0: 2, 1: 1}}
            assert connection.execute('SELECT partition, "offset" FROM orders').fetchall() == [(2, 1), (2, 2)]
            assert tables.commit() == {"orders": {0: 2, 1: 1, 2: 3}}


def test_many_threads_read_a_table_first(dirs: kafkalog.LogDirs, store: Path) -> None:
    for number in range(10):
        with duckdb.connect() as connection:
            name = f"reports-{number}"
            with kafkalog.duckdb.register(connection, dirs, ["orders"], cursor=name, cursors=store) as tables:
                together = threading.Barrier(8)

                def read(table: TopicTable = tables.tables["orders"], together: threading.Barrier = together) -> int:
                    together.wait()
                    return sum(batch.num_rows for batch in table.batches()[1])

                with ThreadPoolExecutor(8) as pool:
                    assert [one.result() for one in [pool.submit(read) for _ in range(8)]] == [3] * 8


def test_what_a_failed_query_read_is_not_committed(dirs: kafkalog.LogDirs, store: Path) -> None:
    query = "SELECT count(value) FROM orders"
    with duckdb.connect() as connection:
        with kafkalog.duckdb.register(connection, dirs, cursor="reports", cursors=store) as tables:
            assert connection.execute(query).fetchall() == [(3,)] and tables.commit()
            dirs["orders", 0].append([b"lost", b"lost"])
            assert connection.execute(query).fetchall() == [(2,)]
            dirs["orders", 0].truncate_to(1)
            with pytest.raises(duckdb.Error, match="log end"):
                connection.execute(query).fetchall()
            assert connection.execute("SELECT count(*) FROM users").fetchall() == [(3,)]
            with pytest.raises(IllegalState, match="a commit would count") as caught:
                tables.commit()
            assert isinstance(caught.value.__cause__, OffsetOutOfRange)
            dirs["orders", 0].append([b"instead", b"instead", b"instead"])
            assert connection.execute(query).fetchall() == [(2,)]
            assert tables.commit() == {"orders": {0: 4, 1: 1}, "users": {0: 2, 1: 1}}
