"""DescribeDelegationToken (KIP-48): refused, since there are no delegation tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import Refused
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.tokens import token_refusal

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: object) -> Answer:
    """Return the error for the channel, or for the missing feature."""
    raise Refused(token_refusal(context))
