"""Tables as sources of topics with Avro values: by the columns or a given schema, with and without a registry's id."""

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import kafkalog
from kafkalog.errors import IllegalArgument, InvalidRecord
from kafkalog.lake.derived_avro import avro_schema
from kafkalog.lake.sync import sync_topic
from kafkalog.lake.table_load import load_table
from tests.commands import kafkalog as kafkalog_command
from tests.commands import ok
from tests.lake.loads import SCHEMA, rows
from tests.lake.tables import Lake

TIMES = {"key": "id", "timestamp": "at"}
GIVEN = {
    "type": "record", "name": "shop.Order", "fields": [
        {"name": "id", "type": "long"}, {"name": "title", "type": ["null", "string"], "aliases": ["name"]},
        {"name": "source", "type": "string", "default": "table"},
    ],
}  # fmt: skip


def load(lake: Lake, data: Path, **given: Any) -> int:
    """Load into the topic `back`; the number of records."""
    return sum(one.records for one in load_table(lake.target, data, "back", **{"columns": TIMES, **given}))


def loaded_values(data: Path) -> list[bytes]:
    with kafkalog.open_dirs(data) as dirs:
        return [bytes(record.value or b"") for log in dirs.logs("back") for record in log]


def scanned(data: Path, **given: Any) -> list[Any]:
    """The values that a scan decodes, with those of all partitions in the order of their ids."""
    with kafkalog.open_dirs(data) as dirs:
        scans = [log.scan(**{"value": "avro", **given}) for log in dirs.logs("back")]
        found = [row for scan in scans for row in pa.table(scan).to_pylist()]
    assert not any(one.get("value_error") for one in found)
    return sorted((one["value"] for one in found), key=lambda one: int(one["id"]))


def test_rows_come_back_by_the_schema_of_the_columns(lake: Lake, tmp_path: Path) -> None:
    lake.create(SCHEMA)
    lake.append(rows(0, 9000))  # more rows than become records at once
    assert load(lake, tmp_path / "data", value="avro", partitions=2) == 9000
    schema = avro_schema([*SCHEMA], "back")
    table = rows(0, 9000).to_pylist()
    parsed = fastavro.parse_schema(schema)
    values = loaded_values(tmp_path / "data")
    read: list[Any] = [fastavro.schemaless_reader(io.BytesIO(one), parsed, None) for one in values]
    assert sorted(read, key=lambda one: one["id"]) == table
    assert scanned(tmp_path / "data", schema=schema) == table


def check_id_of_columns(lake: Lake, tmp_path: Path, value: str, file: str, head: bytes) -> None:
    """Load rows by the schema of the columns twice: it is stored once, in `file`, and `head` begins each value."""
    schemas, data = tmp_path / "schemas", tmp_path / "data"
    schemas.mkdir()
    lake.create(SCHEMA)
    lake.append(rows(0, 3))
    load(lake, data, value=value, schemas=schemas)
    lake.append(rows(3, 3))
    load(lake, data, value=value, schemas=schemas)
    assert [one.name for one in schemas.iterdir()] == [file], "the same schema has one id"
    assert {one[: len(head)] for one in loaded_values(data)} == {head}
    assert scanned(data, value=value, schemas=schemas) == rows(0, 6).to_pylist()
    load(lake, tmp_path / "raw", value=value, schemas=schemas, framing="raw")
    found = scanned(tmp_path / "raw", value=value, schemas=schemas, schema=1, framing="raw")
    assert found == rows(0, 6).to_pylist()


def test_the_schema_of_the_columns_is_stored_under_an_id(lake: Lake, tmp_path: Path) -> None:
    check_id_of_columns(lake, tmp_path, "avro", "1.avsc", b"\0\0\0\0\1")


def test_a_column_that_is_added_later_makes_a_schema_of_its_own(lake: Lake, tmp_path: Path) -> None:
    schemas, data = tmp_path / "schemas", tmp_path / "data"
    schemas.mkdir()
    lake.create(SCHEMA)
    lake.append(rows(0, 2))
    load(lake, data, value="avro", schemas=schemas)
    field = pa.field("tags", pa.list_(pa.string()))
    lake.add_column(field)
    lake.append(rows(2, 2).append_column(field, pa.array([["a", None], []], field.type)))
    load(lake, data, value="avro", schemas=schemas)
    assert sorted(one[4] for one in loaded_values(data)) == [1, 1, 2, 2]
    tags = [None, None, ["a", None], []]
    assert [row["tags"] for row in scanned(data, schemas=schemas, schema=2)] == tags
    load(lake, tmp_path / "all", value="avro", schemas=schemas)
    assert [row["tags"] for row in scanned(tmp_path / "all", schemas=schemas)] == tags


