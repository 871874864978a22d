"""Tables: NumPy views, slices, columns, pandas, and what readers of Arrow see."""

import subprocess
import sys

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from kafkalog._core.batch.encode import encode_batch
from kafkalog._core.batch.scan import scan
from kafkalog.errors import CorruptRecord, IllegalArgument, InvalidRecord
from kafkalog.records.batch import RecordBatch
from kafkalog.records.column_reader import COLUMNS, ColumnReader, kinds_of
from kafkalog.records.compression import compress
from kafkalog.records.table import Table
from tests.arrow_readers import SCHEMA, as_tuples, checked, records_of
from tests.builder import R, batch, frame, seal

T = 1_700_000_000_000
ROWS = [(None if i % 4 else b"k%d" % i, b"v" * i, T + i, [("h", None)] * (i % 3)) for i in range(50)]
DATA = bytes(encode_batch(ROWS, timestamp=T))


def make_table(columns: list[str] | None = None, *, batch_rows: int = 20, data: bytes = DATA) -> Table:
    kinds = kinds_of(columns)
    reader = ColumnReader(kinds, 0, 2**62, topic="orders", partition=3, batch_rows=batch_rows)
    batches = scan(data)
    return Table.of([*reader.read(data, batches), *reader.rest()], kinds)


def test_numbers_are_read_only_arrays_without_a_copy() -> None:
    t = make_table()
    assert t.offsets.tolist() == list(range(50)) and t.offsets.dtype == np.int64
    assert t.timestamps.tolist() == [T + i for i in range(50)] and t.timestamps.dtype == np.int64
    assert set(t.partitions) == {3} and t.partitions.dtype == np.int32
    assert set(t.timestamp_types) == {0} and t.timestamp_types.dtype == np.int32
    assert str(t.timestamps.view("datetime64[ms]")[1]) == "2023-11-14T22:13:20.001"
    for name in ("offset", "timestamp", "partition", "timestampType"):
        array = t[name].to_numpy()
        assert np.shares_memory(array, t[name].to_numpy()) and array.flags.c_contiguous
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    part = t[10:20]
    assert np.shares_memory(part.offsets, t.offsets) and part.offsets.tolist() == list(range(10, 20))
    offsets = t.offsets
    del t, part
    assert offsets.sum() == sum(range(50))


@pytest.mark.parametrize("name", ["offset", "value"])
def test_an_array_is_copied_only_where_that_is_asked_for(name: str) -> None:
    column = make_table()[name]
    shared, own = np.asarray(column), np.array(column, copy=True)
    assert shared.tolist() == own.tolist() == column.to_pylist()
    assert np.shares_memory(shared, column.to_numpy()) == (name == "offset")
    assert not np.shares_memory(own, shared) and own.flags.writeable
    own[0] = own[1]
    assert column[0] != column[1]
    for copy in (None, True, False):
        assert column.__array__(dtype=object, copy=copy).tolist() == column.to_pylist()
        assert column.__array__(dtype=object, copy=copy).dtype == object


def test_arrow_shows_the_memory_that_numpy_shows() -> None:
    t = make_table()
    offsets = t.offsets
    chunk = pa.table(t)["offset"].chunk(1)
    assert chunk.buffers()[1].address == offsets[20:].ctypes.data


@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
def test_slices_are_those_of_a_list(batch_rows: int) -> None:
    t = make_table(batch_rows=batch_rows)
    whole = records_of(checked(t))
    for part in (slice(None), slice(3, 30), slice(-5, None), slice(40, 10), slice(45, 99), slice(-99, 2), slice(7, 7)):
        wanted = whole[part]
        assert len(t[part]) == len(wanted)
        assert records_of(checked(t[part])) == wanted
        assert t[part].offsets.tolist() == [row[0] for row in wanted]
        assert records_of(checked(t[part][1:3])) == wanted[1:3]
    with pytest.raises(IllegalArgument, match="step"):
        t[::2]


