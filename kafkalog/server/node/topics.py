"""The topics of a node, and their creation, growth, change and deletion, one call at a time.

The log manager owns the files: the topics file of each data directory and its partitions. This module is the loop's
view of them, so that no request waits for a disk. Clients see a topic once all its partitions exist, and no longer
before the first one is deleted. The next start cleans up after a creation or deletion that a crash interrupted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kafkalog.config.topic import LogConfig
from kafkalog.errors import (
    IllegalArgument,
    InvalidPartitions,
    InvalidRequest,
    InvalidTopic,
    KafkalogError,
    PolicyViolation,
    TopicExists,
    UnknownTopicOrPartition,
)
from kafkalog.manager.known_topics import KnownTopics
from kafkalog.manager.new_partitions import NewPartitions
from kafkalog.manager.topics import MAX_PARTITIONS_AT_ONCE
from kafkalog.server.node.changing import Changing
from kafkalog.server.node.stored_topics import StoredTopics
from kafkalog.server.node.topic import CONSUMER_OFFSETS as CONSUMER_OFFSETS
from kafkalog.server.node.topic import INTERNAL as INTERNAL
from kafkalog.server.node.topic import SHARE_GROUP_STATE as SHARE_GROUP_STATE
from kafkalog.server.node.topic import TRANSACTION_STATE as TRANSACTION_STATE
from kafkalog.server.node.topic import Topic as Topic
from kafkalog.server.node.topic import id_text as id_text
from kafkalog.server.node.topic import uuid_of
from kafkalog.server.quorum.errors import NotController
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.storage.names import MAX_TOPIC_LENGTH, metric_name, validate_topic
from kafkalog.storage.partition_metadata import new_topic_id

if TYPE_CHECKING:
    from kafkalog.manager.log_manager import LogManager
    from kafkalog.server.node.node import Node
    from kafkalog.server.node.pool import Run
    from kafkalog.server.settings.config import ServerConfig
    from kafkalog.server.workers.spread_store import SpreadStore

_LOG: Final = logging.getLogger(__name__)
_SETTINGS: Final = {
    CONSUMER_OFFSETS: "offsets.topic", TRANSACTION_STATE: "transaction.state.log",
    SHARE_GROUP_STATE: "share.coordinator.state.topic",
}  # fmt: skip
"""Prefix of the settings of each internal topic."""
METADATA_TOPIC: Final = "__cluster_metadata"
NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})
NO_IDS: Final[Mapping[str, UUID]] = MappingProxyType({})


class TopicPlan(NamedTuple):
    """A validated topic of which nothing is on disk yet."""

    topic: Topic
    settings: Mapping[str, str]

    def with_id(self, topic_id: UUID) -> TopicPlan:
        """Return the plan with the id of another node's topic."""
        return self._replace(topic=self.topic._replace(id=topic_id))

    def partitions(self, first: int = 0) -> NewPartitions:
        """Return the partitions from `first` on, for the store to create."""
        topic = self.topic
        return NewPartitions(topic.name, id_text(topic.id), range(first, topic.partitions), self.settings)


OnChange = Callable[[Topic | None, Topic | None], object]


