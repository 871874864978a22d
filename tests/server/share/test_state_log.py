"""The states of share groups: a coordinator that has stopped, a topic that is deleted while it is read."""

import asyncio
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog._core.batch.encode import encode_ready
from kafkalog.config.topic import LogConfig
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.records import Record
from kafkalog.server.node.parts import make_part
from kafkalog.server.node.topics import SHARE_GROUP_STATE
from kafkalog.server.share import state_log
from kafkalog.server.share.state import ShareKey, ShareState, snapshot_record
from kafkalog.server.share.state_log import ShareStateLog
from kafkalog.types import TopicPartition
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for
from tests.server.share.sharing import ACCEPT, SMALL, Member, joined, offsets, produce


def slow_to_be_ready(monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Let calls that need a state set the first event, and wait for the second one."""
    ready, has_begun, goes_on = ShareStateLog.ready, asyncio.Event(), asyncio.Event()

    async def slowly(log: ShareStateLog, key: Any) -> int:
        has_begun.set()
        await goes_on.wait()
        return await ready(log, key)

    monkeypatch.setattr(ShareStateLog, "ready", slowly)
    return has_begun, goes_on


async def restart(node: Any) -> None:
    """Replace the share coordinator, as a node of a replica set does that leads again."""
    await node.shares.stop()
    node.parts["shares"] = make_part(node, "shares")
    await node.shares.start()


@in_loop
async def test_a_member_that_waited_while_the_leader_changed_begins_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state would replace one that the present coordinator knows."""
    async with node_for(tmp_path, **SMALL) as node:
        member = await joined(node)
        await produce(node, 1)
        assert await member.acquired() == [(0, 0, 1)]
        has_begun, goes_on = slow_to_be_ready(monkeypatch)
        waiting = asyncio.ensure_future(Member(node, "n", group="h").beat())
        await has_begun.wait()
        await restart(node)
        log = node.replicas.partition(SHARE_GROUP_STATE, 0).log
        end = log.log_end_offset
        goes_on.set()
        answer = await waiting
        assert (answer.error_code, log.log_end_offset) == (ErrorCode.NOT_COORDINATOR, end)


@in_loop
async def test_a_member_that_waited_while_the_leader_changed_acquires_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Timers of the former coordinator would try to write the state again and again."""
    async with node_for(tmp_path, **SMALL) as node:
        member = await joined(node)
        await produce(node, 1)
        (has_begun, goes_on), former = slow_to_be_ready(monkeypatch), node.shares
        waiting = asyncio.ensure_future(member.fetch())
        await has_begun.wait()
        await restart(node)
        goes_on.set()
        assert (await waiting)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not former._partitions


@in_loop
async def test_the_topic_of_states_may_be_deleted_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SMALL | {"share_coordinator_state_topic_num_partitions": 2}
    async with node_for(tmp_path, **settings) as node:
        member = await joined(node)
        await produce(node, 1)
        assert await member.acquired() == [(0, 0, 1)]
        assert (await member.fetch((0, 0, ACCEPT)))[0].acknowledge_error_code == 0
        assert node.shares.log.keys(lambda _: True)
    read, has_begun, may_end = state_log.read_states, threading.Event(), threading.Event()

    def read_slowly(log: Any) -> Any:
        found = read(log)
        has_begun.set()
        assert may_end.wait(60)
        return found

    monkeypatch.setattr(state_log, "read_states", read_slowly)
    async with node_for(tmp_path, **settings) as node:
        assert await node.run(has_begun.wait, 60)
        await node.topics.delete(SHARE_GROUP_STATE)
        may_end.set()
        await node.shares.log.loaded()
        assert node.shares.log.keys(lambda _: True) == [], "they were in the deleted topic"
        for group in ("g", "h", "i"):
            assert (await Member(node, group=group).beat()).error_code == 0


@in_loop
async def test_a_restart_keeps_offsets_that_were_set_before_the_first_member(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        await node.topics.create("t", 2)
        await produce(node, 9)
        rows = [{"topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": 6}]}]
        tree = {"group_id": "g", "topics": rows}
        assert (await call(node, "alter_share_group_offsets", 0, tree)).error_code == 0
    async with node_for(tmp_path, **SMALL) as node:
        await node.groups.loaded()
        assert await offsets(node) == {0: (6, 3)}
        member = await joined(node)
        assert await member.acquired() == [(6, 8, 1)]


@in_loop
async def test_a_member_that_joins_meanwhile_begins_at_the_offsets_that_were_set(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        await node.topics.create("t", 2)
        rows = [{"topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": 6}]}]
        altering = call(node, "alter_share_group_offsets", 0, {"group_id": "g", "topics": rows})
        altered, beat = await asyncio.gather(altering, Member(node).beat())
        assert (altered.error_code, beat.error_code) == (0, 0)
        assert {index: start for index, (start, _) in (await offsets(node)).items()} == {0: 6, 1: -1}


@in_loop
async def test_a_state_of_a_later_format_is_not_served_and_others_are(tmp_path: Path) -> None:
    keys = [ShareKey("g", UUID(int=5), partition) for partition in (0, 1)]
    async with node_for(tmp_path, **SMALL) as node:
        for key in keys:
            assert await node.shares.log.ready(key) == 0
            node.shares.log.initialize(key, 1, 3)
        damaged = encode_ready([Record(snapshot_record(keys[0], ShareState(9))[0], b"\0\x63")], timestamp=1)
        assert damaged is not None
        node.replicas.append_now(TopicPartition(SHARE_GROUP_STATE, 0), damaged, "coordinator")
    async with node_for(tmp_path, **SMALL) as node:
        log = node.shares.log
        assert [await log.ready(key) for key in keys] == [ErrorCode.COORDINATOR_NOT_AVAILABLE, 0]
        assert log.keys(lambda _: True) == keys[1:] and log.get(keys[0]) is None
        assert not log.has_lost(keys[0]), "a later version has it"
        found = log.get(keys[1])
        assert found is not None and found.start == 3
        await node.topics.delete(SHARE_GROUP_STATE)
        assert await log.ready(keys[0]) == 0, "it was in the deleted topic"


@in_loop
async def test_a_partition_that_cannot_be_read_leaves_the_others_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = SMALL | {"share_coordinator_state_topic_num_partitions": 2}
    keys = [ShareKey("g", UUID(int=5), number) for number in range(20)]
    async with node_for(tmp_path, **settings) as node:
        for key in keys:
            assert await node.shares.log.ready(key) == 0
            node.shares.log.initialize(key, 1, 3)
        held = {key: node.shares.log._place(key).partition for key in keys}
    [file] = (tmp_path / f"{SHARE_GROUP_STATE}-0").glob("*.log")
    data = bytearray(file.read_bytes())
    data[70] ^= 1
    file.write_bytes(data)
    async with node_for(tmp_path, **settings) as node:
        log = node.shares.log
        assert {await log.ready(key) for key in keys if not held[key]} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert {await log.ready(key) for key in keys if held[key]} == {0}
        assert log.keys(lambda _: True) == [key for key in keys if held[key]]
        assert not any(log.has_lost(key) for key in keys)
        await node.topics.delete(SHARE_GROUP_STATE)
        assert {await log.ready(key) for key in keys} == {0}
        [logged] = [one for one in caplog.records if one.name == state_log.__name__]
        assert f"the states of {SHARE_GROUP_STATE}-0 cannot be read: " in logged.getMessage() and not logged.exc_info


@in_loop
async def test_a_partition_whose_old_records_must_stay_does_not_hold_up_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = SMALL | {"share_coordinator_state_topic_num_partitions": 2}
    keys = [ShareKey("g", UUID(int=5), number) for number in range(20)]
    async with node_for(tmp_path, **settings) as node:
        log = node.shares.log
        for key in keys * 2:
            assert await log.ready(key) == 0
            log.initialize(key, 1, 3)
        logs = [node.replicas.partition(SHARE_GROUP_STATE, number).log for number in (0, 1)]
        first = log._place(keys[0]).partition  # it is pruned first
        assert {state.snapshot_epoch for key in keys if (state := log.get(key)) is not None} == {1}
        logs[first].config = LogConfig(cleanup_policy="compact")
        await log.prune()
        assert [logs[number].log_start_offset > 0 for number in (first, 1 - first)] == [False, True]
        reason = "can not be deleted due to the configured policy"
        assert [text for text in caplog.messages if "old records" in text] == [
            f"old records of {SHARE_GROUP_STATE}-{first} cannot be deleted: "
            f"Records of partition {SHARE_GROUP_STATE}-{first} {reason}"
        ]


@in_loop
async def test_a_stop_ends_the_pruning(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        log = node.shares.log
        timer = log._timer
        assert timer is not None and not timer.cancelled()
        log._prune_periodically()
        assert log._timer is not timer and log._pruning is not None
        timer = log._timer
        await log._pruning
        await node.shares.stop()
        assert timer.cancelled() and log._timer is timer
        node.parts["shares"] = make_part(node, "shares")
        await node.shares.start()
