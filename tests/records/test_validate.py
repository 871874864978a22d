"""A leader's changes to a batch before it assigns offsets, and the batches that it refuses."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.leader import ValidationResult, validate_and_assign_offsets
from kafkalog._core.batch.legacy import MessageSet, wrapper
from kafkalog._core.batch.scan import scan
from kafkalog._core.log.admit import MOST_FAULTS
from kafkalog.config.topic import LogConfig
from kafkalog.errors import (
    CorruptRecord,
    IllegalArgument,
    InvalidRecord,
    InvalidTimestamp,
    KafkalogError,
    UnsupportedForFormat,
)
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.compression import compress
from kafkalog.records.format import CompressionType, TimestampType
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.records.memory import MemoryRecords
from kafkalog.records.validate import ValidationRules, ValidatorMetrics, check_append, check_batches
from tests.builder import R, batch, frame, message_v1, seal

T = 1_700_000_000_000
BOUNDED = ValidationRules(before_ms=1000, after_ms=1000)
COMPACT = ValidationRules(need_keys=True)
STAMPED = ValidationRules(append_time=True)
PRODUCER = {"producer_id": 1, "producer_epoch": 0}
GZIP, SNAPPY, LZ4, ZSTD = CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD
NONE = CompressionType.NONE
CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]


def compress_batch(rows: list[R], codec: CompressionType, **fields: int) -> bytes:
    """A v2 batch compressed with a codec, any header fields."""
    plain = batch(rows, **{**fields, "attributes": fields.get("attributes", 0) | codec})
    body = bytes(compress(codec, plain[61:]))
    return seal(plain[:8] + (61 + len(body) - 12).to_bytes(4, "big") + plain[12:61] + body)


def build_batches(magic: int, codec: CompressionType, rows: list[R]) -> bytes:
    """Batches of any format as a client sends them, with offsets from 0 on."""
    builder = RecordsBuilder(compression=codec) if magic == 2 else LegacyBuilder(magic=magic, compression=codec)
    for row in rows:
        builder.append(row.timestamp, row.key, row.value)
    return bytes(builder.build())


def validate(data: bytes, rules: ValidationRules | None = None, first: int = 100, **more: Any) -> ValidationResult:
    return validate_and_assign_offsets(data, first, rules or ValidationRules(), T, **more)


def read_rows(result: ValidationResult) -> list[tuple[int, int, bytes | None, bytes | None]]:
    assert scan(result.records).first_invalid == -1
    return [(r.offset, r.timestamp, r.key, r.value) for b in MemoryRecords(result.records).batches() for r in b]


ROWS = [R(b"a", b"k", T), R(b"b" * 90, b"k2", T + 300), R(None, b"k3", T - 5)]


@pytest.mark.parametrize(
    ("source", "target", "magic", "to"),
    [
        (source, target, magic, to)
        for magic in (0, 1, 2)
        for to in (0, 1, 2)
        for source in CODECS[: 5 if magic == 2 else 4]  # formats v0 and v1 have no zstd
        for target in CODECS[: 5 if to == 2 else 4]
    ],
)
def test_every_codec_and_format(source: CompressionType, target: CompressionType, magic: int, to: int) -> None:
    """VAL-7, VAL-8, VAL-9, VAL-19: offsets are consecutive from the given one in all; the rest stays as it was."""
    data = build_batches(magic, source, ROWS)
    result = validate(data, ValidationRules(target), 1_234_567, magic=to, leader_epoch=5)
    times = [-1 if 0 in (magic, to) else row.timestamp for row in ROWS]
    assert read_rows(result) == [
        (1_234_567 + at, time, row.key, row.value) for at, (time, row) in enumerate(zip(times, ROWS, strict=True))
    ]
    table = scan(result.records)
    assert (table.codec, table[0].magic, result.next_offset) == (target, to, 1_234_570)
    assert table[0].leader_epoch == (5 if to == 2 else -1)
    in_place = source == target and magic == to and not (to == 0 and target)
    assert result.message_size_maybe_changed == (not in_place)
    assert result.stats.records_converted == (0 if in_place else 3)
    assert result.max_timestamp_ms == max(times)


@pytest.mark.parametrize("codec", CODECS)
def test_in_place_nothing_changes_but_offset_and_epoch(codec: CompressionType) -> None:
    """VAL-7, VAL-10, VAL-20: the level of the codec does not matter."""
    data = build_batches(2, codec, ROWS)
    result = validate(data, ValidationRules(codec, level=9 if codec == ZSTD else None), leader_epoch=7)
    assert bytes(result.records) == (100).to_bytes(8, "big") + data[8:12] + (7).to_bytes(4, "big") + data[16:]
    assert (result.log_append_time_ms, result.max_timestamp_ms) == (T, T + 300)
    assert not result.message_size_maybe_changed


@pytest.mark.parametrize("codec", CODECS)
def test_a_wrong_max_timestamp_is_put_right(codec: CompressionType) -> None:
    """VAL-10: the result's is the largest of the records."""
    for wrong in ({"max_timestamp": T + 5000}, {"attributes": 8, "max_timestamp": T + 400}):
        result = validate(compress_batch(ROWS, codec, **wrong))
        header = scan(result.records)[0]
        stamped = "attributes" in wrong
        assert (header.max_timestamp, header.timestamp_type) == (T + 400 if stamped else T + 300, 0)
        assert header.is_valid and not result.message_size_maybe_changed


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("source", [NONE, GZIP, LZ4])
@pytest.mark.parametrize("target", [NONE, GZIP])
def test_the_log_stamps_every_record(magic: int, source: CompressionType, target: CompressionType) -> None:
    """VAL-11."""
    rules = ValidationRules(target, append_time=True, before_ms=0, after_ms=0)
    result = validate(build_batches(magic, source, [R(timestamp=5), R(timestamp=T + 10**6)]), rules, magic=magic)
    assert [row[1] for row in read_rows(result)] == [T, T]
    table = scan(result.records)
    assert {h.timestamp_type for h in table} == {1} and {h.max_timestamp for h in table} == {T}
    assert (result.max_timestamp_ms, result.log_append_time_ms) == (T, T)
    if magic == 2:
        assert table[0].base_timestamp == 5


