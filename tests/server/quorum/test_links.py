"""Replica sets over sockets: elections as an operator asks for them, and links that come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kafkalog.cli.promote_cmd import command
from kafkalog.server.quorum.errors import ElectionFailed
from kafkalog.server.serving import Server
from tests.ports import free_ports
from tests.server.client.peers import HOST, server_on
from tests.server.looping import in_loop
from tests.server.quorum.sets import wait_until


@asynccontextmanager
async def server_of(path: Path, number: int, ports: Sequence[int], **settings: Any) -> AsyncIterator[Server]:
    """One of the servers of a set."""
    given = {
        "node.id": number,
        "listeners": f"PLAINTEXT://{HOST}:{ports[number - 1]}",
        "kafkalog.replicas": ",".join(f"{one}@{HOST}:{port}" for one, port in enumerate(ports, 1)),
        **settings,
    }
    async with server_on(path / str(number), **given) as server:
        yield server


async def promoted(port: int, *flags: str) -> tuple[int, str]:
    """The exit status and the words of `kafkalog promote`."""
    result = await asyncio.to_thread(CliRunner().invoke, command, [f"{HOST}:{port}", *flags], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.exit_code, result.output


@in_loop
async def test_an_operator_lets_a_server_lead(tmp_path: Path) -> None:
    ports = free_ports(3)
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(server_of(tmp_path, one, ports)) for one in (1, 2, 3)]
        first, second, third = (server.node.quorum for server in servers)
        first_words = f"{HOST}:{ports[1]} is now the leader: node 2, in term 1, no leader was known\n"
        assert await promoted(ports[1]) == (0, first_words)
        await wait_until(lambda: first.leader == third.leader == 2 and second.leads)
        assert await promoted(ports[1]) == (0, f"{HOST}:{ports[1]} is already the leader: node 2, in term 1\n")
        words = f"{HOST}:{ports[0]} is now the leader: node 1, in term 3, after node 2 in term 1\n"
        assert await promoted(ports[0]) == (0, words)
        assert not second.leads
        await wait_until(lambda: second.leader == third.leader == 1)


@in_loop
async def test_without_a_majority_only_force_helps_and_a_server_that_comes_back_is_reached(tmp_path: Path) -> None:
    ports = free_ports(3)
    async with server_of(tmp_path, 1, ports) as first:
        with pytest.raises(ElectionFailed, match="1 of 3 nodes would vote for node 1"):
            await promoted(ports[0])
        assert not first.node.quorum.leads
        status, words = await promoted(ports[0], "--force")
        assert status == 0 and words.startswith(f"{HOST}:{ports[0]} is now the leader: node 1, in term")
        term = first.node.quorum.state.term
        async with server_of(tmp_path, 2, ports) as second:
            await promoted(ports[1])
            assert not first.node.quorum.leads and second.node.quorum.state.term > term
        async with server_of(tmp_path, 2, ports) as second:  # it led, and leads on with the first one's vote
            await wait_until(lambda: bool(second.node.quorum.leads))
            assert first.node.quorum.leader in (2, -1)
            await wait_until(lambda: first.node.quorum.leader == 2)


def test_what_is_no_address_is_a_mistake() -> None:
    result = CliRunner().invoke(command, ["nowhere"])
    assert result.exit_code == 2 and "is not HOST:PORT" in result.output
