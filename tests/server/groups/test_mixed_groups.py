"""Groups change between the classic and the consumer protocol while they have members (KIP-848).

Codes, words, epochs and assignments are those of a broker of 4.4.0 for the same requests. It waits a second before
it reassigns; no request here depends on that.
"""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest

from kafkalog.records.internal import coordinator_record
from kafkalog.records.schemas.groups import KEYS, VALUES
from kafkalog.records.tables import batch_table
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.consumer_group import ConsumerGroup
from kafkalog.server.groups.effects import MEMBER_TIMER, SYNC_TIMER
from kafkalog.server.groups.replay import replay_log
from kafkalog.server.node.node import Node
from kafkalog.storage.log_walk import log_chunks
from kafkalog.types import TopicPartition
from tests.server.groups.groups import commit_offset, create_topic
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for
from tests.server.replica.copies import until

NAME = "Cannot upgrade classic group g to consumer group because"
ALL = [0, 1, 2, 3]


def metadata(*owned: int, version: int = 1) -> bytes:
    rows = b"" if not owned else b"\0\1t" + struct.pack(f">i{len(owned)}i", len(owned), *owned)
    return struct.pack(">hihci", version, 1, 1, b"t", -1) + struct.pack(">i", bool(owned)) + rows


def assignment(*numbers: int, user_data: bytes | None = None) -> bytes:
    rows = struct.pack(">hihci", 1, 1, 1, b"t", len(numbers)) + struct.pack(f">{len(numbers)}i", *numbers)
    return rows + (struct.pack(">i", -1) if user_data is None else struct.pack(">i", len(user_data)) + user_data)


class Group:
    """Group `g` of a node, as clients of both protocols see it."""

    def __init__(self, node: Node) -> None:
        self.node = node

    async def join(self, member_id: str = "", *owned: int, **more: Any) -> Any:
        protocols = [{"name": more.pop("protocol", "range"), "metadata": more.pop("metadata", metadata(*owned))}]
        tree = {"group_id": "g", "session_timeout": 60_000, "rebalance_timeout": 60_000, "member_id": member_id,
                "protocol_type": "consumer", "protocols": protocols, **more}  # fmt: skip
        joined = await call(self.node, "join_group", 9, tree)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joined = await call(self.node, "join_group", 9, {**tree, "member_id": joined.member_id})
        return joined

    async def sync(self, member_id: str, generation: int, given: bytes | None = None, **more: Any) -> Any:
        assignments = [] if given is None else [{"member_id": member_id, "assignment": given}]
        tree = {"group_id": "g", "generation_id": generation, "member_id": member_id, "protocol_type": "consumer",
                "protocol_name": "range", "assignments": assignments, **more}  # fmt: skip
        return await call(self.node, "sync_group", 5, tree)

    async def classic(self, given: bytes | None = None, **more: Any) -> str:
        """A member of a new classic group, which assigns all to itself."""
        joined = await self.join(**more)
        instance = {"group_instance_id": more["group_instance_id"]} if "group_instance_id" in more else {}
        synced = await self.sync(joined.member_id, 1, assignment(*ALL) if given is None else given, **instance)
        assert (joined.error_code, synced.error_code) == (0, 0)
        return str(joined.member_id)

    async def beat(self, member_id: str, generation: int, instance_id: str | None = None) -> int:
        tree = {"group_id": "g", "generation_id": generation, "member_id": member_id, "group_instance_id": instance_id}
        return int((await call(self.node, "heartbeat", 4, tree)).error_code)

    async def consumer(self, member_id: str, epoch: int = 0, *owned: int, instance_id: str | None = None) -> Any:
        """A heartbeat of the consumer protocol; at epoch 0 the member joins."""
        topic = self.node.topics.get("t")
        assert topic is not None
        rows = [{"topic_id": topic.id, "partitions": owned}] if owned else []
        tree = {"group_id": "g", "member_id": member_id, "member_epoch": epoch, "instance_id": instance_id,
                "rack_id": None, "rebalance_timeout": -1 if epoch else 60_000, "subscribed_topic_regex": None,
                "subscribed_topic_names": None if epoch else ["t"], "server_assignor": None,
                "topic_partitions": rows if owned or not epoch else None}  # fmt: skip
        return await call(self.node, "consumer_group_heartbeat", 1, tree)

    async def leave(self, *member_ids: str) -> list[int]:
        tree = {"group_id": "g", "members": [{"member_id": one} for one in member_ids]}
        return [int(one.error_code) for one in (await call(self.node, "leave_group", 5, tree)).members]

    async def described(self) -> tuple[Any, ...]:
        """State, epoch and members: (whether it is classic, epoch, what it has, its target)."""
        tree = {"group_ids": ["g"], "include_authorized_operations": False}
        (group,) = (await call(self.node, "consumer_group_describe", 1, tree)).groups
        members = {
            one.member_id: (one.member_type == 0, one.member_epoch, numbers(one.assignment.topic_partitions),
                            numbers(one.target_assignment.topic_partitions))
            for one in group.members
        }  # fmt: skip
        return group.group_state, group.group_epoch, members

    async def state(self) -> tuple[str, str]:
        (group,) = (await call(self.node, "list_groups", 5, {"states_filter": [], "types_filter": []})).groups
        return group.group_type, group.group_state