@pytest.mark.parametrize(
    "fields",
    [
        {"last_delta": 1},
        {"last_delta": -1},
        {"count": 0},
        {"count": -1, "last_delta": -2},
        {"attributes": 0x20},
        {**PRODUCER},
    ],
)
@pytest.mark.parametrize("codec", [NONE, SNAPPY])
def test_headers_that_a_client_may_not_send(fields: dict[str, int], codec: CompressionType) -> None:
    """VAL-3, VAL-4, VAL-5."""
    metrics = ValidatorMetrics()
    data = compress_batch([R(timestamp=T)], codec, **fields)
    with pytest.raises(InvalidRecord) as raised:
        validate(data, metrics=metrics)
    assert (raised.value.offset, raised.value.position) == (0, 0)
    assert (metrics.invalid_offset, metrics.invalid_sequence) == ((0, 1) if "producer_id" in fields else (1, 0))
    assert "invalid_offset" in repr(metrics)


def test_headers_that_only_clients_may_not_send() -> None:
    """VAL-3, VAL-4: a coordinator's control batch is not compressed, whatever the topic says."""
    marker = batch([R(b"\0\0\0\0\0\0", b"\0\0\0\1", T)], attributes=0x30, **PRODUCER)
    for rules in (ValidationRules(), ValidationRules(GZIP)):
        result = validate(marker, rules, from_client=False)
        header = scan(result.records)[0]
        assert (header.is_control, header.compression, header.base_offset, header.producer_id) == (True, 0, 100, 1)
        assert not result.message_size_maybe_changed
    result = validate(batch([R(timestamp=T)], last_delta=4), from_client=False)
    header = scan(result.records)[0]
    assert (result.next_offset, header.base_offset, header.last_offset) == (101, 96, 100)
    for first, last_delta in ((100, -1), (0, 4)):
        with pytest.raises(InvalidRecord):
            validate(batch([R(timestamp=T)], last_delta=last_delta), first=first, from_client=False)


def test_transactional_batches_pass_here() -> None:
    """VAL-8: the transaction is somebody else's business; flags stay when the batch is compressed."""
    data = batch([R(timestamp=T)], **PRODUCER, base_sequence=3, attributes=0x10)
    for rules in (ValidationRules(), ValidationRules(LZ4)):
        header = scan(validate(data, rules).records)[0]
        assert (header.is_transactional, header.producer_id, header.base_sequence) == (True, 1, 3)


