"""Groups of a whole node, through the bytes of requests: the codes a broker gives, restarts, deletion, old age."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.commits import Committer, NewOffset
from kafkalog.server.groups.values import CommittedOffset, KeptPosition
from tests.server.groups.groups import JOIN, READS_T, commit_offset, create_topic, fetch_offset, form_group, join_group
from tests.server.looping import in_loop, pass_time
from tests.server.nodes import call, node_for
from tests.server.replica.copies import until


@in_loop
async def test_a_member_joins_commits_and_leaves(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        found = await call(node, "find_coordinator", 6, {"key_type": 0, "coordinator_keys": ["g", ""]})
        assert [(one.error_code, one.node_id, one.port) for one in found.coordinators] == [(0, node.node_id, 9092)] * 2
        joined = await form_group(node)
        who = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
        assert await commit_offset(node, 5, **who) == 0
        assert await commit_offset(node, 5) == ErrorCode.UNKNOWN_MEMBER_ID
        other = who | {"generation_id_or_member_epoch": 9}
        assert await commit_offset(node, 5, **other) == ErrorCode.ILLEGAL_GENERATION
        assert await commit_offset(node, 5, metadata="x" * 4097, **who) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await commit_offset(node, 5, topic="nowhere", **who) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for number in (-1, -(2**31), 2):
            assert await commit_offset(node, 5, partition=number, **who) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await fetch_offset(node)).committed_offset == 5
        described = (await call(node, "describe_groups", 6, {"groups": ["g"], "include_authorized_operations": True}))
        [group] = described.groups
        assert (group.group_state, group.protocol_data, group.authorized_operations) == ("Stable", "range", 3400)
        assert bytes(group.members[0].member_assignment) == b"a"
        assert (await call(node, "delete_groups", 2, {"groups_names": ["g"]})).results[0].error_code == 68
        left = await call(node, "leave_group", 5, {"group_id": "g", "members": [{"member_id": joined.member_id}]})
        assert (left.error_code, left.members[0].error_code) == (0, 0)
        assert (await call(node, "delete_groups", 2, {"groups_names": ["g", "h"]})).results == (
            ("g", 0), ("h", ErrorCode.GROUP_ID_NOT_FOUND),
        )  # fmt: skip
        assert (await fetch_offset(node)).committed_offset == -1


@pytest.mark.parametrize(
    ("name", "version", "tree", "code"),
    [
        ("join_group", 9, {**JOIN, "group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ("join_group", 9, {**JOIN, "group_id": "g", "session_timeout": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ("join_group", 9, {**JOIN, "group_id": "g", "member_id": "z"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("heartbeat", 4, {"group_id": "g", "generation_id": 1, "member_id": "z"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("leave_group", 0, {"group_id": "g", "member_id": "z"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("sync_group", 5, {"group_id": "g", "generation_id": 1, "member_id": "z", "assignments": []},
         ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("sync_group", 4, {"group_id": "g", "generation_id": 1, "member_id": "z", "assignments": []},
         ErrorCode.UNKNOWN_MEMBER_ID),
        ("offset_delete", 0, {"group_id": "g", "topics": []}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)  # fmt: skip
@in_loop
async def test_what_a_broker_refuses_is_refused_alike(
    tmp_path: Path, name: str, version: int, tree: dict[str, Any], code: int
) -> None:
    async with node_for(tmp_path) as node:
        assert (await call(node, name, version, tree)).error_code == code


@in_loop
async def test_groups_that_nobody_knows(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        assert await commit_offset(node, 1, version=8, generation_id_or_member_epoch=3) == ErrorCode.ILLEGAL_GENERATION
        assert await commit_offset(node, 1, generation_id_or_member_epoch=3) == ErrorCode.GROUP_ID_NOT_FOUND
        for_ever = {("t", 0): NewOffset(1, -1, "")}
        assert await node.groups.commits.commit("for-ever", Committer(), for_ever, 2**63 - 1) == {("t", 0): 0}
        old = (await call(node, "describe_groups", 5, {"groups": ["no"], "include_authorized_operations": False}))
        assert (old.groups[0].error_code, old.groups[0].group_state) == (0, "Dead")
        new = (await call(node, "describe_groups", 6, {"groups": ["no"], "include_authorized_operations": False}))
        assert (new.groups[0].error_code, new.groups[0].error_message) == (69, "Group no not found.")
        assert (await fetch_offset(node, "no")).committed_offset == -1


@in_loop
async def test_a_group_is_there_again_after_a_restart(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        joined = await form_group(node, assignment=b"mine")
        who = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
        await commit_offset(node, 5, **who)
        await commit_offset(node, 7, "simple")
        await commit_offset(node, 8, "gone")
        await call(node, "delete_groups", 2, {"groups_names": ["gone"]})
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        assert [(one.group_id, one.state, one.members, one.protocol_type) for one in node.groups.overview()] == [
            ("g", "Stable", 1, "consumer"), ("simple", "Empty", 0, ""),
        ]  # fmt: skip
        beat = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
        assert (await call(node, "heartbeat", 4, beat)).error_code == 0
        again = await call(node, "sync_group", 4, {**beat, "assignments": []})
        assert bytes(again.assignment) == b"mine"
        assert (await fetch_offset(node)).committed_offset == 5
        assert (await fetch_offset(node, "simple")).committed_offset == 7
        assert (await fetch_offset(node, "gone")).committed_offset == -1


@in_loop
async def test_a_second_member_makes_the_first_join_again(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        first = await form_group(node)
        second = asyncio.create_task(join_group(node))
        beat = {"group_id": "g", "generation_id": first.generation_id, "member_id": first.member_id}
        while (await call(node, "heartbeat", 4, beat)).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            await asyncio.sleep(0.01)
        again = await call(node, "join_group", 9, {**JOIN, "group_id": "g", "member_id": first.member_id})
        assert (again.generation_id, len(again.members)) == (2, 2)
        assert (await second).generation_id == 2


@in_loop
async def test_requests_that_wait_are_answered_when_the_node_stops(tmp_path: Path) -> None:
    async with node_for(tmp_path, group_initial_rebalance_delay_ms=60_000) as node:
        first = await call(node, "join_group", 9, {**JOIN, "group_id": "g"})
        waiting = asyncio.create_task(
            call(node, "join_group", 9, {**JOIN, "group_id": "g", "member_id": first.member_id})
        )
        await asyncio.sleep(0.05)
        assert not waiting.done()
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR


@in_loop
async def test_offsets_of_a_transaction(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        await commit_offset(node, 1)
        new = {("t", 0): CommittedOffset(5, -1, "", 0)}
        for producer_id, is_committed, expected in ((7, False, 1), (8, True, 5)):
            assert await node.groups.commits.commit_in_transaction("g", "x", producer_id, 0, new) == {("t", 0): 0}
            assert (await fetch_offset(node)).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
            assert (await call(node, "delete_groups", 2, {"groups_names": ["h"]})).results[0].error_code == 69
            node.groups.commits.on_transaction_ended(producer_id, 0, [node.groups.partition_for("g")], is_committed)
            assert ((await fetch_offset(node)).error_code, (await fetch_offset(node)).committed_offset) == (0, expected)
        assert await node.groups.commits.commit_in_transaction("g", "x", 9, 0, new, "m", 3) == {("t", 0): 25}


@in_loop
async def test_an_open_transaction_is_open_after_a_restart(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        await node.groups.commits.commit_in_transaction("g", "x", 7, 0, {("t", 0): CommittedOffset(5, -1, "", 0)})
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        assert (await fetch_offset(node)).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        node.groups.commits.on_transaction_ended(7, 0, [node.groups.partition_for("g")], True)
        assert (await fetch_offset(node)).committed_offset == 5


@in_loop
async def test_offsets_go_with_their_topic_and_by_name(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        await create_topic(node, "u")
        await commit_offset(node, 1)
        await commit_offset(node, 2, topic="u")
        gone = {"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]}
        deleted = await call(node, "offset_delete", 0, gone)
        assert (deleted.error_code, deleted.topics[0].partitions[0].error_code) == (0, 0)
        assert set(node.groups.offsets.all_of("g")) == {("u", 0)}
        await node.topics.delete("u")
        assert not node.groups.offsets.all_of("g")
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        assert not node.groups.offsets.groups()


@in_loop
async def test_what_nobody_needs_grows_old(tmp_path: Path) -> None:
    async with node_for(tmp_path, offsets_retention_minutes=1) as node:
        await create_topic(node)
        now = node.clock()
        await commit_offset(node, 1, "old")
        joined = await form_group(node, "read")
        who = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
        await commit_offset(node, 1, "read", **who)
        node.clock = lambda: now + 59_000
        assert await node.groups.expiry.expire() == 0
        node.clock = lambda: now + 120_000
        assert await node.groups.expiry.expire() == 1
        assert [one.group_id for one in node.groups.overview()] == ["read"], "what its members read is not known"
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        assert [one.group_id for one in node.groups.overview()] == ["read"]


@in_loop
async def test_a_consumer_group_lives_through_a_restart(tmp_path: Path) -> None:
    beat = {"group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout": 1000, "topic_partitions": [],
            "subscribed_topic_names": ["t"]}  # fmt: skip
    async with node_for(tmp_path) as node:
        made = await create_topic(node)
        joined = await call(node, "consumer_group_heartbeat", 1, beat)
        assert (joined.error_code, joined.member_epoch) == (0, 2)
        [row] = joined.assignment.topic_partitions
        assert (row.topic_id, row.partitions) == (made.id, (0, 1))
        who = {"member_id": "m", "generation_id_or_member_epoch": 2}
        assert await commit_offset(node, 3, **who) == 0
        other = who | {"generation_id_or_member_epoch": 1}
        assert await commit_offset(node, 3, **other) == ErrorCode.STALE_MEMBER_EPOCH
        assert await commit_offset(node, 3, version=8, **who) == ErrorCode.UNSUPPORTED_VERSION
        await node.topics.add_partitions("t", 3)
        again = await call(node, "consumer_group_heartbeat", 1, {
            "group_id": "g", "member_id": "m", "member_epoch": 2, "topic_partitions": None,
        })  # fmt: skip
        assert (again.member_epoch, again.assignment.topic_partitions[0].partitions) == (3, (0, 1, 2))
        assert await commit_offset(node, 3, **who) == 0, "it has had that partition since epoch 2"
        assert await commit_offset(node, 3, partition=2, **who) == ErrorCode.STALE_MEMBER_EPOCH
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        described = await call(
            node, "consumer_group_describe", 1, {"group_ids": ["g", "no"], "include_authorized_operations": False}
        )
        group, missing = described.groups
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 3, 3)
        assert group.members[0].assignment.topic_partitions[0].partitions == (0, 1, 2)
        assert (missing.error_code, missing.error_message) == (69, "Group no not found.")
        assert (await fetch_offset(node, member_id="m", member_epoch=3)).committed_offset == 3
        left = await call(node, "consumer_group_heartbeat", 1, {
            "group_id": "g", "member_id": "m", "member_epoch": -1, "topic_partitions": None,
        })  # fmt: skip
        assert (left.error_code, left.member_epoch) == (0, -1)
        joined = await join_group(node)
        assert joined.error_code == 0, "it has no members, so it becomes a classic one"
        listed = await call(node, "list_groups", 5, {"states_filter": [], "types_filter": ["classic"]})
        assert [one.group_id for one in listed.groups] == ["g"]
        assert (await fetch_offset(node)).committed_offset == 3


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "other"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": 3}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"group_id": "classic"}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
@in_loop
async def test_heartbeats_that_make_no_sense(tmp_path: Path, more: dict[str, Any], code: int) -> None:
    beat = {"group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout": 1000, "topic_partitions": [],
            "subscribed_topic_names": ["t"]}  # fmt: skip
    async with node_for(tmp_path) as node:
        await form_group(node, "classic")
        answer = await call(node, "consumer_group_heartbeat", 1, {**beat, **more})
        assert (answer.error_code, bool(answer.error_message)) == (code, True)
        assert "g" not in node.groups.groups


@in_loop
async def test_positions_that_readers_keep_by_name_are_offsets_of_groups(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        await commit_offset(node, 3, "newer")
        now = node.clock()
    kept = [
        KeptPosition("g", "t", 1, 7, 5), KeptPosition("newer", "t", 0, 1, 5), KeptPosition("older", "t", 0, 1, 5),
        KeptPosition("g", "t", 9, 7, 5), KeptPosition("g", "gone", 0, 7, 5),
    ]  # fmt: skip
    async with node_for(tmp_path, kept_positions=kept) as node:
        await node.groups.loaded()
        assert {one.group_id: one.offsets for one in node.groups.overview()} == {
            "g": {("t", 1): 7}, "newer": {("t", 0): 3}, "older": {("t", 0): 1},
        }  # fmt: skip
        taken = await fetch_offset(node, "older")
        assert (taken.committed_offset, taken.committed_leader_epoch, taken.metadata) == (1, -1, "")
        assert await commit_offset(node, 2, "older") == 0
    kept = [KeptPosition("older", "t", 0, 1, 5), KeptPosition("newer", "t", 0, 4, now + 10**9)]
    async with node_for(tmp_path, kept_positions=kept) as node:
        await node.groups.loaded()
        known = {one.group_id: one.offsets for one in node.groups.overview()}
        assert (known["older"], known["newer"]) == ({("t", 0): 2}, {("t", 0): 4}), "the one that came last counts"


@in_loop
async def test_many_records_are_read_again_and_damaged_ones_stop_their_partition_alone(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node, partitions=100)
        for number in range(30):
            offsets = {("t", index): NewOffset(number, -1, "x" * 40) for index in range(100)}
            for group_id in ("g", "h"):
                await node.groups.commits.commit(group_id, Committer(), offsets)
        partitions = {group_id: node.groups.partition_for(group_id) for group_id in ("g", "h")}
    assert len(set(partitions.values())) == 2
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        for group_id in ("g", "h"):
            known = node.groups.offsets.all_of(group_id)
            assert {place: one.offset for place, one in known.items()} == {("t", index): 29 for index in range(100)}
    damaged = tmp_path / f"__consumer_offsets-{partitions['g']}" / f"{0:020}.log"
    sound = damaged.read_bytes()
    middle = len(sound) // 2
    for at in (middle, middle + 100):  # of a batch: its offset, which no checksum covers, and its records
        content = bytearray(sound)
        content[at] ^= 1
        damaged.write_bytes(content)
        async with node_for(tmp_path) as node:
            await node.groups.loaded()
            assert await commit_offset(node, 1, "g") == ErrorCode.NOT_COORDINATOR
            assert await commit_offset(node, 1, "h") == 0


@in_loop
async def test_offsets_of_a_topic_are_not_those_of_the_next_one_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash between the delete of a topic and what takes its offsets back."""
    async with node_for(tmp_path) as node:
        await create_topic(node)
        assert await commit_offset(node, 5) == 0
        monkeypatch.setattr(node.groups.commits, "forget_topic", lambda name: None)
        await node.topics.delete("t")
    async with node_for(tmp_path) as node:
        made = await create_topic(node)
        await node.groups.loaded()
        assert (await fetch_offset(node)).committed_offset == -1
        everything = {"groups": [{"group_id": "g", "topics": None}], "require_stable": False}
        assert (await call(node, "offset_fetch", 9, everything)).groups[0].topics == ()
        rows = [{"topic_id": made.id, "partition_indexes": [0]}]
        answer = await call(node, "offset_fetch", 10, {"groups": [{"group_id": "g", "topics": rows}]})
        assert answer.groups[0].topics[0].partitions[0].committed_offset == -1
        assert await commit_offset(node, 1) == 0
        assert (await fetch_offset(node)).committed_offset == 1


