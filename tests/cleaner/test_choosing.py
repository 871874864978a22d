"""The cleanable part of a log, and the log to clean next: the rules, over states that are values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.cleaner.choosing import (
    Candidate,
    OffsetsToClean,
    candidate,
    choose,
    cleanable_offsets,
    compaction_delay_ms,
)
from kafkalog.cleaner.types import COMPACTION_LAG, DIRTY_RATIO, LogToClean
from kafkalog.config.topic import LogConfig
from kafkalog.storage.segments import LogSegments
from tests.cleaner.logs import append, open_log
from tests.cleaner.pools import Pool
from tests.storage.logs import NOW

MAX_LONG = 2**63 - 1


class Part(NamedTuple):
    """A segment as the rules see it."""

    base_offset: int
    largest_timestamp: int = NOW
    first_batch_timestamp: int = NOW
    size: int = 100
    last_known_offset: int = -1


class Whole(NamedTuple):
    """A log's state as the rules see it."""

    segments: LogSegments[Part]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int


def log_state(bases: Sequence[int], end: int, *, start: int = 0, stable: int | None = None, **columns: int) -> Whole:
    times = [NOW + columns.get("step", 0) * at for at in range(len(bases))]
    parts = [Part(base, time, time) for base, time in zip(bases, times, strict=True)]
    return Whole(LogSegments(parts), start, end, end if stable is None else stable)


def compact(**settings: object) -> LogConfig:
    return LogConfig(cleanup_policy="compact", **settings)


def test_all_but_the_active_segment_is_cleanable() -> None:
    """CLN-30: without a checkpoint from the log start on."""
    assert cleanable_offsets(log_state([0, 10, 20], 25), compact(), None, NOW) == OffsetsToClean(0, 20, False)
    assert cleanable_offsets(log_state([5, 10, 20], 25, start=7), compact(), None, NOW) == OffsetsToClean(7, 20, False)
    assert cleanable_offsets(log_state([0], 25), compact(), None, NOW) == OffsetsToClean(0, 0, False)


def test_the_checkpoint_is_where_the_dirty_part_begins() -> None:
    """CLN-46: inside a segment, too."""
    assert cleanable_offsets(log_state([0, 10, 20], 25), compact(), 13, NOW) == OffsetsToClean(13, 20, False)
    assert cleanable_offsets(log_state([0, 10, 20], 25), compact(), 23, NOW) == OffsetsToClean(23, 23, False)


@pytest.mark.parametrize(("checkpoint", "start"), [(3, 7), (26, 7), (-1, 0), (MAX_LONG, 0)])
def test_a_checkpoint_outside_the_log_is_repaired(checkpoint: int, start: int) -> None:
    """CLN-32: reset to the log start."""
    found = cleanable_offsets(log_state([0, 10, 20], 25, start=start), compact(), checkpoint, NOW)
    assert found == OffsetsToClean(start, 20, True)


def test_a_checkpoint_at_either_end_of_the_log_counts() -> None:
    log = log_state([0, 10, 20], 25, start=7)
    assert cleanable_offsets(log, compact(), 7, NOW) == OffsetsToClean(7, 20, False)
    assert cleanable_offsets(log, compact(), 25, NOW) == OffsetsToClean(25, 25, False)


def test_a_log_start_above_the_active_base_leaves_nothing_to_clean() -> None:
    """CLN-32: and is no error (KAFKA-8764)."""
    log = log_state([0, 10, 20], 25, start=23)
    assert cleanable_offsets(log, compact(), 15, NOW) == OffsetsToClean(23, 23, True)
    assert compaction_delay_ms(log, compact(max_compaction_lag_ms=1), 23, NOW + 100) == 0


def test_nothing_from_the_last_stable_offset_on() -> None:
    """CLN-15: an open transaction, or a high watermark, in an older segment (KAFKA-13194)."""
    for stable, checkpoint, expected in ((12, None, (0, 12)), (0, None, (0, 0)), (3, 8, (8, 8))):
        state = log_state([0, 10, 20], 25, stable=stable)
        assert cleanable_offsets(state, compact(), checkpoint, NOW) == OffsetsToClean(*expected, False)


