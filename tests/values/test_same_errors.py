"""Whether a value decodes does not depend on the fields that are asked for: the same rows fail, with the same text."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

pytest.importorskip("fastavro", reason="the extra `schemas` is not installed")
pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")
descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2", reason="the extra `schemas` is not installed")

from kafkalog import values  # noqa: E402
from kafkalog.errors import IllegalArgument  # noqa: E402
from kafkalog.values import ValueDecoder  # noqa: E402
from kafkalog.where.lists import is_list  # noqa: E402
from tests.values.avro_cases import encoded, records  # noqa: E402
from tests.values.protobuf_cases import message_types, messages  # noqa: E402
from tests.values.test_only_fields import part_of, paths_of  # noqa: E402


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes like those of a value: with one or two of them changed, cut, longer, or given twice."""
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(["change", "cut", "put", "double", "drop"]))
        byte = draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xC3, 0xFF]) | st.integers(0, 255))
        rest = data[at + 1 :] if how in ("change", "drop") else data[at:]
        data = data[:at] + {"change": bytes([byte]), "put": bytes([byte]), "double": data}.get(how, b"")
        data += b"" if how == "cut" else rest
    return data


def check(data: st.DataObject, decoder: ValueDecoder, whole: list[bytes]) -> None:
    """Compare a decoder with one of some fields, over whole values, damaged ones and random bytes."""
    known = [*paths_of(decoder.arrow_type)]
    assume(known)
    paths = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
    bad = [data.draw(damaged(row)) for row in whole for _ in range(4)]
    rows = pa.array([*whole, *bad, *data.draw(st.lists(st.binary(max_size=12), max_size=4))], pa.binary())
    narrow = decoder.only(paths)
    assume(narrow is not decoder)  # a path into a union of several types
    found, some = decoder.decode(rows), narrow.decode(rows)
    some.values.validate(full=True)
    assert (some.failed, texts(some)) == (found.failed, texts(found))
    expected = [part_of(row, paths) for row in rows_of(found.values)]
    assert repr(rows_of(some.values)) == repr(expected), "NaN is equal here"


def rows_of(column: pa.Array) -> list[Any]:
    """Return the values, dates and times as their integers: damaged ones may lie beyond Python's years 1 to 9999."""
    return column.cast(with_integers(column.type)).to_pylist()


def with_integers(type: pa.DataType) -> pa.DataType:
    """Return a type with integers in the place of dates, times and nulls, at any depth.

    Arrow's cast of nulls to nulls inside a list, or inside a part of a struct, gives as many as there are lists or
    rows, so that the result contradicts itself.
    """
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(with_integers(field.type)) for field in type])
    if pa.types.is_map(type):
        return pa.map_(type.key_type, type.item_field.with_type(with_integers(type.item_type)))
    if is_list(type):
        return pa.list_(type.value_field.with_type(with_integers(type.value_type)))
    if pa.types.is_null(type):
        return pa.int8()
    if pa.types.is_temporal(type):
        return pa.int32() if type.bit_width == 32 else pa.int64()
    return type


def texts(found: Any) -> list[str | None]:
    return [] if found.errors is None else found.errors.to_pylist()


@given(st.data())
def test_the_same_avro_values_fail(data: st.DataObject) -> None:
    case = data.draw(records(depth=2).filter(lambda case: case.schema["fields"]))
    whole = [encoded(case.schema, row) for row in data.draw(st.lists(case.values, min_size=1, max_size=2))]
    check(data, values.decoder("avro", schema=json.dumps(case.schema), most_items=100), whole)


@pytest.mark.parametrize("syntax", ["proto3", "proto2"])
@given(data=st.data())
def test_the_same_protobuf_values_fail(syntax: str, data: st.DataObject) -> None:
    type = data.draw(message_types(syntax, required=True))
    made = data.draw(st.lists(messages(type), min_size=1, max_size=2))
    decoder = values.decoder("protobuf", schema=type, framing="raw")
    check(data, decoder, [one.SerializePartialToString() for one in made])


def fails(decoder: ValueDecoder, paths: list[tuple[str, ...]], rows: list[bytes]) -> list[str | None]:
    """The texts of a decoder of some fields, which are those of all fields."""
    column = pa.array(rows, pa.binary())
    some = texts(decoder.only(paths).decode(column))
    assert some == texts(decoder.decode(column))
    return some


