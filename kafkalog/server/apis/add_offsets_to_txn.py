"""AddOffsetsToTxn: announce that a transaction will commit offsets of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.node.topics import CONSUMER_OFFSETS
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.txns.decisions import ProducerEpoch
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest

    from kafkalog.server.node.node import Node

_KNOWS_FENCED: Final = 2
"""First version whose clients know PRODUCER_FENCED."""


async def handle(node: Node, context: RequestContext, request: AddOffsetsToTxnRequest) -> Answer:
    """Add the group's partition of `__consumer_offsets` to the transaction; return NONE or the error code."""
    node.authorizer.require(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    node.authorizer.require(context, Operation.READ, ResourceType.GROUP, request.group_id)
    if node.topics.get(CONSUMER_OFFSETS) is None:
        await node.topics.ensure_internal(CONSUMER_OFFSETS)
    partition = TopicPartition(CONSUMER_OFFSETS, node.groups.partition_for(request.group_id))
    producer = ProducerEpoch(request.producer_id, request.producer_epoch)
    error = node.transactions.add_partitions(request.transactional_id, producer, [partition])
    return _answer(context, error or await node.transactions.settled(request.transactional_id))


def refused(node: Node, context: RequestContext, request: object, error: Refused) -> Answer:
    """Return the error."""
    return _answer(context, error.code)


def _answer(context: RequestContext, error_code: int) -> Answer:
    if error_code == ErrorCode.PRODUCER_FENCED and context.api_version < _KNOWS_FENCED:
        error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    return {"error_code": error_code}
