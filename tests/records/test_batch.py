"""RecordBatch: what a batch says of itself, and the changes made in place."""

import zlib

import pytest

from kafkalog._core.batch.decode import DamagedField
from kafkalog._core.batch.record import Record
from kafkalog._core.batch.scan import scan
from kafkalog.errors import CorruptRecord, IllegalArgument, InvalidRecord, UnsupportedForFormat
from kafkalog.records.batch import RecordBatch
from kafkalog.records.format import TimestampType
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.records.memory import MemoryRecords
from tests.builder import R, batch, message_v1, seal

T = 1_700_000_000_000


def get_batch(data: bytes | bytearray, row: int = 0) -> RecordBatch:
    return RecordBatch(data, scan(data), row)


def test_set_last_offset_moves_every_record() -> None:
    """REC-16: and the checksum stays."""
    b = get_batch(bytearray(batch([R(), R(), R()], base_offset=5)))
    crc = b.header.crc
    b.set_last_offset(100)
    assert [r.offset for r in b.records()] == [98, 99, 100]
    assert (b.header.crc, b.is_valid, b.next_offset) == (crc, True, 101)


def test_set_partition_leader_epoch() -> None:
    """REC-17: readable, checksum unchanged."""
    b = get_batch(bytearray(batch([R()])))
    crc = b.header.crc
    b.set_partition_leader_epoch(17)
    assert (b.header.leader_epoch, b.header.crc, b.is_valid) == (17, crc, True)


def test_set_max_timestamp() -> None:
    """REC-18: all records report it and the checksum is recomputed."""
    b = get_batch(bytearray(batch([R(timestamp=T), R(timestamp=T + 7)])))
    crc = b.header.crc
    b.set_max_timestamp(TimestampType.LOG_APPEND_TIME, T + 90)
    assert [r.timestamp for r in b.records()] == [T + 90] * 2
    assert b.is_valid
    assert b.header.crc != crc
    b.set_max_timestamp(TimestampType.CREATE_TIME, T + 7)
    assert ([r.timestamp for r in b.records()], b.header.crc) == ([T, T + 7], crc)


def test_set_max_timestamp_that_changes_nothing() -> None:
    """REC-19: equal type and value leave the bytes alone; no type is an illegal argument."""
    data = bytearray(batch([R(timestamp=T)]))
    data[17:21] = b"\1\2\3\4"  # a wrong checksum would be mended by any rewriting
    before = bytes(data)
    get_batch(data).set_max_timestamp(TimestampType.CREATE_TIME, T)
    assert data == before
    with pytest.raises(IllegalArgument):
        get_batch(data).set_max_timestamp(TimestampType.NO_TIMESTAMP_TYPE, T)


def test_skipping_iteration_agrees_with_the_full_one() -> None:
    """REC-10: same offsets, times, sequences and sizes; it has no key bytes to give."""
    b = get_batch(
        batch(
            [R(b"abc", b"k", T), R(None, b"", T + 3)], base_offset=9, producer_id=1, producer_epoch=0, base_sequence=4
        )
    )
    full = b.records()
    sizes = b.sizes()
    assert [(s.offset, s.timestamp) for s in sizes] == [(r.offset, r.timestamp) for r in full]
    assert [(s.key_size, s.value_size) for s in sizes] == [(1, 3), (0, -1)]
    assert [s.sequence for s in sizes] == [4, 5]
    assert not hasattr(sizes[0], "key")


