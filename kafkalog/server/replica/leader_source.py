"""Requests of a follower to a peer over one connection: records, and log start and end offsets.

As a replica it sees logs up to their end. As a consumer (`replica_id` -1), for example a mirror, it sees them up to the
high watermark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from uuid import UUID

from kafkalog.server.client.connection import PeerConnection
from kafkalog.server.client.errors import PeerMisbehaved
from kafkalog.server.replica.fetch_session import FINAL, NO_SESSION
from kafkalog.server.replica.following import FetchLimits, PartitionAnswer, Row
from kafkalog.server.replica.following_session import SessionRequest
from kafkalog.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.wire.writer import Tree

V = TypeVar("V")
FETCH: Final = 1
LIST_OFFSETS: Final = 2
CONSUMER: Final = -1
_LAST_WITH_NAMES: Final = 12


class Answers(NamedTuple):
    """The answer to a fetch; it has rows if `error_code` is 0."""

    error_code: int
    session_id: int
    throttle_ms: int
    rows: list[tuple[TopicPartition, PartitionAnswer]]


class Bounds(NamedTuple):
    """Start and end offset of a log, or the error."""

    error_code: int
    start_offset: int
    end_offset: int


class LeaderSource:
    """A leader, or any broker that leads the requested partitions.

    All calls raise the errors of `PeerConnection.request`.
    """

    def __init__(self, connection: PeerConnection, replica_id: int, limits: FetchLimits) -> None:
        self.connection = connection
        self._replica_id = replica_id
        self._limits = limits

    async def fetch(self, ask: SessionRequest, ids: Mapping[str, UUID | None]) -> Answers:
        """Fetch once. `ids` has every topic of the session; topics are requested by id if all have one."""
        newest = None if all(ids.values()) else _LAST_WITH_NAMES
        version = self.connection.version_of(FETCH, newest)
        uses_ids = version > _LAST_WITH_NAMES
        tree = fetch_tree(ask, ids, self._replica_id, self._limits)
        answer = await self.connection.request(FETCH, tree, version=version, timeout_ms=self._limits.timeout_ms)
        names: Mapping[UUID | None, str] = {topic_id: name for name, topic_id in ids.items()} if uses_ids else {}
        rows = list(_rows(answer, names, uses_ids, self.connection.peer))
        code, session_id = getattr(answer, "error_code", 0), getattr(answer, "session_id", 0)
        return Answers(code, session_id, answer.throttle_time, rows)

    async def bounds(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, Bounds]:
        """Return the start and end offset of each partition. `epochs` holds the leader epoch of each, -1 for none."""
        found = []
        for timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
            tree = {"replica_id": self._replica_id, "isolation_level": 0, "timeout": self._limits.timeout_ms}
            answer = await self.connection.request(
                LIST_OFFSETS, {**tree, "topics": _offset_topics(epochs, timestamp)}, timeout_ms=self._limits.timeout_ms
            )
            found.append({
                TopicPartition(topic.name, one.partition_index): one
                for topic in answer.topics for one in topic.partitions
            })  # fmt: skip
        starts, ends = found
        if starts.keys() != epochs.keys() or ends.keys() != epochs.keys():
            raise PeerMisbehaved("its offsets are not those of the requested partitions", peer=self.connection.peer)
        return {
            key: Bounds(starts[key].error_code or ends[key].error_code, starts[key].offset, ends[key].offset)
            for key in epochs
        }

    async def leave(self) -> None:
        """Have a leader in the replica set remove this replica from the in-sync replicas, because its node stops."""
        await self.fetch(SessionRequest(NO_SESSION, FINAL, {}, ()), {})

    async def close(self) -> None:
        """Close the connection."""
        await self.connection.close()


def by_topic(rows: Mapping[TopicPartition, V]) -> dict[str, list[tuple[int, V]]]:
    """Return the (partition, value) pairs of each topic, in order."""
    found: dict[str, list[tuple[int, V]]] = {}
    for key, value in rows.items():
        found.setdefault(key.topic, []).append((key.partition, value))
    return found


def fetch_tree(
    ask: SessionRequest, ids: Mapping[str, UUID | None], replica_id: int, limits: FetchLimits
) -> Tree:
    """Return a fetch request with the fields of all versions; the writer picks those of its version."""
    forgotten = by_topic(dict.fromkeys(ask.forgotten))
    return {
        "replica_id": replica_id,
        "replica_state": {"replica_id": replica_id, "replica_epoch": -1},
        "max_wait": limits.max_wait_ms,
        "min_bytes": limits.min_bytes,
        "max_bytes": limits.max_bytes,
        "isolation_level": 0,
        "session_id": ask.session_id,
        "session_epoch": ask.epoch,
        "rack_id": "",
        "topics": [
            {"topic": name, "topic_id": ids.get(name), "partitions": [_partition(*one) for one in partitions]}
            for name, partitions in by_topic(ask.rows).items()
        ],
        "forgotten_topics_data": [
            {"topic": name, "topic_id": ids.get(name), "partitions": [index for index, _ in partitions]}
            for name, partitions in forgotten.items()
        ],
    }


def _partition(index: int, row: Row) -> dict[str, int]:
    return {
        "partition": index,
        "current_leader_epoch": row.leader_epoch,
        "fetch_offset": row.fetch_offset,
        "last_fetched_epoch": row.last_fetched_epoch,
        "log_start_offset": row.log_start_offset,
        "partition_max_bytes": row.max_bytes,
    }


def _offset_topics(epochs: Mapping[TopicPartition, int], timestamp: int) -> list[Tree]:
    return [
        {
            "name": name,
            "partitions": [
                {"partition_index": index, "current_leader_epoch": epoch, "timestamp": timestamp}
                for index, epoch in partitions
            ],
        }
        for name, partitions in by_topic(epochs).items()
    ]


def _rows(
    answer: Any, names: Mapping[UUID | None, str], uses_ids: bool, peer: str
) -> Iterator[tuple[TopicPartition, PartitionAnswer]]:
    for topic in answer.responses:
        name = names.get(topic.topic_id) if uses_ids else topic.topic
        if name is None:
            raise PeerMisbehaved(f"it answers for topic {topic.topic_id}, which was not requested", peer=peer)
        for one in topic.partitions:
            yield TopicPartition(name, one.partition_index), _answered(one)


def _answered(one: Any) -> PartitionAnswer:
    diverging = getattr(one, "diverging_epoch", None)
    where = None if diverging is None or diverging.end_offset < 0 else (diverging.epoch, diverging.end_offset)
    return PartitionAnswer(one.error_code, one.high_watermark, getattr(one, "log_start_offset", -1), one.records, where)
