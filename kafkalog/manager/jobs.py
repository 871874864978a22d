"""The background jobs of a store, with the names of the reference's tasks, and their schedule.

    name                               first after                    then every
    kafka-log-retention                log.initial.task.delay.ms      log.retention.check.interval.ms
    kafka-log-flusher                  log.initial.task.delay.ms      log.flush.scheduler.interval.ms, or flush.ms
    kafka-recovery-point-checkpoint    log.initial.task.delay.ms      log.flush.offset.checkpoint.interval.ms
    kafka-log-start-offset-checkpoint  log.initial.task.delay.ms      log.flush.start.offset.checkpoint.interval.ms
    kafka-delete-logs                  log.initial.task.delay.ms      whenever a deleted log is due
    PeriodicProducerExpirationCheck    producer.id.expiration.check.interval.ms, both
    highwatermark-checkpoint           at once                        replica.high.watermark.checkpoint.interval.ms

Other modules implement the jobs as functions of directories or logs; this module only combines them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kafkalog.config.keys import MAX_LONG
from kafkalog.errors import KafkalogError
from kafkalog.manager.checkpoints import write_high_watermarks, write_log_starts, write_recovery_points
from kafkalog.manager.job import Job
from kafkalog.manager.retention import Failed, cleanup_logs, each_log, expire_producers
from kafkalog.storage.failure import is_disk_failure
from kafkalog.storage.log import UnifiedLog
from kafkalog.util.clock import AgeClock

if TYPE_CHECKING:
    from kafkalog.manager.data_directory import DataDirectory
    from kafkalog.manager.log_manager import LogManager

_LOG: Final = logging.getLogger(__name__)


def jobs_of(store: LogManager, ages: AgeClock) -> tuple[Job, ...]:
    """Return the jobs of a store, not started yet (`Job.start`). They follow its settings; one failing stops no other.

    A disk error in a job takes its directory offline; a full disk does not. `CleanerJobs` has the cleaner's jobs.
    """
    config, clock = store.config, store.clock
    first_ms = config.log_initial_task_delay_ms

    def failed(log: UnifiedLog, error: Exception) -> None:
        if is_disk_failure(error):
            for directory in store.directories:
                if any(log is one for one in directory.all_logs):
                    store.fail_directory(directory.path, error)

    def logs() -> list[UnifiedLog]:
        return [log for directory in store.directories for log in directory.all_logs]

    def retain() -> object:
        with store.retention_of(logs()) as idle:
            return cleanup_logs(idle, ages.milliseconds(), failed=failed)

    def expire() -> object:
        return expire_producers(logs(), ages.milliseconds(), store.config.producer_id_expiration_ms, failed=failed)

    def job(name: str, func: Callable[[], object], period_ms: int | Callable[[], int], delay_ms: int = first_ms) -> Job:
        return Job(name, func, delay_ms=delay_ms, period_ms=period_ms, clock=clock)

    check_ms = config.producer_id_expiration_check_interval_ms
    return (
        job("kafka-log-retention", retain, config.log_retention_check_interval_ms),
        job(
            "kafka-log-flusher",
            lambda: flush_dirty_logs(logs(), clock.monotonic_ms(), failed=failed),
            lambda: flush_period_ms(logs(), config.log_flush_scheduler_interval_ms),
        ),
        job(
            "kafka-recovery-point-checkpoint",
            lambda: write_each(store, write_recovery_points),
            config.log_flush_offset_checkpoint_interval_ms,
        ),
        job(
            "kafka-log-start-offset-checkpoint",
            lambda: write_each(store, write_log_starts),
            config.log_flush_start_offset_checkpoint_interval_ms,
        ),
        job("kafka-delete-logs", store.delete_logs, lambda: max(1, store.delete_delay_ms())),
        job("PeriodicProducerExpirationCheck", expire, check_ms, check_ms),
        job(
            "highwatermark-checkpoint",
            lambda: write_each(store, write_high_watermarks),
            config.replica_high_watermark_checkpoint_interval_ms,
            0,
        ),
    )


def write_each(
    store: LogManager, write: Callable[..., object], directories: Iterable[DataDirectory] | None = None
) -> None:
    """Write a checkpoint of every directory, or of those given (MGR-18); one that fails stops no other (MGR-17).

    The first error is raised at the end. A disk that does not work takes its directory offline (CKPT-5).
    """
    failures: list[Exception] = []
    for directory in store.directories if directories is None else directories:
        if not directory.is_online:
            continue
        try:
            write(directory.path, directory.all_logs, fs=store.fs)
        except (KafkalogError, OSError) as error:
            _LOG.warning("%s: %s", directory.path, error)
            failures.append(error)
            if is_disk_failure(error):
                store.fail_directory(directory.path, error)
    if failures:
        raise failures[0]


def flush_dirty_logs(logs: Iterable[UnifiedLog], monotonic_ms: int, *, failed: Failed | None = None) -> int:
    """Flush logs with data not on disk whose last flush is `flush.ms` ago or more; return their number (MGR-16).

    Ages are by the monotonic clock. An error of one log stops no other: the first error is raised at the end.
    """

    def flush(log: UnifiedLog) -> int:
        if log.recovery_point >= log.log_end_offset or monotonic_ms - log.last_flush_monotonic_ms < log.config.flush_ms:
            return 0
        log.flush()
        return 1

    return each_log(logs, flush, failed)


def flush_period_ms(logs: Iterable[UnifiedLog], scheduler_interval_ms: int) -> int:
    """Return the check interval: `log.flush.scheduler.interval.ms`, or the shortest `flush.ms` if that is less.

    The reference uses its scheduler interval only, which is 292 million years unless it is set: then a topic's
    `flush.ms` has no effect there.
    """
    shortest = min((log.config.flush_ms for log in tuple(logs)), default=MAX_LONG)
    if scheduler_interval_ms <= 0:
        return max(1, shortest)
    return max(1, min(shortest, scheduler_interval_ms))
