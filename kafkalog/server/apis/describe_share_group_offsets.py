"""DescribeShareGroupOffsets (KIP-932): where a share group begins in each partition, and how far it is behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.groups.share_group import ShareGroup
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield, in_turns
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.settings.features import SHARE
from kafkalog.server.share.state import UNKNOWN_START, ShareKey
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kio.schema.describe_share_group_offsets.v1.request import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
    )

    from kafkalog.server.node.node import Node

Row = dict[str, object]
_UNKNOWN_LAG: Final = -1
_LONGS: Final = 1 << 64


async def handle(node: Node, context: RequestContext, request: DescribeShareGroupOffsetsRequest) -> Answer:
    """Return a row for each requested group."""
    if not node.features.level(SHARE):
        off = {"error_code": int(ErrorCode.UNSUPPORTED_VERSION), "error_message": None}
        rows = [_group_row(one.group_id, 0) | off async for one in in_turns(request.groups)]
        return {"groups": rows}
    rows = [await _describe(node, context, one) async for one in in_turns(request.groups)]
    return {"groups": rows}


async def _describe(node: Node, context: RequestContext, asked: DescribeShareGroupOffsetsRequestGroup) -> Row:
    group_id = asked.group_id
    if not node.authorizer.allows(context, Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return _group_row(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    error = await node.groups.table.ready(group_id, is_written=False)
    if error:
        return _group_row(group_id, error)
    try:
        group = node.groups.share.group(group_id, is_new=True)
    except Refused as refusal:
        return _group_row(group_id, refusal.code, refusal.message)
    await node.shares.log.loaded()
    wanted = _wanted(group) if asked.topics is None else {one.topic_name: one.partitions for one in asked.topics}
    ends = await _ends_elsewhere(node, wanted)
    turns = CooperativeYield()
    topics = [
        await _topic_row(node, context, group_id, name, numbers, ends, turns)
        for name, numbers in wanted.items()
        if asked.topics is not None or _may_see(node, context, name)
    ]
    return _group_row(group_id, 0) | {"topics": topics}


def _wanted(group: ShareGroup) -> dict[str, tuple[int, ...]]:
    return {topic.name: tuple(sorted(topic.partitions)) for topic in group.topics.values()}


def _may_see(node: Node, context: RequestContext, name: str) -> bool:
    return node.authorizer.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name)


async def _ends_elsewhere(node: Node, wanted: Mapping[Any, tuple[int, ...]]) -> Mapping[TopicPartition, int]:
    """Return the high watermarks of those of these partitions that lie with workers which answer."""
    if node.workers is None:
        return {}
    return await node.workers.shares.ends(TopicPartition(name, one) for name, rows in wanted.items() for one in rows)


async def _topic_row(
    node: Node, context: RequestContext, group_id: str, name: str, numbers: tuple[int, ...],
    ends: Mapping[TopicPartition, int], turns: CooperativeYield,
) -> Row:  # fmt: skip
    await turns.row()
    topic = node.topics.get(name)
    error = 0
    if not _may_see(node, context, name):
        error = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if error or topic is None:
        rows = [_row(number, error) async for number in _each(numbers, turns)]
        return {"topic_name": name, "topic_id": None, "partitions": rows}
    rows = [
        _partition_row(node, ShareKey(group_id, topic.id, number), name, ends)
        async for number in _each(numbers, turns)
    ]
    return {"topic_name": name, "topic_id": topic.id, "partitions": rows}


async def _each(numbers: Iterable[int], turns: CooperativeYield) -> AsyncIterator[int]:
    for number in numbers:
        await turns.row()
        yield number


def _partition_row(node: Node, key: ShareKey, name: str, ends: Mapping[TopicPartition, int]) -> Row:
    state = node.shares.log.get(key)
    if state is None or state.start == UNKNOWN_START:
        return _row(key.partition, 0)
    place = TopicPartition(name, key.partition)
    try:
        end = ends[place] if place in ends else node.replicas.find(place).log.high_watermark
    except KafkalogError:
        lag = _UNKNOWN_LAG
    else:
        lag = _lag(end, state.start, state.complete)
    return _row(key.partition, 0) | {"start_offset": state.start, "leader_epoch": state.leader_epoch, "lag": lag}


def _lag(end: int, start: int, complete: int) -> int:
    """Return the number of records not completed. It overflows as in the reference: a start may be any number."""
    return (end - start - max(0, complete) + _LONGS // 2) % _LONGS - _LONGS // 2


def _row(number: int, code: int) -> Row:
    return {
        "partition_index": number,
        "start_offset": UNKNOWN_START,
        "leader_epoch": 0,
        "lag": _UNKNOWN_LAG,
        "error_code": code,
        "error_message": ErrorCode(code).message,
    }


def _group_row(group_id: str, code: int, message: str | None = None) -> Row:
    text = message or ErrorCode(code).message
    return {"group_id": group_id, "topics": [], "error_code": int(code), "error_message": text}


def refused(node: Node, context: RequestContext, request: DescribeShareGroupOffsetsRequest, error: Refused) -> Answer:
    """Return the same error code for each group."""
    rows = [_group_row(one.group_id, error.code, error.message) for one in request.groups]
    return {"groups": rows}
