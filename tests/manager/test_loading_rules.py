"""Logs that a LogManager opens in a data directory, the time the marker is removed, and errors that stop the load."""

import errno
import os
from pathlib import Path

import pytest

from kafkalog.errors import StorageError
from kafkalog.manager.log_manager import LoadProgress, LogManager
from kafkalog.types import TopicPartition
from tests.faults import FaultFS
from tests.storage.logs import run

MARKER = ".kafka_cleanshutdown"
DELETED = "t-5.0123456789abcdef0123456789abcdef-delete"
FUTURE = "t-6.0123456789abcdef0123456789abcdef-future"
LOG = "00000000000000000000.log"


def write_partitions(path: Path, topic: str, count: int = 2) -> None:
    """Partitions with four records each, closed well."""
    with LogManager.open([path]) as manager:
        for number in range(count):
            log = manager.get_or_create(TopicPartition(topic, number))
            log.append_batches(bytearray(run(0, 4)))


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_a_directory_to_be_deleted_is_not_recovered_and_a_future_one_is(tmp_path: Path, clean: bool) -> None:
    """LOAD-18: damage in a log pending its delete is ignored; a future log is loaded as any other."""
    write_partitions(tmp_path, "t", 1)
    for name in (DELETED, FUTURE):
        (tmp_path / name).mkdir()
        (tmp_path / name / LOG).write_bytes(run(0, 4)[: 400 if clean else 350])
    (tmp_path / DELETED / LOG).write_bytes(b"no batch at all")
    if not clean:
        (tmp_path / MARKER).unlink()
    with LogManager.open([tmp_path]) as manager:
        assert list(manager.logs) == [TopicPartition("t", 0)]
        (future,) = manager.future_logs.values()
        assert future.log_end_offset == (4 if clean else 3)
        there = tmp_path / DELETED / LOG
        assert not there.exists() or there.read_bytes() == b"no batch at all"


def test_the_marker_goes_before_anything_is_loaded(tmp_path: Path) -> None:
    """LOAD-30: a crash while loading, here in the middle of it, is an unclean end for the next start."""
    write_partitions(tmp_path, "t")
    assert (tmp_path / MARKER).exists()
    marked: list[bool] = []

    def crash(_: LoadProgress) -> None:
        marked.append((tmp_path / MARKER).exists())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        LogManager.open([tmp_path], progress=crash)
    assert marked[0] is False and not (tmp_path / MARKER).exists()
    progress: list[LoadProgress] = []
    with LogManager.open([tmp_path], progress=progress.append) as manager:
        assert [log.log_end_offset for log in manager.logs.values()] == [4, 4]
    assert any(one.segments for one in progress), "the logs were recovered"


def test_a_disk_that_fails_takes_its_directory_offline_and_a_mistake_ends_the_start(tmp_path: Path) -> None:
    """LOAD-32, LOAD-9: the logs of the other directory are open; what is no error of a disk is raised."""
    write_partitions(tmp_path / "a", "left")
    write_partitions(tmp_path / "b", "right")
    (tmp_path / "a" / MARKER).unlink()
    fs = FaultFS()
    fs.fail("preadv", "pread", path="left-1", code=errno.EIO)
    with LogManager.open([tmp_path / "a", tmp_path / "b"], fs=fs) as manager:
        assert [one.is_online for one in manager.directories] == [False, True]
        assert isinstance(manager.directories[0].offline_error, StorageError)
        assert {one.topic for one in manager.logs} == {"right"}
    assert os.path.getsize(tmp_path / "a" / "left-1" / LOG) == 400
    mistaken = FaultFS()
    mistaken.fail("pread", path="right-0", error=AssertionError("a mistake"))
    with pytest.raises(AssertionError, match="a mistake"):
        LogManager.open([tmp_path / "a", tmp_path / "b"], fs=mistaken)
    with LogManager.open([tmp_path / "a", tmp_path / "b"]) as manager:
        assert len(manager.logs) == 4
