"""Checkpoints that many ask: parsed once while a file stays, and never an answer from before its last change."""

import os
from pathlib import Path

import pytest

from kafkalog.errors import CorruptCheckpoint, StorageError
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import OffsetCheckpoint
from kafkalog.util.checkpoint_cache import CheckpointCache
from tests.faults import FaultFS

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


def write_checkpoint(path: Path, offsets: dict[TopicPartition, int], seconds: int) -> str:
    """The file with these offsets, written so many seconds ago."""
    OffsetCheckpoint(path).write(offsets)
    then = os.stat(path).st_mtime_ns - seconds * 10**9
    os.utime(path, ns=(then, then))
    return str(path)


def test_a_file_that_stays_is_read_once(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "one", {A: 1, B: 2}, 9)
    fs = FaultFS()
    cache = CheckpointCache(fs=fs)
    assert [cache.read(path).get(one) for one in (A, B, A)] == [1, 2, 1]
    assert len(fs.named("open_read")) == 1


def test_every_change_is_seen(tmp_path: Path) -> None:
    cache = CheckpointCache()
    path = str(tmp_path / "one")
    assert cache.read(path) == {}
    write_checkpoint(tmp_path / "one", {A: 1}, 9)
    assert cache.read(path) == {A: 1}
    write_checkpoint(tmp_path / "one", {A: 7}, 8)  # of the same size
    assert cache.read(path) == {A: 7}
    os.unlink(path)
    assert cache.read(path) == {}


def test_what_was_written_a_moment_ago_is_not_kept(tmp_path: Path) -> None:
    """Within one tick of file times a second change looks like the first."""
    path = tmp_path / "one"
    cache = CheckpointCache()
    path.write_bytes(b"0\n1\na 0 1\n")
    before = os.stat(path)
    assert cache.read(str(path)) == {A: 1}
    path.write_bytes(b"0\n1\na 0 2\n")
    os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))
    assert cache.read(str(path)) == {A: 2}


def test_a_malformed_file_and_one_that_cannot_be_looked_at_are_errors_each_time(tmp_path: Path) -> None:
    path = tmp_path / "one"
    path.write_bytes(b"0\n1\nx\n")
    cache = CheckpointCache()
    for _ in range(2):
        with pytest.raises(CorruptCheckpoint):
            cache.read(str(path))
    fs = FaultFS()
    fs.fail("stat")
    with pytest.raises(StorageError, match="read the status of the checkpoint file"):
        CheckpointCache(fs=fs).read(str(path))
