"""Values and columns that once broke a decoder: repeated keys over empty lists, long names, chunks, a race."""

import json
import threading
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest

from kafkalog import values
from kafkalog._core.values.builder import Builder
from kafkalog.errors import IllegalArgument
from kafkalog.values.avro import AvroDecoder
from kafkalog.values.schemas.source import Schema, UnknownSchema

LISTS = {
    "type": "object",
    "additionalProperties": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
}


@pytest.mark.parametrize(
    ("text", "found"),
    [(b'{"a":[],"a":[]}', [("a", [])]), (b'{"a":[[1],[]],"b":[],"a":[[2]]}', [("b", []), ("a", [[2]])])],
)
def test_repeated_keys_over_lists_that_have_no_items(text: bytes, found: list[Any]) -> None:
    decoder = values.decoder("json", schema=LISTS)
    assert decoder.decode(pa.array([text])).values.to_pylist() == [found]


def test_repeated_keys_of_protobuf_over_messages_without_lists() -> None:
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="a.proto", syntax="proto3", package="p")
    kinds = descriptor_pb2.FieldDescriptorProto
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="n", number=1, type=kinds.TYPE_INT32, label=3)
    outer = file.message_type.add(name="Outer")
    outer.field.add(name="s", number=1, type=kinds.TYPE_MESSAGE, type_name=".p.Inner", label=3)
    message = file.message_type.add(name="M")
    message.field.add(name="m", number=1, type=kinds.TYPE_MESSAGE, type_name=".p.M.Entry", label=3)
    entry = message.nested_type.add(name="Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=kinds.TYPE_MESSAGE, type_name=".p.Outer", label=1)
    schema = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    decoder = values.decoder("protobuf", schema=schema, message="M", framing="raw")
    row = bytes.fromhex("0a050a01611200")
    assert decoder.decode(pa.array([row + row])).values.to_pylist() == [{"m": [("a", {"s": []})]}]


@pytest.mark.parametrize("name", ["é" * 300, "x" + "é" * 300, "日本" * 100])
def test_long_names_in_errors_stay_text(name: str) -> None:
    decoder = AvroDecoder({"type": "record", "name": "R", "fields": [{"name": name, "type": "long"}]})
    found = decoder.decode(pa.array([b""]))
    found.errors.validate(full=True)
    assert "it ends inside a value" in found.errors[0].as_py()


@pytest.mark.parametrize("name", ["int32", "string", "bytes"])
@pytest.mark.parametrize("chunks", [[], [[]], [[b"\0\0\0\1"], [], [b"\0\0\0\2", None]]])
def test_every_chunk_is_decoded(name: str, chunks: list[list[bytes | None]]) -> None:
    column = pa.chunked_array(chunks, pa.binary())
    decoder = values.decoder(name)
    whole = decoder.decode(pa.array(chain.from_iterable(chunks), pa.binary()))
    assert decoder.decode(column).values.to_pylist() == whole.values.to_pylist()


def test_every_chunk_of_avro_and_json() -> None:
    assert AvroDecoder("long").decode(pa.chunked_array([[b"\2"], [b"\4", b"\6"]])).values.to_pylist() == [1, 2, 3]
    found = values.decoder("json", fields={"a": "int64"}).decode(pa.chunked_array([[b'{"a":1}'], [b'{"a":2}']]))
    assert found.values.to_pylist() == [{"a": 1}, {"a": 2}]


def test_a_stream_of_several_arrays_is_refused_or_joined() -> None:
    class Stream:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pa.chunked_array([[b"\2"], [b"\4"]]).__arrow_c_stream__(requested_schema)

    with pytest.raises(IllegalArgument, match="more than one array"):
        AvroDecoder("long").decode(Stream())


class Late:
    """A source of schemas in which another decode learns the schema at the worst moment."""

    def __init__(self) -> None:
        self.asked = 0

    def by_id(self, number: int) -> Schema:
        self.asked += 1
        fields = [{"name": f"f{n}", "type": "long"} for n in range(8)]
        return Schema(json.dumps({"type": "record", "name": "R", "fields": fields}).encode(), "AVRO", number)

    def by_version(self, subject: str, version: int | None = None) -> Schema:
        raise AssertionError("no call names a subject")


def test_a_decoder_that_learns_its_columns_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs and columns that a decode uses are of one moment."""
    decoder = AvroDecoder(schemas=Late())
    row = b"\0\0\0\0\1" + bytes(range(0, 16, 2))
    made = Builder
    learnt = []

    def building(*arguments: Any) -> Builder:
        if not learnt:  # the first builder: between the look at the columns and that at the programs
            learnt.append(1)
            thread = threading.Thread(target=decoder.decode, args=(pa.array([row]),))
            thread.start()
            thread.join()
        return made(*arguments)

    monkeypatch.setattr("kafkalog.values.avro.Builder", building)
    assert decoder.decode(pa.array([row])).values.to_pylist() == [{f"f{n}": n for n in range(8)}]


class OneSchema(Late):
    """A source with the schema of one id."""

    def by_id(self, number: int) -> Schema:
        if number != 7:
            raise UnknownSchema(f"schema {number} is missing")
        return super().by_id(number)


def test_a_schema_behind_more_unknown_ids_than_are_remembered() -> None:
    """Texts of ids are forgotten above a thousand; what was answered is not looked up again in the same column."""
    source = OneSchema()
    rows = [b"\0" + number.to_bytes(4, "big") for number in range(100, 2600)]
    found = AvroDecoder(schemas=source).decode(pa.array([*rows, b"\0\0\0\0\7" + bytes(range(0, 16, 2))]))
    assert found.failed == len(rows)
    assert found.values[-1].as_py() == {f"f{n}": n for n in range(8)}
