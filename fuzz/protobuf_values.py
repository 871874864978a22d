"""Protobuf: values of several messages, between sound ones; what is taken is a message for the protobuf package too."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, message, message_factory, struct_pb2, text_format

from fuzz.rows import column_of, failed_rows
from kafkalog._core.values.protobuf_rows import ProtobufRows
from kafkalog.values.protobuf_columns import message_columns
from kafkalog.values.protobuf_schemas import DescriptorFiles

SEALS = False
MOST_BYTES = 1 << 22
NEWER = """name: "n.proto" package: "n" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
dependency: "google/protobuf/wrappers.proto" dependency: "google/protobuf/duration.proto"
enum_type { name: "E" value { name: "A" number: 0 } value { name: "B" number: 1 } value { name: "C" number: -9 } }
message_type { name: "In" field { name: "x" number: 1 type: TYPE_SINT64 label: LABEL_OPTIONAL }
  field { name: "l" number: 2 type: TYPE_UINT32 label: LABEL_REPEATED }
  field { name: "e" number: 3 type: TYPE_ENUM type_name: ".n.E" label: LABEL_REPEATED } }
message_type { name: "M" oneof_decl { name: "choice" }
  field { name: "i" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "s" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "b" number: 3 type: TYPE_BOOL label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "in" number: 4 type: TYPE_MESSAGE type_name: ".n.In" label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "many" number: 5 type: TYPE_MESSAGE type_name: ".n.In" label: LABEL_REPEATED }
  field { name: "m" number: 6 type: TYPE_MESSAGE type_name: ".n.M.MEntry" label: LABEL_REPEATED }
  field { name: "t" number: 7 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" label: LABEL_OPTIONAL }
  field { name: "d" number: 8 type: TYPE_MESSAGE type_name: ".google.protobuf.Duration" label: LABEL_REPEATED }
  field { name: "w" number: 9 type: TYPE_MESSAGE type_name: ".google.protobuf.StringValue" label: LABEL_OPTIONAL }
  field { name: "f" number: 10 type: TYPE_DOUBLE label: LABEL_REPEATED }
  field { name: "g" number: 5000 type: TYPE_FIXED32 label: LABEL_OPTIONAL }
  nested_type { name: "MEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".n.In" label: LABEL_OPTIONAL } } }"""
OLDER = """name: "o.proto" package: "o" message_type { name: "O"
  field { name: "id" number: 1 type: TYPE_INT32 label: LABEL_REQUIRED }
  field { name: "word" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL default_value: "none" }
  field { name: "in" number: 3 type: TYPE_GROUP type_name: ".o.O.In" label: LABEL_OPTIONAL }
  field { name: "ins" number: 4 type: TYPE_GROUP type_name: ".o.O.In" label: LABEL_REPEATED }
  field { name: "f" number: 5 type: TYPE_SFIXED64 label: LABEL_REPEATED options { packed: true } }
  nested_type { name: "In" field { name: "x" number: 1 type: TYPE_BYTES label: LABEL_OPTIONAL }
    field { name: "y" number: 2 type: TYPE_FLOAT label: LABEL_OPTIONAL default_value: "1.5" } } }"""


def described(text: str, name: str) -> Any:
    """The descriptor of a message of a file in its text form."""
    return DescriptorFiles([text_format.Parse(text, descriptor_pb2.FileDescriptorProto())]).message(name)


NEW, OLD = described(NEWER, "M"), described(OLDER, "O")
KINDS = (NEW, OLD, struct_pb2.Struct.DESCRIPTOR)
MESSAGES = [message_factory.GetMessageClass(kind) for kind in KINDS]


def samples() -> tuple[bytes, ...]:
    """A sound value of each message."""
    new = MESSAGES[0](i=-5, s="Zürich", f=[1.5, -0.0], g=7, b=True)
    new.m["k"].x = 3
    new.many.add(l=[1, 300], e=[0, 1, -9])
    new.t.seconds, new.w.value = 1_700_000_000, "w"
    new.d.add(seconds=-1, nanos=-5)
    old = MESSAGES[1](id=1, f=[1 << 40])
    getattr(old, "in").x = b"\xff"
    old.ins.add(y=2.5)
    tree = struct_pb2.Struct()
    tree.update({"a": 1, "b": {"c": [None, "x"]}})
    return new.SerializeToString(), old.SerializeToString(), tree.SerializeToString()


SAMPLES = samples()
WANTED = ({"b": None, "m": None, "t": None}, {"in": {"y": None}}, {"fields": None})
PREPARED = [
    [ProtobufRows(*message_columns(kind, wanted, unit), framing, (0,))
     for wanted, unit, framing in ((None, "us", "raw"), (some, "ns", "auto"), (None, "us", "delimited"))]
    for kind, some in zip(KINDS, WANTED, strict=True)
]  # fmt: skip


def decoded(rows: ProtobufRows, values: list[bytes | None]) -> set[int]:
    """The rows that do not decode."""
    return failed_rows(rows.decode(column_of(values), MOST_BYTES), len(values))


def run(data: memoryview) -> None:
    """A value decodes or fails alone, first as later: those around it are not touched."""
    if not data:
        return
    number, value = data[0] % len(KINDS), bytes(data[1:])
    whole, some, sized = PREPARED[number]
    good = SAMPLES[number]
    failed = decoded(whole, [value, good, value, None, good, value[: len(value) // 2], good, good + good])
    assert failed <= {0, 2, 5} and (0 in failed) == (2 in failed)
    if data[0] < 128:
        decoded(some, [value, good, b"\0\0\0\0\7\0" + value, b"\0\0\0\0\7" + value])
    else:
        decoded(sized, [bytes([len(value)]) + value if len(value) < 128 else value, value])
    if number < 2 and not failed & {0}:
        try:
            MESSAGES[number].FromString(value)
        except message.DecodeError as error:
            raise AssertionError(f"taken, and no message: {error}") from None


def seeds() -> list[bytes]:
    """Sound values, cut, longer and after each other, and single fields."""
    made = []
    for number, value in enumerate(SAMPLES):
        made += [bytes([number]) + one for one in (value, value[:-1], value + b"\0", value + value)]
        made += [bytes([number + more]) + value[:size] for size in range(0, len(value), 5) for more in (0, 129)]
        for field in (1, 3, 4, 5, 15):
            end = bytes([8, 1, field << 3 | 4])
            bodies = ((0, b"\xff\xff\x03"), (1, bytes(8)), (2, b"\x02\x08\x05"), (3, end), (5, bytes(4)))
            made += [bytes([number, field << 3 | wire]) + body for wire, body in bodies]
    return made
