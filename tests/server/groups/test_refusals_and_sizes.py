"""Rejected requests change nothing, and large records are written in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.group_log import OFFSETS_TOPIC, in_batches
from kafkalog.server.groups.records import Record
from tests.server.groups.groups import JOIN, commit_offset, create_topic, fetch_offset, form_group
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for


def end_of(node: Any, group_id: str = "g") -> int:
    return int(node.replicas.partition(OFFSETS_TOPIC, node.groups.partition_for(group_id)).log.log_end_offset)


async def beat(node: Any, **more: Any) -> int:
    joining = {"member_id": "m", "member_epoch": 0, "rebalance_timeout": 60_000, "topic_partitions": []}
    fields = {"group_id": "g", **joining, "subscribed_topic_names": ["t"], **more}
    return int((await call(node, "consumer_group_heartbeat", 1, fields)).error_code)


def test_batches_have_room_for_their_records() -> None:
    made = [Record(b"k" * size, None) for size in (10, 500, 500, 10, 2000, 10)]
    assert [[len(key) for key, _ in batch] for batch in in_batches(made, 1000)] == [[10, 500], [500, 10], [2000], [10]]
    assert [len(batch) for batch in in_batches(made[:1] * 2500, 1 << 20)] == [1000, 1000, 500]
    assert not list(in_batches([], 0))


@in_loop
async def test_a_group_with_a_long_name_and_many_offsets_can_be_deleted(tmp_path: Path) -> None:
    """Its tombstones, each with the name, are more than one batch may have."""
    name = "g" * 30_000
    async with node_for(tmp_path) as node:
        await create_topic(node, partitions=60)
        for partition in range(60):
            assert await commit_offset(node, 1, name, partition=partition) == 0
        assert (await call(node, "delete_groups", 2, {"groups_names": [name]})).results[0].error_code == 0
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        assert node.groups.overview() == []


@in_loop
async def test_a_heartbeat_that_is_refused_leaves_the_classic_group_as_it_was(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        member = await form_group(node)
        rows = [{"member_id": member.member_id, "group_instance_id": None}]
        await call(node, "leave_group", 4, {"group_id": "g", "members": rows})
        end = end_of(node)
        wrong = {"subscribed_topic_names": None, "subscribed_topic_regex": "("}
        assert await beat(node, **wrong) == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert end_of(node) == end
        assert node.groups.overview()[0].group_type == "classic"
        assert await beat(node) == 0
        assert node.groups.overview()[0].group_type == "consumer"
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        assert node.groups.overview()[0].group_type == "consumer"


@in_loop
async def test_a_join_that_is_refused_leaves_the_consumer_group_as_it_was(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        assert await commit_offset(node, 3) == await beat(node) == await beat(node, member_epoch=-1) == 0
        end = end_of(node)
        refused = await call(node, "join_group", 9, {**JOIN, "group_id": "g", "protocols": []})
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert end_of(node) == end
        assert node.groups.overview()[0].group_type == "consumer"
        await form_group(node)
        assert node.groups.overview()[0].group_type == "classic"
        assert (await fetch_offset(node)).committed_offset == 3
