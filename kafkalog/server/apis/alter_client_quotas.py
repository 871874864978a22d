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
    from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: AlterClientQuotasRequest) -> Answer:
    """Validate each entity and, unless `validate_only` is set, save the valid limits."""
    node.authorizer.require_cluster(context, Operation.ALTER_CONFIGS, explains=True)
    changes: dict[Entity, dict[str, float | None]] = {}
    results: list[tuple[int, str | None]] = []
    for entry in request.entries:
        try:
            entity = entity_of(entry.entity)
            if entity in changes:
                raise InvalidRequest(f"Duplicate client quota entity {dict(entity)}")
            changes[entity] = limits_of(entity, entry.ops)
        except InvalidRequest as error:
            results.append((code_of(error), error.message))
        else:
            results.append((ErrorCode.NONE, None))
    if not request.validate_only:
        try:
            await node.credentials.file.change(node.run, lambda state: with_limits(state, changes))
        except StorageError as error:
            results = [(code or code_of(error), message or error.message) for code, message in results]
    return _tree(request, results)


def refused(node: Node, context: RequestContext, request: AlterClientQuotasRequest, error: Refused) -> Answer:
    """Return the error for each entity."""
    return _tree(request, [(error.code, error.message)] * len(request.entries))


def _tree(request: AlterClientQuotasRequest, results: list[tuple[int, str | None]]) -> Answer:
    rows = [
        {
            "error_code": code,
            "error_message": message,
            "entity": [{"entity_type": part.entity_type, "entity_name": part.entity_name} for part in entry.entity],
        }
        for entry, (code, message) in zip(request.entries, results, strict=True)
    ]
    return {"entries": rows}
