"""ListConfigResources (KIP-1142): the resources of the requested types that have settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation
from kafkalog.server.settings.kinds import BROKER, BROKER_LOGGER, CLIENT_METRICS, KEPT, KINDS, TOPIC

if TYPE_CHECKING:
    from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest

    from kafkalog.server.node.node import Node

_FIRST_WITH_TYPES: Final = 1


async def handle(node: Node, context: RequestContext, request: ListConfigResourcesRequest) -> Answer:
    """Return topics, the node, and the groups and client metrics with settings; version 0 asks for the last alone."""
    node.authorizer.require_cluster(context, Operation.DESCRIBE_CONFIGS)
    requested = frozenset({CLIENT_METRICS})
    if context.api_version >= _FIRST_WITH_TYPES:
        requested = frozenset(request.resource_types) or KINDS
    if requested - KINDS:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION)
    rows = [{"resource_name": name, "resource_type": kind} for kind, name in _resources(node) if kind in requested]
    return {"error_code": ErrorCode.NONE, "config_resources": rows}


def _resources(node: Node) -> Iterator[tuple[int, str]]:
    yield BROKER_LOGGER, str(node.node_id)
    yield BROKER, str(node.node_id)
    for name in node.topics.names():
        yield TOPIC, name
    for kind in KEPT:
        for name in node.dynamic.names_of(kind):
            yield kind, name
