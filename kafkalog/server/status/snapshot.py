"""A snapshot of a node for the status page: topics, groups with their lag, the cleaner, the disks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkalog._version import version
from kafkalog.cleaner.stats import CleanerReport
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.status.collected import disks_of, partition_row
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node


class PartitionStatus(NamedTuple):
    """A partition: its offsets, epoch, segments and bytes; `problem` is the reason why it is offline, else ""."""

    partition: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    segments: int
    size_bytes: int
    problem: str = ""


class TopicStatus(NamedTuple):
    """A topic and its partitions."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionStatus, ...]


class LagStatus(NamedTuple):
    """A group's position in a partition; the lag is None if the partition no longer exists."""

    topic: str
    partition: int
    committed_offset: int
    lag: int | None


class GroupStatus(NamedTuple):
    """A group, with ListGroups' names for its state and type."""

    group_id: str
    state: str
    group_type: str
    members: int
    offsets: tuple[LagStatus, ...]


class DiskStatus(NamedTuple):
    """A data directory, and the file system it is on."""

    path: str
    is_online: bool
    total_bytes: int
    free_bytes: int


class Status(NamedTuple):
    """The status of a node. Times are wall-clock ms."""

    cluster_id: str
    node_id: int
    version: str
    listeners: tuple[tuple[str, str], ...]
    started_ms: int
    now_ms: int
    topics: tuple[TopicStatus, ...]
    groups: tuple[GroupStatus, ...]
    cleaner: CleanerReport
    disks: tuple[DiskStatus, ...]


async def status_of(node: Node) -> Status:
    """Return the status of a node. The disks are queried in its pool; clients are served in between."""
    disks = [DiskStatus(*one) for one in await node.run(disks_of, node.store.directories)]
    elsewhere: dict[TopicPartition, PartitionStatus] = {}
    for answer in () if node.workers is None else await node.workers.collected("status"):
        disks += [DiskStatus(*one) for one in answer.values["disks"]]
        elsewhere |= {TopicPartition(*one[:2]): PartitionStatus(*one[1:]) for one in answer.values["partitions"]}
    topics = await _topics(node, elsewhere)
    groups = await _groups(node, _ends(topics))
    listeners = tuple((name, f"{host}:{port}") for name, (host, port) in node.endpoints.items())
    return Status(
        node.cluster_id, node.node_id, version, listeners, node.started_ms, node.clock(), topics, groups,
        node.store.cleaner_report, tuple(disks),
    )  # fmt: skip


async def _topics(node: Node, elsewhere: Mapping[TopicPartition, PartitionStatus]) -> tuple[TopicStatus, ...]:
    topics = []
    turns = CooperativeYield()
    for name in node.topics.names():
        topic = node.topics.get(name)
        if topic is None:  # deleted meanwhile
            continue
        partitions = []
        for index in range(topic.partitions):
            key = TopicPartition(name, index)
            partitions.append(elsewhere.get(key) or PartitionStatus(index, *partition_row(node, key)))
            await turns.row()
        topics.append(TopicStatus(name, str(topic.id), topic.is_internal, tuple(partitions)))
        await turns.row()
    return tuple(topics)


def _ends(topics: Iterable[TopicStatus]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, one.partition): one.high_watermark for topic in topics for one in topic.partitions
    }


async def _groups(node: Node, ends: Mapping[TopicPartition, int]) -> tuple[GroupStatus, ...]:
    groups = []
    turns = CooperativeYield()
    for group_id in sorted(node.groups.groups):
        group = node.groups.groups.get(group_id)
        if group is None:  # deleted meanwhile
            continue
        one = node.groups.overview_of(group)
        offsets = []
        for key, offset in sorted(one.offsets.items()):
            offsets.append(
                LagStatus(key.topic, key.partition, offset, None if key not in ends else max(ends[key] - offset, 0))
            )
            await turns.row()
        groups.append(GroupStatus(one.group_id, one.state, one.group_type, one.members, tuple(offsets)))
        await turns.row()
    return tuple(groups)
