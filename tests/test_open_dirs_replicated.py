"""`kafkalog.open_dirs` of a node of a replica set: other nodes have copies of its partitions."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import OffsetOutOfRange
from kafkalog.manager.known_topics import QUORUM_FILE
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import HIGH_WATERMARK_FILE, OffsetCheckpoint
from tests.held_store import DAY, NOW, Held


def replicated(path: Path) -> OffsetCheckpoint:
    """A node's log of three old records, of which two are replicated; return its file of high watermarks."""
    with Held(path, log_retention_ms=-1) as held:
        held.dirs.create_topic("t", 1, {"retention.ms": DAY, "segment.ms": 1})
        for number in range(3):
            held.dirs["t", 0].append([(None, b"%d" % number, NOW - 9 * DAY + number * 1000)])
            held.dirs["t", 0].roll()
    (path / QUORUM_FILE).write_text('{"version": 1, "term": 5, "leader": 2, "voted_for": 2}')
    (path / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n5 3\n")
    marks = OffsetCheckpoint(path / HIGH_WATERMARK_FILE)
    marks.write({TopicPartition("t", 0): 2})
    return marks


def test_high_watermarks_and_epochs_are_kept_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The leader may discard the records above the mark, also those that are appended here."""
    marks = replicated(tmp_path)
    with kafkalog.open_dirs(tmp_path, "a", log_cleaner_enable=False) as dirs:
        assert "other nodes have copies of 1 partitions, such as t-0" in caplog.text
        log = dirs["t", 0]
        assert (log.high_watermark, log.end_offset) == (2, 3)
        log.append([b"3"])
        assert [one.value for one in log.records(isolation="high_watermark")] == [b"0", b"1"]
        with pytest.raises(OffsetOutOfRange):
            log.delete_before(3)
    assert marks.read() == {TopicPartition("t", 0): 2}
    assert (tmp_path / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n5 3\n"


def test_retention_ends_at_the_high_watermark(tmp_path: Path) -> None:
    replicated(tmp_path)
    with Held(tmp_path) as held:
        held.scheduler.advance(10 * 60_000)
        assert held.dirs["t", 0].start_offset == 2
