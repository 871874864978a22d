"""Values with ids of no schema: errors of their rows, which neither stop a decoder nor outlive the lack of a schema."""

import base64
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, text_format

from kafkalog import values
from kafkalog.errors import IllegalArgument
from kafkalog.values import avro_writers
from kafkalog.values.schemas import registry
from kafkalog.values.schemas.registry import MOST_MISSING, SchemaRegistry
from kafkalog.values.schemas.source import LOOK_AGAIN_MS, Reference
from tests.mock_time import MockClock


class Source:
    """Schemas in memory, with the ids that were asked for."""

    def __init__(self, **options: Any) -> None:
        self.schemas: dict[int, values.Schema] = {}
        self.asked: list[int] = []
        self.make: Callable[[int], values.Schema] | None = None

    def by_id(self, number: int) -> values.Schema:
        self.asked.append(number)
        if self.make is not None:
            return self.make(number)
        if number not in self.schemas:
            raise values.UnknownSchema(f"schema {number} is missing")
        return self.schemas[number]

    def by_version(self, subject: str, version: int | None = None) -> values.Schema:
        raise values.UnknownSchema(f"version {version} of {subject} is missing")


def framed(*numbers: int) -> pa.Array:
    return pa.array([b"\0" + struct.pack(">I", number) + b"\2a" for number in numbers])


@pytest.fixture
def source() -> Source:
    made = Source()
    made.schemas[1] = values.Schema(b'"string"', id=1)
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MockClock:
    made = MockClock()
    for module in (avro_writers, registry):
        monkeypatch.setattr(module, "SYSTEM_CLOCK", made)
    return made


def test_any_number_of_unknown_ids_leaves_the_decoder_usable(source: Source) -> None:
    decoder = values.decoder("avro", schemas=source)
    for first in (100_000, 110_000):
        found = decoder.decode(framed(1, *range(first, first + 6_000), 1))
        assert found.failed == 6_000 and found.values[0].as_py() == found.values[-1].as_py() == "a"
        assert found.errors is not None and f"schema {first} is missing" in found.errors[1].as_py()
    assert source.asked.count(1) == 1, "programs are not forgotten"
    assert decoder.decode(framed(1)).failed == 0


def test_more_schemas_than_a_topic_has_are_an_error(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_writers, "MOST_WRITERS", 20)
    source.make = lambda number: values.Schema(b'"string"', id=number)
    decoder = values.decoder("avro", schemas=source, schema="string")
    assert decoder.decode(framed(*range(20))).failed == 0
    with pytest.raises(IllegalArgument, match="more than 20 schemas"):
        decoder.decode(framed(20))
    assert decoder.decode(framed(*range(20))).failed == 0


@pytest.mark.parametrize("schema", [None, "string"])
def test_an_unknown_id_is_looked_up_again_later(source: Source, clock: MockClock, schema: str | None) -> None:
    decoder = values.decoder("avro", schemas=source, schema=schema)
    assert decoder.decode(framed(7, 7, 8)).failed == 3
    source.schemas[7] = source.schemas[1]
    clock.advance(LOOK_AGAIN_MS - 1)
    assert decoder.decode(framed(7)).failed == 1 and source.asked == [7, 8]
    clock.advance(1)
    assert decoder.decode(framed(7, 8)).values.to_pylist() == ["a", None]
    assert source.asked == [7, 8, 7, 8]


def test_a_schema_that_refers_to_a_missing_one_is_an_error_of_its_rows(source: Source) -> None:
    source.schemas[2] = values.Schema(b'"x.Y"', id=2, references=(Reference("x.Y", "gone", 1),))
    for schema in ("string", None):
        found = values.decoder("avro", schemas=source, schema=schema).decode(framed(2, 1))
        assert found.values.to_pylist() == [None, "a"] and found.errors is not None
        assert found.errors[0].as_py() == "schema 2: version 1 of gone is missing"


class Fetches(SchemaRegistry):
    """A registry whose server has the paths of `answers`."""

    def __init__(self) -> None:
        super().__init__("http://registry:8081")
        self.answers: dict[str, bytes] = {}
        self.asked: list[str] = []

    def _get(self, path: str, words: str) -> bytes:
        self.asked.append(path)
        if path not in self.answers:
            raise values.UnknownSchema(f"{words} is missing")
        return self.answers[path]


def test_a_registry_is_asked_for_every_id_whatever_else_is_missing(clock: MockClock) -> None:
    source = Fetches()
    for number in range(MOST_MISSING + 10):
        for _ in range(2):
            with pytest.raises(values.UnknownSchema):
                source.by_id(number)
    assert len(source.asked) == MOST_MISSING + 10, "each once"
    source.answers["/schemas/ids/50000"] = b'{"schema": "\\"long\\""}'
    assert source.by_id(50000).content == b'"long"'
    with pytest.raises(values.UnknownSchema):
        source.by_id(0)
    assert source.asked[-1] == "/schemas/ids/0", "the oldest was forgotten"
    source.answers["/schemas/ids/900"] = source.answers["/schemas/ids/50000"]
    with pytest.raises(values.UnknownSchema):
        source.by_id(900)
    clock.advance(LOOK_AGAIN_MS)
    assert source.by_id(900).content == b'"long"'


FILE = """name: "p" message_type { name: "M" field { name: "n" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL } }
"""


def protobuf_source() -> Source:
    file = text_format.Parse(FILE, descriptor_pb2.FileDescriptorProto())
    made = Source()
    made.schemas[1] = values.Schema(base64.b64encode(file.SerializeToString()), "PROTOBUF", 1)
    made.schemas[2] = values.Schema(b"no schema {", "PROTOBUF", 2, (Reference("x", "gone", 1),))
    return made


GOOD, NOWHERE, BROKEN = b"\0\0\0\0\1\0\x08\5", b"\0\0\0\0\1\2\x0e\x08\5", b"\0\0\0\0\2\2\x0e\x08\5"


def test_protobuf_columns_come_from_the_first_value_that_names_a_message() -> None:
    source = protobuf_source()
    found = values.decoder("protobuf", schemas=source).decode(pa.array([NOWHERE, BROKEN, BROKEN, GOOD]))
    assert found.values.to_pylist() == [None, None, None, {"n": 5}] and found.failed == 3
    assert source.asked.count(2) == 1
    nothing = values.decoder("protobuf", schemas=source).decode(pa.array([NOWHERE, BROKEN, None]))
    assert nothing.failed == 2 and nothing.values.null_count == 3


def test_a_wanted_message_that_no_schema_has_is_an_error() -> None:
    with pytest.raises(IllegalArgument, match="no message 'N'"):
        values.decoder("protobuf", schemas=protobuf_source(), message="N").decode(pa.array([GOOD]))
    with pytest.raises(IllegalArgument, match="no field 'm'"):
        values.decoder("protobuf", schemas=protobuf_source(), fields=["m"]).decode(pa.array([GOOD]))
