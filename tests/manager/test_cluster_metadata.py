"""A broker's metadata from its directory: the log, snapshots, the file a controller begins with, and damage in them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import CorruptRecord, InvalidRecord
from kafkalog.manager.cluster_image import ClusterImage
from kafkalog.manager.cluster_metadata import BOOTSTRAP_FILE, METADATA_DIRECTORY, read_cluster_metadata
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import kraft_batch
from kafkalog.records.internal import MetadataRecord
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.util.fileio import OS
from tests.golden_cases import Case, cases, partitions

TOP_LEVEL = [pytest.param(case, id=case.name) for case in cases("logdir")]
ID, OTHER_ID = "Er3uhoIpQAyT3-6BGQRyUA", "OWaNnne1Th-s6Mc2ZfTCvg"


@pytest.mark.parametrize("case", TOP_LEVEL)
def test_settings_and_ids_of_a_real_broker(case: Case) -> None:
    """Every topic's own settings, as the broker told them, and the ids that its partitions carry."""
    root = case.path(case.files[0]).parent
    metadata = read_cluster_metadata(root)
    assert metadata is not None and not metadata.is_fresh and metadata.problem is None
    configs = next(case.expected_path(name) for name in case.expected if name.endswith("topic-configs.json"))
    expected = json.loads(configs.read_text())
    image = metadata.image
    assert {name: image.topic_settings(name) for name in expected} == expected
    found = [one for one in partitions("logdir") if one.topic in image.topics]
    assert found
    for one in found:
        topic = image.topics[one.topic]
        assert topic.topic_id == read_partition_metadata(OS, one.directory)
        assert int(one.name.rpartition("-")[2]) in topic.partitions


@pytest.mark.parametrize("case", TOP_LEVEL)
def test_bootstrap_file_is_what_an_empty_log_begins_with(case: Case, tmp_path: Path) -> None:
    root = case.path(case.files[0]).parent
    shutil.copy(root / BOOTSTRAP_FILE, tmp_path)
    fresh, whole = read_cluster_metadata(tmp_path), read_cluster_metadata(root)
    assert fresh is not None and whole is not None
    assert fresh.is_fresh and not fresh.image.topics and (fresh.end_offset, fresh.leader_epoch) == (0, 0)
    assert fresh.image.metadata_version == whole.image.metadata_version > 0


def test_no_metadata_here(tmp_path: Path) -> None:
    assert read_cluster_metadata(tmp_path) is None
    (tmp_path / METADATA_DIRECTORY).mkdir()
    assert read_cluster_metadata(tmp_path) is None


@pytest.mark.parametrize("case", TOP_LEVEL)
def test_damage_inside_the_bootstrap_file(case: Case, tmp_path: Path) -> None:
    """A flipped bit and a cut are CorruptRecord that names the file."""
    data = (case.path(case.files[0]).parent / BOOTSTRAP_FILE).read_bytes()
    path = tmp_path / BOOTSTRAP_FILE
    for bad in (data[:200] + bytes([data[200] ^ 1]) + data[201:], data[:-3]):
        path.write_bytes(bad)
        with pytest.raises(CorruptRecord) as caught:
            read_cluster_metadata(tmp_path)
        assert caught.value.path == str(path)


def test_a_record_that_is_none(tmp_path: Path) -> None:
    builder = RecordsBuilder(0)
    builder.append(1, None, b"\x01\xff\x01\x00\x00")
    (tmp_path / BOOTSTRAP_FILE).write_bytes(builder.build())
    with pytest.raises(InvalidRecord) as caught:
        read_cluster_metadata(tmp_path)
    assert caught.value.path == str(tmp_path / BOOTSTRAP_FILE)


def test_voters_of_a_dynamic_quorum(tmp_path: Path) -> None:
    """A voters record in the first snapshot names them; it is no data, so the log is fresh."""
    voter = {
        "voterId": 7, "voterDirectoryId": ID, "endpoints": [],
        "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
    }  # fmt: skip
    snapshot = tmp_path / METADATA_DIRECTORY / f"{0:020d}-{0:010d}.checkpoint"
    snapshot.parent.mkdir()
    snapshot.write_bytes(kraft_batch(ControlType.KRAFT_VOTERS, {"voters": [voter]}, timestamp=1))
    builder = RecordsBuilder(0)
    builder.append(1, None, b"\x01\x0c\x00\x11metadata.version\x00\x1e\x00")
    (tmp_path / BOOTSTRAP_FILE).write_bytes(builder.build())
    metadata = read_cluster_metadata(tmp_path)
    assert metadata is not None and metadata.is_fresh
    assert metadata.image.voters == {7}
    assert metadata.image.metadata_version == 30


def record(kind: str, **data: Any) -> MetadataRecord:
    return MetadataRecord(-1, kind, 0, data)