def test_a_compaction_lag_stops_at_the_first_young_segment() -> None:
    """CLN-30: one whose largest time is above now - lag; an older one behind it does not count."""
    log = log_state([0, 10, 20, 30, 40], 45, step=1000)  # times NOW, NOW + 1000, ...
    lag = compact(min_compaction_lag_ms=500)
    assert cleanable_offsets(log, lag, None, NOW + 1499).first_uncleanable_offset == 10
    assert cleanable_offsets(log, lag, None, NOW + 1500).first_uncleanable_offset == 20
    assert cleanable_offsets(log, lag, None, NOW + 499).first_uncleanable_offset == 0
    assert cleanable_offsets(log, lag, None, NOW + 3500).first_uncleanable_offset == 40
    assert cleanable_offsets(log, lag, 25, NOW).first_uncleanable_offset == 25
    assert cleanable_offsets(log, compact(min_compaction_lag_ms=MAX_LONG), None, NOW).first_uncleanable_offset == 0
    assert cleanable_offsets(log, compact(min_compaction_lag_ms=1), None, NOW).first_uncleanable_offset == 0
    assert cleanable_offsets(log, compact(), None, NOW - 99_999).first_uncleanable_offset == 40  # times to come
    mixed = Whole(LogSegments([Part(0, NOW), Part(10, NOW + 9999), Part(20, NOW), Part(30, NOW)]), 0, 35, 35)
    assert cleanable_offsets(mixed, lag, None, NOW + 1000).first_uncleanable_offset == 10


def test_the_longest_lag_is_of_the_oldest_dirty_segment() -> None:
    """CLN-31: by the time of its first batch; neither clean segments nor the active one count."""
    log = log_state([0, 10, 20, 30], 35, step=1000)
    lag = compact(max_compaction_lag_ms=500)
    assert compaction_delay_ms(log, lag, 0, NOW + 500) == 0
    assert compaction_delay_ms(log, lag, 0, NOW + 501) == 1
    assert compaction_delay_ms(log, lag, 10, NOW + 1500) == 0
    assert compaction_delay_ms(log, lag, 15, NOW + 1600) == 100
    assert compaction_delay_ms(log, lag, 30, NOW + 99_999) == 0
    assert compaction_delay_ms(log, compact(), 0, NOW + 99_999) == 0


def test_segments_without_a_time_have_no_age() -> None:
    """CLN-31: a first batch without a time, or no batch at all, makes nothing due."""
    parts = LogSegments([Part(0, NOW, -1), Part(10, NOW, 0), Part(20, NOW, MAX_LONG), Part(30, NOW, NOW)])
    assert compaction_delay_ms(Whole(parts, 0, 35, 35), compact(max_compaction_lag_ms=1), 0, NOW) == 0


@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=8, unique=True).map(sorted),
    st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6),
    st.none() | st.integers(-2, 2 * 10**6), st.integers(0, 3000),
)  # fmt: skip
def test_the_range_lies_in_the_log_whatever_the_checkpoint(
    bases: list[int], start: int, more: int, stable: int, checkpoint: int | None, lag: int
) -> None:
    """CLN-30, CLN-32: from log start on, never into the active segment or above what is stable."""
    end = max(bases[-1], start) + more
    log = log_state(bases, end, start=start, stable=min(stable, end), step=1000)
    found = cleanable_offsets(log, compact(min_compaction_lag_ms=lag), checkpoint, NOW + 2000)
    assert start <= found.first_dirty_offset <= end
    assert found.first_dirty_offset <= found.first_uncleanable_offset
    if found.first_uncleanable_offset > found.first_dirty_offset:
        assert found.first_uncleanable_offset <= min(bases[-1], log.last_stable_offset)
    assert found.is_repaired == (checkpoint is not None and not start <= checkpoint <= end)


# Which log


def candidate_of(clean: int, cleanable: int, reason: str = DIRTY_RATIO, *, log: object = None) -> Candidate:
    made = LogToClean(None, log, 0, 0, clean, cleanable, reason)  # type: ignore[arg-type]
    return Candidate(made, 5 if reason == COMPACTION_LAG else 0)


