"""Queues on directories that have a part of a topic, or whose disk fails."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio", reason="the extra `server` is not installed")

import kafkalog
from kafkalog.errors import CorruptCheckpoint, IllegalState, StorageError, UnknownTopicOrPartition
from tests.queue.test_local import SMALL, values

DISK = OSError(5, "the disk is broken")


def broker_partition(path: Path, *records: bytes) -> None:
    """A partition as a broker leaves it: what its topic has is not in the directory."""
    with kafkalog.open(path, "a") as log:
        log.append(list(records))
    (path.parent / "kafkalog.topics.json").unlink()


@pytest.mark.parametrize("name", ["__consumer_offsets", "__share_group_state"])
def test_a_part_of_an_internal_topic_is_not_extended(tmp_path: Path, name: str) -> None:
    broker_partition(tmp_path / "tasks-0", b"a")
    broker_partition(tmp_path / f"{name}-17")
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        with pytest.raises(IllegalState, match=f"17 of 18 partitions of topic {name} are not here, such as 0"):
            dirs["tasks"].queue("workers")
    assert {one.name for one in tmp_path.iterdir() if one.is_dir()} == {"tasks-0", f"{name}-17"}
    assert not (tmp_path / "kafkalog.settings.json").exists()


def test_a_part_of_a_topic(tmp_path: Path) -> None:
    broker_partition(tmp_path / "tasks-3", b"a")
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs, pytest.raises(IllegalState, match="3 of 4 partitions"):
        dirs["tasks"].queue("workers")
    assert not (tmp_path / "kafkalog.settings.json").exists()


def test_what_is_done_stays_done_after_the_disk_of_the_topic_failed(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    broker_partition(second / "tasks-0", b"a", b"b")
    with kafkalog.open_dirs([first, second], "a", **SMALL) as dirs:
        opened: Any = dirs["tasks", 0].opened_for_append()
        with dirs["tasks"].queue("workers") as queue:
            [item] = queue.acquire(1)
            item.ack()
            opened.manager.fail_directory(second, DISK)
            worker: Any = queue._worker
            worker._loop.call(worker._member.beat())  # as every few seconds
            with pytest.raises(StorageError):
                queue.acquire()
    with kafkalog.open_dirs([first, second], "a", **SMALL) as dirs, dirs["tasks"].queue("workers") as queue:
        assert values(queue.acquire()) == [(b"b", 1)]


def test_internal_topics_of_a_disk_that_failed_are_not_created_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with kafkalog.open_dirs(second, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        dirs["tasks", 0].append([b"a", b"b"])
        with dirs["tasks"].queue("workers") as queue:
            queue.acquire(1)[0].ack()
    first.mkdir()
    (second / "tasks-0").rename(first / "tasks-0")
    with kafkalog.open_dirs([first, second], "a", **SMALL) as dirs:
        opened: Any = dirs["tasks", 0].opened_for_append()
        opened.manager.fail_directory(second, DISK)
        with pytest.raises(StorageError, match="the data directory is offline"):
            dirs["tasks"].queue("workers")
    with kafkalog.open_dirs([first, second], "a", **SMALL) as dirs, dirs["tasks"].queue("workers") as queue:
        assert values(queue.acquire()) == [(b"b", 1)]


def test_nothing_is_left_of_a_queue_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "kafkalog.node.json").write_text("{")
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        tasks = dirs["tasks"]
        before = set(threading.enumerate())
        with pytest.raises(CorruptCheckpoint, match="no valid identity"):
            tasks.queue("workers")
        (tmp_path / "kafkalog.node.json").unlink()
        dirs.delete_topic("tasks")
        with pytest.raises(UnknownTopicOrPartition):
            tasks.queue("workers")
        assert set(threading.enumerate()) <= before
    assert not (tmp_path / "kafkalog.settings.json").exists()
