"""RecordsBuilder: the offsets, flags and refusals of the reference for format v2."""

import pytest

from kafkalog._core.batch.encode import BatchBuilder
from kafkalog._core.batch.scan import scan
from kafkalog.errors import IllegalArgument, IllegalState, RecordBatchTooLarge
from kafkalog.records.batch import RecordBatch
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.format import CompressionType, TimestampType
from kafkalog.records.memory import MemoryRecords
from tests.builder import R, batch

T = 1_700_000_000_000


def build(builder: RecordsBuilder) -> RecordBatch:
    data = builder.build()
    return RecordBatch(data, scan(data), 0)


def test_null_key_and_value_without_headers() -> None:
    """REC-1."""
    builder = RecordsBuilder(5)
    builder.append(T, None, None)
    record = build(builder).records()[0]
    assert (record.key, record.value, record.headers, record.offset) == (None, None, (), 5)


def test_headers_round_trip() -> None:
    """REC-2, and REC-3: a header without a name is an error."""
    builder = RecordsBuilder()
    wanted = (("a", None), ("b", b""), ("a", b"1"))
    builder.append(T, b"k", b"v", wanted)
    assert builder.count == 1
    with pytest.raises(TypeError, match="name"):
        builder.append(T, b"k", b"v", [(None, b"v")])
    assert build(builder).records()[0].headers == wanted


def test_offsets_must_grow_and_fit() -> None:
    """REC-24."""
    builder = RecordsBuilder(10)
    assert builder.append(T, None, b"a", offset=12) == 12
    for offset in (12, 11):
        with pytest.raises(IllegalArgument, match="is not above"):
            builder.append(T, None, b"b", offset=offset)
    with pytest.raises(IllegalArgument):
        builder.append(T, None, b"b", offset=10 + 2**31)
    assert builder.append(T, None, b"b") == 13
    assert [r.offset for r in build(builder).records()] == [12, 13]


def test_timestamps() -> None:
    """REC-25: -1 is none, anything else below 0 an illegal argument."""
    builder = RecordsBuilder()
    builder.append(-1, None, b"v")
    with pytest.raises(IllegalArgument, match="negative"):
        builder.append(-2, None, b"v")
    assert build(builder).header.max_timestamp == -1


def test_flags_that_do_not_fit_together() -> None:
    """REC-26."""
    with pytest.raises(IllegalArgument):
        RecordsBuilder(is_transactional=True)
    with pytest.raises(IllegalArgument):
        RecordsBuilder(producer_id=1, base_sequence=0)
    with pytest.raises(IllegalArgument):
        RecordsBuilder(producer_id=1, producer_epoch=0)
    RecordsBuilder(producer_id=1, producer_epoch=0, is_control=True)
    RecordsBuilder(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"is_transactional": True, "producer_id": 1},
        {"is_control": True},
        {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0},
        {"delete_horizon_ms": 5},
        {"compression": CompressionType.ZSTD},
    ],
)
@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_an_illegal_argument(magic: int, flags: dict[str, int]) -> None:
    """REC-27: v0 and v1 have none of this builder's flags; their builder is LegacyBuilder."""
    with pytest.raises(IllegalArgument, match=f"not v{magic}"):
        RecordsBuilder(magic=magic, **flags)


@pytest.mark.parametrize("codec", [c for c in CompressionType if c])
def test_compressed_batches(codec: CompressionType) -> None:
    """REC-21, REC-36: every header field, and the records, are those of the plain batch."""
    plain, packed = RecordsBuilder(7), RecordsBuilder(7, compression=codec)
    for builder in (plain, packed):
        for n in range(50):
            builder.append(T + n % 40, b"k", b"a value that repeats", (("h", None),), offset=7 + 2 * n)
    expected, batch_ = build(plain), build(packed)
    assert (batch_.is_valid, batch_.header.compression) == (True, codec)
    assert batch_.size < expected.size
    assert batch_.records() == list(batch_) == expected.records()
    assert (batch_.base_offset, batch_.last_offset, batch_.header.count) == (7, 105, 50)
    assert packed.info() == plain.info() == (T + 39, 105)


def test_a_codec_that_is_none() -> None:
    """REC-23, REC-28."""
    with pytest.raises(IllegalArgument, match="unknown compression id 5"):
        RecordsBuilder(compression=5)  # type: ignore[arg-type]
    assert RecordsBuilder(compression=CompressionType.GZIP).build() == b""


def test_empty_builder() -> None:
    """REC-28."""
    builder = RecordsBuilder(42)
    assert builder.next_offset == 42
    assert builder.build() == b""


def test_abort() -> None:
    """REC-29."""
    builder = RecordsBuilder()
    builder.append(T, None, b"v")
    builder.abort()
    with pytest.raises(IllegalState):
        builder.append(T, None, b"v")
    with pytest.raises(IllegalState):
        builder.build()


def test_control_records_and_control_batches() -> None:
    """REC-30."""
    with pytest.raises(IllegalArgument):
        RecordsBuilder().append_control(T, b"\0\0\0\0", b"")
    control = RecordsBuilder(producer_id=1, producer_epoch=0, is_transactional=True, is_control=True)
    with pytest.raises(IllegalArgument):
        control.append(T, b"k", b"v")
    control.append_control(T, b"\0\0\0\0", bytes(6))
    assert build(control).header.is_control


@pytest.mark.parametrize(
    ("kind", "times", "wanted"),
    [
        (TimestampType.CREATE_TIME, [-1, -1], (-1, -1)),
        (TimestampType.CREATE_TIME, [T + 5, T, T + 1], (T + 5, 12)),
        (TimestampType.LOG_APPEND_TIME, [T, T + 1], (T + 99, 11)),
    ],
)
def test_info(kind: TimestampType, times: list[int], wanted: tuple[int, int]) -> None:
    """REC-36: v2 names the last offset."""
    builder = RecordsBuilder(10, timestamp_type=kind, log_append_time=T + 99)
    for t in times:
        builder.append(t, None, b"v")
    assert tuple(builder.info()) == wanted
    with pytest.raises(IllegalState):
        builder.append(T, None, None)


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
def test_a_log_may_stamp_the_first_moment_of_1970(codec: CompressionType) -> None:
    """REC-41: in the header and for each record."""
    kind = TimestampType.LOG_APPEND_TIME
    builder = RecordsBuilder(10, timestamp_type=kind, log_append_time=0, compression=codec)
    builder.append(T, None, b"v")
    (batch,) = MemoryRecords(builder.build()).batches()
    assert (batch.header.timestamp_type, batch.header.max_timestamp) == (kind, 0)
    assert [record.timestamp for record in batch] == [0] and tuple(builder.info()) == (0, 10)


def test_bytes_are_those_of_the_plain_encoder() -> None:
    builder = RecordsBuilder(7, leader_epoch=3)
    builder.append(T, b"k", b"v")
    builder.append(T + 1, None, b"w", [("h", b"1")])
    wanted = batch([R(b"v", b"k", T), R(b"w", None, T + 1, (("h", b"1"),))], base_offset=7, leader_epoch=3)
    assert bytes(builder.build()) == wanted


def test_a_record_that_does_not_fit_is_not_lost_silently() -> None:
    """The limit of the format, made small."""
    builder = RecordsBuilder()
    builder._inner = BatchBuilder(100)
    builder.append(T, None, b"v" * 20)
    with pytest.raises(RecordBatchTooLarge):
        builder.append(T, None, b"v" * 20)
    assert (builder.count, builder.next_offset) == (1, 1)
