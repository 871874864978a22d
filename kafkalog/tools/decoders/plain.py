"""Decoders that need no schema: text, JSON, numbers, and pack strings; each raises DecodeError for invalid bytes."""

from __future__ import annotations

import json as _json
import re
import struct
from collections.abc import Callable
from typing import Any, Final

from kafkalog._core.text.text_buffer import java_text
from kafkalog.errors import IllegalArgument, InvalidRecord, KafkalogError
from kafkalog.records.json_text import json_text

Decoder = Callable[[bytes], object]

PACK: Final = re.compile(r"[<>bBhHiIqQc ]*s?\$?")
NUMBERS: Final = {
    "int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q", "uint8": ">B", "uint16": ">H", "uint32": ">I",
    "uint64": ">Q", "float": ">f", "double": ">d", "short": ">h", "boolean": ">?",
}  # fmt: skip
"""The numbers that Kafka's serializers write, by the names that decoders of columns have for them."""
_UUID: Final = re.compile(rb"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_WIDTHS: Final = {"b": 1, "h": 2, "i": 4, "q": 8}


class DecodeError(InvalidRecord):
    """Bytes that a decoder cannot decode."""


def text(data: bytes) -> str:
    """Decode UTF-8; malformed parts are replaced as Java does.

    >>> text("Zürich".encode())
    'Zürich'
    """
    return java_text(data).decode()


def json(data: bytes) -> Any:
    """Decode a JSON document to Python values.

    >>> json(b'{"a": [1, null]}')
    {'a': [1, None]}
    """
    try:
        return _json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"it is not JSON: {error}") from None


def raw(data: bytes) -> bytes:
    """Return the bytes themselves."""
    return data


def integer(data: bytes) -> int:
    """Decode the first four bytes as a signed big-endian number, like Kafka's IntegerDecoder.

    >>> integer(bytes([0, 0, 1, 0]))
    256
    """
    return _number(data, 4)


def long(data: bytes) -> int:
    """Decode the first eight bytes as a signed big-endian number, like Kafka's LongDecoder.

    >>> long(bytes([255] * 8))
    -1
    """
    return _number(data, 8)


def _number(data: bytes, size: int) -> int:
    if len(data) < size:
        raise DecodeError(f"a number takes {size} bytes, and there are {len(data)}")
    return int.from_bytes(data[:size], "big", signed=True)


def number(name: str) -> Decoder:
    """Return a decoder of one number of NUMBERS; bytes of another size are a DecodeError.

    >>> number("int16")(bytes([1, 0])), number("boolean")(bytes([1]))
    (256, True)
    """
    form = struct.Struct(NUMBERS[name])

    def decode(data: bytes) -> object:
        if len(data) != form.size:
            raise DecodeError(f"it takes {form.size} bytes, and there are {len(data)}")
        if name == "boolean" and data[0] > 1:
            raise DecodeError(f"{data[0]} is no boolean")
        return form.unpack(data)[0]

    return decode


def uuid(data: bytes) -> str:
    """Return the 36 characters of a UUID, as Kafka's UUIDSerializer writes them; DecodeError for anything else.

    >>> uuid(b"00010203-0405-0607-0809-0a0b0c0d0e0f")
    '00010203-0405-0607-0809-0a0b0c0d0e0f'
    """
    if not _UUID.fullmatch(data):
        raise DecodeError("it is not a UUID of 36 characters")
    return data.decode()


def pack(format: str) -> Decoder:
    """Return a decoder for one of kcat's pack strings: a function that returns text.

    `<` and `>` (the default) set the byte order; b h i q are signed numbers of 1, 2, 4 and 8 bytes, B H I Q unsigned
    ones, c is a character, s the rest as text, `$` the end of the data. A space is printed; nothing else separates
    values. Without `$`, bytes after the last letter are ignored. IllegalArgument for any other letter.

    >>> pack("h <h s")(bytes([0, 1, 2, 0]) + b"rest")
    '1 2 rest'
    """
    if not PACK.fullmatch(format):
        raise IllegalArgument(
            f"{format!r} is not a pack string", hint="the letters are < > b B h H i I q Q c, then s, then $"
        )
    return lambda data: _unpack(format, data)


def _unpack(format: str, data: bytes) -> str:
    order, at, words = ">", 0, ""
    for letter in format:
        if letter in "<>":
            order = letter
        elif letter == " ":
            words += " "
        elif letter == "$":
            if at < len(data):
                raise DecodeError(f"{len(data) - at} bytes are left after the expected end")
        elif letter == "s":
            words += text(data[at:])
            at = len(data)
        else:
            size = _WIDTHS.get(letter.lower(), 1)
            if len(data) - at < size:
                raise DecodeError(f"{letter!r} takes {size} bytes, and only {len(data) - at} are left")
            (value,) = struct.unpack_from(order + letter, data, at)
            words += text(value) if letter == "c" else str(value)
            at += size
    return words


def decode_value(decode: Decoder, data: bytes, what: str) -> object:
    """Decode a key or value (named by `what`); a decoder's error about the bytes becomes a DecodeError.

    Errors unrelated to these bytes (such as an unreadable schema) are raised as they are.
    """
    try:
        return decode(data)
    except Exception as error:
        if isinstance(error, KafkalogError) and not isinstance(error, InvalidRecord):
            raise
        reason = error.message if isinstance(error, DecodeError) else f"{type(error).__name__}: {error}"
        raise DecodeError(f"the {what} cannot be decoded: {reason}") from error


def as_text(value: object) -> str:
    """Return a decoded value as text: a str as it is, bytes in hexadecimal, all else as JSON or by str()."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return json_text(value) if value is None or isinstance(value, bool | dict | list | tuple) else str(value)
