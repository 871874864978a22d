"""Shared code of AlterConfigs and IncrementalAlterConfigs: each resource is changed independently, with its own row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from kafkalog.errors import InvalidRequest, KafkalogError
from kafkalog.server.error_codes import ErrorCode, Refused, code_of
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.security.acls import Operation
from kafkalog.server.settings.changes import denied
from kafkalog.server.settings.kinds import KINDS, Change

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.wire.writer import Tree


class Setting(Protocol):
    """A setting that a request changes."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> str | None: ...


class Resource(Protocol):
    """A resource whose settings a request changes."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def configs(self) -> Sequence[Setting]: ...


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
        code, message = int(ErrorCode.NONE), None
        try:
            if counts[key] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            _check_given(resource)
            refusal = denied(node, context, Operation.ALTER_CONFIGS, *key)
            if refusal is not None:
                code, message = int(refusal), refusal.message
            else:
                async with node.dynamic.turn:  # changes of a list apply to its current value
                    await alter(resource)
        except KafkalogError as error:
            code, message = code_of(error), error.message
        rows.append(_row(resource, code, message))
    return {"responses": rows}


def _check_given(resource: Resource) -> None:
    """Raise InvalidRequest for what is invalid from any client: an unknown type, a setting twice or without value."""
    names = [one.name for one in resource.configs]
    if len(set(names)) < len(names):
        raise InvalidRequest("Error due to duplicate config keys")
    nulls = [one.name for one in resource.configs if one.value is None and not _deletes(one)]
    if nulls:
        raise InvalidRequest(f"Null value not supported for : {', '.join(nulls)}")
    if resource.resource_type not in KINDS:
        raise InvalidRequest(f"Unknown resource type {resource.resource_type}")


def _deletes(setting: Setting) -> bool:
    return getattr(setting, "config_operation", Change.SET) == Change.DELETE


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
