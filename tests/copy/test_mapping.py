"""Offsets of groups in the target: readers at both ends read the same records next, for any gaps and any offset."""

from hypothesis import given
from hypothesis import strategies as st

from kafkalog.copy.mapping import OffsetMap

RUNS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), max_size=12)
"""Gaps, and numbers of records behind them."""


def records_of(start: int, runs: list[tuple[int, int]]) -> list[int]:
    """The source's offsets of the records."""
    found, at = [], start
    for gap, count in runs:
        at += gap
        found += range(at, at + count)
        at += count
    return found


def mapped(start: int, first: int, runs: list[tuple[int, int]], tail: int) -> tuple[OffsetMap, int]:
    offsets, at = OffsetMap(start, first), start
    for gap, count in runs:
        offsets.add(at + gap, count)
        at += gap + count
    offsets.close(at + tail)
    return offsets, at + tail


@given(st.integers(0, 20), st.integers(0, 20), RUNS, st.integers(0, 3), st.integers(0, 120))
def test_a_translated_offset_has_the_same_records_before_it(
    start: int, first: int, runs: list[tuple[int, int]], tail: int, offset: int
) -> None:
    offsets, end = mapped(start, first, runs, tail)
    records = records_of(start, runs)
    assert offsets.translate(offset) == first + sum(one < offset for one in records)
    assert (offsets.source_end, offsets.target_end) == (end, first + len(records))
    assert offsets.is_identity == (records == list(range(first, first + len(records))))


@given(st.integers(0, 5), RUNS, st.data())
def test_translation_never_goes_back(start: int, runs: list[tuple[int, int]], data: st.DataObject) -> None:
    offsets, end = mapped(start, 0, runs, 0)
    one, other = sorted(data.draw(st.tuples(st.integers(0, end + 2), st.integers(0, end + 2))))
    assert offsets.translate(one) <= offsets.translate(other) <= offsets.target_end
