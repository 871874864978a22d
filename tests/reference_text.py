"""The dump tool's text and the text of records, by plain slow Python from format.md sections 12 and 13: the oracle."""

import base64
import re
import struct
import zlib
from collections.abc import Sequence
from typing import Any

from tests.builder import HEADER, R, crc32c

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def java_text(data: bytes) -> str:
    """Return Java's decoding of bytes as UTF-8: Python's replacement, but one U+FFFD for a surrogate (A4)."""
    return SURROGATE.sub(b"\xef\xbf\xbd", data).decode(errors="replace")


def wrapped(value: int, bits: int = 64) -> int:
    """The value as two's complement of so many bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def incremented(sequence: int, delta: int) -> int:
    """Sequence arithmetic: 0 follows 2147483647."""
    if sequence > wrapped(0x7FFFFFFF - delta, 32):
        return wrapped(delta - (0x7FFFFFFF - sequence) - 1, 32)
    return wrapped(sequence + delta, 32)


def java_bool(value: Any) -> str:
    return "true" if value else "false"


def batch_line(data: bytes, position: int) -> str:
    """The line of one whole v2 batch."""
    (base, length, epoch, magic, crc, attributes, last_delta, first_time, max_time, producer, producer_epoch, sequence,
     count) = HEADER.unpack_from(data)  # fmt: skip
    last_sequence = -1 if sequence == -1 else incremented(sequence, last_delta)
    horizon = f"OptionalLong[{first_time}]" if attributes & 64 else "OptionalLong.empty"
    return (
        f"baseOffset: {base} lastOffset: {wrapped(base + last_delta, 64)} count: {count} baseSequence: {sequence} "
        f"lastSequence: {last_sequence} producerId: {producer} producerEpoch: {producer_epoch} "
        f"partitionLeaderEpoch: {epoch} isTransactional: {java_bool(attributes & 16)} "
        f"isControl: {java_bool(attributes & 32)} deleteHorizonMs: {horizon} position: {position} "
        f"{'LogAppendTime' if attributes & 8 else 'CreateTime'}: {max_time} size: {length + 12} magic: {magic} "
        f"compresscodec: {CODECS[attributes & 7]} crc: {crc} isvalid: {java_bool(crc == crc32c(data[21:]))}\n"
    )


def message_line(data: bytes, position: int) -> str:
    """The line of one whole message of format v0 or v1."""
    offset, length, crc, magic, attributes = struct.unpack_from(">qiIbb", data)
    time = struct.unpack_from(">q", data, 18)[0] if magic else -1
    kind = ("LogAppendTime" if attributes & 8 else "CreateTime") if magic else "NoTimestampType"
    return (
        f"offset: {offset} position: {position} {kind}: {time} size: {length + 12} magic: {magic} "
        f"compresscodec: {CODECS[attributes & 7]} crc: {crc} isvalid: {java_bool(zlib.crc32(data[16:]) == crc)}\n"
    )


def record_data(r: R, bar: str) -> str:
    text = ""
    if r.key is not None:
        text = f"{bar} key: {java_text(r.key)}"
        bar = ""
    return text if r.value is None else f"{text}{bar} payload: {java_text(r.value)}"


def record_line(r: R, delta: int, batch: bytes, *, data: bool, skip_metadata: bool = False) -> str:
    """The line of one record of the batch."""
    fields = HEADER.unpack_from(batch)
    base, attributes, max_time, sequence = fields[0], fields[5], fields[8], fields[11]
    if skip_metadata:
        return (record_data(r, "|") if data else "") + "\n"
    kind, time = ("LogAppendTime", max_time) if attributes & 8 else ("CreateTime", r.timestamp)
    own = incremented(sequence, delta) if sequence >= 0 else -1
    names = ",".join(name for name, _ in r.headers)
    text = (
        f"| offset: {wrapped(base + delta, 64)} {kind}: {time} keySize: {-1 if r.key is None else len(r.key)} "
        f"valueSize: {-1 if r.value is None else len(r.value)} sequence: {own} headerKeys: [{names}]"
    )
    return text + (record_data(r, "") if data else "") + "\n"


def deltas_of(rows: Sequence[R]) -> list[int]:
    """Offset deltas: given, or the next one."""
    deltas: list[int] = []
    for r in rows:
        deltas.append((deltas[-1] if deltas else -1) + 1 if r.delta is None else r.delta)
    return deltas


def deep_text(rows: Sequence[R], batch: bytes, position: int, *, data: bool = True, skip_metadata: bool = False) -> str:
    """Batch line and record lines."""
    lines = [
        record_line(r, delta, batch, data=data, skip_metadata=skip_metadata)
        for r, delta in zip(rows, deltas_of(rows), strict=True)
    ]
    return batch_line(batch, position) + "".join(lines)


def as_json(data: bytes | None) -> tuple[str | None, bool]:
    """A JSON value and whether it is base64."""
    if data is None:
        return None, False
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), True


def json_object(r: R, offset: int, *, topic: str, partition: int) -> dict[str, Any]:
    """The fields of one line of `consume -J`, for a batch with CreateTime."""
    found: dict[str, Any] = {"topic": topic, "partition": partition, "offset": offset, "tstype": "create"}
    found |= {"ts": r.timestamp, "broker": -1}
    if r.headers:
        flat = [part for name, value in r.headers for part in (name.encode(), value)]
        as_text = all(not as_json(part)[1] for part in flat)
        found["headers"] = [
            None if part is None else part.decode() if as_text else base64.b64encode(part).decode() for part in flat
        ]
        if not as_text:
            found["headers_encoding"] = "base64"
    for name, data in (("key", r.key), ("payload", r.value)):
        found[name], encoded = as_json(data)
        if encoded:
            found[f"{name}_encoding"] = "base64"
    return found
