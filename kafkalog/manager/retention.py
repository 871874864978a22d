"""The retention of all logs, and the memory of idle producers: what ages by itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from kafkalog.errors import LogClosed
from kafkalog.storage.log import UnifiedLog

_LOG: Final = logging.getLogger(__name__)
Failed = Callable[[UnifiedLog, Exception], object]
"""What to do about a log that failed; it is called once the other logs had their turn."""


def each_log(logs: Iterable[UnifiedLog], step: Callable[[UnifiedLog], int], failed: Failed | None = None) -> int:
    """The sum of what `step` gives for each log; one that is closed meanwhile is passed over.

    A failure of one log stops no other: each is logged and told to `failed`, and the first is raised at the end.
    """
    total = 0
    failures: list[tuple[UnifiedLog, Exception]] = []
    for log in tuple(logs):
        try:
            total += step(log)
        except LogClosed:
            continue
        except Exception as error:
            _LOG.warning("%s: %s", log.name, error)
            failures.append((log, error))
    for log, failure in failures:
        if failed is not None:
            failed(log, failure)
    if failures:
        raise failures[0][1]
    return total


def cleanup_logs(logs: Iterable[UnifiedLog], now_ms: int, *, failed: Failed | None = None) -> int:
    """How many segments retention deleted, by log start, size and age up to `now_ms` (MGR-13, MGR-14).

    Logs with compact in their policy are the cleaner's, and passed over (MGR-15). Nothing at or above a log's high
    watermark goes (LOG-41). A log that fails stops no other: the first error is raised at the end.
    """

    def delete(log: UnifiedLog) -> int:
        deleted = 0 if log.config.compact else log.delete_old_segments(now_ms)
        if deleted:
            _LOG.info("%s: retention deleted %d segments; it starts at %d", log.name, deleted, log.log_start_offset)
        return deleted

    return each_log(logs, delete, failed)


def expire_producers(
    logs: Iterable[UnifiedLog], now_ms: int, expiration_ms: int, *, failed: Failed | None = None
) -> int:
    """How many producers, idle for `expiration_ms` up to `now_ms`, were forgotten (PSM-15)."""
    return each_log(logs, lambda log: log.expire_producers(now_ms, expiration_ms), failed)
