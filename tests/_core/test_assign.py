"""Offsets, epochs and times set in place, in batches and in messages."""

import pytest

from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.scan import scan
from kafkalog._core.log.assign import assign, assign_messages
from tests.builder import R, batch, message_v1

T = 1_700_000_000_000


def test_next_offset_10_and_five_records_give_10_to_14() -> None:
    data = bytearray(batch([R()] * 5))
    table = scan(data)
    crc = table[0].crc
    assert assign(data, table, 10, 3) == 15
    after = scan(data)
    assert (after[0].base_offset, after[0].last_offset, after[0].leader_epoch) == (10, 14, 3)
    assert (after[0].crc, after[0].is_valid) == (crc, True)
    assert (table.first_offset, table.last_offset) == (10, 14)


def test_several_batches_follow_each_other() -> None:
    """LOG-2: consecutive offsets whatever the buffer said."""
    data = bytearray(batch([R()] * 2, base_offset=900) + batch([R()], base_offset=4) + batch([R()] * 3))
    table = scan(data)
    assert assign(data, table, 100) == 106
    assert [(h.base_offset, h.last_offset) for h in scan(data)] == [(100, 101), (102, 102), (103, 105)]


def test_append_time_marks_every_record() -> None:
    """LOG-77, REC-18."""
    data = bytearray(batch([R(timestamp=T), R(timestamp=T + 1)]))
    table = scan(data)
    assign(data, table, 0, 0, T + 50)
    after = scan(data)
    assert (after[0].is_valid, after[0].timestamp_type, after[0].max_timestamp) == (True, 1, T + 50)
    assert list(decode(data, after).timestamps) == [T + 50, T + 50]
    assert after[0].base_timestamp == T


def test_misuse() -> None:
    data = batch([R()])
    with pytest.raises((TypeError, BufferError)):
        assign(data, scan(data), 0)
    with pytest.raises(ValueError, match="outside"):
        assign(bytearray(10), scan(data), 0)
    v1 = bytearray(message_v1(0, b"v"))
    with pytest.raises(ValueError, match="v2"):
        assign(v1, scan(v1), 0)


def test_messages_get_offsets_and_times() -> None:
    """VAL-7, VAL-11: plain v1 messages one by one, a wrapper the offset of its last message."""
    data = bytearray(message_v1(0, b"a", timestamp=T) + message_v1(0, b"b", timestamp=T + 1))
    table = scan(data)
    assert assign_messages(data, table, 40) == 42
    assert [(h.base_offset, h.max_timestamp, h.is_valid) for h in scan(data)] == [(40, T, True), (41, T + 1, True)]
    assign_messages(data, table, 40, append_time_type=True, timestamp=T + 9)
    after = scan(data)
    assert [(h.max_timestamp, h.timestamp_type, h.is_valid) for h in after] == [(T + 9, 1, True)] * 2
    assert (table[1].max_timestamp, table[1].crc) == (T + 9, after[1].crc)
    one = bytearray(message_v1(0, b"wrapped", timestamp=T))
    table = scan(one)
    assert assign_messages(one, table, 10, timestamp=T, records=5) == 15
    assert scan(one)[0].base_offset == 14
    for bad in (-1, 2**63 - 3):
        with pytest.raises(ValueError, match="begin at"):
            assign_messages(one, table, bad, records=5)
    v2 = bytearray(batch([R()]))
    with pytest.raises(ValueError, match="v0 or v1"):
        assign_messages(v2, scan(v2), 0)
