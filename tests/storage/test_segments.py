"""LogSegments: an immutable sorted map (SEGS-1 to SEGS-6)."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import IllegalArgument
from kafkalog.storage.segments import LogSegments
from tests.storage.logs import append_batches, bases, log


@dataclass(frozen=True)
class Fake:
    """The part of a segment that the map uses."""

    base_offset: int
    size: int = 0
    last_known_offset: int = -1
    largest_timestamp: int = -1


def segments(*bases: int) -> LogSegments[Fake]:
    return LogSegments(Fake(base) for base in bases)


def base_of(segment: Fake | None) -> int | None:
    return None if segment is None else segment.base_offset


def test_add_get_contains_remove() -> None:
    """SEGS-1: each change is a new map."""
    empty = segments()
    one = empty.with_added(Fake(5))
    two = one.with_added(Fake(9))
    assert (len(empty), len(one), len(two)) == (0, 1, 2)
    assert 5 in two and 6 not in two
    assert base_of(two.get(9)) == 9 and two.get(7) is None
    assert (base_of(two.first), base_of(two.last), two.active.base_offset) == (5, 9, 9)
    assert two.without((5, 77)).base_offsets == (9,)
    assert two.base_offsets == (5, 9)


def test_an_empty_map_has_nothing() -> None:
    """SEGS-1."""
    empty = segments()
    assert [empty.first, empty.last, empty.floor(1), empty.higher(1), empty.lower(1), empty.get(1)] == [None] * 6
    assert empty.values(0, 9) == empty.higher_segments(0) == empty.non_active_from(0) == empty.from_time(0) == ()
    assert empty.size_in_bytes == 0
    with pytest.raises(IndexError):
        _ = empty.active


@given(st.sets(st.integers(0, 40)), st.integers(-1, 41))
def test_floor_lower_higher(have: set[int], at: int) -> None:
    """SEGS-2: greatest at or below, greatest below, lowest above."""
    held = segments(*have)
    assert base_of(held.floor(at)) == max((b for b in have if b <= at), default=None)
    assert base_of(held.lower(at)) == max((b for b in have if b < at), default=None)
    assert base_of(held.higher(at)) == min((b for b in have if b > at), default=None)
    assert [s.base_offset for s in held.higher_segments(at)] == sorted(b for b in have if b > at)


def test_values_from_and_to() -> None:
    """SEGS-3: equal bounds give nothing, bounds the wrong way round are illegal."""
    held = segments(1, 3, 5, 7, 9)

    def found(start: int, stop: int) -> list[int]:
        return [s.base_offset for s in held.values(start, stop)]

    assert found(4, 4) == []
    assert found(4, 7) == [3, 5]
    assert found(3, 8) == [3, 5, 7]
    assert found(0, 100) == [1, 3, 5, 7, 9]
    assert found(100, 200) == [9]
    with pytest.raises(IllegalArgument):
        held.values(5, 4)


def test_non_active_from() -> None:
    """SEGS-4: bases 1, 3, 5, 7, 9: from 2 on 1, 3, 5, 7; from 9 on none."""
    held = segments(1, 3, 5, 7, 9)
    assert [s.base_offset for s in held.non_active_from(2)] == [1, 3, 5, 7]
    assert [s.base_offset for s in held.non_active_from(8)] == [7]
    assert held.non_active_from(9) == () == held.non_active_from(10)


def test_sizes_add_up_beyond_32_bits() -> None:
    """SEGS-5."""
    assert LogSegments(Fake(n, 2**31 - 1) for n in range(3)).size_in_bytes == 3 * (2**31 - 1)


def test_adding_a_base_again_replaces_and_closing_closes_all(tmp_path: Path) -> None:
    """SEGS-6: a log that closes, closes each of its segments."""
    held = segments(1, 3).with_added(Fake(3, 77))
    assert held.base_offsets == (1, 3) and held.active.size == 77
    a_log = log(tmp_path, internal_segment_bytes=200)
    append_batches(a_log, times=5)
    assert bases(a_log) == [0, 2, 4]
    a_log.close()
    assert all(one.records.closed and one.offset_index.closed for one in a_log.segments)


def test_offsets_must_lie_between_the_bases() -> None:
    """SEGS-2: earlier offsets < base <= own offsets, checked at every change."""
    LogSegments([Fake(0, 1, 4), Fake(5, 1, 5)])
    for wrong in ([Fake(0, 1, 5), Fake(5)], [Fake(5, 1, 4)]):
        with pytest.raises(AssertionError):
            LogSegments(wrong)
    with pytest.raises(AssertionError):
        LogSegments([Fake(0, 1, 5)]).with_added(Fake(5))


def test_from_time_begins_at_the_first_segment_that_can_hold_it() -> None:
    """SEGS-2: largest times need not rise from segment to segment; the active one is looked at each time."""
    held = LogSegments([Fake(0, 1, -1, 50), Fake(5, 1, -1, 40), Fake(9, 1, -1, 70), Fake(20, 1, -1, 60)])
    assert [s.base_offset for s in held.from_time(45)] == [0, 5, 9, 20]
    assert [s.base_offset for s in held.from_time(51)] == [9, 20]
    assert held.from_time(71) == ()
