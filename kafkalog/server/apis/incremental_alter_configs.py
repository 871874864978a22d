"""IncrementalAlterConfigs: set or reset settings, add items to lists and remove them (KIP-339)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.server.alter_answers import all_refused, altered
from kafkalog.server.context import Answer, RequestContext
from kafkalog.server.setting_changes import change

if TYPE_CHECKING:
    from kafkalog.server.node import Node


async def handle(node: Node, context: RequestContext, request: Any) -> Answer:
    """Change the settings of each resource."""

    async def alter(resource: Any) -> None:
        kind, name = resource.resource_type, resource.resource_name
        await change(node, kind, name, list(resource.configs), request.validate_only)

    return await altered(node, context, request, alter)


def refused(node: Node, context: RequestContext, request: Any, error_code: int, message: str | None) -> Answer:
    """Return the error for each resource."""
    return all_refused(context, request, error_code, message)
