"""Record tables of runs of batches, plain and compressed, and where they stop."""

import gc
import struct
import tracemalloc
import weakref

import pytest

from kafkalog._core.batch.decode import RecordTable
from kafkalog._core.batch.legacy import MessageSet
from kafkalog._core.batch.record import Record
from kafkalog._core.batch.repack import with_payload
from kafkalog._core.batch.scan import scan
from kafkalog.errors import CorruptRecord, IllegalArgument, InvalidRecord, KafkalogError, UnsupportedForFormat
from kafkalog.records import tables
from kafkalog.records.batch import RecordBatch
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.compression import compress
from kafkalog.records.format import CompressionType
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.records.plain_runs import plain_row
from tests.builder import R, batch, frame, record_body, seal, varint

T = 1_700_000_000_000
CODECS = list(CompressionType)
Made = list[tuple[bytes, list[Record]]]


def build_batch(base: int, codec: int, magic: int = 2, count: int = 20) -> tuple[bytes, list[Record]]:
    """A batch and its records."""
    builder: RecordsBuilder | LegacyBuilder
    if magic == 2:
        builder = RecordsBuilder(base, compression=CompressionType(codec))
    else:
        builder = LegacyBuilder(base, magic=magic, compression=CompressionType(codec))
    headers = [("h", b"%d" % base), ("n", None)] if magic == 2 else []
    rows = [(T + n, b"k%d" % n, b"value %d " % n * 9) for n in range(count)]
    for row in rows:
        builder.append(*row, headers)
    time = (lambda t: t) if magic else (lambda t: -1)
    return bytes(builder.build()), [Record(v, k, time(t), headers, base + n) for n, (t, k, v) in enumerate(rows)]


def build_batches(*kinds: tuple[int, int]) -> Made:
    return [build_batch(20 * n, codec, magic) for n, (codec, magic) in enumerate(kinds)]


MIXED = build_batches((3, 2), (0, 2), (1, 0), (0, 1), (4, 2), (2, 1), (2, 2), (0, 0), (3, 0), (1, 2))


def read_records(data: bytes, first: int = 0, last: int = -1, **options: int) -> list[Record]:
    return [r for table in tables.record_tables(data, scan(data), first, last, **options) for r in table]


def join(parts: Made) -> tuple[bytes, list[Record]]:
    return b"".join(data for data, _ in parts), [r for _, records in parts for r in records]


@pytest.mark.parametrize("codec", CODECS)
def test_one_codec(codec: CompressionType) -> None:
    """REC-21: every codec gives the records of the plain batch."""
    data, records = join([build_batch(20 * n, codec) for n in range(5)])
    assert read_records(data) == records
    table = tables.batch_table(data, scan(data), 2)
    assert list(table) == records[40:60]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_one_batch_without_its_compression(magic: int) -> None:
    """A v2 header and the records, or a run of messages with their own offsets."""
    data, records = build_batch(7, CompressionType.GZIP, magic)
    plain = bytes(plain_row(b"before" + data, scan(b"before" + data, 6), 0)[0])
    if magic == 2:
        assert plain[61:] == build_batch(7, CompressionType.NONE)[0][61:]
    assert read_records(plain) == records
    broken = data[:-30]
    broken = broken[:8] + struct.pack(">i", len(broken) - 12) + broken[12:]
    with pytest.raises(KafkalogError) as caught:
        plain_row(broken, scan(broken, check_crc=False), 0, path="f.log")
    assert caught.value.path == "f.log"


def test_formats_and_codecs_mixed() -> None:
    data, records = join(MIXED)
    assert read_records(data) == records
    batches = scan(data)
    rows = [row for row in range(len(batches)) if batches.base_offset(row) in range(40, 100)]
    found = [r for table in tables.record_tables(data, batches, rows[0], rows[-1] + 1) for r in table]
    assert {(r.offset in range(20, 100)) for r in found} == {True}


def test_a_run_begins_and_ends_anywhere() -> None:
    data, _ = join(build_batches((3, 2), (4, 2), (0, 2), (1, 2)))
    for first in range(4):
        for last in range(first, 5):
            assert [r.offset for r in read_records(data, first, last)] == list(range(20 * first, 20 * last))


def test_large_runs_come_in_several_tables() -> None:
    data, records = join([build_batch(2000 * n, 4, count=2000) for n in range(20)])
    found = list(tables.record_tables(data, scan(data)))
    assert len(found) > 3
    assert [r.offset for table in found for r in table] == [r.offset for r in records]
    assert [table.batch_of(0) for table in found] == [0] * len(found)


