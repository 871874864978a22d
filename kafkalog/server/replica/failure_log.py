"""Log lines about appends and reads that the operating system fails, such as those of a full disk."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Final

from kafkalog.errors import KafkalogError
from kafkalog.types import TopicPartition
from kafkalog.util.clock import SYSTEM_CLOCK

_LOG: Final = logging.getLogger(__name__)
QUIET_MS: Final = 60_000


class FailureLog:
    """Log the first failure of a data directory with an errno, and one a minute after it: clients repeat requests."""

    __slots__ = ("_logged_ms", "_monotonic_ms")

    def __init__(self, monotonic_ms: Callable[[], int] = SYSTEM_CLOCK.monotonic_ms) -> None:
        self._monotonic_ms = monotonic_ms
        self._logged_ms: dict[tuple[str, str, int | None], int] = {}

    def failed(self, doing: str, key: TopicPartition, error: OSError) -> None:
        """Log that `doing` something ("append to") with a partition failed; the error has the file and the reason."""
        path = error.filename if isinstance(error.filename, str) else ""
        directory = path.rpartition(f"{os.sep}{key}")[0]  # few distinct ones, unlike paths
        now_ms, line = self._monotonic_ms(), (doing, directory, error.errno)
        logged_ms = self._logged_ms.get(line)
        if logged_ms is not None and now_ms - logged_ms < QUIET_MS:
            return
        self._logged_ms[line] = now_ms
        unexpected = None if isinstance(error, KafkalogError) else error
        _LOG.error("cannot %s %s: %s", doing, key, error, exc_info=unexpected)


FAILURES: Final = FailureLog()
"""The failures of this process."""
