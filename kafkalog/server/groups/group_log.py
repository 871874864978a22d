"""Where the coordinator's records go: batches of `__consumer_offsets`, each group's in its own partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.format import CompressionType
from kafkalog.server.error_codes import ErrorCode, code_of
from kafkalog.server.groups.records import Record
from kafkalog.types import TopicPartition
from kafkalog.util.java_hash import partition_of

if TYPE_CHECKING:
    from kafkalog.server.node import Node

OFFSETS_TOPIC: Final = "__consumer_offsets"
MOST_RECORDS: Final = 1000
"""In one batch, of changes that need not be made at once."""
_OVERHEAD_BYTES: Final = 64
"""Of a batch at the most, and of a record."""

_AVAILABLE_LATER: Final = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
})  # fmt: skip
_NOT_HERE: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
_TOO_LARGE: Final = frozenset({
    ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE,
})  # fmt: skip


class GroupLog:
    """Appends records for groups. All of it on the loop: the batches are small."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._codec = CompressionType(node.config["offsets.topic.compression.codec"])

    @property
    def partitions(self) -> int:
        """How many partitions the topic has, or will have."""
        topic = self._node.topics.get(OFFSETS_TOPIC)
        return int(self._node.config["offsets.topic.num.partitions"] if topic is None else topic.partitions)

    def partition_for(self, group_id: str) -> int:
        """The partition that has a group's records."""
        return partition_of(group_id, self.partitions)

    def most_bytes(self, group_id: str) -> int:
        """How large a batch of a group's records may be; the topic has to be there. UnknownTopicOrPartition."""
        log = self._node.replicas.partition(OFFSETS_TOPIC, self.partition_for(group_id)).log
        return int(log.config.max_message_bytes)

    def append(self, group_id: str, records: Sequence[Record]) -> int:
        """Writes records of a group in one batch and returns the offset of the last one. Errors as for an append."""
        return self._append(group_id, self._builder(), records)

    def append_many(self, group_id: str, records: Sequence[Record]) -> None:
        """Writes any number of records of a group, in as many batches as it takes."""
        for batch in in_batches(records, self.most_bytes(group_id) if records else 0):
            self.append(group_id, batch)

    def append_in_transaction(
        self, group_id: str, records: Sequence[Record], producer_id: int, producer_epoch: int
    ) -> int:
        """Writes records that count when the producer's transaction is committed.

        The sequence is 0 each time: that is how a broker's coordinator writes, and nobody looks at it.
        """
        builder = self._builder(
            producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=0, is_transactional=True
        )
        return self._append(group_id, builder, records, producer=(producer_id, producer_epoch))

    async def settled(self, group_id: str) -> int:
        """0 once what was written of a group is replicated, which it is at once on a node alone; else the code for the
        client, which asks again."""
        place = TopicPartition(OFFSETS_TOPIC, self.partition_for(group_id))
        code: int = await self._node.replicas.settled([place])
        return told_code(code)

    def is_alone(self, group_id: str) -> bool:
        """Whether what is written of a group is replicated with that."""
        return bool(self._node.replicas.partition(OFFSETS_TOPIC, self.partition_for(group_id)).is_alone)

    def _builder(self, **producer: Any) -> RecordsBuilder:
        return RecordsBuilder(compression=self._codec, **producer)

    def _append(
        self,
        group_id: str,
        builder: RecordsBuilder,
        records: Sequence[Record],
        producer: tuple[int, int] | None = None,
    ) -> int:
        now_ms = self._node.clock()
        for key, value in records:
            builder.append(now_ms, key, value)
        place = TopicPartition(OFFSETS_TOPIC, self.partition_for(group_id))
        replicas = self._node.replicas
        if producer is None:
            return int(replicas.append_now(place, builder.build(), "coordinator"))
        producer_id, epoch = producer
        guard = replicas.partition(*place).log.maybe_start_verification(producer_id, 0, epoch, False)
        return int(replicas.append_now(place, builder.build(), "coordinator", guard=guard))


def in_batches(records: Sequence[Record], most_bytes: int) -> Iterator[list[Record]]:
    """The records in batches of a thousand at the most that a log takes which takes `most_bytes`, or of one record."""
    batch: list[Record] = []
    left = 0
    for one in records:
        size = _OVERHEAD_BYTES + len(one.key) + len(one.value or b"")
        if batch and (size > left or len(batch) == MOST_RECORDS):
            yield batch
            batch = []
        if not batch:
            left = most_bytes - _OVERHEAD_BYTES
        left -= size
        batch.append(one)
    if batch:
        yield batch


def group_error_code(error: Exception) -> int:
    """What a member is told when the group's record could not be written."""
    return told_code(code_of(error))


def told_code(code: int) -> int:
    """The same for an error code of the append."""
    if code in _AVAILABLE_LATER:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code in _NOT_HERE:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.UNKNOWN_SERVER_ERROR if code in _TOO_LARGE else code


def commit_error_code(error: Exception) -> int:
    """What a client is told when its offsets could not be written."""
    if code_of(error) in _TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return group_error_code(error)
