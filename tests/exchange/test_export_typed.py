"""An export that decodes: typed columns in every format, which stay the same when it goes on."""

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.errors import FormatError, IllegalArgument, InvalidRecord
from kafkalog.exchange import typed_lines
from kafkalog.exchange.export import UndecodableExport, export_records
from kafkalog.exchange.import_ import import_records
from kafkalog.log.typed_scan import first_values
from kafkalog.values.avro_schema import parse_avro
from kafkalog.values.avro_text import schema_text
from tests import commands
from tests.values.avro_cases import column_value, encoded, records
from tests.values.protobuf_cases import message_types, messages

T = 1_700_000_000_000
ORDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": ["null", "string"], "default": None},
    {"name": "tags", "type": {"type": "map", "values": "int"}},
    {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [
        {"name": "cents", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}]}}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]}  # fmt: skip


def order(n: int) -> dict[str, Any]:
    at = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(hours=n)
    items = [{"cents": Decimal(n) + Decimal("0.25")}] * (n % 3)
    return {"id": n, "customer": f"c{n % 4}" if n % 5 else None, "tags": {"n": n} if n % 2 else {}, "items": items,
            "at": at}  # fmt: skip


def framed(schema: Any, value: Any, number: int = 7) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + encoded(schema, value)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions of Avro values with a registry's header, their schema in a directory, and keys of text."""
    for partition in (0, 1):
        with kafkalog.open(tmp_path / "data" / f"orders-{partition}", "a") as log:
            for start in range(0, 60, 20):
                log.append([(b"k%d" % n, framed(ORDER, order(n)), T + n * 3_600_000) for n in range(start, start + 20)])
            log.append([(b"gone", None)])
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "7.avsc").write_text(json.dumps(ORDER))
    return tmp_path / "data"


