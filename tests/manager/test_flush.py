"""The flusher, and flush.messages: what waits for the disk, and for how long."""

from pathlib import Path

import pytest

from kafkalog.errors import StorageError
from kafkalog.manager.jobs import flush_dirty_logs, flush_period_ms
from kafkalog.storage.log import UnifiedLog
from tests.faults import FaultFS
from tests.mock_time import MockClock
from tests.storage.logs import NOW, append_batches, config, log, run

MAX_LONG = 2**63 - 1


def test_a_log_is_flushed_when_its_time_has_come(tmp_path: Path) -> None:
    """MGR-16: flush.ms after the last flush, and only what is not on disk."""
    clock = MockClock(NOW)
    made = log(tmp_path, clock=clock, flush_ms=100)
    clock.advance(1000)
    assert flush_dirty_logs([made], clock.monotonic_ms()) == 0
    append_batches(made)
    assert flush_dirty_logs([made], clock.monotonic_ms()) == 1
    assert made.recovery_point == 1
    append_batches(made)
    clock.advance(99)
    assert flush_dirty_logs([made], clock.monotonic_ms()) == 0
    clock.advance(1)
    assert flush_dirty_logs([made], clock.monotonic_ms()) == 1
    assert made.recovery_point == 2
    made.close()


@pytest.mark.parametrize("wall", [0, NOW * 2])
def test_the_wall_clock_does_not_matter(tmp_path: Path, wall: int) -> None:
    clock = MockClock(NOW)
    made = log(tmp_path, clock=clock, flush_ms=100)
    append_batches(made)
    clock.set_wall_ms(wall)
    clock.advance(99)
    assert flush_dirty_logs([made], clock.monotonic_ms()) == 0
    clock.advance(1)
    assert flush_dirty_logs([made], clock.monotonic_ms()) == 1
    made.close()


def test_a_log_that_fails_stops_no_other(tmp_path: Path) -> None:
    clock, fs = MockClock(NOW), FaultFS()
    logs = []
    for number in range(3):
        (tmp_path / f"t-{number}").mkdir()
        logs.append(UnifiedLog.open(tmp_path / f"t-{number}", config(flush_ms=1), fs=fs, clock=clock))
        append_batches(logs[-1])
    clock.advance(1)
    fs.fail("fsync", "fdatasync", path="/t-1", times=9)
    with pytest.raises(StorageError, match="t-1"):
        flush_dirty_logs(logs, clock.monotonic_ms())
    assert [made.recovery_point for made in logs] == [1, 0, 1]
    for made in logs:
        made.close_handlers()


def test_how_often_to_look(tmp_path: Path) -> None:
    """The shortest flush.ms counts, where the reference waits for its scheduler interval."""
    made = log(tmp_path)
    assert flush_period_ms([made], MAX_LONG) == MAX_LONG
    assert flush_period_ms([made], 500) == 500
    made.config = config(flush_ms=7)
    assert flush_period_ms([made], MAX_LONG) == 7
    assert flush_period_ms([made], 5) == 5
    made.config = config(flush_ms=0)
    assert flush_period_ms([made], -1) == 1
    assert flush_period_ms([], MAX_LONG) == MAX_LONG
    made.close()


class TestFlushMessages:
    """flush.messages: so many records, not more, may be lost with the power."""

    def test_counted_in_records_and_flushed_by_the_append(self, tmp_path: Path) -> None:
        made = log(tmp_path, flush_messages=3)
        append_batches(made)
        append_batches(made)
        assert made.recovery_point == 0
        append_batches(made)
        assert made.recovery_point == 3
        append_batches(made, 300, 5)
        assert made.recovery_point == 8
        made.close()

    def test_every_way_to_append_counts(self, tmp_path: Path) -> None:
        made = log(tmp_path, flush_messages=3)
        made.append_batches(bytearray(run(0, 4)))
        assert made.recovery_point == 4
        made.append_as_follower(run(4, 2), 0)
        assert made.recovery_point == 4
        made.append_as_follower(run(6, 1), 0)
        assert made.recovery_point == 7
        made.close()

    def test_it_may_change(self, tmp_path: Path) -> None:
        made = log(tmp_path, flush_messages=1)
        made.config = config()
        append_batches(made, times=5)
        assert made.recovery_point == 0
        made.config = config(flush_messages=1)
        append_batches(made)
        assert made.recovery_point == 6
        made.close()

    def test_an_append_whose_flush_fails_says_so(self, tmp_path: Path) -> None:
        fs = FaultFS()
        made = log(tmp_path, fs=fs, flush_messages=2)
        append_batches(made)
        fs.fail("fsync", "fdatasync", times=9)
        with pytest.raises(StorageError):
            append_batches(made)
        with pytest.raises(StorageError):
            append_batches(made)
        made.close_handlers()
