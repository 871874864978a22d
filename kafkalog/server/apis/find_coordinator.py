"""FindCoordinator (KIP-699): the coordinators of groups and transactions, which are always the leader."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.groups.group_log import OFFSETS_TOPIC
from kafkalog.server.node.addresses import address_of
from kafkalog.server.node.topics import SHARE_GROUP_STATE
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import in_turns
from kafkalog.server.requests.forwarding import create_on_leader
from kafkalog.server.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

    class _Request(Protocol):
        """The fields of all versions: `key` up to version 3, `coordinator_keys` from version 4 on."""

        key: str
        coordinator_keys: tuple[str, ...]


_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_FIRST_WITH_MANY: Final = 4
_FIRST_WITH_SHARES: Final = 6
_SHARE_KEY: Final = re.compile(r".+:[A-Za-z0-9_-]{22}:\d{1,10}", re.DOTALL)
"""Key of a share partition: GROUP:TOPIC-ID:PARTITION."""
_NONE: Final = "NONE"
_TOPICS: Final = {_GROUP: OFFSETS_TOPIC, _TRANSACTION: "__transaction_state", _SHARE: SHARE_GROUP_STATE}
_TYPES: Final = {_GROUP: ResourceType.GROUP, _TRANSACTION: ResourceType.TRANSACTIONAL_ID}
_DENIED: Final = {
    _GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    _TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


async def handle(node: Node, context: RequestContext, request: _Request) -> Answer:
    """Return the leader for each key; the first request creates the internal topic."""
    has_many_keys = context.api_version >= _FIRST_WITH_MANY
    keys = request.coordinator_keys if has_many_keys else (request.key,)
    kind = getattr(request, "key_type", _GROUP)
    rows = [await _row(node, context, kind, key) async for key in in_turns(keys)]
    return _answer(rows, has_many_keys)


async def _row(node: Node, context: RequestContext, kind: int, key: str) -> dict[str, object]:
    if kind not in _TOPICS or (kind == _SHARE and context.api_version < _FIRST_WITH_SHARES):
        return _refusal(key, ErrorCode.INVALID_REQUEST)
    if kind == _SHARE:
        if not node.authorizer.allows_cluster(context, Operation.CLUSTER_ACTION):
            return _refusal(key, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if _SHARE_KEY.fullmatch(key) is None:
            return _refusal(key, ErrorCode.INVALID_REQUEST)
    elif not node.authorizer.allows(context, Operation.DESCRIBE, _TYPES[kind], key):
        return _refusal(key, _DENIED[kind])
    leader = address_of(node, context.connection.listener, node.quorum.leader)
    if leader is None:
        return _refusal(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if node.quorum.leads:
        await node.topics.ensure_internal(_TOPICS[kind])
    elif node.topics.get(_TOPICS[kind]) is None:
        await create_on_leader(node, [_TOPICS[kind]])
    return {"key": key, "error_code": 0, "error_message": "", **leader._asdict()}


def _refusal(key: str, code: int, message: str | None = None) -> dict[str, object]:
    text = message or ErrorCode(code).message
    return {"key": key, "error_code": int(code), "error_message": text, "node_id": -1, "host": "", "port": -1}


def _answer(rows: list[dict[str, object]], has_many_keys: bool) -> dict[str, object]:
    if has_many_keys:
        return {"coordinators": rows}
    row = rows[0]
    return {**row, "error_message": row["error_message"] or _NONE}


def refused(node: Node, context: RequestContext, request: _Request, error: Refused) -> Answer:
    """Return the same error for each key; a storage error becomes COORDINATOR_NOT_AVAILABLE, which is retriable."""
    has_many_keys = context.api_version >= _FIRST_WITH_MANY
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE if error.code == ErrorCode.KAFKA_STORAGE_ERROR else error.code
    keys = request.coordinator_keys if has_many_keys else (request.key,)
    return _answer([_refusal(key, code, error.message) for key in keys], has_many_keys)
