"""DescribeAcls: the ACLs that match a filter, by resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acl_requests import acl_fields, filter_of, require, resource_fields
from kafkalog.server.security.acls import Acl, Operation

if TYPE_CHECKING:
    from kio.schema.describe_acls.v3.request import DescribeAclsRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: DescribeAclsRequest) -> Answer:
    """Return the matching ACLs."""
    require(node, context, Operation.DESCRIBE, "No Authorizer is configured on the broker")
    acl_filter = filter_of(request)
    found: dict[tuple[int, str, int], list[Acl]] = {}
    for acl in sorted(filter(acl_filter.matches, node.credentials.file.state.acls)):
        found.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(acl)
    rows = [{**resource_fields(acls[0]), "acls": [acl_fields(acl) for acl in acls]} for acls in found.values()]
    return {"error_code": ErrorCode.NONE, "error_message": "", "resources": rows}