@pytest.mark.parametrize(
    "fields",
    [{"attributes": 0x10}, {**PRODUCER}, {"producer_id": 1, "base_sequence": 0}, {**PRODUCER, "base_sequence": -9}],
)
def test_producers_in_disorder_are_kept_but_not_written_anew(fields: dict[str, int]) -> None:
    """VAL-8, REC-26: from others than clients, or where no rule of the header speaks of it."""
    data = batch([R(timestamp=T)], **fields)
    assert validate(data, from_client=False).next_offset == 101
    with pytest.raises(IllegalArgument, match="needs a"):
        validate(data, ValidationRules(GZIP), from_client=False)


@pytest.mark.parametrize(("fields", "word"), [({"attributes": 0x10}, "Transactional"), ({}, "Idempotent")])
def test_producers_that_old_formats_cannot_hold(fields: dict[str, int], word: str) -> None:
    """VAL-19."""
    with pytest.raises(UnsupportedForFormat, match=word):
        validate(batch([R()], **PRODUCER, base_sequence=0, **fields), magic=1)


def test_how_many_batches_come_in_one_append() -> None:
    """VAL-1, VAL-2: one of v2, one wrapper, any number of plain messages of one format."""
    wrapped = build_batches(1, GZIP, ROWS)
    metrics = ValidatorMetrics()
    for data in (b"", batch([R()]) * 2, wrapped + wrapped, message_v1(0, b"v") + wrapped):
        with pytest.raises(InvalidRecord):
            validate(data)
    with pytest.raises(InvalidRecord, match="v0 follows one of format v1") as raised:
        validate(message_v1(0, b"v") * 2 + build_batches(0, NONE, [R()]), metrics=metrics)
    assert raised.value.position == 2 * len(message_v1(0, b"v"))
    assert metrics.invalid_magic == 1
    assert validate(message_v1(0, b"v") * 5).next_offset == 105


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_times_outside_the_bounds_name_the_records(codec: CompressionType) -> None:
    """VAL-12: the bounds are inclusive; -1 is not looked at."""
    with pytest.raises(InvalidTimestamp) as raised:
        validate(compress_batch([R(timestamp=T), R(timestamp=T - 1001), R(timestamp=T + 1001)], codec), BOUNDED)
    assert [index for index, _ in raised.value.record_errors] == [1, 2]
    assert str(T - 1001) in raised.value.record_errors[0][1] and raised.value.hint
    moved = batch([R(timestamp=T), R(timestamp=T - 1001)], base_offset=70)
    with pytest.raises(InvalidTimestamp) as raised:
        check_append(bytearray(moved), scan(moved), BOUNDED, T, any_base_offset=True)
    ((number, reason),) = raised.value.record_errors
    assert number == 1 and f"Timestamp {T - 1001} of message with offset 71 is" in reason
    validate(compress_batch([R(timestamp=T - 1000), R(timestamp=T + 1000), R(timestamp=-1)], codec), BOUNDED)


def test_extreme_bounds_do_not_wrap() -> None:
    validate(batch([R(timestamp=0)]), ValidationRules(before_ms=2**63 - 1))
    validate(batch([R(timestamp=2**62)]), ValidationRules(after_ms=2**63 - 1))


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_a_producer_that_stamps_for_the_log(codec: CompressionType) -> None:
    """VAL-13."""
    data = compress_batch([R(timestamp=T)], codec, attributes=8)
    with pytest.raises(InvalidTimestamp, match="LogAppendTime"):
        validate(data, STAMPED)
    with pytest.raises(InvalidTimestamp):
        validate(compress_batch([R(timestamp=-1)], codec, attributes=8))
    assert read_rows(validate(data))[0][1] == T


@pytest.mark.parametrize("codec", [NONE, LZ4])
def test_unkeyed_records_on_a_compacted_topic(codec: CompressionType) -> None:
    """LOG-12, VAL-15: every one is listed and counted; keyed ones pass."""
    metrics = ValidatorMetrics()
    with pytest.raises(InvalidRecord) as raised:
        rows = [R(b"v", b"k", T), R(b"v", None, T), R(None, None, T)]
        validate(compress_batch(rows, codec), COMPACT, metrics=metrics)
    assert [index for index, _ in raised.value.record_errors] == [1, 2]
    assert metrics.no_key_compacted_topic == 2
    validate(compress_batch([R(None, b"k", T)], codec), COMPACT)


