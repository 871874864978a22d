"""OffsetCommit and OffsetFetch answer each partition by itself, in the form that each version knows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.commits import Committer, NewOffset
from kafkalog.server.requests.cooperative_yield import TURN_ROWS
from tests.server.groups.groups import BEHIND_ACLS, CLERK, allow, commit_offset, create_topic
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for

NOWHERE = UUID(int=77)


def rows_of(topics: Any) -> list[tuple[Any, ...]]:
    """(topic, partition, code, offset, metadata) of each partition, in the order of the answer."""
    return [
        (getattr(row, "name", None) or row.topic_id, one.partition_index, one.error_code, one.committed_offset,
         one.metadata)
        for row in topics for one in row.partitions
    ]  # fmt: skip


@pytest.mark.parametrize("version", range(1, 11))
@in_loop
async def test_a_group_that_may_not_be_seen_is_refused_in_the_form_of_the_version(tmp_path: Path, version: int) -> None:
    code = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    async with node_for(tmp_path, **BEHIND_ACLS) as node:
        made = await create_topic(node)
        assert await commit_offset(node, 5) == 0
        names = [{"name": "t", "topic_id": made.id, "partition_indexes": [0, 1]}]
        group = {"group_id": "g", "topics": names}
        tree = {"groups": [group], "require_stable": True} if version >= 8 else {**group, "require_stable": True}
        answer = await call(node, "offset_fetch", version, tree, connection=CLERK)
        if version >= 8:
            [answer] = answer.groups
            assert answer.group_id == "g"
        if version >= 2:
            assert (answer.error_code, answer.topics) == (code, ())
        else:
            assert rows_of(answer.topics) == [("t", 0, code, -1, ""), ("t", 1, code, -1, "")]


@in_loop
async def test_topics_that_may_not_be_seen_are_refused_beside_others(tmp_path: Path) -> None:
    denied, unknown = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), int(ErrorCode.UNKNOWN_TOPIC_ID)
    async with node_for(tmp_path, **BEHIND_ACLS) as node:
        ids = {name: (await create_topic(node, name, 3)).id for name in "tu"}
        for name, index, offset in (("t", 2, 7), ("t", 0, 5), ("u", 0, 6)):
            assert await commit_offset(node, offset, topic=name, partition=index) == 0
        await allow(node, (3, "g", 8), (2, "t", 8))
        found = [("t", 0, 0, 5, "m"), ("t", 1, 0, -1, "")]
        for version in (7, 9):
            named = [{"name": name, "partition_indexes": [0, 1]} for name in ("u", "t")]
            group = {"group_id": "g", "topics": named}
            tree = {"groups": [group], "require_stable": False} if version >= 8 else {**group, "require_stable": False}
            answer = await call(node, "offset_fetch", version, tree, connection=CLERK)
            topics = answer.groups[0].topics if version >= 8 else answer.topics
            assert rows_of(topics) == [("u", 0, denied, -1, ""), ("u", 1, denied, -1, ""), *found]
        named = [{"topic_id": one, "partition_indexes": [0]} for one in (NOWHERE, ids["u"], ids["t"])]
        tree = {"groups": [{"group_id": "g", "topics": named}]}
        answer = await call(node, "offset_fetch", 10, tree, connection=CLERK)
        assert rows_of(answer.groups[0].topics) == [
            (NOWHERE, 0, unknown, -1, ""), (ids["u"], 0, denied, -1, ""), (ids["t"], 0, 0, 5, "m"),
        ]  # fmt: skip
        for version, name in ((9, "t"), (10, ids["t"])):
            tree = {"groups": [{"group_id": "g", "topics": None}], "require_stable": False}
            answer = await call(node, "offset_fetch", version, tree, connection=CLERK)
            assert rows_of(answer.groups[0].topics) == [(name, 0, 0, 5, "m"), (name, 2, 0, 7, "m")]


@pytest.mark.parametrize("version", [9, 10])
@in_loop
async def test_commits_that_are_refused_stand_beside_those_that_are_kept(tmp_path: Path, version: int) -> None:
    is_by_id = version == 10
    unknown = int(ErrorCode.UNKNOWN_TOPIC_ID if is_by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    async with node_for(tmp_path, **BEHIND_ACLS) as node:
        ids = {name: (await create_topic(node, name)).id for name in "tu"} | {"gone": NOWHERE}
        await allow(node, (3, "g", 3), (2, "t", 3), (2, "gone", 3))
        rows = [{"partition_index": one, "committed_offset": 5, "committed_metadata": "m"} for one in (0, 2)]
        tree = {"group_id": "g", "member_id": "", "generation_id_or_member_epoch": -1, "topics": [
            {"name": name, "topic_id": ids[name], "partitions": rows} for name in ("u", "gone", "t")
        ]}  # fmt: skip
        answer = await call(node, "offset_commit", version, tree, connection=CLERK)
        denied, missing = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert [
            (row.topic_id if is_by_id else row.name, [(one.partition_index, one.error_code) for one in row.partitions])
            for row in answer.topics
        ] == [
            (ids[name] if is_by_id else name, [(0, first), (2, second)])
            for name, first, second in (("u", denied, denied), ("gone", unknown, unknown), ("t", 0, missing))
        ]  # fmt: skip
        assert set(node.groups.offsets.all_of("g")) == {("t", 0)}


@in_loop
async def test_offsets_of_a_topic_that_is_gone_are_told_by_name_alone(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        made = await create_topic(node)
        offsets = {(name, 0): NewOffset(4, -1, "m") for name in ("gone", "t")}
        assert set((await node.groups.commits.commit("g", Committer(), offsets)).values()) == {0}
        for version, expected in ((9, [("gone", 0, 0, 4, "m"), ("t", 0, 0, 4, "m")]), (10, [(made.id, 0, 0, 4, "m")])):
            tree = {"groups": [{"group_id": "g", "topics": None}], "require_stable": False}
            assert rows_of((await call(node, "offset_fetch", version, tree)).groups[0].topics) == expected


@in_loop
async def test_offsets_are_told_to_members_in_their_epoch_and_to_who_is_none(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        beat = {"group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout": 60_000}
        more = {"topic_partitions": [], "subscribed_topic_names": ["t"]}
        joined = await call(node, "consumer_group_heartbeat", 1, {**beat, **more})
        assert joined.error_code == 0
        for member_id, epoch, code in (
            ("m", joined.member_epoch, 0), ("m", joined.member_epoch - 1, ErrorCode.STALE_MEMBER_EPOCH),
            ("n", joined.member_epoch, ErrorCode.UNKNOWN_MEMBER_ID), (None, -1, 0),
        ):  # fmt: skip
            names = [{"name": "t", "partition_indexes": [0]}]
            group = {"group_id": "g", "member_id": member_id, "member_epoch": epoch, "topics": names}
            answer = await call(node, "offset_fetch", 9, {"groups": [group], "require_stable": False})
            assert (answer.groups[0].error_code, len(answer.groups[0].topics)) == (int(code), not code)


COUNT = 20 * TURN_ROWS


@pytest.mark.parametrize(("topics", "turns"), [
    (None, 2 * COUNT // TURN_ROWS),
    ([{"name": f"n{at}", "partition_indexes": []} for at in range(COUNT)], COUNT // TURN_ROWS),
], ids=["all", "many topics"])  # fmt: skip
@in_loop
async def test_others_are_served_while_offsets_are_told(tmp_path: Path, topics: Any, turns: int) -> None:
    async with node_for(tmp_path) as node:
        node.topics._put((await create_topic(node))._replace(partitions=COUNT))  # of partitions that do not exist
        new = {("t", index): NewOffset(1, -1, "") for index in range(COUNT)}
        assert set((await node.groups.commits.commit("g", Committer(), new)).values()) == {0}
        tree = {"groups": [{"group_id": "g", "topics": topics}], "require_stable": False}
        asked = asyncio.ensure_future(call(node, "offset_fetch", 9, tree))
        taken = 0
        while not asked.done():
            await asyncio.sleep(0)
            taken += 1
        [group] = (await asked).groups
        assert max(len(group.topics), len(group.topics[0].partitions)) == COUNT
        assert taken >= turns
