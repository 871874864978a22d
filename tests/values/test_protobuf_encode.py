"""Columns become the Protobuf messages that the protobuf package parses, and the decoder of columns."""

from datetime import date, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from google.protobuf import message_factory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalog import values
from kafkalog.errors import IllegalArgument
from kafkalog.values.protobuf_encode import encoder
from kafkalog.values.protobuf_schemas import descriptor_files
from tests.values.protobuf_cases import message_types, messages, plain, shown
from tests.values.test_protobuf import files_of

RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=150)


def encode(descriptor: Any, rows: pa.Array) -> list[bytes]:
    made = encoder(descriptor, rows.type)(rows)
    made.validate(full=True)
    return made.to_pylist()


def parsed(descriptor: Any, rows: pa.Array) -> list[Any]:
    """The messages that the protobuf package parses."""
    of = message_factory.GetMessageClass(descriptor)
    return [of.FromString(one) for one in encode(descriptor, rows)]


@pytest.mark.parametrize("syntax", ["proto3", "proto2"])
@RELAXED
@given(data=st.data(), skipped=st.integers(0, 2))
def test_decoded_messages_are_encoded_again(syntax: str, data: st.DataObject, skipped: int) -> None:
    """All kinds of scalars, packed or not, messages, groups, maps, oneofs, presence, times and wrappers."""
    descriptor = data.draw(message_types(syntax))
    given_messages = data.draw(st.lists(messages(descriptor), min_size=1, max_size=5))
    decoder = values.decoder("protobuf", schema=descriptor)
    rows = pa.array([one.SerializeToString() for one in given_messages], pa.binary())
    columns = decoder.decode(rows).values.slice(skipped)
    found = parsed(descriptor, columns)
    # a field with a default is decoded as set; what both show is the same then
    assert [*map(shown, found)] == [*map(shown, given_messages)][skipped:]
    if syntax == "proto3":
        assert found == given_messages[skipped:]
        if not any(field.message_type for field in descriptor.fields):  # the order of a map's entries is free
            assert encode(descriptor, columns) == [one.SerializeToString() for one in given_messages[skipped:]]
    again = decoder.decode(pa.array(encode(descriptor, columns), pa.binary()))
    assert again.failed == 0
    kind = columns.type
    assert [plain(one, kind) for one in again.values.to_pylist()] == [plain(one, kind) for one in columns.to_pylist()]


KINDS = """name: "k" package: "k" syntax: "proto3"
 dependency: ["google/protobuf/timestamp.proto", "google/protobuf/duration.proto", "google/protobuf/wrappers.proto"]
 enum_type { name: "E" value { name: "ZERO" number: 0 } value { name: "ONE" number: 1 } }
 message_type { name: "Inner" field { name: "x" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL } }
 message_type { name: "K"
  field { name: "i" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL json_name: "the number" }
  field { name: "u" number: 2 type: TYPE_UINT64 label: LABEL_OPTIONAL }
  field { name: "s" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "f" number: 4 type: TYPE_FLOAT label: LABEL_OPTIONAL }
  field { name: "d" number: 5 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  field { name: "e" number: 6 type: TYPE_ENUM type_name: ".k.E" label: LABEL_OPTIONAL }
  field { name: "at" number: 7 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" label: LABEL_OPTIONAL }
  field { name: "took" number: 8 type: TYPE_MESSAGE type_name: ".google.protobuf.Duration" label: LABEL_OPTIONAL }
  field { name: "l" number: 9 type: TYPE_INT32 label: LABEL_REPEATED }
  field { name: "a" number: 10 type: TYPE_INT32 label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "b" number: 11 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "inner" number: 12 type: TYPE_MESSAGE type_name: ".k.Inner" label: LABEL_OPTIONAL }
  field { name: "w" number: 13 type: TYPE_MESSAGE type_name: ".google.protobuf.Int32Value" label: LABEL_OPTIONAL }
  field { name: "m" number: 14 type: TYPE_MESSAGE type_name: ".k.K.MEntry" label: LABEL_REPEATED }
  field { name: "data" number: 15 type: TYPE_BYTES label: LABEL_OPTIONAL }
  field { name: "o" number: 16 type: TYPE_INT32 label: LABEL_OPTIONAL oneof_index: 1 proto3_optional: true }
  oneof_decl { name: "choice" } oneof_decl { name: "_o" }
  nested_type { name: "MEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL } } }"""


def kinds() -> Any:
    return descriptor_files(files_of(KINDS)).message("K")


def column(name: str, kind: pa.DataType, *items: Any) -> pa.Array:
    return pa.array([{name: one} for one in items], pa.struct({name: kind}))


