"""ListTransactions: the transactional ids and their states, filtered (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.patterns import matching_names
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.txns.states import BY_TITLE
from kafkalog.util.safe_pattern import PatternError

if TYPE_CHECKING:
    from kio.schema.list_transactions.v2.request import ListTransactionsRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: ListTransactionsRequest) -> Answer:
    """Return the matching transactions that the client may see, and the unknown state names in the filter."""
    duration_ms: int = getattr(request, "duration_filter", -1)
    found = node.transactions.transactions(
        set(request.state_filters), set(request.producer_id_filters), duration_ms
    )
    if found is None:
        if node.quorum.leads:
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        found = []  # administrators ask every node, and only the leader has transactions
    pattern: str | None = getattr(request, "transactional_id_pattern", None)
    if pattern:
        try:
            names = await matching_names(node, pattern, [one.transactional_id for one in found])
        except PatternError:
            raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION) from None
        found = [one for one in found if one.transactional_id in names]
    allows = node.authorizer.allows
    states = [
        {
            "transactional_id": one.transactional_id, "producer_id": one.producer_id,
            "transaction_state": one.state.title,
        }
        for one in found
        if allows(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, one.transactional_id)
    ]  # fmt: skip
    unknown = [one for one in request.state_filters if one not in BY_TITLE]
    return {"error_code": ErrorCode.NONE, "unknown_state_filters": unknown, "transaction_states": states}
