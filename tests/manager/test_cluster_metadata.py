"""A broker's metadata from its directory: the log, snapshots, the file a controller begins with, and damage in them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import CorruptRecord, IllegalArgument, InvalidRecord
from kafkalog.manager.cluster_image import ClusterImage
from kafkalog.manager.cluster_metadata import (
    BOOTSTRAP_FILE,
    BOOTSTRAP_SNAPSHOT,
    METADATA_DIRECTORY,
    choose_metadata,
    read_cluster_metadata,
)
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import kraft_batch
from kafkalog.records.internal import MetadataRecord
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.util.fileio import OS
from tests.broker_directory import (
    NODE_ID,
    Record,
    features,
    format_directory,
    snapshot_of,
    write_meta_properties,
    write_metadata_log,
)
from tests.golden_cases import Case, cases, partitions
from tests.manager.metadata_files import metadata_value, topic_values, write_metadata

TOP_LEVEL = [pytest.param(case, id=case.name) for case in cases("logdir")]
SCRAM = {"name": "ann", "mechanism": 1, "salt": b"s", "storedKey": b"k", "serverKey": b"e", "iterations": 4096}
ID, OTHER_ID = "Er3uhoIpQAyT3-6BGQRyUA", "OWaNnne1Th-s6Mc2ZfTCvg"


@pytest.mark.parametrize("case", TOP_LEVEL)
def test_settings_and_ids_of_a_real_broker(case: Case) -> None:
    """Every topic's own settings, as the broker reported them, and the ids that its partitions carry."""
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


@pytest.mark.parametrize("value", [b"\x01\x0c\x00\x05abc", b"\x02\x0c\x00", b"\x01", b"", b"\x01\x14\x00\x00garbage"])
def test_a_record_that_does_not_read_is_an_error_that_names_it(tmp_path: Path, value: bytes) -> None:
    builder = RecordsBuilder(0)
    builder.append(1, None, value)
    (tmp_path / BOOTSTRAP_FILE).write_bytes(builder.build())
    with pytest.raises(InvalidRecord) as caught:
        read_cluster_metadata(tmp_path)
    assert caught.value.path == str(tmp_path / BOOTSTRAP_FILE) and caught.value.offset == 0


def with_features(*more: bytes) -> list[bytes]:
    return [metadata_value("FeatureLevelRecord", name="metadata.version", featureLevel=40), *more]


def test_records_of_a_newer_kafka_that_are_not_needed_are_counted(tmp_path: Path) -> None:
    """A kind that has no number here, and a newer version of one that changes nothing here."""
    unknown, newer = b"\x01\xff\x01\x00\x00", b"\x01\x14\x05\x00"
    unregistered = metadata_value("UnregisterControllerRecord", controllerId=3)
    write_metadata(tmp_path, with_features(unknown, newer, unregistered, *topic_values("t", {"retention.ms": "7"})))
    metadata = read_cluster_metadata(tmp_path)
    assert metadata is not None and metadata.image.topic_settings("t") == {"retention.ms": "7"}
    assert metadata.image.skipped == {255: 1, 20: 1}


@pytest.mark.parametrize(("number", "name"), [
    (2, "TopicRecord"), (4, "ConfigRecord"), (11, "UserScramCredentialRecord"), (23, "BeginTransactionRecord"),
])  # fmt: skip
def test_a_needed_record_in_a_newer_version_is_refused(tmp_path: Path, number: int, name: str) -> None:
    write_metadata(tmp_path, with_features(bytes([1, number, 9, 0])))
    expected = rf"a newer Kafka \(metadata.version 40\) wrote the {name} in an unknown version"
    with pytest.raises(InvalidRecord, match=expected) as caught:
        read_cluster_metadata(tmp_path)
    assert caught.value.path == str(tmp_path / METADATA_DIRECTORY) and caught.value.offset == 1
    assert "use a kafkalog release that supports" in (caught.value.hint or "")


