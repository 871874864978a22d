"""Choosing the logs to clean and the part of each: the reference's own manager and kafkalog's decide the same."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkalog.cleaner.manager import LogCleanerManager
from kafkalog.manager.checkpoints import read_cleaner_offsets, record_cleaner_offset
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from tests.cleaner.logs import append, open_log
from tests.interop.reference import Reference
from tests.mock_time import MockClock
from tests.storage.logs import NOW

T0 = TopicPartition("topic", 0)


class OneLog:
    """A pool of one log, with the checkpoint file beside its directory."""

    def __init__(self, log: UnifiedLog, directory: Path) -> None:
        self.current_logs = {T0: log}
        self.moving_logs: dict[TopicPartition, UnifiedLog] = {}
        self._directory = str(directory)

    def read(self) -> dict[str, dict[TopicPartition, int]]:
        return {self._directory: read_cleaner_offsets(self._directory)}

    def record(self, log: UnifiedLog, offset: int) -> None:
        record_cleaner_offset(self._directory, log.topic_partition, offset)


def random_settings(random: Random) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "cleanup.policy": random.choice(["compact", "compact,delete", "compact", "delete"]),
        "min.cleanable.dirty.ratio": random.choice([0.0, 0.3, 0.5, 1.0]),
    }
    if random.random() < 0.5:
        settings["min.compaction.lag.ms"] = random.choice([1, 1500, 4000])
    if random.random() < 0.5:
        settings["max.compaction.lag.ms"] = random.choice([4000, 6000])
    return settings


def make_log(path: Path, random: Random) -> UnifiedLog:
    """Segments of one to three batches, some with an older time than those before, the last one often empty."""
    log = open_log(path)
    for at in range(random.randint(0, 6)):
        for _ in range(random.randint(1, 3)):
            time = NOW + 1000 * at + random.choice([0, 0, 500, -3000])
            append(log, *[(b"k%d" % random.randrange(3), b"v")] * random.randint(1, 3), timestamp=time)
        log.roll()
    if random.random() < 0.4:
        append(log, (b"k", b"v"))
    return log


def ours(path: Path, settings: dict[str, Any], start: int, mark: int, now_ms: int) -> dict[str, Any] | None:
    given = {name.replace(".", "_"): value for name, value in settings.items()}
    log = open_log(path, log_start_offset=start, high_watermark_follows_end=False, **given)
    try:
        log.update_high_watermark(mark)
        pool = OneLog(log, path)
        found = LogCleanerManager(pool, pool, MockClock(now_ms)).grab(now_ms)
        if found is None:
            return None
        return {
            "first_dirty": found.first_dirty_offset,
            "first_uncleanable": found.first_uncleanable_offset,
            "clean_bytes": found.clean_bytes,
            "cleanable_bytes": found.cleanable_bytes,
            "ratio": found.cleanable_ratio,
        }
    finally:
        log.close()


@pytest.mark.parametrize("seed", range(12))
def test_it_chooses_as_the_reference_does(reference: Reference, tmp_path: Path, seed: int) -> None:
    """CLN-29 to CLN-33, CLN-46: the range, its bytes, the ratio, and what the checkpoint says afterwards."""
    random = Random(seed)
    made = make_log(tmp_path, random)
    end = made.log_end_offset
    made.close()
    file = tmp_path / "cleaner-offset-checkpoint"
    for _ in range(12):
        settings = random_settings(random)
        start = random.choice([0, 0, random.randint(0, end)])
        mark = random.choice([end, end, random.randint(start, end)])
        now_ms = NOW + random.choice([0, 2000, 5001, 8000, 20_000])
        line = random.choice([None, 0, random.randint(0, end), end, end + 1, start])
        before = "0\n0\n" if line is None else f"0\n1\ntopic 0 {line}\n"
        where = f"{settings} start {start} mark {mark} of {end} at {now_ms - NOW}, checkpoint {line}"
        file.write_text(before)
        with reference.open(tmp_path / "topic-0", settings, clean=True, log_start=start, now_ms=now_ms) as log:
            wanted, after = log.choose(now_ms, mark), file.read_text()
        file.write_text(before)
        assert ours(tmp_path, settings, start, mark, now_ms) == wanted, where
        assert file.read_text() == after, where
