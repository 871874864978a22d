"""Compacted logs in one data directory, with checkpoints in memory, for the tests of the cleaner's manager."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog.cleaner.cleaner import LogCleaner
from kafkalog.cleaner.manager import LogCleanerManager
from kafkalog.cleaner.types import CleanerStats, CleanResult, LogToClean
from kafkalog.config.broker import BrokerConfig
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from tests.cleaner.logs import append
from tests.mock_time import MockClock
from tests.storage.logs import NOW, config


class Offsets:
    """Cleaner checkpoints in memory; `written` has every line that was written."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.lines: dict[TopicPartition, int] = {}
        self.written: list[tuple[TopicPartition, int]] = []
        self.readable = True

    def read(self) -> Mapping[str, Mapping[TopicPartition, int]]:
        return {self.directory: dict(self.lines)} if self.readable else {}

    def record(self, log: UnifiedLog, offset: int) -> None:
        self.lines[log.topic_partition] = offset
        self.written.append((log.topic_partition, offset))


class Pool:
    """The logs, with a manager over them; `errors` are the reported disk errors."""

    def __init__(self, path: Path, clock: MockClock | None = None) -> None:
        self.path = path
        self.clock = clock or MockClock(NOW)
        self.current_logs: dict[TopicPartition, UnifiedLog] = {}
        self.moving_logs: dict[TopicPartition, UnifiedLog] = {}
        self.offsets = Offsets(str(path))
        self.errors: list[Exception] = []
        self.manager = LogCleanerManager(self, self.offsets, self.clock, self.failed)

    def failed(self, log: UnifiedLog, error: Exception) -> None:
        self.errors.append(error)

    def log(self, number: int, dirty: int = 0, clean: int = 0, **settings: Any) -> UnifiedLog:
        """Partition `number` of t: `clean` segments below the checkpoint, `dirty` ones, and an empty one."""
        directory = self.path / f"t-{number}"
        directory.mkdir()
        log = UnifiedLog.open(directory, config(**{"cleanup_policy": "compact", **settings}), clock=self.clock)
        for _ in range(clean + dirty):
            append(log, (b"k", b"v"), timestamp=self.clock.milliseconds())
            log.roll()
        self.current_logs[log.topic_partition] = log
        if clean:
            self.offsets.lines[log.topic_partition] = clean
        return log

    def cleaner(self, clean: Any, **settings: Any) -> LogCleaner:
        """A cleaner over the same logs, with another pass."""
        return LogCleaner(
            self, self.offsets, BrokerConfig(**settings), clean=clean, clock=self.clock,
            age_ms=self.clock.milliseconds, failed=self.failed,
        )  # fmt: skip


class Passes:
    """A pass that cleans nothing and says it did; notes what it was given.

    `fail` is raised instead, by partition; `fail_once` once.
    """

    def __init__(self) -> None:
        self.cleaned: list[int] = []
        self.fail: dict[int, BaseException] = {}
        self.fail_once: dict[int, BaseException] = {}
        self.given: list[dict[str, Any]] = []
        self.maps: list[SkimpyOffsetMap] = []

    def __call__(self, to_clean: LogToClean, offset_map: SkimpyOffsetMap, **given: Any) -> CleanResult:
        number = to_clean.topic_partition.partition
        self.given.append(given)
        self.maps.append(offset_map)
        given["check_done"]()
        error = self.fail_once.pop(number, None) or self.fail.get(number)
        if error is not None:
            raise error
        self.cleaned.append(number)
        stats = given["stats"]
        assert isinstance(stats, CleanerStats)
        given["throttled"](to_clean.cleanable_bytes)
        stats.bytes_read, stats.bytes_written = to_clean.total_bytes, to_clean.total_bytes // 2
        stats.messages_read, stats.messages_written = 4, 2
        stats.map_complete_s, stats.end_s = stats.start_s + 1, stats.start_s + 3
        return CleanResult(to_clean.first_uncleanable_offset, stats)


def number_of(log: LogToClean | None) -> int | None:
    return None if log is None else log.topic_partition.partition


def directory_of(log: UnifiedLog) -> str:
    return os.path.dirname(log.path)
