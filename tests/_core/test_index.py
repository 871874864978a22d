"""Compiled look-ups: against a plain search, around the warm section, and while the owner changes things."""

import array
import bisect
import random
import struct
import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.log.index import OffsetEntries, TimeEntries, growing_offset_entries, growing_time_entries
from kafkalog._core.log.values import OffsetPosition, TimestampOffset

BASE = 45
LOWEST, HIGHEST = -(2**63), 2**63 - 1

rising = st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=60).map(sorted)


def offset_bytes(pairs: Sequence[tuple[int, int]]) -> bytes:
    """(relative offset, position) pairs as `.index` bytes."""
    return b"".join(struct.pack(">ii", *pair) for pair in pairs)


def time_bytes(pairs: Sequence[tuple[int, int]]) -> bytes:
    """(timestamp, relative offset) pairs as `.timeindex` bytes."""
    return b"".join(struct.pack(">qi", *pair) for pair in pairs)


def offset_entries(pairs: Sequence[tuple[int, int]], base: int = BASE) -> OffsetEntries:
    return OffsetEntries(offset_bytes(pairs), base, len(pairs))


def time_entries(pairs: Sequence[tuple[int, int]], base: int = BASE) -> TimeEntries:
    return TimeEntries(time_bytes(pairs), base, len(pairs))


def plain_lookup(keys: Sequence[int], target: int) -> int:
    """The place of the last key <= target, -1 for none."""
    return bisect.bisect_right(keys, target) - 1


@given(relative=rising, targets=st.lists(st.integers(-5, 2**31 + 100), max_size=40))
def test_offset_lookup_is_the_last_entry_at_or_below(relative: list[int], targets: list[int]) -> None:
    pairs = [(r, 3 * i + 1) for i, r in enumerate(relative)]
    entries = offset_entries(pairs)
    targets = [*targets, *relative, LOWEST, HIGHEST]
    expected = []
    for target in (t + BASE if LOWEST < t < HIGHEST else t for t in targets):
        found = plain_lookup(relative, target - BASE)
        expected.append((BASE + relative[found], pairs[found][1]) if found >= 0 else (BASE, 0))
        assert tuple(entries.lookup(target)) == expected[-1]
    offsets, positions = entries.lookup_many([t + BASE if LOWEST < t < HIGHEST else t for t in targets])
    assert list(zip(offsets, positions, strict=True)) == expected


@given(times=rising, targets=st.lists(st.integers(-5, 2**31 + 100), max_size=40))
def test_time_lookup_is_the_last_entry_at_or_before(times: list[int], targets: list[int]) -> None:
    pairs = [(t, i) for i, t in enumerate(times)]
    entries = time_entries(pairs)
    targets = [*targets, *times, LOWEST, HIGHEST]
    expected = []
    for target in targets:
        found = plain_lookup(times, target)
        expected.append((times[found], BASE + found) if found >= 0 else (-1, BASE))
        assert tuple(entries.lookup(target)) == expected[-1]
    timestamps, offsets = entries.lookup_many(targets)
    assert list(zip(timestamps, offsets, strict=True)) == expected


