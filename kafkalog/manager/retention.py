"""Retention of all logs, and expiration of idle producers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from kafkalog.errors import LogClosed
from kafkalog.storage.log import UnifiedLog

_LOG: Final = logging.getLogger(__name__)
Failed = Callable[[UnifiedLog, Exception], object]
"""Handler of a log's error; it is called after all other logs were processed."""


def each_log(logs: Iterable[UnifiedLog], step: Callable[[UnifiedLog], int], failed: Failed | None = None) -> int:
    """Call `step` for each log and return the sum of its results.

    A log that is closed, deleted or moved meanwhile is skipped. An error of one log stops no other: each is logged and
    passed to `failed`, and the first is raised at the end.
    """
    total = 0
    failures: list[tuple[UnifiedLog, Exception]] = []
    for log in tuple(logs):
        try:
            total += step(log)
        except LogClosed:
            continue
        except Exception as error:
            if log.is_stopped:
                continue
            _LOG.warning("%s: %s", log.name, error)
            failures.append((log, error))
    for log, failure in failures:
        if failed is not None:
            failed(log, failure)
    if failures:
        raise failures[0][1]
    return total


def cleanup_logs(logs: Iterable[UnifiedLog], now_ms: int, *, failed: Failed | None = None) -> int:
    """Apply retention by log start, size and age at `now_ms`; return the number of deleted segments (MGR-13, MGR-14).

    Logs with compact in their policy are left to the cleaner (MGR-15). Nothing at or above a log's high watermark is
    deleted (LOG-41). An error of one log stops no other: the first error is raised at the end.
    """

    def delete(log: UnifiedLog) -> int:
        deleted = 0 if log.config.compact else log.delete_old_segments(now_ms)
        if deleted:
            _LOG.info("%s: retention deleted %d segments up to offset %d", log.name, deleted, log.log_start_offset)
        return deleted

    return each_log(logs, delete, failed)


def expire_producers(
    logs: Iterable[UnifiedLog], now_ms: int, expiration_ms: int, *, failed: Failed | None = None
) -> int:
    """Forget producers that were idle for `expiration_ms` up to `now_ms`; return their number (PSM-15)."""
    return each_log(logs, lambda log: log.expire_producers(now_ms, expiration_ms), failed)