def test_an_id_that_no_value_can_name(lake: Lake, tmp_path: Path) -> None:
    lake.create(SCHEMA)
    lake.append(rows(0, 2))
    (tmp_path / "99999999999.avsc").write_text(json.dumps(GIVEN))
    with pytest.raises(IllegalArgument, match="a value cannot name schema 99999999999"):
        load(lake, tmp_path / "data", value="avro", schema=99999999999, schemas=tmp_path)
    load(lake, tmp_path / "data", value="avro", schemas=tmp_path)
    assert (tmp_path / "1.avsc").exists()


def test_a_given_schema_chooses_columns(lake: Lake, tmp_path: Path) -> None:
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "7.avsc").write_text(json.dumps(GIVEN))
    lake.create(SCHEMA)
    lake.append(rows(0, 4))
    wanted = [{"id": n, "title": f"n{n}", "source": "table"} for n in range(4)]
    load(lake, tmp_path / "by_id", value="avro", schema=7, schemas=schemas)
    assert {one[:5] for one in loaded_values(tmp_path / "by_id")} == {b"\0\0\0\0\7"}
    assert scanned(tmp_path / "by_id", schemas=schemas) == wanted
    for framing in ("raw", "length", "single-object"):
        load(lake, tmp_path / framing, value_format="avro", schema=GIVEN, framing=framing)
        assert scanned(tmp_path / framing, schema=GIVEN, framing=framing) == wanted


def test_a_synced_topic_comes_back_with_the_same_values(lake: Lake, tmp_path: Path) -> None:
    values: list[dict[str, Any]] = [{"id": n, "title": None if n % 3 else f"t{n}", "source": "log"} for n in range(50)]
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        for one in values:
            stream = io.BytesIO()
            fastavro.schemaless_writer(stream, fastavro.parse_schema(GIVEN), one)
            log.append([(b"%d" % one["id"], stream.getvalue())])
    fields = {name: f"value.{name}" for name in ("id", "title", "source")}
    sync_topic(tmp_path / "data", "orders", lake.target, value="avro", schema=GIVEN, project=fields)
    load(lake, tmp_path / "other", columns={"key": "id"}, value="avro", schema=GIVEN)
    assert scanned(tmp_path / "other", schema=GIVEN) == values


def test_what_does_not_fit_appends_nothing(lake: Lake, tmp_path: Path) -> None:
    lake.create(SCHEMA)
    lake.append(rows(0, 4))
    lacking = {"type": "record", "name": "R", "fields": [{"name": "nam", "type": "string"}]}
    never_null = {"type": "record", "name": "R", "fields": [{"name": "name", "type": "string"}]}
    for given, match in (
        ({"value": "avro", "schema": lacking}, "did you mean the column name"),
        ({"value": "avro", "framing": "registry"}, "needs the id of a schema"),
        ({"value": "avro", "framing": "none"}, "unknown framing 'none'"),
        ({"value": "json", "schema": GIVEN}, "are for Avro and Protobuf values"),
        ({"value": "thrift"}, "value_format is 'thrift'"),
        ({"value": "avro", "value_format": "json"}, "give one of them"),
        ({"value": "avro", "columns": {"value": "data"}}, "value is not a part"),
    ):
        with pytest.raises(IllegalArgument, match=match):
            load(lake, tmp_path / "data", **given)
    lake.append(pa.table({name: pa.nulls(1, kind) for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True)}))
    with pytest.raises(InvalidRecord, match="field name is null"):
        load(lake, tmp_path / "data", value="avro", schema=never_null)
    assert not [*(tmp_path / "data").glob("back-*")]


def test_the_command_takes_the_words_of_export(lake: Lake, tmp_path: Path) -> None:
    schemas, file = tmp_path / "schemas", tmp_path / "order.avsc"
    schemas.mkdir()
    for path in (file, schemas / "7.avsc"):
        path.write_text(json.dumps(GIVEN))
    lake.create(SCHEMA)
    lake.append(rows(0, 2))
    line = ["table", "load", "-t", "back", "--column", "key=id", lake.target]
    ok(*line, "-d", tmp_path / "file", "-s", "value=avro", "--schema", file)
    assert scanned(tmp_path / "file", schema=file)[1]["title"] == "n1"
    ok(*line, "-d", tmp_path / "id", "--value-format", "avro", "--schema", "7", "--schemas", schemas)
    assert scanned(tmp_path / "id", schemas=schemas)[1]["title"] == "n1"
    ok("table", "sync", "-d", tmp_path / "id", "-t", "back", "-s", "value=avro", "--schema", "7", "--schemas", schemas,
       "--project", "title=value.title", f"delta:{tmp_path / 'again'}")  # fmt: skip
    for wrong in (["-s", "avro"], ["-s", "value=int64"]):
        assert kafkalog_command(*line, "-d", tmp_path / "no", *wrong).returncode == 2
