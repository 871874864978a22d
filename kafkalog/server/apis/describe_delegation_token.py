"""DescribeDelegationToken (KIP-48): refused, since there are no delegation tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.tokens import token_refusal

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: object) -> Answer:
    """Return the error for the channel, or for the missing feature."""
    return refused(node, context, request, token_refusal(context), None)


def refused(node: Node, context: RequestContext, request: object, error_code: int, message: str | None) -> Answer:
    """Return the error without tokens."""
    return {"throttle_time": context.throttle_ms, "error_code": error_code, "tokens": ()}
