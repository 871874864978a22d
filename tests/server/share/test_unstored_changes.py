"""Changes of share partitions while their states cannot be written: nothing takes effect, and it is tried again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.share import partition
from tests.server.looping import in_loop, pass_time
from tests.server.nodes import node_for
from tests.server.share.sharing import ACCEPT, REJECT, SMALL, joined, produce, set_group
from tests.server.share.test_dead_letters import ENABLED, LETTERS, letters, until_archived, with_letters
from tests.server.share.test_share_partitions import Timers

REASON = "the leader of __share_group_state-0 is handing over"


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == partition.__name__]


@in_loop
async def test_records_are_not_completed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await joined(node)
        await produce(node, 2)
        assert await member.acquired() == [(0, 1, 1)]
        node.replicas.hold_writes()
        assert await member.complete((0, 0, ACCEPT)) == ErrorCode.NOT_COORDINATOR
        node.replicas.release_writes()
        assert await member.complete((0, 0, ACCEPT)) == 0
        key = next(iter(node.shares._partitions))
        assert logged(caplog) == [f"the state of share partition {key} cannot be written: {REASON}"]


@in_loop
async def test_locks_that_end_are_released_later(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member, other = await joined(node), await joined(node, "n", number=6)
        await set_group(node, share_record_lock_duration_ms="20000")
        await produce(node, 2)
        timers = Timers(node)
        assert await member.acquired() == [(0, 1, 1)]
        node.replicas.hold_writes()
        timers.go(20_000)
        assert await member.complete((0, 0, ACCEPT)) == ErrorCode.NOT_COORDINATOR
        node.replicas.release_writes()
        timers.go(19_999)
        assert await other.acquired() == []
        timers.go(1)
        assert await other.acquired() == [(0, 1, 2)]


@in_loop
async def test_records_whose_letters_are_written_are_archived_later(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        await node.topics.create(LETTERS, 1, ENABLED)
        member = await with_letters(node, share_record_lock_duration_ms="20000")
        await produce(node, 1)
        assert await member.acquired() == [(0, 0, 1)]
        append, log = node.replicas.append_now, node.replicas.partition(LETTERS, 0).log

        def append_now(*given: object, **named: object) -> object:
            try:
                return append(*given, **named)
            finally:
                if log.log_end_offset:
                    node.replicas.hold_writes()

        node.replicas.append_now = append_now
        assert await member.complete((0, 0, REJECT)) == 0
        [one] = [one for one in node.shares._partitions.values() if one._burials]
        while not log.log_end_offset:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert one._burials, "it waits"
        node.replicas.append_now = append
        node.replicas.release_writes()
        pass_time(20)
        await until_archived(node, 0)
    assert letters(tmp_path) == [(0, "1", "Offset rejected by client.")]
