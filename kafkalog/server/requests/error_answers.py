"""Answers of calls that have their error at the top level: all else in them is empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.wire.definitions import empty_response

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.requests.context import RequestContext


def error_answer(node: Node, context: RequestContext, request: object, error: Refused) -> dict[str, object]:
    """Return the error and nothing else, for a call whose module has no `refused`."""
    empty = empty_response(context.api_key, context.api_version)
    return {**empty, "error_code": error.code, "error_message": error.message}


def explained_answer(node: Node, context: RequestContext, request: object, error: Refused) -> dict[str, object]:
    """Return the error with Kafka's message for its code if it has none; an empty message becomes null."""
    message = ErrorCode(error.code).message if error.message is None else error.message or None
    return error_answer(node, context, request, Refused(error.code, message))
