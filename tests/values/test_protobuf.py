"""Protobuf columns against the protobuf package: random types and messages, merging, framings, and bad bytes."""

from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, duration_pb2, message_factory, struct_pb2, text_format, type_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalog import values
from kafkalog.errors import IllegalArgument, MissingPackage, StorageError
from kafkalog.values.protobuf_schemas import DescriptorFiles
from tests.values.protobuf_cases import message_types, messages, plain, shown

RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=150)


def decode(decoder: values.ValueDecoder, rows: list[bytes | None]) -> tuple[list[Any], list[str | None]]:
    found = decoder.decode(pa.array(rows, pa.binary()))
    found.values.validate(full=True)
    assert found.values.type == decoder.arrow_type
    errors = [None] * len(rows) if found.errors is None else found.errors.to_pylist()
    assert found.failed == len(rows) - errors.count(None)
    return [plain(value, found.values.type) for value in found.values.to_pylist()], errors


def files_of(text: str) -> bytes:
    """A descriptor set, from the text form of its last file."""
    return text_format.Parse(f"file {{ {text} }}", descriptor_pb2.FileDescriptorSet()).SerializeToString()


def made(text: str, message: str | None = None, **options: Any) -> tuple[values.ValueDecoder, Any]:
    """A decoder of a message, and the message's class."""
    content = files_of(text)
    files = DescriptorFiles(descriptor_pb2.FileDescriptorSet.FromString(content).file)
    return (
        values.decoder("protobuf", schema=content, message=message, **options),
        message_factory.GetMessageClass(files.message(message)),
    )


PAIR = """name: "p" package: "p" syntax: "proto3" message_type { name: "Pair"
  field { name: "n" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "s" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "inner" number: 3 type: TYPE_MESSAGE type_name: ".p.Inner" label: LABEL_OPTIONAL }
  field { name: "m" number: 4 type: TYPE_MESSAGE type_name: ".p.Pair.MEntry" label: LABEL_REPEATED }
  field { name: "a" number: 5 type: TYPE_INT32 label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "b" number: 6 type: TYPE_MESSAGE type_name: ".p.Inner" label: LABEL_OPTIONAL oneof_index: 0 }
  oneof_decl { name: "choice" }
  nested_type { name: "MEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".p.Inner" label: LABEL_OPTIONAL } } }
 message_type { name: "Inner"
  field { name: "x" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "l" number: 2 type: TYPE_UINT32 label: LABEL_REPEATED } }"""


@pytest.mark.parametrize("syntax", ["proto3", "proto2"])
@RELAXED
@given(data=st.data())
def test_messages_come_back(syntax: str, data: st.DataObject) -> None:
    descriptor = data.draw(message_types(syntax))
    given_messages = data.draw(st.lists(messages(descriptor), min_size=1, max_size=5))
    decoder = values.decoder("protobuf", schema=descriptor)
    rows = [message.SerializeToString() for message in given_messages]
    found, errors = decode(decoder, [*rows, None])
    assert errors == [None] * len(errors)
    assert found == [*map(shown, given_messages), None]


@RELAXED
@given(data=st.data())
def test_messages_one_after_the_other_are_merged(data: st.DataObject) -> None:
    descriptor = data.draw(message_types(data.draw(st.sampled_from(["proto2", "proto3"]))))
    first, second = data.draw(messages(descriptor)), data.draw(messages(descriptor))
    row = first.SerializeToString() + second.SerializeToString()
    merged = type(first).FromString(row)
    found, errors = decode(values.decoder("protobuf", schema=descriptor), [row, row])
    assert errors == [None, None]
    assert found == [shown(merged)] * 2


@RELAXED
@given(data=st.data())
def test_wanted_fields_are_those_of_the_whole(data: st.DataObject) -> None:
    descriptor = data.draw(message_types())
    rows = [data.draw(messages(descriptor)) for _ in range(3)]
    names = data.draw(st.lists(st.sampled_from([f.name for f in descriptor.fields]), min_size=1, unique=True))
    encoded = [row.SerializeToString() + row.SerializeToString() for row in rows]
    found, errors = decode(values.decoder("protobuf", schema=descriptor, fields=names), encoded)
    assert errors == [None] * 3
    whole = [shown(type(row).FromString(data)) for row, data in zip(rows, encoded, strict=True)]
    assert found == [{name: value for name, value in row.items() if name in names} for row in whole]


