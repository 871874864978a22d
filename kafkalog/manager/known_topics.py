"""Settings of the topics in some data directories, from the topics file or a broker's metadata.

A topic that neither has (copied there, or left by an older broker) is not aged: its retention is unknown.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.config.broker import BROKER_TABLE, BrokerConfig
from kafkalog.config.keys import Table, parse_value
from kafkalog.config.topic import TOPIC_TABLE, LogConfig
from kafkalog.errors import ConfigError, CorruptRecord, NotAPartition
from kafkalog.manager.meta_properties import read_meta_properties
from kafkalog.manager.topics import TopicStore
from kafkalog.storage.names import BOOTSTRAP_FILE, DELETE_DIR_SUFFIX, METADATA_DIRECTORY, NOT_PARTITIONS, parse_dir
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS, FileSystem

if TYPE_CHECKING:
    from kafkalog.manager.cluster_metadata import ClusterMetadata

_LOG: Final = logging.getLogger(__name__)
KEEP_ALL: Final = {"retention.bytes": "-1", "retention.ms": "-1"}
"""Settings of an unknown topic."""
QUORUM_FILE: Final = "kafkalog.quorum.json"
"""The term and the vote of a node of a replica set, in each of its data directories."""
_RETENTION: Final = frozenset(
    {"log.retention.bytes", "log.retention.hours", "log.retention.minutes", "log.retention.ms"}
)


class KnownTopics(NamedTuple):
    """Entries of topics files, the metadata that applies to these directories, and the node's number.

    `is_in_replica_set` is true for directories of a node of a replica set: other nodes have copies of all partitions.
    """

    own: Mapping[str, Mapping[str, str]]
    cluster: ClusterMetadata | None
    node_id: int | None = None
    is_in_replica_set: bool = False

    def settings_of(self, topic: str) -> Mapping[str, str] | None:
        """Return a topic's own settings; None if the topic is unknown."""
        if topic in self.own:
            return self.own[topic]
        if self.cluster is not None and topic in self.cluster.image.topics:
            return valid_settings(TOPIC_TABLE, self.cluster.image.topic_settings(topic), f"topic {topic}")
        return None

    def store_settings(self) -> dict[str, str]:
        """Return the broker settings in the cluster's metadata that this version understands."""
        if self.cluster is None:
            return {}
        node = -1 if self.node_id is None else self.node_id
        settings = self.cluster.image.broker_settings(node)
        return valid_settings(BROKER_TABLE, settings, "the broker", ignore_unknown=True)

    def config_of(self, topic: str, store: BrokerConfig) -> LogConfig:
        """Return a topic's configuration in a store; `KEEP_ALL` for an unknown one, unless the store sets a retention.
        """
        settings = self.settings_of(topic)
        if settings is None:
            settings = {} if self.has_known_retention(topic, store) else KEEP_ALL
        return store.log_config(settings)

    def has_known_retention(self, topic: str, store: BrokerConfig) -> bool:
        """Return False for an unknown topic in a store that sets no retention."""
        return self.settings_of(topic) is not None or bool(_RETENTION & store.overrides().keys())

    def other_settings(self, topics: Iterable[str], store: BrokerConfig) -> dict[str, Mapping[str, str]]:
        """Return settings of those `topics` that no topics file has: the broker's, or `KEEP_ALL` for unknown ones."""
        found: dict[str, Mapping[str, str]] = {}
        unknown = []
        for topic in sorted(set(topics) - self.own.keys()):
            settings = self.settings_of(topic)
            if settings is None and not self.has_known_retention(topic, store):
                unknown.append(topic)
                settings = KEEP_ALL
            found[topic] = settings or {}
        if unknown:
            names = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
            _LOG.warning("the settings of %s are unknown: nothing is deleted by age or size", names)
        return found

    def has_replicas(self, topic_partition: TopicPartition) -> bool:
        """Return True if other brokers have copies: the checkpointed high watermark then applies, not the log end."""
        topic, number = topic_partition
        if self.is_in_replica_set:
            return True
        if topic in self.own or self.cluster is None or topic not in self.cluster.image.topics:
            return False
        partition = self.cluster.image.topics[topic].partitions.get(number)
        return partition is not None and len(partition.replicas) > 1


