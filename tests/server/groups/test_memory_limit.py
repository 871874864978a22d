"""Group members' memory is counted and bounded: clients that keep joining and leaving leave nothing behind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.classic_member import ClassicMember, Members
from kafkalog.server.groups.memory_limit import MEMBER_BYTES
from tests.server.groups.groups import JOIN, commit_offset, create_topic, form_group, join_group
from tests.server.groups.test_rebalance import joining
from tests.server.looping import in_loop, pass_time
from tests.server.nodes import call, node_for
from tests.server.replica.copies import until

PROTOCOLS = st.lists(st.tuples(st.sampled_from(["range", "sticky", "roundrobin"]), st.binary(max_size=9)), max_size=4)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["join", "change", "leave"]), PROTOCOLS)))
def test_members_know_what_they_hold_and_speak(steps: list[tuple[str, str, Any]]) -> None:
    members = Members()
    for name, step, protocols in steps:
        event = joining(name, protocols=tuple(protocols))
        if step == "join":
            members[name] = ClassicMember.of(event, name)
        elif name in members and step == "change":
            members.change(members[name], event)
        elif name in members:
            del members[name]
    spoken = [{protocol for protocol, _ in one.protocols} for one in members.values()]
    assert members.held_bytes == sum(one.held_bytes for one in members.values())
    assert members.common() == (set.intersection(*spoken) if spoken else set())


@in_loop
async def test_strangers_that_never_come_back_are_bounded_and_forgotten(tmp_path: Path) -> None:
    room = 8
    settings: dict[str, Any] = {"kafkalog_groups_members_max_bytes": room * MEMBER_BYTES + 1000}
    async with node_for(tmp_path, **settings) as node:
        codes = []
        for number in range(room + 5):
            fields = {**JOIN, "group_id": f"g{number % 3}"}
            codes.append((await call(node, "join_group", 9, fields)).error_code)
        assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * room + [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 5
        pass_time(61)
        await until(lambda: not node.groups.groups)
        assert node.groups.table.memory.total == 0
        await create_topic(node)
        await form_group(node)  # there is room again
        held = node.groups.table.memory.total
        assert held >= MEMBER_BYTES
    async with node_for(tmp_path, **settings) as node:
        await node.groups.loaded()
        assert node.groups.table.memory.total == held, "as much as before the restart"


@in_loop
async def test_metadata_that_no_record_can_have_does_not_break_the_group(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        member = await form_group(node)
        huge = [{"name": "range", "metadata": bytes(2 << 20)}]
        assert (await join_group(node, protocols=huge)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        beat = {"group_id": "g", "generation_id": 1, "member_id": member.member_id}
        assert (await call(node, "heartbeat", 4, beat)).error_code == 0, "other members were not disturbed"


@pytest.mark.parametrize("codec", [0, 4])
@in_loop
async def test_assignments_count_even_where_their_record_is_small(tmp_path: Path, codec: int) -> None:
    settings: dict[str, Any] = {"kafkalog_groups_members_max_bytes": 400_000}
    async with node_for(tmp_path, offsets_topic_compression_codec=codec, **settings) as node:
        await create_topic(node)
        member = await join_group(node)
        for size, code in ((500_000, ErrorCode.COORDINATOR_NOT_AVAILABLE), (300_000, 0)):
            synced = await call(node, "sync_group", 5, {
                "group_id": "g", "generation_id": 1, "member_id": member.member_id, "protocol_type": "consumer",
                "protocol_name": "range", "assignments": [{"member_id": member.member_id, "assignment": bytes(size)}],
            })  # fmt: skip
            assert synced.error_code == code
        assert node.groups.table.memory.total > 300_000
        assert (await call(node, "join_group", 9, {
            **JOIN, "group_id": "h", "protocols": [{"name": "range", "metadata": bytes(100_000)}]
        })).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE  # fmt: skip
        members = [{"member_id": member.member_id, "group_instance_id": None}]
        left = await call(node, "leave_group", 4, {"group_id": "g", "members": members})
        assert left.error_code == 0
        assert (await call(node, "delete_groups", 2, {"groups_names": ["g"]})).results[0].error_code == 0
        assert node.groups.table.memory.total == 0


@in_loop
async def test_members_of_consumer_groups_count_too(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"kafkalog_groups_members_max_bytes": 3 * MEMBER_BYTES}
    async with node_for(tmp_path, **settings) as node:
        await create_topic(node)

        async def beat(member_id: str, epoch: int = 0, names: list[str] | None = None) -> int:
            fields = {"group_id": "g", "member_id": member_id, "member_epoch": epoch, "rebalance_timeout": 60_000}
            more = {"topic_partitions": [], "subscribed_topic_names": names or ["t"]}
            answer = await call(node, "consumer_group_heartbeat", 1, {**fields, **more})
            return int(answer.error_code)

        assert [await beat(one) for one in "abc"] == [0, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert await beat("a", 0, [f"t{number}" for number in range(100)]) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await beat("a", -1) == await beat("c") == 0
        assert await beat("b", -1) == await beat("c", -1) == 0
        assert node.groups.table.memory.total == 0


@in_loop
async def test_who_commits_nothing_makes_no_group(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        nothing = {"group_id": "g", "member_id": "", "generation_id_or_member_epoch": -1, "topics": []}
        assert (await call(node, "offset_commit", 9, nothing)).topics == ()
        assert await commit_offset(node, 1, metadata="x" * 5000) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert node.groups.overview() == []


LONG = "n" * 32_000


@in_loop
async def test_long_names_of_members_count(tmp_path: Path) -> None:
    """Without a limit for them, members of a few bytes each could hold a hundred times as much in names."""
    settings: dict[str, Any] = {"kafkalog_groups_members_max_bytes": 200_000}
    async with node_for(tmp_path, group_initial_rebalance_delay_ms=60_000, **settings) as node:
        await create_topic(node)
        first = await call(node, "join_group", 9, {**JOIN, "group_id": "g"}, client_id=LONG)
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED and len(first.member_id) < 200
        waiting = [
            asyncio.ensure_future(call(node, "join_group", 3, {**JOIN, "group_id": "g"}, client_id=LONG))
            for _ in range(10)
        ]
        members = node.groups.groups["g"].members
        await until(lambda: len(members) + sum(one.done() for one in waiting) == len(waiting))
        refused = [one.result().error_code for one in waiting if one.done()]
        assert set(refused) == {ErrorCode.COORDINATOR_NOT_AVAILABLE} and 2 <= len(members) <= 4
    await asyncio.gather(*waiting)


@in_loop
async def test_long_ids_of_consumer_groups_members_count(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"kafkalog_groups_members_max_bytes": 200_000}
    async with node_for(tmp_path, **settings) as node:
        await create_topic(node)
        codes = []
        for number in range(10):
            fields = {"group_id": "g", "member_id": f"{LONG}{number}", "member_epoch": 0, "rebalance_timeout": 60_000}
            more = {"topic_partitions": [], "subscribed_topic_names": ["t"]}
            codes.append((await call(node, "consumer_group_heartbeat", 1, {**fields, **more})).error_code)
        assert codes == sorted(codes) and 2 <= codes.count(0) <= 4
