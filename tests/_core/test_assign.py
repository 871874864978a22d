"""Offsets set in place, and the look at every record before it."""

import pytest

from kafkalog._core.assign import FAULT_NO_KEY, FAULT_TIMESTAMP, assign, check_records
from kafkalog._core.decode import decode
from kafkalog._core.scan import scan
from tests.builder import R, batch, message_v1, seal

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


def check(data: bytes, **rules: int):
    return check_records(data, scan(data), 0, **rules)


def test_sound_records_pass() -> None:
    assert check(batch([R(), R(b"v", b"k", T + 5, (("h", None),))])) is None


def test_time_bounds() -> None:
    data = batch([R(timestamp=T), R(timestamp=T - 11), R(timestamp=-1), R(timestamp=T + 11)])
    found = check(data, oldest=T - 10, newest=T + 10)
    assert (found.faults, found.total) == ([(1, FAULT_TIMESTAMP), (3, FAULT_TIMESTAMP)], 2)
    assert check(data, oldest=T - 10, newest=T + 10, check_times=False) is None


def test_a_batch_stamped_by_a_log_is_refused() -> None:
    data = batch([R()], attributes=8, max_timestamp=-1)
    assert check(data).faults == [(0, FAULT_TIMESTAMP)]


def test_keys_of_a_compacted_topic() -> None:
    """LOG-12: which record has no key."""
    assert check(batch([R(b"v", b"k"), R(b"v")]), need_keys=True).faults == [(1, FAULT_NO_KEY)]
    assert check(batch([R(b"v", b"")]), need_keys=True) is None


def test_broken_structure_is_told_with_its_place() -> None:
    data = bytearray(batch([R(b"a"), R(b"b")]))
    data[61] = 0x7E
    found = check(seal(bytes(data)))
    assert (found.status != 0, found.position) == (True, 61)
    assert check(batch([R()], count=2, last_delta=1)).status != 0