def exported(folder: Path, topic: str = "orders") -> list[dict[str, Any]]:
    """The rows of an export in the order of its files, maps as dicts."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.rglob(f"topic={topic}/**/{topic}-*")):
        if path.suffix == ".jsonl":
            found += [json.loads(line) for line in path.read_bytes().splitlines()]
            continue
        table = pa.ipc.open_file(path).read_all() if path.suffix == ".arrow" else pq.ParquetFile(path).read()
        found += table.to_pylist(maps_as_pydicts="strict")
    return found


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_values_are_what_fastavro_wrote(data: Path, tmp_path: Path, format: str) -> None:
    out = commands.ok(
        "export", "-d", data, "-t", "orders", tmp_path / "out", "--format", format, "-s", "key=string", "-s",
        "value=avro", "--schemas", tmp_path / "schemas", "--target-size", "4K",
    )  # fmt: skip
    assert out.startswith(b"exported 122 records into")
    rows = exported(tmp_path / "out")
    expected = [*((f"k{n}", order(n)) for n in range(60)), ("gone", None)]
    assert [(row["key"], row["value"]) for row in rows] == expected * 2
    with kafkalog.open_dirs(data) as dirs:
        scan = dirs.scan("orders", ["key", "value"], key="string", value="avro", schemas=str(tmp_path / "schemas"))
        table = scan.table()
    path = next((tmp_path / "out" / "topic=orders").iterdir())
    schema = pa.ipc.open_file(path).schema if format == "arrow" else pq.read_schema(path)
    assert schema.field("value").type == table.schema.field("value").type


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_avro_and_any_message_comes_back(tmp_path: Path, draw: Any) -> None:
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    if draw.draw(st.booleans()):
        case = draw.draw(records())
        written = draw.draw(st.lists(case.values, min_size=1, max_size=5))
        values, given = [encoded(case.schema, one) for one in written], {"value": "avro"}
        given["schema"] = json.dumps(case.schema)
        expected = [column_value(case.schema, one) for one in written]
        assert schema_text(parse_avro(schema_text(parse_avro(case.schema)))) == schema_text(parse_avro(case.schema))
    else:
        descriptor = draw.draw(message_types())
        written = draw.draw(st.lists(messages(descriptor), min_size=1, max_size=5))
        values, given = [one.SerializeToString() for one in written], {"value": "protobuf", "schema": descriptor}
        expected = None
    with kafkalog.open(folder / "data" / "orders-0", "a") as log:
        log.append([(None, one) for one in values])
        scanned = log.scan(["value"], **given).table()["value"].to_pylist()
    export_records(folder / "data", folder / "out", "arrow", **given)
    path = next((folder / "out" / "topic=orders").iterdir())
    assert pa.ipc.open_file(path).read_all()["value"].to_pylist() == scanned
    assert expected is None or expected == scanned
    export_records(folder / "data", folder / "out", "arrow", resume=True, **given)  # the manifest has such types


def test_json_lines_have_values_in_place_of_text(data: Path, tmp_path: Path) -> None:
    with kafkalog.open(data / "orders-1", "a") as log:
        log.append([kafkalog.Record(b"k\xff", b"no avro", T, {"h": b"x"})])
    given = {"value": "avro", "schemas": str(tmp_path / "schemas"), "on_undecodable": "null"}
    export_records(data, tmp_path / "out", "jsonl", file_bytes=2048, **given)
    rows = exported(tmp_path / "out")
    assert [row["payload"] and row["payload"]["id"] for row in rows] == [*range(60), None, *range(60), None, None]
    assert rows[4]["payload"] == {
        "id": 4, "customer": "c0", "tags": {}, "items": [{"cents": "4.25"}], "at": "2024-01-01 04:00:00+00:00",
    }  # fmt: skip
    assert rows[3]["payload"]["tags"] == {"n": 3} and rows[3]["key"] == "k3" and "value_error" not in rows[3]
    last = dict(rows[-1])
    assert last.pop("value_error").startswith("it does not begin with a schema registry's header")
    plain = commands.ok("consume", "-d", data, "-t", "orders", "-p", 1, "-o", -1, "-J")
    assert last | {"payload_encoding": "base64"} == json.loads(plain) | {"payload": None}


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_what_does_not_decode_is_an_error_or_has_one(tmp_path: Path, format: str) -> None:
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        log.append([(b"k", b"%d" % n) for n in range(5)])
        log.append([(b"k", b"five"), (b"k", b"6")])
    with pytest.raises(InvalidRecord, match="the value does not decode") as error:
        export_records(tmp_path / "data", tmp_path / "out", format, value="json")
    assert error.value.offset == 5 and error.value.position == 61 + 5 * 9
    assert error.value.path == str(tmp_path / "data" / "orders-0" / f"{0:020}.log")
    assert len(exported(tmp_path / "out")) == 5, "the records before"
    with pytest.raises(IllegalArgument, match="an export with on_undecodable raise, not null"):
        export_records(tmp_path / "data", tmp_path / "out", format, value="json", on_undecodable="null", resume=True)
    command = ["export", "-d", tmp_path / "data", tmp_path / "o", "--format", format, "-s", "value=json"]
    done = commands.kafkalog(*command)
    assert done.returncode == 1 and b"orders-0" in done.stderr and b"offset 5" in done.stderr
    commands.ok("export", "-d", tmp_path / "data", tmp_path / "null", "--format", format, "-s", "value=json",
                "--on-undecodable", "null")  # fmt: skip
    rows = exported(tmp_path / "null")
    assert [row["payload" if format == "jsonl" else "value"] for row in rows] == [0, 1, 2, 3, 4, None, 6]
    assert [bool(row.get("value_error")) for row in rows] == [n == 5 for n in range(7)]


def test_the_types_are_those_of_the_first_run(tmp_path: Path) -> None:
    """JSON of other types, and a newer schema: the columns stay, though the first records are gone."""
    def append(topic: str, *found: bytes) -> None:
        with kafkalog.open(tmp_path / "data" / f"{topic}-0", "a") as log:
            log.append([(b"k", value, T) for value in found])

    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "1.avsc").write_text(json.dumps(ORDER))
    wider = {**ORDER, "fields": [*ORDER["fields"], {"name": "more", "type": "int"}]}
    (schemas / "2.avsc").write_text(json.dumps(wider))
    append("plain", b'{"id": 1, "s": "a"}')
    append("orders", framed(ORDER, order(1), 1))
    json_given, avro_given = {"value": "json"}, {"value": "avro", "schemas": str(schemas)}
    for topic, kind in (("plain", json_given), ("orders", avro_given)):
        export_records(tmp_path / "data", tmp_path / topic, topics=[topic], **kind)
    append("plain", b'{"s": "b", "id": 2, "new": 1}', b'{"id": null}')
    append("orders", framed(wider, {**order(2), "more": 5}, 2))
    for topic, kind in (("plain", json_given), ("orders", avro_given)):
        with kafkalog.open(tmp_path / "data" / f"{topic}-0", "a") as log:
            log.roll()
            log.delete_before(1)
        assert export_records(tmp_path / "data", tmp_path / topic, topics=[topic], resume=True, **kind).records > 0
        files = sorted((tmp_path / topic).rglob("*.parquet"))
        assert len({pq.read_schema(one).remove_metadata() for one in files}) == 1 and len(files) == 2
    found = [row["value"] for row in exported(tmp_path / "plain", "plain")]
    assert found == [{"id": 1, "s": "a"}, {"id": 2, "s": "b"}, {"id": None, "s": None}]
    assert [row["value"] for row in exported(tmp_path / "orders")] == [order(1), order(2)]
    with pytest.raises(IllegalArgument, match="an export with value json, not avro"):
        export_records(tmp_path / "data", tmp_path / "plain", resume=True, **avro_given)
    with pytest.raises(IllegalArgument, match="an export with value json, not None"):
        export_records(tmp_path / "data", tmp_path / "plain", resume=True)


def test_keys_that_come_later_get_their_types_then(tmp_path: Path) -> None:
    def run(*rows: tuple[bytes | None, bytes], resume: bool = True) -> None:
        with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
            log.append([*rows])
        export_records(tmp_path / "data", tmp_path / "out", "arrow", resume=resume, key="json", value="json")

    run((None, b'{"a": 1}'), resume=False)
    run((b'{"k": 1}', b'{"a": 2, "b": 1}'))
    run((b'{"k": 2, "l": 0}', b'{"a": 3}'))
    rows = [(row["key"], row["value"]) for row in exported(tmp_path / "out")]
    assert rows == [(None, {"a": 1}), ({"k": 1}, {"a": 2}), ({"k": 2}, {"a": 3})]


def test_types_that_are_missing_are_sought_in_new_records_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that are null take no reading of the whole topic in each run; values keep their types meanwhile."""
    starts: list[tuple[str, int]] = []

    def noted(scans: Any, root: str) -> list[bytes]:
        def each() -> Any:
            for scan in scans:
                starts.append((root, scan.start))
                yield scan

        return first_values(each(), root)

    monkeypatch.setattr("kafkalog.log.typed_scan.first_values", noted)
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    for number, value in enumerate((b'{"a": 1}', b"no JSON", b'{"a": 3}')):
        with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
            log.append([(b'{"k": 1}' if number == 2 else None, value)])
        given: dict[str, Any] = {"key": "json", "value": "json", "on_undecodable": "null"}
        for folder, more in (("plain", {}), ("schema", {"schema": json.dumps(schema)})):
            export_records(tmp_path / "data", tmp_path / folder, "arrow", resume=number > 0, **given, **more)
    assert [start for root, start in starts if root == "key"] == [0, 0, 1, 1, 2, 2]
    assert [start for root, start in starts if root == "value"] == [0]
    for folder in ("plain", "schema"):
        rows = [(row["key"], row["value"]) for row in exported(tmp_path / folder)]
        assert rows == [(None, {"a": 1}), (None, None), ({"k": 1}, {"a": 3})]


