"""OffsetDelete answers each partition by itself: what it refuses stays, and the others go (KIP-496)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.error_codes import ErrorCode
from tests.server.groups.groups import BEHIND_ACLS, CLERK, READS_T, allow, commit_offset, create_topic, join_group
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for


async def deleted(node: Any, *places: tuple[str, int], **more: Any) -> dict[tuple[str, int], int]:
    """The error code of each partition."""
    rows = [{"name": name, "partitions": [{"partition_index": index}]} for name, index in places]
    answer = await call(node, "offset_delete", 0, {"group_id": "g", "topics": rows}, **more)
    assert answer.error_code == 0
    return {(one.name, row.partition_index): row.error_code for one in answer.topics for row in one.partitions}


def committed_places(node: Any) -> set[tuple[str, int]]:
    return set(node.groups.offsets.all_of("g"))


async def with_offsets(node: Any, **who: Any) -> None:
    for name in ("t", "u"):
        await create_topic(node, name)
    for name in ("t", "u"):
        assert await commit_offset(node, 1, topic=name, **who) == 0


@in_loop
async def test_offsets_of_a_topic_that_members_read_are_kept(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        joined = await join_group(node, protocols=[{"name": "range", "metadata": READS_T}])
        given = [{"member_id": joined.member_id, "assignment": b""}]
        who = {"group_id": "g", "member_id": joined.member_id}
        await call(node, "sync_group", 4, {**who, "generation_id": joined.generation_id, "assignments": given})
        await with_offsets(
            node, member_id=joined.member_id, generation_id_or_member_epoch=joined.generation_id
        )
        assert await deleted(node, ("t", 0), ("u", 0)) == {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ("u", 0): 0}
        assert committed_places(node) == {("t", 0)}
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        assert committed_places(node) == {("t", 0)}


@pytest.mark.parametrize("place", [("gone", 0), ("t", 2), ("t", -1)], ids=["no topic", "no partition", "negative"])
@in_loop
async def test_a_partition_that_is_not_there_is_refused_and_others_go(tmp_path: Path, place: tuple[str, int]) -> None:
    async with node_for(tmp_path) as node:
        await with_offsets(node)
        assert await deleted(node, place, ("u", 0)) == {place: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ("u", 0): 0}
        assert committed_places(node) == {("t", 0)}


@in_loop
async def test_offsets_of_a_topic_that_one_may_not_read_are_kept(tmp_path: Path) -> None:
    async with node_for(tmp_path, **BEHIND_ACLS) as node:
        await with_offsets(node)
        await allow(node, (3, "g", 6), (2, "u", 3))  # DELETE the group, READ topic u
        codes = await deleted(node, ("t", 0), ("u", 0), connection=CLERK)
        assert codes == {("t", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED, ("u", 0): 0}
        assert committed_places(node) == {("t", 0)}


@pytest.mark.parametrize(("kind", "metadata", "codes"), [
    ("connect", READS_T, ErrorCode.NON_EMPTY_GROUP),
    ("consumer", b"no subscription", {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
                                      ("u", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}),
    ("consumer", READS_T, {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ("u", 0): 0}),
    ("consumer", b"\0\1" + READS_T[2:], {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ("u", 0): 0}),  # no owned ones
])  # fmt: skip
@in_loop
async def test_of_a_group_with_members_offsets_go_where_it_is_known_what_they_read(
    tmp_path: Path, kind: str, metadata: bytes, codes: Any
) -> None:
    async with node_for(tmp_path) as node:
        await with_offsets(node)
        joined = await join_group(node, protocol_type=kind, protocols=[{"name": "range", "metadata": metadata}])
        who = {"group_id": "g", "member_id": joined.member_id}
        given = [{"member_id": joined.member_id, "assignment": b""}]
        await call(node, "sync_group", 4, {**who, "generation_id": joined.generation_id, "assignments": given})
        if isinstance(codes, dict):
            assert await deleted(node, ("t", 0), ("u", 0)) == codes
            assert committed_places(node) == {place for place, code in codes.items() if code}
        else:
            rows = [{"name": "t", "partitions": [{"partition_index": 0}]}]
            answer = await call(node, "offset_delete", 0, {"group_id": "g", "topics": rows})
            assert (answer.error_code, answer.topics, committed_places(node)) == (codes, (), {("t", 0), ("u", 0)})
        members = [{"member_id": joined.member_id, "group_instance_id": None}]
        assert (await call(node, "leave_group", 4, {"group_id": "g", "members": members})).error_code == 0
        assert await deleted(node, ("t", 0), ("u", 0)) == {("t", 0): 0, ("u", 0): 0}, "it has no members"
        assert committed_places(node) == set()
