"""Batches of every format and codec: the reference reads what we build, and we what it builds, record by record."""

import base64
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import pytest

import kafkalog
from kafkalog.errors import UnsupportedCompression
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.format import CompressionType, TimestampType
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.records.memory import MemoryRecords
from tests.interop.reference import Bytes, RecordTuple, Reference, record_row, record_tuple

T = 1_700_000_000_000
BASE = 40
# no implementation has zstd for v0 and v1
KINDS = [(magic, codec) for magic in (0, 1, 2) for codec in CompressionType if magic == 2 or codec < 4]
kinds = pytest.mark.parametrize(("magic", "codec"), KINDS)
LEVELS = [
    *((CompressionType.GZIP, level) for level in (-1, 1, 9)),
    *((CompressionType.LZ4, level) for level in (1, 9, 17)),
    *((CompressionType.ZSTD, level) for level in (-131072, -1, 3, 22)),
]


class Row(NamedTuple):
    """A record as `Reference` takes one."""

    timestamp: int
    key: Bytes
    value: Bytes
    headers: Sequence[tuple[str, Bytes]] = ()


def plain_rows() -> list[Row]:
    """Null and empty keys and values, headers of every kind, times that go back, and none."""
    return [
        Row(T, None, None),
        Row(T + 5, b"", b""),
        Row(T - 3, b"key", b"value", [("h", b"1"), ("h", None), ("", b""), ("é", b"\xff\0")]),
        Row(-1, b"k" * 200, None),
        Row(0, None, b"\0" * 9),
        Row(T + 2**41, b"\xff", b"v" * 127),
    ]


def big_rows() -> list[Row]:
    """Values that fill many blocks of each codec: some repeat, some cannot be made smaller."""
    random = Random(4)
    text = b"a value that repeats, " * 20_000
    return [
        Row(T, b"k", text),
        Row(T + 1, random.randbytes(70_000), random.randbytes(200_000)),
        Row(T + 2, None, text[: 1 << 16]),
        Row(T + 3, None, random.randbytes((1 << 16) + 1)),
        *(Row(T + n, b"%d" % n, random.randbytes(100)) for n in range(500)),
    ]


def exact_rows() -> list[Row]:
    """Sets whose last block ends near a block's border."""
    return [Row(T, None, b"x" * size) for size in (32768 - 80, 1, 32768, 1 << 16, (1 << 16) - 15, 0)]


ROWS = {"plain": plain_rows(), "big": big_rows(), "exact": exact_rows()}
each = pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)


def ours(magic: int, codec: CompressionType, rows: list[Row], **more: Any) -> bytes:
    """The set as our builder makes it."""
    kind = TimestampType.LOG_APPEND_TIME if "log_append_time" in more else TimestampType.CREATE_TIME
    make: Any = RecordsBuilder if magic == 2 else LegacyBuilder
    builder = make(BASE, magic=magic, compression=codec, timestamp_type=kind, **more)
    for row in rows:
        builder.append(*row[: 4 if magic == 2 else 3])
    return bytes(builder.build())


def theirs(reference: Reference, magic: int, codec: CompressionType, rows: list[Row], **more: Any) -> bytes:
    """The set as the reference's builder makes it."""
    records = [record_row(*row[: 4 if magic == 2 else 3]) for row in rows]
    answer = reference.ask(
        "build_set", magic=magic, codec=codec.name.lower(), base_offset=BASE, records=records, **more
    )
    return base64.b64decode(answer)


def read_by_them(reference: Reference, data: bytes) -> tuple[list[dict[str, Any]], list[RecordTuple]]:
    """The fields of the batches, and all their records."""
    batches = reference.ask("read_set", data=base64.b64encode(data).decode())
    return batches, [record_tuple(row) for batch in batches for row in batch["records"]]


def read_by_us(data: bytes) -> list[RecordTuple]:
    found = []
    for batch in MemoryRecords(data).batches():
        batch.ensure_valid()
        found += [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in batch]
    return found


def expected(magic: int, rows: list[Row], time: int | None = None) -> list[RecordTuple]:
    """Return what both read: v0 has no times, only v2 has headers; a log's own `time` stands for all."""
    return [
        (
            BASE + n,
            -1 if magic == 0 else row.timestamp if time is None else time,
            row.key,
            row.value,
            tuple(row.headers) if magic == 2 else (),
        )
        for n, row in enumerate(rows)
    ]