def test_at_most_three_faults_are_told_and_all_are_listed() -> None:
    """VAL-23."""
    with pytest.raises(InvalidTimestamp, match="and 2 more") as raised:
        validate(batch([R(timestamp=5)] * 5), BOUNDED)
    assert len(raised.value.record_errors) == 5
    assert str(raised.value).count("out of range") == 3
    assert MOST_FAULTS >= 10_000


def build_mixed_wrapper(bad: int, times: list[int]) -> bytes:
    """A v1 wrapper with messages of v0 among its own: `bad` of them, then v1 ones with these times."""
    v0, v1 = MessageSet(0), MessageSet(1)
    for offset in range(bad):
        v0.append(offset, -1, None, b"v")
    for offset, time in enumerate(times, bad):
        v1.append(offset, time, None, b"v")
    inner = bytes(v0.build()) + bytes(v1.build())
    return bytes(wrapper(compress(GZIP, inner), magic=1, codec=GZIP, offset=bad + len(times) - 1))


def test_messages_of_another_format_inside_a_wrapper() -> None:
    """VAL-14."""
    metrics = ValidatorMetrics()
    with pytest.raises(InvalidRecord, match="and 17 more") as raised:
        validate(build_mixed_wrapper(20, []), metrics=metrics)
    assert len(raised.value.record_errors) == 20 and metrics.invalid_magic == 20
    with pytest.raises(InvalidTimestamp) as raised_by_time:
        validate(build_mixed_wrapper(5, [5]), BOUNDED, partition="t-0")
    assert len(raised_by_time.value.record_errors) == 6
    assert raised_by_time.value.record_errors[0][1].endswith("outer magic 1 in topic partition t-0")


def test_a_wrong_checksum_inside_a_wrapper() -> None:
    """VAL-18: at once, whatever else is wrong, and counted."""
    inner = bytearray(build_batches(1, NONE, ROWS))
    inner[-1] ^= 1
    data = bytes(wrapper(compress(LZ4, inner), magic=1, codec=LZ4, offset=2))
    metrics = ValidatorMetrics()
    with pytest.raises(CorruptRecord, match="record 2") as raised:
        validate(data, metrics=metrics)
    assert metrics.invalid_checksums == 1
    assert (raised.value.offset, raised.value.position) == (2, 0)


def test_a_wrapper_inside_a_wrapper() -> None:
    """VAL-22."""
    nested = bytes(wrapper(compress(GZIP, build_batches(1, GZIP, ROWS)), magic=1, codec=GZIP, offset=2))
    with pytest.raises(InvalidRecord, match="holds another"):
        validate(nested)


@pytest.mark.parametrize("deltas", [(0, 0, 0), (0, 2, 4), (1, 2, 3)])
def test_wrong_offsets_inside_a_wrapper(deltas: tuple[int, ...]) -> None:
    """VAL-16: rewritten, not refused."""
    inner = MessageSet(1)
    for delta in deltas:
        inner.append(delta, T, b"k", b"v")
    data = bytes(wrapper(compress(GZIP, inner.build()), magic=1, codec=GZIP, offset=deltas[-1], timestamp=T))
    result = validate(data, magic=1)
    assert result.message_size_maybe_changed
    assert [row[0] for row in read_rows(result)] == [100, 101, 102]


def test_wrong_offsets_inside_a_compressed_batch() -> None:
    """VAL-7: the reference fails on them where the codec stays, and renumbers them where it does not."""
    gap = compress_batch([R(timestamp=T, delta=0), R(timestamp=T, delta=2)], ZSTD, last_delta=1)
    with pytest.raises(InvalidRecord, match="consecutive"):
        validate(gap)
    assert [row[0] for row in read_rows(validate(gap, ValidationRules(NONE)))] == [100, 101]
    moved = compress_batch([R(timestamp=T)], ZSTD, base_offset=9)
    with pytest.raises(InvalidRecord, match="must begin at offset 0"):
        validate(moved)
    table = scan(moved)
    assert check_append(bytearray(moved), table, ValidationRules(), T, any_base_offset=True).rebuilt is None


