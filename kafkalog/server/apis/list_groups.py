"""ListGroups (KIP-518, KIP-848): the node's groups, optionally filtered by state and type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from kio.schema.list_groups.v5.request import ListGroupsRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: ListGroupsRequest) -> Answer:
    """Return the matching groups that the client may see."""
    is_starting = node.quorum.leads and "describe_groups" in node.leaders_calls  # as the leader of a replica set
    if is_starting or node.groups.is_loading:
        raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    allows = node.authorizer.allows
    sees_all = allows(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    states = {one.lower() for one in getattr(request, "states_filter", ())}
    types = {one.lower() for one in getattr(request, "types_filter", ())}
    rows = [
        {
            "group_id": one.group_id,
            "protocol_type": one.protocol_type,
            "group_state": one.state,
            "group_type": one.group_type,
        }
        for one in node.groups.overview(has_offsets=False)
        if (not states or one.state.lower() in states)
        and (not types or one.group_type in types)
        and (sees_all or allows(context, Operation.DESCRIBE, ResourceType.GROUP, one.group_id))
    ]
    return {"error_code": 0, "groups": rows}