@pytest.mark.parametrize("codec", [c for c in CODECS if c])
def test_declared_counts_of_compressed_batches(codec: CompressionType) -> None:
    """REC-9."""
    rows = [R(b"a"), R(b"b"), R(b"c")]
    payload = compress(codec, batch(rows)[61:])
    for count, reason in ((2, "left after"), (4, "more records"), (2**30, "more records"), (-1, "negative")):
        data = bytes(with_payload(batch(rows, count=count, base_offset=7), payload, codec))
        with pytest.raises(InvalidRecord, match=reason) as raised:
            read_records(data)
        assert (raised.value.offset, raised.value.position) == (7, 0)


RECORD = record_body(R(b"v", b"k", T), T, 0)
HEAD = b"\0" + varint(0) + varint(0)
UNSOUND = {
    "REC-3 header key of length -1": HEAD + varint(-1) * 2 + varint(1) + varint(-1) * 2,
    "REC-4 length past the end": varint(len(RECORD) + 1) + RECORD,
    "REC-5 fields shorter than the length": varint(len(RECORD) + 1) + RECORD + b"\0",
    "REC-5 fields longer than the length": varint(len(RECORD) - 1) + RECORD,
    "REC-6 header count of -1": HEAD + varint(-1) * 2 + varint(-1),
    "REC-6 header count above the bytes left": HEAD + varint(-1) * 2 + varint(2**31 - 1),
    "REC-7 key past the end": HEAD + varint(100) + b"k",
    "REC-7 value past the end": HEAD + varint(-1) + varint(100) + b"v",
    "REC-7 header value past the end": HEAD + varint(-1) * 2 + varint(1) + varint(1) + b"h" + varint(100),
    "REC-8 endless varint": b"\x80" * 30,
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_records(codec: CompressionType, name: str) -> None:
    """Whole, as a stream and without keys and values, in every codec: InvalidRecord (REC-3 to REC-8)."""
    body = UNSOUND[name]
    records = varint(len(body)) + body if body.startswith(HEAD) else body
    plain = frame(records, count=1, last_delta=0, base_offset=9, base_timestamp=T, max_timestamp=T)
    data = bytes(with_payload(plain, compress(codec, records), codec))
    one = RecordBatch(data, scan(data), 0)
    one.ensure_valid()
    for walk in (one.records, one.sizes, lambda: list(one), lambda: read_records(data)):
        with pytest.raises(InvalidRecord) as raised:
            walk()
        assert raised.value.offset == 9


@pytest.mark.parametrize(
    ("value", "inner_codec", "codec", "offset", "words"),
    [
        (None, 0, 1, 3, "no value"),
        (b"", 0, 1, 3, "no inner messages"),
        (b"m", 2, 1, 3, "another compressed"),
        (b"m", 0, 4, 3, "zstd"),
        (b"mmm", 0, 1, 1, "lies below"),
    ],
)
def test_unsound_wrappers(value: bytes | None, inner_codec: int, codec: int, offset: int, words: str) -> None:
    """REC-38, REC-39: InvalidRecord from a batch and from a run of them."""
    inner = MessageSet(1)
    for n in range(len(value or b"")):
        inner.append(n, T, None, b"v", attributes=inner_codec)
    outer = MessageSet(1)
    outer.append(offset, T, None, None if value is None else compress(1, inner.build()), attributes=codec)
    data = bytes(outer.build())
    one = RecordBatch(data, scan(data), 0)
    one.ensure_valid()
    for walk in (one.records, lambda: read_records(data)):
        with pytest.raises(InvalidRecord, match=words):
            walk()


@pytest.mark.parametrize("codec", [c for c in CODECS if c])
def test_damage_stops_behind_the_records_before_it(codec: CompressionType) -> None:
    good, records = join(build_batches((0, 2), (int(codec), 2)))
    bad = bytearray(build_batch(40, codec)[0])
    bad[61:66] = b"\x04\x22\x4d\x18\x99"
    after = build_batch(60, codec)[0]
    data = good + seal(bytes(bad)) + after
    found: list[Record] = []
    with pytest.raises(InvalidRecord) as raised:
        for table in tables.record_tables(data, scan(data, base_position=0), path="some.log"):
            found += table
    assert found == records
    error = raised.value
    assert error.message.startswith(codec.name.lower())
    assert (error.path, error.offset) == ("some.log", 40)
    assert len(good) + 61 <= (error.position or 0) < len(data)


def test_positions_are_those_of_the_file() -> None:
    good, bad = build_batch(0, 3)[0], bytearray(build_batch(20, 3)[0])
    bad[61] ^= 1
    data = good + seal(bytes(bad))
    batches = scan(data, base_position=5000)
    with pytest.raises(InvalidRecord) as raised:
        list(tables.record_tables(data, batches, base_position=5000))
    assert raised.value.position == 5000 + len(good) + 61
    with pytest.raises(InvalidRecord) as raised:
        tables.batch_table(data, batches, 1, base_position=5000, path="p")
    assert (raised.value.position, raised.value.path) == (5000 + len(good) + 61, "p")


def test_each_kind_of_damage_has_its_error() -> None:
    """REC-23, REC-39, REC-43."""
    plain = batch([R()])
    short = bytearray(LegacyBuilder(0, magic=1).build() or build_batch(0, 0, 1, 1)[0])
    short[8:12] = (18).to_bytes(4, "big")
    nested = LegacyBuilder(5, compression=CompressionType.GZIP)
    nested.append(T, None, b"v")
    cases: list[tuple[bytes, type[KafkalogError], str]] = [
        (seal(plain[:22] + b"\x06" + plain[23:]), IllegalArgument, "id 6"),
        (bytes(short[:30]), CorruptRecord, "shorter"),
        (plain[:16] + b"\x05" + plain[17:], UnsupportedForFormat, "none of v0"),
        (bytes(nested.build())[:17] + b"\x04" + bytes(nested.build())[18:], InvalidRecord, "zstd"),
        (seal(frame(b"\x7f", count=1, last_delta=0)), InvalidRecord, "^record 0 of the batch: .*more records"),
    ]
    for data, kind, reason in cases:
        with pytest.raises(kind, match=reason):
            list(tables.record_tables(data, scan(data, file_mode=True)))


def test_the_limit_of_one_batch() -> None:
    data, records = join([build_batch(20 * n, 1) for n in range(3)])
    assert read_records(data, limit_bytes=10_000) == records
    with pytest.raises(InvalidRecord, match="limit of 100 bytes"):
        read_records(data, limit_bytes=100)


def test_a_bomb_among_batches_takes_no_memory() -> None:
    bombs = b"".join(
        bytes(with_payload(batch([R()], base_offset=n), compress(4, bytes(32 << 20)), 4)) for n in range(20)
    )
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecord, match="limit"):
            read_records(bombs, limit_bytes=1 << 20)
        with pytest.raises(InvalidRecord):
            read_records(bombs, limit_bytes=33 << 20)
        assert tracemalloc.get_traced_memory()[1] < 90 << 20
    finally:
        tracemalloc.stop()