def test_what_4_4_formats_is_what_an_empty_log_begins_with(tmp_path: Path) -> None:
    """Its records lie in the first snapshot, which goes before a bootstrap file; a log goes before both."""
    user = [("UserScramCredentialRecord", 0, SCRAM)]
    format_directory(tmp_path, level=33, records=user, by="4.4", has_voters=True)
    (tmp_path / BOOTSTRAP_FILE).write_bytes(snapshot_of(features(30)))
    fresh = read_cluster_metadata(tmp_path)
    assert fresh is not None and fresh.is_fresh and fresh.rank == 1 and fresh.image.metadata_version == 33
    assert fresh.bootstrap_path == str(tmp_path / METADATA_DIRECTORY / BOOTSTRAP_SNAPSHOT)
    assert fresh.image.voters == {NODE_ID} and fresh.image.scram
    write_metadata_log(tmp_path)
    begun = read_cluster_metadata(tmp_path)
    assert begun is not None and not begun.is_fresh and begun.rank == 2
    assert begun.image.metadata_version == 30 and not begun.image.scram, "a controller reads what it copied"


def test_a_first_snapshot_of_voters_alone_leaves_the_bootstrap_file(tmp_path: Path) -> None:
    format_directory(tmp_path, level=29, has_voters=True)
    metadata = read_cluster_metadata(tmp_path)
    assert metadata is not None and metadata.is_fresh and metadata.image.metadata_version == 29
    assert metadata.bootstrap_path == str(tmp_path / BOOTSTRAP_FILE) and metadata.image.voters == {NODE_ID}


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
        record("PartitionChangeRecord", partitionId=0, topicId=ID, leader=-1),
        record("PartitionChangeRecord", partitionId=0, topicId=ID, replicas=[2], directories=[ID]),
        record("PartitionChangeRecord", partitionId=9, topicId=ID, leader=-1),
        record("RemoveTopicRecord", topicId=OTHER_ID),
    ):
        image.replay(one)
    assert image.topics["t"].partitions[0] == ((2,), -1, 4, 7, (ID,))
    assert image.topic_settings("t") == {"retention.ms": "-1"}
    assert image.broker_settings(1) == {"log.retention.ms": "6"} and image.broker_settings(2)["log.retention.ms"] == "5"
    assert image.next_producer_id == 2000
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


# Several data directories

ANN: list[Record] = [("UserScramCredentialRecord", 0, SCRAM)]
TOPIC: list[Record] = [("TopicRecord", 0, {"name": "t", "topicId": ID})]


def choose(*directories: Path) -> str | None:
    found = [one for path in directories if (one := read_cluster_metadata(path)) is not None]
    metadata = choose_metadata(found)
    return None if metadata is None else Path(metadata.path).name


def directory(path: Path, by: str, records: list[Record], log: list[Record] | None = None) -> Path:
    if by:
        format_directory(path, by=by, records=records)
    else:
        write_meta_properties(path)
    if log is not None:
        write_metadata_log(path, log)
    return path


@pytest.mark.parametrize(("right", "other"), [
    (("4.3", ANN, []), ("4.3", ANN, None)),  # a log in which the user is gone, and the file it began with
    (("4.4", ANN, []), ("", [], None)),
    (("4.4", ANN, None), ("", [], None)),
    (("4.4", [], None), ("4.3", ANN, None)),  # the directory of a log, and a file of an earlier format
    (("4.3", TOPIC, None), ("4.3", [], None)),  # one file has more topics than the other
])  # fmt: skip
def test_the_order_of_directories_does_not_matter(tmp_path: Path, right: Any, other: Any) -> None:
    one, two = directory(tmp_path / "right", *right), directory(tmp_path / "other", *other)
    assert choose(one, two) == choose(two, one) == "right"


@pytest.mark.parametrize(("one", "two"), [
    (("4.3", [], []), ("4.3", [], [])),  # two logs, even where they say the same
    (("4.3", ANN, None), ("4.3", [], None)),
    (("4.3", TOPIC, None), ("4.3", [("TopicRecord", 0, {"name": "t", "topicId": OTHER_ID})], None)),
    (("4.4", ANN, None), ("4.4", [], None)),
])  # fmt: skip
def test_directories_that_contradict_each_other_are_refused(tmp_path: Path, one: Any, two: Any) -> None:
    first, second = directory(tmp_path / "one", *one), directory(tmp_path / "two", *two)
    for order in ((first, second), (second, first)):
        with pytest.raises(IllegalArgument, match="also has a broker's metadata, and the two differ") as caught:
            choose(*order)
        assert str(order[0]) in str(caught.value) and str(order[1]) in str(caught.value)


def test_no_metadata_in_any_directory(tmp_path: Path) -> None:
    assert choose(tmp_path) is None and choose() is None
