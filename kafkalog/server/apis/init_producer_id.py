"""InitProducerId: assign a producer id and epoch (KIP-98, KIP-360)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.txns.coordinator import Assigned
from kafkalog.server.txns.decisions import ProducerEpoch
from kafkalog.server.txns.producer_ids import ids_of

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

    class _Request(Protocol):
        """The fields of every version; times are in ms."""

        transactional_id: str | None
        transaction_timeout: int


_KNOWS_FENCED: Final = 4
"""First version whose clients know PRODUCER_FENCED."""
_NONE: Final = -1


async def handle(node: Node, context: RequestContext, request: _Request) -> Answer:
    """Return the producer id and epoch, or an error code."""
    found = await _assigned(node, context, request)
    return _answer(context, found.error, found.producer_id, found.producer_epoch)


async def _assigned(node: Node, context: RequestContext, request: _Request) -> Assigned:
    transactional_id: str | None = request.transactional_id
    if transactional_id is None:
        if not _may_be_idempotent(node, context):
            raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    else:
        node.authorizer.require(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    expected = ProducerEpoch(getattr(request, "producer_id", _NONE), getattr(request, "producer_epoch", _NONE))
    if (expected.producer_id == _NONE) != (expected.epoch == _NONE):
        raise Refused(ErrorCode.INVALID_REQUEST)
    if node.quorum.replica_set is not None:
        if transactional_id is None:  # clients may ask any node
            ids = await ids_of(node)
            await ids.ready()
            return Assigned(ErrorCode.NONE, ids.take(), 0)
        if node.leaders_calls:
            raise Refused(ErrorCode.NOT_COORDINATOR)
    known = None if expected.producer_id == _NONE else expected
    return await node.transactions.init_producer_id(transactional_id, request.transaction_timeout, known)


def _may_be_idempotent(node: Node, context: RequestContext) -> bool:
    """Return True if the client has IDEMPOTENT_WRITE or may write to any topic."""
    return node.authorizer.allows_cluster(context, Operation.IDEMPOTENT_WRITE) or node.authorizer.allows_any(
        context, Operation.WRITE, ResourceType.TOPIC
    )


def refused(node: Node, context: RequestContext, request: object, error: Refused) -> Answer:
    """Return the error without a producer id."""
    return _answer(context, error.code, _NONE, _NONE)


def _answer(context: RequestContext, error_code: int, producer_id: int, producer_epoch: int) -> Answer:
    if error_code == ErrorCode.PRODUCER_FENCED and context.api_version < _KNOWS_FENCED:
        error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    return {"error_code": error_code, "producer_id": producer_id, "producer_epoch": producer_epoch}
