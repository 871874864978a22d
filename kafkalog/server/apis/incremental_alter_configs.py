"""IncrementalAlterConfigs: set or reset settings, add items to lists and remove them (KIP-339)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.settings.answers import alter_resources, refused
from kafkalog.server.settings.changes import change

__all__ = ["handle", "refused"]

if TYPE_CHECKING:
    from kio.schema.incremental_alter_configs.v1.request import AlterConfigsResource, IncrementalAlterConfigsRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: IncrementalAlterConfigsRequest) -> Answer:
    """Change the settings of each resource."""

    async def alter(resource: AlterConfigsResource) -> None:
        kind, name = resource.resource_type, resource.resource_name
        await change(node, kind, name, list(resource.configs), request.validate_only)

    return await alter_resources(node, context, request, alter)
