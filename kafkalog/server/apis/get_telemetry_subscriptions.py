"""GetTelemetrySubscriptions (KIP-714): the metrics that a client is asked to push; only with a receiver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.telemetry import ACCEPTED_CODECS, MAX_BYTES

if TYPE_CHECKING:
    from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: GetTelemetrySubscriptionsRequest) -> Answer:
    """Return the client's subscription, with a new id for a client that has none."""
    assert node.telemetry is not None
    found = node.telemetry.ask(context, request.client_instance_id)
    return {
        "error_code": ErrorCode.NONE,
        "client_instance_id": found.id,
        "subscription_id": found.subscription_id,
        "accepted_compression_types": ACCEPTED_CODECS,
        "push_interval": found.wanted.interval_ms,
        "telemetry_max_bytes": node.config[MAX_BYTES],
        "delta_temporality": True,
        "requested_metrics": found.wanted.metrics,
    }
