"""Decoders of values that need no schema: text, UUIDs, bytes, and numbers as Kafka's serializers write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog._core.values.builder import Builder
from kafkalog._core.values.plain import fill
from kafkalog.values.decoding import (
    MOST_BYTES,
    Decoded,
    ValueDecoder,
    arrow_type,
    decoded,
    import_pyarrow,
    value_column,
)

if TYPE_CHECKING:
    import pyarrow

FORMATS: Final = {
    "string": "u", "text": "u", "uuid": "u", "boolean": "b", "int8": "c", "int16": "s", "int32": "i", "int64": "l",
    "uint8": "C", "uint16": "S", "uint32": "I", "uint64": "L", "float": "f", "double": "g", "short": "s",
    "integer": "i", "long": "l",
}  # fmt: skip
"""The Arrow formats of the decoders; "short", "integer" and "long" are int16, int32 and int64, "text" is string."""


class PlainDecoder(ValueDecoder):
    """Text, a UUID's text, or one big-endian number of exactly its size.

    >>> import pyarrow
    >>> PlainDecoder("int32").decode(pyarrow.array([bytes([0, 0, 1, 0]), None, b"?"])).values.to_pylist()
    [256, None, None]
    """

    def __init__(self, name: str, *, most_bytes: int = MOST_BYTES) -> None:
        self.name = name
        self._tree = "", FORMATS[name], True, (), ()
        self._most_bytes = most_bytes
        self._type: pyarrow.DataType | None = None

    @property
    def arrow_type(self) -> pyarrow.DataType:
        """Type of the decoded column: string, bool or a number."""
        if self._type is None:
            self._type = arrow_type(self._tree)
        return self._type

    def decode(self, column: pyarrow.Array) -> Decoded:
        """Decode a column; a value of another size, or text that is not UTF-8, is an error of its row."""
        given = value_column(column)
        builder = Builder(self._tree, self._most_bytes)
        fill(builder, given, self.name == "uuid")
        return decoded(builder, len(given), self._most_bytes)


class BytesDecoder(ValueDecoder):
    """The bytes themselves.

    >>> import pyarrow
    >>> BytesDecoder().decode(pyarrow.array([b"a", None])).values.to_pylist()
    [b'a', None]
    """

    name = "bytes"

    @property
    def arrow_type(self) -> pyarrow.DataType:
        """The type binary."""
        return import_pyarrow().binary()

    def decode(self, column: pyarrow.Array) -> Decoded:
        """Return the column as binary, without a copy where it is."""
        value_column(column)
        return Decoded(column.cast(self.arrow_type), None, 0)
