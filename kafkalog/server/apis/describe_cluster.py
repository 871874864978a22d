"""DescribeCluster: the nodes, and the operations the client may perform on the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.node.addresses import addresses, rack_of
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import CLUSTER_NAME, NOT_ASKED, Operation, ResourceType

if TYPE_CHECKING:
    from kio.schema.describe_cluster.v2.request import DescribeClusterRequest

    from kafkalog.server.node.node import Node

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


async def handle(node: Node, context: RequestContext, request: DescribeClusterRequest) -> Answer:
    """Return the nodes' addresses for the connection's listener. Controllers have no endpoint."""
    endpoint_type = getattr(request, "endpoint_type", _BROKERS)
    if endpoint_type == _CONTROLLERS:
        text = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        raise Refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, text)
    if endpoint_type != _BROKERS:
        text = f"Unsupported endpoint type {endpoint_type}"
        raise Refused(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, text)
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = 0
        if node.authorizer.allows_cluster(context, Operation.DESCRIBE):
            operations = node.authorizer.allowed_operations(context, ResourceType.CLUSTER, CLUSTER_NAME)
    brokers = tuple(
        {"broker_id": node_id, "host": host, "port": port, "rack": rack_of(node, node_id), "is_fenced": False}
        for node_id, host, port in addresses(node, context.connection.listener)
    )
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "endpoint_type": _BROKERS,
        "cluster_id": node.cluster_id,
        "controller_id": node.quorum.leader,
        "brokers": brokers,
        "cluster_authorized_operations": operations,
    }


def refused(node: Node, context: RequestContext, request: object, error: Refused) -> dict[str, object]:
    """Return the error, without a cluster and its nodes."""
    return {
        "error_code": error.code,
        "error_message": error.message,
        "endpoint_type": _BROKERS,
        "cluster_id": "",
        "controller_id": -1,
        "brokers": (),
    }
