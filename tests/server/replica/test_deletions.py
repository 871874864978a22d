"""Deleted records are gone once every replica has released them. PART-11."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.node import Node
from kafkalog.server.replica.delayed_delete import Deletion
from kafkalog.server.replica.roles import Role
from kafkalog.types import TopicPartition
from tests.server.nodes import call, node_for
from tests.server.replica.partitions import NODE, T0, T1, Replicas, consumer_params, make_batch, request_at, run, settle


async def follow(replicas: Any, key: TopicPartition, node: int, offset: int, start: int) -> None:
    """The fetch of a follower whose log is from `start` to `offset`."""
    params = consumer_params(replica_id=node, isolation="log_end")
    epoch = replicas.find(key).log.leader_epochs[-1][0]
    await replicas.read(
        params, [request_at(key, offset, max_bytes=0, last_fetched_epoch=epoch, log_start_offset=start)]
    )


async def deleted(replicas: Replicas, *keys: TopicPartition) -> asyncio.Task[dict[TopicPartition, Deletion]]:
    """Return the task that waits for all replicas of partitions whose leader has deleted records below 2."""
    for key in keys:
        await replicas.produce(key, data=make_batch(3))
        for node in (2, 3):
            await follow(replicas, key, node, 3, 0)
        assert await replicas.delete_records(key, 2) == 0
        assert replicas.find(key).log.log_start_offset == 2
    task = asyncio.create_task(replicas.deleted_everywhere(dict.fromkeys(keys, 2), 1_000))
    await settle()
    assert not task.done() and replicas.waiting.deletion.delayed == 1
    return task


def test_it_waits_for_every_replica(tmp_path: Path) -> None:
    """PART-11."""
    async def body(replicas: Replicas) -> None:
        for key in (T0, T1):
            replicas.with_followers(key, 2, 3, isr=(2, 3))
        task = await deleted(replicas, T0, T1)
        for key, node in ((T0, 2), (T1, 3), (T0, 3)):
            await follow(replicas, key, node, 3, 2)
            await settle()
            assert not task.done()
        await follow(replicas, T1, 2, 3, 2)
        assert await task == {T0: Deletion(0, 2), T1: Deletion(0, 2)}
        assert replicas.waiting.deletion.delayed == 0
        assert await replicas.deleted_everywhere({T0: 2}, 1_000) == {T0: Deletion(0, 2)}

    run(tmp_path, body)


def test_it_waits_no_longer_than_it_says(tmp_path: Path) -> None:
    """PART-11: what the leader has deleted stays deleted."""
    async def body(replicas: Replicas) -> None:
        for key in (T0, T1):
            replicas.with_followers(key, 2, 3, isr=(2, 3))
        task = await deleted(replicas, T0, T1)
        for node in (2, 3):
            await follow(replicas, T1, node, 3, 2)
        await replicas.time.passes(999)
        assert not task.done()
        await replicas.time.passes(1)
        assert await task == {T0: Deletion(ErrorCode.REQUEST_TIMED_OUT), T1: Deletion(0, 2)}
        assert replicas.find(T0).log.log_start_offset == 2

    run(tmp_path, body)


def test_who_was_not_heard_of_for_long_is_not_waited_for(tmp_path: Path) -> None:
    """PART-11."""
    async def body(replicas: Replicas) -> None:
        partition = replicas.with_followers(T0, 2, 3, isr=(2, 3))
        task = await deleted(replicas, T0)
        replicas.waiting.deletion.complete_all()
        await task
        await follow(replicas, T0, 2, 3, 2)
        await replicas.time.passes(30_000)
        assert partition.low_watermark == 0
        await follow(replicas, T0, 2, 3, 2)
        await replicas.time.passes(1)
        assert partition.low_watermark == 2  # without node 3

    run(tmp_path, body)


def test_a_partition_that_goes_away_ends_it(tmp_path: Path) -> None:
    async def body(replicas: Replicas) -> None:
        for key in (T0, T1):
            replicas.with_followers(key, 2, 3, isr=(2, 3))
        task = await deleted(replicas, T0)
        replicas.find(T0).become_follower(Role(2, 1, 9, (NODE, 2, 3), (2,)))
        replicas.waiting.wake(T0)
        assert await task == {T0: Deletion(ErrorCode.NOT_LEADER_OR_FOLLOWER)}
        task = await deleted(replicas, T1)
        await replicas.delete_topic("t")
        assert await task == {T1: Deletion(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}

    run(tmp_path, body)


def test_a_client_that_goes_away_leaves_nothing(tmp_path: Path) -> None:
    async def body(replicas: Replicas) -> None:
        replicas.with_followers(T0, 2, 3, isr=(2, 3))
        task = await deleted(replicas, T0)
        task.cancel()
        await settle()
        assert replicas.waiting.deletion.delayed == 0

    run(tmp_path, body)


def test_a_client_is_answered_when_all_have_let_go(tmp_path: Path) -> None:
    """PART-11: of its partitions only those wait that some replica still has."""
    async def rows(node: Node, timeout_ms: int) -> list[tuple[int, int]]:
        asked = [{"partition_index": index, "offset": offset} for index, offset in ((0, 2), (1, -1), (9, 0))]
        tree = {"topics": [{"name": "t", "partitions": asked}], "timeout": timeout_ms}
        answer = await call(node, "delete_records", 2, tree)
        return [(row.error_code, row.low_watermark) for row in answer.topics[0].partitions]

    async def body() -> None:
        unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        async with node_for(tmp_path, replica_lag_time_max_ms=2**31 - 1) as node:
            await node.topics.create("t", 2, {"retention.ms": "-1"})
            for key in (T0, T1):
                node.replicas.append_now(key, make_batch(3), "client")
            replicas = (node.node_id, 7)
            partition = node.replicas.find(T0)
            partition.become_leader(Role(node.node_id, 1, 1, replicas, replicas))
            assert await rows(node, 0) == [(ErrorCode.REQUEST_TIMED_OUT, -1), (0, 3), unknown]
            task = asyncio.create_task(rows(node, 600_000))
            while not node.replicas.waiting.deletion.delayed:
                await asyncio.sleep(0.01)
            await follow(node.replicas, T0, 7, 3, 2)
            assert await asyncio.wait_for(task, 300) == [(0, 2), (0, 3), unknown]

    asyncio.run(body())
