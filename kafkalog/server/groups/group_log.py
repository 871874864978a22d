"""The coordinator's log: batches of records in `__consumer_offsets`, where each group maps to one partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kafkalog._core.batch.encode import encode_ready
from kafkalog._core.batch.ready_batch import ReadyBatch
from kafkalog.errors import NotLeaderOrFollower
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.format import CompressionType
from kafkalog.server.error_codes import ErrorCode, code_of
from kafkalog.server.groups.records import Record
from kafkalog.types import TopicPartition
from kafkalog.util.java_hash import partition_of

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.storage.producer_state import VerificationGuard

OFFSETS_TOPIC: Final = "__consumer_offsets"
MAX_RECORDS: Final = 1000
"""Limit of records in a batch, for changes that need not be atomic."""
_OVERHEAD_BYTES: Final = 64
"""Upper bound of the overhead of a batch, and of that of a record."""

_AVAILABLE_LATER: Final = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
})  # fmt: skip
_NOT_LED_HERE: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
_TOO_LARGE: Final = frozenset({
    ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE,
})  # fmt: skip


class GroupLog:
    """Appends records of groups. Appends run on the event loop, since the batches are small.

    Once it `is_closed`, with its coordinator, nothing is appended: a request that waited meanwhile knows only what the
    groups were then, and in a replica set this node may lead again by now, with another coordinator.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._codec = CompressionType(node.config["offsets.topic.compression.codec"])
        self.is_closed = False

    @property
    def partitions(self) -> int:
        """Number of partitions of the topic, or the configured number before it exists."""
        topic = self._node.topics.get(OFFSETS_TOPIC)
        return int(self._node.config["offsets.topic.num.partitions"] if topic is None else topic.partitions)

    def partition_for(self, group_id: str) -> int:
        """Return the partition of a group's records."""
        return partition_of(group_id, self.partitions)

    def most_bytes(self, group_id: str) -> int:
        """Return the maximum size of a batch of a group's records. UnknownTopicOrPartition if the topic is missing."""
        log = self._node.replicas.partition(OFFSETS_TOPIC, self.partition_for(group_id)).log
        return int(log.config.max_message_bytes)

    def append(self, group_id: str, records: Sequence[Record]) -> int:
        """Append records of a group as one batch and return the offset of the last one. Raises the append's errors."""
        batch: ReadyBatch | bytearray | None = None
        if self._codec == CompressionType.NONE:
            batch = encode_ready(list(records), timestamp=self._node.clock())
        if batch is None:
            batch = self._fill(RecordsBuilder(compression=self._codec), records)
        return self._append(group_id, batch)

    def append_many(self, group_id: str, records: Sequence[Record]) -> None:
        """Append any number of records of a group, in as many batches as needed."""
        for batch in in_batches(records, self.most_bytes(group_id) if records else 0):
            self.append(group_id, batch)

    def append_in_transaction(
        self, group_id: str, records: Sequence[Record], producer_id: int, producer_epoch: int
    ) -> int:
        """Append records as part of the producer's transaction and return the offset of the last one.

        The base sequence is always 0, as a broker's coordinator writes it; it is not checked.
        """
        builder = RecordsBuilder(
            compression=self._codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        log = self._node.replicas.partition(*self._place(group_id)).log
        guard = log.maybe_start_verification(producer_id, 0, producer_epoch, False)
        return self._append(group_id, self._fill(builder, records), guard)

    async def settled(self, group_id: str) -> int:
        """Wait until the group's records are replicated. Return 0, or the error code for the client, which retries.

        A single node does not wait.
        """
        place = self._place(group_id)
        code: int = await self._node.replicas.settled([place])
        return client_code(code)

    def is_alone(self, group_id: str) -> bool:
        """Return True if this node leads the group's partition and has its only copy."""
        return bool(self._node.replicas.partition(OFFSETS_TOPIC, self.partition_for(group_id)).is_alone)

    def _append(self, group_id: str, batch: ReadyBatch | bytearray, guard: VerificationGuard | None = None) -> int:
        if self.is_closed:
            raise NotLeaderOrFollower("the coordinator of the group has stopped")
        return int(self._node.replicas.append_now(self._place(group_id), batch, "coordinator", guard=guard))

    def _place(self, group_id: str) -> TopicPartition:
        return TopicPartition(OFFSETS_TOPIC, self.partition_for(group_id))

    def _fill(self, builder: RecordsBuilder, records: Sequence[Record]) -> bytearray:
        now_ms = self._node.clock()
        for key, value in records:
            builder.append(now_ms, key, value)
        return builder.build()


def in_batches(records: Sequence[Record], most_bytes: int) -> Iterator[list[Record]]:
    """Yield the records in batches of at most `MAX_RECORDS` records and `most_bytes` bytes.

    A record that exceeds the bytes is a batch by itself.
    """
    batch: list[Record] = []
    left = 0
    for one in records:
        size = _OVERHEAD_BYTES + len(one.key) + len(one.value or b"")
        if batch and (size > left or len(batch) == MAX_RECORDS):
            yield batch
            batch = []
        if not batch:
            left = most_bytes - _OVERHEAD_BYTES
        left -= size
        batch.append(one)
    if batch:
        yield batch


def group_error_code(error: Exception) -> int:
    """Return the error code for a member whose group's record could not be written."""
    return client_code(code_of(error))


def client_code(code: int) -> int:
    """Return the error code for a member from the error code of the append."""
    if code in _AVAILABLE_LATER:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code in _NOT_LED_HERE:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.UNKNOWN_SERVER_ERROR if code in _TOO_LARGE else code


def commit_error_code(error: Exception) -> int:
    """Return the error code for a client whose offsets could not be written."""
    if code_of(error) in _TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return group_error_code(error)
