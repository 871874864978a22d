"""The state of a cluster's metadata after its records: topics, settings, voters, features, security.

An image is built by replaying the records of `__cluster_metadata` (format.md section 13) in their order, as a
controller does. It reads no file; `cluster_metadata.py` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from kafkalog.records.control import ControlRecord, ControlType
from kafkalog.records.internal import MetadataRecord
from kafkalog.records.schema import Message

METADATA_VERSION: Final = "metadata.version"
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
_UNCHANGED_LEADER: Final = -2

QuotaEntity = tuple[tuple[str, str | None], ...]


class MetadataPartition(NamedTuple):
    """The controller's state of one partition; `directories` are the directory ids of `replicas`, possibly none."""

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[str, ...]


class MetadataTopic(NamedTuple):
    """A topic's name, id (22 characters) and partitions by number."""

    name: str
    topic_id: str
    partitions: dict[int, MetadataPartition]


class ClusterImage:
    """The state after the records replayed so far.

    features: levels by name; topics: by name; configs: settings by (resource type, resource name), the name "" being
    every broker's; next_producer_id: the first id that no broker was given; acls: records of access control entries by
    their id; scram: records of users' keys by (user, number of the mechanism); quotas: limits by key, by tuples of
    (type, name) pairs sorted by type, the name None being the default; skipped: counts, by record number, of
    records from a newer Kafka that are not needed here.

    Threads: one at a time.
    """

    def __init__(self) -> None:
        self.features: dict[str, int] = {}
        self.topics: dict[str, MetadataTopic] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.next_producer_id = 0
        self.acls: dict[str, Message] = {}
        self.scram: dict[tuple[str, int], Message] = {}
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.skipped: Counter[int] = Counter()
        self._dynamic_voters: frozenset[int] | None = None
        self._static_voters: frozenset[int] | None = None
        self._names: dict[str, str] = {}  # topic id -> name
        self._pending: list[MetadataRecord] | None = None

    @property
    def open_transaction(self) -> bool:
        """True while a metadata transaction has begun and not ended."""
        return self._pending is not None

    @property
    def metadata_version(self) -> int:
        """The level of metadata.version; 0 if no record sets it."""
        return self.features.get(METADATA_VERSION, 0)

    def topic_settings(self, topic: str) -> dict[str, str]:
        """Return a topic's own settings."""
        return dict(self.configs.get((TOPIC_RESOURCE, topic), {}))

    def broker_settings(self, broker: int) -> dict[str, str]:
        """Return the dynamic settings of a broker: those of every broker, overridden by its own."""
        general = self.configs.get((BROKER_RESOURCE, ""), {})
        return {**general, **self.configs.get((BROKER_RESOURCE, str(broker)), {})}

    def replay(self, record: MetadataRecord) -> None:
        """Apply a record; records of a metadata transaction are applied when the transaction ends."""
        if record.name == "BeginTransactionRecord":
            self._pending = []
        elif record.name == "EndTransactionRecord":
            pending, self._pending = self._pending, None
            for one in pending or ():
                self._apply(one)
        elif record.name == "AbortTransactionRecord":
            self._pending = None
        elif self._pending is not None:
            self._pending.append(record)
        else:
            self._apply(record)

    def replay_control(self, record: ControlRecord) -> None:
        """Apply a control record of KRaft: it may name the voters."""
        if record.data is None or record.type not in (ControlType.KRAFT_VOTERS, ControlType.LEADER_CHANGE):
            return
        voters = frozenset(voter["voterId"] for voter in record.data["voters"])
        if record.type == ControlType.KRAFT_VOTERS:
            self._dynamic_voters = voters
        else:
            self._static_voters = voters

    @property
    def voters(self) -> frozenset[int] | None:
        """Ids of the voting controllers: those of the last voters record, else of the last leader change."""
        return self._static_voters if self._dynamic_voters is None else self._dynamic_voters

    def contains(self, other: ClusterImage) -> bool:
        """Return True if this image has all topics and settings of `other`, and the same features and security."""
        return (
            (self.features, self.acls, self.scram, self.quotas)
            == (other.features, other.acls, other.scram, other.quotas)
            and self.topics.items() >= other.topics.items()
            and self.configs.items() >= other.configs.items()
            and self.next_producer_id >= other.next_producer_id
        )

    def _apply(self, record: MetadataRecord) -> None:
        apply = _APPLY.get(record.name)
        if apply is not None:
            apply(self, record.data)

    def _topic(self, data: Message) -> None:
        name, topic_id = data["name"], data["topicId"]
        self.topics[name] = MetadataTopic(name, topic_id, {})
        self._names[topic_id] = name

    def _remove_topic(self, data: Message) -> None:
        name = self._names.pop(data["topicId"], None)
        if name is not None:
            del self.topics[name]
            self.configs.pop((TOPIC_RESOURCE, name), None)

    def _partition(self, data: Message) -> None:
        topic = self._topic_of(data)
        if topic is not None:
            topic.partitions[data["partitionId"]] = MetadataPartition(
                tuple(data["replicas"]),
                data["leader"],
                data["leaderEpoch"],
                data["partitionEpoch"],
                tuple(data.get("directories") or ()),
            )

    def _change_partition(self, data: Message) -> None:
        topic = self._topic_of(data)
        known = None if topic is None else topic.partitions.get(data["partitionId"])
        if topic is None or known is None:
            return
        leader = data.get("leader", _UNCHANGED_LEADER)
        moved = leader != _UNCHANGED_LEADER
        given: Message = {name: data.get(name) for name in ("replicas", "directories")}
        topic.partitions[data["partitionId"]] = MetadataPartition(
            known.replicas if given["replicas"] is None else tuple(given["replicas"]),
            leader if moved else known.leader,
            known.leader_epoch + moved,
            known.partition_epoch + 1,
            known.directories if given["directories"] is None else tuple(given["directories"]),
        )

    def _topic_of(self, data: Message) -> MetadataTopic | None:
        name = self._names.get(data["topicId"])
        return None if name is None else self.topics[name]

    def _config(self, data: Message) -> None:
        settings = self.configs.setdefault((data["resourceType"], data["resourceName"]), {})
        if data["value"] is None:
            settings.pop(data["name"], None)
        else:
            settings[data["name"]] = data["value"]

    def _feature(self, data: Message) -> None:
        self.features[data["name"]] = data["featureLevel"]

    def _producer_ids(self, data: Message) -> None:
        self.next_producer_id = max(self.next_producer_id, data["nextProducerId"])

    def _acl(self, data: Message) -> None:
        self.acls[data["id"]] = data

    def _remove_acl(self, data: Message) -> None:
        self.acls.pop(data["id"], None)

    def _scram(self, data: Message) -> None:
        self.scram[data["name"], data["mechanism"]] = data

    def _remove_scram(self, data: Message) -> None:
        self.scram.pop((data["name"], data["mechanism"]), None)

    def _quota(self, data: Message) -> None:
        entity = tuple(sorted((one["entityType"], one["entityName"]) for one in data["entity"]))
        if not data["remove"]:
            self.quotas.setdefault(entity, {})[data["key"]] = data["value"]
        elif self.quotas.get(entity, {}).pop(data["key"], None) is not None and not self.quotas[entity]:
            del self.quotas[entity]


_APPLY: Final[dict[str, Callable[[ClusterImage, Message], None]]] = {
    "TopicRecord": ClusterImage._topic,
    "RemoveTopicRecord": ClusterImage._remove_topic,
    "PartitionRecord": ClusterImage._partition,
    "PartitionChangeRecord": ClusterImage._change_partition,
    "ConfigRecord": ClusterImage._config,
    "FeatureLevelRecord": ClusterImage._feature,
    "ProducerIdsRecord": ClusterImage._producer_ids,
    "AccessControlEntryRecord": ClusterImage._acl,
    "RemoveAccessControlEntryRecord": ClusterImage._remove_acl,
    "UserScramCredentialRecord": ClusterImage._scram,
    "RemoveUserScramCredentialRecord": ClusterImage._remove_scram,
    "ClientQuotaRecord": ClusterImage._quota,
}
NEEDED: Final = frozenset({*_APPLY, "BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord"})
"""Records that an image needs to be correct; no other kind changes it."""
