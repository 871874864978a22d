"""AlterClientQuotas: set and remove the limits of each entity independently (KIP-546)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import InvalidRequest, StorageError
from kafkalog.server.error_codes import ErrorCode, Refused, code_of
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation
from kafkalog.server.security.quota_requests import entity_of, limits_of, with_limits
from kafkalog.server.security.state import Entity

if TYPE_CHECKING:
    from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntryData

    from kafkalog.server.node.node import Node

_Named = frozenset[tuple[str, str | None]]
"""Type and name of each part of an entity."""


async def handle(node: Node, context: RequestContext, request: AlterClientQuotasRequest) -> Answer:
    """Validate each entity and, unless `validate_only` is set, save the valid limits.

    An entity that comes twice has one row, with an error. As in a broker, the first limits are set all the same.
    """
    node.authorizer.require_cluster(context, Operation.ALTER_CONFIGS, explains=True)
    changes: dict[Entity, dict[str, float | None]] = {}
    entries = {_named(entry): entry for entry in reversed(request.entries)}
    results: dict[_Named, tuple[int, str | None]] = {}
    for entry in request.entries:
        named = _named(entry)
        if named in results:
            results[named] = int(ErrorCode.INVALID_REQUEST), f"Ignoring duplicate entity {dict(named)}"
            continue
        results[named] = ErrorCode.NONE, None
        try:
            entity = entity_of(entry.entity)
            changes[entity] = limits_of(entity, entry.ops)
        except InvalidRequest as error:
            results[named] = code_of(error), error.message
    if not request.validate_only:
        try:
            await node.credentials.file.change(node.run, lambda state: with_limits(state, changes))
        except StorageError as error:
            failed = code_of(error), error.message
            results = {named: result if result[0] else failed for named, result in results.items()}
    return _tree([(entries[named], *result) for named, result in results.items()])


def refused(node: Node, context: RequestContext, request: AlterClientQuotasRequest, error: Refused) -> Answer:
    """Return the error for each entity."""
    return _tree([(entry, error.code, error.message) for entry in request.entries])


def _named(entry: EntryData) -> _Named:
    return frozenset((part.entity_type, part.entity_name) for part in entry.entity)


def _tree(results: list[tuple[EntryData, int, str | None]]) -> Answer:
    rows = [
        {
            "error_code": code,
            "error_message": message,
            "entity": [
                {"entity_type": part.entity_type, "entity_name": part.entity_name}
                for part in sorted(entry.entity, key=lambda part: part.entity_type)  # the broker's order
            ],
        }
        for entry, code, message in results
    ]
    return {"entries": rows}