@RELAXED
@given(data=st.data())
def test_damaged_messages_are_errors_of_their_rows(data: st.DataObject) -> None:
    descriptor = data.draw(message_types())
    message = data.draw(messages(descriptor))
    good = message.SerializeToString()
    bad = bytearray(good + data.draw(st.binary(max_size=4)))
    for at in data.draw(st.lists(st.integers(0, max(0, len(bad) - 1)), max_size=3)):
        if bad:
            bad[at] = data.draw(st.integers(0, 255))
    cut = good[: data.draw(st.integers(0, len(good)))]
    found, errors = decode(values.decoder("protobuf", schema=descriptor), [good, bytes(bad), cut, good])
    assert (found[0], found[3], errors[0], errors[3]) == (shown(message), shown(message), None, None)
    assert all((value is None) == (error is not None) for value, error in zip(found, errors, strict=True))


def test_the_last_member_of_a_oneof_stays() -> None:
    decoder, kind = made(PAIR, "Pair")
    b, a = kind(b={"x": 3, "l": [1]}).SerializeToString(), kind(a=0).SerializeToString()
    found, _ = decode(decoder, [b + a, a + b, b + a + b, kind().SerializeToString()])
    assert [(row["a"], row["b"]) for row in found] == [
        (0, None), (None, {"x": 3, "l": [1]}), (None, {"x": 3, "l": [1]}), (None, None),
    ]  # fmt: skip


def test_a_oneof_is_cleared_by_a_member_that_is_not_wanted() -> None:
    decoder, kind = made(PAIR, "Pair", fields=["b.x"])
    b, a = kind(b={"x": 3}).SerializeToString(), kind(a=1).SerializeToString()
    assert decode(decoder, [b + a, a + b])[0] == [{"b": None}, {"b": {"x": 3}}]


def test_the_last_entry_of_a_key_stays_and_parts_may_be_missing() -> None:
    decoder, kind = made(PAIR, "Pair")
    one, two = (kind(m={"k": {"x": n, "l": [n]}}).SerializeToString() for n in (1, 2))
    other = kind(m={"j": {}}).SerializeToString()
    empty = bytes([4 << 3 | 2, 0])
    found, errors = decode(decoder, [one + other + two, empty, one * 40 + two])
    assert errors == [None] * 3
    assert [row["m"] for row in found] == [
        {"j": {"x": 0, "l": []}, "k": {"x": 2, "l": [2]}}, {"": {"x": 0, "l": []}}, {"k": {"x": 2, "l": [2]}},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (b"\x08", "n: the message ends within a field, at byte 1"),
        (b"\x08" + b"\xff" * 10, "n: a number has too many bytes"),
        (b"\x88\x80\x80\x80\x80\x00\x05", "a number has too many bytes"),
        (b"\xfa\xff\xff\xff\x0f\x80\x80\x80\x80\x80\x00", "a number has too many bytes"),
        (b"\x0a\x01a", "n: the wire type is not the field's"),
        (b"\x12\x05ab", "s: the message ends within a field"),
        (b"\x12\xff\xff\xff\xff\x07", "s: the message ends within a field"),
        (b"\x12\x01\xff", "s: the text is not UTF-8"),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "s: a number has too many bytes"),
        (b"\x1a\x02\x12\x05", "inner.l: the message ends within a field"),
        (b"\x07", "this is no tag of a field"),
        (b"\x0c", "a group ends that did not begin"),
        (b"\x53" * 101, "groups are nested more than 100 levels deep"),
        (b"\x53\x5c", "a group ends that did not begin"),
        (b"\x53\x08\x01", "the message ends within a field"),
        (b"\x00\x00", "there is no registry's header"),
    ],
)
def test_what_is_wrong_is_said(row: bytes, words: str) -> None:
    decoder, kind = made(PAIR, "Pair")
    found, errors = decode(decoder, [row, kind(n=5).SerializeToString()])
    assert words in str(errors[0])
    assert found[0] is None and found[1]["n"] == 5


