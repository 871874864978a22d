"""DescribeTransactions: the state of given transactional ids (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import in_turns
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.txns.records import by_topic

if TYPE_CHECKING:
    from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: DescribeTransactionsRequest) -> Answer:
    """Return the transaction or an error for each id, without the topics that the client may not see."""
    states = [_describe(node, context, one) async for one in in_turns(request.transactional_ids)]
    return {"transaction_states": states}


def _describe(node: Node, context: RequestContext, transactional_id: str) -> dict[str, object]:
    allows = node.authorizer.allows
    if not allows(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return _unknown(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    error, found = node.transactions.describe(transactional_id)
    if found is None or error != ErrorCode.NONE:
        return _unknown(transactional_id, error)
    topics = [
        {"topic": topic, "partitions": partitions}
        for topic, partitions in by_topic(found.partitions).items()
        if allows(context, Operation.DESCRIBE, ResourceType.TOPIC, topic)
    ]
    return {
        "error_code": error, "transactional_id": transactional_id, "transaction_state": found.state.title,
        "transaction_timeout": found.timeout_ms, "transaction_start_time": found.start_ms,
        "producer_id": found.producer_id, "producer_epoch": found.producer_epoch, "topics": topics,
    }  # fmt: skip


def _unknown(transactional_id: str, error_code: int) -> dict[str, object]:
    return {
        "error_code": error_code, "transactional_id": transactional_id, "transaction_state": "",
        "transaction_timeout": 0, "transaction_start_time": 0, "producer_id": 0, "producer_epoch": 0, "topics": (),
    }  # fmt: skip


def refused(node: Node, context: RequestContext, request: DescribeTransactionsRequest, error: Refused) -> Answer:
    """Return the same error for every id."""
    states = [_unknown(transactional_id, error.code) for transactional_id in request.transactional_ids]
    return {"transaction_states": states}
