"""The jobs of a store: the reference's names, first delays and periods; failures of a log, a directory, a disk."""

import errno
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from kafkalog.config.broker import BrokerConfig
from kafkalog.errors import StorageError
from kafkalog.manager.checkpoints import write_recovery_points
from kafkalog.manager.jobs import jobs_of, write_each
from kafkalog.storage.log import UnifiedLog
from kafkalog.util.clock import AgeClock
from tests.faults import FaultFS
from tests.mock_time import MockClock, MockScheduler
from tests.storage.logs import NOW, append_batches, config

MAX_LONG = 2**63 - 1


class ADirectory:
    """A data directory with its logs."""

    def __init__(self, path: Path, fs: FaultFS, clock: MockClock, **settings: object) -> None:
        self.path = str(path)
        self.is_online = True
        (path / "t-0").mkdir(parents=True)
        self.all_logs = [UnifiedLog.open(path / "t-0", config(**settings), fs=fs, clock=clock)]


class AStore:
    """Two directories of one log each; `deleted` counts what the delete job did."""

    def __init__(self, path: Path, settings: BrokerConfig | None = None, **topic: object) -> None:
        self.config = settings or BrokerConfig()
        self.fs = FaultFS()
        self.clock = MockClock(NOW)
        self.directories = [ADirectory(path / name, self.fs, self.clock, **topic) for name in ("a", "b")]
        self.failed: list[str] = []
        self.deleted = 0
        self.due_ms = 60_000

    def fail_directory(self, path: str, error: Exception) -> None:
        self.failed.append(Path(path).name)
        next(one for one in self.directories if one.path == path).is_online = False

    def delete_logs(self) -> None:
        self.deleted += 1

    def delete_delay_ms(self) -> int:
        return self.due_ms

    def retention_of(self, logs: Iterable[UnifiedLog]) -> AbstractContextManager[Sequence[UnifiedLog]]:
        return nullcontext(list(logs))

    def close(self) -> None:
        for directory in self.directories:
            for log in directory.all_logs:
                log.close_handlers()


def test_names_first_delays_and_periods_of_the_reference(tmp_path: Path) -> None:
    store = AStore(tmp_path)
    assert {job.name: (job.delay_ms, job.period_ms) for job in jobs_of(store, AgeClock(store.clock))} == {
        "kafka-log-retention": (30_000, 300_000),
        "kafka-log-flusher": (30_000, MAX_LONG),
        "kafka-recovery-point-checkpoint": (30_000, 60_000),
        "kafka-log-start-offset-checkpoint": (30_000, 60_000),
        "kafka-delete-logs": (30_000, 60_000),
        "PeriodicProducerExpirationCheck": (600_000, 600_000),
        "highwatermark-checkpoint": (0, 5000),
    }
    store.close()


def test_each_setting_moves_its_job(tmp_path: Path) -> None:
    settings = BrokerConfig.from_mapping(
        {
            "log.initial.task.delay.ms": 1,
            "log.retention.check.interval.ms": 2,
            "log.flush.scheduler.interval.ms": 3,
            "log.flush.offset.checkpoint.interval.ms": 4,
            "log.flush.start.offset.checkpoint.interval.ms": 5,
            "producer.id.expiration.check.interval.ms": 6,
            "replica.high.watermark.checkpoint.interval.ms": 7,
        }
    )
    store = AStore(tmp_path, settings)
    assert [(job.delay_ms, job.period_ms) for job in jobs_of(store, AgeClock(store.clock))] == [
        (1, 2), (1, 3), (1, 4), (1, 5), (1, 60_000), (6, 6), (0, 7),
    ]  # fmt: skip
    store.close()


def test_all_of_them_at_work(tmp_path: Path) -> None:
    """MGR-16, MGR-17: what each leaves behind after a day."""
    store = AStore(tmp_path, retention_ms=3_600_000, flush_ms=1000, file_delete_delay_ms=0)
    scheduler = MockScheduler(store.clock)
    log = store.directories[0].all_logs[0]
    append_batches(log, times=3)
    jobs = jobs_of(store, AgeClock(store.clock))
    for job in jobs:
        job.start(scheduler)
    assert (tmp_path / "a" / "replication-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"
    scheduler.advance(1000)
    assert log.recovery_point == 3
    scheduler.advance(29_000)
    assert (tmp_path / "a" / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"
    assert store.deleted == 1
    for _ in range(24):
        scheduler.advance(3_600_000)
    assert (log.log_start_offset, len(log.segments)) == (3, 1)
    assert all(job.runs and job.last_error is None for job in jobs)
    assert all(job.last_run_ms and job.last_duration_ms == 0 for job in jobs)
    store.close()


def test_the_delete_job_runs_when_the_next_log_is_due(tmp_path: Path) -> None:
    store = AStore(tmp_path)
    scheduler = MockScheduler(store.clock)
    delete = next(job for job in jobs_of(store, AgeClock(store.clock)) if job.name == "kafka-delete-logs")
    delete.start(scheduler)
    scheduler.advance(30_000)
    store.due_ms = 100
    scheduler.advance(60_000)
    assert store.deleted == 2
    scheduler.advance(100)
    assert store.deleted == 3
    store.due_ms = 0
    assert delete.period_ms == 1
    store.close()


def test_a_directory_that_fails_stops_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """MGR-17, CKPT-5: it goes offline where its disk fails, and not where the disk is full."""
    store = AStore(tmp_path)
    store.fs.fail("pwrite", path=str(tmp_path / "a"), code=errno.ENOSPC, times=1)
    with pytest.raises(StorageError) as caught:
        write_each(store, write_recovery_points)
    assert caplog.messages == [f"{store.directories[0].path}: {caught.value}"]
    assert (store.failed, (tmp_path / "b" / "recovery-point-offset-checkpoint").exists()) == ([], True)
    write_each(store, write_recovery_points)
    append_batches(store.directories[0].all_logs[0])
    store.directories[0].all_logs[0].flush()
    store.fs.fail("pwrite", path=str(tmp_path / "a"), code=errno.EIO, times=1)
    with pytest.raises(StorageError):
        write_each(store, write_recovery_points)
    assert store.failed == ["a"]
    write_each(store, write_recovery_points)
    store.close()


def test_only_the_directories_given_are_written(tmp_path: Path) -> None:
    """MGR-18."""
    store = AStore(tmp_path)
    write_each(store, write_recovery_points, store.directories[1:])
    assert not (tmp_path / "a" / "recovery-point-offset-checkpoint").exists()
    assert (tmp_path / "b" / "recovery-point-offset-checkpoint").exists()
    store.close()


def test_a_log_whose_disk_fails_takes_its_directory_offline_and_the_job_says_so(tmp_path: Path) -> None:
    store = AStore(tmp_path, retention_ms=1)
    for directory in store.directories:
        append_batches(directory.all_logs[0])
        directory.all_logs[0].roll()
    store.clock.advance(5000)
    store.fs.fail("rename", path=str(tmp_path / "a"), code=errno.EIO, times=9)
    retention = jobs_of(store, AgeClock(store.clock))[0]
    store.clock.advance(86_400_000)
    with pytest.raises(StorageError):
        retention.run()
    assert store.failed == ["a"]
    assert isinstance(retention.last_error, StorageError)
    assert store.directories[1].all_logs[0].log_start_offset == 1
    store.close()