@pytest.mark.parametrize("line", [
    '{"types": "orders", "value": {"schema": 7}}', '{"types": "orders", "value": {"cache": "x"}}',
    '{"types": "../up", "value": {}}', '{"types": "orders", "offset": {}}', '{"types": "orders", "key": []}',
    '{"types": "orders", "key": {"schema": {"base64": "?"}}}',
    '{"types": "orders", "value": {"schema": "/etc/hostname"}}',
])  # fmt: skip
def test_types_in_a_manifest_that_are_none(tmp_path: Path, line: str) -> None:
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        log.append([(b"k", b"1")])
    export_records(tmp_path / "data", tmp_path / "out", value="json")
    manifest = tmp_path / "out" / "_kafkalog_export" / "manifest.jsonl"
    first, *_ = manifest.read_text().splitlines()
    manifest.write_text(f"{first}\n{line}\n")
    with pytest.raises(FormatError, match="line 2"):
        export_records(tmp_path / "data", tmp_path / "out", value="json", resume=True)


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_conditions_on_decoded_values(data: Path, tmp_path: Path, format: str) -> None:
    given = {"value": "avro", "schemas": str(tmp_path / "schemas")}
    where = "value.id >= 10 and value.customer == 'c3' and offset < 30"
    export_records(data, tmp_path / "out", format, where=where, **given)
    assert [row["offset"] for row in exported(tmp_path / "out")] == [11, 19, 23, 27] * 2
    if format == "parquet":
        export_records(data, tmp_path / "bytes", format, where=where, columns=["offset", "key"], by_date=True, **given)
        assert exported(tmp_path / "bytes")[0] == {"offset": 11, "key": b"k11"}
    with pytest.raises(IllegalArgument, match=r"value\.id"):
        export_records(data, tmp_path / "wrong", format, where="value.id == 'a'", **given)
    assert not (tmp_path / "wrong").exists()


