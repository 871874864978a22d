"""The checkpoint of log starts: who stands in it, and what a damaged one does."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import CorruptCheckpoint, StorageError
from kafkalog.manager.checkpoints import read_offset, record_log_start
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import LOG_START_FILE
from tests.faults import FaultFS

A, B = TopicPartition("a", 0), TopicPartition("b-c", 3)
NAME = "log-start-offset-checkpoint"


def test_only_starts_above_the_first_segment_are_named(tmp_path: Path) -> None:
    record_log_start(str(tmp_path), A, 0, 0)
    assert not (tmp_path / NAME).exists()
    record_log_start(str(tmp_path), A, 7, 0)
    record_log_start(str(tmp_path), B, 20, 5)
    assert (tmp_path / NAME).read_text() == "0\n2\na 0 7\nb-c 3 20\n"
    assert (read_offset(str(tmp_path), LOG_START_FILE, A), read_offset(str(tmp_path), LOG_START_FILE, B)) == (7, 20)
    record_log_start(str(tmp_path), A, 7, 7)
    assert (tmp_path / NAME).read_text() == "0\n1\nb-c 3 20\n"
    assert read_offset(str(tmp_path), LOG_START_FILE, A) == 0


def test_an_unchanged_start_writes_nothing(tmp_path: Path) -> None:
    record_log_start(str(tmp_path), A, 7, 0)
    before = (tmp_path / NAME).stat().st_mtime_ns
    record_log_start(str(tmp_path), A, 7, 0)
    assert (tmp_path / NAME).stat().st_mtime_ns == before


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    record_log_start(str(tmp_path), A, 7, 0)
    fs = FaultFS()
    fs.fail("pwrite")
    with pytest.raises(StorageError):
        record_log_start(str(tmp_path), A, 9, 0, fs=fs)
    assert read_offset(str(tmp_path), LOG_START_FILE, A) == 7


def test_a_damaged_checkpoint_is_named_and_nothing_opened(tmp_path: Path) -> None:
    kafkalog.open(tmp_path / "a-0", "a").close()
    (tmp_path / NAME).write_text("0\n1\na 0 seven\n")
    with pytest.raises(CorruptCheckpoint) as refused:
        kafkalog.open(tmp_path / "a-0", "a")
    assert refused.value.path == str(tmp_path / NAME)
    (tmp_path / NAME).unlink()
    kafkalog.open(tmp_path / "a-0", "a").close()
