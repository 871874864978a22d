"""Partitions in data directories."""

import errno
import os
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import IllegalArgument, NotAPartition, PartitionNotFound, StorageError, UnknownTopicOrPartition
from kafkalog.tools.catalog import topics
from kafkalog.tools.directories import find, partitions
from kafkalog.types import TopicPartition
from tests.faults import FaultFS


@pytest.fixture
def data(tmp_path: Path) -> Path:
    live = ("t-0", "t-10", "t-2", "a.b-c-1")
    for name in (*live, "t-3." + "0" * 32 + "-delete", "t-x", "nodash", "__cluster_metadata-0"):
        (tmp_path / name).mkdir()
    (tmp_path / "t-7").write_text("a file")
    return tmp_path


def test_live_partitions_by_topic_and_number(data: Path) -> None:
    found = partitions([str(data)])
    expected = [("a.b-c", 1), ("t", 0), ("t", 2), ("t", 10)]
    assert [one.topic_partition for one in found] == [TopicPartition(*each) for each in expected]
    assert [one.path for one in partitions([str(data)], topic="t")] == [str(data / f"t-{n}") for n in (0, 2, 10)]


def test_several_directories_are_one(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "t-1").mkdir(parents=True)
    numbers = [one.topic_partition.partition for one in partitions([str(data), str(other)], topic="t")]
    assert numbers == [0, 1, 2, 10]
    assert len(partitions([str(data), str(data)])) == 4, "the same directory twice is one"
    (other / "t-0").mkdir()
    with pytest.raises(NotAPartition, match="is also in"):
        partitions([str(data), str(other)])


def test_find(data: Path) -> None:
    assert [one.topic_partition.partition for one in find([str(data)], "t")] == [0, 2, 10]
    assert [one.topic_partition.partition for one in find([str(data)], "t", [10, 0, 10])] == [10, 0]
    with pytest.raises(UnknownTopicOrPartition, match="no partition 7.*0, 2, 10"):
        find([str(data)], "t", [7])
    with pytest.raises(UnknownTopicOrPartition, match=r"no topic u.*a\.b-c, t"):
        find([str(data)], "u")


@pytest.mark.parametrize(
    ("count", "shown"), [(8, "t0, t1, t2, t3, t4, t5, t6, t7"), (9, "t0, t1, t2, t3, t4, t5, t6, t7, ...")]
)
def test_up_to_eight_topics_are_named_where_one_is_missing(tmp_path: Path, count: int, shown: str) -> None:
    for number in range(count):
        (tmp_path / f"t{number}-0").mkdir()
    with pytest.raises(UnknownTopicOrPartition) as caught:
        find([str(tmp_path)], "u")
    assert caught.value.hint == f"topics here: {shown}"


def test_directories_that_are_not_there(data: Path) -> None:
    with pytest.raises(PartitionNotFound):
        partitions([str(data / "no")])
    with pytest.raises(StorageError):
        partitions([str(data / "t-7")])


def test_a_partitions_own_directory_is_no_data_directory(tmp_path: Path) -> None:
    """Nothing would be found in it; in mode "a" it would be given files that are not a partition's."""
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("orders", 1)
    before = sorted(os.listdir(tmp_path / "orders-0"))
    with pytest.raises(IllegalArgument, match=f"give its parent directory, {tmp_path}"):
        kafkalog.open_dirs(tmp_path / "orders-0")
    with pytest.raises(IllegalArgument, match=f"give its parent directory, {tmp_path}"):
        kafkalog.open_dirs(tmp_path / "orders-0", "a")
    assert sorted(os.listdir(tmp_path / "orders-0")) == before


def test_a_partition_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    for name in ("t-0", "t-1"):
        (tmp_path / name).mkdir()
    fs = FaultFS()
    fs.fail("scandir", path="/t-1", code=errno.EACCES)
    with pytest.raises(StorageError) as caught:
        topics([str(tmp_path)], fs=fs)
    assert (caught.value.path, caught.value.errno) == (str(tmp_path / "t-1"), errno.EACCES)


def test_topics_have_their_partitions_and_the_bytes_of_their_segments(tmp_path: Path) -> None:
    for name, size in (("t-0", 100), ("t-1", 20), ("u-0", 3)):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020d}.log").write_bytes(bytes(size))
        (tmp_path / name / f"{0:020d}.index").write_bytes(bytes(8))
    found = topics([str(tmp_path)])
    numbers = [[part.topic_partition.partition for part in one.partitions] for one in found]
    assert ([one.name for one in found], numbers, [one.size for one in found]) == (["t", "u"], [[0, 1], [0]], [120, 3])