def numbers(rows: Any) -> list[int]:
    return [number for one in rows for number in one.partitions]


def read_numbers(synced: Any) -> list[int]:
    assert (synced.error_code, synced.protocol_type, synced.protocol_name) == (0, "consumer", "range")
    data = bytes(synced.assignment)
    if data == struct.pack(">hii", 1, 0, -1):
        return []
    count = struct.unpack_from(">i", data, 9)[0]
    assert data == assignment(*struct.unpack_from(f">{count}i", data, 13))
    return list(struct.unpack_from(f">{count}i", data, 13))


def replayed(node: Node) -> Any:
    """The groups that a restart would make of the log."""
    found = {}
    for number in range(2):
        replay = replay_log(node.store.logs[TopicPartition("__consumer_offsets", number)])
        found |= replay.consumer | replay.classic
    return found.get("g")


def kinds_of(node: Node) -> list[tuple[int, bool]]:
    """Types of the group's records, and whether they are tombstones."""
    found = []
    for number in range(2):
        log = node.store.logs[TopicPartition("__consumer_offsets", number)]
        for chunk in log_chunks(log, 0, log.log_end_offset):
            for row in range(chunk.first, chunk.last):
                for record in batch_table(chunk.data, chunk.batches, row):
                    one = coordinator_record(record.key, record.value, KEYS, VALUES)
                    found.append((one.type, record.value is None))
    return found


@in_loop
async def test_a_group_is_upgraded_and_downgraded_while_its_members_go_on(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node, "t", 4)
        group = Group(node)
        a = await group.classic()
        before = len(kinds_of(node))
        joined = await group.consumer("x")
        assert (joined.error_code, joined.member_epoch, numbers(joined.assignment.topic_partitions)) == (0, 2, [])
        assert kinds_of(node)[before:] == [
            (2, True), (5, False), (3, False), (7, False), (6, False), (8, False),  # the members that were there
            (5, False), (3, False), (7, False), (7, False), (6, False), (8, False),  # the one that joins
        ]  # fmt: skip
        state = ("Reconciling", 2, {a: (True, 1, ALL, [0, 1]), "x": (False, 2, [], [2, 3])})
        assert await group.described() == state and await group.state() == ("consumer", "Reconciling")
        assert [await group.beat(a, one) for one in (1, 2)] == [27, 22] and await group.beat("nobody", 1) == 25
        assert await group.beat("x", 2) == 25  # a member of the other protocol
        assert (await group.sync(a, 1)).error_code == 27
        who = {"member_id": a, "generation_id_or_member_epoch": 1}
        assert [await commit_offset(node, 5, version=version, **who) for version in (8, 9)] == [0, 0]
        assert await commit_offset(node, 5, **(who | {"generation_id_or_member_epoch": 9})) == 22
        joined = await group.join(a, *ALL)
        assert joined[1:] == (0, 1, "consumer", "range", "", False, a, ())
        assert await group.beat(a, 1) == 27 and read_numbers(await group.sync(a, 1)) == [0, 1]
        assert await group.described() == state
        joined = await group.join(a, 0, 1)
        assert (joined.error_code, joined.generation_id) == (0, 2)
        assert await group.beat(a, 2) == 0 and read_numbers(await group.sync(a, 2)) == [0, 1]
        found = await group.consumer("x", 2)
        assert numbers(found.assignment.topic_partitions) == [2, 3]
        assert (await group.described())[0] == "Stable"
        assert isinstance(replayed(node), ConsumerGroup)
        assert (await group.consumer("x", -1)).member_epoch == -1
        assert await group.state() == ("classic", "PreparingRebalance")
        assert replayed(node)["generation"] == 2 and replayed(node)["leader"] == a
        assert [await group.beat(a, one) for one in (1, 3)] == [22, 22] and await group.beat(a, 2) == 27
        joined = await group.join(a)
        assert (joined.error_code, joined.generation_id, joined.leader, len(joined.members)) == (0, 3, a, 1)
        assert (await group.consumer("x", 2)).error_code == 69


