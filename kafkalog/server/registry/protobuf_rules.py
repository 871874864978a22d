"""Compatibility of Protobuf schemas: changes that make a reader misunderstand a writer's messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING, _GROUP, _MESSAGE, _BYTES = range(1, 13)
_UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(13, 19)
_ALIKE: Final = (
    {_INT32, _UINT32, _INT64, _UINT64, _BOOL}, {_SINT32, _SINT64}, {_STRING, _BYTES}, {_FIXED32, _SFIXED32},
    {_FIXED64, _SFIXED64},
)  # fmt: skip
"""Types whose bytes are those of the others of the group."""
_NAMES: Final = (
    "", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message",
    "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip
_REQUIRED: Final = 2
_REPEATED: Final = 3


def protobuf_incompatibilities(reader: Any, writer: Any) -> list[str]:
    """Return the reasons why the reader's file does not understand messages of the writer's; none if it does.

    Both are FileDescriptorProto. Messages belong together by name, fields by number.

    >>> from google.protobuf import descriptor_pb2, text_format
    >>> text = 'message_type {name: "M" field {name: "n" number: 1 type: %s}}'
    >>> one, other = (
    ...     text_format.Parse(text % kind, descriptor_pb2.FileDescriptorProto())
    ...     for kind in ("TYPE_INT32", "TYPE_STRING")
    ... )
    >>> protobuf_incompatibilities(one, other)
    ['FIELD_SCALAR_KIND_CHANGED at #/M/1: it was string, and is int32']
    """
    found = [] if reader.package == writer.package else [f"PACKAGE_CHANGED: {writer.package} is now {reader.package}"]
    packages = tuple(f".{one.package}" if one.package else "" for one in (reader, writer))
    ours = dict(_messages(reader.message_type, "#"))
    for path, message in _messages(writer.message_type, "#"):
        if path not in ours:
            if message.options.map_entry:  # part of a map field, which is compared by its number
                continue
            found.append(f"MESSAGE_REMOVED at {path}")
        else:
            found += _message(ours[path], message, path, packages)
    return found


def _messages(messages: Sequence[Any], path: str) -> Iterator[tuple[str, Any]]:
    for one in messages:
        inner = f"{path}/{one.name}"
        yield inner, one
        yield from _messages(one.nested_type, inner)


def _oneof(message: Any, field: Any) -> str:
    """Return the name of the oneof of a field, empty for none; that of an optional field of proto3 is none."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return ""
    return str(message.oneof_decl[field.oneof_index].name)


def _message(reader: Any, writer: Any, path: str, packages: Sequence[str]) -> list[str]:
    ours = {field.number: field for field in reader.field}
    theirs = {field.number: field for field in writer.field}
    found: list[str] = []
    for number, field in theirs.items():
        inner = f"{path}/{number}"
        if number in ours:
            found += _field(ours[number], field, inner, packages)
        elif field.label == _REQUIRED:
            found.append(f"REQUIRED_FIELD_REMOVED at {inner}")
        elif _oneof(writer, field) and _oneof(writer, field) in {one.name for one in reader.oneof_decl}:
            found.append(f"ONEOF_FIELD_REMOVED at {inner}")
    for number, field in ours.items():
        if number not in theirs and field.label == _REQUIRED:
            found.append(f"REQUIRED_FIELD_ADDED at {path}/{number}")
    for name in {_oneof(reader, field) for field in reader.field} - {""}:
        moved = [
            number
            for number, field in ours.items()
            if _oneof(reader, field) == name and number in theirs and _oneof(writer, theirs[number]) != name
        ]
        is_known = any(_oneof(writer, field) == name for field in writer.field)
        if len(moved) > 1 or (moved and is_known):
            kind = "FIELD_MOVED_TO_EXISTING_ONEOF" if is_known else "MULTIPLE_FIELDS_MOVED_TO_ONEOF"
            found.append(f"{kind} at {path}/{name}")
    return found


def _field(reader: Any, writer: Any, path: str, packages: Sequence[str]) -> list[str]:
    ours, theirs = reader.type, writer.type
    changed = f"it was {_NAMES[theirs]}, and is {_NAMES[ours]}"
    if (reader.label == _REQUIRED) != (writer.label == _REQUIRED):
        return [f"REQUIRED_FIELD_{'ADDED' if reader.label == _REQUIRED else 'REMOVED'} at {path}"]
    named = {_MESSAGE, _GROUP, _ENUM}
    if ours in named or theirs in named:
        if ours != theirs:
            return [f"FIELD_KIND_CHANGED at {path}: {changed}"]
        names = [name.removeprefix(f"{space}.") for name, space in
                 zip((reader.type_name, writer.type_name), packages, strict=True)]  # fmt: skip
        if names[0] != names[1]:
            return [f"FIELD_NAMED_TYPE_CHANGED at {path}: it was {writer.type_name}, and is {reader.type_name}"]
    elif ours != theirs and not any({ours, theirs} <= group for group in _ALIKE):
        return [f"FIELD_SCALAR_KIND_CHANGED at {path}: {changed}"]
    if (reader.label == _REPEATED) != (writer.label == _REPEATED) and ours not in (_STRING, _BYTES, _MESSAGE):
        return [f"FIELD_NUMERIC_LABEL_CHANGED at {path}: it is repeated in one of the schemas"]
    return []
