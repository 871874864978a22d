"""Topics whose creation did not finish, and those in a directory that is offline, do not mix with new ones."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import StorageError
from kafkalog.manager.topics import TopicStore
from kafkalog.types import TopicPartition
from tests.faults import FaultFS
from tests.held_store import Held


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    with Held(tmp_path / "a", tmp_path / "b") as made:
        yield made


def test_a_creation_that_failed_leaves_no_settings_to_the_next(held: Held) -> None:
    held.fs.fail("mkdir", path="/t-0", times=9)
    with pytest.raises(StorageError):
        held.dirs.create_topic("t", 3, {"retention.ms": 1000})
    held.fs.heal()
    held.store._manager.fail_directory(held.paths[1], OSError(5, "gone"))
    topic = held.dirs.create_topic("t", 1, {"retention.ms": -1})
    assert (topic.partitions, topic.settings) == ((0,), {"retention.ms": "-1"})


def test_a_creation_that_a_crash_ended_leaves_no_settings_to_the_next(held: Held) -> None:
    held.dirs.close()
    TopicStore(held.paths[1]).ensure("t", partitions=3, settings={"retention.ms": 1000})
    with kafkalog.open_dirs(held.paths, "a") as dirs:
        assert dirs.create_topic("t", 1).settings == {}
    assert TopicStore(held.paths[1]).get("t") is None


@pytest.mark.parametrize("path", ["b", "b/meta.properties", "b/kafkalog.topics.json"])
def test_a_disk_that_fails_at_the_start_does_not_stop_the_others(held: Held, tmp_path: Path, path: str) -> None:
    held.dirs.create_topic("t", 2)
    held.dirs.close()
    fs = FaultFS()
    fs.fail("open", "open_read", "listdir", "scandir", path=str(tmp_path / path), code=errno.EIO)
    with Held(tmp_path / "a", tmp_path / "b", fs=fs) as started:
        assert [one.offline_error is None for one in started.dirs.directories] == [True, False]
        assert list(started.dirs) == [("t", 0)]
        started.dirs["t", 0].append(b"v")
        fs.heal()


def test_no_partition_is_added_that_an_offline_directory_may_have(held: Held, tmp_path: Path) -> None:
    held.dirs.create_topic("t", 2)
    here = TopicPartition("t", 0)
    assert Path(held.dirs[here].path).parent == tmp_path / "a"
    held.store._manager.fail_directory(tmp_path / "b", OSError(5, "gone"))
    with pytest.raises(StorageError, match="topic t may have partitions that are not available"):
        held.dirs.alter_topic("t", {"retention.ms": 5}, partitions=2)
    assert held.dirs.alter_topic("t", {"retention.ms": 6}, partitions=1).settings == {"retention.ms": "6"}
    held.dirs.close()
    with kafkalog.open_dirs(held.paths, "a") as dirs:
        assert dirs.topics["t"].partitions == (0, 1)


def test_a_topic_in_an_offline_directory_is_not_created_again(held: Held, tmp_path: Path) -> None:
    """The next start would find its partitions twice."""
    held.dirs.create_topic("t", directory=tmp_path / "b")
    held.dirs["t", 0].append(b"v")
    held.store._manager.fail_directory(tmp_path / "b", OSError(5, "gone"))
    with pytest.raises(StorageError, match="topic t exists, and its partitions are not available"):
        held.dirs.create_topic("t")
    held.dirs.create_topic("other")
    held.dirs.close()
    with kafkalog.open_dirs(held.paths, "a") as dirs:
        assert dirs["t", 0].end_offset == 1
