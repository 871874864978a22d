"""The leader is gone, and each of those that are left has something that the other lacks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafkalog.server.quorum.errors import ElectionFailed
from kafkalog.server.serving import Server
from kafkalog.types import TopicPartition
from tests.server.looping import in_loop
from tests.server.replica.copies import bytes_from, until
from tests.server.replicated.test_following_leader import T0, T1, set_of_three, until_same, write


@asynccontextmanager
async def each_ahead(path: Path) -> AsyncIterator[dict[int, Server]]:
    """Node 1 led, and is gone: node 2 has all of the first partition, node 3 all of the second."""
    async with set_of_three(path, **{"replica.lag.time.max.ms": 1500}) as servers:
        first = servers[1].node
        await first.quorum.promote()
        await first.topics.create("t", 2)
        await until(lambda: all(one.node.topics.get("t") is not None for one in servers.values()))
        await write_to_all(servers[1], T0, b"of all")
        await write_to_all(servers[1], T1, b"of all")
        await until_same(servers, 1, T0, T1)
        for number, key in ((3, T0), (2, T1)):
            stand_still(servers[number], key)
        for number in range(20):
            await write_to_all(servers[1], T0, b"of the second %d" % number)
            await write_to_all(servers[1], T1, b"of the third %d" % number)
        await servers.stop(1)
        yield servers


def stand_still(server: Server, key: TopicPartition) -> None:
    """The node asks for this partition no more, as where its disk is slow."""
    states = server.node.following.fetcher.states
    states[key] = states[key]._replace(is_suspended=True)


async def write_to_all(server: Server, key: TopicPartition, value: bytes) -> None:
    """Return once a write with acks=all was acknowledged: those who are late have to leave the ISR before."""
    code = -1
    async with asyncio.timeout(60):
        while code:
            code = await write(server, key, value)
            await asyncio.sleep(0.01)  # a refusal comes at once


def log_end(server: Server, key: TopicPartition) -> int:
    return int(server.node.store.get(key).log_end_offset)


@in_loop
async def test_who_is_promoted_first_copies_what_the_other_has_more_of(tmp_path: Path) -> None:
    async with each_ahead(tmp_path) as servers:
        second, third = servers[2], servers[3]
        assert log_end(second, T0) > log_end(third, T0) and log_end(third, T1) > log_end(second, T1)
        acknowledged = bytes_from(second.node.store.get(T0), 0), bytes_from(third.node.store.get(T1), 0)
        await third.node.quorum.promote()
        assert (bytes_from(third.node.store.get(T0), 0), bytes_from(third.node.store.get(T1), 0)) == acknowledged
        await write_to_all(third, T0, b"of the next")
        await until_same(servers, 3, T0, T1)
        assert b"of the second 19" in bytes_from(second.node.store.get(T0), 0)
        assert b"of the third 19" in bytes_from(second.node.store.get(T1), 0)


@in_loop
async def test_a_voter_that_cannot_be_copied_from_still_refuses(tmp_path: Path) -> None:
    async with each_ahead(tmp_path) as servers:
        quorum = servers[3].node.quorum

        async def no_way(*_: object) -> None:
            raise ConnectionResetError("the link is cut")

        copy, quorum.copy_ahead = quorum.copy_ahead, no_way
        with pytest.raises(ElectionFailed, match="1 of 3 nodes would vote for node 3"):
            await quorum.promote()
        assert not quorum.leads
        quorum.copy_ahead = copy
        await quorum.promote()
        assert quorum.leads
