"""OffsetFetch: the committed offsets of groups (KIP-447, KIP-709, KIP-848)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.groups.commits import UNSTABLE
from kafkalog.server.groups.topic_names import topic_of
from kafkalog.server.groups.values import CommittedOffset
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield, in_turns
from kafkalog.server.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from kio.schema.offset_fetch.v10.request import OffsetFetchRequestTopics

    from kafkalog.server.node.node import Node

    class _Group(Hashable, Protocol):
        """A request up to version 7, or a group of a later one."""

        group_id: str
        topics: tuple[OffsetFetchRequestTopics, ...] | None

    class _Request(_Group, Protocol):
        """The fields of all versions: those of a group up to version 7, `groups` from version 8 on."""

        groups: tuple[_Group, ...]


_FIRST_WITH_CODE: Final = 2
_FIRST_WITH_MANY: Final = 8
_FIRST_WITH_IDS: Final = 10


async def handle(node: Node, context: RequestContext, request: _Request) -> Answer:
    """Return the offsets of each group; -1 for partitions without a committed offset."""
    is_stable = getattr(request, "require_stable", False)
    if context.api_version >= _FIRST_WITH_MANY:
        by_group_id = {one.group_id: one for one in reversed(request.groups)}  # the first of each: no larger response
        requested = reversed(by_group_id.values())
        groups = [await _group(node, context, one, is_stable) async for one in in_turns(requested)]
        return {"groups": groups}
    return await _group(node, context, request, is_stable)


async def _group(node: Node, context: RequestContext, row: _Group, is_stable: bool) -> dict[str, object]:
    allowed = node.authorizer.allows(context, Operation.DESCRIBE, ResourceType.GROUP, row.group_id)
    code = 0 if allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not code:
        member_id, epoch = getattr(row, "member_id", None), getattr(row, "member_epoch", -1)
        code = await node.groups.commits.check_fetch(row.group_id, member_id, epoch)
    if code:
        return _refused_group(context, row, code)
    fetch_rows = _all_topics if row.topics is None else _named_topics
    topics = await fetch_rows(node, context, row, is_stable)
    return {"group_id": row.group_id, "topics": topics, "error_code": 0}


def _refused_group(context: RequestContext, row: Any, code: int) -> dict[str, object]:
    """Return a group's error; the first versions have it at each partition."""
    topics: list[dict[str, object]] = []
    if context.api_version < _FIRST_WITH_CODE:
        topics = [_topic(one, [_partition(index, None, code) for index in one.partition_indexes]) for one in row.topics]
    return {"group_id": row.group_id, "topics": topics, "error_code": int(code)}


async def _named_topics(node: Node, context: RequestContext, row: Any, is_stable: bool) -> Iterable[dict[str, object]]:
    fetched = node.groups.commits.fetched
    rows = []
    turns = CooperativeYield()
    for one in {(getattr(one, "name", None), getattr(one, "topic_id", None)): one for one in row.topics}.values():
        name, _ = topic_of(node, one)
        code = 0
        if name is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif not node.authorizer.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partitions = []
        for index in dict.fromkeys(one.partition_indexes):
            found = None if code or name is None else fetched(row.group_id, (name, index), is_stable)
            partitions.append(_partition(index, found, code))
            await turns.row()
        rows.append(_topic(one, partitions))
        await turns.row()
    return rows


async def _all_topics(node: Node, context: RequestContext, row: _Group, is_stable: bool) -> Iterable[dict[str, object]]:
    fetched = node.groups.commits.fetched
    by_topic: dict[str, list[int]] = {}
    turns = CooperativeYield()
    for topic, index in node.groups.offsets.all_of(row.group_id):
        await turns.row()
        if fetched(row.group_id, (topic, index), False) is not None:
            by_topic.setdefault(topic, []).append(index)
    rows: list[dict[str, object]] = []
    for name, indexes in by_topic.items():
        found = node.topics.get(name)
        if context.api_version >= _FIRST_WITH_IDS and found is None:
            continue
        if node.authorizer.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
            partitions = []
            for index in sorted(indexes):
                await turns.row()
                partitions.append(_partition(index, fetched(row.group_id, (name, index), is_stable), 0))
            topic_id = None if found is None else found.id
            rows.append({"name": name, "topic_id": topic_id, "partitions": partitions})
    return rows


def _topic(row: OffsetFetchRequestTopics, partitions: list[dict[str, object]]) -> dict[str, object]:
    return {"name": getattr(row, "name", None), "topic_id": getattr(row, "topic_id", None), "partitions": partitions}


def _partition(index: int, one: CommittedOffset | None, code: int) -> dict[str, object]:
    if one is UNSTABLE:
        code = ErrorCode.UNSTABLE_OFFSET_COMMIT
    if one is None:
        one = UNSTABLE
    return {
        "partition_index": index,
        "committed_offset": one.offset,
        "committed_leader_epoch": one.leader_epoch,
        "metadata": one.metadata,
        "error_code": int(code),
    }


def refused(node: Node, context: RequestContext, request: _Request, error: Refused) -> Answer:
    """Return the same error code for each group."""
    if context.api_version >= _FIRST_WITH_MANY:
        groups = [_refused_group(context, one, error.code) for one in request.groups]
        return {"groups": groups}
    return _refused_group(context, request, error.code)