def test_records_without_fields(tmp_path: Path) -> None:
    """Parquet has no such columns: that is told before anything is made; Arrow and JSON lines have them."""
    schema = json.dumps({"type": "record", "name": "R", "fields": [
        {"name": "id", "type": "int"}, {"name": "none", "type": {"type": "array", "items": {
            "type": "record", "name": "Empty", "fields": []}}}]})  # fmt: skip
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        log.append(b"\x06\x02\x00")
    with pytest.raises(IllegalArgument, match=r"value\.none of orders is a record without fields"):
        export_records(tmp_path / "data", tmp_path / "out", value="avro", schema=schema)
    for format, name in (("arrow", "value"), ("jsonl", "payload")):
        export_records(tmp_path / "data", tmp_path / format, format, value="avro", schema=schema)
        assert exported(tmp_path / format)[0][name] == {"id": 3, "none": [{}]}


def test_a_condition_alone_may_look_into_records_without_fields(tmp_path: Path) -> None:
    schema = json.dumps({"type": "record", "name": "R", "fields": [
        {"name": "id", "type": "int"},
        {"name": "none", "type": {"type": "record", "name": "Empty", "fields": []}}]})  # fmt: skip
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        log.append([b"\x06", b"\x02"])
    given: dict[str, Any] = {"value": "avro", "schema": schema, "where": "value.id > 2"}
    export_records(tmp_path / "data", tmp_path / "out", columns=["offset"], **given)
    assert exported(tmp_path / "out") == [{"offset": 0}]


def test_values_that_name_no_schema_are_read_with_the_given_one(tmp_path: Path) -> None:
    """A later run with a newer schema writes the columns of the first, and nothing into the wrong ones."""
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "long"}]
    for number, own in enumerate((fields, [*fields[::-1], {"name": "c", "type": "long"}])):
        schema = {"type": "record", "name": "R", "fields": own}
        with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
            log.append(encoded(schema, {"a": 1, "b": 2, "c": 3}))
        given = {"value": "avro", "schema": json.dumps(schema)}
        export_records(tmp_path / "data", tmp_path / "out", resume=number > 0, **given)
    assert [row["value"] for row in exported(tmp_path / "out")] == [{"a": 1, "b": 2}] * 2


def test_json_of_another_kind_than_the_first_values_is_never_null_without_a_reason(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        log.append([b'{"a": %d}' % n for n in range(1000)])
        log.append([b'{"a": 2.5}', b'{"a": "x"}', b"[1]", b"5", b'{"a": null}'])
    with pytest.raises(InvalidRecord, match="the value does not decode: a: the number has a fraction") as error:
        export_records(tmp_path / "data", tmp_path / "strict", value="json")
    assert error.value.offset == 1000
    export_records(tmp_path / "data", tmp_path / "out", value="json", on_undecodable="null")
    rows = exported(tmp_path / "out")[1000:]
    assert [row["value"] for row in rows] == [None] * 4 + [{"a": None}]
    assert [row["value_error"] is not None for row in rows] == [True] * 4 + [False]


def test_errors_say_which_topic_and_what_helps(tmp_path: Path) -> None:
    for topic, value in (("orders", b'{"id": 1}'), ("texts", b"no JSON")):
        with kafkalog.open(tmp_path / "data" / f"{topic}-0", "a") as log:
            log.append(value)
    with pytest.raises(IllegalArgument, match="no JSON value") as error:
        export_records(tmp_path / "data", tmp_path / "out", value="json")
    assert error.value.path == str(tmp_path / "data" / "texts-0")
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        log.append(b"no JSON")
    with pytest.raises(InvalidRecord, match="does not decode") as bad:
        export_records(tmp_path / "data", tmp_path / "out", topics=["orders"], value="json")
    assert str(bad.value.hint).startswith("export into another directory with ")


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_what_does_not_decode_leaves_other_partitions_alone(tmp_path: Path, format: str) -> None:
    for number, values in enumerate(([b"1", b"one", b"3"], [b"4", b"5"], [b"6", b"six"])):
        with kafkalog.open(tmp_path / "data" / f"orders-{number}", "a") as log:
            for value in values:
                log.append([(b"k", value)])
    command = ["export", "-d", tmp_path / "data", tmp_path / "out", "--format", format, "-s", "value=json"]
    done = commands.kafkalog(*command)
    assert done.returncode == 1 and done.stdout.startswith(b"exported 4 records")
    text = done.stderr.decode()
    assert "so does one more" in text and "orders-0" in text and "orders-2" in text and "position" in text
    name = "payload" if format == "jsonl" else "value"
    assert [row[name] for row in exported(tmp_path / "out")] == [1, 4, 5, 6]
    for _ in range(2):
        with pytest.raises(UndecodableExport) as error:
            export_records(tmp_path / "data", tmp_path / "out", format, value="json", resume=True)
        report = error.value.report
        assert report.before == 4 and report.records == 0 and [one.offset for one in report.undecodable] == [1, 1]


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
@pytest.mark.parametrize("where", [None, "value.v == 1"])
def test_the_first_of_two_columns_that_do_not_decode_is_the_error(
    tmp_path: Path, format: str, where: str | None
) -> None:
    """The other one is decoded first: keys before values, and what a condition needs before the rest."""
    early, late = ("value", "key") if where is None else ("key", "value")
    for number in (0, 1):
        with kafkalog.open(tmp_path / "data" / f"orders-{number}", "a") as log:
            bad = {early: 5, late: 10} if number == 0 else {}
            log.append([tuple(b"bad" if bad.get(root) == n else b'{"v": 1}' for root in ("key", "value"))
                        for n in range(15)])  # fmt: skip
    options = {"key": "json", "value": "json", "where": where}
    with pytest.raises(UndecodableExport, match=f"the {early} does not decode") as error:
        export_records(tmp_path / "data", tmp_path / "out", format, **options)
    assert [one.offset for one in error.value.report.undecodable] == [5]
    assert error.value.report.records == 5 + 15
    if where is None:
        with kafkalog.open(tmp_path / "data" / "orders-0") as log, pytest.raises(InvalidRecord, match="offset 5"):
            log.scan(["key", "value"], key="json", value="json").table()


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_a_topic_without_json_is_null_with_reasons_and_stops_no_other(tmp_path: Path, format: str) -> None:
    for topic, values in (("orders", [b'{"id": 1}']), ("texts", [b"text", b"null", None, b"more"])):
        with kafkalog.open(tmp_path / "data" / f"{topic}-0", "a") as log:
            log.append([(b"k", value) for value in values])
    given = {"value": "json", "on_undecodable": "null"}
    export_records(tmp_path / "data", tmp_path / "out", format, **given)
    name = "payload" if format == "jsonl" else "value"
    assert exported(tmp_path / "out")[0][name] == {"id": 1}
    rows = exported(tmp_path / "out", "texts")
    assert [row[name] for row in rows] == [None] * 4
    assert ["no JSON" in (row.get("value_error") or "") for row in rows] == [True, False, False, True]
    with kafkalog.open(tmp_path / "data" / "texts-0", "a") as log:
        assert log.scan(["value"], **given).table()["value_error"].null_count == 2
        log.append([b'{"a": 1}', b"no"])
    export_records(tmp_path / "data", tmp_path / "out", format, resume=True, **given)  # the types follow by now
    assert [row[name] for row in exported(tmp_path / "out", "texts")] == [None] * 4 + [{"a": 1}, None]


def test_types_of_an_export_that_begins_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory has no export when it is looked at, and has one when it is opened."""
    def append(value: bytes) -> None:
        with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
            log.append(value)

    append(b'{"a": 1}')
    export_records(tmp_path / "data", tmp_path / "out", "arrow", value="json")
    append(b'{"a": 2, "b": 2}')
    monkeypatch.setattr("kafkalog.exchange.export.is_export", lambda path: False)
    export_records(tmp_path / "data", tmp_path / "out", "arrow", value="json")
    assert [row["value"] for row in exported(tmp_path / "out")] == [{"a": 1}, {"a": 2}]


def test_json_lines_of_large_values_are_made_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        for _ in range(3):
            log.append([json.dumps("x" * 1000).encode()] * 1000)
    at_once: list[int] = []

    def noted(batch: pa.RecordBatch) -> list[dict[str, Any]]:
        at_once.append(batch.num_rows)
        return rows_of(batch)

    rows_of = typed_lines._rows
    monkeypatch.setattr(typed_lines, "_rows", noted)
    assert export_records(tmp_path / "data", tmp_path / "out", "jsonl", value="json").records == sum(at_once) == 3000
    assert max(at_once) < 1500


def test_wrong_decoders_are_told_before_anything_is_made(data: Path, tmp_path: Path) -> None:
    for wrong, message in [
        ({"value": "avrro"}, "unknown decoder"), ({"schemas": "x"}, "nothing is decoded"),
        ({"value": "avro", "schemas": str(tmp_path / "none")}, "none"),
        ({"value": "json", "on_undecodable": "skip"}, "on_undecodable is 'skip'"),
        ({"value": kafkalog.values.decoder("string")}, "give a decoder's name"),
    ]:
        with pytest.raises((IllegalArgument, kafkalog.KafkalogError), match=message):
            export_records(data, tmp_path / "out", **wrong)
        assert not (tmp_path / "out").exists()
    with pytest.raises(TypeError, match="valeu"):
        export_records(data, tmp_path / "out", valeu="json")
    for flags in (["--format", "kafka-dir", "-s", "value=json"], ["--schemas", "x"], ["--on-undecodable", "null"]):
        assert commands.kafkalog("export", "-d", data, tmp_path / "out", *flags).returncode == 2


def test_typed_columns_are_not_imported(data: Path, tmp_path: Path) -> None:
    """Bytes that were decoded are gone: an import tells it, and takes nothing for them."""
    given = {"value": "avro", "schemas": str(tmp_path / "schemas")}
    for format in ("parquet", "jsonl"):
        export_records(data, tmp_path / format, format, **given)
        with pytest.raises(kafkalog.KafkalogError, match="value|payload"):
            import_records(tmp_path / format, tmp_path / "copy")
    with kafkalog.open(tmp_path / "texts" / "t-0", "a") as log:
        log.append([b"text", b"\xff"])
    for format in ("parquet", "arrow", "jsonl"):
        given = {"value": "string", "on_undecodable": "null"}
        export_records(tmp_path / "texts", tmp_path / f"text-{format}", format, **given)
        with pytest.raises(kafkalog.KafkalogError, match="was exported decoded"):
            import_records(tmp_path / f"text-{format}", tmp_path / "copy")


def test_committed_offsets_of_groups(tmp_path: Path) -> None:
    key = bytes.fromhex("0001 0003 617070 0006 6f7264657273 00000000")
    value = bytes.fromhex("0003 0000000000000002 ffffffff 0000 0000000000000000")
    with kafkalog.open(tmp_path / "data" / "__consumer_offsets-0", "a") as log:
        log.append([(key, value)])
    for columns in (None, ["value"]):
        out = tmp_path / str(columns)
        export_records(tmp_path / "data", out, topics=["__consumer_offsets"], value="group", columns=columns)
        row = exported(out, "__consumer_offsets")[0]
        assert row["value"]["OffsetCommitValue"]["offset"] == 2 and row.get("key", key) == key
