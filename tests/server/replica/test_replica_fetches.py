"""Reads over several partitions, and those that wait. FLOW-*."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog.control import ControlType
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica import replica_manager
from kafkalog.server.replica.delayed_fetch import DelayedFetch
from kafkalog.server.replica.results import FetchResult
from kafkalog.server.replica.roles import Role
from kafkalog.types import LogOffsetMetadata, TopicPartition
from tests.server.replica.partitions import (
    GONE,
    NODE,
    T0,
    T1,
    Replicas,
    consumer_params,
    fetch_as_follower,
    make_batch,
    make_marker,
    make_producer_batch,
    offsets_in,
    request_at,
    run,
    settle,
)

# Reads


def test_a_fetch_answers_at_once_where_it_can(tmp_path: Path) -> None:
    """FLOW-11."""
    async def body(replicas: Replicas) -> None:
        async def at_once(params: Any, *asked: Any) -> list[FetchResult]:
            task = asyncio.create_task(replicas.fetch(params, asked))
            await settle()
            assert task.done()
            return await task

        await at_once(consumer_params(0), request_at(T0, 0))
        assert await at_once(consumer_params(1_000)) == []
        await at_once(consumer_params(1_000, min_bytes=0), request_at(T0, 0))
        [first, second] = await at_once(consumer_params(1_000), request_at(T0, 0), request_at(GONE, 0))
        assert (first.error_code, second.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await replicas.produce(T0)
        [result] = await at_once(consumer_params(1_000), request_at(T0, 0))
        assert offsets_in(result) == [0]
        replicas.with_followers(T1, 2, epoch=3)
        await replicas.produce(T1)
        [result] = await at_once(consumer_params(1_000), request_at(T1, 9, last_fetched_epoch=3))
        assert result.diverging_epoch == (3, 1)

        task = asyncio.create_task(replicas.fetch(consumer_params(1_000), [request_at(T0, 1)]))
        await settle()
        assert not task.done() and replicas.waiting.fetch.delayed == 1
        await replicas.time.passes(1_000)
        [result] = await task
        assert (result.size, result.high_watermark) == (0, 1) and replicas.waiting.fetch.delayed == 0

    run(tmp_path, body)


def test_bytes_are_shared_in_order(tmp_path: Path) -> None:
    """FLOW-12."""
    async def body(replicas: Replicas) -> None:
        size = len(make_batch())
        for _ in range(3):
            await replicas.produce(T0, T1)

        async def sizes(max_bytes: int, *asked: Any) -> list[int]:
            return [result.size // size for result in await replicas.read(consumer_params(max_bytes=max_bytes), asked)]

        assert await sizes(10 * size, request_at(T0, 0), request_at(T1, 0)) == [3, 3]
        assert await sizes(4 * size, request_at(T0, 0), request_at(T1, 0)) == [3, 1]
        assert await sizes(10 * size, request_at(T0, 0, 2 * size), request_at(T1, 0, size + 1)) == [2, 1]
        # at least one batch, whatever the limits
        assert await sizes(1, request_at(T0, 0, 1), request_at(T1, 0)) == [1, 0]
        assert await sizes(1, request_at(T0, 3), request_at(T1, 0, 1)) == [0, 1]
        assert await sizes(2 * size + 1, request_at(T0, 0, size), request_at(T1, 0, size - 1)) == [1, 0]

    run(tmp_path, body)


def test_a_fetch_waits_until_there_is_enough(tmp_path: Path) -> None:
    """FLOW-13, FLOW-17."""
    async def body(replicas: Replicas) -> None:
        size = len(make_batch())
        requests = [request_at(T0, 0), request_at(T1, 0, size)]
        task = asyncio.create_task(replicas.fetch(consumer_params(9_000, 2 * size), requests))
        await settle()
        await replicas.produce(T0)
        await settle()
        assert not task.done()
        await replicas.produce(T1)
        assert [offsets_in(result) for result in await task] == [[0], [0]]
        # what one partition may give counts only up to its limit
        requests = [request_at(T0, 1, 2 * size), request_at(T1, 1)]
        task = asyncio.create_task(replicas.fetch(consumer_params(9_000, 3 * size), requests))
        await settle()
        for _ in range(4):
            await replicas.produce(T0)
        await settle()
        assert not task.done()
        await replicas.produce(T1)
        assert [offsets_in(result) for result in await task] == [[1, 2], [1]]

    run(tmp_path, body)


def test_a_fetch_ends_where_its_partition_changes(tmp_path: Path) -> None:
    """FLOW-13."""
    async def body(replicas: Replicas) -> None:
        async def waits(key: TopicPartition, offset: int, **more: Any) -> asyncio.Task[list[FetchResult]]:
            params = consumer_params(9_000, 10_000, **more)
            task = asyncio.create_task(replicas.fetch(params, [request_at(key, offset, current_leader_epoch=0)]))
            await settle()
            assert not task.done()
            return task

        await replicas.produce(T0, data=make_batch(4))
        task = await waits(T0, 4)
        replicas.find(T0).log.roll()
        await replicas.produce(T0)  # the end lies in a newer segment
        assert offsets_in((await task)[0]) == [4]
        task = await waits(T0, 5)
        replicas.find(T0).log.truncate_to(2)
        replicas.waiting.wake(T0)
        assert (await task)[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        task = await waits(T0, 2)
        replicas.with_followers(T0, epoch=1)
        replicas.waiting.wake(T0)
        assert (await task)[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        task = await waits(T1, 0)
        replicas.find(T1).become_follower(Role(2, 0, 9, (NODE, 2), (2,)))
        replicas.waiting.wake(T1)
        assert (await task)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        replicas.with_followers(T1)
        task = asyncio.create_task(replicas.fetch(consumer_params(9_000, 10_000), [request_at(T1, 0)]))
        await settle()
        await replicas.delete_topic("t")
        assert (await task)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, body)


def test_a_fetch_whose_disk_fails_ends(tmp_path: Path) -> None:
    """FLOW-13, and FLOW-20: what is known of the follower stays."""
    async def body(replicas: Replicas) -> None:
        partition = replicas.with_followers(T0, 2, isr=(2,))
        await replicas.produce(T0)
        await fetch_as_follower(replicas, T0, 2, 1)
        known = dict(partition.followers)
        params = consumer_params(9_000, 10_000, replica_id=2, isolation="log_end")
        asked = request_at(T0, 1, last_fetched_epoch=0, log_start_offset=0)
        task = asyncio.create_task(replicas.fetch(params, [asked]))
        await settle()
        assert not task.done()
        replicas.store.fail_directory(tmp_path, OSError(5, "the disk"))
        replicas.waiting.wake(T0)
        assert (await task)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.followers == known

    run(tmp_path, body)


def test_a_follower_whose_epoch_ended_elsewhere_is_woken(tmp_path: Path) -> None:
    """FLOW-13."""
    async def body(replicas: Replicas) -> None:
        partition = replicas.with_followers(T0, 2, epoch=1)
        await replicas.produce(T0, data=make_batch(3))
        params = consumer_params(9_000, 10_000, replica_id=2, isolation="log_end")
        request = request_at(T0, 3, last_fetched_epoch=1, log_start_offset=0)
        task = asyncio.create_task(replicas.fetch(params, [request]))
        await settle()
        assert not task.done()
        partition.log.truncate_to(1)
        replicas.with_followers(T0, 2, epoch=2)
        await replicas.produce(T0, data=make_batch(5))
        [result] = await task
        assert (result.diverging_epoch, result.size) == ((1, 1), 0)

    run(tmp_path, body)


@pytest.mark.parametrize(
    ("end", "completes"),
    [
        (LogOffsetMetadata(500), False),
        (LogOffsetMetadata(0), True),
        (LogOffsetMetadata(500, 400, 12_000), False),  # the last offsets have no records
        (LogOffsetMetadata(500, 400, 11_000), True),  # a copy in another directory replaced the log
        (LogOffsetMetadata(500, 0, 50_000), True),
    ],
)
def test_an_end_whose_place_is_unknown_or_in_other_segments(end: LogOffsetMetadata, completes: bool) -> None:
    """FLOW-14."""
    class Log:
        def readable_end(self, isolation: str) -> LogOffsetMetadata:
            return end

    class Known:
        log = Log()

        def check_topic_id(self, topic_id: object) -> None: ...

        def check_epoch(self, epoch: int, only_leader: bool) -> None: ...

        def diverges(self, asked: Any) -> bool:
            return False

    place = LogOffsetMetadata(450, 400, 12_000)
    waiting = [(request_at(T0, 450), place)]
    operation = DelayedFetch(consumer_params(1_000), waiting, lambda _: Known(), lambda _: None)  # type: ignore[arg-type,return-value]
    assert operation.try_complete() is completes


def test_who_sees_how_far(tmp_path: Path) -> None:
    """FLOW-15."""
    async def body(replicas: Replicas) -> None:
        replicas.with_followers(T0, 2, isr=(2,))
        await replicas.produce(T0, data=make_batch(3))
        for offset, code in ((0, 0), (3, 0), (4, ErrorCode.OFFSET_OUT_OF_RANGE), (-1, ErrorCode.OFFSET_OUT_OF_RANGE)):
            [result] = await replicas.read(consumer_params(), [request_at(T0, offset)])
            assert (result.error_code, result.size) == (code, 0)
        assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (-1, -1, -1)
        epoch = replicas.find(T0).leader_epoch
        asked = request_at(T0, 0, last_fetched_epoch=epoch, log_start_offset=0)
        [result] = await replicas.read(consumer_params(replica_id=2, isolation="log_end"), [asked])
        assert offsets_in(result) == [0]

    run(tmp_path, body)


def test_a_waiting_committed_fetch_has_what_was_aborted(tmp_path: Path) -> None:
    """FLOW-17."""
    async def body(replicas: Replicas) -> None:
        await replicas.produce(T0, data=make_producer_batch(9, 0, transactional=True))
        params = consumer_params(9_000, isolation="committed")
        task = asyncio.create_task(replicas.fetch(params, [request_at(T0, 0)]))
        await settle()
        await replicas.produce(T0)
        await settle()
        assert not task.done()
        replicas.append_now(T0, make_marker(9, ControlType.ABORT))
        [result] = await task
        assert (result.aborted, result.last_stable_offset, offsets_in(result)) == ([(9, 0)], 3, [0, 1, 2])

    run(tmp_path, body)


def test_another_topic_id_than_the_logs(tmp_path: Path) -> None:
    """FLOW-18."""
    async def body(replicas: Replicas) -> None:
        known = replicas.topics.topics["t"].id
        for topic_id, code in ((known, 0), (None, 0), (UUID(int=99), ErrorCode.INCONSISTENT_TOPIC_ID)):
            [result] = await replicas.read(consumer_params(), [request_at(T0, 0, topic_id=topic_id)])
            assert result.error_code == code

    run(tmp_path, body)


def test_the_place_in_a_topic_that_was_deleted_counts_for_none_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise records of the new topic, which the follower does not have, would be safe."""
    async def body(replicas: Replicas) -> None:
        known, read = replicas.topics.topics["t"].id, replica_manager.read_partitions
        replicas.with_followers(T0, 2, isr=(2,))
        await replicas.produce(T0, data=make_batch(3))

        async def read_and_create_again(*args: Any) -> Any:
            results = await read(*args)
            await replicas.delete_topic("t")
            replicas.add_topic("t")
            replicas.topics.topics["t"] = replicas.topics.topics["t"]._replace(id=UUID(int=99))
            replicas.with_followers(T0, 2, isr=(2,))
            await replicas.produce(T0, data=make_batch(3))
            return results

        monkeypatch.setattr(replica_manager, "read_partitions", read_and_create_again)
        asked = request_at(T0, 3, topic_id=known, last_fetched_epoch=0, log_start_offset=0)
        [result] = await replicas.read(consumer_params(replica_id=2, isolation="log_end"), [asked])
        assert result.error_code == ErrorCode.INCONSISTENT_TOPIC_ID
        assert (replicas.find(T0).high_watermark, replicas.find(T0).log.log_end_offset) == (0, 3)

    run(tmp_path, body)


def test_a_followers_failed_fetch_tells_nothing_of_it(tmp_path: Path) -> None:
    """FLOW-20."""
    async def body(replicas: Replicas) -> None:
        partition = replicas.with_followers(T0, 2, isr=(2,))
        await replicas.produce(T0, data=make_batch(3))
        before = dict(partition.followers)
        await fetch_as_follower(replicas, T0, 2, 9)
        assert partition.followers == before
        await fetch_as_follower(replicas, T0, 2, 3)
        assert partition.followers[2].log_end.message_offset == 3 == partition.high_watermark
        [result] = await replicas.read(consumer_params(replica_id=7, isolation="log_end"), [request_at(T0, 0)])
        assert (result.error_code, result.size) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)

    run(tmp_path, body)
