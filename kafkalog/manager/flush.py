"""Flushing of logs whose data waited too long for the disk (MGR-16)."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalog.config.keys import MAX_LONG
from kafkalog.manager.retention import Failed, each_log
from kafkalog.storage.log import UnifiedLog


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
