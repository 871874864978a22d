"""Defaults of Avro fields: the JSON of a schema as the bytes that a writer of the field would have written."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafkalog.values.avro_schema import MISSING, AvroType

MOST_PARTS: Final = 1 << 16
"""Values in a default: those of a record's fields come from their own defaults, so few words can stand for many."""


MOST_LEVELS: Final = 200
"""Values within each other in a default: that of a record's field may have the record in it, and so on."""


class BadDefault(Exception):
    """A default that is no value of its type."""


class _TooLarge(BadDefault):
    """One that is too large, whatever the branch."""


def encoded_default(kind: AvroType, value: Any) -> bytes:
    """Return the Avro bytes of a default; BadDefault where it is no value of the type.

    >>> encoded_default(AvroType("union", parts=[AvroType("null"), AvroType("string")]), "é").hex()
    '0204c3a9'
    """
    return _Encoder().encode(kind, value)


class _Encoder:
    def __init__(self) -> None:
        self.left = MOST_PARTS
        self.level = 0

    def encode(self, kind: AvroType, value: Any) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise _TooLarge(f"it has more than {MOST_PARTS} values")
        if self.level >= MOST_LEVELS:
            raise _TooLarge(f"it is nested more than {MOST_LEVELS} levels deep")
        self.level += 1
        try:
            return self._encoded(kind, value)
        finally:
            self.level -= 1

    def _encoded(self, kind: AvroType, value: Any) -> bytes:
        if kind.kind == "union":
            return self.union(kind, value)
        if kind.kind == "record":
            return self.record(kind, value)
        if kind.kind == "array":
            if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
                raise BadDefault(f"{value!r:.60} is no array")
            return _blocks([self.encode(kind.parts[0], item) for item in value])
        if kind.kind == "map":
            if not isinstance(value, Mapping):
                raise BadDefault(f"{value!r:.60} is no map")
            return _blocks([_text(key) + self.encode(kind.parts[0], item) for key, item in value.items()])
        return _leaf(kind, value)

    def union(self, kind: AvroType, value: Any) -> bytes:
        for number, part in enumerate(kind.parts):
            try:
                return long_bytes(number) + self.encode(part, value)
            except _TooLarge:
                raise
            except BadDefault:
                continue
        raise BadDefault(f"{value!r:.60} is in no branch of the union")

    def record(self, kind: AvroType, value: Any) -> bytes:
        if not isinstance(value, Mapping):
            raise BadDefault(f"{value!r:.60} is no record")
        made = []
        for one in kind.fields:
            if one.name not in value and one.default is MISSING:
                raise BadDefault(f"field {one.name} of {kind.name} is missing")
            made.append(self.encode(one.type, value.get(one.name, one.default)))
        return b"".join(made)


def _leaf(kind: AvroType, value: Any) -> bytes:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind.kind == "null" and value is None:
        return b""
    if kind.kind == "boolean" and isinstance(value, bool):
        return bytes([value])
    if kind.kind in ("int", "long") and whole:
        bits = 31 if kind.kind == "int" else 63
        if -(1 << bits) <= value < 1 << bits:
            return long_bytes(value)
    if kind.kind in ("float", "double") and (whole or isinstance(value, float)):
        try:
            return struct.pack("<f" if kind.kind == "float" else "<d", value)
        except OverflowError:
            raise BadDefault(f"{value!r:.60} is beyond {kind.kind}") from None
    if kind.kind == "string" and isinstance(value, str):
        return _text(value)
    if kind.kind in ("bytes", "fixed") and isinstance(value, str):
        return _bytes(kind, value)
    if kind.kind == "enum" and value in kind.symbols:
        return long_bytes(kind.symbols.index(value))
    raise BadDefault(f"{value!r:.60} is no {kind.kind}")


def _bytes(kind: AvroType, value: str) -> bytes:
    """The characters U+0000 to U+00FF stand for bytes."""
    try:
        data = value.encode("latin-1")
    except UnicodeEncodeError:
        raise BadDefault(f"{value!r:.60} has a character beyond U+00FF") from None
    if kind.kind == "bytes":
        return long_bytes(len(data)) + data
    if len(data) != kind.size:
        raise BadDefault(f"{len(data)} bytes for a fixed of {kind.size}")
    return data


def _blocks(items: list[bytes]) -> bytes:
    return (long_bytes(len(items)) if items else b"") + b"".join(items) + b"\0"


def _text(value: str) -> bytes:
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise BadDefault(f"{value!r:.60} has a lone surrogate") from None
    return long_bytes(len(data)) + data


def long_bytes(value: int) -> bytes:
    """Return a number as Avro's zigzag varint.

    >>> long_bytes(-1), long_bytes(64).hex()
    (b'\\x01', '8001')
    """
    rest = (value << 1) ^ (value >> 63)
    made = bytearray()
    while rest > 0x7F:
        made.append(rest & 0x7F | 0x80)
        rest >>= 7
    made.append(rest)
    return bytes(made)
