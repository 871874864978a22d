"""Topics as lazy frames of Polars: the rows are those of the whole topic, and what is read is what the query needs."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.errors import CorruptRecord, IllegalArgument
from kafkalog.tables.polars_filters import arrow_filter, condition_of
from tests.tables.data import PARTITIONS, ROWS, T, bytes_read, make_topics

START = datetime.fromtimestamp(T / 1000, UTC)
SCHEMA = pa.schema(
    [("offset", pa.int64()), ("timestamp", pa.timestamp("ms", "UTC")), ("partition", pa.int32()), ("key", pa.binary())]
)


@pytest.fixture(scope="module")
def dirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafkalog.LogDirs]:
    with kafkalog.open_dirs(make_topics(tmp_path_factory.mktemp("data"))) as opened:
        yield opened


@pytest.fixture(scope="module")
def whole(dirs: kafkalog.LogDirs) -> pl.DataFrame:
    return dirs["orders"].to_polars()


OFFSETS, NUMBERS = st.integers(-5, ROWS + 5), st.integers(-1, PARTITIONS)
TIMES = st.builds(  # Polars cuts a part of a millisecond
    lambda seconds, us: START + timedelta(seconds=seconds, microseconds=us),
    st.integers(-110, ROWS + 10),
    st.sampled_from([0, 0, 500]),
)
OFFSET, TIME, PARTITION = pl.col("offset"), pl.col("timestamp"), pl.col("partition")
LEAVES = st.one_of(
    st.builds(lambda n: OFFSET > n, OFFSETS), st.builds(lambda n: OFFSET <= n, OFFSETS),
    st.builds(lambda n: pl.lit(n) < OFFSET, OFFSETS), st.builds(lambda n: OFFSET == n, OFFSETS),
    st.builds(lambda n: OFFSET >= n + 0.5, OFFSETS), st.builds(lambda n: OFFSET != n, OFFSETS),
    st.builds(lambda n, k: OFFSET.is_in([n, k]), OFFSETS, OFFSETS),
    st.builds(lambda n, k: OFFSET.is_between(n, k, closed="left"), OFFSETS, OFFSETS),
    st.builds(lambda n: PARTITION == n, NUMBERS), st.builds(lambda n: PARTITION < n, NUMBERS),
    st.builds(lambda n, k: PARTITION.is_in([n, k]), NUMBERS, NUMBERS),
    st.builds(lambda t: TIME >= t, TIMES), st.builds(lambda t: TIME < t, TIMES), st.builds(lambda t: TIME == t, TIMES),
    st.builds(lambda t, u: TIME.is_between(t, u), TIMES, TIMES),
    st.builds(lambda n: OFFSET % 7 == n, st.integers(0, 7)),
    st.builds(lambda n: pl.col("key") == b"k%d" % n, st.integers(0, 8)),
    st.just(pl.col("key").is_null()),
)  # fmt: skip
PREDICATES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a: ~a, inner),
    ),
    max_leaves=5,
)


@given(PREDICATES)
@settings(deadline=None)
def test_any_filter_gives_the_rows_of_the_whole_topic(
    dirs: kafkalog.LogDirs, whole: pl.DataFrame, predicate: pl.Expr
) -> None:
    expected = whole.filter(predicate).select("partition", "offset", "value")
    for lateness_ms in (None, 100_000):
        scan = kafkalog.polars.scan(dirs, "orders", lateness_ms=lateness_ms)
        found = scan.filter(predicate).select("partition", "offset", "value").collect()
        assert found.equals(expected)


@pytest.mark.parametrize(
    ("predicate", "most_share"),
    [
        (TIME >= START + timedelta(seconds=ROWS - 30), 0.15),
        ((OFFSET >= 100) & (OFFSET < 110) & (pl.col("key") != b"x"), 0.2),
        (OFFSET.is_in([100, 102]), 0.2),
        (PARTITION == 1, 0.4),
        ((PARTITION == 7) | (OFFSET < 0), 0),
    ],
)
def test_a_query_reads_what_it_needs(
    dirs: kafkalog.LogDirs, whole: pl.DataFrame, predicate: pl.Expr, most_share: float
) -> None:
    size = sum(log.size for log in dirs.logs("orders"))
    before = bytes_read(dirs)
    found = kafkalog.polars.scan(dirs, "orders").filter(predicate).select("value").collect()
    assert bytes_read(dirs) - before <= most_share * size
    assert found.equals(whole.filter(predicate).select("value"))


def test_a_number_of_rows_ends_the_reading(dirs: kafkalog.LogDirs) -> None:
    before = bytes_read(dirs)
    assert kafkalog.polars.scan(dirs, "orders").select("value").head(3).collect().height == 3
    assert bytes_read(dirs) - before <= dirs["orders", 0].size
    rows = kafkalog.polars.scan(dirs, "orders").filter(OFFSET >= 5).head(2).select("offset").collect()
    assert rows["offset"].to_list() == [5, 6]


def test_conditions_on_the_first_rows(dirs: kafkalog.LogDirs) -> None:
    scan = kafkalog.polars.scan(dirs, "orders")
    assert scan.head(3).filter(OFFSET % 2 == 0).select("offset").collect().rows() == [(0,), (2,)]
    assert scan.head(3).filter(OFFSET >= 5).collect().height == 0
    assert scan.filter(OFFSET >= 5).head(3).filter(OFFSET >= 7).select("offset").collect().rows() == [(7,)]
    assert scan.head(0).filter(OFFSET >= 0).collect().height == 0


STEPS = st.one_of(
    st.builds(lambda n: ("head", n), st.one_of(st.integers(0, 10), st.integers(0, PARTITIONS * ROWS + 5))),
    st.builds(lambda predicate: ("filter", predicate), PREDICATES),
    st.builds(
        lambda others: ("select", ["offset", "timestamp", "partition", "key", *others]),
        st.lists(st.sampled_from(["value", "topic"]), unique=True),
    ),
)


@given(st.lists(STEPS, max_size=5), st.sampled_from(["in-memory", "streaming"]))
@settings(deadline=None)
def test_steps_in_any_order_give_the_rows_of_a_frame_in_memory(
    dirs: kafkalog.LogDirs, whole: pl.DataFrame, steps: list[tuple[str, Any]], engine: Any
) -> None:
    found, expected = kafkalog.polars.scan(dirs, "orders"), whole
    for step, argument in steps:
        if step == "select" and any(name not in expected.columns for name in argument):
            argument = argument[:4]
        found, expected = getattr(found, step)(argument), getattr(expected, step)(argument)
    assert found.collect(engine=engine).equals(expected)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (OFFSET > 5, "(offset > 5)"),
        (pl.lit(5) >= OFFSET, "(offset <= 5)"),
        ((OFFSET > 5) & (pl.col("key") == b"k"), "(offset > 5)"),
        ((OFFSET > 5) | (pl.col("key") == b"k"), "None"),
        (~(OFFSET > 5) & (pl.col("key") == b"k"), "None"),
        (OFFSET == OFFSET, "None"),
        (OFFSET == pl.lit(None, pl.Int64), "None"),
    ],
)
def test_what_is_not_understood_limits_nothing(predicate: pl.Expr, expected: str) -> None:
    assert str(arrow_filter(condition_of(predicate, SCHEMA), SCHEMA)) == expected


def test_a_path_stays_open_as_long_as_the_frame(dirs: kafkalog.LogDirs, tmp_path: Path) -> None:
    make_topics(tmp_path)
    scan = kafkalog.polars.scan(tmp_path, "web-clicks.v2")
    assert scan.collect()["value"].to_list() == scan.select("value").collect()["value"].to_list() == [b"click"]
    with pytest.raises(IllegalArgument, match="no topic 'order'"):
        kafkalog.polars.scan(dirs, "order")


def test_an_error_of_reading_has_file_and_offset(tmp_path: Path) -> None:
    make_topics(tmp_path)
    path = sorted((tmp_path / "orders-1").glob("*.log"))[1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with kafkalog.open_dirs(tmp_path) as dirs, pytest.raises(CorruptRecord, match=rf"CRC.*{path}.*offset"):
        kafkalog.polars.scan(dirs, "orders").select("value").collect()
