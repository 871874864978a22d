"""The high watermark, and the state that holds all offsets (LOG-27 to LOG-29)."""

from pathlib import Path

import pytest

from kafkalog._core.log.state import LogState
from kafkalog.errors import IllegalArgument, OffsetOutOfRange
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import LogOffsetMetadata
from tests.storage.logs import lead, log


@pytest.fixture
def five(tmp_path: Path) -> UnifiedLog:
    """A log of two batches, 0 to 4 and 5 to 9, whose high watermark moves only when told."""
    a_log = log(tmp_path, high_watermark_follows_end=False)
    lead(a_log, 120, 5, times=2)
    return a_log


def test_begins_at_the_log_start(tmp_path: Path) -> None:
    """LOG-27."""
    assert log(tmp_path, log_start_offset=7, high_watermark_follows_end=False).high_watermark == 7


def test_follows_the_end_where_there_is_no_replica(tmp_path: Path) -> None:
    """LOG-27: with the full place of the end."""
    a_log = log(tmp_path)
    lead(a_log, times=3)
    assert a_log.state.high_watermark_metadata == LogOffsetMetadata(3, 0, 300) == a_log.state.end_metadata


@pytest.mark.parametrize(("mark", "expected"), [(3, 3), (10, 10), (11, 10), (99, 10), (-1, 0), (0, 0)])
def test_update_clamps_to_the_log(five: UnifiedLog, mark: int, expected: int) -> None:
    """LOG-27: within log start ... log end; it may go down again."""
    five.update_high_watermark(8)
    assert five.update_high_watermark(mark) == expected == five.high_watermark


def test_update_clamps_to_the_log_start(five: UnifiedLog) -> None:
    """LOG-27."""
    five.update_high_watermark(10)
    five.maybe_increment_log_start_offset(5)
    assert five.update_high_watermark(2) == 5


def test_increment_only_goes_up(five: UnifiedLog) -> None:
    """LOG-27: the old value when it grew, None else; above the log end it is an illegal argument."""
    assert five.maybe_increment_high_watermark(LogOffsetMetadata(5, 0, 120)) == LogOffsetMetadata(0, 0, 0)
    assert five.maybe_increment_high_watermark(LogOffsetMetadata(5, 0, 120)) is None
    assert five.maybe_increment_high_watermark(LogOffsetMetadata(3)) is None
    assert five.maybe_increment_high_watermark(LogOffsetMetadata(-1)) is None
    with pytest.raises(IllegalArgument):
        five.maybe_increment_high_watermark(LogOffsetMetadata(11))
    assert five.high_watermark == 5


def test_increment_to_the_same_offset_on_a_newer_segment(five: UnifiedLog) -> None:
    """LOG-27: that is a step too; one without a place is none."""
    five.update_high_watermark(LogOffsetMetadata(10, 0, 240))
    place = LogOffsetMetadata(10, 10, 0)
    assert five.maybe_increment_high_watermark(place) == LogOffsetMetadata(10, 0, 240)
    assert five.maybe_increment_high_watermark(LogOffsetMetadata(10)) is None
    assert five.state.high_watermark_metadata == place


def test_a_cut_lowers_it(five: UnifiedLog) -> None:
    """LOG-28: below the mark, to the new end; a cut above it leaves it alone."""
    five.update_high_watermark(10)
    five.truncate_to(5)
    assert five.high_watermark == 5 and five.state.high_watermark_metadata == LogOffsetMetadata(5, 0, 120)
    five.update_high_watermark(2)
    lead(five, 120, 5)
    five.truncate_to(7)
    assert five.high_watermark == 2


def test_a_roll_gives_it_its_new_place(five: UnifiedLog) -> None:
    """LOG-29: else a reader could be given records above it too early (KAFKA-9196)."""
    five.update_high_watermark(10)
    five.roll()
    assert five.state.high_watermark_metadata == LogOffsetMetadata(10, 10, 0)
    lead(five, 120, 5)
    assert five.read(10, 1000, "high_watermark").records.size == 0


def test_an_offset_alone_is_resolved_to_the_batch_that_holds_it(five: UnifiedLog) -> None:
    """LOG-29: update(7) says 7; after the next bounded read it is 5, and so is the last stable offset."""
    assert five.update_high_watermark(7) == 7
    assert five.state.high_watermark_metadata == LogOffsetMetadata(7)
    assert five.read(0, 1000, "high_watermark").records.size == 120
    assert (five.high_watermark, five.last_stable_offset) == (5, 5)
    assert five.state.high_watermark_metadata == LogOffsetMetadata(5, 0, 120)


def test_an_increment_resolves_the_old_one_first(five: UnifiedLog) -> None:
    """LOG-29."""
    five.update_high_watermark(7)
    assert five.maybe_increment_high_watermark(LogOffsetMetadata(7)) == LogOffsetMetadata(5, 0, 120)


def test_an_offset_that_cannot_be_resolved_stays_alone(tmp_path: Path) -> None:
    """LOG-29: no OffsetOutOfRange escapes."""
    a_log = log(tmp_path, high_watermark_follows_end=False)
    lead(a_log, times=3)
    with_gap = a_log.state.replace(high_watermark=1, high_watermark_base=-1, log_start_offset=2)
    a_log._core.state = with_gap
    assert a_log.fetch_high_watermark() == LogOffsetMetadata(1)
    assert a_log.read(2, 100, "high_watermark").records.size == 0


def test_log_start_goes_up_to_the_high_watermark(five: UnifiedLog) -> None:
    """LOG-27: LOG-36's rule: above it OffsetOutOfRange, at or below the start no change; nothing is deleted."""
    five.update_high_watermark(6)
    with pytest.raises(OffsetOutOfRange):
        five.maybe_increment_log_start_offset(7)
    assert five.maybe_increment_log_start_offset(6)
    assert not five.maybe_increment_log_start_offset(6)
    assert (five.log_start_offset, five.size) == (6, 240)


def test_a_state_is_checked_and_immutable(five: UnifiedLog) -> None:
    """LOG-27, LOG-28: start <= end, high watermark <= end, recovery point <= end, always."""
    state = five.state
    for wrong in ({"log_start_offset": 11}, {"high_watermark": 11}, {"recovery_point": 11}, {"log_start_offset": -1}):
        with pytest.raises(AssertionError):
            state.replace(**wrong)
    with pytest.raises(AttributeError):
        state.high_watermark = 3
    with pytest.raises(TypeError):
        state.replace(high_water=3)
    assert state.replace() == state and state != state.replace(high_watermark=3)
    assert isinstance(state, LogState) and "hw 0" in repr(state)


def test_an_unstable_offset_bounds_committed_reads(five: UnifiedLog) -> None:
    """LOG-21: the first unstable offset where it lies below the high watermark."""
    state = five.state.replace(high_watermark=10)
    assert state.last_stable_offset == 10
    assert state.replace(first_unstable_offset=4).last_stable_offset == 4
    assert state.replace(first_unstable_offset=12).last_stable_offset == 10
