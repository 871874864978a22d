"""Decoders of some fields: the same values as those of all fields, by the same schemas; the rest is checked alone."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

fastavro = pytest.importorskip("fastavro", reason="the extra `schemas` is not installed")
pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")

import kafkalog  # noqa: E402
from kafkalog import values  # noqa: E402
from kafkalog.errors import IllegalArgument, InvalidRecord  # noqa: E402
from kafkalog.values import ValueDecoder  # noqa: E402
from kafkalog.where.lists import is_list  # noqa: E402
from tests.values.avro_cases import encoded, records  # noqa: E402

ORDER: dict[str, Any] = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": "string"},
        {"name": "customer", "type": ["null", {"type": "record", "name": "Customer", "fields": [
            {"name": "name", "type": "string"}, {"name": "age", "type": "int"},
        ]}]},
        {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [
            {"name": "sku", "type": "string"}, {"name": "buyer", "type": ["null", "Customer"]},
        ]}}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
    ],
}  # fmt: skip
ADA = {"name": "Ada", "age": 36}
ROW = {"id": 7, "note": "n", "customer": ADA, "items": [{"sku": "A1", "buyer": ADA}], "tags": {"k": "v"}}


def paths_of(type: pa.DataType, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every path through the records of a type, alone and in lists."""
    while is_list(type):
        type = type.value_type
    for number in range(type.num_fields if pa.types.is_struct(type) else 0):
        path = (*above, type.field(number).name)
        yield path
        yield from paths_of(type.field(number).type, path)


def part_of(value: Any, paths: list[tuple[str, ...]]) -> Any:
    """A decoded value with some of its fields."""
    if value is None or () in paths:
        return value
    if isinstance(value, list):
        return [part_of(one, paths) for one in value]
    heads = {path[0] for path in paths}
    return {
        name: part_of(one, [path[1:] for path in paths if path[0] == name])
        for name, one in value.items() if name in heads
    }  # fmt: skip


def check(decoder: ValueDecoder, rows: list[bytes], paths: list[tuple[str, ...]]) -> None:
    whole, some = decoder.decode(pa.array(rows, pa.binary())), decoder.only(paths).decode(pa.array(rows, pa.binary()))
    some.values.validate(full=True)
    assert some.failed == whole.failed == 0
    assert some.values.to_pylist() == [part_of(row, paths) for row in whole.values.to_pylist()]


@given(st.data())
def test_any_fields_of_any_avro_record(data: st.DataObject) -> None:
    case = data.draw(records(unions=False).filter(lambda case: case.schema["fields"]))
    decoder = values.decoder("avro", schema=json.dumps(case.schema))
    known = [*paths_of(decoder.arrow_type)]
    paths = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
    rows = [encoded(case.schema, row) for row in data.draw(st.lists(case.values, max_size=4))]
    check(decoder, rows, paths)
    for row in rows:
        for cut in range(len(row)):
            found = decoder.only(paths).decode(pa.array([row[:cut], row + b"\0"], pa.binary()))
            assert found.failed == 2, "what ends early or goes on is an error, wherever it does"


@pytest.mark.parametrize(
    "paths",
    [
        [("id",)], [("customer", "age")], [("items", "buyer", "name"), ("customer", "age")],
        [("customer",), ("items", "buyer", "age")], [("tags",), ("note",)], [("items",)],
    ],
    ids=str,
)  # fmt: skip
def test_a_type_that_stands_at_several_places(paths: list[tuple[str, ...]]) -> None:
    decoder = values.decoder("avro", schema=ORDER)
    rows = [fastavro_row(row) for row in (ROW, {**ROW, "customer": None})]
    check(decoder, rows, paths)
    chosen = decoder.only(paths)
    again = values.decoder("avro", **{**chosen.settled, "writer": ORDER})
    assert again.arrow_type == chosen.arrow_type, "its settled schema has the same columns"
    assert again.decode(pa.array(rows)).values == chosen.decode(pa.array(rows)).values


def fastavro_row(row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(ORDER))), row)
    return out.getvalue()


def test_fields_of_an_avro_decoder() -> None:
    decoder = values.decoder("avro", schema=ORDER, fields=["customer.age", "items.sku"])
    assert decoder.decode(pa.array([fastavro_row(ROW)])).values.to_pylist() == [
        {"customer": {"age": 36}, "items": [{"sku": "A1"}]}
    ]
    for wrong in ("agee", "customer.agee", "tags.k", "id.x"):
        with pytest.raises(IllegalArgument, match=f"no field '{wrong}'"):
            values.decoder("avro", schema=ORDER, fields=[wrong])