@pytest.mark.parametrize(
    ("name", "kind", "wanted"),
    [
        ("i", pa.int8(), [-128, 0, 127]), ("i", pa.uint64(), [2**31 - 1]), ("the number", pa.int64(), [-(2**31)]),
        ("u", pa.uint64(), [0, 2**64 - 1]), ("u", pa.int16(), [7]), ("f", pa.float32(), [1.5, -0.0]),
        ("d", pa.float32(), [0.5]), ("d", pa.int32(), [3]), ("data", pa.binary(2), [b"ab"]),
        ("data", pa.large_binary(), [b"", b"a" * 300]), ("s", pa.large_string(), ["", "é"]), ("s", pa.binary(), [b"a"]),
        ("e", pa.int64(), [0, 1, 7, -1]), ("o", pa.int32(), [0, 5]), ("s", pa.string_view(), ["", "é"]),
        ("data", pa.binary_view(), [b"", b"a" * 300]),
    ],
)  # fmt: skip
def test_columns_of_other_types_fit(name: str, kind: pa.DataType, wanted: list[Any]) -> None:
    field = "i" if name == "the number" else name
    found = parsed(kinds(), column(name, kind, *wanted))
    assert [getattr(one, field) for one in found] == [one.decode() if field == "s" and type(one) is bytes else one
                                                      for one in wanted]  # fmt: skip
    if field == "f":
        assert str(found[1].f) == "-0.0"


def test_texts_of_enums_are_names_or_the_digits_that_a_decoder_writes() -> None:
    texts = pa.array(["ONE", "ZERO", "-5", "ONE"]).dictionary_encode()
    rows = pa.StructArray.from_arrays([texts], ["e"])
    assert [one.e for one in parsed(kinds(), rows)] == [1, 0, -5, 1]


def test_presence_is_that_of_the_column() -> None:
    kind = pa.struct({"o": pa.int32(), "inner": pa.struct({"x": pa.int64()}), "w": pa.int32(), "a": pa.int32(),
                      "b": pa.string(), "at": pa.null(), "l": pa.list_(pa.int32()), "i": pa.int32()})  # fmt: skip
    rows = [
        {"o": None, "inner": None, "w": None, "a": None, "b": "", "at": None, "l": None, "i": 0},
        {"o": 0, "inner": {"x": 0}, "w": 0, "a": 0, "b": None, "at": None, "l": [0, 300], "i": 1},
    ]
    absent, present = parsed(kinds(), pa.array(rows, kind))
    assert [one.name for one, _ in absent.ListFields()] == ["b"]
    assert absent.WhichOneof("choice") == "b"
    assert [one.name for one, _ in present.ListFields()] == ["i", "l", "a", "inner", "w", "o"]
    assert [*present.l] == [0, 300]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@given(ticks=st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=5))
def test_times_in_all_units(unit: str, ticks: list[int]) -> None:
    nanos = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[unit]
    for kind in (pa.timestamp(unit, "UTC"), pa.timestamp(unit)):
        at = [one.at.ToNanoseconds() for one in parsed(kinds(), column("at", kind, *ticks))]
        assert at == [one * nanos for one in ticks]
    found = parsed(kinds(), column("took", pa.duration(unit), *ticks))
    assert [one.took.ToNanoseconds() for one in found] == [one * nanos for one in ticks]


GOOGLE = """name: "google/type/%s.proto" package: "google.type" syntax: "proto3" message_type { name: "%s" %s }"""


@pytest.mark.parametrize(
    ("name", "fields", "kind", "given", "wanted"),
    [
        ("Date", ["year", "month", "day"], pa.date32(), date(2024, 2, 29), (2024, 2, 29)),
        ("Date", ["year", "month", "day"], pa.date64(), date(1, 1, 1), (1, 1, 1)),
        ("TimeOfDay", ["hours", "minutes", "seconds", "nanos"], pa.time64("us"), time(23, 0, 59, 7), (23, 0, 59, 7000)),
        ("TimeOfDay", ["hours", "minutes", "seconds", "nanos"], pa.time32("s"), time(1, 2), (1, 2, 0, 0)),
        ("Decimal", ["value"], pa.decimal128(9, 3), Decimal("-1.500"), ("-1.500",)),
    ],
)
def test_dates_times_and_decimals_are_googles_messages(
    name: str, fields: list[str], kind: pa.DataType, given: Any, wanted: tuple[Any, ...]
) -> None:
    of = "TYPE_STRING" if name == "Decimal" else "TYPE_INT32"
    text = " ".join(f'field {{ name: "{one}" number: {n} type: {of} label: LABEL_OPTIONAL }}'
                    for n, one in enumerate(fields, 1))  # fmt: skip
    own = f"""name: "o" syntax: "proto3" dependency: "google/type/{name}.proto" message_type {{ name: "O"
      field {{ name: "x" number: 1 type: TYPE_MESSAGE type_name: ".google.type.{name}" label: LABEL_OPTIONAL }} }}"""
    content = files_of(GOOGLE % (name, name, text) + "} file {" + own)
    (found,) = parsed(descriptor_files(content).message("O"), column("x", kind, given))
    assert tuple(getattr(found.x, one) for one in fields) == wanted