def test_sequences_wrap_and_are_absent() -> None:
    """REC-11, REC-12."""
    b = get_batch(batch([R()] * 3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert b.sequences() == [2**31 - 2, 2**31 - 1, 0]
    assert get_batch(batch([R()] * 2)).sequences() == [-1, -1]
    assert get_batch(batch([R()] * 2, producer_id=1, producer_epoch=0, base_sequence=0)).sequences() == [0, 1]


def test_an_offset_delta_below_zero_has_a_sequence_too() -> None:
    b = get_batch(batch([R(delta=-3), R(delta=1)], base_sequence=7, producer_id=1))
    assert [s.offset for s in b.sizes()] == [-3, 1]
    assert b.sequences() == [4, 8]


def test_offset_of_max_timestamp() -> None:
    """REC-37."""
    times = [R(timestamp=t) for t in (T, T + 5, T + 2, T + 5)]
    assert get_batch(batch(times, base_offset=40)).offset_of_max_timestamp() == 41
    assert get_batch(batch(times, base_offset=40, attributes=8)).offset_of_max_timestamp() == 40
    assert get_batch(batch([R(timestamp=-1)] * 2, base_offset=40)).offset_of_max_timestamp() == 40


def test_delete_horizon() -> None:
    """REC-20: readable, base timestamp equals it, record timestamps still right; absent without the flag."""
    b = get_batch(batch([R(timestamp=T)], attributes=0x40, base_timestamp=T + 10_000))
    assert (b.header.delete_horizon_ms, b.header.base_timestamp) == (T + 10_000, T + 10_000)
    assert b.records()[0].timestamp == T
    assert get_batch(batch([R()])).header.delete_horizon_ms is None


def test_streaming_and_full_iteration_agree() -> None:
    """REC-21."""
    b = get_batch(batch([R(b"a"), R(None, b"k", headers=(("h", b""),))]))
    assert list(b) == b.records()


def test_ensure_valid_names_both_checksums() -> None:
    """REC-14, REC-15, REC-42, REC-43."""
    bad = bytearray(batch([R()]))
    bad[-1] ^= 1
    with pytest.raises(CorruptRecord, match="stored crc"):
        get_batch(bad).ensure_valid()
    with pytest.raises(CorruptRecord, match="smaller than"):
        get_batch(bad[:8] + (40).to_bytes(4, "big") + bad[12:52]).ensure_valid()
    message = bytearray(message_v1(0, b"v"))
    get_batch(message).ensure_valid()
    message[-1] ^= 1
    with pytest.raises(CorruptRecord, match="stored crc"):
        get_batch(message).ensure_valid()
    short = bytearray(message_v1(0, b"v"))[:30]
    short[8:12] = (18).to_bytes(4, "big")
    with pytest.raises(CorruptRecord):
        get_batch(short).ensure_valid()


@pytest.mark.parametrize("magic", [0, 1])
def test_changed_bytes_of_a_message(magic: int) -> None:
    """REC-42: the checksum covers format to end; a message that fails it can be read all the same."""
    builder = LegacyBuilder(7, magic=magic)
    builder.append(T, b"key", b"value")
    good = bytes(builder.build())
    assert get_batch(good).header.crc == zlib.crc32(good[16:])
    for at in (*range(8), *range(12, len(good))):
        if at == 16:
            continue  # another format is another layout
        bad = bytearray(good)
        bad[at] ^= 0x40
        changed = get_batch(bad)
        assert changed.is_valid == (at < 8)
        if at >= 12:
            with pytest.raises(CorruptRecord, match="stored crc"):
                changed.ensure_valid()
    (record,) = get_batch(good[:-1] + b"!").records()
    assert (record.offset, record.key, record.value) == (7, b"key", b"valu!")


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_ids_are_an_illegal_argument(codec: int) -> None:
    """REC-23."""
    data = batch([R()], attributes=codec, base_offset=9)
    with pytest.raises(IllegalArgument, match=f"unknown compression id {codec}") as raised:
        get_batch(data).records()
    assert (raised.value.offset, raised.value.position) == (9, 0)


def test_what_cannot_be_changed_is_read_all_the_same() -> None:
    message = get_batch(bytearray(message_v1(7, b"v", b"k", T)))
    assert message.records() == [Record(b"v", b"k", T, (), 7)]
    assert (message.base_offset, message.offset_of_max_timestamp(), message.sequences()) == (7, 7, [-1])
    changes = (
        lambda batch: batch.set_last_offset(9),
        lambda batch: batch.set_partition_leader_epoch(1),
        lambda batch: batch.set_max_timestamp(TimestampType.CREATE_TIME, T),
    )
    for change in changes:
        with pytest.raises(UnsupportedForFormat, match="^a batch of format v1 cannot be changed in place"):
            change(message)
        with pytest.raises(IllegalArgument, match="^the buffer is read-only: copy it into a bytearray first"):
            change(get_batch(batch([R(timestamp=T)])))


def test_a_length_past_the_message_is_an_error_once_it_is_read() -> None:
    """format.md section 15, C2: with a wrong checksum the message still counts as a record."""
    data = bytearray(message_v1(0, b"value", b"key"))
    data[26:30] = b"\0\0\1\0"
    (record,) = get_batch(data).records()
    for field in ("key", "value", "key_view", "value_view"):
        with pytest.raises(DamagedField, match="past the end"):
            getattr(record, field)
    data[12:16] = zlib.crc32(data[16:]).to_bytes(4, "big")
    with pytest.raises(InvalidRecord, match="key runs past"):
        get_batch(data).records()


def test_broken_records_are_invalid_record() -> None:
    data = bytearray(batch([R(b"a")], base_offset=77))
    data[61] = 0x7E
    with pytest.raises(InvalidRecord) as raised:
        get_batch(seal(bytes(data))).records()
    assert (raised.value.offset, raised.value.position) == (77, 61)


def test_changes_need_a_writable_buffer() -> None:
    with pytest.raises(IllegalArgument, match="bytearray"):
        get_batch(batch([R()])).set_last_offset(9)


def test_second_batch_of_a_buffer_is_edited_in_its_place() -> None:
    data = bytearray(batch([R(b"a")]) + batch([R(b"b")]))
    second = list(MemoryRecords(data).batches())[1]
    second.set_last_offset(50)
    assert [h.base_offset for h in scan(data)] == [0, 50]
    assert second.records()[0].value == b"b"


def test_the_bytes_of_a_batch_are_its_own() -> None:
    """Of any buffer, wherever the batch lies in it."""
    parts = [batch([R(b"a")]), batch([R(b"b"), R(b"c")], base_offset=1), batch([R(b"d")], base_offset=3)]
    for data in (b"".join(parts), bytearray(b"".join(parts)), memoryview(b"".join(parts))):
        assert [bytes(RecordBatch(data, scan(data), row)) for row in range(3)] == parts
