"""DeleteTopics: delete topics by name, or from version 6 on by id."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode, code_of
from kafkalog.server.node.topics import Topic
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from kio.schema.delete_topics.v5.request import DeleteTopicsRequest as NamesRequest
    from kio.schema.delete_topics.v6.request import DeleteTopicsRequest

    from kafkalog.server.node.node import Node
    from kafkalog.server.wire.writer import Tree

_DISABLED_FROM: Final = 3
_STRICT_FROM: Final = 5
"""First version that rejects a client over its quota; in earlier versions the client is throttled."""


async def handle(node: Node, context: RequestContext, request: DeleteTopicsRequest | NamesRequest) -> Answer:
    """Delete the topics together and return a result for each."""
    if not node.config["delete.topic.enable"]:
        is_known = context.api_version >= _DISABLED_FROM
        why = ErrorCode.TOPIC_DELETION_DISABLED if is_known else ErrorCode.INVALID_REQUEST
        return refused(node, context, request, why, why.message)
    asked = _asked(request)
    names = Counter(name for name, _ in asked if name is not None)
    ids = Counter(topic_id for _, topic_id in asked if topic_id is not None)
    rows: list[Tree] = []
    going: dict[int, Topic] = {}
    turns = CooperativeYield()
    for name, topic_id in dict.fromkeys(asked):
        await turns.row()
        code = ErrorCode.INVALID_REQUEST
        if name is not None and topic_id is not None:
            rows.append(_row(name, topic_id, code, "You may not specify both topic name and topic id."))
        elif name is None and topic_id is None:
            rows.append(_row(None, None, code, "Neither topic name nor id were specified."))
        elif name is not None and names[name] > 1:
            rows.append(_row(name, None, code, "Duplicate topic name."))
        elif topic_id is not None and ids[topic_id] > 1:
            rows.append(_row(None, topic_id, code, "Duplicate topic id."))
        else:
            found = _found(node, context, name, topic_id)
            if isinstance(found, Topic):
                going[len(rows)] = found
                rows.append(_row(found.name, found.id, ErrorCode.NONE, None))
            else:
                rows.append(found)
    failures = await _failures(node, [topic.name for topic in going.values()]) if going else {}
    for at, topic in going.items():
        error = failures.get(topic.name)
        if error is not None:
            rows[at] = _refusal(topic, error)
    return {"throttle_time": context.throttle_ms, "responses": rows}


async def _failures(node: Node, names: list[str]) -> dict[str, KafkalogError]:
    try:
        failures: dict[str, KafkalogError] = await node.topics.delete_all(names)
    except KafkalogError as error:
        failures = dict.fromkeys(names, error)
    return failures


def _refusal(topic: Topic, error: KafkalogError) -> Tree:
    code = ErrorCode(code_of(error))
    return _row(topic.name, topic.id, code, error.message or code.message)


def refused(
    node: Node,
    context: RequestContext,
    request: DeleteTopicsRequest | NamesRequest,
    error_code: int,
    message: str | None,
) -> Answer:
    """Return the error for each topic."""
    rows = [_row(name, topic_id, error_code, message) for name, topic_id in dict.fromkeys(_asked(request))]
    return {"throttle_time": context.throttle_ms, "responses": rows}


def _asked(request: DeleteTopicsRequest | NamesRequest) -> list[tuple[str | None, UUID | None]]:
    if hasattr(request, "topics"):
        return [(topic.name, topic.topic_id) for topic in request.topics]
    return [(name, None) for name in request.topic_names]


def _found(node: Node, context: RequestContext, name: str | None, topic_id: UUID | None) -> Topic | Tree:
    """Charge the client's quota and return the topic to delete, or the error row."""
    topic = node.topics.by_id(topic_id) if name is None else node.topics.get(name)
    if name is None and topic is None:
        return _row(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID.message)
    called = topic.name if topic is not None else str(name)
    if not node.authorizer.allows_cluster(context, Operation.DELETE):
        for operation in (Operation.DESCRIBE, Operation.DELETE):
            if not node.authorizer.allows(context, operation, ResourceType.TOPIC, called):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                is_shown = name is not None or operation == Operation.DELETE
                return _row(called if is_shown else None, topic_id, code, code.message)
    if topic is None:
        return _row(name, None, *_unknown())
    try:
        node.quotas.record_mutations(context, topic.partitions, is_strict=context.api_version >= _STRICT_FROM)
    except KafkalogError as error:
        return _refusal(topic, error)
    found: Topic = topic
    return found


def _unknown() -> tuple[int, str | None]:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return code, code.message


def _row(name: str | None, topic_id: UUID | None, error_code: int, message: str | None) -> Tree:
    return {"name": name, "topic_id": topic_id, "error_code": error_code, "error_message": message}
