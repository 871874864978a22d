"""Offsets that hold the last record of their key: as the map says, and none where an offset is ambiguous."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.batch.scan import scan
from kafkalog._core.clean.live_offsets import LiveOffsets
from kafkalog._core.clean.map_filler import MapFiller
from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog._core.log.txns import AbortedRanges
from tests.cleaner.filtering import build_batch, build_producer_batch

END = 1 << 40


def learnt(
    data: bytes,
    *,
    start: int = 0,
    end: int = END,
    slots: int = 1000,
    room: int = 1 << 10,
    aborted: AbortedRanges | None = None,
) -> tuple[LiveOffsets, SkimpyOffsetMap]:
    """Return the live offsets after the map was filled with all of `data`."""
    live, offset_map = LiveOffsets(start, end, room), SkimpyOffsetMap(24 * slots)
    filler = MapFiller(
        offset_map, aborted or AbortedRanges(), start_offset=start, end_offset=end, most=slots, live=live
    )
    table = scan(data)
    filler.take(data, table, 0, len(table))
    live.settle(offset_map, filler.messages_read)
    return live, offset_map


@given(seed=st.integers(0, 2**32), slots=st.sampled_from([1, 7, 1000]))
def test_it_says_what_the_map_says(seed: int, slots: int) -> None:
    """CLN-3, CLN-4, CLN-6: of any range of offsets, with gaps, from any offset on, up to where a full map ends."""
    rng = Random(seed)
    offset, data, keys = rng.randint(0, 100), b"", {}
    first = offset
    for _ in range(rng.randint(1, 12)):
        count = rng.choice([1, 2, 7, 70])
        these = [rng.choice([None, *(b"%d" % n for n in range(40))]) for _ in range(count)]
        data += build_batch(offset, *((key, rng.choice([b"v", None])) for key in these))
        keys.update({offset + n: key for n, key in enumerate(these)})
        offset += count + rng.choice([0, 0, 1, 200])
    start = rng.randint(first, max(keys))
    end = rng.choice([offset, rng.randint(start, offset)])
    room = rng.choice([1, 9, 1 << 10])
    live, offset_map = learnt(data, start=start, end=end, slots=slots, room=room)
    assert (live.first, live.end) == (start, max(start, min(end, start + 8 * room, offset_map.latest_offset + 1)))
    for _ in range(20):
        low = rng.randint(first - 1, offset)
        high = rng.randint(low, offset)
        expected = -1
        if start <= low and high < live.end:
            asked = ((n, keys.get(n)) for n in range(low, high + 1))
            expected = sum(key is not None and offset_map.get(key) == n for n, key in asked)
        assert live.count(low, high) == expected


@pytest.mark.parametrize(
    "data",
    [
        build_batch(10, (b"a", b"1")) + build_batch(5, (b"b", b"2")),
        build_batch(10, (b"a", b"1")) + build_batch(10, (b"b", b"2")),
        build_batch(10, (b"a", b"1"), (b"b", b"2")) + build_batch(11, (b"c", b"3")),
    ],
    ids=["back", "twice", "overlap"],
)
def test_nothing_is_known_where_an_offset_may_mean_two_records(data: bytes) -> None:
    live, _ = learnt(data)
    assert live.end == live.first
    assert [live.count(offset, offset) for offset in (5, 10, 11)] == [-1, -1, -1]


def test_nothing_is_known_before_it_was_learnt_nor_without_room() -> None:
    assert LiveOffsets(0, END, 100).count(0, 0) == -1
    assert learnt(build_batch(0, (b"a", b"1")), room=0)[0].count(0, 0) == -1
    with pytest.raises(ValueError, match="no room"):
        LiveOffsets(0, END, -1)


def test_data_of_aborted_transactions_is_left_out() -> None:
    """CLN-14: it must not count as records whose keys were put."""
    data = build_producer_batch(0, 7, 0, 1, txn=True) + build_batch(1, (b"1", b"x"))
    assert not learnt(data)[0].left_out
    live, _ = learnt(data, aborted=AbortedRanges([(7, 0, 5)]))
    assert live.left_out and live.count(0, 0) == 0 and live.count(1, 1) == 1


def test_a_map_with_many_more_slots_than_records_is_not_gone_over() -> None:
    live, offset_map = learnt(build_batch(0, (b"a", b"1")), slots=1 << 14)
    assert offset_map.get(b"a") == 0 and live.count(0, 0) == -1
