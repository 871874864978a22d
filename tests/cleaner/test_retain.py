"""Records and batches that a clean keeps, and their rewritten form."""

import zlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch.legacy import MessageSet, wrapper
from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog._core.log.producer_state import ProducerState
from kafkalog.cleaner.retain import Retainer, last_records_of, legacy_delete_horizon_ms
from kafkalog.cleaner.transactions import CleanedTransactions
from kafkalog.errors import CorruptRecord, InvalidRecord
from kafkalog.records.compression import compress
from kafkalog.records.format import CompressionType, TimestampType
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.records.plain_runs import RUN_BYTES
from tests.builder import R, batch, message_v1, seal
from tests.cleaner.filtering import (
    NOW,
    RETENTION_MS,
    Cleaner,
    build_batch,
    build_producer_batch,
    list_batches,
    list_offsets,
    list_pairs,
)

CODECS = list(CompressionType)


def test_the_last_record_of_a_key_stays_across_batches_and_within_one() -> None:
    """CLN-9: offsets of the survivors do not change, order is kept; CLN-10: v2 batches keep their range."""
    data = build_batch(0, (b"a", b"1"), (b"b", b"1"), (b"a", b"2")) + build_batch(3, (b"c", b"1"), (b"b", b"2"))
    data += build_batch(5, (b"c", b"2"))
    cleaned = Cleaner().clean(data)
    assert list_pairs(cleaned.data) == [(2, b"a", b"2"), (4, b"b", b"2"), (5, b"c", b"2")]
    assert [(b.base_offset, b.last_offset) for b in list_batches(cleaned.data)] == [(0, 2), (3, 4), (5, 5)]
    assert cleaned.result.messages_read == 6 and cleaned.result.messages_retained == 3
    assert cleaned.result.bytes_read == len(data) and cleaned.result.bytes_retained == len(cleaned.data)


def test_records_without_key_are_dropped_and_counted() -> None:
    """CLN-6: but not above the end of the map."""
    data = build_batch(0, (None, b"1"), (b"a", b"1"), (None, None)) + build_batch(3, (None, b"2"))
    cleaned = Cleaner().clean(data, end=3)
    assert list_offsets(cleaned.data) == [1, 3]
    assert cleaned.result.invalid_messages == 2


def test_records_above_the_end_of_the_map_stay() -> None:
    """CLN-7: the newer record of a key that the map does not know stays beside the older one."""
    data = build_batch(0, (b"a", b"1"), (b"a", b"2")) + build_batch(2, (b"a", b"3"), (b"a", b"4"))
    assert list_offsets(Cleaner().clean(data, end=2).data) == [1, 2, 3]


def test_an_older_key_below_the_dirty_part_goes_too() -> None:
    """CLN-3: the map has the keys of the dirty part only, records of the clean one are asked about as well."""
    data = build_batch(0, (b"a", b"1"), (b"b", b"1")) + build_batch(2, (b"a", b"2"))
    assert list_offsets(Cleaner().clean(data, dirty=2).data) == [1, 2]


def test_a_tombstone_gets_its_horizon_in_the_round_that_first_sees_it_and_goes_at_it() -> None:
    """CLN-8, CLN-50: later rounds do not move the horizon; at exactly that time the record goes."""
    data = build_batch(0, (b"a", b"1"), (b"b", b"1"), (b"a", None)) + build_batch(3, (b"c", b"1"))
    horizon = NOW + RETENTION_MS
    first = Cleaner().clean(data)
    assert list_pairs(first.data)[:2] == [(1, b"b", b"1"), (2, b"a", None)]
    assert [b.header.delete_horizon_ms for b in list_batches(first.data)] == [horizon, None]
    assert [r.timestamp for b in list_batches(first.data) for r in b.records()] == [NOW + 1, NOW + 2, NOW]
    again = Cleaner().clean(first.data, now=horizon - 1)
    assert again.data == first.data
    gone = Cleaner().clean(first.data, now=horizon)
    assert list_pairs(gone.data) == [(1, b"b", b"1"), (3, b"c", b"1")]
    assert [b.header.delete_horizon_ms for b in list_batches(gone.data)] == [horizon, None]


