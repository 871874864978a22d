"""EndTxn: commit or abort a transaction. From version 5 on, each one also bumps the producer's epoch (KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.txns.coordinator import Assigned
from kafkalog.server.txns.decisions import ProducerEpoch
from kafkalog.server.txns.states import CLASSIC, EPOCH_BUMPS

if TYPE_CHECKING:
    from kio.schema.end_txn.v5.request import EndTxnRequest

    from kafkalog.server.node.node import Node

_BUMPS: Final = 5
_KNOWS_FENCED: Final = 2
"""First version whose clients know PRODUCER_FENCED."""


async def handle(node: Node, context: RequestContext, request: EndTxnRequest) -> Answer:
    """End the transaction; return once its markers are written to all its partitions."""
    transactional_id: str = request.transactional_id
    node.authorizer.require(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    producer = ProducerEpoch(request.producer_id, request.producer_epoch)
    version = EPOCH_BUMPS if context.api_version >= _BUMPS else CLASSIC
    return _answer(context, await node.transactions.end(transactional_id, producer, request.committed, version))


def refused(node: Node, context: RequestContext, request: object, error: Refused) -> Answer:
    """Return the error without a producer id."""
    return _answer(context, Assigned(ErrorCode(error.code)))


def _answer(context: RequestContext, ended: Assigned) -> Answer:
    error = ended.error
    if error == ErrorCode.PRODUCER_FENCED and context.api_version < _KNOWS_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return {"error_code": error, "producer_id": ended.producer_id, "producer_epoch": ended.producer_epoch}
