"""LegacyBuilder: messages and wrappers of format v0 and v1, with the refusals of the reference."""

import pytest

from kafkalog.errors import IllegalArgument, IllegalState
from kafkalog.records.batch import RecordBatch
from kafkalog.records.format import CompressionType, TimestampType
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.records.memory import MemoryRecords

T = 1_700_000_000_000
CODECS = [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4]
BY_LOG = {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time": T + 99}


def build(builder: LegacyBuilder) -> list[RecordBatch]:
    return list(MemoryRecords(builder.build()).batches())


def fill_builder(magic: int, codec: CompressionType, times: list[int], **options: int) -> LegacyBuilder:
    builder = LegacyBuilder(10, magic=magic, compression=codec, **options)  # type: ignore[arg-type]
    for n, time in enumerate(times):
        builder.append(time, b"key", b"value that repeats %d" % n)
    return builder


@pytest.mark.parametrize("codec", [CompressionType.NONE, *CODECS])
@pytest.mark.parametrize("magic", [0, 1])
def test_round_trip(magic: int, codec: CompressionType) -> None:
    """REC-38, REC-40: one message each, or a wrapper with the last offset; the records are the same."""
    builder = fill_builder(magic, codec, [T, T + 5, T + 2])
    batches = build(builder)
    assert [b.is_valid for b in batches] == [True] * (1 if codec else 3)
    assert {(b.header.magic, b.header.compression) for b in batches} == {(magic, codec)}
    assert (batches[0].base_offset, batches[-1].last_offset) == (10, 12)
    records = [record for b in batches for record in b]
    times = [T, T + 5, T + 2] if magic else [-1] * 3
    assert [(r.offset, r.timestamp, r.key, r.value) for r in records] == [
        (10 + n, times[n], b"key", b"value that repeats %d" % n) for n in range(3)
    ]
    if codec:
        assert batches[0].header.max_timestamp == (T + 5 if magic else -1)


@pytest.mark.parametrize("codec", CODECS)
def test_gaps_are_kept(codec: CompressionType) -> None:
    """format.md section 4: inner offsets of v1 are relative, with the gaps of compaction."""
    builder = LegacyBuilder(100, compression=codec)
    for offset in (102, 107, 109):
        assert builder.append(T, None, b"v", offset=offset) == offset
    assert [r.offset for r in build(builder)[0]] == [102, 107, 109]


@pytest.mark.parametrize("codec", [CompressionType.NONE, *CODECS])
def test_log_append_time(codec: CompressionType) -> None:
    """REC-41: the first moment of 1970 is one."""
    for time in (T + 99, 0):
        batches = build(fill_builder(1, codec, [T, T + 5], **{**BY_LOG, "log_append_time": time}))
        assert [b.header.timestamp_type for b in batches] == [TimestampType.LOG_APPEND_TIME] * len(batches)
        assert [(r.timestamp, r.timestamp_type) for b in batches for r in b] == [(time, 1)] * 2
        assert {b.header.max_timestamp for b in batches} == {time}


@pytest.mark.parametrize(
    ("codec", "times", "options", "wanted"),
    [
        (0, [-1, -1], {}, (-1, -1)),
        (0, [T + 5, T, T + 5], {}, (T + 5, 10)),
        (1, [T + 5, T, T + 1], {}, (T + 5, 12)),
        (0, [T, T + 1], BY_LOG, (T + 99, 10)),
        (1, [T, T + 1], BY_LOG, (T + 99, 11)),
        (0, [T, T + 1], {**BY_LOG, "log_append_time": 0}, (0, 10)),
        (1, [T, T + 1], {**BY_LOG, "log_append_time": 0}, (0, 11)),
        (0, [0, -1], {}, (0, 10)),
        (1, [-1, 0], {}, (0, 11)),
        (1, [], {}, (-1, -1)),
    ],
)
def test_info(codec: int, times: list[int], options: dict[str, int], wanted: tuple[int, int]) -> None:
    """REC-36: v1, plain and compressed."""
    builder = fill_builder(1, CompressionType(codec), times, **options)
    assert builder.info() == wanted
    with pytest.raises(IllegalState):
        builder.append(T, None, None)
    if not options:
        assert fill_builder(0, CompressionType(codec), times).info() == (-1, -1)


def test_what_the_formats_do_not_have() -> None:
    """REC-27; what v2 alone has is no argument of this builder."""
    for magic in (0, 1):
        with pytest.raises(IllegalArgument, match="zstd"):
            LegacyBuilder(magic=magic, compression=CompressionType.ZSTD)
        with pytest.raises(IllegalArgument, match="headers"):
            LegacyBuilder(magic=magic).append(T, None, b"v", [("h", b"1")])
        for flag in ("producer_id", "is_transactional", "is_control", "delete_horizon_ms"):
            with pytest.raises(TypeError):
                LegacyBuilder(magic=magic, **{flag: 1})
    with pytest.raises(IllegalArgument, match="v2"):
        LegacyBuilder(magic=2)
    with pytest.raises(IllegalArgument, match="v1"):
        LegacyBuilder(magic=0, **BY_LOG)  # type: ignore[arg-type]
    with pytest.raises(IllegalArgument, match="append time"):
        LegacyBuilder(timestamp_type=TimestampType.LOG_APPEND_TIME)


def test_records_that_cannot_follow() -> None:
    """REC-24, REC-25, REC-28 for messages."""
    builder = LegacyBuilder(10, compression=CompressionType.LZ4)
    assert builder.next_offset == 10
    for offset, time in ((9, T), (10, -2)):
        with pytest.raises(IllegalArgument):
            builder.append(time, None, b"v", offset=offset)
    builder.append(T, None, b"v")
    with pytest.raises(IllegalArgument, match="must increase"):
        builder.append(T, None, b"v", offset=10)
    assert (builder.count, builder.next_offset) == (1, 11)
    assert builder.build() is builder.build()
    with pytest.raises(IllegalState):
        builder.append(T, None, b"v")
    assert LegacyBuilder(compression=CompressionType.GZIP).build() == b""