def test_a_tombstone_above_the_end_of_the_map_gets_its_horizon_too() -> None:
    """CLN-50: the round sees it, though it decides nothing about it."""
    data = build_batch(0, (b"a", b"1")) + build_batch(1, (b"a", None))
    cleaned = Cleaner().clean(data, end=1)
    assert [b.header.delete_horizon_ms for b in list_batches(cleaned.data)] == [None, NOW + RETENTION_MS]
    assert list_offsets(cleaned.data) == [0, 1]


def test_tombstones_of_old_formats_go_by_the_age_of_their_segment() -> None:
    """CLN-8: v0 and v1 have no horizon; what stays is v2, and has one."""
    builder = LegacyBuilder(0, magic=1)
    builder.append(NOW, b"a", None)
    data = bytes(builder.build()) + build_batch(1, (b"b", b"1"))
    held = Cleaner().clean(data)
    assert [b.header.delete_horizon_ms for b in list_batches(held.data)] == [NOW + RETENTION_MS, None]
    assert list_offsets(Cleaner(retain_legacy_deletes=False).clean(data).data) == [1]
    assert legacy_delete_horizon_ms(NOW, RETENTION_MS) == NOW - RETENTION_MS
    assert legacy_delete_horizon_ms(None, RETENTION_MS) == 0


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("end", [None, 0], ids=["below the map's end", "above it"])
def test_an_empty_value_is_no_tombstone(magic: int, end: int | None) -> None:
    """CLN-50: no horizon is set."""
    builder = LegacyBuilder(0, magic=1)
    builder.append(NOW, b"a", b"")
    data = bytes(builder.build()) if magic == 1 else build_batch(0, (b"a", b""))
    (batch,) = list_batches(Cleaner(retain_legacy_deletes=False).clean(data, end=end).data)
    assert [record.value for record in batch.records()] == [b""]
    assert batch.header.delete_horizon_ms is None


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [c for c in CODECS if c != CompressionType.ZSTD])
def test_old_formats_become_v2_and_begin_at_the_first_record_that_stays(magic: int, codec: CompressionType) -> None:
    """CLN-10, CLN-44: as brokers of 4.0 and later write them (KIP-724), the codec kept."""
    builder = LegacyBuilder(10, magic=magic, compression=codec)
    for number, key in enumerate((b"a", b"b", b"a", b"c")):
        builder.append(NOW + number, key, b"%d" % number)
    cleaned = Cleaner().clean(bytes(builder.build()))
    times = [NOW + 1, NOW + 2, NOW + 3] if magic else [-1, -1, -1]
    found = list_batches(cleaned.data)
    assert [(r.offset, r.key, r.value, r.timestamp) for b in found for r in b.records()] == [
        (11, b"b", b"1", times[0]),
        (12, b"a", b"2", times[1]),
        (13, b"c", b"3", times[2]),
    ]
    assert {b.header.magic for b in found} == {2}
    assert {b.header.compression for b in found} == {codec}
    assert found[0].base_offset == 11 and found[-1].last_offset == 13
    assert len(found) == (3 if codec == CompressionType.NONE else 1)


@pytest.mark.parametrize("cut", [0, 5, 11, 20, 25])
@pytest.mark.parametrize("keeps", [True, False])
def test_a_message_that_is_cut_off_in_a_wrapper_ends_it(cut: int, keeps: bool) -> None:
    """CLN-47: as for readers, so that the clean keeps what they see."""
    whole = [message_v1(0, b"v", b"a"), message_v1(1, b"w", b"b")]
    payload = compress(CompressionType.GZIP, b"".join(whole) + message_v1(2, b"z", b"c")[:cut], magic=1)
    data = bytes(wrapper(payload, magic=1, codec=CompressionType.GZIP, offset=1, timestamp=NOW))
    assert list_pairs(data) == [(0, b"a", b"v"), (1, b"b", b"w")]
    cleaned = Cleaner().clean(data + (b"" if keeps else build_batch(2, (b"a", b"n"))))
    expected = [(0, b"a", b"v"), (1, b"b", b"w")] if keeps else [(1, b"b", b"w"), (2, b"a", b"n")]
    assert list_pairs(cleaned.data) == expected
    assert cleaned.result.messages_read == (2 if keeps else 3)