PARTITION = {
    "partitionId": 0, "topicId": ID, "replicas": [1], "isr": [1], "removingReplicas": [], "addingReplicas": [],
    "leader": 1, "leaderEpoch": 3, "partitionEpoch": 5, "directories": [OTHER_ID],
}  # fmt: skip


def test_replay() -> None:
    """Changes of leaders, replicas, settings, ids; a removed topic takes its settings along."""
    image = ClusterImage()
    for one in (
        record("TopicRecord", name="t", topicId=ID),
        record("PartitionRecord", **PARTITION),
        record("ConfigRecord", resourceType=2, resourceName="t", name="retention.ms", value="-1"),
        record("ConfigRecord", resourceType=2, resourceName="t", name="segment.ms", value="1"),
        record("ConfigRecord", resourceType=2, resourceName="t", name="segment.ms", value=None),
        record("ConfigRecord", resourceType=4, resourceName="", name="log.retention.ms", value="5"),
        record("ConfigRecord", resourceType=4, resourceName="1", name="log.retention.ms", value="6"),
        record("ProducerIdsRecord", brokerId=1, brokerEpoch=1, nextProducerId=2000),
        record("RegisterBrokerRecord", brokerId=1),
        record("PartitionChangeRecord", partitionId=0, topicId=ID, leader=-1),
        record("PartitionChangeRecord", partitionId=0, topicId=ID, replicas=[2], directories=[ID]),
        record("PartitionChangeRecord", partitionId=9, topicId=ID, leader=-1),
        record("RemoveTopicRecord", topicId=OTHER_ID),
    ):
        image.replay(one)
    assert image.topics["t"].partitions[0] == ((2,), -1, 4, 7, (ID,))
    assert image.topic_settings("t") == {"retention.ms": "-1"}
    assert image.broker_settings(1) == {"log.retention.ms": "6"} and image.broker_settings(2)["log.retention.ms"] == "5"
    assert image.next_producer_id == 2000 and image.brokers == {1}
    assert image.metadata_version == 0
    image.replay(record("FeatureLevelRecord", name="metadata.version", featureLevel=17))
    assert image.metadata_version == 17
    image.replay(record("RemoveTopicRecord", topicId=ID))
    assert not image.topics and not image.topic_settings("t")


ACL = {
    "resourceType": 2, "resourceName": "t", "patternType": 3, "principal": "User:a", "host": "*", "operation": 4,
    "permissionType": 3,
}  # fmt: skip
KEYS = {"name": "a", "salt": b"s", "storedKey": b"k", "serverKey": b"v", "iterations": 4096}
OF_A = [{"entityType": "user", "entityName": "a"}, {"entityType": "client-id", "entityName": None}]


def test_replay_of_security() -> None:
    """Entries, keys and limits come and go; a limit is of its entity whatever the order of its parts."""
    image = ClusterImage()
    for one in (
        record("AccessControlEntryRecord", id=ID, **ACL),
        record("AccessControlEntryRecord", id=OTHER_ID, **ACL),
        record("RemoveAccessControlEntryRecord", id=OTHER_ID),
        record("UserScramCredentialRecord", mechanism=1, **KEYS),
        record("UserScramCredentialRecord", mechanism=2, **KEYS),
        record("RemoveUserScramCredentialRecord", name="a", mechanism=1),
        record("RemoveUserScramCredentialRecord", name="nobody", mechanism=1),
        record("ClientQuotaRecord", entity=OF_A, key="producer_byte_rate", value=5.0, remove=False),
        record("ClientQuotaRecord", entity=OF_A[::-1], key="producer_byte_rate", value=6.0, remove=False),
        record("ClientQuotaRecord", entity=OF_A, key="consumer_byte_rate", value=0.0, remove=True),
        record("ClientQuotaRecord", entity=OF_A[:1], key="producer_byte_rate", value=1.0, remove=False),
        record("ClientQuotaRecord", entity=OF_A[:1], key="producer_byte_rate", value=0.0, remove=True),
    ):
        image.replay(one)
    assert image.acls == {ID: {"id": ID, **ACL}} and list(image.scram) == [("a", 2)]
    assert image.quotas == {(("client-id", None), ("user", "a")): {"producer_byte_rate": 6.0}}


def test_a_metadata_transaction_counts_when_it_ends() -> None:
    image = ClusterImage()
    begin, end, abort = (record(f"{what}TransactionRecord") for what in ("Begin", "End", "Abort"))
    image.replay(begin)
    image.replay(record("TopicRecord", name="t", topicId=ID))
    assert image.open_transaction and not image.topics
    image.replay(abort)
    assert not image.open_transaction and not image.topics
    image.replay(begin)
    image.replay(record("TopicRecord", name="t", topicId=ID))
    image.replay(end)
    assert set(image.topics) == {"t"} and not image.open_transaction
