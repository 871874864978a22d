"""Partition directories of any format and codec, and a plain reading of their batches: header fields and records."""

import struct
from pathlib import Path
from typing import NamedTuple

from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.compression import decompress
from kafkalog.records.format import CompressionType, TimestampType
from kafkalog.records.legacy import LegacyBuilder
from tests.plain_reader import Read, read_batch, read_message
from tests.transactional import marker

NOW = 1_700_000_000_000
Row = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


class Made(NamedTuple):
    """A batch to write: format, codec, rows (key, value, headers), and gaps in front of each."""

    magic: int
    codec: CompressionType
    rows: list[Row]
    gaps: list[int]
    stamped: bool = False
    transactional: bool = False


class Batch(NamedTuple):
    """A batch on disk: what must stay when it is redacted, and its records."""

    fixed: tuple[int, ...]
    records: list[Read]


def build(made: Made, base: int) -> tuple[bytes, int]:
    """The bytes of a batch that begins at `base`, and the offset after it."""
    kind = TimestampType.LOG_APPEND_TIME if made.stamped and made.magic else TimestampType.CREATE_TIME
    common = {"compression": made.codec, "timestamp_type": kind, "log_append_time": NOW + 99 if made.stamped else -1}
    if made.magic == 2:
        producer = {"producer_id": 7, "producer_epoch": 3, "base_sequence": base, "is_transactional": True}
        builder = RecordsBuilder(base, leader_epoch=4, **common, **(producer if made.transactional else {}))
    else:
        if not made.magic:
            common = {"compression": made.codec}
        builder = LegacyBuilder(base, magic=made.magic, **common)
    offset = base
    for (key, value, headers), gap in zip(made.rows, made.gaps, strict=True):
        offset += gap
        builder.append(NOW + offset, key, value, headers if made.magic == 2 else (), offset=offset)
        offset += 1
    data = bytes(builder.build())
    if made.transactional and made.magic == 2:
        data += marker(offset, 7, offset % 2)
        offset += 1
    return data, offset


def write(partition: Path, segments: list[list[Made]]) -> None:
    """Write the segment files of a partition, without indexes: the next opening makes them."""
    partition.mkdir(parents=True)
    offset = 0
    for batches in segments:
        base, data = offset, b""
        for made in batches:
            part, offset = build(made, offset)
            data += part
        (partition / f"{base:020d}.log").write_bytes(data)


def read(path: Path) -> list[Batch]:
    """The batches of a segment file, from its bytes alone."""
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        base, size, _, magic = struct.unpack_from(">qiib", data, at)
        frame = data[at : at + size + 12]
        if struct.unpack_from(">b", frame, 16)[0] < 2:
            found.append(_read_legacy(frame))
        else:
            fields = struct.unpack_from(">qiibIhiqqqhii", frame)
            codec = fields[5] & 7
            payload = bytes(decompress(codec, frame[61:])) if codec else frame[61:]
            plain = frame[:21] + struct.pack(">h", fields[5] & ~7) + frame[23:61] + payload
            records, is_sound = read_batch(plain)
            assert is_sound
            found.append(Batch((base, *fields[2:4], *fields[5:]), records))
        at += size + 12
    return found


def _read_legacy(frame: bytes) -> Batch:
    offset, _, _, magic, attributes = struct.unpack_from(">qiIbb", frame)
    codec = attributes & 7
    plain = frame[:17] + bytes([attributes & ~7]) + frame[18:]
    (message,), is_sound = read_message(plain)
    assert is_sound
    if not codec:
        return Batch((offset, magic, attributes), [message])
    inner, at, records = bytes(decompress(codec, message.value or b"", magic=magic)), 0, []
    while at < len(inner):
        size = struct.unpack_from(">i", inner, at + 8)[0] + 12
        (record,), is_sound = read_message(inner[at : at + size])
        assert is_sound
        records.append(record)
        at += size
    shift = offset - records[-1].offset if magic else 0
    stamp = message.timestamp if attributes & 8 else None
    records = [
        one._replace(offset=one.offset + shift, timestamp=one.timestamp if stamp is None else stamp) for one in records
    ]
    return Batch((offset, magic, attributes, message.timestamp), records)


def read_all(partition: Path) -> list[Batch]:
    """The batches of all segments of a partition."""
    return [batch for path in sorted(partition.glob("*.log")) for batch in read(path)]


def redacted(batch: Batch, wanted: set[int], *, tombstone: bool, erase_key: bool = False) -> Batch:
    """Return the expected redaction of a batch."""
    if len(batch.fixed) > 4 and batch.fixed[3] & 0x20:
        return batch
    records = []
    for one in batch.records:
        if one.offset in wanted:
            value = None if tombstone or one.value is None else b""
            key = b"" if erase_key and one.key is not None else one.key
            one = one._replace(key=key, value=value, headers=())
        records.append(one)
    return batch._replace(records=records)
