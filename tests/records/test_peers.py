"""aiokafka reads what is written here, and the reverse, for every format and codec it has."""

import pytest

from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.compression import compress, decompress
from kafkalog.records.format import CompressionType
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.records.memory import MemoryRecords

record = pytest.importorskip("aiokafka.record")
from aiokafka import codec as theirs  # noqa: E402
from aiokafka.record.default_records import DefaultRecordBatchBuilder  # noqa: E402
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder  # noqa: E402
from aiokafka.record.memory_records import MemoryRecords as TheirRecords  # noqa: E402

T = 1_700_000_000_000
# it has no lz4 for v0, and no implementation has zstd for v0 and v1
KINDS = [
    (magic, codec)
    for magic, highest in ((0, CompressionType.SNAPPY), (1, CompressionType.LZ4), (2, CompressionType.ZSTD))
    for codec in CompressionType
    if codec <= highest
]
kinds = pytest.mark.parametrize(("magic", "codec"), KINDS)
HEADERS = [(), (("h", b"1"), ("h", None)), (("", b""), ("\u00e9", b"\xff\0"))]
ROWS = [
    (T + n, b"key %d" % n if n % 3 else None, b"value %d " % n * 20 if n % 5 else None, HEADERS[n % 3])
    for n in range(1500)
]
Tuple = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def read_rows(data: bytes) -> list[Tuple]:
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for b in MemoryRecords(data).batches() for r in b]


def expected_rows(base: int, magic: int) -> list[Tuple]:
    return [(base + n, t if magic else -1, k, v, h if magic == 2 else ()) for n, (t, k, v, h) in enumerate(ROWS)]


@kinds
def test_they_read_ours(magic: int, codec: CompressionType) -> None:
    builder: RecordsBuilder | LegacyBuilder
    builder = RecordsBuilder(7, compression=codec) if magic == 2 else LegacyBuilder(7, magic=magic, compression=codec)
    for row in ROWS:
        builder.append(*row[: 4 if magic == 2 else 3])
    found = []
    records = TheirRecords(bytes(builder.build()))
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        found += [
            (r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch
        ]
    assert found == expected_rows(7, magic)


@kinds
def test_we_read_theirs(magic: int, codec: CompressionType) -> None:
    if magic == 2:
        builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 24)
        for n, (time, key, value, headers) in enumerate(ROWS):
            builder.append(n, time, key, value, list(headers))
    else:
        builder = LegacyRecordBatchBuilder(magic, codec, 1 << 24)
        for n, (time, key, value, _) in enumerate(ROWS):
            builder.append(n, time, key, value)
    assert read_rows(bytes(builder.build())) == expected_rows(0, magic)


@pytest.mark.parametrize("size", [1, 100, 70_000, 200_000])
@pytest.mark.parametrize(
    ("codec", "encode", "decode"),
    [
        (1, theirs.gzip_encode, theirs.gzip_decode),
        (2, theirs.snappy_encode, theirs.snappy_decode),
        (3, None, theirs.lz4_decode),
        (4, theirs.zstd_encode, theirs.zstd_decode),
    ],
)
def test_frames(codec: int, encode, decode, size: int) -> None:
    data = (b"text that repeats, " * (size // 10 + 1))[:size]
    assert bytes(decode(bytes(compress(codec, data)))) == data
    if encode is not None:
        assert decompress(codec, bytes(encode(data))) == data