FIELDS: list[tuple[Any, Any, bytes, str | None]] = [  # the writer's type, the reader's, data, what is wrong
    ("boolean", "boolean", b"\2", "field x: there is no boolean 2, before byte 1"),
    ("int", "int", b"\x80\x80\x80\x80\x10", "field x: 2147483648 is beyond an int, before byte 6"),
    ("int", "double", b"\x80\x80\x80\x80\x10", "field x: 2147483648 is beyond an int, before byte 6"),
    ("string", "string", b"\2\xff", "field x: the string is not UTF-8, at byte 3"),
    ("string", "bytes", b"\2\xff", None),
    ("bytes", "string", b"\2\xff", "field x: the string is not UTF-8, at byte 3"),
    ({"type": "map", "values": "null"}, {"type": "map", "values": "null"}, b"\2\2\xff\0",
     "field x: the string is not UTF-8, at byte 4"),
    (["null", "long"], ["null", "long"], b"\4", "field x: there is no branch 2, before byte 2"),
    (["null", "long"], "long", b"\0", "field x is null, and long is wanted"),
    ("bytes", {"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\2\x64",
     "field x: the decimal has more digits than its precision, at byte 2"),
    ("int", {"type": "int", "logicalType": "time-millis"}, b"\1",
     "field x: -1 is beyond the time of a day, before byte 2"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, {"type": "enum", "name": "E", "symbols": ["A"]}, b"\2",
     "field x: there is no symbol 1 in the reader's schema, before byte 2"),
    ({"type": "array", "items": "null"}, {"type": "array", "items": "null"}, b"\x80\x80\x80\2\0",
     "field x: a block of 2097152 items at byte 5, more than the limit for items without bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("writer", "reader", "data", "text"), FIELDS)
def test_a_field_without_a_column_is_resolved_as_with_one(
    writer: Any, reader: Any, data: bytes, text: str | None
) -> None:
    made = [
        {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "x", "type": one}]}
        for one in (writer, reader)
    ]
    decoder = values.decoder("avro", schema=made[1], writer=made[0])
    assert fails(decoder, [("id",)], [b"\2" + data]) == ([] if text is None else [text])
    assert texts(values.decoder("avro", schema=made[1], writer=made[0], fields=["id"]).decode(
        pa.array([b"\2" + data])
    )) == ([] if text is None else [text])  # fmt: skip


def test_a_date_beyond_the_years_of_python_is_compared_too() -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "x", "type": {"type": "int", "logicalType": "date"}}]
    decoder = values.decoder("avro", schema={"type": "record", "name": "R", "fields": fields})
    found = decoder.decode(pa.array([b"\2\xfe\xff\xff\xff\x0f"])).values
    with pytest.raises(OverflowError):
        found.to_pylist()
    assert rows_of(found) == [{"id": 1, "x": 2**31 - 1}]


@pytest.mark.parametrize("items", ["null", {"type": "array", "items": "null"}], ids=str)
def test_lists_of_nulls_beside_damaged_rows_are_compared_too(items: Any) -> None:
    fields = [{"name": "x", "type": {"type": "array", "items": items}}]
    decoder = values.decoder("avro", schema={"type": "record", "name": "R", "fields": fields}, most_items=100)
    three = b"\6\0" if items == "null" else b"\2\6\0\0"
    found = decoder.decode(pa.array([three, three[:-1], three, b"\0\1", three])).values
    found.validate(full=True)
    x = [None] * 3 if items == "null" else [[None] * 3]
    assert found.to_pylist() == rows_of(found) == [{"x": x}, None, {"x": x}, None, {"x": x}]


def test_a_writer_that_lacks_a_field_fails_whatever_is_asked_for(tmp_path: Path) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "x", "type": "int"}]
    (tmp_path / "1.avsc").write_text(json.dumps({"type": "record", "name": "R", "fields": fields[:1]}))
    schema = {"type": "record", "name": "R", "fields": fields}
    decoder = values.decoder("avro", schemas=str(tmp_path), schema=schema)
    (text,) = fails(decoder, [("id",)], [b"\0\0\0\0\1\2"])
    assert text is not None and "field x is not in the writer's schema, and has no default" in text


def test_a_type_that_contains_itself_is_checked_without_a_column() -> None:
    tree = {"type": "record", "name": "Tree", "fields": [
        {"name": "name", "type": "string"}, {"name": "next", "type": ["null", "Tree"]},
    ]}  # fmt: skip
    decoder = values.decoder("avro", schema=tree, fields=["name"])
    found = decoder.decode(pa.array([b"\2a\2\2b\0", b"\2a\2\2\xff\0", b"\2a" + b"\2\2b" * 300 + b"\0"]))
    assert found.values.to_pylist() == [{"name": "a"}, None, None]
    sound, text, deep = texts(found)
    assert (sound, text) == (None, "field next.name: the string is not UTF-8, at byte 5")
    assert deep is not None and "nested more than 200 levels" in deep


def test_fields_of_a_message_that_is_too_deep_for_columns() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="deep.proto", syntax="proto3")
    for n in range(40):
        type = file.message_type.add(name=f"M{n}")
        type.field.add(name="name", number=2, type=9, label=1)
        if n < 39:
            type.field.add(name="next", number=1, type=11, type_name=f".M{n + 1}", label=1)
    schema = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    with pytest.raises(IllegalArgument, match="nested more than 30 levels"):
        values.decoder("protobuf", schema=schema, message="M0")
    decoder = values.decoder("protobuf", schema=schema, message="M0", fields=["name"])
    found = decoder.decode(pa.array([b"\x12\1a\x0a\3\x12\1\xff", b"\x12\1a\x0a\4\x12\1\xff"]))
    assert found.values.to_pylist() == [{"name": "a"}, None], "the others are skipped: what they hold is not checked"
