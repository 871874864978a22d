"""A slow, plain reader of the records of a batch or message: the oracle for bytes that may be damaged in any way."""

import struct
from typing import NamedTuple

from tests.reference_text import wrapped

RECORDS_AT = 61


class Read(NamedTuple):
    """A record as it stands in its batch, with the offset and the timestamp (ms) that follow from the header."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Damage(Exception):
    """The bytes do not hold what they say."""


class Reader:
    """Reads fields from the front of some bytes; Damage where they end too early."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        if size < 0 or size > self.left:
            raise Damage(f"{size} bytes of {self.left}")
        self.at += size
        return self.data[self.at - size : self.at]

    def zigzag(self, bits: int) -> int:
        raw = 0
        for number in range(-(-bits // 7)):
            byte = self.take(1)[0]
            raw |= (byte & 0x7F) << (7 * number)
            if byte < 0x80:
                raw &= (1 << bits) - 1
                return wrapped((raw >> 1) ^ -(raw & 1), bits)
        raise Damage("a long varint")

    def sized(self) -> bytes | None:
        size = self.zigzag(32)
        return None if size < 0 else self.take(size)


def read_record(reader: Reader, base_offset: int, base_timestamp: int, stamped: int | None) -> Read:
    """The record at the front; `stamped` is the batch's own time where that counts for all."""
    body = Reader(reader.take(reader.zigzag(32)))
    body.take(1)
    timestamp = wrapped(base_timestamp + body.zigzag(64))
    offset = wrapped(base_offset + body.zigzag(32))
    key, value = body.sized(), body.sized()
    count = body.zigzag(32)
    if not 0 <= count <= body.left:
        raise Damage("a header count")
    headers = []
    for _ in range(count):
        name = body.sized()
        if name is None:
            raise Damage("a header without name")
        headers.append((name.decode("utf-8", "replace"), body.sized()))
    if body.left:
        raise Damage("bytes left in a record")
    return Read(offset, timestamp if stamped is None else stamped, key, value, tuple(headers))


def read_batch(batch: bytes) -> tuple[list[Read], bool]:
    """The records of one whole uncompressed v2 batch before the first damage, and whether all of it was sound."""
    base_offset, _, _, magic, _, attributes, _, base_timestamp, max_timestamp, _, _, _, count = struct.unpack_from(
        ">qiibIhiqqqhii", batch
    )
    assert magic == 2 and attributes & 7 == 0
    reader = Reader(batch[RECORDS_AT:])
    records: list[Read] = []
    try:
        for _ in range(count):
            stamped = max_timestamp if attributes & 8 else None
            records.append(read_record(reader, base_offset, base_timestamp, stamped))
    except Damage:
        return records, False
    return records, count >= 0 and reader.left == 0


def read_message(message: bytes) -> tuple[list[Read], bool]:
    """The record of one whole uncompressed v0 or v1 message, and whether it was sound; more bytes are left alone."""
    offset, _, _, magic, attributes = struct.unpack_from(">qiIbb", message)
    assert magic in (0, 1) and attributes & 7 == 0
    reader = Reader(message[18:])
    try:
        timestamp = struct.unpack(">q", reader.take(8))[0] if magic else -1
        fields = []
        for _ in range(2):
            (size,) = struct.unpack(">i", reader.take(4))
            fields.append(None if size < 0 else reader.take(size))
    except Damage:
        return [], False
    return [Read(offset, timestamp, fields[0], fields[1], ())], True
