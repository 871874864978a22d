"""Changes of a worker's share partitions, which the main process stores: in order, for the present state, or not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog.errors import StorageError
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.share.state import ShareKey
from kafkalog.server.share.state_log import ShareStateLog
from kafkalog.server.workers.link import LinkLost, Message
from kafkalog.server.workers.share_calls import CALLS_OF_WORKERS
from kafkalog.server.workers.share_states import WorkerStates
from tests.server.looping import in_loop
from tests.server.nodes import node_for
from tests.server.share.sharing import ACCEPT, RELEASE, SMALL, Member, joined, produce


class LinkToLog:
    """The worker's end of a link to a main process that has this log; `may_answer` holds its answers back."""

    def __init__(self, log: ShareStateLog) -> None:
        self.log = log
        self.calls: list[str] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.is_lost = False

    async def call(self, name: str, values: Any, body: bytes = b"") -> Message:
        if self.is_lost:
            raise LinkLost("it has ended")
        self.calls.append(name)
        main = SimpleNamespace(shares=SimpleNamespace(log=self.log))
        answer = await CALLS_OF_WORKERS[name](main, Message(json.loads(json.dumps(values)), body))  # type: ignore[arg-type]
        await self.may_answer.wait()
        return Message(json.loads(json.dumps(answer.values)))


async def worker_of(node: Any) -> tuple[Member, LinkToLog]:
    """Join a group, and let the node's share partitions be those of a worker from now on."""
    member = await joined(node)
    await produce(node, 10)
    link = LinkToLog(node.shares.log)
    node.shares.log = WorkerStates(node, link)  # type: ignore[arg-type]
    return member, link


def key_of(member: Member) -> ShareKey:
    return ShareKey("g", member.node.topics.get("t").id, 0)


@in_loop
async def test_an_acknowledgement_is_answered_once_it_is_stored(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member, link = await worker_of(node)
        assert await member.acquired() == [(0, 9, 1)]
        link.may_answer.clear()
        answering = asyncio.ensure_future(member.complete((0, 3, ACCEPT), (4, 5, RELEASE)))
        while "share_write" not in link.calls:
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not answering.done()
        link.may_answer.set()
        assert await answering == 0
        state = link.log.get(key_of(member))
        assert state is not None and state.complete == 4 and len(state.batches) == 2
        assert node.shares.log.get(key_of(member)) == state
        assert await member.acquired() == [(4, 5, 2)]


@in_loop
async def test_a_change_of_a_state_that_was_replaced_is_refused_and_the_new_one_is_loaded(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member, link = await worker_of(node)
        assert await member.acquired() == [(0, 9, 1)]
        link.log.initialize(key_of(member), 7, 3)
        assert await member.complete((0, 9, ACCEPT)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        state = link.log.get(key_of(member))
        assert state is not None and (state.start, state.batches) == (3, ())
        assert await member.acquired() == [(3, 9, 1)]
        assert await member.complete((3, 9, ACCEPT)) == 0


@in_loop
async def test_a_change_that_is_refused_fails_no_other_of_its_request(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member = await joined(node)
        for partition in range(2):
            await produce(node, 10, partition=partition)
        link = LinkToLog(node.shares.log)
        node.shares.log = WorkerStates(node, link)  # type: ignore[arg-type]
        await member.fetch(places=(0, 1))
        link.log.initialize(key_of(member), 7, 3)
        rows = await member.complete_many((0, 9, ACCEPT), places=(0, 1))
        codes = {index: row.error_code for index, row in rows.items()}
        assert codes == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER, 1: 0}


@in_loop
async def test_nothing_is_lost_when_the_main_process_cannot_store_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member, link = await worker_of(node)
        assert await member.acquired() == [(0, 9, 1)]

        def fail(*_: object) -> int:
            monkeypatch.undo()
            raise StorageError("the disk is full")

        monkeypatch.setattr(link.log, "_append", fail)
        first = asyncio.ensure_future(member.complete((0, 3, ACCEPT)))
        await asyncio.sleep(0)
        assert await member.complete((4, 9, ACCEPT), epoch=2) != 0  # it builds on the change that failed
        assert await first == ErrorCode.NOT_COORDINATOR
        member.epoch = 3
        state = link.log.get(key_of(member))
        assert state is not None and (state.start, state.batches) == (-1, ())
        assert await member.acquired() == [(0, 9, 1)]
        assert await member.complete((0, 9, ACCEPT)) == 0
        assert await member.acquired() == []


@in_loop
async def test_a_call_that_is_cancelled_takes_no_change_of_another_one_with_it(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member, link = await worker_of(node)
        assert await member.acquired() == [(0, 9, 1)]
        link.may_answer.clear()
        answering = asyncio.ensure_future(member.complete((0, 3, ACCEPT)))
        while "share_write" not in link.calls:
            await asyncio.sleep(0)
        of_a_client_that_goes = asyncio.ensure_future(node.shares.log.settled([key_of(member)]))
        await asyncio.sleep(0)
        of_a_client_that_goes.cancel()
        await asyncio.wait([of_a_client_that_goes])
        link.may_answer.set()
        assert await answering == 0


@in_loop
async def test_a_share_partition_is_not_served_without_the_main_process(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        member, link = await worker_of(node)
        link.is_lost = True
        rows = await member.fetch()
        assert rows[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        link.is_lost = False
        assert await member.acquired() == [(0, 9, 1)]
        link.is_lost = True
        assert await member.complete((0, 9, ACCEPT)) != 0
        link.is_lost = False
        assert await member.acquired() == [(0, 9, 1)]
