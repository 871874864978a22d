"""Shared code of calls that describe groups: one row or error for each named group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.groups.consumer_group import ConsumerGroup
from kafkalog.server.groups.share_group import ShareGroup
from kafkalog.server.requests.context import RequestContext
from kafkalog.server.requests.cooperative_yield import in_turns
from kafkalog.server.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
    from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest

    from kafkalog.server.groups.group_table import Group
    from kafkalog.server.node.node import Node

    DescribeRequest = ConsumerGroupDescribeRequest | ShareGroupDescribeRequest

Row = dict[str, object]
G = TypeVar("G", ConsumerGroup, ShareGroup)
_DENIED: Final = "The described group uses topics that the client is not authorized to describe."


def is_blank(text: str | None) -> bool:
    """Return True for a text without any character above a space: a broker takes it for empty."""
    return text is not None and (not text or max(text) <= " ")


async def describe_groups(
    node: Node,
    context: RequestContext,
    group_ids: Iterable[str],
    error_row: Callable[[str, int], Row],
    row_of: Callable[[str, Group | None], Row],
    wants_operations: Callable[[Row], bool],
    *,
    needs_id: bool = True,
) -> Row:
    """Return the response: a row from `row_of` for each group, with the client's allowed operations if wanted.

    With `needs_id` an empty group id is an error, else an unknown group.
    """
    rows = []
    async for group_id in in_turns(group_ids):
        if not node.authorizer.allows(context, Operation.DESCRIBE, ResourceType.GROUP, group_id):
            rows.append(error_row(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        error = await node.groups.table.ready(group_id, is_written=False, needs_id=needs_id)
        row = error_row(group_id, error) if error else row_of(group_id, node.groups.groups.get(group_id))
        if wants_operations(row):
            row["authorized_operations"] = node.authorizer.allowed_operations(context, ResourceType.GROUP, group_id)
        rows.append(row)
    return {"groups": rows}


async def describe_groups_of(
    node: Node, context: RequestContext, request: DescribeRequest, kind: type[G], name: str, details: Callable[[G], Row]
) -> Row:
    """Return the response of ConsumerGroupDescribe or ShareGroupDescribe, with the group's assignor and members."""

    def row_of(group_id: str, group: Group | None) -> Row:
        if not isinstance(group, kind):
            reason = "not found" if group is None else f"is not a {name} group"
            return described_row(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
        allows = node.authorizer.allows
        if not all(allows(context, Operation.DESCRIBE, ResourceType.TOPIC, one) for one in group.subscribed_topics()):
            return described_row(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, _DENIED)
        return described_row(group_id, 0) | {
            "group_state": str(group.state),
            "group_epoch": group.epoch,
            "assignment_epoch": group.target_epoch,
            **details(group),
        }

    return await describe_groups(
        node, context, request.group_ids, described_row, row_of,
        lambda row: request.include_authorized_operations and not row["error_code"],
    )  # fmt: skip


def described_row(group_id: str, code: int, message: str | None = None) -> Row:
    """Return a group's row in such a response without what the group has."""
    return {
        "error_code": int(code),
        "error_message": message or ErrorCode(code).message,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }


def refused_groups(node: Node, context: RequestContext, request: DescribeRequest, error: Refused) -> Row:
    """Return the same error for each group."""
    return {"groups": [described_row(group_id, error.code, error.message) for group_id in request.group_ids]}


def assignment_tree(node: Node, partitions: Mapping[UUID, frozenset[int]]) -> Row:
    """Return an assignment in the form used in such a response, without deleted topics."""
    topics = ((node.topics.by_id(topic_id), numbers) for topic_id, numbers in partitions.items())
    return {
        "topic_partitions": [
            {"topic_id": topic.id, "topic_name": topic.name, "partitions": sorted(numbers)}
            for topic, numbers in topics
            if topic is not None
        ]
    }
