"""Data that is not in memory is read by a thread: the event loop answers other clients meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kafkalog.server.node.node import Node
from kafkalog.types import TopicPartition
from tests.cold_disk import ColdDisk
from tests.gates import PATIENCE_S, wait_until
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for
from tests.server.share.sharing import SMALL, joined, produce, produce_values
from tests.server.txns.calls import add_partitions, end_transaction, init_producer
from tests.server.txns.calls import produce as produce_in_transaction

T = TypeVar("T")
T0 = TopicPartition("t", 0)
COMMITTED = 1


async def fetch(node: Node, offset: int = 0, *, isolation_level: int = 0, **more: Any) -> Any:
    """Fetch from partition 0 of t; return its row of the answer."""
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    answer = await call(node, "fetch", 12, {
        "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": isolation_level, "session_id": 0,
        "session_epoch": -1, "topics": [{"topic": "t", "partitions": [partition]}], "forgotten_topics_data": [],
    } | more)  # fmt: skip
    [topic] = answer.responses
    [row] = topic.partitions
    return row


async def latest_offset(node: Node) -> int:
    """Return the log end that ListOffsets finds for partition 0 of t."""
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": "t", "partitions": [partition]}]
    answer = await call(node, "list_offsets", 7, {"replica_id": -1, "isolation_level": 0, "topics": topics})
    row = answer.topics[0].partitions[0]
    assert row.error_code == 0
    return int(row.offset)


async def answered_meanwhile(node: Node, disk: ColdDisk, request: Awaitable[T]) -> T:
    """Return a request's result; while it waits for the disk, another client writes and reads."""
    disk.cool_down()
    try:
        waiting = asyncio.ensure_future(request)
        assert await asyncio.to_thread(disk.has_waited.wait, PATIENCE_S), "no thread reads"
        await produce(node, 1, partition=1)
        assert not waiting.done()
    finally:
        disk.warm_up()
    result = await waiting
    assert disk.in_loop == []
    return result


async def write_old_segments(path: Path) -> None:
    """Write two segments, with an aborted transaction in the first one."""
    async with node_for(path, **SMALL) as node:
        await node.topics.create("t", 2)
        await node.transactions.loaded()
        producer = await init_producer(node)
        await add_partitions(node, producer)
        assert await produce_in_transaction(node, producer, 0) == 0
        await end_transaction(node, producer, committed=False)
        await produce(node, 3)
        node.replicas.find(T0).log.roll()
        await produce(node, 1)


@pytest.mark.parametrize("isolation_level", [0, COMMITTED])
@in_loop
async def test_another_client_is_answered_while_a_fetch_opens_an_old_segment(
    tmp_path: Path, isolation_level: int
) -> None:
    await write_old_segments(tmp_path)
    disk = ColdDisk("t-0")
    async with node_for(tmp_path, fs=disk, **SMALL) as node:
        row = await answered_meanwhile(node, disk, fetch(node, isolation_level=isolation_level))
        assert row.error_code == 0 and row.records
        assert len(row.aborted_transactions or ()) == isolation_level


@pytest.mark.parametrize("isolation_level", [0, COMMITTED])
@in_loop
async def test_another_client_is_answered_while_a_fetch_reads_cold_headers(
    tmp_path: Path, isolation_level: int
) -> None:
    await write_old_segments(tmp_path)
    disk = ColdDisk("t-0")
    async with node_for(tmp_path, fs=disk, **SMALL) as node:
        assert (await fetch(node, isolation_level=isolation_level)).error_code == 0  # opens and checks the files
        row = await answered_meanwhile(node, disk, fetch(node, isolation_level=isolation_level))
        assert row.error_code == 0 and row.records


@in_loop
async def test_a_read_from_memory_stays_on_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        await node.topics.create("t", 2)
        await produce(node, 3)
        assert (await fetch(node)).error_code == 0
        handed: list[object] = []
        monkeypatch.setattr(node.replicas, "_run", lambda *args: handed.append(args))
        assert (await fetch(node)).records
        assert handed == []


@in_loop
async def test_another_client_is_answered_while_a_share_fetch_reads_cold_headers(tmp_path: Path) -> None:
    disk = ColdDisk("t-0")
    async with node_for(tmp_path, fs=disk, **SMALL) as node:
        member = await joined(node)
        assert await member.acquired() == []
        await produce_values(node, [b"v" * 100_000, b"w"])
        await produce(node, 2)
        rows = await answered_meanwhile(node, disk, member.acquired())
        assert rows == [(0, 3, 1)]


@pytest.mark.parametrize("request_of", [fetch, latest_offset])
@in_loop
async def test_another_client_is_answered_while_a_thread_holds_the_log(tmp_path: Path, request_of: Any) -> None:
    """The lock is needed to look up the place of a high watermark of which only the offset is known."""
    async with node_for(tmp_path, **SMALL) as node:
        await node.topics.create("t", 2)
        await produce(node, 1, 1)
        log = node.replicas.find(T0).log
        log.update_high_watermark(1)
        is_held, may_end, ends = threading.Event(), threading.Event(), []

        def hold() -> None:  # as a thread that renames files
            with log.fields.lock:
                is_held.set()
                ends.append(may_end.wait(PATIENCE_S))

        holder = asyncio.ensure_future(asyncio.to_thread(hold))
        await asyncio.to_thread(is_held.wait)
        waiting = asyncio.ensure_future(request_of(node))
        await asyncio.to_thread(wait_until, lambda: node.pool.pending > 0 or waiting.done())
        await produce(node, 1, partition=1)
        assert not waiting.done()
        may_end.set()
        await holder
        assert ends == [True], "the loop waited for the lock"
        found = await waiting
        assert found == 1 if request_of is latest_offset else found.high_watermark == 1