def test_messages_of_v0_in_a_wrapper_of_v1_are_written_right() -> None:
    """CLN-47: an old broker left inner messages in the wrong format; what comes out is of one."""
    inner = MessageSet(0)
    for number, key in enumerate((b"a", b"b", b"a")):
        inner.append(number, -1, key, b"%d" % number)
    payload = compress(CompressionType.GZIP, inner.build(), magic=1)
    data = bytes(wrapper(payload, magic=1, codec=CompressionType.GZIP, offset=7, timestamp=NOW))
    (found,) = list_batches(Cleaner().clean(data).data)
    assert [(r.offset, r.key, r.timestamp) for r in found.records()] == [(6, b"b", -1), (7, b"a", -1)]
    assert found.header.magic == 2 and found.header.compression == CompressionType.GZIP
    found.ensure_valid()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("stamped", [False, True])
def test_codec_and_times_stay(codec: CompressionType, stamped: bool) -> None:
    """CLN-44: with LogAppendTime the largest time stays that of all."""
    more = {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time": NOW + 99} if stamped else {}
    data = build_batch(5, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4" * 300), compression=codec, **more)
    data += build_batch(9, (b"c", b"5"), compression=codec, **more)
    cleaned = Cleaner().clean(data)
    first, second = list_batches(cleaned.data)
    first.ensure_valid()
    times = [NOW + 99] * 2 if stamped else [NOW + 1, NOW + 2]
    assert [(r.offset, r.timestamp) for r in first.records()] == [(6, times[0]), (7, times[1])]
    assert first.header.compression == codec and first.header.timestamp_type == stamped
    assert first.header.max_timestamp == times[1]
    assert bytes(second) == build_batch(9, (b"c", b"5"), compression=codec, **more)
    assert cleaned.result.max_timestamp == (NOW + 99 if stamped else NOW + 2)
    assert cleaned.result.max_offset == 9
    assert cleaned.result.shallow_offset_of_max_timestamp == 8


def test_the_last_batch_of_an_active_producer_stays_as_an_empty_one() -> None:
    """CLN-11: known by its offset; it goes once the producer wrote more, or is no longer known."""
    data = build_producer_batch(0, 1, 0, 1, 2) + build_producer_batch(2, 1, 2, 1, 2)
    data += build_batch(4, (b"1", b"x"), (b"2", b"x"))
    cleaned = Cleaner(last={1: (3, 0)}).clean(data)
    empty, last = list_batches(cleaned.data)
    assert (empty.base_offset, empty.last_offset, empty.size, len(empty.records())) == (2, 3, 61, 0)
    header = empty.header
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (1, 0, 2, 3)
    assert header.max_timestamp == NOW + 1 and header.base_timestamp == -1
    assert list_offsets(cleaned.data) == [4, 5]
    assert Cleaner(last={1: (3, 0)}).clean(cleaned.data).data == cleaned.data
    assert last_offsets_of(Cleaner(last={1: (9, 0)}).clean(cleaned.data).data) == [5]
    assert last_offsets_of(Cleaner().clean(cleaned.data).data) == [5]
    assert last.header.producer_id == -1


def last_offsets_of(data: bytes) -> list[int]:
    return [b.last_offset for b in list_batches(data)]


def test_the_same_sequences_again_do_not_keep_a_batch() -> None:
    """CLN-11: sequences may repeat (a group coordinator begins with 0 each time); the offset decides (KAFKA-17076)."""
    data = build_producer_batch(0, 1, 0, 1) + build_producer_batch(1, 1, 0, 1) + build_batch(2, (b"1", b"x"))
    cleaned = Cleaner(last={1: (1, 0)}).clean(data)
    assert last_offsets_of(cleaned.data) == [1, 2]


def test_the_last_batch_of_the_range_stays_as_an_empty_one() -> None:
    """CLN-12: so that the next offset does not go back."""
    data = build_batch(0, (b"a", b"1")) + build_batch(1, (None, b"1"), (None, b"2"))
    cleaned = Cleaner().clean(data)
    assert last_offsets_of(cleaned.data) == [0, 2]
    assert list_offsets(cleaned.data) == [0]
    assert cleaned.result.messages_retained == 1 and cleaned.result.max_offset == 2
    assert last_offsets_of(Cleaner().clean(cleaned.data + build_batch(3, (b"b", b"1"))).data) == [0, 3]


def test_an_old_message_without_key_at_the_end_leaves_an_empty_batch() -> None:
    """CLN-12: the reference gives up there (IllegalStateException); the offset is kept in a batch of v2."""
    builder = LegacyBuilder(4, magic=1)
    builder.append(NOW, None, b"1")
    (empty,) = list_batches(Cleaner().clean(bytes(builder.build())).data)
    assert (empty.base_offset, empty.last_offset, empty.size, empty.header.max_timestamp) == (4, 4, 61, NOW)
    empty.ensure_valid()


@pytest.mark.parametrize(("magic", "by_log"), [(0, False), (1, True)])
def test_the_empty_batch_of_an_old_message_has_its_kind_of_time(magic: int, by_log: bool) -> None:
    """CLN-12: the bit means nothing in v0."""
    messages = MessageSet(magic)
    messages.append(4, NOW, None, b"1", attributes=0x08)
    (empty,) = list_batches(Cleaner().clean(bytes(messages.build())).data)
    wanted = TimestampType.LOG_APPEND_TIME if by_log else TimestampType.CREATE_TIME
    assert (empty.header.timestamp_type, empty.header.max_timestamp) == (wanted, NOW if by_log else -1)


def test_last_sequences_of_three_producers() -> None:
    """CLN-13."""
    data = b"".join((
        build_producer_batch(0, 1, 0, 1, 2, 3),
        build_producer_batch(3, 2, 0, 3, 1, 4),
        build_producer_batch(6, 3, 0, 1, 4),
    ))  # fmt: skip
    states = [(1, 2, 2), (2, 2, 5), (3, 1, 7)]
    producers = [ProducerState(one, 0, sequence, offset, sequence, NOW) for one, sequence, offset in states]
    last = {state.producer_id: (state.last_offset, state.producer_epoch) for state in producers}
    cleaned = Cleaner(last=last).clean(data)
    found = list_batches(cleaned.data)
    assert [b.last_offset for b in found] == [2, 5, 7]
    assert {b.header.producer_id: b.header.last_sequence for b in found} == {1: 2, 2: 2, 3: 1}
    assert [(o, int(k or b"0")) for o, k, _ in list_pairs(cleaned.data)] == [(1, 2), (3, 3), (6, 1), (7, 4)]
    assert len(last_records_of(producers)) == 3


def test_bytes_that_stay_are_not_copied() -> None:
    """A chunk of which everything stays, or everything after a beginning, comes back as itself."""
    data = build_batch(0, (b"a", b"1")) + build_batch(1, (b"b", b"1"))
    cleaned = Cleaner().clean(data).result
    assert isinstance(cleaned.data, memoryview) and cleaned.data.obj is data[:] and cleaned.data == data
    assert len(cleaned.table) == 2


def test_output_that_is_larger_than_the_chunk() -> None:
    """CLN-27: a horizon lengthens every record behind it, and there is room for that (KAFKA-5316)."""
    rows = [(b"%d" % number, None) for number in range(5000)]
    data = build_batch(0, *rows)
    cleaned = Cleaner(map_bytes=24 * 10_000).clean(data, now=1 << 45)
    assert len(cleaned.data) > len(data) + 5000
    assert list_offsets(cleaned.data) == list(range(5000))


def test_a_chunk_that_ends_inside_a_batch_says_what_it_needs() -> None:
    """CLN-27: nothing read, the size of the batch reported, as soon as its size field is there."""
    data = build_batch(0, (b"a", b"1" * 100))
    retainer = Retainer(
        SkimpyOffsetMap(2400), CleanedTransactions(), now_ms=NOW, delete_retention_ms=0, upper_bound_offset=9
    )
    cut = retainer.filter(data[:100])
    assert (cut.bytes_read, cut.needed_bytes, bytes(cut.data)) == (0, len(data), b"")
    assert retainer.filter(data[:16]).needed_bytes == 0
    both = retainer.filter(data + data[:20])
    assert (both.bytes_read, both.needed_bytes) == (len(data), 0)


@pytest.mark.parametrize("damage", ["crc", "size", "magic", "records", "range", "codec"])
def test_damage_is_an_error_with_file_position_and_offset(damage: str) -> None:
    """CLN-28: nothing of the chunk is given then; a rewritten batch must not get a right checksum for wrong records."""
    good, bad = build_batch(0, (b"a", b"1"), (b"a", b"2")), bytearray(build_batch(2, (b"a", b"1" * 30), (b"a", b"2")))
    if damage == "crc":
        bad[-1] ^= 1
    elif damage == "size":
        bad[8:12] = (13).to_bytes(4, "big")
    elif damage == "magic":
        bad[16] = 9
    elif damage == "records":
        bad[61] = 0x7E
        bad = bytearray(seal(bytes(bad)))
    elif damage == "range":
        bad[23:27] = (-1).to_bytes(4, "big", signed=True)
        bad = bytearray(seal(bytes(bad)))
    else:
        bad[22] |= CompressionType.ZSTD
        bad = bytearray(seal(bytes(bad)))
    with pytest.raises((CorruptRecord, InvalidRecord)) as raised:
        Cleaner().clean(good + build_batch(2, (b"c", b"1")))  # sound
        retainer = Retainer(
            SkimpyOffsetMap(2400), CleanedTransactions(), now_ms=NOW, delete_retention_ms=0, upper_bound_offset=9
        )
        retainer.begin_segment("x.log", retain_legacy_deletes=True, last_records=last_records_of(()))
        retainer.filter(good + bytes(bad), 1000)
    assert raised.value.path == "x.log"
    assert raised.value.position is not None and raised.value.position >= 1000 + len(good)
    if damage not in ("size", "magic"):
        assert raised.value.offset == 2


def test_headers_and_long_records_stay_byte_for_byte() -> None:
    """Bytes behind the key of a record are copied as they are, whatever its length (CLN-44)."""
    rows = [R(b"v" * size, b"%d" % size, NOW + size, (("h", None), ("i", b"x" * size))) for size in (0, 1, 70, 20_000)]
    data = batch([R(b"old", b"70", NOW), *rows], base_offset=40)
    cleaned = Cleaner().clean(data)
    assert cleaned.data == batch(
        [row._replace(delta=number + 1) for number, row in enumerate(rows)], base_offset=40, last_delta=4
    )


def test_compressed_batches_that_fill_several_arenas_and_a_plain_one_behind_them() -> None:
    value = bytes(RUN_BYTES // 3)
    data = b"".join(
        build_batch(2 * n, (b"a", value), (b"%d" % n, value), compression=CompressionType.LZ4) for n in range(9)
    )
    data += build_batch(18, (b"a", b"last"))
    wanted = [*((2 * n + 1, b"%d" % n, value) for n in range(9)), (18, b"a", b"last")]
    assert list_pairs(Cleaner().clean(data).data) == wanted


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(80, 2000))
def test_chunks_of_any_size_leave_the_same(seed: int, chunk_bytes: int) -> None:
    """Batches of all codecs and formats, cut into chunks anywhere (CLN-27): the same bytes as in one piece."""
    random = Random(seed)
    data, at = b"", 0
    for _ in range(random.randrange(1, 30)):
        count = random.randrange(1, 6)
        rows = [
            (random.choice([None, b"a", b"b", b"c", b"%d" % random.randrange(30)]), random.choice([None, b"v" * 9]))
            for _ in range(count)
        ]
        data += build_batch(at, *rows, compression=random.choice(CODECS))
        at += count + random.randrange(3)
    whole = Cleaner().clean(data)
    longest = max(b.size for b in list_batches(data))
    parts = Cleaner().clean(data, chunk_bytes=max(chunk_bytes, longest))
    assert parts.data == whole.data
    assert zlib.crc32(Cleaner().clean(whole.data).data) == zlib.crc32(whole.data), "a second clean changes nothing"
