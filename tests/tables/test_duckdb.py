"""Topics as tables of DuckDB: the rows are those of the whole topic, and what is read is what the query needs."""

import gc
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.errors import CorruptRecord, IllegalArgument, PartitionNotFound
from tests.tables.data import PARTITIONS, ROWS, T, bytes_read, make_topics


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_topics(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def dirs(data: Path) -> Iterator[kafkalog.LogDirs]:
    with kafkalog.open_dirs(data) as opened:
        yield opened


@pytest.fixture(scope="module")
def sql(dirs: kafkalog.LogDirs) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the topics, with those whose lateness is known, and with a copy of the rows."""
    with duckdb.connect() as connection, kafkalog.duckdb.register(connection, dirs):
        with kafkalog.duckdb.register(connection, dirs, {"orders": "late"}, lateness_ms=100_000):
            connection.execute("CREATE TABLE plain AS FROM orders")
            yield connection


def quoted_time(seconds: int) -> str:
    return f"make_timestamptz({(T + 1000 * seconds) * 1000})"


OPERATORS = st.sampled_from(["<", "<=", "=", ">=", ">", "<>"])
OFFSETS, SECONDS, NUMBERS = st.integers(-5, ROWS + 5), st.integers(-110, ROWS + 10), st.integers(-1, PARTITIONS)
LEAVES = st.one_of(
    st.builds('"offset" {} {}'.format, OPERATORS, OFFSETS),
    st.builds("{1} {0} \"offset\"".format, OPERATORS, OFFSETS),
    st.builds('"offset" BETWEEN {} AND {}'.format, OFFSETS, OFFSETS),
    st.builds('"offset" IN ({}, {}, {})'.format, OFFSETS, OFFSETS, OFFSETS),
    st.builds('"offset" % 7 {} {}'.format, OPERATORS, st.integers(0, 7)),
    st.builds('"offset" > {}.5'.format, OFFSETS),
    st.builds("partition {} {}".format, OPERATORS, NUMBERS),
    st.builds("partition IN ({}, {})".format, NUMBERS, NUMBERS),
    st.builds(lambda op, seconds: f"timestamp {op} {quoted_time(seconds)}", OPERATORS, SECONDS),
    st.builds(
        lambda one, other: f"timestamp BETWEEN {quoted_time(one)} AND {quoted_time(other)}", SECONDS, SECONDS
    ),
    st.builds("key = 'k{}'::BLOB".format, st.integers(0, 8)),
    st.sampled_from(["topic = 'orders'", "topic > 'p'", "key IS NULL", '"offset" IS NULL', "timestamp IS NOT NULL"]),
)
PREDICATES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("(NOT {})".format, inner),
    ),
    max_leaves=5,
)


@given(PREDICATES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_filter_gives_the_rows_of_the_whole_topic(sql: duckdb.DuckDBPyConnection, predicate: str) -> None:
    wanted = 'partition, "offset", key, value, timestamp'
    query = f'SELECT {wanted} FROM {{}} WHERE {predicate} ORDER BY partition, "offset"'
    expected = sql.execute(query.format("plain")).fetchall()
    assert sql.execute(query.format("orders")).fetchall() == expected
    assert sql.execute(query.format("late")).fetchall() == expected
    assert sql.execute(f"SELECT count(*) FROM orders WHERE {predicate}").fetchall() == [(len(expected),)]


WHOLE = 'SELECT count(value) FROM orders WHERE "offset" % 2 >= 0'


@pytest.mark.parametrize(
    ("query", "most_share"),
    [
        (f"SELECT count(value) FROM orders WHERE timestamp >= {quoted_time(ROWS - 30)}", 0.15),
        (f"SELECT count(value) FROM late WHERE timestamp BETWEEN {quoted_time(20)} AND {quoted_time(30)}", 0.35),
        ('SELECT count(value) FROM orders WHERE "offset" BETWEEN 100 AND 109', 0.2),
        ("SELECT count(value) FROM orders WHERE partition = 1", 0.4),
        ('SELECT count(*) FROM orders WHERE partition = 1 AND "offset" = 5 OR partition = 2 AND "offset" = 9', 0.15),
        ("SELECT count(*) FROM orders WHERE topic = 'users'", 0),
        ('SELECT count(*) FROM orders WHERE "offset" < 0', 0),
        ('SELECT count(*) FROM orders WHERE partition = 1 AND "offset" IN (5, 2300)', 0.15),
        (f"SELECT count(key) FROM late WHERE timestamp < {quoted_time(30)} AND key < 'k5'::BLOB", 0.35),
        ("SELECT count(*) FROM (SELECT value FROM orders LIMIT 3)", 0.4),
    ],
)
def test_a_query_reads_what_it_needs(
    sql: duckdb.DuckDBPyConnection, dirs: kafkalog.LogDirs, query: str, most_share: float
) -> None:
    def read_by(text: str) -> tuple[int, int]:
        before = bytes_read(dirs)
        (found,) = sql.execute(text).fetchall()
        return found[0], bytes_read(dirs) - before

    rows, whole = read_by(WHOLE)
    assert rows == PARTITIONS * ROWS and whole >= sum(log.size for log in dirs.logs("orders"))
    ((expected,),) = sql.execute(re.sub("FROM (orders|late)", "FROM plain", query)).fetchall()
    found, size = read_by(query)
    assert found == expected and size <= most_share * whole, f"{size} of {whole} bytes"


def test_names_that_need_quotes(sql: duckdb.DuckDBPyConnection) -> None:
    assert sql.execute('SELECT decode(value) FROM "web-clicks.v2"').fetchall() == [("click",)]
    assert sql.execute("SELECT * FROM orders LIMIT 0").description is not None
    names = [one[0] for one in sql.execute("DESCRIBE orders").fetchall()]
    assert names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


def test_a_path_is_opened_and_closed(data: Path) -> None:
    with duckdb.connect() as connection:
        with kafkalog.duckdb.register(connection, data, ["orders"]) as tables:
            assert repr(tables) == "<TopicTables orders>"
            assert connection.execute("SELECT count(*) FROM orders").fetchall() == [(PARTITIONS * ROWS,)]
        with pytest.raises(duckdb.CatalogException):
            connection.execute("FROM orders")
    with duckdb.connect() as connection:
        tables = kafkalog.duckdb.register(connection, [data])
    tables.close()  # also after the connection


def test_records_that_come_meanwhile_are_seen_by_the_next_query(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a") as writer, duckdb.connect() as connection:
        writer.create_topic("orders", 2)
        writer["orders", 0].append([b"one", b"two"])
        with kafkalog.duckdb.register(connection, tmp_path):
            count = "SELECT count(*) FROM orders"
            assert connection.execute(count).fetchall() == [(2,)]
            writer["orders", 1].append(b"three")
            assert connection.execute(count).fetchall() == [(3,)]
            done = threading.Event()

            def write() -> None:
                while not done.is_set():
                    writer["orders", 0].append([b"more"] * 100)

            thread = threading.Thread(target=write)
            thread.start()
            try:
                counts = [connection.execute(count).fetchall()[0][0] for _ in range(20)]
            finally:
                done.set()
                thread.join()
            assert counts == sorted(counts) and counts[-1] <= sum(log.end_offset for log in writer.logs("orders"))


def test_an_error_in_a_query_has_file_and_offset(tmp_path: Path) -> None:
    make_topics(tmp_path)
    path = sorted((tmp_path / "orders-1").glob("*.log"))[1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with duckdb.connect() as connection, kafkalog.duckdb.register(connection, tmp_path) as tables:
        assert connection.execute("SELECT count(value) FROM orders WHERE partition <> 1").fetchall() == [(2 * ROWS,)]
        assert tables.failure is None
        with pytest.raises(duckdb.Error, match=rf"(?s)CRC.*{re.escape(str(path))}.*offset"):
            connection.execute("SELECT count(value) FROM orders").fetchall()
        assert isinstance(tables.failure, CorruptRecord) and tables.failure.path == str(path)
    with duckdb.connect() as connection, kafkalog.duckdb.register(connection, tmp_path, on_damage="skip"):
        ((found,),) = connection.execute("SELECT count(value) FROM orders").fetchall()
        assert PARTITIONS * ROWS - 200 <= found < PARTITIONS * ROWS


def test_aborted_records_are_left_out_where_that_is_asked_for(data: Path) -> None:
    with duckdb.connect() as connection, kafkalog.duckdb.register(connection, data, isolation="read_committed"):
        assert connection.execute("SELECT count(*) FROM orders").fetchall() == [(PARTITIONS * ROWS,)]


def test_other_readers_of_data_sets_use_it(dirs: kafkalog.LogDirs) -> None:
    from pyarrow.compute import field

    from kafkalog.tables.dataset import dataset_of
    from kafkalog.tables.topic_table import TopicTable

    dataset = dataset_of(TopicTable(dirs, "orders", {}))
    assert dataset.to_table(columns=["offset"], filter=field("offset") < 2).num_rows == 2 * PARTITIONS
    assert dataset.head(5, columns=["value"]).schema == pa.schema([("value", pa.binary())])
    assert dataset.head(5).num_rows == 5 and dataset.count_rows(filter=field("partition") == 0) == ROWS
    assert repr(dataset) == "<TopicDataset orders>"


def test_what_is_refused(tmp_path: Path, dirs: kafkalog.LogDirs) -> None:
    with duckdb.connect() as connection:
        for arguments, expected in (
            ({"topics": ["order"]}, "no topic 'order'.*did you mean orders"),
            ({"topics": {"orders": "A", "web-clicks.v2": "a"}}, "SQL ignores case"),
            ({"lateness_ms": -1}, "lateness_ms is -1"),
            ({"since": T}, "takes no since"),
            ({"cursors": "cursors"}, "no cursor"),
        ):
            with pytest.raises(IllegalArgument, match=expected):
                kafkalog.duckdb.register(connection, dirs, **arguments)
        with pytest.raises(TypeError, match=r"\['orders'\]"):
            kafkalog.duckdb.register(connection, dirs, "orders")
        with pytest.raises(TypeError, match="did you mean isolation"):
            kafkalog.duckdb.register(connection, dirs, isolaton="read_committed")
        with pytest.raises(PartitionNotFound):
            kafkalog.duckdb.register(connection, tmp_path / "missing")
        with kafkalog.duckdb.register(connection, dirs) as tables, pytest.raises(IllegalArgument, match="no cursor"):
            tables.commit()
        assert connection.execute("SHOW TABLES").fetchall() == []


def test_damage_before_a_bound_of_time_is_skipped(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("orders", 1)
        for n in range(6):
            dirs["orders", 0].append([(b"k", b"record %d" % n, T + 1000 * n)])
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes().replace(b"record 1", b"damaged!"))
    with duckdb.connect() as connection:
        for lateness_ms in (None, 0):
            options = {"on_damage": "skip", "lateness_ms": lateness_ms}
            with kafkalog.duckdb.register(connection, tmp_path, **options) as tables:  # type: ignore[arg-type]
                for condition, expected in (
                    (f"timestamp >= {quoted_time(1)}", [2, 3, 4, 5]),
                    (f"timestamp > {quoted_time(3)}", [4, 5]),
                    (f"timestamp <= {quoted_time(0)}", [0]),
                    (f"timestamp BETWEEN {quoted_time(1)} AND {quoted_time(2)}", [2]),
                ):
                    found = connection.execute(f'SELECT "offset" FROM orders WHERE {condition}').fetchall()
                    assert [offset for (offset,) in found] == expected and tables.failure is None
        with kafkalog.duckdb.register(connection, tmp_path) as tables:
            with pytest.raises(duckdb.Error, match="CRC"):
                connection.execute(f'SELECT "offset" FROM orders WHERE timestamp >= {quoted_time(1)}').fetchall()
            assert isinstance(tables.failure, CorruptRecord)


@pytest.mark.parametrize("lateness_ms", [None, 0])
def test_damage_at_the_logs_end_is_met_where_its_rows_may_match(tmp_path: Path, lateness_ms: int | None) -> None:
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("orders", 1)
        for n in range(6):
            dirs["orders", 0].append([(b"k", b"record %d" % n, T + 1000 * n)])
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    os.truncate(path, path.stat().st_size - 1)
    with duckdb.connect() as connection:

        def offsets(condition: str) -> list[int]:
            found = connection.execute(f'SELECT "offset" FROM orders WHERE {condition} ORDER BY 1').fetchall()
            return [offset for (offset,) in found]

        with kafkalog.duckdb.register(connection, tmp_path, lateness_ms=lateness_ms) as tables:
            late = [] if lateness_ms == 0 else [f"timestamp < {quoted_time(2)}"]
            for condition in ("\"offset\" >= 5", "\"offset\" = 77", f"timestamp > {quoted_time(9)}", *late):
                with pytest.raises(duckdb.Error, match="middle of a batch"):
                    offsets(condition)
                assert isinstance(tables.failure, CorruptRecord)
            assert offsets('"offset" < 3') == [0, 1, 2] and offsets("partition = 9") == []
        options = {"on_damage": "skip", "lateness_ms": lateness_ms}
        with kafkalog.duckdb.register(connection, tmp_path, **options):  # type: ignore[arg-type]
            assert offsets('"offset" >= 4') == [4] and offsets(f"timestamp < {quoted_time(2)}") == [0, 1]


def test_the_newest_table_of_a_name_stays(data: Path) -> None:
    """As in a notebook where a cell runs again: the table of the first run ends, that of the second does not."""
    with duckdb.connect() as connection:
        tables = kafkalog.duckdb.register(connection, data, ["orders"])
        tables = kafkalog.duckdb.register(connection, data, ["orders"])
        gc.collect()
        assert connection.execute("SELECT count(*) FROM orders").fetchall() == [(PARTITIONS * ROWS,)]
        newest = kafkalog.duckdb.register(connection, data, {"orders": "Orders"})
        tables.close()
        assert connection.execute("SELECT count(*) FROM orders").fetchall() == [(PARTITIONS * ROWS,)]
        connection.register("orders", pa.table({"other": [1]}))
        newest.close()
        assert connection.execute("FROM orders").fetchall() == [(1,)]


def test_a_table_that_a_result_still_reads_is_no_longer_the_newest(data: Path) -> None:
    with duckdb.connect() as connection:
        tables = kafkalog.duckdb.register(connection, data, ["orders"])
        relation = connection.sql("FROM orders")
        newest = kafkalog.duckdb.register(connection, data, ["orders"])
        tables.close()
        assert connection.execute("SELECT count(*) FROM orders").fetchall() == [(PARTITIONS * ROWS,)]
        newest.close()
        with pytest.raises(duckdb.CatalogException):
            connection.execute("FROM orders")
        del relation


def test_the_interpreter_ends_in_silence(data: Path) -> None:
    code = """if True:
        import sys, duckdb, kafkalog
        connection = duckdb.connect()
        tables = kafkalog.duckdb.register(connection, sys.argv[1], ["orders"])
        tables = kafkalog.duckdb.register(connection, sys.argv[1], ["orders"])
        print(connection.execute("SELECT count(*) FROM orders").fetchone()[0])
        """
    done = subprocess.run([sys.executable, "-c", code, str(data)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{PARTITIONS * ROWS}\n", "")
