"""Records of groups that are written and not replicated, or not written at all: the answer says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.commits import NewOffset
from kafkalog.server.groups.effects import MEMBER_TIMER
from kafkalog.server.groups.group_log import OFFSETS_TOPIC
from kafkalog.server.node.parts import make_part
from kafkalog.server.replica.roles import Role
from kafkalog.server.txns.producer_ids import ProducerIds
from tests.server.groups.groups import READS_T, commit_offset, create_topic, join_group
from tests.server.groups.test_replicated_records import OTHER, replicated, with_a_follower
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for
from tests.server.replica.partitions import settle

NO_PARTITIONS = b"\0\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff"
"""The assignment of a consumer that has none."""
OFFSETS = [(0, "short"), (1, "longer than allowed")]
CODES = {0: int(ErrorCode.NOT_COORDINATOR), 1: int(ErrorCode.OFFSET_METADATA_TOO_LARGE)}


def led_elsewhere(node: Any, partition: Any) -> None:
    """The other node leads the partition from now on."""
    role = partition.role
    partition.become_follower(Role(OTHER, role.leader_epoch + 1, role.partition_epoch + 1, role.replicas, role.isr))
    node.replicas.appended_to(partition)


async def committed(node: Any) -> dict[int, int]:
    rows = [{"partition_index": one, "committed_offset": 5, "committed_metadata": text} for one, text in OFFSETS]
    who = {"group_id": "g", "member_id": "", "generation_id_or_member_epoch": -1}
    answer = await call(node, "offset_commit", 9, {**who, "topics": [{"name": "t", "partitions": rows}]})
    return {one.partition_index: one.error_code for one in answer.topics[0].partitions}


async def committed_in_transaction(node: Any) -> dict[int, int]:
    new = {("t", one): NewOffset(5, -1, text) for one, text in OFFSETS}
    codes = await node.groups.commits.commit_in_transaction("g", "x", 7, 0, new)
    return {place[1]: code for place, code in codes.items()}


async def offset_deleted(node: Any) -> int:
    rows = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    answer = await call(node, "offset_delete", 0, {"group_id": "g", "topics": rows})
    assert answer.topics == ()
    return int(answer.error_code)


async def group_deleted(node: Any) -> int:
    return int((await call(node, "delete_groups", 2, {"groups_names": ["g"]})).results[0].error_code)


async def beat(node: Any, member_id: str = "m", epoch: int = 0, **more: Any) -> int:
    fields = {"group_id": "g", "member_id": member_id, "member_epoch": epoch, "rebalance_timeout": 60_000, **more}
    more = {"topic_partitions": [], "subscribed_topic_names": ["t"]}
    return int((await call(node, "consumer_group_heartbeat", 1, {**fields, **more})).error_code)


Ask = Callable[[Any], Awaitable[Any]]


@pytest.mark.parametrize(("ask", "expected"), [
    (committed, CODES), (committed_in_transaction, CODES), (offset_deleted, ErrorCode.NOT_COORDINATOR),
    (group_deleted, ErrorCode.NOT_COORDINATOR), (beat, ErrorCode.NOT_COORDINATOR),
])  # fmt: skip
@in_loop
async def test_a_change_that_is_not_replicated_is_answered_with_an_error(
    tmp_path: Path, ask: Ask, expected: Any
) -> None:
    async with node_for(tmp_path, offset_metadata_max_bytes=8) as node:
        await create_topic(node)
        assert await commit_offset(node, 1) == 0
        partition = with_a_follower(node)
        answer = asyncio.ensure_future(ask(node))  # type: ignore[arg-type]
        await settle()
        assert not answer.done()
        led_elsewhere(node, partition)
        assert await answer == expected


@pytest.mark.parametrize("ask", [committed, committed_in_transaction, offset_deleted, group_deleted, beat])
@in_loop
async def test_a_change_that_cannot_be_written_is_answered_with_an_error_and_undone(tmp_path: Path, ask: Ask) -> None:
    async with node_for(tmp_path, offset_metadata_max_bytes=8) as node:
        await create_topic(node)
        assert await commit_offset(node, 1) == 0
        led_elsewhere(node, with_a_follower(node))
        before = node.groups.overview()
        answer = await ask(node)
        assert answer == (CODES if isinstance(answer, dict) else ErrorCode.NOT_COORDINATOR)
        assert node.groups.overview() == before and not node.groups.offsets.has_pending("g")


@in_loop
async def test_a_silent_member_that_cannot_be_taken_out_is_taken_out_later(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        assert await beat(node) == await beat(node, "n") == 0
        partition = with_a_follower(node)
        led_elsewhere(node, partition)
        node.groups.table.timers.cancel("g")
        members = [{"member_id": "n", "group_instance_id": None}]
        left = await call(node, "leave_group", 4, {"group_id": "g", "members": members})
        assert left.members[0].error_code == ErrorCode.NOT_COORDINATOR
        for member_id in ("m", "n"):
            node.groups.consumer.on_timer(node.groups.groups["g"], MEMBER_TIMER + member_id)
            assert node.groups.table.timers.has("g", MEMBER_TIMER + member_id), "its session ends once more"
        assert set(node.groups.groups["g"].members) == {"m", "n"}
        replicated(node, partition)
        node.groups.consumer.on_timer(node.groups.groups["g"], MEMBER_TIMER + "m")
        assert set(node.groups.groups["g"].members) == {"n"}
        assert not node.groups.table.timers.has("g", MEMBER_TIMER + "m")


@in_loop
async def test_a_node_that_stops_does_not_wait_for_a_record_to_be_replicated(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        joined = await join_group(node)
        with_a_follower(node)
        given = [{"member_id": joined.member_id, "assignment": b"a"}]
        tree = {"group_id": "g", "member_id": joined.member_id, "generation_id": 1, "assignments": given}
        synced = asyncio.ensure_future(call(node, "sync_group", 4, tree))
        await settle()
        [settling] = node.groups.classic.settling
    assert settling.cancelled()
    assert (await synced).error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("is_upgraded", [False, True])
@in_loop
async def test_a_static_member_that_returns_is_answered_though_its_group_ends_meanwhile(
    tmp_path: Path, is_upgraded: bool
) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        static = {"group_instance_id": "i", "protocols": [{"name": "range", "metadata": READS_T}]}
        first = await join_group(node, **static)
        given = [{"member_id": first.member_id, "assignment": NO_PARTITIONS}]
        who = {"group_id": "g", "member_id": first.member_id, "generation_id": 1, "group_instance_id": "i"}
        assert (await call(node, "sync_group", 4, {**who, "assignments": given})).error_code == 0
        partition = with_a_follower(node)
        again = asyncio.ensure_future(join_group(node, **static))
        await settle()
        assert not again.done() and node.groups.groups["g"].instances["i"] != first.member_id
        if is_upgraded:
            beating = asyncio.ensure_future(beat(node))
            await settle()
            assert node.groups.overview()[0].group_type == "consumer"
            replicated(node, partition)
            assert await beating == 0
            await asyncio.wait([again], timeout=60)
    await asyncio.wait([again], timeout=60)
    assert again.done()
    assert again.result().error_code == (
        ErrorCode.REBALANCE_IN_PROGRESS if is_upgraded else ErrorCode.NOT_COORDINATOR
    )


@in_loop
async def test_partitions_added_while_nothing_can_be_written_are_assigned_later(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        assert await beat(node) == 0
        partition = with_a_follower(node)
        led_elsewhere(node, partition)
        await node.topics.add_partitions("t", 3)
        assert await beat(node, epoch=2) == ErrorCode.NOT_COORDINATOR
        replicated(node, partition)
        assert await beat(node, epoch=2) == 0
        [member] = node.groups.groups["g"].members.values()
        assert [sorted(numbers) for numbers in member.assigned.values()] == [[0, 1, 2]]


async def emptied(node: Any) -> None:
    """Leave a consumer group without members, with an offset."""
    await create_topic(node)
    assert await beat(node) == 0
    assert await beat(node, epoch=-1) == 0
    assert await commit_offset(node, 5) == 0


@in_loop
async def test_an_empty_consumer_group_that_cannot_be_written_is_not_replaced_by_a_classic_one(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await emptied(node)
        before = node.groups.overview()
        led_elsewhere(node, with_a_follower(node))
        assert (await join_group(node)).error_code == ErrorCode.NOT_COORDINATOR
        assert node.groups.overview() == before


@in_loop
async def test_an_empty_consumer_group_keeps_its_offsets_when_a_classic_member_is_refused(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await emptied(node)
        [before] = node.groups.overview()
        too_large = [{"name": "range", "metadata": bytes(2 << 20)}]
        assert (await join_group(node, protocols=too_large)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        [after] = node.groups.overview()
        assert (after.group_type, after.offsets) == ("classic", before.offsets)


@in_loop
async def test_a_member_of_a_group_whose_disk_is_away_looks_for_its_coordinator(tmp_path: Path) -> None:
    async with node_for(tmp_path / "one", tmp_path / "two") as node:
        await create_topic(node)
        await join_group(node)
        log = node.replicas.partition(OFFSETS_TOPIC, node.groups.partition_for("g")).log
        node.store.fail_directory(Path(log.path).parent, OSError(5, "Input/output error"))
        assert (await join_group(node)).error_code == ErrorCode.NOT_COORDINATOR


async def restarted(node: Any, name: str) -> None:
    """Replace a coordinator, as a node of a replica set does that leads again."""
    await node.parts[name].stop()
    node.parts[name] = make_part(node, name)
    await node.parts[name].start()
    await node.parts[name].loaded()


@in_loop
async def test_a_heartbeat_that_waited_while_the_leader_changed_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        assert await beat(node) == 0
        log = node.replicas.partition(OFFSETS_TOPIC, node.groups.partition_for("g")).log
        match, goes_on = node.topic_patterns.of, asyncio.Event()

        async def slowly(patterns: Any) -> Any:
            await goes_on.wait()
            return await match(patterns)

        monkeypatch.setattr(node.topic_patterns, "of", slowly)
        waiting = asyncio.ensure_future(beat(node, "n", subscribed_topic_regex="t.*"))
        await settle()
        await restarted(node, "groups")
        end = log.log_end_offset
        goes_on.set()
        assert await waiting == ErrorCode.NOT_COORDINATOR and log.log_end_offset == end


@in_loop
async def test_a_heartbeat_that_waited_while_the_leader_changed_starts_no_timers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        assert await beat(node, subscribed_topic_regex="t.*") == 0
        match, goes_on, timers = node.topic_patterns.of, asyncio.Event(), node.groups.table.timers

        async def slowly(patterns: Any) -> Any:
            await goes_on.wait()
            return await match(patterns)

        assert timers.has("g", MEMBER_TIMER + "m")
        monkeypatch.setattr(node.topic_patterns, "of", slowly)
        waiting = asyncio.ensure_future(beat(node, epoch=2))
        await settle()
        await restarted(node, "groups")
        goes_on.set()
        assert await waiting == 0
        assert not timers.has("g", MEMBER_TIMER + "m"), "it would try to remove the member again and again"


@in_loop
async def test_a_member_that_waited_while_the_leader_changed_does_not_join_the_former_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node_for(tmp_path) as node:
        create, goes_on = node.topics.ensure_internal, asyncio.Event()

        async def slowly(name: str) -> Any:
            await goes_on.wait()
            return await create(name)

        monkeypatch.setattr(node.topics, "ensure_internal", slowly)
        waiting = asyncio.ensure_future(join_group(node, group_instance_id="s"))
        await settle()
        await restarted(node, "groups")
        goes_on.set()
        assert (await asyncio.wait_for(waiting, 60)).error_code == ErrorCode.NOT_COORDINATOR


@in_loop
async def test_an_epoch_that_waited_while_the_leader_changed_is_not_assigned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node_for(tmp_path) as node:
        await node.transactions.loaded()
        first = await node.transactions.init_producer_id("x", 1000)
        ready, goes_on = ProducerIds.ready, asyncio.Event()

        async def slowly(ids: ProducerIds) -> None:
            await goes_on.wait()
            await ready(ids)

        monkeypatch.setattr(ProducerIds, "ready", slowly)
        waiting = asyncio.ensure_future(node.transactions.init_producer_id("x", 1000))
        await settle()
        await restarted(node, "transactions")
        goes_on.set()
        assert (await waiting).error == ErrorCode.NOT_COORDINATOR
        second = await node.transactions.init_producer_id("x", 1000)
        assert (second.producer_id, second.producer_epoch) == (first.producer_id, first.producer_epoch + 1)
        await restarted(node, "transactions")
        assert node.transactions.describe("x")[1].producer_epoch == second.producer_epoch