@in_loop
async def test_a_second_classic_member_joins_and_all_that_leave_give_their_partitions_back(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node, "t", 4)
        group = Group(node)
        await group.consumer("x")
        for more in ({"protocol_type": "connect"}, {"metadata": b"\xff"}, {"protocols": []}):
            assert (await group.join(**more)).error_code == 23
        b = await group.join()
        assert (b.error_code, b.leader, b.members) == (0, "", ())
        assert (await group.join(protocol="other")).error_code == 23
        assert (await group.sync(b.member_id, b.generation_id, protocol_name="roundrobin")).error_code == 23
        assert (await group.sync(b.member_id, b.generation_id + 5)).error_code == 22
        assert read_numbers(await group.sync(b.member_id, b.generation_id)) == []  # x still has them all
        assert await group.beat(b.member_id, b.generation_id) == 0
        kept = numbers((await group.consumer("x", 2, *ALL)).assignment.topic_partitions)
        assert (await group.consumer("x", 2, *kept)).member_epoch == 3
        assert await group.beat(b.member_id, b.generation_id) == 27  # what it waited for is free
        again = await group.join(b.member_id)
        assert read_numbers(await group.sync(b.member_id, again.generation_id)) == [2, 3]
        assert await group.beat(b.member_id, again.generation_id) == 0
        assert (await group.join("made-up")).error_code == 0
        assert await group.leave("made-up", "nobody", b.member_id) == [0, 25, 0]
        state, _, members = await group.described()
        assert list(members) == ["x"] and await group.state() == ("consumer", state)


@in_loop
async def test_a_classic_member_waits_for_the_assignment_after_one_that_left(tmp_path: Path) -> None:
    """It joins again once a consumer's heartbeat has brought the next assignment."""
    async with node_for(tmp_path) as node:
        await create_topic(node, "t", 4)
        group = Group(node)
        for member_id in "xy":
            await group.consumer(member_id)
        b = await group.join()
        await group.consumer("y", -1)
        assert (await group.described())[:2] == ("Assigning", 5)
        assert read_numbers(await group.sync(b.member_id, 4)) == [] and await group.beat(b.member_id, 4) == 0
        await group.consumer("x", 2)
        assert (await group.sync(b.member_id, 4)).error_code == 27 and await group.beat(b.member_id, 4) == 27
        assert (await group.join(b.member_id)).generation_id == 5


@in_loop
async def test_a_group_without_members_keeps_its_epoch_for_ids_that_are_expected_or_unknown(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node, "t", 4)
        group = Group(node)
        a = await group.classic()
        assert (await group.join(a)).generation_id == 2
        await call(node, "join_group", 9, {
            "group_id": "g", "session_timeout": 60_000, "rebalance_timeout": 60_000, "member_id": "",
            "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": metadata()}],
        })  # fmt: skip
        assert await group.leave(a) == [0] and await group.state() == ("classic", "PreparingRebalance")
        assert (await group.consumer("x")).member_epoch == 3
        assert (await group.consumer("x", -1)).member_epoch == -1
        assert (await group.join("made-up")).error_code == 25
        assert await group.described() == ("Empty", 4, {}) and await group.state() == ("consumer", "Empty")


@in_loop
async def test_an_administrator_removes_the_last_consumer_and_then_classic_members(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node, "t", 4)
        group = Group(node)
        a = await group.classic()
        await group.consumer("x")
        assert await group.leave("x", a, a) == [0, 0, 25]  # the first makes the group a classic one
        assert await group.state() == ("classic", "Empty")


@in_loop
async def test_a_static_member_changes_its_protocol_with_its_client(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node, "t", 4)
        group = Group(node)
        a = await group.classic(group_instance_id="i")
        joined = await group.consumer("x", instance_id="i")
        assert (joined.error_code, joined.member_epoch) == (0, 1)
        assert numbers(joined.assignment.topic_partitions) == ALL
        assert await group.described() == ("Stable", 1, {"x": (False, 1, ALL, ALL)})
        assert await group.beat(a, 1, "i") == 82
        joined = await group.join(group_instance_id="i")
        assert (joined.error_code, joined.generation_id, joined.protocol_name, joined.members) == (0, 1, "range", ())
        assert await group.state() == ("classic", "Stable")
        synced = await group.sync(joined.member_id, 1, group_instance_id="i")
        assert read_numbers(synced) == ALL and await group.beat(joined.member_id, 1, "i") == 0
        found = await group.consumer("x", 1)
        assert (found.error_code, found.error_message) == (69, "Group g is not a consumer group.")


@in_loop
async def test_a_static_member_that_leaves_for_a_while_keeps_the_group(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node, "t", 4)
        group = Group(node)
        a = await group.classic()
        await group.consumer("x", instance_id="i")
        await group.consumer("x", -2, instance_id="i")
        assert await group.described() == ("Reconciling", 2, {a: (True, 1, ALL, [0, 1]), "x": (False, -2, [], [2, 3])})


