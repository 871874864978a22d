"""AlterConfigs: replace all settings of a resource with the given ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.server.alter_answers import all_refused, altered
from kafkalog.server.context import Answer, RequestContext
from kafkalog.server.setting_changes import set_all

if TYPE_CHECKING:
    from kafkalog.server.node import Node


async def handle(node: Node, context: RequestContext, request: Any) -> Answer:
    """Replace the settings of each resource."""

    async def alter(resource: Any) -> None:
        settings = {config.name: config.value for config in resource.configs}
        kind, name = resource.resource_type, resource.resource_name
        await set_all(node, kind, name, settings, request.validate_only)

    return await altered(node, context, request, alter)


def refused(node: Node, context: RequestContext, request: Any, error_code: int, message: str | None) -> Answer:
    """Return the error for each resource."""
    return all_refused(context, request, error_code, message)
