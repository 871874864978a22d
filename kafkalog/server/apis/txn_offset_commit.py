"""TxnOffsetCommit: commit a group's offsets as part of a transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.values import CommittedOffset
from kafkalog.server.node.topics import CONSUMER_OFFSETS
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.txns.decisions import ProducerEpoch
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest

    from kafkalog.server.node.node import Node

_NO_GENERATION: Final = -1
_NO_EPOCH: Final = -1
Place = tuple[str, int]
Codes = Mapping[Place, int]


async def handle(node: Node, context: RequestContext, request: TxnOffsetCommitRequest) -> Answer:
    """Return an error code for each partition. An unauthorized or missing partition does not affect the others."""
    allows = node.authorizer.allows
    if not allows(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return refused(node, context, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None)
    if not allows(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return refused(node, context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
    codes: dict[Place, int] = {}
    offsets: dict[Place, CommittedOffset] = {}
    turns = CooperativeYield()
    for topic in request.topics:
        await turns.row()
        may_read = allows(context, Operation.READ, ResourceType.TOPIC, topic.name)
        known = node.topics.get(topic.name)
        for one in topic.partitions:
            await turns.row()
            place = (topic.name, one.partition_index)
            if not may_read:
                codes[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif known is None or not 0 <= one.partition_index < known.partitions:
                codes[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                offsets[place] = CommittedOffset(
                    one.committed_offset, getattr(one, "committed_leader_epoch", _NO_EPOCH),
                    one.committed_metadata or "", node.clock(), None, known.id,
                )  # fmt: skip
    if offsets:
        codes.update(await _commit(node, context, request, offsets))
    return _answer(context, request, codes)


async def _commit(
    node: Node, context: RequestContext, request: TxnOffsetCommitRequest, offsets: dict[Place, CommittedOffset]
) -> Codes:
    await node.groups.loaded()
    if node.topics.get(CONSUMER_OFFSETS) is None:
        await node.topics.ensure_internal(CONSUMER_OFFSETS)
    producer = ProducerEpoch(request.producer_id, request.producer_epoch)
    partition = TopicPartition(CONSUMER_OFFSETS, node.groups.partition_for(request.group_id))

    def verify() -> int:
        return node.transactions.verify_commit(request.transactional_id, producer, partition, context.api_version)

    error = verify() or await node.transactions.settled(request.transactional_id)
    if error:
        return dict.fromkeys(offsets, error)
    return await node.groups.commit_offsets_in_transaction(
        request.group_id, request.transactional_id, producer.producer_id, producer.epoch, offsets,
        getattr(request, "member_id", ""), getattr(request, "generation_id", _NO_GENERATION),
        getattr(request, "group_instance_id", None), verify,
    )  # fmt: skip


def refused(
    node: Node, context: RequestContext, request: TxnOffsetCommitRequest, error_code: int, message: str | None
) -> Answer:
    """Return the same error for every partition."""
    places = [(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions]
    return _answer(context, request, dict.fromkeys(places, error_code))


def _answer(context: RequestContext, request: TxnOffsetCommitRequest, codes: Codes) -> Answer:
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": one.partition_index, "error_code": codes[topic.name, one.partition_index]}
                for one in topic.partitions
            ],
        }
        for topic in request.topics
    ]
    return {"throttle_time": context.throttle_ms, "topics": topics}