def test_what_cannot_be_read_is_named() -> None:
    with pytest.raises(IllegalArgument, match="compression id 6"):
        validate(batch([R(timestamp=T)], attributes=6))
    with pytest.raises(InvalidRecord, match="gzip"):
        validate(batch([R(timestamp=T)], attributes=1))
    with pytest.raises(InvalidRecord, match="record 1 of the batch"):
        validate(compress_batch([R(timestamp=T)], GZIP, count=2, last_delta=1))
    with pytest.raises(IllegalArgument, match="zstd"):
        validate(build_batches(1, GZIP, ROWS), ValidationRules(ZSTD), magic=1)
    with pytest.raises(InvalidTimestamp, match="negative"):
        validate(batch([R(timestamp=-5)]), ValidationRules(GZIP))


@pytest.mark.parametrize(
    ("magic", "codec", "offset"),
    [(2, NONE, 102), (2, GZIP, 102), (1, NONE, 101), (1, GZIP, 102), (0, NONE, -1), (0, GZIP, -1)],
)
def test_the_offset_of_the_max_timestamp(magic: int, codec: CompressionType, offset: int) -> None:
    """VAL-17, REC-36: as shallow as the batch is."""
    result = validate(build_batches(magic, codec, ROWS), magic=magic)
    assert result.offset_of_max_timestamp == offset
    again = validate(build_batches(2, GZIP if codec == NONE else NONE, ROWS), ValidationRules(codec), magic=magic)
    assert again.offset_of_max_timestamp == offset


def test_the_offset_of_the_max_timestamp_where_the_log_stamps() -> None:
    """VAL-17: the last offset of v2 and of wrappers, the first of plain v1 messages."""
    for magic, codec, offset in ((2, NONE, 102), (1, GZIP, 102), (1, NONE, 100), (0, NONE, -1)):
        data = build_batches(magic, codec, ROWS)
        assert validate(data, STAMPED, magic=magic).offset_of_max_timestamp == offset
    assert validate(batch([R(timestamp=-1)] * 2)).offset_of_max_timestamp == -1


def test_what_validation_cost() -> None:
    """VAL-21: nothing in place; plain bytes where it decompressed; those and the new batch where it rewrote."""
    plain = build_batches(2, NONE, ROWS)
    assert validate(plain).stats == (0, 0)
    assert validate(build_batches(2, GZIP, ROWS)).stats == (len(plain), 0)
    assert validate(plain, ValidationRules(GZIP)).stats == (2 * len(plain), 3)
    assert validate(build_batches(1, NONE, ROWS)).stats == (len(plain), 3)
    for magic, header in ((0, 26), (1, 34)):
        unpacked, squeezed = build_batches(magic, NONE, ROWS), build_batches(magic, GZIP, ROWS)
        size, upgraded = len(unpacked), len(validate(unpacked).records)
        assert validate(squeezed).stats == (size + 61 + upgraded, 3)
        assert validate(unpacked, magic=magic).stats == (0, 0)
        assert validate(unpacked, ValidationRules(GZIP), magic=magic).stats == (size + header + size, 3)
        assert validate(squeezed, magic=magic).stats == ((size + 34, 0) if magic else (2 * (size + 26), 3))


def test_rules_of_a_topic() -> None:
    """VAL-6, VAL-7: codec and level, whose times, bounds, keys; zstd is always allowed."""
    rules = ValidationRules.of(
        LogConfig.from_mapping({
            "compression.type": "zstd", "compression.zstd.level": 7, "message.timestamp.type": "LogAppendTime",
            "message.timestamp.before.max.ms": 5, "cleanup.policy": "compact",
        })
    )  # fmt: skip
    assert (rules.codec, rules.level, rules.append_time, rules.need_keys) == (ZSTD, 7, True, True)
    assert rules.bounds(T) == (T - 5, T + 3_600_000)
    assert ValidationRules.of(LogConfig()).codec is None
    assert ValidationRules.of(LogConfig.from_mapping({"compression.type": "uncompressed"})).codec == NONE
    data = build_batches(2, NONE, [R(b"%d" % at, b"key", T) for at in range(4000)])
    low, high = (len(validate(data, ValidationRules(ZSTD, level=level)).records) for level in (1, 19))
    assert high < low