def test_a_row_is_a_dict() -> None:
    t = make_table()
    assert t[8] == {
        "key": b"k8", "value": b"v" * 8, "topic": "orders", "partition": 3, "offset": 8, "timestamp": T + 8,
        "timestampType": 0, "headers": (("h", None), ("h", None)),
    }  # fmt: skip
    assert t[-1]["offset"] == 49 and t[5:][0]["offset"] == 5
    for row in (50, -51):
        with pytest.raises(IndexError):
            t[row]
    with pytest.raises(TypeError):
        t[1.5]  # type: ignore[call-overload]
    assert [row["value"] for row in t] == [row[1] for row in ROWS]


def test_columns_by_name() -> None:
    t = make_table()
    assert t.columns == COLUMNS
    value = t["value"]
    assert (value.name, len(value), value[3], value[-1]) == ("value", 50, b"vvv", b"v" * 49)
    assert list(value) == value.to_pylist() == [row[1] for row in ROWS]
    assert list(value[2:4]) == list(value[2:4:1]) == [b"vv", b"vvv"]
    for step in (2, -1):
        with pytest.raises(IllegalArgument, match=f"^a column has no slice with step {step}"):
            value[::step]
    assert np.asarray(t["key"]).tolist() == [row[0] for row in ROWS]
    assert np.asarray(t["headers"])[2] == (("h", None), ("h", None))
    assert np.asarray(t["offset"], dtype=float).dtype == float
    assert pa.chunked_array(t["key"]).to_pylist() == [row[0] for row in ROWS]
    assert pl.Series(t["value"][1:4]).to_list() == [b"v", b"vv", b"vvv"]
    with pytest.raises(IndexError):
        value[50]
    with pytest.raises(IllegalArgument, match="did you mean timestamp"):
        t["timestmp"]


def test_some_columns() -> None:
    t = make_table(["offset", "key"])
    assert t.columns == ("offset", "key") and pa.table(t).column_names == ["offset", "key"]
    assert t.select(["key"]).columns == ("key",)
    with pytest.raises(IllegalArgument, match="there is no column 'value'"):
        t["value"]
    assert not hasattr(t, "__arrow_c_array__")


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (["ofset"], "no column 'ofset'.*did you mean offset"),
        (["Value"], "did you mean value"),
        (["xyz"], "columns are key, value, topic"),
        ([], "no column is given"),
        (["key", "key"], "twice"),
        ([1], "no column 1"),
    ],
)
def test_columns_that_there_are_not(columns: list[str], text: str) -> None:
    with pytest.raises(IllegalArgument, match=text):
        kinds_of(columns)


def test_one_name_is_no_list() -> None:
    with pytest.raises(TypeError, match=r"\['offset'\]"):
        kinds_of("offset")


def test_record_batches_are_arrays() -> None:
    parts = list(make_table()[5:45].batches())
    assert [len(part) for part in parts] == [15, 20, 5]
    for part in parts:
        batch = pa.record_batch(part)
        batch.validate(full=True)
        assert batch["offset"].to_pylist() == part.offsets.tolist()
    assert records_of(pa.Table.from_batches([pa.record_batch(part) for part in parts])) == records_of(
        checked(make_table()[5:45])
    )


def test_pandas_without_pyarrow() -> None:
    frame = make_table().to_pandas()
    assert list(frame.columns) == list(COLUMNS)
    assert frame["timestamp"].dtype == "datetime64[ms, UTC]"
    assert frame["offset"].dtype == np.int64 and frame["partition"].dtype == np.int32
    assert frame["value"].tolist() == [row[1] for row in ROWS]
    assert frame["headers"][4] == (("h", None),)
    assert frame["topic"].unique().tolist() == ["orders"]
    assert frame["timestamp"][3] == pd.Timestamp(T + 3, unit="ms", tz="UTC")
    wanted = pa.table(make_table()).to_pandas()
    for name in ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"):
        pd.testing.assert_series_equal(frame[name], wanted[name])
    frame.loc[0, "offset"] = 7  # its own memory
    assert make_table(["offset"])[:0].to_pandas().shape == (0, 1)


