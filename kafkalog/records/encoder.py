"""Kafka's messages written by schema: the reverse of `Schema.read`, byte for byte as the reference writes them.

A message is a dict by field name, as `Schema.read` gives it. What the schema does not take is an IllegalArgument that
names the field: nothing is cut, and nothing is left out.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from typing import Any, Final

from kafkalog._core.varint import encode_uvarint
from kafkalog.errors import IllegalArgument
from kafkalog.records.message import MAX_STRING_BYTES
from kafkalog.records.schema import Field, Schema

__all__ = ["encoded"]

_NUMBERS: Final = {
    "bool": struct.Struct(">?"),
    "i8": struct.Struct(">b"),
    "i16": struct.Struct(">h"),
    "u16": struct.Struct(">H"),
    "i32": struct.Struct(">i"),
    "u32": struct.Struct(">I"),
    "i64": struct.Struct(">q"),
    "f64": struct.Struct(">d"),
}
_UUID_BYTES: Final = 16


def encoded(schema: Schema, message: Mapping[str, Any], version: int) -> bytes:
    """The bytes of `message` in `version` of its schema; `schema.read` gives an equal message back.

    Every field of that version is given, tagged ones only where they differ from their default. IllegalArgument for a
    version that the schema does not have, for a field that is missing or not in that version, and for a value that
    does not fit its type.
    """
    if not schema.lowest <= version <= schema.highest:
        raise IllegalArgument(
            f"{schema.name} has no version {version}", hint=f"versions are {schema.lowest} to {schema.highest}"
        )
    return _Encoder(version, version >= schema.flexible_from).struct(schema.name, schema.fields, message)


class _Encoder:
    """Writes fields as they are in one version; `flexible` versions have compact sizes and tagged fields (KIP-482)."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible

    def struct(self, name: str, fields: tuple[Field, ...], message: Any) -> bytes:
        """The fields in their order, then the tagged ones by tag."""
        if not isinstance(message, Mapping):
            raise IllegalArgument(f"{name} is a {type(message).__name__}: give a dict of its fields")
        present = [field for field in fields if field.first <= self.version <= field.last]
        known = [field.name for field in present]
        for given in message:
            if given not in known:
                raise IllegalArgument(
                    f"{name} has no field {given!r} in version {self.version}", hint=f"it has {', '.join(known)}"
                )
        out = b"".join(self.field(field, self._given(name, field, message)) for field in present if field.tag is None)
        return out + self._tagged(present, message) if self.flexible else out

    def _given(self, name: str, field: Field, message: Mapping[str, Any]) -> Any:
        if field.name not in message:
            raise IllegalArgument(f"{name} needs the field {field.name!r}")
        return message[field.name]

    def _tagged(self, present: list[Field], message: Mapping[str, Any]) -> bytes:
        parts = [
            (field.tag, self.field(field, message[field.name]))
            for field in present
            if field.tag is not None and field.name in message and message[field.name] != field.default
        ]
        written = (encode_uvarint(tag) + encode_uvarint(len(part)) + part for tag, part in sorted(parts))
        return encode_uvarint(len(parts)) + b"".join(written)

    def field(self, field: Field, value: Any) -> bytes:
        """One field: its value, or the items of its array."""
        if not field.array:
            return self._item(field, value, field.nullable)
        if value is None and field.nullable:
            return self._size(-1)
        if not isinstance(value, list | tuple):
            raise IllegalArgument(f"{field.name} is a {type(value).__name__}: give a list")
        return self._size(len(value)) + b"".join(self._item(field, item, False) for item in value)

    def _item(self, field: Field, value: Any, nullable: bool) -> bytes:
        if value is None and not nullable:
            raise IllegalArgument(f"{field.name} cannot be null")
        if field.type in _NUMBERS:
            return _number(field, value)
        if field.type == "uuid":
            return _uuid(field, value)
        if field.type == "{}":
            return self._inner(field, value, nullable)
        if value is None:
            return self._text_size(-1) if field.type == "string" else self._size(-1)
        return self._text(field, value) if field.type == "string" else self._bytes(field, value)

    def _inner(self, field: Field, value: Any, nullable: bool) -> bytes:
        """A struct; one that may be null has a mark in front: a byte, or its size where it is tagged."""
        if not nullable:
            return self.struct(field.name, field.fields, value)
        if value is None:
            return encode_uvarint(0) if field.tag is not None else b"\xff"
        inner = self.struct(field.name, field.fields, value)
        return (encode_uvarint(len(inner) + 1) if field.tag is not None else b"\x01") + inner

    def _text(self, field: Field, value: Any) -> bytes:
        if not isinstance(value, str):
            raise IllegalArgument(f"{field.name} is a {type(value).__name__}: give a str")
        data = value.encode()
        if len(data) > MAX_STRING_BYTES:
            raise IllegalArgument(f"{field.name} has {len(data)} bytes, at most {MAX_STRING_BYTES} can be written")
        return self._text_size(len(data)) + data

    def _bytes(self, field: Field, value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise IllegalArgument(f"{field.name} is a {type(value).__name__}: give bytes")
        data = bytes(value)
        return self._size(len(data)) + data

    def _size(self, size: int) -> bytes:
        """The size of an array or of bytes; -1 is null."""
        return encode_uvarint(size + 1) if self.flexible else _NUMBERS["i32"].pack(size)

    def _text_size(self, size: int) -> bytes:
        return encode_uvarint(size + 1) if self.flexible else _NUMBERS["i16"].pack(size)


def _number(field: Field, value: Any) -> bytes:
    if not isinstance(value, int | float) or (isinstance(value, float) and field.type != "f64"):
        raise IllegalArgument(f"{field.name} is a {type(value).__name__}: give a number")
    try:
        return _NUMBERS[field.type].pack(value)
    except (struct.error, OverflowError):
        raise IllegalArgument(f"{field.name} is {value}, which does not fit the type {field.type}") from None


def _uuid(field: Field, value: Any) -> bytes:
    """16 bytes of the 22 characters that Kafka writes."""
    try:
        data = base64.b64decode(f"{value}==", altchars=b"-_", validate=True) if isinstance(value, str) else b""
    except binascii.Error:
        data = b""
    if len(data) != _UUID_BYTES:
        raise IllegalArgument(f"{field.name} is {value!r}: a uuid is 22 characters of URL-safe base64")
    return data
