"""A share fetch that finds nothing to hand out: the event loop serves others meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.replica.results import FetchResult
from kafkalog.server.share.partition import SharePartition
from tests.server.looping import in_loop
from tests.server.nodes import node_for
from tests.server.share.sharing import ACCEPT, SMALL, joined, produce, set_group
from tests.server.txns.calls import add_partitions, end_transaction, init_producer
from tests.server.txns.calls import produce as produce_in_transaction

ABORTED = 30


class Rounds:
    """The rounds of another task, and how many there were at each read of a share partition."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.at_reads: list[int] = []
        read = SharePartition._read

        async def counted(partition: SharePartition, at: int, max_bytes: int) -> FetchResult:
            self.at_reads.append(self.count)
            return await read(partition, at, max_bytes)

        monkeypatch.setattr(SharePartition, "_read", counted)

    async def go(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


@in_loop
async def test_others_are_served_while_aborted_records_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await joined(node)
        await set_group(node, share_isolation_level="read_committed")
        await produce(node, 1)
        assert await member.acquired() == [(0, 0, 1)]
        assert await member.complete((0, 0, ACCEPT)) == 0
        await node.transactions.loaded()
        producer = await init_producer(node)
        await add_partitions(node, producer)
        for sequence in range(ABORTED):
            assert await produce_in_transaction(node, producer, sequence) == 0
        await end_transaction(node, producer, committed=False)
        rounds = Rounds(monkeypatch)
        other = asyncio.create_task(rounds.go())
        assert await member.acquired(max_records=1) == [(ABORTED + 1, ABORTED + 1, 1)], "the marker"
        other.cancel()
        assert len(rounds.at_reads) > ABORTED
        assert rounds.at_reads == sorted(set(rounds.at_reads)), "the other task had its turn before each read"


@in_loop
async def test_others_are_served_while_a_fetch_waits_where_the_log_has_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await joined(node)
        await produce(node, 2)

        async def nothing(*_: Any) -> FetchResult:
            return FetchResult()

        monkeypatch.setattr(SharePartition, "_read", nothing)
        rounds = Rounds(monkeypatch)
        now_ms = iter(range(10**6))  # each look at the clock takes 1 ms
        node.monotonic_ms = lambda: next(now_ms)
        other = asyncio.create_task(rounds.go())
        assert await member.acquired(max_wait=60) == []
        other.cancel()
        assert len(rounds.at_reads) > 2
        assert rounds.at_reads == sorted(set(rounds.at_reads)), "the other task had its turn before each read"