@pytest.mark.parametrize(
    ("name", "kind", "value", "match"),
    [
        ("i", pa.int64(), 2**31, "field i: .*not in range"),
        ("u", pa.int64(), -1, "field u: .*not in range"),
        ("i", pa.int32(), None, r"field i is null, and has no presence \(optional\)"),
        ("s", pa.string(), None, "field s is null"),
        ("s", pa.binary(), b"\xff", "field s: Invalid UTF8"),
        ("e", pa.string(), "TWO", "field e: 'TWO' is no value of enum k.E"),
        ("e", pa.string(), "07", "'07' is no value"),
        ("e", pa.int64(), 2**31, "2147483648 is no value"),
        ("l", pa.list_(pa.int32()), [1, None], "field l has an item that is null"),
        ("m", pa.map_(pa.string(), pa.int64()), [("a", None)], "field m has an item that is null"),
        ("at", pa.timestamp("s"), 253_402_300_800, "field at: a time is beyond the years 1 to 9999"),
        ("at", pa.timestamp("ms"), -62_135_596_800_001, "field at: a time is beyond"),
        ("took", pa.duration("s"), -315_576_000_001, "field took: a duration has more"),
        ("inner", pa.struct({"x": pa.uint64()}), {"x": 2**63}, "field inner.x: .*not in range"),
    ],
)
def test_a_value_beyond_its_field_is_an_error(name: str, kind: pa.DataType, value: Any, match: str) -> None:
    rows = column(name, kind, value)
    with pytest.raises(ValueError, match=match):
        encode(kinds(), rows)


def test_two_fields_of_a_oneof_in_a_row_are_an_error() -> None:
    kind = pa.struct({"a": pa.int32(), "b": pa.string()})
    with pytest.raises(ValueError, match="a row sets two fields of oneof choice"):
        encode(kinds(), pa.array([{"a": 1}, {"b": ""}, {"a": 0, "b": "x"}], kind))


CLOSED = """name: "c" package: "c" syntax: "proto2" enum_type { name: "E" value { name: "ONE" number: 1 } }
 message_type { name: "C" field { name: "e" number: 1 type: TYPE_ENUM type_name: ".c.E" label: LABEL_OPTIONAL }
  field { name: "must" number: 2 type: TYPE_INT32 label: LABEL_REQUIRED } }"""


def test_an_enum_that_is_closed_and_a_required_field() -> None:
    closed = descriptor_files(files_of(CLOSED)).message(None)
    kind = pa.struct({"e": pa.int32(), "must": pa.int32()})
    (found,) = parsed(closed, pa.array([{"e": 1, "must": 0}], kind))
    assert (found.e, found.must, found.HasField("must")) == (1, 0, True)
    for row, match in (({"e": 2, "must": 0}, "2 is no value of enum c.E"), ({"e": 1}, "must is null, and is required")):
        with pytest.raises(ValueError, match=match):
            encode(closed, pa.array([row], kind))
    with pytest.raises(IllegalArgument, match="field must is required, and has no column; did you mean the column mst"):
        encoder(closed, pa.struct({"e": pa.int32(), "mst": pa.int32()}))


@pytest.mark.parametrize(
    ("name", "kind", "match"),
    [
        ("i", pa.string(), "field i is int32, and the column is string"),
        ("f", pa.float64(), "field f is float, and the column is double"),
        ("e", pa.bool_(), "field e is enum k.E, and the column is bool"),
        ("l", pa.int32(), "field l is repeated"),
        ("m", pa.list_(pa.int32()), "field m is a map"),
        ("at", pa.int64(), "message google.protobuf.Timestamp, which takes a struct, or a timestamp"),
        ("inner", pa.binary(), "message k.Inner, which takes a struct; the column is binary"),
        ("inner", pa.struct({"y": pa.int64()}), "no field of k.Inner has a column"),
        ("nothing", pa.int64(), "no field of k.K has a column"),
    ],
)
def test_a_column_that_does_not_fit_is_refused_before_any_row(name: str, kind: pa.DataType, match: str) -> None:
    with pytest.raises(IllegalArgument, match=match):
        encoder(kinds(), pa.struct({name: kind}))


def test_uuids_are_texts_or_bytes() -> None:
    one = UUID(int=9)
    rows = pa.StructArray.from_arrays([pa.array([one.bytes], pa.uuid())] * 2, ["s", "data"])
    (found,) = parsed(kinds(), rows)
    assert (found.s, found.data) == (str(one), one.bytes)


def test_a_recursive_message_ends_with_its_columns() -> None:
    text = """name: "r" syntax: "proto3" message_type { name: "R"
      field { name: "n" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
      field { name: "r" number: 2 type: TYPE_MESSAGE type_name: ".R" label: LABEL_OPTIONAL } }"""
    descriptor = descriptor_files(files_of(text)).message(None)
    kind = pa.struct({"n": pa.int32(), "r": pa.struct({"n": pa.int32()})})
    (found,) = parsed(descriptor, pa.array([{"n": 1, "r": {"n": 2}}], kind))
    assert (found.n, found.r.n, found.r.HasField("r")) == (1, 2, False)