def test_duckdb_and_polars_read_it() -> None:
    t = make_table()
    total = duckdb.sql('SELECT count(*), sum("offset"), sum(octet_length(value)), count(key) FROM t').fetchall()
    assert total == [(50, sum(range(50)), sum(range(50)), 13)]
    part = t[10:30]  # noqa: F841 - DuckDB finds it by its name
    ends = duckdb.sql('SELECT min("offset"), max("offset"), any_value(topic) FROM part').fetchall()
    assert ends == [(10, 29, "orders")]
    assert duckdb.sql('SELECT headers[1].key FROM part WHERE "offset" = 11').fetchall() == [("h",)]
    assert pl.DataFrame(t).select(pl.col("offset").sum(), pl.col("key").count()).row(0) == (sum(range(50)), 13)


WITHOUT_PYARROW = """
import sys
import duckdb, polars
from kafkalog._core.batch.encode import encode_batch
from kafkalog._core.batch.scan import scan
from kafkalog.records.batch import RecordBatch

data = bytes(encode_batch([b"v"] * 50, timestamp=1))
t = RecordBatch(data, scan(data), 0).table()
assert duckdb.sql("SELECT count(*) FROM t").fetchall() == [(50,)]
assert polars.DataFrame(t).shape == (50, 6)
assert t.offsets.sum() == 1225
assert "pyarrow" not in sys.modules, "pyarrow was imported"
sys.modules["pyarrow"] = None  # as where it is not installed: pandas imports it for itself
assert t.to_pandas().shape == (50, 6)
"""


def test_pyarrow_is_not_imported() -> None:
    """Arrow without pyarrow: DuckDB, Polars and pandas read a table, and pyarrow is never imported."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_PYARROW], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_batch_by_itself() -> None:
    """It does not know its topic and partition; every record is in it, whatever its offset."""
    one = RecordBatch(DATA, scan(DATA), 0)
    schema = pa.schema([field for field in SCHEMA if field.name not in ("topic", "partition")])
    read = checked(one)
    assert read.schema.equals(schema)
    assert records_of(read) == as_tuples(one)
    assert one.table(["value"])["value"][2] == b"vv"
    odd = batch([R(b"a", delta=5), R(b"b", delta=3), R(b"c", delta=3)], last_delta=5)
    assert RecordBatch(odd, scan(odd), 0).table().offsets.tolist() == [5, 3, 3]
    with pytest.raises(IllegalArgument, match="no column 'topic'.*columns are key, value, offset"):
        one.table(["topic"])


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_batches(codec: int) -> None:
    payload = bytes(compress(codec, DATA[61:]))
    data = frame(payload, count=50, last_delta=49, attributes=codec, base_timestamp=T, max_timestamp=T + 49)
    assert records_of(checked(make_table(data=data))) == as_tuples(RecordBatch(data, scan(data), 0))


def test_damage_after_the_records_in_front_of_it() -> None:
    """InvalidRecord with offset, position and file; what lies before it is given first."""
    good = batch([R(b"a"), R(b"b")])
    bad = bytearray(batch([R(b"c"), R(b"d")], base_offset=2))
    bad[61] = 0x7E
    data = good + bytes(seal(bytes(bad)))
    reader = ColumnReader(kinds_of(["offset"]), 0, 99)
    got = []
    with pytest.raises(InvalidRecord) as caught:
        for columns in reader.read(data, scan(data), path="/x/0.log"):
            got += columns.values(4, 0, len(columns))
    assert got == [0, 1]
    assert (caught.value.path, caught.value.offset, caught.value.position) == ("/x/0.log", 2, len(good) + 61)
    broken = frame(b"\1\2\3", count=1, last_delta=0, attributes=1)
    with pytest.raises((InvalidRecord, CorruptRecord)) as caught_gzip:
        list(ColumnReader(kinds_of(None), 0, 99).read(good + broken, scan(good + broken), path="/x/0.log"))
    assert caught_gzip.value.path == "/x/0.log"


def test_reprs() -> None:
    t = make_table(["offset", "key"])
    assert repr(t) == "<Table of 50 records: offset, key>"
    assert repr(t["key"][3:5]) == "<TableColumn key of 2 records>"
    assert repr(next(t.batches())) == "<RecordBatchColumns of 20 records: offset, key>"
    assert bool(t[:0]) and t.nbytes > 0
