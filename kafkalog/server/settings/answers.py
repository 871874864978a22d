"""Shared code of AlterConfigs and IncrementalAlterConfigs: each resource is changed independently, with its own row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode, Refused, code_of
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.security.acls import Operation
from kafkalog.server.settings.changes import denied

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.wire.writer import Tree


class Resource(Protocol):
    """A resource whose settings a request changes."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=Resource)
R_co = TypeVar("R_co", bound=Resource, covariant=True)


class AlterRequest(Protocol[R_co]):
    """A request of AlterConfigs or IncrementalAlterConfigs."""

    @property
    def resources(self) -> Sequence[R_co]: ...


async def alter_resources(
    node: Node, context: RequestContext, request: AlterRequest[R], alter: Callable[[R], Awaitable[None]]
) -> Answer:
    """Call `alter` for each resource that the client may change, and return the response."""
    counts = Counter(map(_key, request.resources))
    rows: list[Tree] = []
    turns = CooperativeYield()
    for resource in request.resources:
        await turns.row()
        key = _key(resource)
        code: int | None = denied(node, context, Operation.ALTER_CONFIGS, *key)
        message = None if code is None else ErrorCode(code).message
        if counts[key] > 1:
            code, message = ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
        if code is None:
            code = ErrorCode.NONE
            try:
                async with node.dynamic.turn:  # changes of a list apply to its current value
                    await alter(resource)
            except KafkalogError as error:
                code, message = code_of(error), error.message
        rows.append(_row(resource, code, message))
    return {"responses": rows}


def refused(node: Node, context: RequestContext, request: AlterRequest[Resource], error: Refused) -> Answer:
    """Return the error for each resource."""
    rows = [_row(resource, error.code, error.message) for resource in request.resources]
    return {"responses": rows}


def _key(resource: Resource) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _row(resource: Resource, error_code: int, message: str | None) -> Tree:
    return {
        "error_code": error_code,
        "error_message": message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }
