"""Conditions of SQL and Polars on keys and values: no row is lost, and what they rule out is not decoded."""

import ctypes
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from pyarrow.compute import field

import kafkalog
from kafkalog.tables import duckdb_filters, polars_filters
from tests.tables.typed_rows import BYTES, FLOATS, ROWS, TABLE, TEXTS, TYPE, UNSIGNED, WHOLE, CountingDecoder, make_rows


@pytest.fixture(scope="module")
def dirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafkalog.LogDirs]:
    with kafkalog.open_dirs(make_rows(tmp_path_factory.mktemp("data"))) as opened:
        yield opened


@pytest.fixture(scope="module")
def sql(dirs: kafkalog.LogDirs) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the topic, with its values as bytes, and with copies of both."""
    with duckdb.connect() as connection, kafkalog.duckdb.register(connection, dirs, value=CountingDecoder()):
        with kafkalog.duckdb.register(connection, dirs, {"rows": "raw"}):
            connection.execute("CREATE TABLE plain AS FROM rows")
            connection.execute("CREATE TABLE plain_raw AS FROM raw")
            yield connection


def blob(value: bytes) -> str:
    return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"


def text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


SIGNS = st.sampled_from(["<", "<=", "=", ">=", ">", "<>"])
NUMBERS = st.sampled_from([*WHOLE, 2, 100])
COMPARED = [
    ("key", st.sampled_from([*BYTES, b"k"]).map(blob)), ("value.b", st.sampled_from(BYTES).map(blob)),
    ("value.s", st.sampled_from([one for one in TEXTS if "\0" not in one]).map(text)), ("value.n", NUMBERS),
    ("value.small", st.integers(-6, 1)), ("value.u", st.sampled_from(UNSIGNED)),
    ("value.f", st.sampled_from([*map(str, FLOATS), "0.5"]).map("'{}'::DOUBLE".format)),
    ("value.ts", st.integers(0, 6).map("'2026-01-01 00:00:0{}+00'::TIMESTAMPTZ".format)),
    ("value.d", st.integers(0, 3).map("'2026-01-0{}'::DATE".format).filter(lambda one: "00" not in one)),
    ('value."in".x', st.sampled_from(["eu", "us"]).map(text)), ('value."in"."a.b"', st.integers(-2, 6)),
    ('"offset"', st.integers(-2, ROWS)), ("partition", st.integers(-1, 2)),
    ("value.t", st.sampled_from(["true", "false"])),
]  # fmt: skip
NULLABLE = st.sampled_from(["value", "key", 'value."in"', "value.l", "headers", *(one for one, _ in COMPARED)])
LIKE = ["value.s LIKE 'eu%'", "value.s LIKE '%1'", "starts_with(value.s, 'eu-')", "value.s NOT LIKE 'e_-%'"]
OTHERS = ["value.t", "NOT value.t", "value.n > value.small", "length(value.s) > 2", "value.n IS DISTINCT FROM 1"]


def leaves(pairs: list[tuple[str, Any]]) -> st.SearchStrategy[str]:
    return st.one_of(
        *(st.builds(f"{name} {{}} {{}}".format, SIGNS, constants) for name, constants in pairs),
        *(st.builds(f"{name} IN ({{}}, {{}})".format, constants, constants) for name, constants in pairs),
        *(st.builds(f"{name} NOT IN ({{}}, {{}}, NULL)".format, constants, constants) for name, constants in pairs[:3]),
        st.sampled_from([*LIKE, *OTHERS]),
        st.builds("{} IS NULL".format, NULLABLE), st.builds("{} IS NOT NULL".format, NULLABLE),
    )  # fmt: skip


def predicates(leaf: st.SearchStrategy[Any], ands: Any, ors: Any, nots: Any) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaf,
        lambda inner: st.one_of(st.builds(ands, inner, inner), st.builds(ors, inner, inner), st.builds(nots, inner)),
        max_leaves=5,
    )


SQL = ("({} AND {})".format, "({} OR {})".format, "(NOT {})".format)


@given(predicates(leaves(COMPARED), *SQL))
@settings(deadline=None, max_examples=150)
def test_any_filter_of_sql_gives_the_rows_of_the_whole_topic(sql: duckdb.DuckDBPyConnection, predicate: str) -> None:
    for wanted in ('"offset", key', '"offset", value.n, partition'):
        query = f"SELECT {wanted} FROM {{}} WHERE {predicate} ORDER BY partition, \"offset\""
        assert sql.execute(query.format("rows")).fetchall() == sql.execute(query.format("plain")).fetchall()


@given(
    predicates(
        st.one_of(
            st.builds("key {} {}".format, SIGNS, COMPARED[0][1]),
            st.builds("value {} {}".format, SIGNS, COMPARED[0][1]),
            st.builds("key IN ({}, {})".format, COMPARED[0][1], COMPARED[0][1]),
            st.sampled_from(["key IS NULL", "value IS NULL", "topic = 'rows'", "decode(value) > '2'"]),
        ),
        *SQL,
    )
)  # fmt: skip
@settings(deadline=None, max_examples=50)
def test_any_filter_of_sql_on_bytes(sql: duckdb.DuckDBPyConnection, predicate: str) -> None:
    query = f'SELECT "offset", key, value FROM {{}} WHERE {predicate} ORDER BY partition, "offset"'
    assert sql.execute(query.format("raw")).fetchall() == sql.execute(query.format("plain_raw")).fetchall()


VALUE = pl.col("value")
IN = VALUE.struct.field("in")
START = datetime(2026, 1, 1, tzinfo=UTC)
TIMES = [START + timedelta(seconds=n, microseconds=us) for n in range(5) for us in (0, 1, 500)]
FIELDS: list[tuple[pl.Expr, list[Any]]] = [
    (pl.col("key"), [*BYTES, b"k"]), (VALUE.struct.field("b"), BYTES), (VALUE.struct.field("s"), TEXTS),
    (VALUE.struct.field("n"), [*WHOLE, 2]), (VALUE.struct.field("small"), [0, -5, 100_000]),
    (VALUE.struct.field("u"), [0, 1, 7, 2**53 + 1]), (VALUE.struct.field("f"), [*FLOATS, 0.5, 1, 2**53 + 1]),
    (VALUE.struct.field("ts"), TIMES), (VALUE.struct.field("d"), [date(2026, 1, 1), date(2026, 1, 3)]),
    (IN.struct.field("x"), ["eu", "us"]), (IN.struct.field("a.b"), [-1, 5]), (pl.col("offset"), [0, 200, 399]),
    (pl.col("partition"), [0, 1, 2]), (VALUE.struct.field("t"), [True, False]),
]  # fmt: skip


def compared(pair: tuple[pl.Expr, list[Any]], one: int, other: int, form: int) -> pl.Expr:
    """Return a condition on a field with constants from its list."""
    column, constants = pair
    low, high = constants[one % len(constants)], constants[other % len(constants)]
    high = high if type(high) is type(low) else low
    forms = (
        lambda: column == low, lambda: column != low, lambda: column > low, lambda: column >= low, lambda: column < low,
        lambda: pl.lit(low) >= column, lambda: column.is_between(low, high), lambda: column.is_in([low, high]),
        lambda: column.is_in([low, None]), lambda: column.eq_missing(low),
        lambda: column.is_between(low, high, closed="none"),
    )  # fmt: skip
    return forms[form % len(forms)]()


TEXT, RAW = VALUE.struct.field("s"), pl.col("key")
POLARS_LEAVES = st.one_of(
    st.builds(compared, st.sampled_from(FIELDS), *[st.integers(0, 100)] * 3),
    st.builds(lambda pair: pair[0].is_null(), st.sampled_from(FIELDS)),
    st.builds(lambda pair: pair[0].is_not_null(), st.sampled_from([*FIELDS, (VALUE, []), (IN, [])])),
    st.builds(lambda part: TEXT.str.starts_with(part), st.sampled_from([*TEXTS, "e", "%"])),
    st.builds(lambda part: TEXT.str.ends_with(part), st.sampled_from([*TEXTS, "1"])),
    st.builds(lambda part: TEXT.str.contains(part, literal=True), st.sampled_from([*TEXTS, "u"])),
    st.builds(lambda part: TEXT.str.contains(part), st.sampled_from(["^e", "u.1"])),
    st.builds(lambda part: RAW.bin.starts_with(part), st.sampled_from([*BYTES, b"k"])),
    st.builds(lambda part: RAW.bin.ends_with(part), st.sampled_from([*BYTES, b"1"])),
    st.builds(lambda part: RAW.bin.contains(part), st.sampled_from([*BYTES, b"\xff"])),
    st.sampled_from([VALUE.struct.field("t"), TEXT.str.len_bytes() > 2]),
)


@given(predicates(POLARS_LEAVES, lambda a, b: a & b, lambda a, b: a | b, lambda a: ~a))
@settings(deadline=None, max_examples=150)
def test_any_filter_of_polars_gives_the_rows_of_the_whole_topic(
    dirs: kafkalog.LogDirs, whole: pl.DataFrame, predicate: pl.Expr
) -> None:
    try:
        expected = whole.filter(predicate)
    except pl.exceptions.PolarsError:  # types that Polars does not compare
        reject()
    found = kafkalog.polars.scan(dirs, "rows", value=CountingDecoder()).filter(predicate)
    assert found.select("partition", "offset").collect().equals(expected.select("partition", "offset"))
    condition = polars_filters.condition_of(predicate, whole.to_arrow().schema)
    if condition is not None:  # what it leaves are the rows, and null is SQL's
        scan = dirs.scan("rows", ["partition", "offset"], value=CountingDecoder(), where=condition)
        assert {*scan.to_polars().rows()} >= {*expected.select("partition", "offset").rows()}


@pytest.fixture(scope="module")
def whole(dirs: kafkalog.LogDirs) -> pl.DataFrame:
    return dirs["rows"].to_polars(value=CountingDecoder())


@pytest.mark.parametrize(
    ("query", "decoded"),
    [
        ("SELECT count(*), max(key) FROM rows", 0),
        ("SELECT max(key), count(headers) FROM rows WHERE timestamp > '2000-01-01'", 0),
        ("SELECT count(value) FROM rows WHERE key = 'k1'::BLOB AND value.n > 0", ROWS // 8),
        ("SELECT count(value) FROM rows WHERE key IN ('k1'::BLOB, 'none'::BLOB) AND length(value.s) > 2", ROWS // 8),
        ("SELECT count(value) FROM rows WHERE key IS NULL OR key = 'k2'::BLOB", ROWS // 4),
        ("SELECT count(value) FROM rows WHERE NOT (key <> 'k1'::BLOB)", ROWS // 8),
        ("SELECT count(value) FROM rows WHERE key > 'a'::BLOB AND key < 'b'::BLOB", 0),
        ("SELECT count(*) FROM rows WHERE value.n = 7", ROWS),
        ("SELECT count(value) FROM rows WHERE decode(key) = 'k1'", None),
    ],
)
def test_sql_decodes_only_the_rows_and_columns_that_it_needs(
    dirs: kafkalog.LogDirs, sql: duckdb.DuckDBPyConnection, query: str, decoded: int | None
) -> None:
    decoder = CountingDecoder()
    with duckdb.connect() as connection, kafkalog.duckdb.register(connection, dirs, value=decoder):
        try:
            found = connection.execute(query).fetchall()
        except duckdb.Error:  # a function that fails for some of the rows
            assert decoded is None
            return
    assert found == sql.execute(query.replace("FROM rows", "FROM plain")).fetchall()
    assert decoder.rows == (ROWS if decoded is None else decoded)


@pytest.mark.parametrize(
    ("predicate", "columns", "decoded"),
    [
        (pl.col("key") == b"k1", ["key"], 0), (pl.col("key").is_in([b"k1", b"k2"]), ["value"], ROWS // 4),
        (pl.col("key").bin.starts_with(b"k"), ["value"], ROWS // 2), (pl.col("key").is_null(), ["value"], ROWS // 8),
        ((pl.col("key") == b"k1") & (VALUE.struct.field("n") > 0), ["value"], ROWS // 8),
        ((pl.col("key") == b"k1") & (pl.col("key").bin.size() > 0), ["value"], ROWS // 8),
        (pl.col("key").bin.size() == 2, ["value"], ROWS),
    ],
)  # fmt: skip
def test_polars_decodes_only_the_rows_and_columns_that_it_needs(
    dirs: kafkalog.LogDirs, whole: pl.DataFrame, predicate: pl.Expr, columns: list[str], decoded: int
) -> None:
    decoder = CountingDecoder()
    found = kafkalog.polars.scan(dirs, "rows", value=decoder).filter(predicate).select("offset", *columns).collect()
    assert found.equals(whole.filter(predicate).select("offset", *columns)) and decoder.rows == decoded


def test_a_condition_of_the_options_goes_with_those_of_the_query(dirs: kafkalog.LogDirs) -> None:
    decoder = CountingDecoder()
    options: dict[str, Any] = {"value": decoder, "where": "key == 'k1' and value.n >= 0"}
    rows = dirs.scan("rows", ["offset"], **options).table()
    expected = {offset for offset in rows["offset"].to_pylist() if offset > 99}
    decoder.rows = 0
    with duckdb.connect() as connection, kafkalog.duckdb.register(connection, dirs, **options):
        found = connection.execute('SELECT "offset", value FROM rows WHERE "offset" > 99').fetchall()
    assert {row[0] for row in found} == expected and 0 < decoder.rows < ROWS // 8
    frame = kafkalog.polars.scan(dirs, "rows", **options).filter(pl.col("offset") > 99)
    assert {*frame.collect()["offset"].to_list()} == expected


SCHEMA = pa.schema([("offset", pa.int64()), ("key", pa.binary()), ("value", TYPE), ("value_error", pa.string())])
N, S = field("value", "n"), field("value", "s")


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (field("key") == b"k", "key == x'6b'"),
        ((N > 5) & ~(S == "it's"), "value.n > 5 and not value.s == 'it''s'"),
        ((N > 5) & (field("offset") + 2 == 7), "value.n > 5"),
        ((N > 5) | (field("offset") + 2 == 7), "None"),
        (~((N > 5) & (field("offset") + 2 == 7)), "None"),
        (~((N > 5) | (field("offset") + 2 == 7)), "not value.n > 5"),
        (~S.is_null() & N.is_valid(), "value.s is not null and value.n is not null"),
        (N.isin([1, 2]), "value.n in (1, 2)"),
        (~N.isin([1, 2]), "None"),
        (field("value", "in", "a.b") == pa.scalar(5, pa.int32()), 'value.in."a.b" == 5'),
        (field("value", "l") == pa.scalar([1]), "None"),
        (field("value_error") == "x", "None"),
        (N == pa.scalar(None, pa.int64()), "None"),
        (N == 1.5, "None"),
        (field("value", "nothing") == 5, "None"),
    ],
)
def test_filters_of_arrow_as_conditions(filter: Any, expected: str) -> None:
    assert str(duckdb_filters.condition_of(filter, SCHEMA)) == expected


def test_the_functions_of_ctypes_that_others_use_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    others = ctypes.pythonapi.PyCapsule_GetPointer
    monkeypatch.setattr(others, "restype", ctypes.py_object)
    monkeypatch.setattr(others, "argtypes", [ctypes.py_object])
    assert str(duckdb_filters.condition_of(N > 5, SCHEMA)) == "value.n > 5"
    assert others.restype is ctypes.py_object and others.argtypes == [ctypes.py_object]


def test_a_deep_filter_costs_no_stack() -> None:
    filter = N == 1
    for number in range(300):
        filter = (filter & (N > number)) if number % 2 else (filter | (N < -number))
    duckdb_filters.condition_of(filter, SCHEMA)
    names = ("f", "n", "t")
    assert [TABLE.type.field(name).name for name in names] == [*names]
