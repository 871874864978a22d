"""The high watermark, and the state that holds all offsets (LOG-27 to LOG-29)."""

from pathlib import Path

import pytest

from kafkalog._core.log.state import LogState
from kafkalog.errors import IllegalArgument, OffsetOutOfRange
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import Isolation, LogOffsetMetadata
from tests.storage.logs import append_batches, log


@pytest.fixture
def two_batches(tmp_path: Path) -> UnifiedLog:
    """A log of two batches, 0 to 4 and 5 to 9, whose high watermark moves only on request."""
    a_log = log(tmp_path, high_watermark_follows_end=False)
    append_batches(a_log, 120, 5, times=2)
    return a_log


def test_begins_at_the_log_start(tmp_path: Path) -> None:
    """LOG-27."""
    assert log(tmp_path, log_start_offset=7, high_watermark_follows_end=False).high_watermark == 7


def test_follows_the_end_where_there_is_no_replica(tmp_path: Path) -> None:
    """LOG-27: with the full place of the end."""
    a_log = log(tmp_path)
    append_batches(a_log, times=3)
    assert a_log.state.high_watermark_metadata == LogOffsetMetadata(3, 0, 300) == a_log.state.end_metadata


@pytest.mark.parametrize(("mark", "expected"), [(3, 3), (10, 10), (11, 10), (99, 10), (-1, 0), (0, 0)])
def test_update_clamps_to_the_log(two_batches: UnifiedLog, mark: int, expected: int) -> None:
    """LOG-27: within log start ... log end; it may go down again."""
    two_batches.update_high_watermark(8)
    assert two_batches.update_high_watermark(mark) == expected == two_batches.high_watermark


def test_update_clamps_to_the_log_start(two_batches: UnifiedLog) -> None:
    """LOG-27."""
    two_batches.update_high_watermark(10)
    two_batches.maybe_increment_log_start_offset(5)
    assert two_batches.update_high_watermark(2) == 5


def test_increment_only_goes_up(two_batches: UnifiedLog) -> None:
    """LOG-27: the old value when it grew, None else; above the log end it is an illegal argument."""
    assert two_batches.maybe_increment_high_watermark(LogOffsetMetadata(5, 0, 120)) == LogOffsetMetadata(0, 0, 0)
    assert two_batches.maybe_increment_high_watermark(LogOffsetMetadata(5, 0, 120)) is None
    assert two_batches.maybe_increment_high_watermark(LogOffsetMetadata(3)) is None
    assert two_batches.maybe_increment_high_watermark(LogOffsetMetadata(-1)) is None
    with pytest.raises(IllegalArgument):
        two_batches.maybe_increment_high_watermark(LogOffsetMetadata(11))
    assert two_batches.high_watermark == 5


def test_increment_to_the_same_offset_on_a_newer_segment(two_batches: UnifiedLog) -> None:
    """LOG-27: that is a step too; one without a place is none."""
    two_batches.update_high_watermark(LogOffsetMetadata(10, 0, 240))
    place = LogOffsetMetadata(10, 10, 0)
    assert two_batches.maybe_increment_high_watermark(place) == LogOffsetMetadata(10, 0, 240)
    assert two_batches.maybe_increment_high_watermark(LogOffsetMetadata(10)) is None
    assert two_batches.state.high_watermark_metadata == place


def test_a_cut_lowers_it(two_batches: UnifiedLog) -> None:
    """LOG-28: below the mark, to the new end; a cut above it leaves it alone."""
    two_batches.update_high_watermark(10)
    two_batches.truncate_to(5)
    assert two_batches.high_watermark == 5 and two_batches.state.high_watermark_metadata == LogOffsetMetadata(5, 0, 120)
    two_batches.update_high_watermark(2)
    append_batches(two_batches, 120, 5)
    two_batches.truncate_to(7)
    assert two_batches.high_watermark == 2


