"""OffsetCommit: commit a group's offsets, for a member, or for any client if the group has no members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.groups.commits import Committer, NewOffset
from kafkalog.server.groups.offsets import Place
from kafkalog.server.groups.topic_names import topic_of
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from uuid import UUID

    from kio.schema.offset_commit.v10.request import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )

    from kafkalog.server.node.node import Node

_FIRST_WITH_IDS: Final = 10


async def handle(node: Node, context: RequestContext, request: OffsetCommitRequest) -> Answer:
    """Commit the offsets and return an error code for each partition."""
    allows = node.authorizer.allows
    node.authorizer.require(context, Operation.READ, ResourceType.GROUP, request.group_id)
    offsets: dict[Place, NewOffset] = {}
    refusals: dict[int, int] = {}  # by the topic's index in the request
    topics = [topic_of(node, one) for one in request.topics]
    unknown = (
        ErrorCode.UNKNOWN_TOPIC_ID if context.api_version >= _FIRST_WITH_IDS else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    turns = CooperativeYield()
    for number, (row, (name, topic)) in enumerate(zip(request.topics, topics, strict=True)):
        await turns.row()
        if name is None:
            refusals[number] = unknown
        elif not allows(context, Operation.READ, ResourceType.TOPIC, name):
            refusals[number] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None:
            refusals[number] = unknown
        else:
            for one in row.partitions:
                await turns.row()
                if 0 <= one.partition_index < topic.partitions:
                    offsets[name, one.partition_index] = _offset(one, topic.id)
    committer = Committer(
        request.member_id,
        request.generation_id_or_member_epoch,
        getattr(request, "group_instance_id", None),
        context.api_version,
    )
    retention_ms = getattr(request, "retention_time", -1)
    codes = await node.groups.commits.commit(request.group_id, committer, offsets, retention_ms)
    rows = []
    for number, (row, (name, _)) in enumerate(zip(request.topics, topics, strict=True)):
        missing = int(refusals.get(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        indexes = [one.partition_index for one in row.partitions]
        rows.append(_row(row, {index: codes.get((name or "", index), missing) for index in indexes}))
    return {"topics": rows}


def _offset(one: OffsetCommitRequestPartition, topic_id: UUID) -> NewOffset:
    epoch = getattr(one, "committed_leader_epoch", -1)
    return NewOffset(one.committed_offset, epoch, one.committed_metadata or "", topic_id)


def _row(row: OffsetCommitRequestTopic, codes: dict[int, int]) -> dict[str, object]:
    partitions = [{"partition_index": index, "error_code": code} for index, code in codes.items()]
    return {"name": getattr(row, "name", None), "topic_id": getattr(row, "topic_id", None), "partitions": partitions}


def refused(node: Node, context: RequestContext, request: OffsetCommitRequest, error: Refused) -> Answer:
    """Return the same error code for each partition."""
    rows = [_row(row, {one.partition_index: error.code for one in row.partitions}) for row in request.topics]
    return {"topics": rows}
