"""examples/stream_to_iceberg.py: a stream on Spark is killed, and the table has every order once."""

import contextlib
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

import kafkalog
from tests import commands
from tests.examples.programs import EXAMPLES
from tests.spark.conftest import why_not
from tests.spark.quick_java import quick_java, submitted

duckdb = pytest.importorskip("duckdb")
CommitFailedException = pytest.importorskip("pyiceberg.exceptions").CommitFailedException
REASON = why_not()
ORDERS, KILLS = 3000, 1  # ci/demo.sh kills it twice
DEADLINE_S = 900  # a busy machine starts Spark slowly
Row = tuple[int, int, int, str, int]


@pytest.fixture
def example() -> Iterator[ModuleType]:
    sys.path.insert(0, str(EXAMPLES))
    try:
        yield importlib.import_module("stream_to_iceberg")
    finally:
        sys.path.remove(str(EXAMPLES))


@contextlib.contextmanager
def opened(example: ModuleType, lake: Path) -> Iterator[Any]:
    """The table, which is created if it is missing."""
    lake.mkdir(exist_ok=True)
    catalog = example.SqlCatalog("default", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}")
    with contextlib.closing(catalog):
        yield example.create_table(catalog)


def logged(data: Path) -> list[Row]:
    """Every order, from the records one by one."""
    rows = []
    with kafkalog.open_dirs(data) as dirs:
        for log in dirs.logs("orders"):
            for record in log:
                value = json.loads(record.value or b"")
                rows.append((log.partition, record.offset, record.timestamp, value["product"], value["cents"]))
    return sorted(rows)


def one_row(example: ModuleType) -> pyarrow.Table:
    row = {"partition": 0, "offset": 7, "timestamp": 0, "product": "tea", "cents": 5}
    return pyarrow.Table.from_pylist([row], example.SCHEMA)


class OneRow:
    """A micro-batch of one order, as far as `commit` uses one."""

    def __init__(self, example: ModuleType) -> None:
        self._rows = one_row(example)
        self.write = self

    def coalesce(self, count: int) -> "OneRow":
        return self

    def parquet(self, place: str) -> None:
        path = Path(place.removeprefix("file://"))
        path.mkdir(parents=True)
        pyarrow.parquet.write_table(self._rows, path / "part-0.parquet")


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_every_order_is_in_the_table_once_after_kills(tmp_path: Path, example: ModuleType) -> None:
    data, lake = tmp_path / "shop", tmp_path / "lake"
    done = commands.run(
        [*map(str, (EXAMPLES / "orders_to_table.py", data, lake, "--spark", "--orders", ORDERS, "--kills", KILLS))],
        timeout_s=DEADLINE_S, JDK_JAVA_OPTIONS=quick_java(), TMPDIR=str(tmp_path),
        PYSPARK_SUBMIT_ARGS=submitted(),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b""), done.stdout + done.stderr
    lines = done.stdout.decode().splitlines()
    assert lines[-2].startswith(f"{ORDERS:,} orders; {KILLS} kills; ")
    assert lines[-1] == "the table and the log have the same totals"
    wanted = logged(data)
    assert len(wanted) == ORDERS
    with opened(example, lake) as table:
        assert len(table.snapshots()) > KILLS  # each stream had committed a batch before it was killed
        assert example.next_offsets(table, 3) == {str(n): sum(row[0] == n for row in wanted) for n in range(3)}
        found = table.scan().to_arrow().to_pylist()
        files = [one.file.file_path for one in table.scan().plan_files()]
    rows = [
        (row["partition"], row["offset"], round(row["timestamp"].timestamp() * 1000), row["product"], row["cents"])
        for row in found
    ]
    assert sorted(rows) == wanted
    with duckdb.connect() as sql:
        sums = sql.execute(
            'SELECT "partition", "offset", epoch_ms("timestamp"), product, cents FROM read_parquet($1) ORDER BY ALL',
            [[one.removeprefix("file://") for one in files]],
        ).fetchall()
    assert sums == wanted


def test_offsets_outlast_commits_of_other_programs(tmp_path: Path, example: ModuleType) -> None:
    with opened(example, tmp_path / "lake") as table:
        assert example.next_offsets(table, 2) == {"0": -2, "1": -2}
        example.commit(OneRow(example), table, {"0": 8})
        table.append(table.scan().to_arrow())
        assert example.next_offsets(table, 2) == {"0": 8, "1": -2}


def test_batch_fails_after_a_commit_of_a_second_stream(tmp_path: Path, example: ModuleType) -> None:
    with opened(example, tmp_path / "lake") as table:
        example.commit(OneRow(example), table, {"0": 8})
        with opened(example, tmp_path / "lake") as other:
            example.commit(OneRow(example), table, {"0": 9})
            with pytest.raises(CommitFailedException):
                example.commit(OneRow(example), other, {"0": 9})
            assert other.refresh().scan().to_arrow().num_rows == 2


def test_table_with_rows_of_unknown_offsets_is_refused(tmp_path: Path, example: ModuleType) -> None:
    with opened(example, tmp_path / "lake") as table:
        table.append(one_row(example))
        with pytest.raises(SystemExit, match="no offsets of this stream"):
            example.next_offsets(table, 2)
