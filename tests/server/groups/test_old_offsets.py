"""Offsets that grow old: from when their group became empty, and of topics that members do not read (KIP-211)."""

from __future__ import annotations

from pathlib import Path

from tests.server.groups.groups import commit_offset, create_topic, form_group
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for


@in_loop
async def test_offsets_of_a_consumer_group_grow_old_unless_its_members_read_the_topic(tmp_path: Path) -> None:
    async with node_for(tmp_path, offsets_retention_minutes=1) as node:
        for name in ("t", "u"):
            await create_topic(node, name)
        now = node.clock()
        node.clock = lambda: now
        for name in ("t", "u"):
            assert await commit_offset(node, 1, topic=name) == 0
        joined = await call(node, "consumer_group_heartbeat", 1, {
            "group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout": 1000, "topic_partitions": [],
            "subscribed_topic_names": ["t"],
        })  # fmt: skip
        assert joined.error_code == 0
        node.clock = lambda: now + 59_999
        assert await node.groups.expiry.expire() == 0
        node.clock = lambda: now + 60_000
        assert await node.groups.expiry.expire() == 1
        assert set(node.groups.offsets.all_of("g")) == {("t", 0)}
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        assert set(node.groups.offsets.all_of("g")) == {("t", 0)}
        assert node.groups.overview()[0].members == 1


@in_loop
async def test_offsets_of_a_group_that_became_empty_grow_old_from_then_on(tmp_path: Path) -> None:
    async with node_for(tmp_path, offsets_retention_minutes=1) as node:
        await create_topic(node)
        now = node.clock()
        node.clock = lambda: now
        member = await form_group(node)
        who = {"member_id": member.member_id, "generation_id_or_member_epoch": member.generation_id}
        assert await commit_offset(node, 1, **who) == 0
        node.clock = lambda: now + 50_000
        rows = [{"member_id": member.member_id, "group_instance_id": None}]
        assert (await call(node, "leave_group", 4, {"group_id": "g", "members": rows})).error_code == 0
    async with node_for(tmp_path, offsets_retention_minutes=1) as node:
        await node.groups.loaded()
        for later_ms, expected in ((50_000 + 59_999, 0), (50_000 + 60_000, 1)):
            node.clock = lambda later_ms=later_ms: now + later_ms
            assert await node.groups.expiry.expire() == expected
        assert node.groups.overview() == [], "a group without members goes with its last offset"
