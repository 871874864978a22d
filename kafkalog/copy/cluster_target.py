"""Target in a cluster: batches are produced, and the position is the target's end with the copy's marker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafkalog.copy.cluster_client import CREATE_PARTITIONS, CREATE_TOPICS, ClusterClient, check
from kafkalog.copy.cluster_groups import Committed, commit_offsets, read_offsets
from kafkalog.copy.cluster_partition import PartitionCopy
from kafkalog.copy.cluster_source import list_offset
from kafkalog.copy.facts import TargetTopic, TargetTraits
from kafkalog.copy.marker import GROUP, parse_marker
from kafkalog.copy.plan import TopicPlan
from kafkalog.copy.targets import Copied, GroupOffsets, PartitionJob
from kafkalog.errors import ConfigError, InvalidPartitions
from kafkalog.server.client.cluster import read_topic_settings
from kafkalog.server.client.connection import PeerConnection
from kafkalog.server.error_codes import ErrorCode
from kafkalog.types import LATEST_TIMESTAMP, TopicPartition

_DEFAULT: Final = -1
_AT_ONCE: Final = 8
"""Partitions copied at the same time, since each waits for the broker after every few batches."""


class ClusterTarget:
    """Topics of a cluster."""

    def __init__(self, client: ClusterClient) -> None:
        self.traits = TargetTraits(client.name, keeps_log=False, at_once=_AT_ONCE)
        self._client = client

    async def cluster_id(self) -> str | None:
        """Return the id of the cluster."""
        return (await self._client.read([])).cluster_id

    async def existing(self, names: Sequence[str]) -> dict[str, TargetTopic]:
        """Return those of the topics that exist."""
        client = self._client
        found = (await client.read(names)).topics
        settings = await client.any_broker(lambda one: read_topic_settings(one, sorted(found)))
        topics = {}
        for name, topic in found.items():
            keys = [TopicPartition(name, number) for number in range(len(topic.leaders))]
            ends = {key.partition: await list_offset(client, key, LATEST_TIMESTAMP, 0) for key in keys}
            markers = {key: parse_marker(one) for key, one in (await read_offsets(client, GROUP, keys)).items()}
            copied = {key.partition: one.source_offset for key, one in markers.items() if one is not None}
            topics[name] = TargetTopic(settings.get(name, {}), ends, copied)
        return topics

    async def check(self, plan: TopicPlan) -> None:
        """Ask the cluster to validate the creation of the topic, or of its missing partitions.

        Unauthorized, ConfigError and others of the broker.
        """
        if plan.existing is None:
            await self._create(plan, validate_only=True)
        elif len(plan.existing.ends) < plan.topic.partition_count:
            await self._add_partitions(plan, validate_only=True)

    async def create(self, plan: TopicPlan) -> None:
        """Create the topic with the source's settings and the cluster's replication factor, if it is missing.

        Partitions that were added in the source are added to an existing topic.
        """
        if plan.existing is None:
            await self._create(plan, validate_only=False)
        elif len(plan.existing.ends) < plan.topic.partition_count:
            await self._add_partitions(plan, validate_only=False)

    async def _create(self, plan: TopicPlan, *, validate_only: bool) -> None:
        name = plan.topic.name
        configs = [{"name": one, "value": value} for one, value in plan.settings.items()]
        topic = {
            "name": name, "num_partitions": plan.topic.partition_count, "replication_factor": _DEFAULT,
            "assignments": [], "configs": configs,
        }  # fmt: skip
        tree = {"topics": [topic], "timeout": self._client.settings.request_ms, "validate_only": validate_only}

        async def call(connection: PeerConnection) -> None:
            (one,) = (await connection.request(CREATE_TOPICS, tree)).topics
            if one.error_code == ErrorCode.INVALID_CONFIG:
                raise ConfigError(
                    f"{self._client.name} does not create topic {name}: {one.error_message}",
                    hint="create the topic there with other settings, then copy",
                )
            if one.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:  # a request whose answer was lost
                check(one.error_code, f"{self._client.name} does not create topic {name}", one.error_message)

        await self._client.any_broker(call)
        if not validate_only:
            found = (await self._client.read([name])).topics.get(name)
            if found is not None and len(found.leaders) < plan.topic.partition_count:
                raise InvalidPartitions(f"topic {name} has {len(found.leaders)} partitions in {self._client.name}")

    async def _add_partitions(self, plan: TopicPlan, *, validate_only: bool) -> None:
        name, count = plan.topic.name, plan.topic.partition_count
        topic = {"name": name, "count": count, "assignments": None}
        tree = {"topics": [topic], "timeout": self._client.settings.request_ms, "validate_only": validate_only}

        async def call(connection: PeerConnection) -> None:
            (one,) = (await connection.request(CREATE_PARTITIONS, tree)).results
            if one.error_code == ErrorCode.INVALID_PARTITIONS:  # a request whose answer was lost has added them
                found = (await self._client.try_read([name])).topics.get(name)
                if found is not None and len(found.leaders) == count:
                    return
            check(one.error_code, f"{self._client.name} adds no partitions to topic {name}", one.error_message)

        await self._client.any_broker(call)

    async def copy(self, job: PartitionJob) -> Copied:
        """Produce the records that the partition lacks. Errors as for `Source.chunks` and `PartitionProducer`."""
        return await PartitionCopy(self._client, job).run()

    async def commit(self, offsets: GroupOffsets) -> dict[str, str]:
        """Commit groups' offsets unless these are ahead already; groups with members are not changed."""
        left = {}
        for group, wanted in offsets.items():
            known = await read_offsets(self._client, group, wanted)
            new = {
                key: Committed(offset) for key, offset in wanted.items()
                if key not in known or known[key].offset < offset
            }
            if new and not await commit_offsets(self._client, group, new):
                left[group] = "it has active members in the target"
        return left

    async def committed(self, group: str, keys: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets that a group has in the target."""
        return {key: one.offset for key, one in (await read_offsets(self._client, group, keys)).items()}

    async def finish(self) -> None:
        """Do nothing: records are visible once they are acknowledged."""

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