class Settings(NamedTuple):
    """A log as far as its configuration is asked."""

    config: LogConfig


def at_least(ratio: float) -> Settings:
    return Settings(compact(min_cleanable_dirty_ratio=ratio))


def test_the_dirtiest_log_comes_first() -> None:
    """CLN-29: the ratio has to be above the log's own least one."""
    third, most = at_least(0.3), at_least(0.9)
    found = choose([candidate_of(60, 40, log=third), candidate_of(10, 90, log=most), candidate_of(50, 50, log=third)])
    assert [one.cleanable_bytes for one in found.cleanable] == [50, 40]
    assert found.dirtiest_ratio == 0.9
    assert choose([]) == ((), 0.0, 0, 0)
    assert choose([candidate_of(0, 0, log=at_least(0))]) == ((), 0.0, 0, 0)


def test_sums_have_no_32_bit_bound() -> None:
    """CLN-29: 2^40 bytes clean and as many dirty make a half, KAFKA-5584."""
    found = choose([candidate_of(2**40, 2**40, log=at_least(0.4)), candidate_of(2**33, 1, log=at_least(0))])
    assert [one.cleanable_bytes for one in found.cleanable] == [2**40, 1]
    assert found.dirtiest_ratio == 0.5


def test_what_is_due_need_not_be_dirty_enough() -> None:
    """CLN-31: with a single dirty byte, but not without."""
    logs = [candidate_of(1000, dirty, COMPACTION_LAG, log=at_least(0.5)) for dirty in (1, 0)]
    found = choose(logs)
    assert [one.cleanable_bytes for one in found.cleanable] == [1]
    assert (found.delayed, found.longest_delay_ms) == (2, 5)


def test_a_log_that_nothing_can_be_cleaned_of_is_late_too() -> None:
    """CLN-31: an open transaction at its start holds the clean up; how late it is shows all the same."""
    late = candidate_of(0, 0, COMPACTION_LAG, log=at_least(0))
    assert choose([late]) == ((), 0.0, 1, 5)
    assert choose([late._replace(delay_ms=7), late, late._replace(delay_ms=0)]) == ((), 0.0, 2, 7)
    assert choose([late._replace(delay_ms=1)]).delayed == 1


def test_a_log_is_measured_as_its_files_are(tmp_path: Path) -> None:
    """CLN-29, CLN-31: bytes of the segments themselves; the lag is the reason once it exceeds its limit."""
    log = open_log(tmp_path, max_compaction_lag_ms=1000)
    for _ in range(4):
        append(log, (b"k", b"v"))
        log.roll()
    size = log.segments[0].size
    found, offsets = candidate(log, 1, NOW)
    assert (found.log.clean_bytes, found.log.cleanable_bytes, found.log.reason) == (size, 3 * size, DIRTY_RATIO)
    assert offsets == (1, 4, False)
    found, offsets = candidate(log, 77, NOW + 1001)
    assert (found.log.reason, found.delay_ms) == (COMPACTION_LAG, 1)
    assert (found.log.first_dirty_offset, offsets.is_repaired) == (0, True)
    log.close()


def test_what_lies_below_the_log_start_in_its_segment_is_clean(tmp_path: Path) -> None:
    """CLN-29: as the reference counts."""
    pool = Pool(tmp_path)
    log = pool.log(0, dirty=1)
    append(log, (b"k", b"v"), (b"k", b"v"))
    log.roll()
    log.maybe_increment_log_start_offset(2)
    first, second = (segment.size for segment in tuple(log.segments)[:2])
    found, _ = candidate(log, None, NOW)
    assert (found.log.clean_bytes, found.log.cleanable_bytes) == (first + second, second)
    log.close()


def test_the_active_segment_of_a_compacted_log_is_as_old_as_its_lag_allows() -> None:
    """CLN-31: it is rolled after the shorter of segment.ms and max.compaction.lag.ms."""
    assert compact(segment_ms=10, max_compaction_lag_ms=5).max_segment_age_ms == 5
    assert compact(segment_ms=10, max_compaction_lag_ms=50).max_segment_age_ms == 10
    assert LogConfig(segment_ms=10, max_compaction_lag_ms=5).max_segment_age_ms == 10