def test_writers_of_other_versions(tmp_path: Path) -> None:
    older = {**ORDER, "fields": ORDER["fields"][1:2] + ORDER["fields"][:1]}
    (tmp_path / "1.avsc").write_text(json.dumps(older))
    newer = {**ORDER, "fields": [*ORDER["fields"][:2], {"name": "new", "type": "int", "default": 5}]}
    decoder = values.decoder("avro", schemas=str(tmp_path), schema=newer)
    row = b"\0\0\0\0\1" + encoded(older, {"note": "n", "id": 3})
    for paths, expected in [([("id",)], {"id": 3}), ([("new",)], {"new": 5})]:
        assert decoder.only(paths).decode(pa.array([row])).values.to_pylist() == [expected]


def test_a_writers_type_twice_for_an_optional_field_without_a_column() -> None:
    def pair(name: str, first: Any) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [{"name": "p", "type": first}, {"name": "q", "type": "Id"}]}

    id = {"type": "fixed", "name": "Id", "size": 2}
    writer, reader = ({"type": "record", "name": "Row", "fields": [
        {"name": "x", "type": x}, {"name": "y", "type": y}, {"name": "z", "type": "int"},
    ]} for x, y in [(pair("One", id), pair("Two", "Id")), (pair("One", id), "One")])  # fmt: skip
    reader["fields"][0]["type"]["fields"][1]["type"] = ["null", "Id"]
    both = {"p": b"ab", "q": b"cd"}
    decoder = values.decoder("avro", schema=reader, writer=writer)
    check(decoder, [encoded(writer, {"x": both, "y": both, "z": 7})], [("z",)])


def test_the_members_of_a_oneof_and_nested_messages() -> None:
    struct_pb2 = pytest.importorskip("google.protobuf.struct_pb2")
    type_pb2 = pytest.importorskip("google.protobuf.type_pb2")
    value = struct_pb2.Value
    rows = [value(number_value=1), value(string_value="x"), value(bool_value=True)]
    data = [one.SerializeToString() for one in rows]
    data.append(data[0] + data[1])  # the last member counts
    decoder = values.decoder("protobuf", schema=value, fields=["number_value", "string_value", "bool_value"])
    for paths in ([("number_value",)], [("string_value",), ("bool_value",)]):
        check(decoder, data, paths)
    field = type_pb2.Field(name="a", number=7, options=[type_pb2.Option(name="packed"), type_pb2.Option(name="b")])
    nested = values.decoder("protobuf", schema=type_pb2.Field)
    check(nested, [field.SerializeToString()], [("options", "name"), ("number",)])
    assert nested.only([("name",)]).decode(pa.array([field.SerializeToString()[:-1]])).failed == 1


@pytest.fixture
def log(tmp_path: Path) -> Iterator[kafkalog.Log]:
    broken = fastavro_row(ROW).replace(b"\x02n", b"\x02\xff")  # the note is not UTF-8
    with kafkalog.open(tmp_path / "orders-0", "a") as log:
        log.append([fastavro_row(ROW), broken])
        yield log


def test_a_scan_decodes_what_it_is_asked_for(log: kafkalog.Log) -> None:
    avro: dict[str, Any] = {"value": "avro", "schema": ORDER}
    asked = log.scan(project=["offset", "value.id"], where="value.customer.age == 36", stop=1, **avro)
    assert asked.table().to_pylist() == [{"offset": 0, "value.id": 7}]
    assert [one.offset for one in log.records(where="value.items[*].sku == 'A1'", **avro, stop=1)] == [0]
    assert log.scan(["offset"], where="value.tags.k == 'v'", stop=1, **avro).table().num_rows == 1


def test_a_scan_of_any_fields_fails_for_the_same_value(log: kafkalog.Log) -> None:
    scans: list[dict[str, Any]] = [
        {"columns": ["value"]}, {"project": ["value.note"]}, {"project": ["value.id"]},
        {"columns": ["offset"], "where": "value is null"}, {"columns": ["offset"], "where": "value.customer.age == 36"},
    ]
    for scan in scans:
        with pytest.raises(InvalidRecord, match="note: the string is not UTF-8") as error:
            log.scan(**scan, value="avro", schema=ORDER).table()
        assert error.value.offset == 1


def test_an_unknown_field_is_named_beside_all_that_there_are(log: kafkalog.Log) -> None:
    with pytest.raises(IllegalArgument, match="value has no field 'nota'.*did you mean note"):
        log.scan(project=["value.id"], where="value.nota == 'x'", value="avro", schema=ORDER)


def test_partitions_share_decoders_of_all_fields(log: kafkalog.Log) -> None:
    scan = log.scan(project=["value.id"], value="avro", schema=ORDER)
    assert scan.selection.decoders["value"].arrow_type.num_fields == len(ORDER["fields"])
    assert log.scan(project=["value.note"], value=scan.selection.decoders["value"], stop=1).table().num_rows == 1
