"""`__remote_log_metadata` in data directories: which replica is read, and how it is followed."""

from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import InvalidRecord, LogClosed, StorageError, UnknownTopicOrPartition
from kafkalog.records.encoder import encoded
from kafkalog.records.schemas.remote_log import RECORDS
from kafkalog.tiered.metadata_topic import EventPlace, MetadataTopic
from kafkalog.tiered.segment_bytes import TieredPartition
from kafkalog.tiered.segment_metadata import PARTITION_DELETE
from kafkalog.util.fileio import OS
from tests.tiered_store import (
    DELETE_STARTED,
    FINISHED,
    TOPIC_ID,
    Copy,
    make_batch,
    make_id,
    write_events,
    write_log_start,
)

PARTITION = TieredPartition("orders", 0, TOPIC_ID)
COPIES = [Copy(make_id(n), [make_batch(n * 5, 5, 0)]) for n in range(4)]


def events(*numbers: int) -> list[bytes]:
    """Events of finished copies."""
    return [event for n in numbers for event in (COPIES[n].started(), COPIES[n].update(FINISHED))]


def finished(topic: MetadataTopic, partition: TieredPartition = PARTITION) -> list[int]:
    return [one.start // 5 for one in topic.copies(partition).finished]


@pytest.fixture
def topic(tmp_path: Path) -> Any:
    """The topic of two data directories, which hold what a test writes to them before its first use."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    topic = MetadataTopic(OS, [str(tmp_path / "a"), str(tmp_path / "b")])
    yield topic
    topic.close()


@pytest.mark.parametrize("longer", ["a", "b"])
def test_the_longest_replica_is_read(tmp_path: Path, topic: MetadataTopic, longer: str) -> None:
    for name in ("a", "b"):
        write_events(tmp_path / name, events(0, 1) if name == longer else events(0), 7)
    write_events(tmp_path / "a", [COPIES[2]._replace(partition=1).started()], 2**31 - 1)
    for name in ("__remote_log_metadata-x", "__remote_log_metadata-7.0-delete", "__remote_log_metadata-12345678901"):
        (tmp_path / "b" / name).mkdir()  # no partitions
    assert finished(topic) == [0, 1]
    assert topic.copies(PARTITION._replace(partition=1)).unfinished
    assert topic.copies(PARTITION._replace(topic="other")).version == 0
    assert topic.place_of(PARTITION) == EventPlace(7, True)
    assert topic.place_of(PARTITION._replace(partition=1)) == EventPlace(2**31 - 1, True)
    assert topic.place_of(PARTITION._replace(topic="other")) is None


def test_events_are_followed_also_after_a_truncation(tmp_path: Path, topic: MetadataTopic) -> None:
    write_events(tmp_path / "b", events(0), 3)
    write_events(tmp_path / "a", [COPIES[2]._replace(partition=1).started()], 4)
    assert finished(topic) == [0]
    write_events(tmp_path / "b", events(0, 1), 3)
    assert finished(topic) == [0, 1]
    write_events(tmp_path / "b", events(0), 3)
    assert finished(topic) == [0]
    assert topic.copies(PARTITION._replace(partition=1)).unfinished, "that of another partition is still known"
    write_events(tmp_path / "b", events(0, 3) + [COPIES[0].update(DELETE_STARTED)], 3)
    assert finished(topic) == [3]


def test_what_deletes_a_partition_changes_no_copy(tmp_path: Path, topic: MetadataTopic) -> None:
    named = {"name": "orders", "id": TOPIC_ID, "partition": 0}
    fields = {"topicIdPartition": named, "brokerId": 1, "eventTimestampMs": 5, "remotePartitionDeleteState": 0}
    deleted = bytes((1, PARTITION_DELETE, 0)) + encoded(RECORDS[PARTITION_DELETE], fields, 0)
    write_events(tmp_path / "a", [*events(0), deleted, *events(1)])
    assert finished(topic) == [0, 1]


def test_a_record_of_a_snapshot_is_no_event(tmp_path: Path, topic: MetadataTopic) -> None:
    fields = {
        "segmentId": make_id(0), "startOffset": 0, "endOffset": 4, "brokerId": 1, "maxTimestampMs": 0,
        "eventTimestampMs": 0, "segmentLeaderEpochs": [], "segmentSizeInBytes": 1, "customMetadata": None,
        "remoteLogSegmentState": 1,
    }  # fmt: skip
    path = write_events(tmp_path / "a", [*events(0), bytes((1, 3, 0)) + encoded(RECORDS[3], fields, 0)])
    for _ in range(2):
        with pytest.raises(InvalidRecord, match="RemoteLogSegmentMetadataSnapshotRecord is no event") as caught:
            topic.copies(PARTITION)
        assert (caught.value.path, caught.value.offset) == (str(path), 2) and "damaged" in str(caught.value.hint)


def test_events_below_the_log_start_are_gone(tmp_path: Path, topic: MetadataTopic) -> None:
    write_events(tmp_path / "a", events(0, 1))
    write_log_start(tmp_path / "a", {"__remote_log_metadata 0": 2})
    assert finished(topic) == [1] and topic.place_of(PARTITION) == EventPlace(0, False)
    topic.close()
    with pytest.raises(LogClosed):
        topic.copies(PARTITION)


def test_directories_without_the_topic_are_named(tmp_path: Path, topic: MetadataTopic) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="no data directory has __remote_log_metadata") as caught:
        topic.copies(PARTITION)
    assert caught.value.path == f"{tmp_path}/a:{tmp_path}/b" and "metadata" in str(caught.value.hint)
    missing = MetadataTopic(OS, [str(tmp_path / "nothing")])
    with pytest.raises(StorageError, match="list a directory of tiered metadata"):
        missing.copies(PARTITION)
