"""TxnOffsetCommit: commit a group's offsets as part of a transaction; from version 6 on by topic ids (KIP-1319)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.groups.topic_names import topic_of
from kafkalog.server.groups.values import CommittedOffset
from kafkalog.server.node.topics import CONSUMER_OFFSETS
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.txns.decisions import ProducerEpoch
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic

    from kafkalog.server.node.node import Node

_NO_GENERATION: Final = -1
_NO_EPOCH: Final = -1
_FIRST_WITH_IDS: Final = 6
Place = tuple[str, int]
Codes = Mapping[Place, int]


async def handle(node: Node, context: RequestContext, request: TxnOffsetCommitRequest) -> Answer:
    """Return an error code for each partition. An unauthorized or missing partition does not affect the others."""
    allows = node.authorizer.allows
    node.authorizer.require(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    node.authorizer.require(context, Operation.READ, ResourceType.GROUP, request.group_id)
    codes: dict[Place, int] = {}
    offsets: dict[Place, CommittedOffset] = {}
    refusals: dict[int, int] = {}  # by the topic's index in the request
    topics = [topic_of(node, one) for one in request.topics]
    by_id = context.api_version >= _FIRST_WITH_IDS
    turns = CooperativeYield()
    for number, (row, (name, topic)) in enumerate(zip(request.topics, topics, strict=True)):
        await turns.row()
        if name is None:
            refusals[number] = ErrorCode.UNKNOWN_TOPIC_ID
        elif not allows(context, Operation.READ, ResourceType.TOPIC, name):
            refusals[number] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None:
            refusals[number] = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            for one in row.partitions:
                await turns.row()
                if 0 <= one.partition_index < topic.partitions:
                    offsets[name, one.partition_index] = CommittedOffset(
                        one.committed_offset, getattr(one, "committed_leader_epoch", _NO_EPOCH),
                        one.committed_metadata or "", node.clock(), None, topic.id,
                    )  # fmt: skip
    if offsets:
        codes.update(await _commit(node, context, request, offsets))
    rows = []
    for number, (row, (name, _)) in enumerate(zip(request.topics, topics, strict=True)):
        missing = int(refusals.get(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        rows.append(_row(row, [codes.get((name or "", one.partition_index), missing) for one in row.partitions]))
    return {"topics": rows}


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

    if not request.group_id:
        return dict.fromkeys(offsets, int(ErrorCode.INVALID_GROUP_ID))
    error = verify() or await node.transactions.settled(request.transactional_id)
    if error:
        return dict.fromkeys(offsets, error)
    return await node.groups.commits.commit_in_transaction(
        request.group_id, request.transactional_id, producer.producer_id, producer.epoch, offsets,
        getattr(request, "member_id", ""), getattr(request, "generation_id", _NO_GENERATION),
        getattr(request, "group_instance_id", None), verify, knows_epochs=context.api_version >= _FIRST_WITH_IDS,
    )  # fmt: skip


def refused(node: Node, context: RequestContext, request: TxnOffsetCommitRequest, error: Refused) -> Answer:
    """Return the same error for every partition."""
    rows = [_row(row, [error.code] * len(row.partitions)) for row in request.topics]
    return {"topics": rows}


def _row(row: TxnOffsetCommitRequestTopic, codes: list[int]) -> dict[str, object]:
    partitions = [
        {"partition_index": one.partition_index, "error_code": code}
        for one, code in zip(row.partitions, codes, strict=True)
    ]
    return {"name": getattr(row, "name", None), "topic_id": getattr(row, "topic_id", None), "partitions": partitions}
