"""The end of a transaction of very many partitions: others are served meanwhile, and none interferes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafkalog.records.builder import RecordsBuilder
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.node import Node
from kafkalog.server.requests.cooperative_yield import TURN_ROWS
from tests.server.looping import in_loop
from tests.server.nodes import node_for
from tests.server.txns.calls import add_partitions, end_transaction, init_producer

COUNT = 3 * TURN_ROWS
SMALL_INDEXES = {"log_index_size_max_bytes": 4096}


def open_in(node: Node) -> int:
    """In how many partitions a transaction is open."""
    logs = (node.replicas.partition("many", index).log for index in range(COUNT))
    return sum(log.last_stable_offset < log.log_end_offset for log in logs)


async def begin_large_transaction(node: Node) -> Any:
    producer = await init_producer(node)
    assert set((await add_partitions(node, producer, many=list(range(COUNT)))).values()) == {0}
    for index in range(COUNT):
        builder = RecordsBuilder(
            producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, base_sequence=0,
            is_transactional=True,
        )  # fmt: skip
        builder.append(1, b"k", b"v")
        node.replicas.partition("many", index).log.append_as_leader(builder.build(), origin="replication")
    return producer


@pytest.mark.parametrize("is_committed", [True, False])
@in_loop
async def test_others_are_served_while_a_large_transaction_ends(tmp_path: Path, is_committed: bool) -> None:
    async with node_for(tmp_path, **SMALL_INDEXES) as node:
        await node.topics.create("many", COUNT)
        await node.topics.create("t", 2)
        producer = await begin_large_transaction(node)
        assert open_in(node) == COUNT
        ending = asyncio.create_task(end_transaction(node, producer, committed=is_committed))
        left = COUNT
        while not 0 < left < COUNT:
            await asyncio.sleep(0)
            left = open_in(node)
        assert set((await add_partitions(node, producer)).values()) == {ErrorCode.CONCURRENT_TRANSACTIONS}
        same = await end_transaction(node, producer, committed=is_committed)
        assert same.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        other = await end_transaction(node, producer, committed=not is_committed)
        assert other.error_code == ErrorCode.INVALID_TXN_STATE
        assert (await init_producer(node)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert not ending.done()
        assert (await ending).error_code == open_in(node) == 0
        await asyncio.sleep(0)
        assert not node.transactions._finishing, "nothing is kept of an end that is over"
        assert (await end_transaction(node, producer, committed=is_committed)).error_code == 0
        assert (await init_producer(node)).error_code == 0


@in_loop
async def test_a_stop_in_the_middle_of_an_end_is_made_good_by_the_next_start(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL_INDEXES) as node:
        await node.topics.create("many", COUNT)
        producer = await begin_large_transaction(node)
        ending = asyncio.create_task(end_transaction(node, producer))
        left = COUNT
        while not 0 < left < COUNT:
            await asyncio.sleep(0)
            left = open_in(node)
    await asyncio.wait([ending])
    async with node_for(tmp_path, **SMALL_INDEXES) as node:
        await node.transactions.loaded()
        assert open_in(node) == 0
        assert (await end_transaction(node, producer)).error_code == 0
