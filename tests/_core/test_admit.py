"""The look at every record before a batch is taken: what is wrong, where, and what the header should say."""

import struct
import zlib
from typing import Any

import pytest

from kafkalog._core.batch.legacy import MessageSet
from kafkalog._core.batch.scan import scan
from kafkalog._core.log.admit import (
    FAULT_MAGIC,
    FAULT_NO_KEY,
    FAULT_STAMPED,
    FAULT_TIMESTAMP,
    MOST_FAULTS,
    STATUS_CHECKSUM,
    LeaderLimits,
    RecordCheck,
    check_rows,
    end_of_magic,
    first_to_change,
)
from tests.builder import R, batch, message_v1, seal

T = 1_700_000_000_000


def check(data: bytes, **rules: Any) -> RecordCheck:
    """Return the faults of one batch; both checks must find the same."""
    table = scan(data)
    found = check_rows(data, table, **rules)
    if found.row >= 0:
        assert first_to_change(data, table, **rules) == 0
    return found


def passes(data: bytes, **rules: Any) -> bool:
    """True when nothing is wrong and nothing is to change."""
    table = scan(data)
    return check_rows(data, table, **rules).row == -1 and first_to_change(data, table, **rules) == len(table)


def faults(found: RecordCheck) -> list[tuple[int, int]]:
    return [(record, kind) for record, kind, _, _ in found.faults]


def test_sound_records_pass() -> None:
    assert passes(batch([R(), R(b"v", b"k", T + 5, (("h", None),))]))


def test_time_bounds() -> None:
    """VAL-12: -1 is no timestamp, and the log's own clock asks for none."""
    data = batch([R(timestamp=T), R(timestamp=T - 11), R(timestamp=-1), R(timestamp=T + 11)])
    found = check(data, oldest=T - 10, newest=T + 10)
    assert (faults(found), found.total) == ([(1, FAULT_TIMESTAMP), (3, FAULT_TIMESTAMP)], 2)
    assert found.faults[0] == (1, FAULT_TIMESTAMP, 1, T - 11)
    assert passes(data, oldest=T - 10, newest=T + 10, check_times=False)


def test_a_batch_stamped_by_a_log_is_refused() -> None:
    """VAL-13: with no time of its own, or where the log stamps."""
    assert faults(check(batch([R()], attributes=8, max_timestamp=-1))) == [(0, FAULT_STAMPED)]
    assert faults(check(batch([R(timestamp=T)], attributes=8), check_times=False)) == [(0, FAULT_STAMPED)]


def test_a_header_that_says_another_type_or_time_is_not_taken_as_it_is() -> None:
    """VAL-10: the records are sound, but the header has to be put right."""
    for data in (batch([R(timestamp=T)], attributes=8), batch([R(timestamp=T)], max_timestamp=T + 1)):
        found = check(data)
        assert (found.row, found.status, found.faults) == (-1, 0, [])
        assert first_to_change(data, scan(data)) == 0
    assert passes(batch([R(timestamp=T)], max_timestamp=T + 1), check_times=False)


def test_keys_of_a_compacted_topic() -> None:
    """LOG-12, VAL-15: which record has no key; its time does not count then."""
    assert faults(check(batch([R(b"v", b"k"), R(b"v")]), need_keys=True)) == [(1, FAULT_NO_KEY)]
    assert passes(batch([R(b"v", b"")]), need_keys=True)
    assert faults(check(batch([R(timestamp=5)]), need_keys=True, oldest=T)) == [(0, FAULT_NO_KEY)]


def test_broken_structure_is_told_with_its_place() -> None:
    data = bytearray(batch([R(b"a"), R(b"b")]))
    data[61] = 0x7E
    found = check(seal(bytes(data)))
    assert (found.status != 0, found.position, found.record) == (True, 61, 0)
    found = check(batch([R()], count=2, last_delta=1))
    assert (found.status != 0, found.record) == (True, 1)


def test_what_the_records_are() -> None:
    data = batch([R(timestamp=T), R(timestamp=T + 9), R(timestamp=T + 2)])
    found = check_rows(data, scan(data))
    assert (found.row, found.count, found.max_timestamp, found.consecutive) == (-1, 3, T + 9, True)
    assert found.size == len(data) - 61
    data = batch([R(delta=0), R(delta=2)])
    assert not check_rows(data, scan(data)).consecutive


def message(magic: int, offset: int, value: bytes | None = b"v", timestamp: int = T) -> bytes:
    one = MessageSet(magic)
    one.append(offset, timestamp, None, value)
    return bytes(one.build())


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_messages_of_one_format(magic: int) -> None:
    data = b"".join(message(magic, offset, timestamp=T + offset) for offset in range(4))
    found = check_rows(data, scan(data))
    assert (found.row, found.count, found.size) == (-1, 4, len(data))
    assert found.max_timestamp == (T + 3 if magic else -1)
    found = check_rows(data, scan(data), need_keys=True)
    assert (found.row, faults(found)) == (0, [(0, FAULT_NO_KEY)])


def test_the_row_after_a_run_of_one_format() -> None:
    data = message(0, 0) * 3 + message(1, 0) * 2 + batch([R()])
    table = scan(data)
    assert [end_of_magic(table, row) for row in (0, 2, 3, 5)] == [3, 3, 5, 6]
    with pytest.raises(IndexError):
        end_of_magic(table, 6)


