"""Random Protobuf message types, messages of them, and what the columns of a message are as Python objects."""

import datetime
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor import FieldDescriptor as F
from hypothesis import strategies as st

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
KEYS = (F.TYPE_INT32, F.TYPE_SINT64, F.TYPE_BOOL, F.TYPE_STRING, F.TYPE_FIXED32)
NUMBERS = {
    F.TYPE_INT32: st.integers(-(2**31), 2**31 - 1), F.TYPE_SINT32: st.integers(-(2**31), 2**31 - 1),
    F.TYPE_SFIXED32: st.integers(-(2**31), 2**31 - 1), F.TYPE_UINT32: st.integers(0, 2**32 - 1),
    F.TYPE_FIXED32: st.integers(0, 2**32 - 1), F.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    F.TYPE_SINT64: st.integers(-(2**63), 2**63 - 1), F.TYPE_SFIXED64: st.integers(-(2**63), 2**63 - 1),
    F.TYPE_UINT64: st.integers(0, 2**64 - 1), F.TYPE_FIXED64: st.integers(0, 2**64 - 1), F.TYPE_BOOL: st.booleans(),
    F.TYPE_DOUBLE: st.floats(allow_nan=False), F.TYPE_FLOAT: st.floats(width=32, allow_nan=False),
    F.TYPE_STRING: st.text(max_size=12), F.TYPE_BYTES: st.binary(max_size=12), F.TYPE_ENUM: st.sampled_from([0, 1, 7]),
}  # fmt: skip
DEFAULTS = {F.TYPE_STRING: "dé", F.TYPE_BOOL: "true", F.TYPE_DOUBLE: "-2.5", F.TYPE_ENUM: "SEVEN"}
TIMESTAMP, INT64_VALUE = ".google.protobuf.Timestamp", ".google.protobuf.StringValue"


@st.composite
def message_types(draw: Any, syntax: str = "proto3", required: bool = False) -> Any:
    """A descriptor with fields of all kinds and nested messages; `required` makes some fields of proto2 required."""
    pb = descriptor_pb2
    file = pb.FileDescriptorProto(name="t.proto", package="t", syntax=syntax)
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    enum = file.enum_type.add(name="E")
    for name, number in (("ZERO", 0), ("ONE", 1), ("SEVEN", 7)):
        enum.value.add(name=name, number=number)
    for level in range(draw(st.integers(0, 2)) + 1):
        _fill(draw, file.message_type.add(name=f"M{level}"), level, syntax == "proto3")
    for field in [one for type in file.message_type for one in type.field if required and syntax == "proto2"]:
        if field.label == F.LABEL_OPTIONAL and not field.HasField("oneof_index") and field.number % 3 == 0:
            field.label = F.LABEL_REQUIRED
    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return pool.FindMessageTypeByName(f"t.{file.message_type[-1].name}")


