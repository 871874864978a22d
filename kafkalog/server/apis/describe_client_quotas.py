"""DescribeClientQuotas: the quotas that match a filter (KIP-546)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation
from kafkalog.server.security.quota_requests import QuotaFilter

if TYPE_CHECKING:
    from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: DescribeClientQuotasRequest) -> Answer:
    """Return the matching quotas."""
    node.authorizer.require_cluster(context, Operation.DESCRIBE_CONFIGS)
    quota_filter = QuotaFilter(request.components, request.strict)
    rows = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "values": [{"key": key, "value": float(value)} for key, value in sorted(limits.items())],
        }
        for entity, limits in node.credentials.file.state.quotas.items()
        if quota_filter.matches(entity)
    ]
    return {"error_code": ErrorCode.NONE, "error_message": "", "entries": rows}
