"""Plans of appends: values in, values out (SEG-1, SEG-3 to SEG-5, SEG-16, SEG-17)."""

import pytest

from kafkalog._core.batch.scan import scan
from kafkalog._core.log import roll
from kafkalog._core.log.plan import AppendPlan, append_info, place_append, plan_append
from kafkalog._core.log.roll import RollRules, SegmentTail
from tests.storage.logs import NOW, run, sized_batch

RULES = RollRules(0, 1000, 500, NOW, 150)
EMPTY = SegmentTail(offset_slots=10, time_slots=9)


def planned(
    data: bytes, tail: SegmentTail = EMPTY, *, whole: bool = True, row: int = 0, fresh: bool = False
) -> AppendPlan:
    return plan_append(scan(data), row, tail, RULES, NOW, whole, fresh)


def test_a_plan_says_what_the_write_brings() -> None:
    """SEG-3: positions count from the segment's start, bytes from the buffer's."""
    first = planned(run(0, 4))
    assert (first.start_byte, first.stop_byte, first.size, first.stop_row) == (0, 400, 400, 4)
    assert (first.first_offset, first.last_offset, first.last_leader_epoch) == (0, 3, 0)
    assert first.entries == [(2, 200, NOW + 2, 2)]
    second = planned(run(4, 2, timestamp=NOW + 4), first.tail)
    assert second.entries == [(4, 400, NOW + 4, 4)]
    assert second.tail == SegmentTail(600, 5, NOW + 5, 5, NOW, 200, 8, 7, NOW + 4)
    assert planned(run(6, 1), second.tail).entries is not None


def test_a_leader_places_and_plans_in_one_step() -> None:
    """LOG-2, LOG-77: offsets, epoch and time are in the bytes and in the plan; a buffer it cannot write is refused."""
    data = bytearray(run(0, 2))
    placed = place_append(data, scan(data), 7, 3, NOW + 9, EMPTY, RULES, NOW)
    assert (placed.first_offset, placed.last_offset, placed.last_leader_epoch) == (7, 8, 3)
    assert placed.max_timestamp == NOW + 9 and placed.tail == SegmentTail(200, 8, NOW + 9, 7, NOW + 9, 200, 10, 9, -1)
    assert [(b.base_offset, b.leader_epoch, b.max_timestamp) for b in scan(data)] == [(7, 3, NOW + 9), (8, 3, NOW + 9)]
    assert scan(data).first_invalid == -1
    with pytest.raises(BufferError):
        place_append(bytes(data), scan(data), 7, 3, -1, EMPTY, RULES, NOW)


def test_an_append_of_many_batches_ends_where_a_segment_does() -> None:
    """SEG-17: batch by batch, or all or nothing."""
    group = planned(run(0, 13), whole=False)
    assert (group.stop_row, group.roll_reason) == (10, roll.NO_ROLL)
    rest = planned(run(0, 13), group.tail, whole=False, row=10)
    assert (rest.roll_reason, rest.stop_row, rest.size) == (roll.ROLL_FOR_SIZE, 10, 0)
    assert planned(run(0, 13)).roll_reason == roll.ROLL_FOR_SIZE
    assert planned(run(0, 13), fresh=True).stop_row == 13


@pytest.mark.parametrize("fresh", [False, True])
def test_offsets_that_do_not_fit_are_never_overruled(fresh: bool) -> None:
    """SEG-2, SEG-17: not even in a fresh segment; the extremes of 64 bits neither."""
    for base in (2**31, 2**62, -5):
        assert planned(sized_batch(100, base=base), fresh=fresh).roll_reason == roll.ROLL_FOR_OFFSET


@pytest.mark.parametrize(
    ("tail", "time", "now", "reason"),
    [
        (SegmentTail(1, 0, 5, 0, NOW, 0, 9, 9), NOW + 500, NOW, roll.NO_ROLL),
        (SegmentTail(1, 0, 5, 0, NOW, 0, 9, 9), NOW + 501, NOW, roll.ROLL_FOR_TIME),
        (SegmentTail(1, 0, 5, 0, NOW, 0, 9, 9), -1, NOW + 10**9, roll.NO_ROLL),
        (SegmentTail(1, 0, 5, 0, -1, 0, 9, 9), NOW, NOW + 501, roll.ROLL_FOR_TIME),
        (SegmentTail(0, -1, -1, -1, -1, 0, 9, 9), NOW + 10**9, NOW + 10**9, roll.NO_ROLL),
        (SegmentTail(1, 0, 5, 0, NOW, 0, 0, 9), NOW, NOW, roll.ROLL_FOR_INDEX),
        (SegmentTail(1, 0, 5, 0, NOW, 0, 9, 0), NOW, NOW, roll.ROLL_FOR_INDEX),
    ],
)
def test_reasons_to_roll(tail: SegmentTail, time: int, now: int, reason: int) -> None:
    """SEG-16, SEG-17."""
    table = scan(sized_batch(100, base=1, timestamp=time))
    assert plan_append(table, 0, tail, RULES, now, True, False).roll_reason == reason


def test_limits_of_64_bits_do_not_overflow() -> None:
    """SEG-16: segment.ms may be 2^63-1, and times may be anything."""
    rules = RollRules(0, 2**31 - 1, 2**63 - 1, 0, 2**31 - 1)
    tail = SegmentTail(1, 0, 0, 0, 0, 0, 9, 9)
    for time in (2**63 - 1, -(2**63)):
        table = scan(sized_batch(120, base=1, timestamp=time))
        assert plan_append(table, 0, tail, rules, 2**63 - 1, True, False).roll_reason == roll.NO_ROLL


def test_values_are_immutable_and_compare() -> None:
    assert SegmentTail(5, offset_slots=1) == SegmentTail(5, offset_slots=1) != SegmentTail(6)
    assert hash(EMPTY) == hash(SegmentTail(offset_slots=10, time_slots=9))
    for value, name in ((EMPTY, "size"), (RULES, "max_size"), (planned(run(0, 1)), "last_offset")):
        with pytest.raises(AttributeError):
            setattr(value, name, 5)
        assert type(value).__name__ in repr(value)
    assert "roll first" in repr(planned(run(0, 13)))


def test_the_result_of_an_append() -> None:
    info = append_info(scan(run(3, 2)), 3, -1, 99, 1)
    assert (info.first_offset, info.last_offset, info.shallow_count, info.valid_bytes) == (3, 4, 2, 200)
    assert (info.log_append_time, info.log_start_offset, info.last_leader_epoch) == (99, 1, -1)


def test_misuse_raises() -> None:
    with pytest.raises(IndexError):
        planned(run(0, 1), row=1)
    with pytest.raises(TypeError):
        plan_append(None, 0, EMPTY, RULES, NOW, True, False)  # type: ignore[arg-type]
