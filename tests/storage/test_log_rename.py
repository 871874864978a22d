"""A log whose directory gets another name, and one that is deleted (checklist LOG-71, LOG-72)."""

import os
from pathlib import Path

import pytest

from kafkalog import metrics
from kafkalog.errors import LogClosed, StorageError
from kafkalog.manager.log_manager import LogManager
from kafkalog.storage.leader_epoch import read_epochs
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS
from tests.faults import FaultFS
from tests.mock_time import MockClock, MockScheduler
from tests.storage.logs import NOW, append_batches, log

T0 = TopicPartition("t", 0)


def test_a_renamed_log_goes_on_in_its_new_place(tmp_path: Path) -> None:
    """LOG-72: data, indexes, snapshots and the file of the epochs are reached there."""
    a_log = log(tmp_path, internal_segment_bytes=500, leader_epoch=1)
    append_batches(a_log, times=7)
    a_log.rename_dir("other-5")
    place = tmp_path / "other-5"
    assert (a_log.path, a_log.name) == (str(place), "other-5") and os.listdir(tmp_path) == ["other-5"]
    assert a_log.read(2, 1000).records.path == str(place / "00000000000000000000.log")
    a_log.leader_epoch = 3
    append_batches(a_log, times=8)
    assert read_epochs(place) == ((1, 0), (3, 7))
    assert [one.base_offset for one in a_log.segments] == [0, 5, 10]
    a_log.truncate_to(6)
    a_log.delete_before(5)
    a_log.close()
    assert os.listdir(tmp_path) == ["other-5"] and "00000000000000000006.snapshot" in os.listdir(place)


def test_a_rename_that_fails_changes_nothing(tmp_path: Path) -> None:
    """LOG-72."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    append_batches(a_log)
    fs.fail("rename", times=1)
    with pytest.raises(StorageError, match="rename to other-5"):
        a_log.rename_dir("other-5")
    append_batches(a_log)
    a_log.roll()
    append_batches(a_log)
    assert a_log.log_end_offset == 3 and os.listdir(tmp_path) == ["topic-0"]
    a_log.close()


def test_a_deleted_log_takes_no_append_and_is_gone_after_the_delay(tmp_path: Path) -> None:
    """LOG-71, LOG-72: nothing of it remains, on disk or pending; the same partition created again is another log."""
    clock = MockClock(NOW)
    scheduler = MockScheduler(clock)
    with LogManager.open([tmp_path], clock=clock, scheduler=scheduler) as manager:
        made = manager.get_or_create(T0)
        append_batches(made, times=3)
        first_id = read_partition_metadata(OS, made.path)
        assert manager.delete(T0) is made and manager.get(T0) is None
        assert made.path.endswith("-delete") and not (tmp_path / "t-0").exists()
        with pytest.raises(StorageError, match="was deleted"):
            append_batches(made)
        assert made.read(0, 1000).records.size == 300  # for who still reads
        created = manager.get_or_create(T0)
        assert created.log_end_offset == 0 and created.leader_epochs == ()
        assert read_partition_metadata(OS, created.path) != first_id
        ends = metrics.snapshot()["kafkalog_log_end_offset"]
        assert [row["value"] for row in ends if row["labels"]["directory"] == str(tmp_path)] == [0]
        clock.advance(manager.config.log_segment_delete_delay_ms)
        assert manager.delete_logs() == 1
        assert [name for name in os.listdir(tmp_path) if name.startswith("t-")] == ["t-0"]
        assert scheduler.pending.count("delete-file") == 0 and "flush-log" not in scheduler.pending
        with pytest.raises((LogClosed, StorageError)):
            made.read(0, 1000)
