"""A request that names one thing many times is answered once for it: else a few bytes become gigabytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.server.groups.groups import commit_offset, create_topic
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for

MANY = 50
ONE_TOPIC = {"name": "t", "partition_indexes": [0] * MANY}
CALLS = [
    ("offset_fetch", 9, "groups", {"groups": [{"group_id": "g", "topics": None}] * MANY}),
    ("describe_groups", 6, "groups", {"groups": ["g"] * MANY, "include_authorized_operations": False}),
    ("consumer_group_describe", 1, "groups", {"group_ids": ["g"] * MANY, "include_authorized_operations": False}),
    ("describe_transactions", 0, "transaction_states", {"transactional_ids": ["x"] * MANY}),
    ("describe_producers", 0, "topics", {"topics": [ONE_TOPIC] * MANY}),
    ("describe_configs", 4, "results", {
        "resources": [{"resource_type": 2, "resource_name": "t", "configuration_keys": None}] * MANY,
    }),
]  # fmt: skip


@pytest.mark.parametrize(("name", "version", "rows", "tree"), CALLS)
@in_loop
async def test_what_is_named_many_times_is_told_once(
    tmp_path: Path, name: str, version: int, rows: str, tree: dict[str, Any]
) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        await commit_offset(node, 1)
        [row] = getattr(await call(node, name, version, tree), rows)
        if name == "describe_producers":
            assert len(row.partitions) == 1


@in_loop
async def test_an_offset_that_is_asked_for_many_times_is_told_once(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        await commit_offset(node, 1, metadata="x" * 4096)
        tree = {"groups": [{"group_id": "g", "topics": [ONE_TOPIC] * MANY}, {"group_id": "h", "topics": None}]}
        first, second = (await call(node, "offset_fetch", 9, tree)).groups
        assert (first.group_id, second.group_id) == ("g", "h")
        [topic] = first.topics
        assert [(one.partition_index, one.committed_offset) for one in topic.partitions] == [(0, 1)]