def test_a_roll_gives_it_its_new_place(two_batches: UnifiedLog) -> None:
    """LOG-29: else a reader could be given records above it too early (KAFKA-9196)."""
    two_batches.update_high_watermark(10)
    two_batches.roll()
    assert two_batches.state.high_watermark_metadata == LogOffsetMetadata(10, 10, 0)
    append_batches(two_batches, 120, 5)
    assert two_batches.read(10, 1000, "high_watermark").records.size == 0


def test_an_offset_alone_is_resolved_to_the_batch_that_holds_it(two_batches: UnifiedLog) -> None:
    """LOG-29: update(7) says 7; after the next bounded read it is 5, and so is the last stable offset."""
    assert two_batches.update_high_watermark(7) == 7
    assert two_batches.state.high_watermark_metadata == LogOffsetMetadata(7)
    assert two_batches.read(0, 1000, "high_watermark").records.size == 120
    assert (two_batches.high_watermark, two_batches.last_stable_offset) == (5, 5)
    assert two_batches.state.high_watermark_metadata == LogOffsetMetadata(5, 0, 120)


@pytest.mark.parametrize("isolation", ["high_watermark", "committed"])
def test_a_read_below_the_log_start_leaves_it(two_batches: UnifiedLog, isolation: Isolation) -> None:
    """LOG-29: the reference refuses the offset before it looks at the high watermark."""
    two_batches.update_high_watermark(7)
    with pytest.raises(OffsetOutOfRange):
        two_batches.read(-1, 1000, isolation)
    assert two_batches.state.high_watermark_metadata == LogOffsetMetadata(7)


def test_an_increment_resolves_the_old_one_first(two_batches: UnifiedLog) -> None:
    """LOG-29."""
    two_batches.update_high_watermark(7)
    assert two_batches.maybe_increment_high_watermark(LogOffsetMetadata(7)) == LogOffsetMetadata(5, 0, 120)


def test_an_offset_that_cannot_be_resolved_stays_alone(tmp_path: Path) -> None:
    """LOG-29: no OffsetOutOfRange escapes."""
    a_log = log(tmp_path, high_watermark_follows_end=False)
    append_batches(a_log, times=3)
    with_gap = a_log.state.replace(high_watermark=1, high_watermark_base=-1, log_start_offset=2)
    a_log._core.state = with_gap
    assert a_log.fetch_high_watermark() == LogOffsetMetadata(1)
    assert a_log.read(2, 100, "high_watermark").records.size == 0


def test_log_start_goes_up_to_the_high_watermark(two_batches: UnifiedLog) -> None:
    """LOG-27: LOG-36's rule: above it OffsetOutOfRange, at or below the start no change; nothing is deleted."""
    two_batches.update_high_watermark(6)
    with pytest.raises(OffsetOutOfRange):
        two_batches.maybe_increment_log_start_offset(7)
    assert two_batches.maybe_increment_log_start_offset(6)
    assert not two_batches.maybe_increment_log_start_offset(6)
    assert (two_batches.log_start_offset, two_batches.size) == (6, 240)


def test_a_state_is_checked_and_immutable(two_batches: UnifiedLog) -> None:
    """LOG-27, LOG-28: start <= end, high watermark <= end, recovery point <= end, always."""
    state = two_batches.state
    for wrong in ({"log_start_offset": 11}, {"high_watermark": 11}, {"recovery_point": 11}, {"log_start_offset": -1}):
        with pytest.raises(AssertionError):
            state.replace(**wrong)
    with pytest.raises(AttributeError):
        state.high_watermark = 3
    with pytest.raises(TypeError):
        state.replace(high_water=3)
    assert state.replace() == state and state != state.replace(high_watermark=3)
    assert isinstance(state, LogState) and "hw 0" in repr(state)


def test_an_unstable_offset_bounds_committed_reads(two_batches: UnifiedLog) -> None:
    """LOG-21: the first unstable offset where it lies below the high watermark."""
    state = two_batches.state.replace(high_watermark=10)
    assert state.last_stable_offset == 10
    assert state.replace(first_unstable_offset=4).last_stable_offset == 4
    assert state.replace(first_unstable_offset=12).last_stable_offset == 10