def test_a_required_field_that_is_missing() -> None:
    decoder, kind = made(
        """name: "q" message_type { name: "Q"
        field { name: "id" number: 1 type: TYPE_INT32 label: LABEL_REQUIRED }
        field { name: "word" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL default_value: "none" } }"""
    )
    found, errors = decode(decoder, [b"", kind(id=0).SerializeToString()])
    assert found == [None, {"id": 0, "word": "none"}]
    assert errors[0] == "id: a required field is missing"


def test_numbers_of_an_enum_without_a_name_are_text() -> None:
    decoder, _ = made(
        """name: "e" syntax: "proto3" enum_type { name: "E" value { name: "A" number: 0 }
        value { name: "N" number: -1 } } message_type { name: "M"
        field { name: "e" number: 1 type: TYPE_ENUM type_name: ".E" label: LABEL_OPTIONAL } }"""
    )
    rows = [b"", b"\x08\x05", b"\x08" + b"\xff" * 9 + b"\x01"]
    assert [row["e"] for row in decode(decoder, rows)[0]] == ["A", "5", "N"]


def test_a_message_within_itself_is_bytes() -> None:
    message = struct_pb2.Struct()
    message.update({"a": 1.5, "b": {"c": "x"}, "d": [True, None]})
    (found,), errors = decode(values.decoder("protobuf", schema=struct_pb2.Struct), [message.SerializeToString()])
    assert errors == [None]
    assert found["fields"]["a"]["number_value"] == 1.5
    inner = struct_pb2.Struct.FromString(found["fields"]["b"]["struct_value"])
    assert inner["c"] == "x"
    items = [struct_pb2.Value.FromString(item) for item in found["fields"]["d"]["list_value"]["values"]]
    assert [item.WhichOneof("kind") for item in items] == ["bool_value", "null_value"]


def test_durations_and_times_in_nanoseconds() -> None:
    text = """name: "d" syntax: "proto3" dependency: "google/protobuf/duration.proto" message_type { name: "D"
        field { name: "d" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE
        type_name: ".google.protobuf.Duration" } }"""
    for unit, wanted in (("us", -1500), ("ns", -1500_999)):
        decoder, _ = made(text, unit=unit)
        row = b"\x0a" + _sized(duration_pb2.Duration(nanos=-1500_999))
        far = b"\x0a" + _sized(duration_pb2.Duration(seconds=1 << 62))
        found = decoder.decode(pa.array([row, far]))
        assert found.values.field("d").type == pa.duration(unit)
        assert found.values.field("d").cast(pa.int64()).to_pylist() == [wanted, None]
        assert "beyond its column" in found.errors[1].as_py()
        two = b"\x0a" + _sized(duration_pb2.Duration(seconds=2))
        merged = decoder.decode(pa.array([two + row])).values.field("d").cast(pa.int64()).to_pylist()
        assert merged == [wanted + 2 * (10**6 if unit == "us" else 10**9)]


def _sized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return bytes([len(data)]) + data


