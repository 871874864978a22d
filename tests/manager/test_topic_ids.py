"""The topic id of a partition: when it is on disk, and what another one means (LOG-73)."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import InconsistentTopicId
from kafkalog.manager.log_manager import LogManager
from kafkalog.manager.topics import TOPICS_FILE, TopicStore
from kafkalog.storage.partition_metadata import new_topic_id, read_partition_metadata
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS

T0 = TopicPartition("t", 0)


def test_it_is_there_before_the_first_append(tmp_path: Path) -> None:
    """LOG-73: and it is that of the topic, in each partition."""
    with kafkalog.open(tmp_path / "t-0", "a") as one, kafkalog.open(tmp_path / "t-1", "a"):
        topic_id = read_partition_metadata(OS, one.path)
        assert topic_id is not None and one.end_offset == 0
        entry = TopicStore(tmp_path).get("t")
        assert entry is not None and entry.topic_id == topic_id == read_partition_metadata(OS, tmp_path / "t-1")


def test_one_that_is_assigned_is_written_at_once_and_no_other_is_taken(tmp_path: Path) -> None:
    """LOG-73."""
    topic_id = new_topic_id()
    with LogManager.open([tmp_path]) as manager:
        made = manager.get_or_create(T0, topic_id=topic_id)
        assert read_partition_metadata(OS, made.path) == topic_id
        assert manager.get_or_create(T0, topic_id=topic_id) is made
        with pytest.raises(InconsistentTopicId):
            manager.get_or_create(T0, topic_id=new_topic_id())
        assert read_partition_metadata(OS, made.path) == topic_id


@pytest.mark.parametrize("is_known", [True, False])
def test_a_log_that_is_found_with_another_id_is_not_handed_out(tmp_path: Path, is_known: bool) -> None:
    """LOG-73: whether the store knows the topic, or only the partition's file has its id."""
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append(b"v")
    topic_id = read_partition_metadata(OS, tmp_path / "t-0")
    if not is_known:
        (tmp_path / TOPICS_FILE).unlink()
    with LogManager.open([tmp_path]) as manager:
        with pytest.raises(InconsistentTopicId, match=f"has id {topic_id}"):
            manager.get_or_create(T0, topic_id=new_topic_id())
        assert manager.get_or_create(T0, topic_id=topic_id).log_end_offset == 1
    assert read_partition_metadata(OS, tmp_path / "t-0") == topic_id


@pytest.mark.parametrize("is_known", [True, False])
def test_an_id_with_other_unused_bits_is_the_same(tmp_path: Path, is_known: bool) -> None:
    """LOG-73: also in the files of a directory that has it so."""
    written, canonical = "AAAAAAAAAAAAAAAAAAAAAR", "AAAAAAAAAAAAAAAAAAAAAQ"
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append(b"v")
    found = read_partition_metadata(OS, tmp_path / "t-0")
    assert found is not None
    for path in (tmp_path / TOPICS_FILE, tmp_path / "t-0" / "partition.metadata"):
        path.write_text(path.read_text().replace(found, written))
    if not is_known:
        (tmp_path / TOPICS_FILE).unlink()
    with LogManager.open([tmp_path]) as manager:
        for topic_id in (written, canonical):
            assert manager.get_or_create(T0, topic_id=topic_id).log_end_offset == 1
        assert {one.topic_id for one in manager.topics.entries()} <= {canonical}
