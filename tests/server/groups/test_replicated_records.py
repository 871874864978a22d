"""Members of a group on several nodes are answered once the group's record is replicated."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kafkalog.server.groups.group_log import OFFSETS_TOPIC
from kafkalog.server.replica.roles import Role
from tests.server.groups.groups import create_topic, join_group
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for
from tests.server.replica.partitions import settle

OTHER = 7


def with_a_follower(node: Any) -> Any:
    """The partition of group g, led here, with a follower in sync that has fetched nothing yet."""
    partition = node.replicas.partition(OFFSETS_TOPIC, node.groups.partition_for("g"))
    both = (node.node_id, OTHER)
    partition.become_leader(Role(node.node_id, 1, partition.role.partition_epoch + 1, both, both))
    return partition


def replicated(node: Any, partition: Any) -> None:
    """Return True if the follower has every record."""
    role = partition.role
    alone = Role(node.node_id, role.leader_epoch, role.partition_epoch + 1, (node.node_id,), (node.node_id,))
    partition.become_leader(alone)
    node.replicas.appended_to(partition)


@in_loop
async def test_a_static_member_is_answered_once_its_record_is_replicated(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        joined = await join_group(node, group_instance_id="i")
        who = {"group_id": "g", "member_id": joined.member_id, "group_instance_id": "i"}
        given = [{"member_id": joined.member_id, "assignment": b"a"}]
        synced = await call(node, "sync_group", 4, {**who, "generation_id": 1, "assignments": given})
        assert synced.error_code == 0
        partition = with_a_follower(node)
        back = asyncio.ensure_future(join_group(node, group_instance_id="i"))
        await settle()
        assert not back.done()
        replicated(node, partition)
        answer = await back
        assert (answer.error_code, answer.generation_id) == (0, 1) and answer.member_id != joined.member_id


@in_loop
async def test_assignments_are_handed_out_once_they_are_replicated(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        joined = await join_group(node)
        partition = with_a_follower(node)
        given = [{"member_id": joined.member_id, "assignment": b"a"}]
        tree = {"group_id": "g", "member_id": joined.member_id, "generation_id": 1, "assignments": given}
        synced = asyncio.ensure_future(call(node, "sync_group", 4, tree))
        await settle()
        assert not synced.done()
        replicated(node, partition)
        assert bytes((await synced).assignment) == b"a"
