"""DescribeAcls: the ACLs that match a filter, by resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acl_requests import acl_fields, filter_of, refusal, resource_fields
from kafkalog.server.security.acls import Acl, Operation

if TYPE_CHECKING:
    from kio.schema.describe_acls.v3.request import DescribeAclsRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: DescribeAclsRequest) -> Answer:
    """Return the matching ACLs."""
    rejection = refusal(node, context, Operation.DESCRIBE, "No Authorizer is configured on the broker")
    if rejection is not None:
        return refused(node, context, request, *rejection)
    acl_filter = filter_of(request)
    found: dict[tuple[int, str, int], list[Acl]] = {}
    for acl in sorted(filter(acl_filter.matches, node.credentials.file.state.acls)):
        found.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(acl)
    rows = [{**resource_fields(acls[0]), "acls": [acl_fields(acl) for acl in acls]} for acls in found.values()]
    return {"throttle_time": context.throttle_ms, "error_code": ErrorCode.NONE, "error_message": "", "resources": rows}


def refused(node: Node, context: RequestContext, request: object, error_code: int, message: str | None) -> Answer:
    """Return the error and no ACL."""
    return {
        "throttle_time": context.throttle_ms,
        "error_code": error_code,
        "error_message": message,
        "resources": (),
    }
