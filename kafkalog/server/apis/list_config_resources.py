"""ListConfigResources (KIP-1142): whatever has settings of its own, by the types that were asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkalog.server.context import Answer, RequestContext
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.security.acls import Operation

if TYPE_CHECKING:
    from kafkalog.server.node import Node

_TOPIC: Final = 2
_BROKER: Final = 4
_BROKER_LOGGER: Final = 8
_CLIENT_METRICS: Final = 16
_GROUP: Final = 32
_TYPES: Final = frozenset({_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP})
_FIRST_WITH_TYPES: Final = 1


async def handle(node: Node, context: RequestContext, request: Any) -> Answer:
    """Topics and the node; no client metrics, which is all that version 0 asks for, and no groups have settings."""
    if not node.authorizer.allows_cluster(context, Operation.DESCRIBE_CONFIGS):
        return refused(node, context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    wanted = frozenset({_CLIENT_METRICS})
    if context.api_version >= _FIRST_WITH_TYPES:
        wanted = frozenset(request.resource_types) or _TYPES
    if wanted - _TYPES:
        return refused(node, context, request, ErrorCode.UNSUPPORTED_VERSION, None)
    rows = [{"resource_name": name, "resource_type": kind} for kind, name in _resources(node) if kind in wanted]
    return {"throttle_time": context.throttle_ms, "error_code": ErrorCode.NONE, "config_resources": rows}


def _resources(node: Node) -> Iterator[tuple[int, str]]:
    yield _BROKER_LOGGER, str(node.node_id)
    yield _BROKER, str(node.node_id)
    for name in node.topics.names():
        yield _TOPIC, name


def refused(node: Node, context: RequestContext, request: Any, error_code: int, message: str | None) -> Answer:
    """The error, and nothing else."""
    return {"throttle_time": context.throttle_ms, "error_code": error_code, "config_resources": ()}