class Stored:
    """A place with one schema."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def by_id(self, number: int) -> values.Schema:
        if number != 7:
            raise values.UnknownSchema(f"schema {number} is missing")
        return values.Schema(self.content, "PROTOBUF", 7)

    def by_version(self, subject: str, version: int | None = None) -> values.Schema:
        return values.Schema(self.content, "PROTOBUF", 7)


def test_the_registry_header_names_schema_and_message() -> None:
    _, kind = made(PAIR, "Inner")
    body = kind(x=5).SerializeToString()
    head = bytes([0, 0, 0, 0, 7])
    decoder = values.decoder("protobuf", schemas=Stored(files_of(PAIR)))
    with pytest.raises(IllegalArgument, match="first value"):
        _ = decoder.arrow_type
    assert decoder.decode(pa.array([bytes(9), None], pa.binary())).failed == 1
    found, errors = decode(decoder, [head + bytes([2, 2]) + body, head + b"\x00" + body, head + b"\x01", head])
    assert found[0] == {"x": 5, "l": []}
    assert [str(error)[:34] for error in errors[1:]] == [
        "the message is of another type of ", "the indexes of the message's type ",
        "there is no registry's header (a z",
    ]  # fmt: skip
    by_name = values.decoder("protobuf", schema=7, message="Pair", schemas=Stored(files_of(PAIR)))
    assert decode(by_name, [head + b"\x00" + b"\x08\x02"])[0][0]["n"] == 2


def test_fields_that_the_schema_lacks_are_passed_over() -> None:
    """A later writer's fields, of every wire type, around known ones; those of an earlier writer are unset."""
    decoder, kind = made(PAIR, "Inner")
    known = [kind(x=5).SerializeToString(), kind(l=[7]).SerializeToString()]
    later = [b"\x58\x96\x01", b"\x59" + bytes(8), b"\x5a\x02hi", b"\x5d" + bytes(4), b"\x5b\x08\x01\x5c"]
    rows: list[bytes | None] = [one + known[0] + one + known[1] + one for one in later]
    assert decode(decoder, [*rows, *later, b""]) == (
        [{"x": 5, "l": [7]}] * len(rows) + [{"x": 0, "l": []}] * (len(later) + 1), [None] * (2 * len(rows) + 1),
    )  # fmt: skip


def test_an_entry_of_a_map_with_a_field_that_the_schema_lacks_stays() -> None:
    """The package drops it where it is upb, and keeps it where it is written in Python."""
    decoder, _ = made(PAIR, "Pair")
    entry = b"\x0a\x01k\x12\x02\x08\x05\x18\x07"
    found, errors = decode(decoder, [b"\x22" + bytes([len(entry)]) + entry])
    assert errors == [None] and found[0]["m"] == {"k": {"x": 5, "l": []}}


def test_a_size_before_the_message() -> None:
    decoder, _ = made(PAIR, "Inner", framing="delimited")
    found, errors = decode(decoder, [b"\x02\x08\x05", b"\x03\x08\x05", b""])
    assert found == [{"x": 5, "l": []}, None, None]
    assert "length before the message" in str(errors[1])


def test_schemas_of_every_kind(tmp_path: Any) -> None:
    path = tmp_path / "pair.desc"
    path.write_bytes(files_of(PAIR))
    wanted = made(PAIR, "Inner")[0].arrow_type
    assert values.decoder("protobuf", schema=path, message="p.Inner").arrow_type == wanted
    with pytest.raises(StorageError):
        values.decoder("protobuf", schema=tmp_path / "none.desc")
    for schema, message, words in (
        (path, None, "2 messages"), (path, "Innr", "no message 'Innr'"), (7, None, "place with schemas"),
        (None, None, "need a schema"), (3.5, None, "describes no"), (type_pb2.Option, "Pair", "not Pair"),
    ):  # fmt: skip
        with pytest.raises(IllegalArgument, match=words):
            values.decoder("protobuf", schema=schema, message=message)
    with pytest.raises(IllegalArgument, match="no field 'inner.y'"):
        values.decoder("protobuf", schema=path, message="Pair", fields=["inner.y"])


def test_text_needs_protoc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkalog.values.protobuf_schemas.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingPackage, match="no protoc"):
        values.decoder("protobuf", schema='syntax = "proto3"; message A { int32 x = 1; }')


def test_memory_is_limited() -> None:
    decoder, kind = made(PAIR, "Inner", most_bytes=1 << 16)
    small, large = kind(l=[1] * 10).SerializeToString(), kind(l=[1] * 30_000).SerializeToString()
    found, errors = decode(decoder, [small, large, small])
    assert "limit of memory" in str(errors[1])
    assert found[0] == found[2] == {"x": 0, "l": [1] * 10}
