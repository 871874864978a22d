"""Plain values: text, UUIDs, booleans and numbers, between sound ones, against Python's own reading of the bytes."""

from __future__ import annotations

import re
import struct

import pyarrow as pa

from fuzz.rows import column_of, decoded_rows
from kafkalog._core.values.builder import Builder
from kafkalog._core.values.plain import fill
from kafkalog.values.plain import FORMATS

SEALS = False
MOST_BYTES = 1 << 22
NAMES = tuple(sorted(FORMATS))
"""The first byte of an input is the number of a decoder, modulo their count."""
STRUCT = {"c": ">b", "C": ">B", "s": ">h", "S": ">H", "i": ">i", "I": ">I", "l": ">q", "L": ">Q", "f": ">f", "g": ">d"}
UUID = re.compile(rb"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
SAMPLES = {"u": "Zürich \U0001f600".encode(), "b": b"\1"}


def expected(name: str, value: bytes) -> object:
    """The value as Python reads it, None for one that does not decode; fractions as the bytes that they have."""
    format = FORMATS[name]
    if format == "b":
        return {b"\0": False, b"\1": True}.get(value)
    if format == "u":
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return None
        return text if name != "uuid" or UUID.fullmatch(value) else None
    if len(value) != struct.calcsize(STRUCT[format]):
        return None
    return value if format in "fg" else struct.unpack(STRUCT[format], value)[0]


def sample(name: str) -> bytes:
    """A sound value of a decoder."""
    if name == "uuid":
        return b"123e4567-e89b-12d3-a456-426614174000"
    format = FORMATS[name]
    return SAMPLES[format] if format in SAMPLES else bytes(range(1, 1 + struct.calcsize(STRUCT[format])))


def run(data: memoryview) -> None:
    """Each value decodes as Python reads it, or fails alone."""
    if not data:
        return
    name, value = NAMES[data[0] % len(NAMES)], bytes(data[1:])
    good = sample(name)
    rows = [value, good, value[: len(value) // 2], None, value, value[: len(good)], value + good, b"", good]
    builder = Builder(("", FORMATS[name], True, (), ()), MOST_BYTES)
    assert fill(builder, column_of(rows), name == "uuid") == len(rows)
    column, failed = decoded_rows(builder, len(rows))
    wanted = [None if row is None else expected(name, row) for row in rows]
    assert failed == {at for at, one in enumerate(wanted) if one is None and rows[at] is not None}
    if pa.types.is_floating(column.type):
        whole = struct.Struct(STRUCT[FORMATS[name]].replace(">", "<"))
        raw = memoryview(column.buffers()[1])
        found = [bytes(raw[whole.size * at : whole.size * (at + 1)][::-1]) for at in range(len(rows))]
        assert [one for one, want in zip(found, wanted, strict=True) if want is not None] == [
            want for want in wanted if want is not None
        ]
    else:
        assert column.to_pylist() == wanted


def seeds() -> list[bytes]:
    """Sound values of each decoder, cut, longer, and with bytes at their limits."""
    made = []
    for number, name in enumerate(NAMES):
        good = sample(name)
        low, high = bytes(len(good)), b"\xff" * len(good)
        texts = [b"\xc3", "é".encode() * 9, b"\xed\xa0\x80", b"\xf4\x90\x80\x80"] if FORMATS[name] == "u" else []
        made += [bytes([number]) + one for one in (good, good[:-1], good + b"\0", low, high, *texts)]
    return made