@pytest.mark.parametrize(("more", "given", "words"), [
    ({"metadata": b"m"}, b"a", f"{NAME} the embedded consumer protocol is malformed."),
    ({}, b"a", f"{NAME} the embedded consumer protocol is malformed."),
    ({}, assignment(0, user_data=b"u"), f"{NAME} an unsupported custom assignor is in use. Please refer to the "
     "documentation or switch to a default assignor before re-attempting the upgrade."),
    ({"protocol_type": "connect"}, None, f"{NAME} the group does not use the consumer embedded protocol."),
])  # fmt: skip
@in_loop
async def test_groups_that_cannot_be_upgraded_stay_as_they_are(
    tmp_path: Path, more: dict[str, Any], given: bytes | None, words: str
) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node, "t", 4)
        group = Group(node)
        joined = await group.join(**more)
        if given is not None:
            assert (await group.sync(joined.member_id, 1, given)).error_code == 0
        before = kinds_of(node)
        refused = await group.consumer("x")
        assert (refused.error_code, refused.error_message) == (69, words)
        assert kinds_of(node) == before and (await group.state())[0] == "classic"
        assert await group.beat(joined.member_id, 1) == 0


@pytest.mark.parametrize(("policy", "may"), [
    ("disabled", ""), ("Upgrade", "u"), ("downgrade", "d"), ("bidirectional", "ud"),
])  # fmt: skip
@in_loop
async def test_the_policy_says_what_may_happen(tmp_path: Path, policy: str, may: str) -> None:
    async with node_for(tmp_path, group_consumer_migration_policy=policy) as node:
        await create_topic(node, "t", 4)
        group = Group(node)
        a = await group.classic()
        joined = await group.consumer("x")
        if "u" in may:
            assert (joined.error_code, joined.member_epoch) == (0, 2)
            await group.consumer("x", -1)
            assert (await group.state())[0] == ("classic" if "d" in may else "consumer")
            return
        assert (joined.error_code, joined.error_message) == (69, f"{NAME} online upgrade is disabled.")
        await group.leave(a)
        await group.consumer("x")
        assert (await group.join()).error_code == (0 if may else 23)
        await group.consumer("x", -1)
        assert (await group.state())[0] == ("classic" if "d" in may else "consumer")


@in_loop
async def test_requests_that_wait_in_a_rebalance_are_answered_by_the_upgrade(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node, "t", 4)
        group = Group(node)
        a = await group.classic()
        waiting = asyncio.ensure_future(group.join())
        await until(lambda: len(node.groups.groups["g"].members) == 2)
        assert (await group.consumer("x")).error_code == 0
        answer = await waiting
        assert (answer.error_code, answer.generation_id, answer.member_id != "") == (27, -1, True)
        state, epoch, members = await group.described()
        assert (state, epoch) == ("Reconciling", 2)
        assert members[a][:3] == (True, 1, ALL) and members[answer.member_id][:3] == (True, 1, [])
        assert not node.groups.table.timers.has("g", SYNC_TIMER)


@in_loop
async def test_members_that_do_not_come_in_time_are_removed(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node, "t", 4)
        group = Group(node)
        a = await group.classic()
        await group.consumer("x")
        timers = node.groups.table.timers
        assert timers.has("g", MEMBER_TIMER + a) and not timers.has("g", f"rejoin {a}")
        assert await group.beat(a, 1) == 27
        assert timers.has("g", f"rejoin {a}")
        await group.join(a, *ALL)
        assert timers.has("g", f"sync {a}") and not timers.has("g", f"rejoin {a}")
        await group.sync(a, 1)
        assert not timers.has("g", f"sync {a}")
        node.groups._on_timer("g", f"sync {a}")  # had it not come
        assert list((await group.described())[2]) == ["x"]
        b = await group.join()
        node.groups._on_timer("g", f"{MEMBER_TIMER}x")  # the last member of the consumer protocol
        assert (await group.state())[0] == "classic" and await group.beat(b.member_id, 99) == 22


@in_loop
async def test_a_mixed_group_is_there_after_a_restart(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node, "t", 4)
        a = await Group(node).classic()
        await Group(node).consumer("x")
        before = node.groups.groups["g"]
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        after = node.groups.groups["g"]
        assert isinstance(after, ConsumerGroup) and isinstance(before, ConsumerGroup)
        assert (after.members, after.targets, after.epoch) == (before.members, before.targets, before.epoch)
        assert node.groups.table.timers.has("g", MEMBER_TIMER + a)
        assert await Group(node).beat(a, 1) == 27 and (await Group(node).join(a, *ALL)).error_code == 0
