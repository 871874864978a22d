"""ConsumerGroupDescribe (KIP-848): a group's epochs and members, with their current and target assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.groups.consumer_group import NO_PARTITIONS, ConsumerGroup, ConsumerMember
from kafkalog.server.groups.consumer_heartbeat import assignor_of
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.groups import Row, assignment_tree, describe_groups_of, refused_groups
from kafkalog.server.settings.features import GROUP

if TYPE_CHECKING:
    from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest

    from kafkalog.server.node.node import Node

_CLASSIC, _CONSUMER = 0, 1
refused = refused_groups


async def handle(node: Node, context: RequestContext, request: ConsumerGroupDescribeRequest) -> Answer:
    """Return a row for each requested group."""
    node.features.require(GROUP)

    def details(group: ConsumerGroup) -> Row:
        members = [_member(node, group, one) for one in group.members.values()]
        return {"assignor_name": assignor_of(group, node.config["group.consumer.assignors"]), "members": members}

    return await describe_groups_of(node, context, request, ConsumerGroup, "consumer", details)


def _member(node: Node, group: ConsumerGroup, one: ConsumerMember) -> Row:
    return {
        "member_id": one.id,
        "instance_id": one.instance_id,
        "rack_id": one.rack_id,
        "member_epoch": one.epoch,
        "client_id": one.client_id,
        "client_host": one.client_host,
        "subscribed_topic_names": sorted(one.topics),
        "subscribed_topic_regex": one.regex or "",
        "assignment": assignment_tree(node, one.held),  # as in a broker, with what it must still revoke
        "target_assignment": assignment_tree(node, group.targets.get(one.id, NO_PARTITIONS)),
        "member_type": _CLASSIC if one.is_classic else _CONSUMER,
    }