def test_batches_that_were_just_built() -> None:
    """LOG-12: a group of plain ones is checked as one by one."""
    good = batch([R(timestamp=T, key=b"k")])
    check_batches(good * 3, scan(good * 3), COMPACT, T)
    data = good + batch([R(timestamp=T)])
    with pytest.raises(InvalidRecord) as raised:
        check_batches(data, scan(data), COMPACT, T)
    assert raised.value.record_errors
    with pytest.raises(InvalidRecord):
        check_batches(batch([R()], count=2), scan(batch([R()], count=2)), COMPACT, T)


@pytest.mark.parametrize("fields", [{}, {**PRODUCER, "base_sequence": 5, "attributes": 0x10}])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("rules", [BOUNDED, STAMPED])
def test_the_short_way_and_the_long_way_meet(
    codec: CompressionType, rules: ValidationRules, fields: dict[str, int]
) -> None:
    """VAL-8: records as if just built are accepted as they are; others are rewritten, and come out the same."""
    rows = [R(b"a" * 50, b"k", T, (("h", b"1"),)), R(None, b"", T - 7), R(b"b", None, -1)]
    asked = ValidationRules(codec, append_time=rules.append_time)
    other = GZIP if codec != GZIP else LZ4
    short = validate(compress_batch(rows, other, **fields), asked)
    long = validate(compress_batch(rows, other, base_timestamp=T - 1000, **fields), asked)
    assert bytes(short.records) == bytes(long.records)
    assert short[1:6] == long[1:6]


SMALL = st.lists(
    st.builds(R, value=st.none() | st.binary(max_size=20), key=st.none() | st.binary(max_size=9),
              timestamp=st.integers(-1, 2**40)), min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=150)
@given(
    rows=SMALL,
    magic=st.sampled_from([0, 1, 2]),
    codecs=st.tuples(st.sampled_from(CODECS[:4]), st.sampled_from(CODECS[:4])),
    to=st.sampled_from([0, 1, 2]),
    stamp=st.booleans(),
    first=st.integers(0, 2**50),
)
def test_any_records(
    rows: list[R], magic: int, codecs: tuple[CompressionType, CompressionType], to: int, stamp: bool, first: int
) -> None:
    """VAL-9: keys, values and order stay in all conversions, offsets are consecutive."""
    rules = ValidationRules(codecs[1], append_time=stamp)
    result = validate(build_batches(magic, codecs[0], rows), rules, first, magic=to)
    got = read_rows(result)
    assert [(o, k, v) for o, _, k, v in got] == [(first + at, r.key, r.value) for at, r in enumerate(rows)]
    expected = [T if stamp and to else -1 if 0 in (magic, to) else r.timestamp for r in rows]
    assert [row[1] for row in got] == expected


@settings(max_examples=200)
@given(data=st.data())
def test_damage_is_refused_or_harmless(data: st.DataObject) -> None:
    """Any changed byte: a typed error or a batch that reads back, never anything else."""
    magic = data.draw(st.sampled_from([0, 1, 2]))
    good = bytearray(build_batches(magic, data.draw(st.sampled_from(CODECS[:4])), ROWS))
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    rules = ValidationRules(data.draw(st.sampled_from([None, *CODECS[:4]])))
    try:
        result = validate(bytes(good), rules, magic=data.draw(st.sampled_from([1, 2])))
    except KafkalogError:
        return
    assert result.next_offset > 100


def test_builders_of_a_stamped_wrapper_are_taken_by_nobody() -> None:
    """VAL-13: a wrapper that says LogAppendTime, for a log that stamps."""
    builder = LegacyBuilder(compression=GZIP, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=T)
    builder.append(T, b"k", b"v")
    with pytest.raises(InvalidTimestamp):
        validate(bytes(builder.build()), STAMPED)


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.SNAPPY, CompressionType.LZ4])
def test_a_batch_without_records_is_refused(codec: int) -> None:
    """From any sender: compaction leaves such a batch in place, and an appended one would take no offset."""
    empty = frame(b"", count=0, last_delta=2, attributes=codec, base_offset=0)
    for rules in (ValidationRules(), ValidationRules(CompressionType.SNAPPY)):
        with pytest.raises(InvalidRecord, match="no records"):
            validate_and_assign_offsets(empty, 5, rules, 1, from_client=False)