@each
@kinds
def test_they_read_ours(reference: Reference, magic: int, codec: CompressionType, rows: list[Row]) -> None:
    data = ours(magic, codec, rows)
    batches, records = read_by_them(reference, data)
    assert records == expected(magic, rows)
    assert {(batch["magic"], batch["codec"]) for batch in batches} == {(magic, codec.name.lower())}
    assert sum(batch["size"] for batch in batches) == len(data)


@each
@kinds
def test_we_read_theirs(reference: Reference, magic: int, codec: CompressionType, rows: list[Row]) -> None:
    assert read_by_us(theirs(reference, magic, codec, rows)) == expected(magic, rows)


@pytest.mark.parametrize("rows", [ROWS["plain"]])
@pytest.mark.parametrize(("magic", "codec"), [kind for kind in KINDS if kind[0] > 0])
def test_log_append_time(reference: Reference, magic: int, codec: CompressionType, rows: list[Row]) -> None:
    """REC-41: every record has the log's time, on both sides."""
    mine = ours(magic, codec, rows, log_append_time=T + 77)
    batches, records = read_by_them(reference, mine)
    assert records == expected(magic, rows, T + 77)
    assert {(batch["timestamp_type"], batch["max_timestamp"]) for batch in batches} == {(1, T + 77)}
    assert read_by_us(theirs(reference, magic, codec, rows, log_append_time=T + 77)) == expected(magic, rows, T + 77)


@each
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_uncompressed_sets_are_equal_bytes(reference: Reference, magic: int, rows: list[Row]) -> None:
    codec = CompressionType.NONE
    assert ours(magic, codec, rows) == theirs(reference, magic, codec, rows)


@pytest.mark.parametrize(("codec", "level"), LEVELS)
def test_levels(reference: Reference, codec: CompressionType, level: int) -> None:
    """REC-44: lowest, default and highest."""
    rows = ROWS["big"]
    _, records = read_by_them(reference, ours(2, codec, rows, level=level))
    assert records == expected(2, rows)
    assert read_by_us(theirs(reference, 2, codec, rows, level=level)) == expected(2, rows)


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize("transactional", [False, True])
def test_headers_of_producers(reference: Reference, codec: CompressionType, transactional: bool) -> None:
    """REC-12: base sequence, producer, epochs and flags are read as they were written."""
    fields: dict[str, Any] = {
        "producer_id": 2**40, "producer_epoch": 3, "base_sequence": 2**31 - 2, "leader_epoch": 17,
    }  # fmt: skip
    rows = ROWS["plain"]
    mine = ours(2, codec, rows, is_transactional=transactional, **fields)
    (batch,), records = read_by_them(reference, mine)
    assert records == expected(2, rows)
    assert {name: batch[name] for name in fields} == fields
    assert (batch["is_transactional"], batch["is_control"]) == (transactional, False)
    built = theirs(reference, 2, codec, rows, transactional=transactional, **fields)
    (header,) = MemoryRecords(built).table
    assert {name: getattr(header, name) for name in fields} == fields
    assert (header.is_transactional, header.is_control) == (transactional, False)
    if codec == CompressionType.NONE:
        assert mine == built


@pytest.mark.parametrize("target", [0, 1, 2])
@kinds
def test_they_read_what_we_convert(reference: Reference, magic: int, codec: CompressionType, target: int) -> None:
    """Up and down: offsets, keys and values stay; times and headers as far as both formats have them."""
    rows = ROWS["plain"]
    source = ours(magic, codec, rows)
    if target < 2 and codec == CompressionType.ZSTD:
        with pytest.raises(UnsupportedCompression):
            kafkalog.convert(source, target)
        return
    batches, records = read_by_them(reference, bytes(kafkalog.convert(source, target)))
    assert {(batch["magic"], batch["codec"]) for batch in batches} == {(target, codec.name.lower())}
    lost_times, lost_headers = min(magic, target) == 0, min(magic, target) < 2
    assert records == [
        (offset, -1 if lost_times else time, key, value, () if lost_headers else headers)
        for offset, time, key, value, headers in expected(2, rows)
    ]
