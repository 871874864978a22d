"""Values of a clean: bytes counted, the first uncleanable offset moved to a segment's start (CLN-29)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.cleaner.types import COMPACTION_LAG, CleanerStats, LogToClean, check_map_bytes
from kafkalog.errors import IllegalArgument
from kafkalog.storage.log import UnifiedLog
from tests.cleaner.logs import append, open_log


@pytest.fixture
def log(tmp_path: Path) -> UnifiedLog:
    log = open_log(tmp_path)
    for _ in range(4):
        append(log, (b"k", b"v"))
        append(log, (b"k", b"v"))
        log.roll()
    return log


def test_segments_up_to_the_one_with_the_uncleanable_offset_count(log: UnifiedLog) -> None:
    sizes = [segment.size for segment in log.segments]
    found = LogToClean.of(log, 2, 7)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (2, 6)
    assert (found.clean_bytes, found.cleanable_bytes) == (sizes[0], sizes[1] + sizes[2])
    assert found.total_bytes == sum(sizes[:3])
    assert found.cleanable_ratio == pytest.approx(2 / 3)
    assert not found.needs_compaction_now
    assert LogToClean.of(log, 2, 7, COMPACTION_LAG).needs_compaction_now


def test_a_dirty_offset_inside_a_segment_makes_all_of_it_dirty_and_clean(log: UnifiedLog) -> None:
    sizes = [segment.size for segment in log.segments]
    found = LogToClean.of(log, 3, 8)
    assert (found.clean_bytes, found.cleanable_bytes) == (sum(sizes[:2]), sum(sizes[1:]))


def test_nothing_to_clean_has_no_ratio(log: UnifiedLog) -> None:
    assert LogToClean.of(log, 8, 8).cleanable_bytes == 0
    assert LogToClean.of(log, 0, 0).cleanable_ratio == 0.0


def test_stats_tell_times_once_they_are_known() -> None:
    stats = CleanerStats(10.0)
    assert (stats.elapsed_s, stats.map_s) == (0, 0)
    stats.map_complete_s, stats.end_s = 11.0, 14.0
    assert (stats.elapsed_s, stats.map_s) == (4.0, 1.0)


@pytest.mark.parametrize(("slots", "load_factor"), [(2, 1.0), (2, 0.51), (3, 0.4)])
def test_a_map_is_refused_only_if_it_holds_no_key(slots: int, load_factor: float) -> None:
    """CLN-5: with the bytes that a key takes."""
    check_map_bytes(24 * slots, load_factor)
    with pytest.raises(IllegalArgument, match=f"of {24 * slots - 1} bytes, {load_factor:.0%} full, has no room for a"):
        check_map_bytes(24 * slots - 1, load_factor)
    with pytest.raises(IllegalArgument, match="each key takes 24 bytes"):
        check_map_bytes(24 * slots, 1 / slots)
