"""Share groups on a node: what is delivered again and when, what a restart keeps, and what goes with what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import kafkalog
from kafkalog._core.batch.encode import encode_ready
from kafkalog.records.internal import coordinator_record
from kafkalog.records.schemas.share_state import KEYS, VALUES
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.records import Record
from kafkalog.server.node.topics import SHARE_GROUP_STATE
from kafkalog.server.share import state as states
from kafkalog.types import TopicPartition
from tests.server.groups.groups import BEHIND_ACLS, CLERK, allow, create_topic
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for
from tests.server.share.sharing import (
    ACCEPT,
    REJECT,
    RELEASE,
    SMALL,
    Member,
    joined,
    offsets,
    produce,
    set_group,
    until_waiting,
)
from tests.server.txns.calls import add_partitions, end_transaction, init_producer
from tests.server.txns.calls import produce as produce_in_transaction

PLACE = TopicPartition(SHARE_GROUP_STATE, 0)


class Timers:
    """The timers that the node's parts start from now on; `go` moves the clock."""

    def __init__(self, node: Any) -> None:
        self.started: list[tuple[int, Callable[..., object], tuple[Any, ...], asyncio.TimerHandle]] = []
        self._node, self.now_ms, later = node, node.monotonic_ms(), node.later
        node.monotonic_ms = lambda: self.now_ms

        def start(delay_ms: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
            handle: asyncio.TimerHandle = later(10**9, callback)
            self.started.append((self.now_ms + int(delay_ms), callback, args, handle))
            return handle

        node.later = start

    def go(self, ms: int) -> None:
        self.now_ms += ms
        due = [one for one in self.started if one[0] <= self.now_ms and not one[3].cancelled()]
        self.started = [one for one in self.started if one not in due]
        for _, callback, args, handle in due:
            handle.cancel()
            callback(*args)


def stored(path: Path) -> list[tuple[int, Any]]:
    """The records of states in the topic: type and value."""
    with kafkalog.open(path / f"{SHARE_GROUP_STATE}-0") as log:
        found = [coordinator_record(one.key or b"", one.value, KEYS, VALUES) for one in log.records()]
    return [(one.type, one.value) for one in found]


@in_loop
async def test_a_restart_keeps_what_is_complete_and_delivers_the_rest_again(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await joined(node)
        await produce(node, 10)
        assert await member.acquired() == [(0, 9, 1)]
        assert await member.complete((0, 1, ACCEPT), (2, 2, RELEASE), (4, 4, REJECT)) == 0
        assert await offsets(node) == {0: (0, 7), 1: (-1, -1)}
    async with node_for(tmp_path, **SMALL) as node:
        await node.groups.loaded()
        [group] = (await call(node, "share_group_describe", 1, {
            "group_ids": ["g"], "include_authorized_operations": False,
        })).groups  # fmt: skip
        assert (group.group_state, group.members[0].member_id, group.members[0].assignment.topic_partitions[0][2]) == (
            "Stable", "m", (0, 1)
        )
        member = Member(node)
        assert await member.acquired() == [(2, 2, 2), (3, 3, 1), (5, 9, 1)]
        assert await member.complete((2, 3, ACCEPT), (5, 9, ACCEPT)) == 0
        assert await offsets(node) == {0: (2, 0), 1: (-1, -1)}
    update = {"snapshotEpoch": 0, "leaderEpoch": 0, "startOffset": 2, "deliveryCompleteCount": 8}
    assert [kind for kind, _ in stored(tmp_path)] == [0, 0, 1, 1]
    last = stored(tmp_path)[-1][1]
    assert {name: last[name] for name in update} == update


@in_loop
async def test_a_restart_before_anything_is_complete_does_not_move_the_beginning(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await joined(node)
        await produce(node, 2)
        await set_group(node, share_auto_offset_reset="latest")
        assert await member.acquired() == []
        assert await offsets(node) == {0: (2, 0), 1: (-1, -1)}
        await produce(node, 3)
        assert await member.acquired() == [(2, 4, 1)]
    async with node_for(tmp_path, **SMALL) as node:
        await produce(node, 1)
        assert await Member(node).acquired() == [(2, 5, 1)]


@in_loop
async def test_offsets_that_are_set_while_a_fetch_looks_for_the_beginning_apply(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member, run = await joined(node), node.run
        await produce(node, 4)
        key = states.ShareKey("g", node.topics.get("t").id, 0)

        async def meanwhile(function: Any, *args: Any) -> Any:
            node.run = run
            assert not await node.shares.initialize({key: 2}, 3)
            return await run(function, *args)

        node.run = meanwhile
        assert await member.acquired() == [(2, 3, 1)]


@in_loop
async def test_a_lock_ends_with_its_time_and_a_record_after_its_last_delivery(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await joined(node)
        await set_group(node, share_delivery_count_limit="2", share_record_lock_duration_ms="20000")
        await produce(node, 3)
        timers = Timers(node)
        assert await member.acquired() == [(0, 2, 1)]
        timers.go(19_999)
        assert await member.acquired() == []
        timers.go(1)
        assert await member.complete((0, 0, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
        assert await member.acquired() == [(0, 2, 2)]
        timers.go(20_000)
        assert await member.acquired() == []
        assert await offsets(node) == {0: (0, 0), 1: (-1, -1)}


@in_loop
async def test_a_fetch_waits_for_new_records_and_for_released_ones(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        one, other = await joined(node, "m"), await joined(node, "n", number=6)
        waiting = asyncio.create_task(one.acquired(max_wait=60_000))
        await until_waiting(node)
        await produce(node, 4)
        assert await waiting == [(0, 3, 1)]
        waiting = asyncio.create_task(other.acquired(max_wait=60_000))
        await until_waiting(node)
        assert await one.complete((1, 2, RELEASE)) == 0
        assert await waiting == [(1, 2, 2)]


@in_loop
async def test_records_of_who_is_gone_are_delivered_to_others(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        one, other = await joined(node, "m"), await joined(node, "n", number=6)
        await produce(node, 2)
        assert await one.acquired() == [(0, 1, 1)]
        node.shares.disconnected(one.connection.id)
        assert await one.fetch() == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert await other.acquired() == [(0, 1, 2)]
        left = await other.beat(-1, None)
        assert (left.error_code, left.member_epoch) == (0, -1)
        one.epoch = 0
        assert await one.acquired() == [(0, 1, 3)]


@in_loop
async def test_a_fetch_that_wants_no_records_is_answered_at_once(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await joined(node)
        await produce(node, 2)
        now_ms = iter(range(10**6))  # each look at the clock takes 1 ms
        node.monotonic_ms = lambda: next(now_ms)
        assert await member.acquired(max_records=0, max_wait=60_000) == []
        assert await member.acquired(max_bytes=0, max_wait=60_000) == []
        assert next(now_ms) < 100, "it does not wait"
        assert await member.acquired() == [(0, 1, 1)]


@in_loop
async def test_a_waiting_fetch_of_who_is_gone_acquires_nothing(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        one, other = await joined(node, "m"), await joined(node, "n", number=6)
        waiting = asyncio.create_task(one.acquired(max_wait=60_000))
        await until_waiting(node)
        assert one.connection.may_cancel
        node.shares.disconnected(one.connection.id)
        await produce(node, 4)
        assert await waiting == []
        assert await other.acquired() == [(0, 3, 1)]
        assert not await other.complete((0, 3, RELEASE))
        assert not other.connection.may_cancel


@in_loop
async def test_a_silent_member_is_removed(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        await node.topics.create("t", 2)
        timers = Timers(node)
        member = await joined(node)
        epoch = (await member.beat()).member_epoch
        timers.go(44_999)
        assert (await member.beat(epoch, None)).error_code == 0
        timers.go(44_999)
        assert node.groups.groups["g"].state == "Stable"
        timers.go(1)
        assert node.groups.groups["g"].state == "Empty"
        assert (await member.beat(epoch, None)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@in_loop
async def test_members_share_the_partitions_and_none_is_left_alone(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL, group_share_max_size=3) as node:
        members = [await joined(node, name) for name in ("a", "b", "c")]
        for member in members:
            await member.beat()
        found = node.groups.groups["g"].members
        assert [sorted(*one.assigned.values()) for _, one in sorted(found.items())] == [[0], [1], [0]]
        assert (await Member(node, "d").beat()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        await node.topics.add_partitions("t", 4)
        epochs = [(await member.beat(found[member.name].epoch, None)).member_epoch for member in members]
        for member, epoch in zip(members, epochs, strict=True):
            await member.beat(epoch, None)
        found = node.groups.groups["g"].members
        assert sorted(number for one in found.values() for number in next(iter(one.assigned.values()))) == [0, 1, 2, 3]


@in_loop
async def test_the_state_goes_with_the_topic_and_with_the_group(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await joined(node)
        await produce(node, 2)
        await member.acquired()
        assert await member.complete((0, 0, ACCEPT)) == 0
        await node.topics.delete("t")
        assert await offsets(node) == {}
        await create_topic(node)
        member = await joined(node)
        await produce(node, 1)
        assert await member.acquired() == [(0, 0, 1)], "a topic of the same name is another one"
        await member.beat(-1, None)
        deleted = await call(node, "delete_groups", 2, {"groups_names": ["g"]})
        assert deleted.results[0].error_code == 0
        assert node.shares.log.keys(lambda key: True) == []
    async with node_for(tmp_path, **SMALL) as node:
        await node.groups.loaded()
        await node.shares.log.loaded()
        assert "g" not in node.groups.groups and node.shares.log.keys(lambda key: True) == []
    assert [value for kind, value in stored(tmp_path)][-2:] == [None, None]


@in_loop
async def test_a_group_begins_again_where_its_states_are_lost(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await joined(node)
        await produce(node, 2)
        assert await member.acquired() == [(0, 1, 1)]
        assert await member.complete((0, 0, ACCEPT)) == 0
        answer = await call(node, "delete_topics", 6, {
            "topics": [{"name": SHARE_GROUP_STATE, "topic_id": None}], "timeout": 5000,
        })  # fmt: skip
        assert answer.responses[0].error_code == 0
        assert (await member.fetch())[0].error_code == ErrorCode.INVALID_REQUEST
        epoch = (await member.beat()).member_epoch
        assert (await member.beat(epoch, None)).error_code == 0
        assert await member.acquired() == [(0, 1, 1)]


@in_loop
async def test_offsets_of_an_empty_group_can_be_set(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await joined(node)
        await produce(node, 9)
        assert await member.acquired() == [(0, 8, 1)]
        assert await member.complete((0, 8, ACCEPT)) == 0
        rows = [{"topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": 6}]}]
        tree = {"group_id": "g", "topics": rows}
        assert (await call(node, "alter_share_group_offsets", 0, tree)).error_code == ErrorCode.NON_EMPTY_GROUP
        await member.beat(-1, None)
        assert (await call(node, "alter_share_group_offsets", 0, tree)).error_code == 0
        assert await offsets(node) == {0: (6, 3), 1: (-1, -1)}
        member = await joined(node)
        assert await member.acquired() == [(6, 8, 1)]


@in_loop
async def test_any_offset_can_be_set_and_its_lag_is_a_number_of_64_bits(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        await node.topics.create("t", 2)
        await produce(node, 5)
        for start, lag in ((-(2**63), 5 - 2**63), (-2, 7), (100, -95), (2**63 - 1, 6 - 2**63)):
            rows = [{"topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": start}]}]
            tree = {"group_id": "g", "topics": rows}
            assert (await call(node, "alter_share_group_offsets", 0, tree)).error_code == 0
            assert await offsets(node) == {0: (start, lag)}


@in_loop
async def test_calls_about_offsets_need_the_feature(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        await joined(node)
        off = [{"feature": "share.version", "max_version_level": 0, "upgrade_type": 3}]
        await call(node, "update_features", 1, {"timeout": 5000, "feature_updates": off, "validate_only": False})
        for name in ("alter_share_group_offsets", "delete_share_group_offsets"):
            answer = await call(node, name, 0, {"group_id": "g", "topics": []})
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        groups = [{"group_id": name, "topics": None} for name in "gx"]
        answer = await call(node, "describe_share_group_offsets", 1, {"groups": groups})
        expected = [(name, ErrorCode.UNSUPPORTED_VERSION, None) for name in "gx"]
        assert [(row.group_id, row.error_code, row.error_message) for row in answer.groups] == expected


@in_loop
async def test_a_state_is_written_whole_from_time_to_time_and_what_is_old_goes(tmp_path: Path) -> None:
    settings = SMALL | {"share_coordinator_snapshot_update_records_per_snapshot": 2}
    async with node_for(tmp_path, **settings) as node:
        member = await joined(node)
        await produce(node, 6)
        assert await member.acquired() == [(0, 5, 1)]
        for offset in range(6):
            assert await member.complete((offset, offset, ACCEPT)) == 0
        log = node.replicas.find(PLACE).log
        assert [kind for kind, _ in stored(tmp_path)] == [0, 0, 1, 1, 0, 1, 1, 0]
        last = stored(tmp_path)[-1][1]
        assert (last["snapshotEpoch"], last["startOffset"], last["stateEpoch"]) == (2, 5, 2)
        first = stored(tmp_path)[0][1]
        assert (first["leaderEpoch"], first.get("deliveryCompleteCount", -1), first["snapshotEpoch"]) == (0, -1, 0)
        await node.shares.log.prune()
        assert log.log_start_offset == 1, "the other partition's only record"
    async with node_for(tmp_path, **settings) as node:
        await node.groups.loaded()
        assert await Member(node).acquired() == []
        assert await offsets(node) == {0: (5, 0), 1: (-1, -1)}
        now_ms = node.clock() + 1_000_000
        node.clock = lambda: now_ms
        node.shares.log.write(states.ShareKey("g", node.topics.get("t").id, 1), states.Change(0, -1, 0, ()))
        await node.shares.log.prune()
        assert node.replicas.find(PLACE).log.log_start_offset == 7, "an idle state was stored again"
        assert stored(tmp_path)[-1][1]["snapshotEpoch"] == 1


@in_loop
async def test_a_state_that_is_stored_while_others_are_pruned_stays(tmp_path: Path) -> None:
    settings = SMALL | {"share_coordinator_state_topic_num_partitions": 2}
    keys = [states.ShareKey(f"p{number}", UUID(int=1), 0) for number in range(20)]
    async with node_for(tmp_path, **settings) as node:
        log, run = node.shares.log, node.run
        assert not await log.ready(keys[0])
        for key in keys[:10] * 2:
            log.initialize(key, 1, 5)

        async def meanwhile(function: Any, *args: Any) -> Any:
            if log.get(keys[-1]) is None:
                for key in keys[10:] + keys[2:10]:
                    log.initialize(key, 1, 7)
                log.delete(keys[:2])
            return await run(function, *args)

        node.run = meanwhile
        await log.prune()
        node.run = run
        assert log.get(keys[-1]) is not None
        held = log.keys(lambda key: True)
    async with node_for(tmp_path, **settings) as node:
        await node.shares.log.loaded()
        assert set(node.shares.log.keys(lambda key: True)) == set(held) == set(keys[2:])


@in_loop
async def test_readers_of_committed_records_get_no_others(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await joined(node)
        await set_group(node, share_isolation_level="read_committed")
        await produce(node, 1)
        await node.transactions.loaded()
        producer = await init_producer(node)
        await add_partitions(node, producer)
        assert await produce_in_transaction(node, producer) == 0
        assert await member.acquired() == [(0, 0, 1)]
        await end_transaction(node, producer, committed=False)
        await produce(node, 1)
        assert await member.acquired() == [(2, 3, 1)], "a marker is a gap to the client"
        assert await member.complete((0, 0, ACCEPT), (2, 3, ACCEPT)) == 0
        assert await offsets(node) == {0: (0, 0), 1: (-1, -1)}


@in_loop
async def test_a_state_of_a_later_version_is_not_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        await joined(node)
        await produce(node, 1)
        key = states.ShareKey("g", node.topics.get("t").id, 0)
        record = states.snapshot_record(key, states.ShareState(0))
        assert record.value is not None
        later = Record(record.key, b"\0\x7f" + record.value[2:])
        batch = encode_ready([later], timestamp=1)
        node.replicas.append_now(PLACE, batch, "coordinator")
    before = stored_bytes(tmp_path)
    async with node_for(tmp_path, **SMALL) as node:
        found = await Member(node).fetch()
        assert found[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "unknown record version 127" in caplog.text
        await node.shares.log.prune()
    assert stored_bytes(tmp_path) == before


def stored_bytes(path: Path) -> bytes:
    return (path / f"{SHARE_GROUP_STATE}-0" / f"{0:020}.log").read_bytes()


@in_loop
async def test_who_may_do_what(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL, **BEHIND_ACLS) as node:
        await joined(node)
        await produce(node, 1)
        clerk = Member(node, "clerk")
        clerk.connection = CLERK
        assert (await clerk.beat()).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert await clerk.fetch() == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert await clerk.complete((0, 0, ACCEPT), epoch=1) == ErrorCode.GROUP_AUTHORIZATION_FAILED
        await allow(node, (3, "g", 3))
        assert (await clerk.beat()).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (await clerk.fetch())[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await clerk.complete((0, 0, ACCEPT)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        tree = {"group_id": "g", "topics": [{"topic_name": "t", "partitions": []}]}
        for name in ("delete_share_group_offsets",):
            answer = await call(node, name, 0, {"group_id": "g", "topics": []}, connection=CLERK)
            assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        await allow(node, (2, "t", 3))
        assert (await clerk.beat()).error_code == 0
        assert (await clerk.fetch())[0].acquired_records == ((0, 0, 1),)
        answer = await call(node, "alter_share_group_offsets", 0, tree, connection=CLERK)
        assert answer.error_code == ErrorCode.NON_EMPTY_GROUP


@in_loop
async def test_who_may_not_read_a_topic_completes_nothing_in_it(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL, **BEHIND_ACLS) as node:
        member = await joined(node)
        await produce(node, 2)
        assert await member.acquired() == [(0, 1, 1)]
        await allow(node, (3, "g", 3))
        clerk = Member(node)
        clerk.connection = CLERK
        assert (await clerk.fetch())[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (await clerk.fetch((0, 1, ACCEPT)))[0].acknowledge_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await clerk.complete((0, 1, ACCEPT)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        member.epoch = 0
        assert isinstance(await member.fetch(), dict)
        assert await member.complete((0, 1, ACCEPT)) == 0


@in_loop
async def test_what_a_member_is_sent_counts_towards_its_clients_limit(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await joined(node)
        await produce(node, 500)
        tree = {"entries": [{
            "entity": [{"entity_type": "user", "entity_name": None}],
            "ops": [{"key": "consumer_byte_rate", "value": 1.0, "remove": False}],
        }], "validate_only": False}  # fmt: skip
        assert (await call(node, "alter_client_quotas", 1, tree)).entries[0].error_code == 0
        assert await member.acquired() == [(0, 499, 1)]
        assert member.connection.mute_until_ms > node.monotonic_ms()


@in_loop
async def test_sessions_are_limited(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL, group_share_max_share_sessions=1) as node:
        one, other = await joined(node, "m"), await joined(node, "n", number=6)
        assert isinstance(await one.fetch(), dict)
        assert await other.fetch() == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert await one.complete(epoch=-1) == 0
        assert isinstance(await other.fetch(), dict)


@in_loop
async def test_the_coordinator_of_a_share_partition_is_found(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        topic = await create_topic(node)
        key = str(states.ShareKey("g", topic.id, 0))
        for version, name, expected in ((6, key, 0), (6, "g", 42), (6, f"g:{'A' * 21}:0", 42), (5, key, 42)):
            tree = {"key_type": 2, "coordinator_keys": [name]}
            [row] = (await call(node, "find_coordinator", version, tree)).coordinators
            assert row.error_code == expected
        assert node.topics.get(SHARE_GROUP_STATE) is not None
        assert node.topics.own_settings(SHARE_GROUP_STATE)["cleanup.policy"] == "delete"
