"""Replication that is held back, as settings of the node and of the topic say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafkalog.config.keys import MAX_LONG
from kafkalog.server.node.node import Node
from kafkalog.server.replica.results import AppendParams, FetchParams, FetchPartition
from kafkalog.server.replica.throttle import FollowingThrottle, ReplicationRate, is_throttled
from kafkalog.types import TopicPartition
from tests.server.looping import in_loop
from tests.server.quorum.sets import Set, set_of
from tests.server.replica.partitions import make_batch, settle

T0, T1 = KEYS = [TopicPartition("t", 0), TopicPartition("t", 1)]
FOLLOWER = FetchParams(0, 1, 1 << 20, "log_end", 2)
CONSUMER = FetchParams(0, 1, 1 << 20, "high_watermark", -1)


@pytest.mark.parametrize(
    ("replicas", "is_so"), [((), False), (("*",), True), (("0:1", "1:2"), True), (("0:2",), False), (("1:1",), False)]
)
def test_a_topic_names_the_replicas_that_are_throttled(replicas: tuple[str, ...], is_so: bool) -> None:
    assert is_throttled(replicas, 0, 1) == is_so


def test_a_rate_is_exceeded_above_its_limit_until_time_has_passed() -> None:
    now, limit = [1_000_000], [100]
    rate = ReplicationRate(lambda: limit[0], lambda: now[0])
    assert not rate.is_exceeded
    rate.record(1_100)
    assert rate.is_exceeded
    limit[0] = MAX_LONG
    assert not rate.is_exceeded
    limit[0] = 100
    now[0] += 11_001
    assert not rate.is_exceeded


async def start_leader(nodes: Set, **settings: Any) -> Node:
    """The leader, with records in both partitions."""
    await nodes.promote(1)
    await nodes[1].topics.create("t", 2, {"leader.replication.throttled.replicas": "*", **settings})
    for key in KEYS:
        await nodes[1].replicas.append({key: bytearray(make_batch())}, AppendParams(1, 1_000))
    return nodes[1]


async def sizes(leader: Node, params: FetchParams) -> list[bool]:
    """Return whether there were records, by partition."""
    epoch = leader.quorum.state.term
    asked = [FetchPartition(key, 0, 1 << 20, last_fetched_epoch=epoch) for key in KEYS]
    results = await leader.replicas.read(params, asked)
    assert [result.error_code for result in results] == [0, 0]
    return [result.size > 0 for result in results]


def out_of_sync(leader: Node) -> None:
    """Only the leader is in sync."""
    for key in KEYS:
        partition = leader.replicas.find(key)
        partition.role = partition.role._replace(isr=(1,))
        partition.leader_epoch_start_offset = 1  # and who fetches from 0 is not back yet


@in_loop
async def test_a_follower_that_is_behind_gets_nothing_above_the_rate(tmp_path: Path) -> None:
    """FLOW-19: the second partition is cut when the first one used up what there was; consumers never are."""
    async with set_of(tmp_path, leader_replication_throttled_rate=1) as nodes:
        leader = await start_leader(nodes)
        assert await sizes(leader, FOLLOWER) == [True, True]  # in sync
        out_of_sync(leader)
        leader.replicas._throttle = ReplicationRate(lambda: 1, leader.monotonic_ms)
        assert await sizes(leader, FOLLOWER) == [True, False]
        assert await sizes(leader, FOLLOWER) == [False, False]
        leader.alter_config({"leader.replication.throttled.rate": None})
        leader.replicas._throttle = ReplicationRate(
            lambda: int(leader.config["leader.replication.throttled.rate"]), leader.monotonic_ms
        )
        assert await sizes(leader, FOLLOWER) == [True, True]


@in_loop
async def test_a_follower_that_is_held_back_waits_for_its_answer(tmp_path: Path) -> None:
    """Without the wait it would ask for the records that it does not get again and again."""
    async with set_of(tmp_path, leader_replication_throttled_rate=1) as nodes:
        leader = await start_leader(nodes)
        out_of_sync(leader)
        leader.replicas._throttle = ReplicationRate(lambda: 1, leader.monotonic_ms)
        leader.replicas._throttle.record(1 << 20)
        epoch = leader.quorum.state.term
        asked = [FetchPartition(KEYS[0], 0, 1 << 20, last_fetched_epoch=epoch)]
        params = FOLLOWER._replace(max_wait_ms=600_000, min_bytes=1)
        fetch = asyncio.ensure_future(leader.replicas.fetch(params, asked))
        await settle()
        assert leader.replicas.waiting.fetch.delayed == 1 and not fetch.done()
        partition = leader.replicas.find(KEYS[0])
        partition.role = partition.role._replace(isr=partition.role.replicas)  # in sync again: nothing holds it back
        leader.replicas.waiting.wake(KEYS[0])
        assert [result.size > 0 for result in await fetch] == [True]


@in_loop
async def test_topics_that_name_no_replica_are_not_throttled(tmp_path: Path) -> None:
    """FLOW-19."""
    async with set_of(tmp_path, leader_replication_throttled_rate=0) as nodes:
        leader = await start_leader(nodes, **{"leader.replication.throttled.replicas": "0:1"})
        out_of_sync(leader)
        assert await sizes(leader, FOLLOWER) == [True, True]
        assert await sizes(leader, FOLLOWER) == [False, True]
        assert await sizes(leader, CONSUMER) == [False, False]  # its high watermark is 0
        for key in KEYS:
            leader.replicas.find(key).log.update_high_watermark(1)
        assert await sizes(leader, CONSUMER) == [True, True]


def test_a_throttle_lets_those_in_sync_through() -> None:
    throttle = FollowingThrottle(1000, lambda key: key == T0)
    assert throttle.wait_ms(0) == 0
    throttle.record(T0, 50_000, 0)
    throttle.record(T1, 10**9, 0)
    wait_ms = throttle.wait_ms(0)
    assert 0 < wait_ms <= 50_000
    assert throttle.holds_back(T0, False, wait_ms)
    assert not throttle.holds_back(T0, True, wait_ms)
    assert not throttle.holds_back(T1, False, wait_ms)
    assert throttle.wait_ms(60_000) == 0


def test_a_follower_waits_the_longer_the_lower_its_rate_is() -> None:
    waits = []
    for limit in (0, 1, 2, 1_000, MAX_LONG):
        throttle = FollowingThrottle(limit, lambda key: key == T0)
        throttle.record(T1, 1 << 20, 1_000)
        assert throttle.wait_ms(1_000) == 0, "only throttled partitions count"
        throttle.record(T0, 2_000, 1_000)
        waits.append(throttle.wait_ms(1_000))
    assert waits[0] == waits[1] > waits[2] > waits[3] >= waits[4] == 0
    held = [throttle.holds_back(key, is_in_sync, wait_ms)
            for key in KEYS for is_in_sync in (False, True) for wait_ms in (0, 1)]  # fmt: skip
    assert held == [False, True, *[False] * 6]
