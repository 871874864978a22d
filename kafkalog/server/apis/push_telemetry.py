"""PushTelemetry (KIP-714): metrics of a client; only with a receiver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.requests.context import Answer, RequestContext

if TYPE_CHECKING:
    from kio.schema.push_telemetry.v0.request import PushTelemetryRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: PushTelemetryRequest) -> Answer:
    """Give the metrics to the receiver."""
    assert node.telemetry is not None
    await node.telemetry.push(context, request)
    return {"error_code": ErrorCode.NONE}
