"""Differences from the reference that keep more, each found by random traces beside it (docs/recovery.md)."""

from pathlib import Path

import pytest

from kafkalog.records.legacy import LegacyBuilder
from tests.storage.logs import NOW, append_batches, bases, files, log, run, time_entries

UNCLEAN = {"had_clean_shutdown": False}
OLD = NOW - 10**6


def old_message(offset: int, magic: int = 1) -> bytes:
    builder = LegacyBuilder(offset, magic=magic)
    builder.append(NOW, b"k", b"v")
    return bytes(builder.build())


def test_a_first_cut_after_an_opening_keeps_the_largest_timestamp(tmp_path: Path) -> None:
    """SEG-14: the cut takes all entries of the time index; Kafka then takes the file's time for the segment's age."""
    a_log = log(tmp_path, index_interval_bytes=4096)
    for timestamp in (OLD, OLD + 1, OLD + 2):
        append_batches(a_log, timestamp=timestamp)
    a_log.close()
    a_log = log(tmp_path, index_interval_bytes=4096)
    assert time_entries(a_log.active_segment) == [(OLD + 2, 2)]
    a_log.truncate_to(2)
    assert time_entries(a_log.active_segment) == []
    assert a_log.active_segment.largest_timestamp == OLD + 1
    assert a_log.offset_for_time(OLD + 1).offset == 1


def test_a_missing_time_index_below_the_recovery_point_is_rebuilt(tmp_path: Path) -> None:
    """LOAD-8: Kafka goes on with an empty one, and no longer finds the segment's records by their times."""
    a_log = log(tmp_path, index_interval_bytes=1)
    append_batches(a_log, times=5, timestamp=OLD)
    a_log.roll()
    append_batches(a_log)
    a_log.flush()
    a_log.close_handlers()
    (tmp_path / "topic-0" / f"{0:020d}.timeindex").unlink()
    a_log = log(tmp_path, index_interval_bytes=1, recovery_point=6, **UNCLEAN)
    assert time_entries(a_log.segments[0])[0][0] == OLD
    assert a_log.segments[0].largest_timestamp == OLD


@pytest.mark.parametrize("clean", [False, True])
def test_an_empty_last_segment_hides_no_records(tmp_path: Path, clean: bool) -> None:
    """A failed roll left it below the end of the log; Kafka's log ends where it begins."""
    a_log = log(tmp_path)
    append_batches(a_log, times=5)
    a_log.close()
    (tmp_path / "topic-0" / f"{3:020d}.log").touch()
    again = log(tmp_path, had_clean_shutdown=clean, recovery_point=5)
    assert (bases(again), again.log_end_offset) == ([0], 5)
    assert again.read(4, 1).fetch_offset_metadata.message_offset == 4
    again.close()


def test_recovery_leaves_one_snapshot_behind_old_formats(tmp_path: Path) -> None:
    """LOAD-27: Kafka leaves another one at the end of the last v2 batch; both hold the same producers."""
    a_log = log(tmp_path)
    a_log.append_as_follower(run(0, 4), 0)
    a_log.append_as_follower(old_message(4), 0)
    a_log.close_handlers()
    log(tmp_path, recovery_point=0, **UNCLEAN).close_handlers()
    log(tmp_path, recovery_point=0, **UNCLEAN)
    assert [name for name in files(tmp_path / "topic-0") if name.endswith(".snapshot")] == [f"{5:020d}.snapshot"]


def test_a_log_of_old_formats_gets_no_snapshot_below_its_start(tmp_path: Path) -> None:
    """LOAD-21: Kafka writes empty ones at the last two bases and the end, wherever the log starts."""
    a_log = log(tmp_path)
    for offset in range(3):
        a_log.append_as_follower(old_message(offset, magic=0), 0)
        a_log.roll()
    a_log.append_as_follower(old_message(3, magic=0), 0)
    a_log.close()
    for path in (tmp_path / "topic-0").glob("*.snapshot"):
        path.unlink()
    for start, expected in (4, []), (3, [4]):
        log(tmp_path, log_start_offset=start).close_handlers()
        found = [name for name in files(tmp_path / "topic-0") if name.endswith(".snapshot")]
        assert found == [f"{offset:020d}.snapshot" for offset in expected]


def test_a_follower_learns_the_first_offset_of_an_old_message(tmp_path: Path) -> None:
    """LOG-16: Kafka answers -1; without compression the header has the offset. Both roll at the log end."""
    a_log = log(tmp_path, internal_segment_bytes=200)
    a_log.append_as_follower(run(0, 2), 0)
    assert a_log.append_as_follower(old_message(10), 0).first_offset == 10
    assert bases(a_log) == [0, 2]
    a_log.append_as_follower(run(11, 1), 0)
    a_log.append_as_follower(run(20, 1), 0)
    assert bases(a_log) == [0, 2, 20]
