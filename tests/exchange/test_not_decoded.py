"""A value that does not decode never vanishes without a word: an error, or a null that is counted, in every reading."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import kafkalog
from kafkalog.errors import InvalidRecord
from kafkalog.exchange.export import UndecodableExport, export_records
from tests.commands import kafkalog as command
from tests.commands import ok

SCHEMA = {"properties": {"x": {"type": "integer"}}}
VALUES = [b'{"x":1}', b"{no json", b'{"x":"two"}', None, b'{"x":4}', b""]
BAD = [1, 2, 5]
"""Offsets of the values that do not decode; 3 is null as it is stored."""
QUERY = 'SELECT "offset" FROM events WHERE value.x >= 0 ORDER BY 1'


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    with kafkalog.open(folder / "events-0", "a") as log:
        log.append(VALUES)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    return folder


def flags(data: Path) -> list[object]:
    return ["-d", data, "-t", "events", "-s", "value=json", "--schema", data.parent / "schema.json"]


@pytest.mark.parametrize("format", ["parquet", "arrow", "jsonl"])
@pytest.mark.parametrize("where", [None, "value.x >= 0"])
def test_an_export_counts_what_it_reads_as_null(data: Path, tmp_path: Path, format: str, where: str | None) -> None:
    given: dict[str, Any] = {"value": "json", "schema": SCHEMA, "where": where}
    report = export_records(data, tmp_path / "out", format, on_undecodable="null", **given)
    assert report.records == (len(VALUES) if where is None else 2)
    assert report.not_decoded == len(BAD)
    with pytest.raises(UndecodableExport) as error:
        export_records(data, tmp_path / "strict", format, **given)
    assert error.value.offset == BAD[0] and error.value.report.records == 1


def test_the_command_says_how_many(data: Path, tmp_path: Path) -> None:
    more = ["--on-undecodable", "null", "--where", "value.x >= 0"]
    done = command("export", *flags(data), *more, tmp_path / "out")
    assert done.returncode == 0 and b"do not decode: 3; they are null" in done.stderr
    assert b"do not decode" not in command("export", "-d", data, "-t", "events", tmp_path / "bytes").stderr
    found = [row for path in (tmp_path / "out").rglob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert [row["value"] for row in found] == [{"x": 1}, {"x": 4}]


def test_queries_of_the_command_line_note_them(data: Path) -> None:
    done = command("sql", *flags(data), "-J", QUERY)
    assert done.stdout == b'{"offset":0}\n{"offset":4}\n' and b"what does not decode is null" in done.stderr
    counted = ok("sql", *flags(data), "-J", "SELECT count(*) AS n, count(value_error) AS bad FROM events")
    assert json.loads(counted) == {"n": len(VALUES), "bad": len(BAD)}
    done = command("consume", *flags(data), "--where", "value.x >= 0", "--project", "offset")
    assert len(done.stdout.splitlines()) == 2 and b"3 key or values did not decode" in done.stderr


def readings(data: Path, **options: Any) -> Iterator[tuple[str, list[int]]]:
    """The offsets that each library returns for the same condition, and for no value there."""
    duckdb = pytest.importorskip("duckdb")
    polars = pytest.importorskip("polars")
    import kafkalog.duckdb
    import kafkalog.polars

    given = {"value": "json", "schema": SCHEMA, **options}
    with duckdb.connect() as connection, kafkalog.duckdb.register(connection, str(data), ["events"], **given):
        yield "DuckDB", [row[0] for row in connection.execute(QUERY).fetchall()]
    frame = kafkalog.polars.scan(str(data), "events", **given)
    at_least = polars.col("value").struct.field("x") >= 0
    yield "Polars", frame.filter(at_least).select("offset").collect()["offset"].to_list()
    with kafkalog.open(data / "events-0") as log:
        yield "scan", log.scan(["offset"], where="value.x >= 0", **given).table()["offset"].to_pylist()


def test_libraries_raise_unless_nulls_are_asked_for(data: Path) -> None:
    assert dict(readings(data, on_undecodable="null")) == dict.fromkeys(("DuckDB", "Polars", "scan"), [0, 4])
    with pytest.raises(Exception, match="does not decode.*offset 1"):
        [*readings(data)]
    with kafkalog.open(data / "events-0") as log, pytest.raises(InvalidRecord) as error:
        log.scan(["offset"], where="value.x >= 0", value="json", schema=SCHEMA).table()
    assert error.value.offset == BAD[0]
