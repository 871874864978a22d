"""The one-pass scan: bounds, checksums, columns, and why it stopped."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.batch.scan import (
    REASON_END,
    REASON_LIMIT,
    REASON_MAGIC,
    REASON_PARTIAL,
    REASON_SIZE,
    find_max_timestamp,
    find_offset,
    scan,
)
from tests.builder import R, batch, crc32c, message_v1, seal

THREE = batch([R(b"a"), R(b"b", b"k"), R(None)], base_offset=10, leader_epoch=3)


def test_rows_columns_and_sums() -> None:
    second = batch([R(b"x", timestamp=1_700_000_000_500)], base_offset=13)
    table = scan(THREE + second)
    assert (len(table), table.stop_reason, table.valid_bytes) == (2, REASON_END, len(THREE) + len(second))
    assert list(table.base_offsets) == [10, 13]
    assert list(table.last_offsets) == [12, 13]
    assert list(table.positions) == [0, len(THREE)]
    assert list(table.counts) == [3, 1]
    assert (table.first_offset, table.last_offset, table.record_count) == (10, 13, 4)
    assert (table.max_timestamp, table.offset_of_max_timestamp) == (1_700_000_000_500, 13)
    assert table.monotonic
    assert table.first_invalid == -1
    assert table[0].leader_epoch == 3
    assert table[-1].base_offset == 13


def test_non_monotonic_is_seen() -> None:
    assert not scan(batch([R()], base_offset=5) + batch([R()], base_offset=5)).monotonic


def test_every_flip_from_byte_17_on_is_invalid_and_none_before_12() -> None:
    """REC-14: the checksum covers attributes to end; offset and leader epoch lie outside."""
    for at in range(len(THREE)):
        bad = bytearray(THREE)
        bad[at] ^= 0x40
        table = scan(bytes(bad))
        if at >= 17:
            assert len(table) == 1
            assert table.first_invalid == 0
            assert not table[0].is_valid
        elif at < 8 or 12 <= at < 16:
            assert table[0].is_valid


def test_shorter_than_its_header_is_invalid_without_error() -> None:
    """REC-15: the length field says less than 61 bytes."""
    for size in range(26, 61):
        short = struct.pack(">qiib", 0, size - 12, -1, 2) + bytes(size - 17)
        table = scan(short)
        assert len(table) == 1
        assert not table[0].is_valid


def test_cut_at_every_byte_yields_only_whole_batches() -> None:
    """REC-34: a partial trailing batch ends the scan without error."""
    data = THREE + THREE
    for end in range(len(data) + 1):
        table = scan(data[:end])
        assert len(table) == end // len(THREE)
        assert table.stop_reason == (REASON_END if end % len(THREE) == 0 else REASON_PARTIAL)
        assert table.stop_position == end // len(THREE) * len(THREE)


@pytest.mark.parametrize("field", [-(2**31), -1, 0, 13])
def test_size_field_below_the_smallest_message(field: int) -> None:
    """REC-34."""
    table = scan(THREE + THREE[:8] + struct.pack(">i", field) + THREE[12:])
    assert (len(table), table.stop_reason, table.stop_value) == (1, REASON_SIZE, field)


@pytest.mark.parametrize("magic", [3, 127, -1, -128])
def test_unknown_magic_stops_memory_and_not_a_file(magic: int) -> None:
    """REC-34 in memory, FILE-16 in a file: above 2 reads as v2, below 0 as a message that is not valid."""
    data = THREE[:16] + struct.pack(">b", magic) + THREE[17:]
    table = scan(data)
    assert (len(table), table.stop_reason, table.stop_value) == (0, REASON_MAGIC, magic)
    table = scan(data, file_mode=True)
    assert len(table) == 1
    assert table[0].magic == magic
    assert table[0].is_valid == (magic > 2)


def test_huge_size_field_is_a_cut_off_batch() -> None:
    table = scan(THREE[:8] + struct.pack(">i", 2**31 - 1) + THREE[12:])
    assert (len(table), table.stop_reason) == (0, REASON_PARTIAL)


def test_ranges_limits_and_base_position() -> None:
    data = THREE * 3
    table = scan(data, len(THREE), base_position=1000)
    assert list(table.positions) == [1000 + len(THREE), 1000 + 2 * len(THREE)]
    assert scan(data, max_batches=2).stop_reason == REASON_LIMIT
    assert len(scan(data, 0, len(THREE) + 5)) == 1
    with pytest.raises(ValueError, match="outside"):
        scan(data, len(data) + 1)


def test_v1_messages_are_rows() -> None:
    data = message_v1(7, b"v", b"k", 5) + message_v1(8, None)
    table = scan(data)
    assert [(h.magic, h.base_offset, h.last_offset, h.count, h.is_valid) for h in table] == [
        (1, 7, 7, 1, True),
        (1, 8, 8, 1, True),
    ]
    bad = bytearray(data)
    bad[-1] ^= 1
    assert scan(bytes(bad)).first_invalid == 1


def test_flags_and_delete_horizon() -> None:
    """REC-20."""
    header = scan(batch([R()], attributes=0x50, producer_id=9, producer_epoch=1, base_sequence=4))[0]
    assert header.is_transactional
    assert not header.is_control
    assert header.delete_horizon_ms == header.base_timestamp
    assert scan(THREE)[0].delete_horizon_ms is None


def test_last_sequence_wraps() -> None:
    """REC-12: base sequence 2147483646 and three records end at sequence 0."""
    header = scan(batch([R(), R(), R()], producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))[0]
    assert header.last_sequence == 0


def test_find_offset_walks_headers() -> None:
    data = batch([R()] * 5, base_offset=0) + batch([R()] * 5, base_offset=10) + batch([R()] * 5, base_offset=15)
    size = len(data) // 3
    assert [find_offset(data, n).base_offset for n in (0, 4, 5, 9, 10, 14, 15, 19)] == [0, 0, 10, 10, 10, 10, 15, 15]
    assert find_offset(data, 12, size).position == size
    missing = find_offset(data, 20)
    assert (missing.position, missing.resume_position, missing.stop_reason) == (-1, len(data), REASON_END)
    cut = find_offset(data[: size + 40], 12)
    assert (cut.position, cut.size) == (size, size)  # only headers are read: the batch itself may be cut off
    needs = find_offset(data[: size + 20], 12)
    assert (needs.position, needs.resume_position, needs.stop_reason) == (-1, size, REASON_PARTIAL)


def test_row_of_an_offset() -> None:
    table = scan(batch([R()] * 5, base_offset=0) + batch([R()] * 5, base_offset=10) + batch([R()] * 5, base_offset=15))
    assert [table.row_of(n, 3) for n in (-1, 0, 4, 5, 9, 10, 14, 15, 19, 20)] == [0, 0, 0, 1, 1, 1, 1, 2, 2, 3]
    assert [table.row_of(20, stop) for stop in (0, 1, 2)] == [0, 1, 2]
    with pytest.raises(IndexError):
        table.row_of(20, 4)


def test_find_max_timestamp() -> None:
    data = b"".join(batch([R(timestamp=t)], base_offset=i) for i, t in enumerate((100, 300, 200)))
    assert [find_max_timestamp(data, t).base_offset for t in (0, 100, 101, 300)] == [0, 0, 1, 1]
    assert find_max_timestamp(data, 301).position == -1
    v1 = message_v1(0, b"v", timestamp=70) + message_v1(1, b"v", timestamp=80)
    assert find_max_timestamp(v1, 75).base_offset == 1


@given(st.binary(max_size=200))
def test_any_bytes_end_somewhere(data: bytes) -> None:
    table = scan(data)
    assert 0 <= table.stop_position <= len(data)
    assert table.valid_bytes == sum(table.sizes)
    scan(data, file_mode=True)
    find_offset(data, 5)
    find_max_timestamp(data, 5)


@given(st.binary(max_size=64), st.integers(0, 120))
def test_a_sealed_batch_with_any_inside_is_valid(inside: bytes, at: int) -> None:
    data = bytearray(THREE)
    data[min(21 + at, len(data)) :] = inside
    data[8:12] = struct.pack(">i", len(data) - 12)
    if len(data) >= 61:
        assert scan(seal(bytes(data)))[0].is_valid
        assert scan(seal(bytes(data)))[0].crc == crc32c(bytes(data[21:]))


def test_a_row_alone_is_the_table_of_its_bytes() -> None:
    data = batch([b"a", b"b"], base_offset=5) + batch([b"c"], base_offset=7, attributes=1)
    table = scan(data, base_position=100)
    for row in range(2):
        at, size = table.position(row) - 100, table.size(row)
        again, alone = scan(data[at : at + size]), table.alone(row)
        for name in ("base_offset", "last_offset", "position", "size", "crc", "computed_crc", "is_valid"):
            assert getattr(alone[0], name) == getattr(again[0], name)
        assert (len(alone), alone.stop_reason, alone.stop_position, alone.valid_bytes) == (1, REASON_END, size, size)
    with pytest.raises(IndexError, match="row 2"):
        table.alone(2)


def test_a_v1_message_cut_off_in_its_header_ends_a_search_by_time() -> None:
    """Nothing behind the buffer is read, though the message has its time there."""
    first, last = message_v1(0, b"a", timestamp=5), message_v1(1, b"b", timestamp=9)
    whole = memoryview(first + last)
    for have in range(18, 26):
        found = find_max_timestamp(whole[: len(first) + have], 9)
        assert (found.position, found.stop_reason, found.resume_position) == (-1, REASON_PARTIAL, len(first))
    assert find_max_timestamp(whole[: len(first) + 26], 9).position == len(first)


def test_a_v2_batch_shorter_than_the_fields_looked_for_ends_a_search() -> None:
    """The bytes in their place belong to the next batch."""
    behind = batch([R(timestamp=2**60)], base_offset=2**50)
    for size in range(26, 46):
        short = struct.pack(">qiib", 7, size - 12, -1, 2) + bytes(size - 17)
        for find, needed in ((find_offset, 27), (find_max_timestamp, 43)):
            found = find(THREE + short + behind, 2**50)
            if size < needed:
                assert (found.position, found.stop_reason) == (-1, REASON_SIZE)
                assert (found.resume_position, found.stop_value) == (len(THREE), size)
            else:
                assert found.position == len(THREE) + size


def test_of_a_v2_batch_shorter_than_its_header_only_the_fields_it_has_count() -> None:
    full = batch([R(b"x", timestamp=5)] * 3, base_offset=7, leader_epoch=2, producer_id=9, attributes=0x10)
    for size in range(26, 61):
        cut = bytearray(full[:size])
        cut[8:12] = struct.pack(">i", size - 12)
        row = scan(memoryview(bytes(cut) + bytes(full))[:size])[0]
        assert not row.is_valid
        assert row.is_transactional == (size >= 23)
        assert row.last_offset == (9 if size >= 27 else 7)
        assert (row.producer_id, row.max_timestamp, row.base_sequence, row.leader_epoch) == (-1, -1, -1, 2)
