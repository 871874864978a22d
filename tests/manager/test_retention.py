"""Expiry: segments by time, size and log start; producers; under clocks that jump."""

import os
from pathlib import Path

import pytest

from kafkalog.errors import OffsetOutOfRange, StorageError
from kafkalog.manager.retention import cleanup_logs, expire_producers
from kafkalog.records.builder import RecordsBuilder
from kafkalog.storage.log import UnifiedLog
from kafkalog.util.clock import TRUSTED_AFTER_MS, AgeClock
from tests.faults import FaultFS
from tests.mock_time import MockClock, MockScheduler
from tests.raw_batches import batch
from tests.storage.logs import NOW, append_batches, config, sized_batch

DAY = 86_400_000


def open_log(path: Path, clock: MockClock, name: str = "topic-0", **settings: object) -> UnifiedLog:
    (path / name).mkdir()
    fs = settings.pop("fs", FaultFS())
    scheduler = settings.pop("scheduler", None)
    return UnifiedLog.open(path / name, config(**settings), fs=fs, clock=clock, scheduler=scheduler)  # type: ignore[arg-type]


def test_by_time(tmp_path: Path) -> None:
    """MGR-13, LOG-46: all segments expire, one empty segment is left, and their files go after the delay."""
    clock = MockClock(NOW)
    scheduler = MockScheduler(clock)
    made = open_log(tmp_path, clock, scheduler=scheduler, retention_ms=1000, segment_bytes=1 << 20, segment_ms=10,
                 file_delete_delay_ms=500)  # fmt: skip
    for _ in range(200):
        append_batches(made, timestamp=clock.milliseconds())
        clock.advance(1)
    assert len(made.segments) > 1
    end = made.log_end_offset
    assert cleanup_logs([made], clock.milliseconds()) == 0
    clock.advance(1001)
    assert cleanup_logs([made], clock.milliseconds()) > 1
    assert (len(made.segments), made.log_start_offset, made.log_end_offset) == (1, end, end)
    assert any(name.endswith(".deleted") for name in os.listdir(made.path))
    scheduler.advance(500)
    assert not any(name.endswith(".deleted") for name in os.listdir(made.path))
    with pytest.raises(OffsetOutOfRange):
        made.read(0, 100)
    append_batches(made)
    assert made.log_end_offset == end + 1
    made.close()


def test_by_size(tmp_path: Path) -> None:
    """MGR-14: 20 segments of ten batches; five segments and ten bytes are kept: six segments."""
    clock = MockClock(NOW)
    scheduler = MockScheduler(clock)
    data = sized_batch(100)
    size = {"internal_segment_bytes": 10 * len(data), "retention_bytes": 50 * len(data) + 10}
    made = open_log(tmp_path, clock, scheduler=scheduler, index_interval_bytes=1, **size)
    append_batches(made, times=200)
    assert len(made.segments) == 20
    assert cleanup_logs([made], clock.milliseconds()) == 14
    scheduler.advance(60_000)
    assert len(made.segments) == 6
    assert len(os.listdir(made.path)) == 6 * 4 + 1
    with pytest.raises(OffsetOutOfRange):
        made.read(0, 100)
    append_batches(made)
    made.close()


def test_compacted_logs_are_left_to_the_cleaner(tmp_path: Path) -> None:
    """MGR-15: with compact in the policy, alone or beside delete, nothing goes."""
    clock = MockClock(NOW)
    for number, policy in enumerate(("compact", "compact,delete")):
        made = open_log(tmp_path, clock, f"topic-{number}", cleanup_policy=policy, retention_ms=1)
        append_batches(made)
        made.roll()
        clock.advance(5000)
        assert cleanup_logs([made], clock.milliseconds()) == 0
        assert len(made.segments) == 2
        made.close()


def test_no_policy_at_all_means_the_log_start_only(tmp_path: Path) -> None:
    """LOG-38, LOG-48: an empty cleanup.policy keeps what is old and what is much."""
    made = open_log(tmp_path, MockClock(NOW), cleanup_policy="", retention_ms=1, retention_bytes=1)
    append_batches(made, times=3)
    made.roll()
    assert cleanup_logs([made], NOW + DAY) == 0
    made.maybe_increment_log_start_offset(3)
    assert cleanup_logs([made], NOW + DAY) == 1
    made.close()


@pytest.mark.parametrize("touched_s", [0, 4_000_000_000])
def test_touching_files_does_not_matter_where_there_are_timestamps(tmp_path: Path, touched_s: int) -> None:
    """LOG-40: the file's time counts only for a segment without timestamps."""
    clock = MockClock(NOW)
    made = open_log(tmp_path, clock, retention_ms=1000)
    append_batches(made, timestamp=NOW)
    made.roll()
    untimed = batch(1, [(-1, b"k", b"v")])
    made.append_as_follower(untimed, 0)
    made.roll()
    for base in (0, 1):
        os.utime(os.path.join(made.path, f"{base:020d}.log"), (touched_s, touched_s))
    assert cleanup_logs([made], NOW + 1000) == 0
    assert cleanup_logs([made], NOW + 1001) == (2 if touched_s == 0 else 1)
    made.close()


def test_a_timestamp_in_the_future_keeps_its_segment(tmp_path: Path) -> None:
    """LOG-40: and with it all that follow."""
    made = open_log(tmp_path, MockClock(NOW), retention_ms=1)
    append_batches(made, timestamp=NOW + DAY)
    made.roll()
    append_batches(made, timestamp=NOW)
    assert cleanup_logs([made], NOW + DAY) == 0
    made.close()


