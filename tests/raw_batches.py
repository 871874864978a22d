"""Segment files of record batches, made byte by byte from format.md §1, §2 and §7, by no code of the package."""

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import crc32c

from tests.builder import R, record_body, varint

Row = tuple[int, bytes | None, bytes | None]
"""(timestamp, key, value)."""


def batch(
    base_offset: int,
    rows: Iterable[Row | bytes],
    *,
    deltas: Sequence[int] | None = None,
    last_delta: int | None = None,
    attributes: int = 0,
    epoch: int = 0,
    magic: int = 2,
    timestamp: int = 1000,
) -> bytes:
    """One v2 batch; a row of bytes alone is a value with the key None and the time `timestamp`."""
    full = [(timestamp, None, row) if isinstance(row, bytes) else row for row in rows]
    deltas = range(len(full)) if deltas is None else deltas
    first = full[0][0] if full else -1
    payload = b"".join(record(d, t, k, v, first) for d, (t, k, v) in zip(deltas, full, strict=True))
    last = last_delta if last_delta is not None else max(deltas, default=0)
    tail = struct.pack(
        ">hiqqqhii", attributes, last, first, max((t for t, _, _ in full), default=-1), -1, -1, -1, len(full)
    )
    return framed(base_offset, tail + payload, epoch=epoch, magic=magic)


def record(delta: int, timestamp: int, key: bytes | None, value: bytes | None, base_timestamp: int) -> bytes:
    """One record with its length."""
    body = record_body(R(value, key, timestamp), base_timestamp, delta)
    return varint(len(body)) + body


def framed(base_offset: int, body: bytes, *, epoch: int = 0, magic: int = 2) -> bytes:
    """The batch whose bytes from the attributes on are `body`, with size and CRC made to fit."""
    return struct.pack(">qiibI", base_offset, len(body) + 9, epoch, magic, crc32c.crc32c(body)) + body


def batches(first: int, count: int, per_batch: int, *, size: int = 20, timestamp: int = 1000) -> list[bytes]:
    """`count` batches of `per_batch` records: value `v<offset>` padded to `size`, time `timestamp` + offset."""
    made = []
    for base in range(first, first + count * per_batch, per_batch):
        rows = [(timestamp + n, b"k%d" % n, b"v%d" % n + b"." * max(0, size - len(b"v%d" % n)))
                for n in range(base, base + per_batch)]  # fmt: skip
        made.append(batch(base, rows))
    return made


def index_entries(base: int, parts: Sequence[bytes], interval: int = 4096) -> tuple[bytes, bytes]:
    """Return the content of `.index` and `.timeindex` for these batches, by the rule of format.md §7."""
    offsets, times = b"", b""
    position = since = 0
    largest, offset_of_largest = -1, -1
    for part in parts:
        first, size = struct.unpack_from(">qi", part)
        last = first + struct.unpack_from(">i", part, 23)[0]
        (time,) = struct.unpack_from(">q", part, 35)
        if time > largest:
            largest, offset_of_largest = time, last
        if since > interval:
            offsets += struct.pack(">ii", last - base, position)
            times += struct.pack(">qi", largest, offset_of_largest - base)
            since = 0
        since += size + 12
        position += size + 12
    return offsets, times


def write_segment(
    directory: Path, base: int, parts: Sequence[bytes], *, interval: int = 4096, preallocated: int = 0
) -> Path:
    """The three files of a segment; `preallocated` zero entries after the real ones, as a live broker has them."""
    directory.mkdir(parents=True, exist_ok=True)
    name = f"{base:020d}"
    offsets, times = index_entries(base, parts, interval)
    (directory / f"{name}.index").write_bytes(offsets + bytes(8 * preallocated))
    (directory / f"{name}.timeindex").write_bytes(times + bytes(12 * preallocated))
    path = directory / f"{name}.log"
    path.write_bytes(b"".join(parts))
    return path
