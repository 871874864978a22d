"""The bytes of a message being read, and the error for a message that violates its schema.

The error texts are the reference's, because the dump tool prints them.
"""

from __future__ import annotations

import struct
from typing import Final

from kafkalog._core.messages.reader import MAX_STRING_BYTES
from kafkalog.errors import InvalidRecord

__all__ = ["MAX_STRING_BYTES", "UNDERFLOW", "MessageError", "Source"]

UNDERFLOW: Final = "null"
"""The reference's error text for a message that ends inside a field."""

_I8 = struct.Struct(">b").unpack_from
_I16 = struct.Struct(">h").unpack_from


class MessageError(InvalidRecord):
    """A message that violates its schema; the text is Kafka's."""


class Source:
    """The bytes of one message and the read position, at which `Schema.read` continues.

    Reading a number past the end raises struct.error.
    """

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at
        self.end = len(data)

    @property
    def left(self) -> int:
        """Number of unread bytes."""
        return self.end - self.at

    def i16(self) -> int:
        """Read the next 2 bytes as a signed number."""
        (value,) = _I16(self.data, self.at)
        self.at += 2
        return int(value)

    def uvarint(self) -> int:
        """Read an unsigned varint as a signed 32-bit number; five bytes may make it negative."""
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self._i8()
            value |= (byte & 0x7F) << shift
            if byte >= 0:
                return value
        byte = self._i8()
        value = (value | byte << 28) & 0xFFFFFFFF
        if byte < 0:
            raise MessageError(
                f"Varint is too long, the most significant bit in the 5th byte is set, converted value: {value:x}"
            )
        return value - (1 << 32) if value >= 1 << 31 else value

    def _i8(self) -> int:
        (value,) = _I8(self.data, self.at)
        self.at += 1
        return int(value)