@in_loop
async def test_the_topic_of_groups_does_not_grow_and_takes_them_along_when_it_is_deleted(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        await form_group(node)
        assert await commit_offset(node, 5, "simple") == 0
        wanted = [{"name": "__consumer_offsets", "count": 3, "assignments": None}]
        grown = await call(node, "create_partitions", 3, {"topics": wanted, "timeout": 1000, "validate_only": False})
        assert grown.results[0].error_code == ErrorCode.INVALID_REQUEST, "groups would be looked for elsewhere"
        assert (await fetch_offset(node, "simple")).committed_offset == 5
        await node.topics.delete("__consumer_offsets")
        assert (await fetch_offset(node, "simple")).committed_offset == -1, "as after a restart"
        assert node.groups.overview() == []
        assert await commit_offset(node, 7, "simple") == 0
        await form_group(node)
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        assert (await fetch_offset(node, "simple")).committed_offset == 7


def _beat(member_id: str, epoch: int = 0, owned: Mapping[UUID, tuple[int, ...]] | None = None) -> dict[str, Any]:
    rows = None if owned is None else [{"topic_id": one, "partitions": numbers} for one, numbers in owned.items()]
    more = {"rebalance_timeout": 60_000, "topic_partitions": [], "subscribed_topic_names": ["t"]}
    return {"group_id": "g", "member_id": member_id, "member_epoch": epoch, "topic_partitions": rows} | (
        more if epoch == 0 else {}
    )  # fmt: skip


@in_loop
async def test_a_member_is_out_by_its_own_name_alone(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        for member_id in ("m", "revoke m", "member m", "join"):
            assert (await call(node, "consumer_group_heartbeat", 1, _beat(member_id))).error_code == 0
        group = node.groups.groups["g"]
        node.groups.consumer.on_timer(group, "join")
        assert set(node.groups.groups["g"].members) == {"m", "revoke m", "member m", "join"}
        for member_id, left in (("revoke m", {"m", "member m", "join"}), ("member m", {"m", "join"})):
            node.groups.consumer.on_timer(node.groups.groups["g"], f"member {member_id}")
            assert set(node.groups.groups["g"].members) == left
        node.groups.consumer.on_timer(node.groups.groups["g"], "revoke m")
        assert set(node.groups.groups["g"].members) == {"join"}


@in_loop
async def test_each_revocation_has_its_own_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node_for(tmp_path) as node:
        made = await create_topic(node, partitions=6)
        begun: list[str] = []
        later = node.later

        def watched(delay_ms: float, callback: Any, *args: Any) -> Any:
            begun.extend(name for name in args if name == "revoke a")
            return later(delay_ms, callback, *args)

        monkeypatch.setattr(node, "later", watched)
        await call(node, "consumer_group_heartbeat", 1, _beat("a"))
        await call(node, "consumer_group_heartbeat", 1, _beat("b"))
        answered = await call(node, "consumer_group_heartbeat", 1, _beat("a", 2, {made.id: tuple(range(6))}))
        kept = answered.assignment.topic_partitions[0].partitions
        assert (len(kept), len(begun)) == (3, 1)
        await call(node, "consumer_group_heartbeat", 1, _beat("a", 2, {made.id: tuple(range(6))}))
        assert len(begun) == 1, "it continues with the previous assignment"
        await call(node, "consumer_group_heartbeat", 1, _beat("c"))
        again = await call(node, "consumer_group_heartbeat", 1, _beat("a", 2, {made.id: kept}))
        assert (len(again.assignment.topic_partitions[0].partitions), len(begun)) == (2, 2)


@in_loop
async def test_consumer_groups_are_served_where_the_settings_say_so(tmp_path: Path) -> None:
    beat = {"group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout": 1000, "topic_partitions": [],
            "subscribed_topic_names": ["t"]}  # fmt: skip
    async with node_for(tmp_path, group_coordinator_rebalance_protocols="classic") as node:
        await create_topic(node)
        answer = await call(node, "consumer_group_heartbeat", 1, beat)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await form_group(node)).error_code == 0


@in_loop
async def test_a_group_takes_as_many_members_as_the_setting_says(tmp_path: Path) -> None:
    async with node_for(tmp_path, group_max_size=1) as node:
        await form_group(node)
        assert (await join_group(node)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


@in_loop
async def test_who_gives_its_partitions_back_in_time_stays(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        made = await create_topic(node, partitions=4)
        await call(node, "consumer_group_heartbeat", 1, _beat("a"))
        await call(node, "consumer_group_heartbeat", 1, _beat("b"))
        answered = await call(node, "consumer_group_heartbeat", 1, _beat("a", 2, {made.id: (0, 1, 2, 3)}))
        assert node.groups.table.timers.has("g", "revoke a")
        kept = answered.assignment.topic_partitions[0].partitions
        done = await call(node, "consumer_group_heartbeat", 1, _beat("a", 2, {made.id: kept}))
        assert (done.error_code, done.member_epoch) == (0, 3)
        assert not node.groups.table.timers.has("g", "revoke a") and node.groups.table.timers.has("g", "member a")


@in_loop
async def test_a_member_commits_in_the_epoch_since_which_it_has_a_partition(tmp_path: Path) -> None:
    """KIP-1251: a commit that was under way while the epoch rose counts for what the member kept."""
    async with node_for(tmp_path) as node:
        made = await create_topic(node, partitions=4)
        await call(node, "consumer_group_heartbeat", 1, _beat("a"))
        since = (await call(node, "consumer_group_heartbeat", 1, _beat("b"))).member_epoch
        answered = await call(node, "consumer_group_heartbeat", 1, _beat("a", 2, {made.id: (0, 1, 2, 3)}))
        kept = answered.assignment.topic_partitions[0].partitions
        done = await call(node, "consumer_group_heartbeat", 1, _beat("a", 2, {made.id: kept}))
        first = node.groups.groups["g"].members["a"].epochs[made.id, kept[0]]
        assert first <= 2 < done.member_epoch == since == 3
        lost = next(number for number in range(4) if number not in kept)
        for epoch, number, code in [
            (first, kept[0], 0), (first - 1, kept[0], ErrorCode.STALE_MEMBER_EPOCH), (3, kept[0], 0),
            (4, kept[0], ErrorCode.STALE_MEMBER_EPOCH), (first, lost, ErrorCode.STALE_MEMBER_EPOCH),
        ]:  # fmt: skip
            who = {"member_id": "a", "generation_id_or_member_epoch": epoch}
            assert await commit_offset(node, 1, partition=number, **who) == code, (epoch, number)


@in_loop
async def test_who_joined_and_never_asks_for_its_assignment_is_out_when_its_time_is_over(tmp_path: Path) -> None:
    """Of the timers of a classic group each one ends what it is for: the wait for others, for a sync, for a beat."""
    async with node_for(tmp_path, group_initial_rebalance_delay_ms=20) as node:
        late = await join_group(node, "late", session_timeout=600_000)
        assert late.error_code == 0, "the wait for others is over"
        silent = await join_group(node, "silent", rebalance_timeout=600_000)
        given = [{"member_id": silent.member_id, "assignment": b"a"}]
        who = {"group_id": "silent", "member_id": silent.member_id, "generation_id": silent.generation_id}
        assert (await call(node, "sync_group", 4, who | {"assignments": given})).error_code == 0
        pass_time(61)
        for name in ("late", "silent"):
            await until(lambda name=name: node.groups.groups[name].is_empty)  # type: ignore[misc]


@in_loop
async def test_offsets_of_a_topic_that_members_read_do_not_grow_old(tmp_path: Path) -> None:
    async with node_for(tmp_path, offsets_retention_minutes=1) as node:
        for name in ("t", "u"):
            await create_topic(node, name)
        joined = await join_group(node, protocols=[{"name": "range", "metadata": READS_T}])
        who = {"group_id": "g", "member_id": joined.member_id}
        given = [{"member_id": joined.member_id, "assignment": b""}]
        await call(node, "sync_group", 4, {**who, "generation_id": joined.generation_id, "assignments": given})
        for name in ("t", "u"):
            more = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
            assert await commit_offset(node, 1, topic=name, **more) == 0
        now = node.clock()
        node.clock = lambda: now + 120_000
        assert await node.groups.expiry.expire() == 1
        assert set(node.groups.offsets.all_of("g")) == {("t", 0)}
