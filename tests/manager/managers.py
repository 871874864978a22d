"""LogManagers for the tests, with a clock that stands still and records to write."""

import os
from pathlib import Path
from typing import Any

from kafkalog.manager.log_manager import LogManager
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from tests.mock_time import MockClock, MockScheduler
from tests.storage.logs import NOW, run

MARKER = ".kafka_cleanshutdown"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class OpenManager:
    """A manager of some directories with a clock and a scheduler of its own."""

    def __init__(self, *paths: Path, **more: Any) -> None:
        self.clock = MockClock(NOW)
        self.scheduler = MockScheduler(self.clock)
        self.manager = LogManager.open(paths, clock=self.clock, scheduler=self.scheduler, **more)

    def __enter__(self) -> "OpenManager":
        return self

    def __exit__(self, *exc: object) -> None:
        self.manager.close()

    def create_log(self, topic_partition: TopicPartition = T0, records: int = 3, **more: Any) -> UnifiedLog:
        """A new log with records in it."""
        log = self.manager.get_or_create(topic_partition, **more)
        append(log, records)
        return log

    def delete_after(self, ms: int) -> int:
        """Partitions removed when the clock has moved on by so much."""
        self.clock.advance(ms)
        return self.manager.delete_logs()


def append(log: UnifiedLog, records: int = 1) -> None:
    """Append records, each as a batch of its own."""
    log.append_batches(bytearray(run(0, records)))


def list_names(path: Path) -> set[str]:
    return set(os.listdir(path))


def find_only(path: Path, suffix: str) -> Path:
    """The one directory in `path` whose name ends so."""
    found = [name for name in os.listdir(path) if name.endswith(suffix)]
    assert len(found) == 1, found
    return path / found[0]


def read_checkpoint(path: Path, name: str) -> dict[str, int]:
    """Return a checkpoint's content: `topic-partition` -> offset."""
    lines = (path / name).read_text().splitlines()[2:]
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in map(str.split, lines)}
