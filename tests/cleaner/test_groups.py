"""Segments that become one: by bytes, by index entries, by the span of their offsets (CLN-23, CLN-24, CLN-45)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.cleaner.groups import group_segments

FAR = 2**31


def index(size: int) -> Any:
    return SimpleNamespace(size_in_bytes=size)


@dataclass
class Part:
    base_offset: int
    size: int = 70
    offset_index: Any = field(default_factory=lambda: index(8))
    time_index: Any = field(default_factory=lambda: index(12))


def list_bases(groups: list[list[Part]]) -> list[list[int]]:
    return [[part.base_offset for part in group] for group in groups]


def make_parts(*starts: int, **more: Any) -> list[Part]:
    return [Part(start, **more) for start in starts]


@pytest.mark.parametrize(("limit", "expected"), [(70, 6), (139, 6), (140, 3), (210, 2), (420, 1), (10, 6)])
def test_groups_by_size(limit: int, expected: int) -> None:
    """CLN-23: six segments of 70 bytes; one that is larger than the limit is alone."""
    segments = make_parts(*range(6))
    groups = group_segments(segments, limit, 1000, 6)
    assert len(groups) == expected
    assert [part for group in groups for part in group] == segments


def test_groups_by_index_entries() -> None:
    """CLN-23: a time index limit of 24 bytes makes pairs, an offset index limit of 16 as well."""
    assert list_bases(group_segments(make_parts(*range(6)), 10**6, 24, 6)) == [[0, 1], [2, 3], [4, 5]]
    no_times = make_parts(*range(6), time_index=index(0))
    assert list_bases(group_segments(no_times, 10**6, 16, 6)) == [[0, 1], [2, 3], [4, 5]]


def test_the_span_of_offsets_ends_a_group() -> None:
    """CLN-24, CLN-45: the next base less 1 counts as the last offset, for the last one the first uncleanable offset."""
    segments = make_parts(0, 100, FAR - 100, FAR)
    assert list_bases(group_segments(segments, 10**6, 1000, FAR + 1)) == [[0, 100, FAR - 100], [FAR]]
    segments = make_parts(0, 100, FAR + 100)
    assert list_bases(group_segments(segments, 10**6, 1000, FAR + 101)) == [[0], [100], [FAR + 100]]
    assert list_bases(group_segments(make_parts(0, 100), 10**6, 1000, FAR)) == [[0, 100]]
    assert list_bases(group_segments(make_parts(0, 100), 10**6, 1000, FAR + 1)) == [[0], [100]]


def test_an_empty_segment_joins_however_far_the_next_one_is() -> None:
    """CLN-24: else an empty one would stay every 2^31 offsets."""
    segments = [Part(0), Part(100, size=0), Part(3 * FAR)]
    assert list_bases(group_segments(segments, 10**6, 1000, 3 * FAR + 1)) == [[0, 100], [3 * FAR]]
    assert list_bases(group_segments([Part(0), Part(100, size=0)], 10**6, 1000, 3 * FAR)) == [[0, 100]]


def test_no_segments_make_no_groups() -> None:
    assert group_segments([], 10, 10, 0) == []


@given(
    st.lists(st.tuples(st.integers(1, FAR), st.integers(0, 300), st.integers(0, 5), st.integers(0, 5)), max_size=12),
    st.integers(1, 600),
    st.integers(4, 80),
)
def test_each_group_fits_and_could_take_no_more(
    rows: list[tuple[int, int, int, int]], limit: int, index_limit: int
) -> None:
    """CLN-23, CLN-45: order is kept; groups of several fit all limits, and the segment after a group would not."""
    segments, end_of, base = [], {}, 0
    for step, size, entries, times in rows:
        segments.append(Part(base, size, index(8 * entries), index(12 * times)))
        end_of[base] = base + step
        base += step
    groups = group_segments(segments, limit, index_limit, base)
    assert [part for group in groups for part in group] == segments

    def fits(group: list[Part]) -> bool:
        span = all(end_of[p.base_offset] - 1 - group[0].base_offset < FAR for p in group[1:] if p.size)
        sums = [sum(p.size for p in group), sum(p.offset_index.size_in_bytes for p in group)]
        sums.append(sum(p.time_index.size_in_bytes for p in group))
        return span and sums[0] <= limit and max(sums[1:]) <= index_limit

    assert all(len(group) == 1 or fits(group) for group in groups)
    assert not any(fits([*group, following[0]]) for group, following in pairwise(groups))
