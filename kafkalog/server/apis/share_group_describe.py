"""ShareGroupDescribe (KIP-932): a share group's epochs and members, with their assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.groups.share_group import ShareGroup, ShareMember
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.groups import Row, assignment_tree, describe_groups_of, refused_groups
from kafkalog.server.settings.features import SHARE

if TYPE_CHECKING:
    from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest

    from kafkalog.server.node.node import Node

refused = refused_groups


async def handle(node: Node, context: RequestContext, request: ShareGroupDescribeRequest) -> Answer:
    """Return a row for each requested group."""
    node.features.require(SHARE)

    def details(group: ShareGroup) -> Row:
        return {"assignor_name": "simple", "members": [_member(node, one) for one in group.members.values()]}

    return await describe_groups_of(node, context, request, ShareGroup, "share", details)


def _member(node: Node, one: ShareMember) -> Row:
    return {
        "member_id": one.id,
        "rack_id": one.rack_id,
        "member_epoch": one.epoch,
        "client_id": one.client_id,
        "client_host": one.client_host,
        "subscribed_topic_names": sorted(one.topics),
        "assignment": assignment_tree(node, one.assigned),
    }
