"""A slow, plain encoder of v2 batches: the oracle of the compiled code, and the maker of bad bytes."""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

HEADER = struct.Struct(">qiibIhiqqqhii")
Headers = Sequence[tuple[str, bytes | None]]


class R(NamedTuple):
    """A record for the builder: timestamp in ms, offset delta None for the next one."""

    value: bytes | None = b"v"
    key: bytes | None = None
    timestamp: int = 1_700_000_000_000
    headers: Headers = ()
    delta: int | None = None


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record_body(r: R, base_timestamp: int, delta: int) -> bytes:
    out = b"\0" + varint(r.timestamp - base_timestamp) + varint(delta) + sized(r.key) + sized(r.value)
    out += varint(len(r.headers))
    for name, value in r.headers:
        out += sized(name.encode()) + sized(value)
    return out


def crc32c_of_byte(crc: int) -> int:
    """Bit by bit: slow and plain."""
    for _ in range(8):
        crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc


_OF_BYTES = [crc32c_of_byte(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    """Byte by byte."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _OF_BYTES[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def frame(
    records: bytes,
    *,
    count: int,
    last_delta: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    attributes: int = 0,
    base_timestamp: int = -1,
    max_timestamp: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """A batch around ready record bytes, with the right checksum whatever the fields say."""
    checked = struct.pack(
        ">hiqqqhii", attributes, last_delta, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence,
        count,
    ) + records  # fmt: skip
    head = struct.pack(">qiib", base_offset, len(checked) + 9, leader_epoch, 2)
    return head + struct.pack(">I", crc32c(checked)) + checked


def batch(records: Iterable[R | bytes], **fields: int) -> bytes:
    """One v2 batch of these records; header fields by keyword override what follows from the records."""
    rows = [r if isinstance(r, R) else R(r) for r in records]
    base_timestamp = fields.pop("base_timestamp", rows[0].timestamp if rows else -1)
    out, delta, last = b"", -1, -1
    for r in rows:
        delta = delta + 1 if r.delta is None else r.delta
        body = record_body(r, base_timestamp, delta)
        out += varint(len(body)) + body
        last = delta
    fields.setdefault("count", len(rows))
    fields.setdefault("last_delta", last)
    fields.setdefault("max_timestamp", max((r.timestamp for r in rows), default=-1))
    return frame(out, base_timestamp=base_timestamp, **fields)


def seal(data: bytes) -> bytes:
    """Return the v2 batch with a correct checksum."""
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def message_v1(offset: int, value: bytes | None, key: bytes | None = None, timestamp: int = 5) -> bytes:
    """An uncompressed v1 message."""
    import zlib

    body = struct.pack(">bbq", 1, 0, timestamp)
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body