def test_a_log_that_fails_stops_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = MockClock(NOW)
    fs = FaultFS()
    logs = [open_log(tmp_path, clock, f"topic-{number}", retention_ms=1, fs=fs) for number in range(3)]
    for made in logs:
        append_batches(made)
        made.roll()
    fs.fail("rename", path="topic-1", times=99)
    failures: list[tuple[str, Exception]] = []
    with pytest.raises(StorageError, match="topic-1"):
        cleanup_logs(logs, NOW + DAY, failed=lambda log, error: failures.append((log.name, error)))
    assert [made.log_start_offset for made in (logs[0], logs[2])] == [1, 1]
    assert [name for name, _ in failures] == ["topic-1"]
    assert "topic-1" in caplog.text
    for made in logs:
        made.close_handlers()


def test_a_log_that_was_closed_meanwhile_is_passed_over(tmp_path: Path) -> None:
    made = open_log(tmp_path, MockClock(NOW), retention_ms=1)
    made.close()
    assert cleanup_logs([made], NOW + DAY) == 0


def test_a_log_that_was_deleted_meanwhile_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = open_log(tmp_path, MockClock(NOW), retention_ms=1)
    append_batches(made)
    made.roll()
    made.stop_writes(StorageError("the partition topic-0 was deleted"))
    assert cleanup_logs([made], NOW + DAY) == 0 and not caplog.records
    made.close_handlers()


def test_idle_producers_are_forgotten(tmp_path: Path) -> None:
    """PSM-15: by the age that counts now; one with a transaction open is kept."""
    clock = MockClock(NOW)
    made = open_log(tmp_path, clock)
    for producer_id in (7, 8):
        builder = RecordsBuilder(
            0, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=producer_id == 8
        )
        builder.append(NOW, b"key", b"value")
        made.append_as_leader(builder.build())
    assert expire_producers([made], NOW + 999, 1000) == 0
    assert expire_producers([made], NOW + 1000, 1000) == 1
    assert [state.producer_id for state in made.producers] == [8]
    made.close()


# Clocks that jump


class TestWallClock:
    """The clock of a running store's retention: never ahead of the wall clock, nor faster than time."""

    def aged(self, tmp_path: Path) -> tuple[UnifiedLog, MockClock, AgeClock]:
        clock = MockClock(NOW)
        made = open_log(tmp_path, clock, retention_ms=DAY)
        append_batches(made, timestamp=NOW)
        made.roll()
        return made, clock, AgeClock(clock)

    def test_set_forward_makes_nothing_old(self, tmp_path: Path) -> None:
        made, clock, ages = self.aged(tmp_path)
        clock.set_wall_ms(NOW + 1000 * DAY)
        assert cleanup_logs([made], ages.milliseconds()) == 0
        clock.advance(DAY // 2)
        assert cleanup_logs([made], ages.milliseconds()) == 0
        clock.set_wall_ms(NOW + DAY // 2)
        assert cleanup_logs([made], ages.milliseconds()) == 0
        clock.advance(DAY // 2 + 1)
        assert cleanup_logs([made], ages.milliseconds()) == 1
        made.close()

    def test_set_back_makes_nothing_old(self, tmp_path: Path) -> None:
        """Neither what was there, nor what is written with the clock that went back."""
        made, clock, ages = self.aged(tmp_path)
        clock.set_wall_ms(NOW - 1000 * DAY)
        append_batches(made, timestamp=clock.milliseconds())
        assert cleanup_logs([made], ages.milliseconds()) == 0
        clock.advance(DAY + 1)
        assert cleanup_logs([made], ages.milliseconds()) == 0
        made.close()

    def test_forward_again_after_it_went_back(self, tmp_path: Path) -> None:
        made, clock, ages = self.aged(tmp_path)
        clock.set_wall_ms(NOW - 1000 * DAY)
        ages.milliseconds()
        made.delete_before(1)
        append_batches(made, timestamp=clock.milliseconds())
        clock.set_wall_ms(NOW)
        assert cleanup_logs([made], ages.milliseconds()) == 0
        made.close()

    def test_a_clock_that_stays_ahead_for_a_day_is_believed(self, caplog: pytest.LogCaptureFixture) -> None:
        """A machine that starts in 1970 and then learns the time ages its logs all the same."""
        clock = MockClock(0)
        ages = AgeClock(clock)
        clock.set_wall_ms(NOW)
        assert ages.milliseconds() == 0
        assert "jumped ahead by 1700000000 s" in caplog.text
        clock.advance(TRUSTED_AFTER_MS - 1)
        assert ages.milliseconds() == TRUSTED_AFTER_MS - 1
        clock.advance(1)
        assert ages.milliseconds() == NOW + TRUSTED_AFTER_MS
        assert caplog.text.count("jumped ahead") == 1

    def test_a_clock_that_comes_back_is_not_believed(self) -> None:
        clock = MockClock(NOW)
        ages = AgeClock(clock)
        clock.set_wall_ms(NOW + DAY)
        ages.milliseconds()
        clock.advance(TRUSTED_AFTER_MS - 1)
        clock.set_wall_ms(NOW + TRUSTED_AFTER_MS - 1)
        assert ages.milliseconds() == NOW + TRUSTED_AFTER_MS - 1
        clock.set_wall_ms(NOW + 9 * DAY)
        clock.advance(1)
        assert ages.milliseconds() == NOW + TRUSTED_AFTER_MS

    def test_small_steps_are_no_jump(self) -> None:
        clock = MockClock(NOW)
        ages = AgeClock(clock)
        clock.set_wall_ms(NOW + 1000)
        clock.advance(10)
        assert ages.milliseconds() == NOW + 10
        clock.set_wall_ms(NOW + 5)
        assert ages.milliseconds() == NOW + 5
        clock.advance(7)
        assert ages.milliseconds() == NOW + 12