@pytest.mark.parametrize("count", [1, 2, 1023, 1024, 1025, 1026, 8192, 8193, 9000, 70_001])
def test_warm_and_cold_halves_agree(count: int) -> None:
    """IDX-14: more entries than the 8192 bytes that are tried first."""
    relative = [2 * i + 1 for i in range(count)]
    entries = offset_entries([(r, 10 * i) for i, r in enumerate(relative)])
    cold = count - 1024
    near = {0, 1, 2, count // 2, cold - 2, cold - 1, cold, cold + 1, count - 2, count - 1}
    for i in (i for i in near if 0 <= i < count):
        for target, expected in ((relative[i], i), (relative[i] + 1, i), (relative[i] - 1, i - 1)):
            position = 10 * expected if expected >= 0 else 0
            assert entries.lookup(BASE + target).position == position, (i, target)
    every = range(relative[-1] + 3)
    offsets, positions = entries.lookup_many(np.fromiter((BASE + t for t in every), np.int64))
    assert list(positions) == [10 * max((t - 1) // 2, 0) for t in every[:-2]] + [10 * (count - 1)] * 2
    assert offsets[0] == BASE


@pytest.mark.parametrize("count", [0, 1, 682, 683, 684, 5000])
def test_warm_and_cold_halves_of_times_agree(count: int) -> None:
    """IDX-14 for the 682 time entries of the warm section."""
    entries = time_entries([(100 + 10 * i, i) for i in range(count)])
    targets = list(range(95, 100 + 10 * count + 15, 5))
    expected = [(t - 100) // 10 if t >= 100 else -1 for t in targets]
    expected = [min(e, count - 1) for e in expected]
    found = [entries.lookup(t) for t in targets]
    assert [f.offset - BASE for f in found] == [max(e, 0) for e in expected]
    assert [f.timestamp for f in found] == [100 + 10 * e if e >= 0 else -1 for e in expected]
    assert list(entries.lookup_many(targets)[0]) == [f.timestamp for f in found]


MANY = 12_000
"""Entries that take more than the 64 KiB from which on a place is guessed, in front of the warm section."""


TOGETHER = 16
"""Look-ups of an array that are made at once."""


def together(entries: OffsetEntries | TimeEntries, targets: list[int]) -> list[tuple[int, int]]:
    """The results of looking up the targets TOGETHER times, in one array."""
    return list(zip(*entries.lookup_many(targets * TOGETHER), strict=True))


def climbing(steps: Sequence[int], lowest: int, highest: int) -> list[int]:
    """MANY rising keys that go up by `steps`, again and again, from `lowest` on; cut off above `highest`."""
    every = np.resize(np.array(steps, np.object_), MANY)
    keys = lowest + np.cumsum(every)
    return [int(key) for key in keys if key <= highest]


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.one_of(st.integers(1, 5), st.integers(1, 2**17)), min_size=1, max_size=40),
    first=st.integers(0, 2**30),
    data=st.data(),
)
def test_a_place_that_is_guessed_is_the_one_a_plain_search_finds(
    steps: list[int], first: int, data: st.DataObject
) -> None:
    """Keys that grow evenly, by leaps, and mostly behind one leap."""
    if data.draw(st.booleans()):
        steps = [*[1] * data.draw(st.integers(0, MANY)), data.draw(st.integers(1, 2**30)), *steps]
    relative = climbing(steps, first, 2**31 - 1)
    entries = offset_entries([(key, i) for i, key in enumerate(relative)])
    places = data.draw(st.lists(st.integers(0, len(relative) - 1), max_size=30)) if relative else []
    targets, expected = [t + near for t in (relative[i] for i in places) for near in (-1, 0, 1)], []
    for target in targets:
        found = plain_lookup(relative, target)
        expected.append((BASE + relative[found], found) if found >= 0 else (BASE, 0))
        assert tuple(entries.lookup(BASE + target)) == expected[-1]
    assert together(entries, [BASE + target for target in targets]) == expected * TOGETHER


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.one_of(st.integers(1, 5), st.integers(1, 2**50)), min_size=1, max_size=40),
    first=st.sampled_from([LOWEST, LOWEST + 2**50, -5, 0, 2**62, HIGHEST - 10**6]),
    places=st.lists(st.integers(0, MANY - 1), max_size=30),
)
def test_a_time_that_is_guessed_is_the_one_a_plain_search_finds(
    steps: list[int], first: int, places: list[int]
) -> None:
    """Times at both ends of their range, and so far apart that their difference is none of 64 bits with a sign."""
    times = climbing(steps, first, HIGHEST)
    entries = time_entries([(time, i) for i, time in enumerate(times)])
    targets, expected = [], []
    for i in (place % len(times) for place in places if times):
        for target in {max(times[i] - 1, LOWEST), times[i], min(times[i] + 1, HIGHEST)}:
            found = plain_lookup(times, target)
            targets.append(target)
            expected.append((times[found], BASE + found) if found >= 0 else (-1, BASE))
            assert tuple(entries.lookup(target)) == expected[-1]
    assert together(entries, targets) == expected * TOGETHER


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), targets=st.lists(st.integers(LOWEST, HIGHEST), min_size=1, max_size=20))
def test_a_guess_in_entries_of_any_bytes_stays_among_them(seed: int, targets: list[int]) -> None:
    content = random.Random(seed).randbytes(12 * MANY)
    offsets, times = OffsetEntries(content, BASE, MANY * 12 // 8), TimeEntries(content, BASE, MANY)
    known = {offsets.entry(i) for i in range(MANY * 12 // 8)} | {OffsetPosition(BASE, 0)}
    assert {OffsetPosition(*one) for one in together(offsets, [target % 2**32 for target in targets])} <= known
    known_times = {times.entry(i) for i in range(MANY)} | {TimestampOffset(-1, BASE)}
    assert {TimestampOffset(*one) for one in together(times, targets)} <= known_times
    for target in targets:
        assert offsets.lookup(target % 2**32) in known
        assert times.lookup(target) in known_times


def test_upper_bound_is_the_first_entry_at_or_after_a_position() -> None:
    """IDX-7, on positions; the search of the reference passes over a first entry that has just the position."""
    entries = offset_entries([(0, 0), (1, 10), (2, 23), (3, 37)])
    expected = {-5: 0, 0: 1, 1: 1, 10: 1, 11: 2, 23: 2, 24: 3, 37: 3, LOWEST: 0}
    for position, n in expected.items():
        assert entries.upper_bound(position) == entries.entry(n)
    assert entries.upper_bound(38) is None
    assert entries.upper_bound(HIGHEST) is None
    assert offset_entries([]).upper_bound(0) is None and offset_entries([(0, 7)]).upper_bound(7) is None


def test_count_below() -> None:
    """IDX-8, TIDX-5: time entries may share an offset, and all of them go."""
    entries = offset_entries([(1, 1), (4, 2), (9, 3)])
    assert [entries.count_below(BASE + t) for t in (0, 1, 2, 4, 5, 9, 10)] == [0, 0, 1, 1, 2, 2, 3]
    times = time_entries([(1, 4), (2, 4), (3, 4), (4, 6)])
    assert [times.count_below(BASE + t) for t in (3, 4, 5, 6, 7)] == [0, 0, 3, 3, 4]
    assert entries.count_below(LOWEST) == 0
    assert entries.count_below(HIGHEST) == 3


def test_entry_and_count_bounds() -> None:
    """IDX-5: no entry outside 0..count-1, and no count beyond the buffer."""
    entries = OffsetEntries(offset_bytes([(1, 1), (4, 2), (9, 3)]) + b"tail", BASE, 2)
    assert entries.entry(1) == OffsetPosition(49, 2)
    for n in (-1, 2, 3, 2**62):
        with pytest.raises(IndexError):
            entries.entry(n)
    entries.count = 3
    assert entries.entry(2) == OffsetPosition(54, 3)
    for count in (4, -1):
        with pytest.raises(ValueError, match="do not hold"):
            entries.count = count
    with pytest.raises(ValueError, match="28 bytes do not hold 4 entries of 8"):
        OffsetEntries(offset_bytes([(1, 1)] * 3) + b"tail", BASE, 4)
    with pytest.raises(ValueError, match="base offset"):
        OffsetEntries(b"", -1, 0)
    assert time_entries([(7, 2)]).entry(0) == TimestampOffset(7, 47)


def test_lowering_the_count_hides_entries() -> None:
    entries = offset_entries([(1, 1), (4, 2), (9, 3)])
    entries.count = 1
    assert entries.lookup(BASE + 100) == OffsetPosition(46, 1)
    assert list(entries.lookup_many([BASE + 100])[1]) == [1]


def test_a_closed_index_raises_what_its_owner_says() -> None:
    """IDX-16: any use after closing is an error, closing twice is harmless."""
    entries = offset_entries([(1, 1)])
    entries.close(lambda: KeyError("gone"))
    entries.close(lambda: KeyError("gone"))
    assert entries.closed
    calls = [
        lambda: entries.lookup(46), lambda: entries.lookup_many([46]), lambda: entries.lookup_many([]),
        lambda: entries.upper_bound(0), lambda: entries.entry(0), lambda: entries.count,
        lambda: entries.count_below(3), lambda: setattr(entries, "count", 0),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(KeyError, match="gone"):
            call()
    entries.attach(offset_bytes([(2, 2)]), 1)
    assert entries.lookup(BASE + 2).position == 2
    bare = OffsetEntries.__new__(OffsetEntries)
    with pytest.raises(ValueError, match="closed"):
        bare.lookup(1)


def test_close_releases_the_buffer() -> None:
    buffer = bytearray(offset_bytes([(1, 1)]))
    entries = OffsetEntries(buffer, BASE, 1)
    with pytest.raises(BufferError):
        buffer.append(0)
    entries.attach(b"", 0)
    buffer.append(0)
    entries.attach(buffer, 1)
    entries.close()
    buffer.append(0)


@given(
    sizes=st.lists(st.sampled_from([100, 3000, 5000, 9000, 40_000]), min_size=1, max_size=40), step=st.integers(1, 7)
)
def test_a_window_holds_the_batch_whole_or_begins_behind_it(sizes: list[int], step: int) -> None:
    """Entries as appends make them: one before each batch that follows more than 4096 bytes."""
    pairs, waiting, position, places = [], 0, 0, []
    for number, size in enumerate(sizes):
        if waiting > 4096:
            pairs.append(((number + 1) * step - 1, position))
            waiting = 0
        places.append((number * step, position, size))
        position += size
        waiting += size
    entries = offset_entries(pairs)
    for first, place, size in places:
        for offset in range(first, first + step):
            start, length = entries.window(BASE + offset)
            assert start == 0 or start in [at for _, at in pairs]
            if start <= place:
                assert length == 0 or start + length >= place + size
            else:
                assert start - max(at for at in (0, *(at for _, at in pairs)) if at <= place) > 8192


@pytest.mark.parametrize("target", [LOWEST, -1, 0, BASE, HIGHEST])
def test_windows_of_an_index_without_entries_or_with_damaged_ones(target: int) -> None:
    assert offset_entries([]).window(target) == (0, 0)
    for pairs in ([(5, -7)], [(5, 2**31 - 1), (6, -(2**31))], [(5, 0), (5, 0), (4, 3)]):
        start, length = offset_entries(pairs).window(target)
        assert abs(start) <= 2**31 and abs(length) <= 2**32


def test_lookup_many_takes_any_64_bit_integers() -> None:
    entries = offset_entries([(1, 1), (4, 2)])
    targets = [0, 46, 47, 49, 1000]
    expected = [0, 1, 1, 2, 2]
    for given_targets in (targets, tuple(targets), iter(targets), array.array("q", targets), np.array(targets)):
        assert list(entries.lookup_many(given_targets)[1]) == expected
    found = entries.lookup_many(np.array(targets))[1]
    assert np.asarray(found).dtype == np.int64
    assert len(entries.lookup_many([])[0]) == 0
    for wrong in (np.array([1.0]), np.array([1], np.int32), np.array([1], np.uint64), b"12345678"):
        with pytest.raises(TypeError):
            entries.lookup_many(wrong)
    with pytest.raises(TypeError):
        entries.lookup_many(["a"])
    with pytest.raises((BufferError, ValueError)):
        entries.lookup_many(np.arange(10)[::2])


def test_numbers_outside_64_bits() -> None:
    entries = offset_entries([(1, 1)], base=2**62)
    assert entries.lookup(LOWEST).offset == 2**62
    with pytest.raises(OverflowError):
        entries.lookup(2**63)


def test_growing_prefix_ends_where_entries_stop_growing() -> None:
    """The preallocated index of a live log: zeros, or what a truncation left, follow its entries."""
    grow = [(3, 500), (9, 900), (10, 2000)]
    assert growing_offset_entries(offset_bytes([*grow, (0, 0), (0, 0)])) == 3
    assert growing_offset_entries(offset_bytes([*grow, (4, 3000)])) == 3
    assert growing_offset_entries(offset_bytes([*grow, (11, 2000)])) == 3
    assert growing_offset_entries(offset_bytes([(0, 0)] * 5)) == 0
    assert growing_offset_entries(offset_bytes([(-3, 5), (4, 6)])) == 0
    assert growing_offset_entries(offset_bytes([(4, -6)])) == 0
    assert growing_offset_entries(offset_bytes(grow) + b"1234567") == 3
    assert growing_offset_entries(b"") == 0
    assert growing_offset_entries(offset_bytes(grow), 3, 400) == 0
    assert growing_offset_entries(offset_bytes(grow), 2, 499) == 3
    times = [(5, 3), (6, 3), (9, 10)]
    assert growing_time_entries(time_bytes([*times, (0, 0)])) == 3
    assert growing_time_entries(time_bytes([*times, (9, 11)])) == 3
    assert growing_time_entries(time_bytes([*times, (10, 9)])) == 3
    assert growing_time_entries(time_bytes([(0, 0), (1, 0), (2, 4), (0, 0)])) == 3  # the first record's time is 0
    for free in ([(0, 0)], [(0, 0), (0, 0)], [(0, 0), (1, -1)], [(0, 0), (-1, 1)], [(0, 0), (0, 4)]):
        assert growing_time_entries(time_bytes(free)) == 0
    assert growing_time_entries(time_bytes([(0, 0), (1, 1)]), 0, 0) == 0
    assert growing_time_entries(time_bytes([(5, -1)])) == 0
    assert growing_time_entries(time_bytes(times), 5, 0) == 0
    assert growing_time_entries(time_bytes(times), 4, 0) == 3


def test_searches_go_on_while_the_owner_swaps_and_cuts() -> None:
    """A search without the GIL is waited for: every answer is right for one of the states the owner went through."""
    few, many = offset_bytes([(2, 7)]), offset_bytes([(i + 1, 2 * i) for i in range(20_000)])
    entries = OffsetEntries(many, 0, 20_000)
    targets = np.array(random.Random(3).choices(range(20_001), k=20_000))
    stop = threading.Event()
    wrong: list[tuple[int, int, int]] = []

    def search() -> None:
        while not stop.is_set():
            offsets, positions = entries.lookup_many(targets)
            rows = zip(targets.tolist(), offsets, positions, strict=True)
            wrong.extend(
                (t, o, p) for t, o, p in rows if (o, p) not in ((0, 0), (2, 7)) and not (o <= t and p == 2 * (o - 1))
            )

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        entries.attach(few, 1)
        entries.attach(bytearray(many), 20_000)
        entries.count = 5
        entries.count = 20_000
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
