"""The bytes of a message being read: bounds, numbers, varints and text as Kafka's generated readers take them.

The words of the errors are the reference's, for the dump tool prints them.
"""

from __future__ import annotations

import base64
import struct
from typing import Final

from kafkalog._core.text import java_text
from kafkalog.errors import InvalidRecord

UNDERFLOW: Final = "null"
"""What the reference says when a message ends inside a field."""

MAX_STRING_BYTES: Final = 0x7FFF
_I8 = struct.Struct(">b").unpack_from
_I16 = struct.Struct(">h").unpack_from
_U16 = struct.Struct(">H").unpack_from
_I32 = struct.Struct(">i").unpack_from
_U32 = struct.Struct(">I").unpack_from
_I64 = struct.Struct(">q").unpack_from
_F64 = struct.Struct(">d").unpack_from


class MessageError(InvalidRecord):
    """A message that breaks its schema; the message is worded as the reference words it."""


class Source:
    """The bytes of one message and how far they have been read.

    Numbers past the end are a struct.error, which Schema.read turns into MessageError; every size is compared with
    what is left before anything of that size is made.
    """

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at
        self.end = len(data)

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return self.end - self.at

    def i8(self) -> int:
        """The next byte, signed."""
        (value,) = _I8(self.data, self.at)
        self.at += 1
        return int(value)

    def boolean(self) -> bool:
        """The next byte: false is 0."""
        return self.i8() != 0

    def i16(self) -> int:
        """The next 2 bytes."""
        (value,) = _I16(self.data, self.at)
        self.at += 2
        return int(value)

    def u16(self) -> int:
        """The next 2 bytes, unsigned."""
        (value,) = _U16(self.data, self.at)
        self.at += 2
        return int(value)

    def i32(self) -> int:
        """The next 4 bytes."""
        (value,) = _I32(self.data, self.at)
        self.at += 4
        return int(value)

    def u32(self) -> int:
        """The next 4 bytes, unsigned."""
        (value,) = _U32(self.data, self.at)
        self.at += 4
        return int(value)

    def i64(self) -> int:
        """The next 8 bytes."""
        (value,) = _I64(self.data, self.at)
        self.at += 8
        return int(value)

    def f64(self) -> float:
        """The next 8 bytes as a double."""
        (value,) = _F64(self.data, self.at)
        self.at += 8
        return float(value)

    def uvarint(self) -> int:
        """An unsigned varint, as a signed 32-bit number: five bytes may give one below 0."""
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.i8()
            value |= (byte & 0x7F) << shift
            if byte >= 0:
                return value
        byte = self.i8()
        value = (value | byte << 28) & 0xFFFFFFFF
        if byte < 0:
            raise MessageError(
                f"Varint is too long, the most significant bit in the 5th byte is set, converted value: {value:x}"
            )
        return value - (1 << 32) if value >= 1 << 31 else value

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        if size < 0:
            raise MessageError(str(size))
        if size > self.end - self.at:
            raise MessageError(
                f"Error reading byte array of {size} byte(s): only {self.end - self.at} byte(s) available"
            )
        self.at += size
        return self.data[self.at - size : self.at]

    def text(self, size: int, name: str) -> str:
        """The next `size` bytes as a string, malformed UTF-8 replaced as Java does."""
        if size > MAX_STRING_BYTES:
            raise MessageError(f"string field {name} had invalid length {size}")
        data = self.take(size)
        return data.decode() if data.isascii() else java_text(data).decode()

    def uuid(self) -> str:
        """The next 16 bytes as Kafka writes a uuid: base64, URL-safe, 22 characters."""
        if self.end - self.at < 16:
            raise MessageError(UNDERFLOW)
        self.at += 16
        return base64.urlsafe_b64encode(self.data[self.at - 16 : self.at])[:22].decode()