def read_known_topics(directories: Iterable[str], *, fs: FileSystem = OS) -> KnownTopics:
    """Read the topics files of the data directories, and a broker's metadata in one of them.

    CorruptCheckpoint, CorruptRecord, InvalidRecord for damage: unreadable settings must not be replaced by defaults
    that delete records. IllegalArgument for metadata in two directories that contradict each other, StorageError.
    """
    places = tuple(directories)
    own: dict[str, Mapping[str, str]] = {}
    for directory in places:
        for name, entry in TopicStore(directory, fs=fs).topics().items():
            own.setdefault(name, entry.settings)
    return read_metadata(places, fs=fs)._replace(own=own)


def read_metadata(directories: Iterable[str], *, fs: FileSystem = OS) -> KnownTopics:
    """Read a broker's metadata in one of the data directories, and no topics file. Errors as `read_known_topics`."""
    found: list[ClusterMetadata] = []
    node_id: int | None = None
    is_in_replica_set = False
    for directory in directories:
        is_in_replica_set |= fs.exists(os.path.join(directory, QUORUM_FILE))
        meta = read_meta_properties(directory, fs)
        node_id = meta.node_id if node_id is None and meta is not None else node_id
        if _may_hold_metadata(directory, fs):
            from kafkalog.manager.cluster_metadata import read_cluster_metadata

            found += filter(None, [read_cluster_metadata(directory, fs=fs)])
    return KnownTopics({}, _choose_metadata(found) if found else None, node_id, is_in_replica_set)


def _choose_metadata(found: list[ClusterMetadata]) -> ClusterMetadata | None:
    """Return the metadata that applies.

    CorruptRecord if its log ends in damage, IllegalArgument if none can be chosen with certainty.
    """
    from kafkalog.manager.cluster_metadata import choose_metadata

    cluster = choose_metadata(found)
    if cluster is not None and cluster.problem is not None:
        raise CorruptRecord(
            f"the broker's metadata is damaged, so its settings are unknown: {cluster.problem.message}",
            path=cluster.problem.path,
            offset=cluster.problem.offset,
            position=cluster.problem.position,
            hint=f"`kafkalog verify` shows it; `kafkalog repair --apply {cluster.log_path}` truncates a torn end",
        )
    if cluster is not None and cluster.image.skipped:
        types = ", ".join(map(str, sorted(cluster.image.skipped)))
        _LOG.warning("%s: skipped records of a newer Kafka that are not needed: types %s", cluster.path, types)
    return cluster


def topics_in(directories: Iterable[str], fs: FileSystem = OS) -> set[str]:
    """Return the topics that have a partition in the data directories, ignoring partitions pending deletion."""
    topics: set[str] = set()
    for directory in directories:
        if not fs.exists(directory):
            continue
        for name in fs.names(directory):
            if name not in NOT_PARTITIONS:
                try:
                    topic_partition, kind = parse_dir(name)
                except NotAPartition:
                    continue
                if kind != DELETE_DIR_SUFFIX:
                    topics.add(topic_partition.topic)
    return topics


def _may_hold_metadata(directory: str, fs: FileSystem) -> bool:
    """Return False if there are no metadata files, so that a directory without a broker loads no KRaft reader."""
    try:
        return any(fs.exists(os.path.join(directory, name)) for name in (METADATA_DIRECTORY, BOOTSTRAP_FILE))
    except OSError:
        return True  # the reader reports the error


def valid_settings(
    table: Table, settings: Mapping[str, str], owner: str, *, ignore_unknown: bool = False
) -> dict[str, str]:
    """Return the broker's settings that this version knows and accepts; log a warning for each other one."""
    accepted = {}
    for name, value in settings.items():
        try:
            parse_value(table.find(name), value)
        except ConfigError as error:
            if not ignore_unknown:
                _LOG.warning("%s: ignoring the setting %s=%s: %s", owner, name, value, error.message)
            continue
        accepted[name] = value
    return accepted
