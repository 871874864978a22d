"""DeleteTopics: delete topics by name, or from version 6 on by id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kafkalog.errors import KafkalogError, UnknownTopicOrPartition
from kafkalog.server.error_codes import ErrorCode, Refused, code_of
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
_Named = tuple[str | None, UUID | None]
_STRICT_FROM: Final = 5
"""First version that rejects a client over its quota; in earlier versions the client is throttled."""


async def handle(node: Node, context: RequestContext, request: DeleteTopicsRequest | NamesRequest) -> Answer:
    """Delete the topics together and return a result for each."""
    if not node.config["delete.topic.enable"]:
        is_known = context.api_version >= _DISABLED_FROM
        code = ErrorCode.TOPIC_DELETION_DISABLED if is_known else ErrorCode.INVALID_REQUEST
        raise Refused(code, code.message)
    requested = _requested_topics(request)
    names = Counter(name for name, topic_id in requested if name is not None and topic_id is None)
    ids = Counter(topic_id for name, topic_id in requested if name is None and topic_id is not None)
    found_by_name = (node.topics.get(name) for name, count in names.items() if count == 1)
    both = {
        topic.id for topic in found_by_name
        if topic is not None and topic.id in ids and _denied(node, context, topic.name, None, topic) is None
    }  # fmt: skip
    rows: list[Tree] = []
    to_delete: dict[int, Topic] = {}
    turns = CooperativeYield()
    for name, topic_id in _distinct(requested):
        await turns.row()
        problem = _problem(node, name, topic_id, (names, ids, both))
        if problem is not None:
            rows.append(problem)
        elif topic_id not in both:  # else the row of its name has the error
            found = _find_topic(node, context, name, topic_id)
            if isinstance(found, Topic):
                to_delete[len(rows)] = found
                rows.append(_row(found.name, found.id, ErrorCode.NONE, None))
            else:
                rows.append(found)
    by_id = {topic.name: topic.id for topic in to_delete.values() if topic.id in ids}
    failures = await _failures(node, [topic.name for topic in to_delete.values()], by_id) if to_delete else {}
    for row_number, topic in to_delete.items():
        error = failures.get(topic.name)
        if isinstance(error, UnknownTopicOrPartition) and topic.name in by_id:
            rows[row_number] = _row(None, topic.id, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID.message)
        elif error is not None:
            rows[row_number] = _refusal(topic, error)
    return {"responses": rows}


def _distinct(requested: Sequence[_Named]) -> list[_Named]:
    """Return what gets a row: a name or an id once, and every request with neither or with both."""
    once = dict.fromkeys(requested)
    return [one for one in requested if (one[0] is None) == (one[1] is None) or once.pop(one, one) is None]


def _problem(
    node: Node,
    name: str | None,
    topic_id: UUID | None,
    counts: tuple[Mapping[str, int], Mapping[UUID, int], Collection[UUID]],
) -> Tree | None:
    """Return the row of a request that contradicts itself or another one, else None.

    `counts` are how often each name and id comes alone, and the ids of topics that come by both.
    """
    names, ids, both = counts
    code = ErrorCode.INVALID_REQUEST
    if name is not None and topic_id is not None:
        return _row(name, topic_id, code, "You may not specify both topic name and topic id.")
    if topic_id is not None:
        return _row(None, topic_id, code, "Duplicate topic id.") if ids[topic_id] > 1 else None
    if name is None:
        return _row(None, None, code, "Neither topic name nor id were specified.")
    if names[name] > 1:
        return _row(name, None, code, "Duplicate topic name.")
    topic = node.topics.get(name)
    if topic is not None and topic.id in both:
        return _row(name, topic.id, code, "The provided topic name maps to an ID that was already supplied.")
    return None


async def _failures(node: Node, names: list[str], ids: Mapping[str, UUID]) -> dict[str, KafkalogError]:
    try:
        return await node.topics.delete_all(names, ids)
    except KafkalogError as error:
        return dict.fromkeys(names, error)


def _refusal(topic: Topic, error: KafkalogError) -> Tree:
    code = ErrorCode(code_of(error))
    return _row(topic.name, topic.id, code, error.message or code.message)


def refused(node: Node, context: RequestContext, request: DeleteTopicsRequest | NamesRequest, error: Refused) -> Answer:
    """Return the error for each topic."""
    requested = dict.fromkeys(_requested_topics(request))
    rows = [_row(name, topic_id, error.code, error.message) for name, topic_id in requested]
    return {"responses": rows}


def _requested_topics(request: DeleteTopicsRequest | NamesRequest) -> list[_Named]:
    if hasattr(request, "topics"):
        return [(topic.name, topic.topic_id) for topic in request.topics]
    return [(name, None) for name in request.topic_names]


def _find_topic(node: Node, context: RequestContext, name: str | None, topic_id: UUID | None) -> Topic | Tree:
    """Charge the client's quota and return the topic to delete, or the error row."""
    topic = node.topics.by_id(topic_id) if name is None else node.topics.get(name)
    if name is None and topic is None:
        return _row(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID.message)
    denied = _denied(node, context, name, topic_id, topic)
    if denied is not None:
        return denied
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _row(name, None, code, code.message)
    try:
        node.quotas.record_mutations(context, topic.partitions, is_strict=context.api_version >= _STRICT_FROM)
    except KafkalogError as error:
        return _refusal(topic, error)
    return topic


def _denied(
    node: Node, context: RequestContext, name: str | None, topic_id: UUID | None, topic: Topic | None
) -> Tree | None:
    """Return the row of a topic that the client may not delete, or not know of; else None."""
    topic_name = topic.name if topic is not None else str(name)
    if node.authorizer.allows_cluster(context, Operation.DELETE):
        return None
    for operation in (Operation.DESCRIBE, Operation.DELETE) if topic is not None else (Operation.DESCRIBE,):
        if not node.authorizer.allows(context, operation, ResourceType.TOPIC, topic_name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            shows_name = name is not None or operation == Operation.DELETE
            return _row(topic_name if shows_name else None, topic_id, code, code.message)
    return None


def _row(name: str | None, topic_id: UUID | None, error_code: int, message: str | None) -> Tree:
    return {"name": name, "topic_id": topic_id, "error_code": error_code, "error_message": message}
