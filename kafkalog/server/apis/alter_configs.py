"""AlterConfigs: replace all settings of a resource with the given ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.settings.answers import alter_resources, refused
from kafkalog.server.settings.changes import set_all

__all__ = ["handle", "refused"]

if TYPE_CHECKING:
    from kio.schema.alter_configs.v2.request import AlterConfigsRequest, AlterConfigsResource

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: AlterConfigsRequest) -> Answer:
    """Replace the settings of each resource."""

    async def alter(resource: AlterConfigsResource) -> None:
        settings = [(config.name, config.value) for config in resource.configs]
        kind, name = resource.resource_type, resource.resource_name
        await set_all(node, kind, name, settings, request.validate_only)

    return await alter_resources(node, context, request, alter)