class Topics(Changing):
    """The topics of the node. Used only in the loop's thread; `run` runs disk operations in a pool.

    `numbers` has `num.partitions` and the settings of the internal topics, by the reference's names.
    """

    def __init__(
        self, store: LogManager | SpreadStore, run: Run, numbers: ServerConfig, known: KnownTopics | None = None
    ) -> None:
        super().__init__()
        self._store = store
        self._run = run
        self._numbers = numbers
        self._stored = StoredTopics(store, known)
        self.first_epoch: Callable[[], int] = lambda: 0
        """Returns the first leader epoch of new partitions."""
        self.between_steps: Callable[[], object] = lambda: None
        """Called in a pool thread between the parts of a long change."""
        self._is_stopping = False
        self._topics: dict[str, Topic] = {}
        self._by_number: dict[int | None, Topic] = {}
        self.get: Callable[[str], Topic | None] = self._topics.get
        """Returns the topic of that name, or None."""
        self.by_number: Callable[[int | None], Topic | None] = self._by_number.get
        """Returns the topic whose id has that number (`UUID.int`), or None."""
        self._by_metric_name: dict[str, list[str]] = {}  # several per name only if a broker created them
        self._listeners: list[OnChange] = []

    async def start(self) -> None:
        """Load the topics from disk and clean up after interrupted changes. Raise StorageError, CorruptCheckpoint."""
        for topic in await self._run(self._stored.load):
            self._put(topic)

    async def stop(self) -> None:
        """Interrupt a change in progress: the next start has the topics as before, or completes their deletion."""
        self._is_stopping = True
        await self.settled()

    async def refresh(self) -> None:
        """Take over the topics of a store that others of this process change, as they are now.

        A topic that is being created is left out. Only a topic without an id is changed: it gets one. Raise
        StorageError, CorruptCheckpoint.
        """
        async with self._changing:
            whole, may_exist = await self._run(self._stored.present)
            found = {topic.name: topic for topic in whole}
            for before in tuple(self._topics.values()):
                after = found.get(before.name)
                if not may_exist(before.name) if after is None else after.id != before.id:
                    self._drop(before)
                    self._notify(before, None)
            for topic in found.values():
                known = self._topics.get(topic.name)
                if known != topic:
                    self._change(known, topic)

    # Lookup

    def by_id(self, topic_id: UUID | None) -> Topic | None:
        """Return the topic with that id, or None; no topic has None or the id of zeros."""
        return None if topic_id is None else self._by_number.get(topic_id.int)

    def each(self) -> list[Topic]:
        """Return all topics, sorted by name."""
        return [self._topics[name] for name in self.names()]

    def names(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return sorted(self._topics)

    def settings(self, name: str) -> LogConfig:
        """Return the effective settings of a topic: its own, else the node's."""
        return self._store.config_of(name)

    def own_settings(self, name: str) -> Mapping[str, str]:
        """Return the settings of the topic itself, name to text."""
        return LogConfig.from_stored(self._store.topics.settings_of(name)).overrides()

    def on_change(self, callback: OnChange) -> None:
        """Call `callback(before, after)` on the loop after each change.

        `before` is None for a new topic, `after` for a deleted one.
        """
        self._listeners.append(callback)

    def off_change(self, callback: OnChange) -> None:
        """Remove a callback."""
        self._listeners.remove(callback)

    # Changes

    async def create(
        self,
        name: str,
        partitions: int = -1,
        settings: Mapping[str, object] | None = None,
        *,
        topic_id: UUID | None = None,
    ) -> Topic:
        """Create a topic and return it; -1 partitions mean `num.partitions`.

        `topic_id` is the id of another node's topic. Raises InvalidTopic, InvalidRequest, TopicExists,
        InvalidPartitions, PolicyViolation, ConfigError, StorageError.
        """
        plan = self.plan(name, partitions, settings)
        created = (await self.create_all((plan if topic_id is None else plan.with_id(topic_id),)))[0]
        if isinstance(created, KafkalogError):
            raise created
        return created

    async def create_all(self, plans: Sequence[TopicPlan]) -> list[Topic | KafkalogError]:
        """Create topics and return each topic or its error, in the given order. Raises as `check_change`."""
        async with self._changing:
            self.check_change()
            found: dict[str, Topic | KafkalogError] = {}
            planned_topics: dict[str, TopicPlan] = {}
            alike: dict[str, str] = {}
            for plan in plans:
                name = plan.topic.name
                try:
                    self.check_new(name, alike)
                    planned_topics[name], alike[metric_name(name)] = plan, name
                except KafkalogError as error:
                    found[name] = error
            failures = await self._run(self._create_new, planned_topics, self.first_epoch()) if planned_topics else {}
            turns = CooperativeYield()
            for name, plan in planned_topics.items():
                await turns.row()
                found[name] = failures.get(name, plan.topic)
                if name not in failures:
                    _LOG.info("created topic %s with %d partitions", name, plan.topic.partitions)
                    self._change(None, plan.topic)
        return [found[plan.topic.name] for plan in plans]

    def plan(self, name: str, partitions: int = -1, settings: Mapping[str, object] | None = None) -> TopicPlan:
        """Return the plan of a topic that `create` would create. Raises as `create`."""
        self.check_new(name)
        own = self._store.config.log_config(settings or {}).overrides()
        if partitions == -1:
            partitions = self._numbers["num.partitions"]
        if partitions < 1:
            raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
        check_partition_count(partitions)
        return TopicPlan(Topic(name, uuid_of(new_topic_id()), partitions, name in INTERNAL), own)

    def check_new(self, name: str, planned: Mapping[str, str] = NO_NAMES) -> None:
        """Raise InvalidTopic, InvalidRequest or TopicExists unless a topic of this name may be created.

        `planned` has other topics about to be created, by their metric names.
        """
        check_name(name)
        if name == METADATA_TOPIC:
            raise InvalidRequest(f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
        alike = metric_name(name)
        if name in self._topics or name == planned.get(alike):
            raise TopicExists(f"Topic '{name}' already exists.")
        other = next(iter(self._by_metric_name.get(alike, ())), planned.get(alike))
        if other is not None:
            raise InvalidTopic(f"Topic '{name}' collides with existing topic: {other}")

    async def add_partitions(self, name: str, count: int) -> Topic:
        """Grow a topic to `count` partitions and return it.

        Raises UnknownTopicOrPartition, InvalidPartitions, InvalidRequest, PolicyViolation, StorageError.
        """
        async with self._changing:
            self.check_change()
            before = self.check_growth(name, count)
            after = before._replace(partitions=count)
            added = TopicPlan(after, {}).partitions(before.partitions)
            failures = await self._run(self._create_partitions, (added,), self.first_epoch())
            for error in failures.values():
                raise error
            self._change(before, after)
        return after

    def check_growth(self, name: str, count: int) -> Topic:
        """Return the current topic if it may grow to `count` partitions. Raises as `add_partitions`."""
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition()
        if count <= topic.partitions:
            words = f"The topic {name} currently has {topic.partitions} partition(s); {count} would not be an increase."
            same = f"Topic already has {count} partition(s)."
            raise InvalidPartitions(same if count == topic.partitions else words)
        if name in INTERNAL:
            raise InvalidRequest(f"The number of partitions of {name} is fixed: it maps groups and transactions.")
        check_partition_count(count - topic.partitions)
        return topic

    async def delete(self, name: str) -> None:
        """Delete a topic: it disappears for clients at once, its files later (`file.delete.delay.ms`).

        Raises UnknownTopicOrPartition. After a StorageError the topic is visible again, with its remaining parts.
        """
        for error in (await self.delete_all((name,))).values():
            raise error

    async def delete_all(
        self, names: Iterable[str], ids: Mapping[str, UUID] = NO_IDS
    ) -> dict[str, KafkalogError]:
        """Delete topics and return the error of each one that failed, by name, as in `delete`.

        A topic named in `ids` is missing if it has another id: it was created again while the call waited.
        """
        async with self._changing:
            self.check_change()
            found = {name: self._topics.get(name) for name in names}
            for name, topic in found.items():
                if topic is not None and topic.id != ids.get(name, topic.id):
                    found[name] = None
            failures: dict[str, KafkalogError] = {
                name: UnknownTopicOrPartition() for name, topic in found.items() if topic is None
            }
            deletable = [topic for topic in found.values() if topic is not None]
            deleted_names = [topic.name for topic in deletable]
            for topic in deletable:
                self._drop(topic)
            try:
                failures |= await self._run(self._store.delete_topics, deleted_names, self._check_continue)
            except KafkalogError as error:
                failures |= dict.fromkeys(deleted_names, error)
            for topic in deletable:
                if topic.name in failures:
                    self._change(topic, topic)  # followers may have seen it disappear
                else:
                    self._notify(topic, None)
        return failures

    async def alter(self, name: str, changes: Mapping[str, object]) -> None:
        """Change settings of a topic, on disk and in its open logs; None resets one to the node's.

        Raises UnknownTopicOrPartition, ConfigError, StorageError.
        """
        async with self._changing:
            self.check_change()
            topic = self._topics.get(name)
            if topic is None:
                raise UnknownTopicOrPartition()
            await self._run(self._store.alter_topic, name, changes)
            self._notify(topic, topic)

    async def ensure_internal(self, name: str) -> Topic:
        """Return the internal topic of that name, creating it if it is missing."""
        topic = self._topics.get(name)
        if topic is None:
            try:
                topic = await self.create(name, self.internal_partitions(name), self.internal_settings(name))
            except TopicExists:  # another call created it meanwhile
                topic = self._topics[name]
        return topic

    async def create_on_use(self, name: str) -> Topic:
        """Create a missing topic on first use, with the node's or an internal topic's settings, and return it."""
        if name in INTERNAL:
            return await self.ensure_internal(name)
        try:
            return await self.create(name)
        except TopicExists:
            return self._topics[name]

    def internal_partitions(self, name: str) -> int:
        """Return the number of partitions of a new internal topic."""
        return int(self._numbers[f"{_SETTINGS[name]}.num.partitions"])

    def internal_settings(self, name: str) -> dict[str, str]:
        """Return the reference's settings for a new internal topic."""
        if name not in INTERNAL:
            raise IllegalArgument(f"{ascii(name)} is not an internal topic")
        segment_bytes = str(self._numbers[f"{_SETTINGS[name]}.segment.bytes"])
        if name == CONSUMER_OFFSETS:
            return {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": segment_bytes}
        if name == TRANSACTION_STATE:
            return {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(self._numbers["transaction.state.log.min.isr"]),
                "segment.bytes": segment_bytes,
                "unclean.leader.election.enable": "false",
            }
        return {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(self._numbers["share.coordinator.state.topic.min.isr"]),
            "retention.ms": "-1",
            "segment.bytes": segment_bytes,
        }

    # The loop's view

    def _put(self, topic: Topic) -> None:
        self._topics[topic.name] = topic
        names = self._by_metric_name.setdefault(metric_name(topic.name), [])
        if topic.name not in names:
            names.append(topic.name)
        self._by_number[topic.id.int] = topic

    def _drop(self, topic: Topic) -> None:
        self._topics.pop(topic.name, None)
        self._by_number.pop(topic.id.int, None)
        alike = metric_name(topic.name)
        remaining = [name for name in self._by_metric_name.pop(alike, ()) if name != topic.name]
        if remaining:
            self._by_metric_name[alike] = remaining

    def _change(self, before: Topic | None, after: Topic) -> None:
        self._put(after)
        self._notify(before, after)

    def _notify(self, before: Topic | None, after: Topic | None) -> None:
        for listener in self._listeners:
            listener(before, after)

    # Disk operations, in the pool

    def _create_new(self, planned_topics: Mapping[str, TopicPlan], epoch: int) -> dict[str, KafkalogError]:
        """Create new topics and return the errors by name.

        A topic gets all of its partitions, or nothing of it remains, so that its client may try again.
        """
        before = {key.topic for key in self._store.logs}
        try:
            failures = self._create_partitions([plan.partitions() for plan in planned_topics.values()], epoch)
        except KafkalogError as error:
            failures = dict.fromkeys(planned_topics, error)
        incomplete = failures.keys() - before
        remaining: Mapping[str, KafkalogError] = {}
        try:
            if incomplete:
                remaining = self._store.delete_topics(incomplete, self._check_continue)
        except KafkalogError as error:
            remaining = dict.fromkeys(incomplete, error)
        level = logging.INFO if self._is_stopping else logging.ERROR
        for name, failure in remaining.items():
            _LOG.log(level, "the next start deletes the remains of topic %s: %s", name, failure)
        return failures

    def _create_partitions(self, new: Sequence[NewPartitions], epoch: int) -> dict[str, KafkalogError]:
        """Create partitions with their first leader epoch, and return the errors by topic.

        Writing the epoch here keeps the first append, and all clients behind it, from waiting for the disk.
        """
        return self._store.create_partitions(new, epoch=epoch, between_batches=self._check_continue)

    def _check_continue(self) -> None:
        """Run `between_steps` between the parts of a long change; raise NotController if the node is stopping.

        The next start cleans up after an interrupted change.
        """
        if self._is_stopping:
            raise NotController("the node is stopping")
        self.between_steps()


def make(node: Node) -> Topics:
    """Create the topics of a node from its `store`, `run`, `config` and `known`, a broker's metadata."""
    kind = Topics if node.owner is None else node.owner.topics_class
    return kind(node.store if node.workers is None else node.workers.store_of(node), node.run, node.config, node.known)


def check_name(name: str) -> None:
    """Raise InvalidTopic, with the reference's message, unless a topic may have this name."""
    if not name:
        raise InvalidTopic("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopic(f"Topic name is invalid: '{name}' is not allowed")
    if len(name) > MAX_TOPIC_LENGTH:
        raise InvalidTopic(
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {MAX_TOPIC_LENGTH}"
        )
    try:
        validate_topic(name)
    except InvalidTopic:
        raise InvalidTopic(
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        ) from None


def check_partition_count(partitions: int) -> None:
    """Raise PolicyViolation if one call may not create that many partitions."""
    if partitions > MAX_PARTITIONS_AT_ONCE:
        raise PolicyViolation("Excessively large number of partitions per request.")