def _fill(draw: Any, type: Any, level: int, proto3: bool) -> None:
    numbers = draw(st.lists(st.one_of(st.integers(1, 40), st.integers(1, 18000)), min_size=1, max_size=7, unique=True))
    in_oneof = 0
    for number in numbers:
        name = f"f{number}"
        shape = draw(st.sampled_from(["one", "one", "many", "map", "oneof", "optional"]))
        kind = draw(st.sampled_from([*NUMBERS, F.TYPE_MESSAGE, F.TYPE_MESSAGE, *([] if proto3 else [F.TYPE_GROUP])]))
        if kind == F.TYPE_GROUP and (level == 0 or shape in ("map", "oneof")):
            kind = F.TYPE_INT32
        field = type.field.add(name=name, number=number, label=F.LABEL_OPTIONAL)
        if shape == "map":
            entry = type.nested_type.add(name=f"F{number}Entry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, type=draw(st.sampled_from(KEYS)), label=F.LABEL_OPTIONAL)
            _set_type(draw, entry.field.add(name="value", number=2, label=F.LABEL_OPTIONAL), kind, level)
            field.label, field.type = F.LABEL_REPEATED, F.TYPE_MESSAGE
            field.type_name = f".t.{type.name}.F{number}Entry"
            continue
        _set_type(draw, field, kind, level)
        if shape == "many":
            field.label = F.LABEL_REPEATED
            if kind not in (F.TYPE_MESSAGE, F.TYPE_GROUP, F.TYPE_STRING, F.TYPE_BYTES):
                field.options.packed = draw(st.booleans())
        elif shape == "oneof":
            if not in_oneof:
                type.oneof_decl.add(name="choice")
            field.oneof_index = 0
            in_oneof += 1
        elif not proto3 and shape == "one" and kind in DEFAULTS:
            field.default_value = DEFAULTS[kind]
    if proto3:
        for field in type.field:
            if field.label == F.LABEL_OPTIONAL and not field.HasField("oneof_index") and field.number % 5 == 0:
                field.proto3_optional = True
                field.oneof_index = len(type.oneof_decl)
                type.oneof_decl.add(name=f"_{field.name}")


def _set_type(draw: Any, field: Any, kind: int, level: int) -> None:
    field.type = kind
    if kind == F.TYPE_ENUM:
        field.type_name = ".t.E"
    elif kind == F.TYPE_GROUP:
        field.type_name = f".t.M{level - 1}"
    elif kind == F.TYPE_MESSAGE:
        field.type_name = draw(st.sampled_from([TIMESTAMP, INT64_VALUE, *[f".t.M{n}" for n in range(level)]]))


@st.composite
def messages(draw: Any, descriptor: Any, depth: int = 0) -> Any:
    """A message of a type, with any of its fields set."""
    made = message_factory.GetMessageClass(descriptor)()
    if descriptor.full_name == "google.protobuf.Timestamp":
        made.seconds, made.nanos = draw(st.integers(-(10**9), 10**10)), 1000 * draw(st.integers(0, 999_999))
        return made
    for field in descriptor.fields:
        if not draw(st.booleans()):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, value = field.message_type.fields_by_number[1], field.message_type.fields_by_number[2]
            for one in draw(st.lists(NUMBERS[key.type], max_size=3)):
                if value.message_type is not None:
                    getattr(made, field.name)[one].CopyFrom(draw(messages(value.message_type, depth + 1)))
                else:
                    getattr(made, field.name)[one] = draw(NUMBERS[value.type])
        elif field.is_repeated:
            for _ in range(draw(st.integers(0, 3))):
                if field.message_type is not None:
                    getattr(made, field.name).append(draw(messages(field.message_type, depth + 1)))
                else:
                    getattr(made, field.name).append(draw(NUMBERS[field.type]))
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(draw(messages(field.message_type, depth + 1)))
        else:
            setattr(made, field.name, draw(NUMBERS[field.type]))
    return made


def shown(message: Any) -> Any:
    """Return what the column of a message has."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        return EPOCH + datetime.timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    if name.startswith("google.protobuf."):
        return message.value
    return {field.name: _shown_field(message, field) for field in message.DESCRIPTOR.fields}


def _shown_field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of = field.message_type.fields_by_number[2]
        return {key: _shown(value[key], of) for key in value}
    if field.is_repeated:
        return [_shown(item, field) for item in value]
    if field.has_presence and not message.HasField(field.name) and not field.has_default_value:
        return None
    return _shown(value, field)


def _shown(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return shown(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return value


def plain(value: Any, of: Any) -> Any:
    """Return a value out of a column with its maps as dicts."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_struct(of):
        return {field.name: plain(value[field.name], field.type) for field in of}
    if pa.types.is_map(of):
        assert len({key for key, _ in value}) == len(value)
        return {key: plain(item, of.item_type) for key, item in value}
    if pa.types.is_list(of):
        return [plain(item, of.value_type) for item in value]
    return value