def inner(data: bytes) -> RecordCheck:
    """Messages as they come out of a v1 wrapper: one row around all of them."""
    from kafkalog._core.batch.legacy import wrapper
    from kafkalog.records.plain_runs import plain_row

    wrapped = wrapper(zlib.compress(data, wbits=31), magic=1, codec=1, offset=2)
    block, table = plain_row(wrapped, scan(wrapped), 0)
    return check_rows(block, table, inner=True)


def test_inner_messages_have_checksums_and_the_wrappers_format() -> None:
    """VAL-14, VAL-18."""
    good = b"".join(message(1, offset) for offset in range(3))
    found = inner(good)
    assert (found.row, found.count, found.consecutive) == (-1, 3, True)
    found = inner(message(1, 0) + message(0, 1) + message(1, 2))
    assert faults(found) == [(1, FAULT_MAGIC)]
    bad = bytearray(good)
    bad[-1] ^= 1
    found = inner(bytes(bad))
    assert (found.row, found.status, found.record) == (0, STATUS_CHECKSUM, 2)


def test_the_list_of_faults_has_an_end() -> None:
    body = struct.pack(">b", 0) + b"\0\0\x01\x01\0"
    many = MOST_FAULTS + 7
    records = b"".join([b"\x0c" + body] * many)
    head = batch([R(timestamp=T)])[:61]
    data = bytearray(head + records)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[57:61] = many.to_bytes(4, "big")
    found = check_rows(data, scan(data, check_crc=False), need_keys=True)
    assert (len(found.faults), found.total) == (MOST_FAULTS, many)


def test_misuse() -> None:
    data = batch([R()])
    table = scan(data)
    with pytest.raises(ValueError, match="outside"):
        check_rows(b"", table)
    with pytest.raises(ValueError, match="rows"):
        check_rows(data, table, 2)
    with pytest.raises(ValueError, match="row 2"):
        first_to_change(data, table, 2)
    assert first_to_change(b"", table) == 0


def test_the_first_batch_of_many_that_is_not_taken_as_it_is() -> None:
    good = batch([R(timestamp=T)])
    for bad in (batch([R()], count=2), batch([R()], attributes=1), batch([R()], attributes=0x20), message_v1(0, b"v"),
                batch([R(), b""], last_delta=7)):  # fmt: skip
        data = good * 3 + bad + good
        table = scan(data)
        assert [first_to_change(data, table, row) for row in range(6)] == [3, 3, 3, 3, 5, 5]


def test_records_as_if_they_had_just_been_built() -> None:
    """Such a batch can be compressed as it is: offsets from 0 on, times from the base timestamp on, none below -1."""
    fresh = batch([R(timestamp=T), R(timestamp=-1), R(timestamp=T - 9)])
    assert check_rows(fresh, scan(fresh)).fresh
    for other in (
        batch([R(timestamp=T, delta=1)]),
        batch([R(timestamp=T)], base_timestamp=5),
        batch([R(timestamp=T), R(timestamp=-2)]),
        batch([R(timestamp=T)], attributes=8),
        message(1, 0),
    ):
        assert not check_rows(other, scan(other)).fresh


def limits(**more: Any) -> LeaderLimits:
    """Limits that a sound batch of now passes."""
    given = {"max_message_bytes": 1000, "segment_size": 1000, "before_ms": 10, "after_ms": 10}
    given |= {"check_times": True, "need_keys": False, "writes_as_is": True}
    return LeaderLimits(**(given | more))


def test_what_a_leader_takes_as_it_is() -> None:
    """Format.md section 11: one sound batch within all limits; any other goes the long way."""
    data = batch([R(b"v", b"k", T), R(b"w", b"k", T + 5)])
    table = scan(data)
    assert limits().takes(data, table, T) and limits(need_keys=True).takes(data, table, T)
    for narrow in ({"max_message_bytes": len(data) - 1}, {"segment_size": len(data) - 1}, {"after_ms": 4}):
        assert not limits(**narrow).takes(data, table, T)
    assert not limits(writes_as_is=False).takes(data, table, T)
    keyless = batch([R(b"v", None, T)])
    assert limits().takes(keyless, scan(keyless), T) and not limits(need_keys=True).takes(keyless, scan(keyless), T)
    assert not limits().takes(data * 2, scan(data * 2), T) and not limits().takes(b"", scan(b""), T)
    assert not limits().takes(data + data[:20], scan(data + data[:20]), T)
    assert not limits().takes(data + data[:20], table, T)
    broken = data[:-1] + b"\x01"
    assert not limits().takes(broken, scan(broken), T)
    later = b"\x00" * 7 + b"\x05" + data[8:]
    assert not limits().takes(later, scan(later), T) and limits().takes(later, scan(later), T, True)


def test_the_first_of_many_that_a_leader_changes() -> None:
    good, bad = batch([R(b"v", b"k", T)]), batch([R(b"v", b"k", T + 11)])
    data = good + good + bad + good
    table = scan(data)
    assert [limits().first_to_change(data, table, row, T) for row in range(5)] == [2, 2, 2, 4, 4]
    assert limits(writes_as_is=False).first_to_change(data, table, 1, T) == 1