def test_what_was_decompressed_goes_with_the_last_record() -> None:
    """REC-22: an iteration that stops early keeps nothing; past the end there is nothing more."""
    data, _ = join([build_batch(2000 * n, 3, count=2000) for n in range(6)])
    gc.disable()
    try:
        walk = tables.record_tables(data, scan(data))
        record = next(iter(next(walk)))
        block = weakref.ref(record.value_view.obj)  # type: ignore[union-attr]
        assert block() is not None
        del walk
        assert block() is not None
        del record
        assert block() is None
    finally:
        gc.enable()
    rest = iter(tables.batch_table(data, scan(data), 5))
    assert len(list(rest)) == 2000
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(rest)


def test_an_error_keeps_no_table() -> None:
    """No cycle of error, traceback and frame holds what was decompressed."""
    rows = [R(b"a" * 1000)] * 200
    packed = bytes(with_payload(batch(rows, count=500), compress(3, batch(rows)[61:]), 3))
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(InvalidRecord):
            read_records(packed)
        with pytest.raises(InvalidRecord):
            tables.batch_table(packed, scan(packed), 0)
        assert not [o for o in gc.get_objects() if isinstance(o, RecordTable)]
    finally:
        gc.enable()


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_an_error_of_a_codec_keeps_no_chunk(codec: int) -> None:
    """The codec's own error has frames too; they may not hold what was to be decompressed."""
    damaged = bytes(with_payload(batch([R(b"a")]), b"\x1f\x8b damaged in every codec", codec))
    chunk = bytearray(damaged)
    gc.disable()
    try:
        for call in (tables.batch_table, plain_row, lambda *a: list(tables.record_tables(*a))):
            with pytest.raises(InvalidRecord):
                call(memoryview(chunk), scan(chunk), 0)
            chunk.append(0)  # no view holds its bytes
            del chunk[-1]
    finally:
        gc.enable()


def test_a_compressed_batch_shorter_than_its_header() -> None:
    whole = with_payload(batch([R(b"a")]), b"", 1)
    cut = whole[:8] + struct.pack(">i", 40 - 12) + whole[12:40]
    table = scan(cut, file_mode=True, base_position=100)
    with pytest.raises(CorruptRecord, match="the batch of 40 bytes is smaller than its header of 61") as caught:
        plain_row(cut, table, 0, base_position=100, path="f.log")
    assert (caught.value.path, caught.value.position, caught.value.offset) == ("f.log", 100, 0)
