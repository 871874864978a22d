"""Offsets that grow old beside members: those of topics that a consumer group does not read, and not the others."""

from __future__ import annotations

from pathlib import Path

from tests.server.groups.groups import commit, topic
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for


@in_loop
async def test_offsets_of_a_consumer_group_grow_old_unless_its_members_read_the_topic(tmp_path: Path) -> None:
    async with node_for(tmp_path, offsets_retention_minutes=1) as node:
        for name in ("t", "u"):
            await topic(node, name)
        now = node.clock()
        node.clock = lambda: now
        for name in ("t", "u"):
            assert await commit(node, 1, topic=name) == 0
        joined = await call(node, "consumer_group_heartbeat", 1, {
            "group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout": 1000, "topic_partitions": [],
            "subscribed_topic_names": ["t"],
        })  # fmt: skip
        assert joined.error_code == 0
        node.clock = lambda: now + 59_999
        assert await node.groups.expire() == 0
        node.clock = lambda: now + 60_000
        assert await node.groups.expire() == 1
        assert set(node.groups.offsets.all_of("g")) == {("t", 0)}
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        assert set(node.groups.offsets.all_of("g")) == {("t", 0)}
        assert node.groups.overview()[0].members == 1
