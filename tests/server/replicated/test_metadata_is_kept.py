"""Acknowledged changes of topics and users survive every change of leader: three nodes with their sockets.

One of them hears nothing of the leader's changes, and the leader goes away as soon as it has answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.client.login import connect
from kafkalog.server.client.settings import peer_settings
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.quorum.errors import ElectionFailed
from kafkalog.server.quorum.version_file import VersionFile
from kafkalog.server.serving import Server
from tests.server.client.peers import HOST
from tests.server.looping import in_loop
from tests.server.replica.copies import bytes_from, until
from tests.server.replicated.servers import Servers, servers_of
from tests.server.replicated.test_following_leader import T0, until_same
from tests.server.replicated.test_survivors import write_to_all

CREATE, DELETE, ALTER_CONFIGS, ALTER_USERS = 19, 20, 44, 51
USER = {"name": "b", "mechanism": 1, "iterations": 4096, "salt": b"s" * 24, "salted_password": b"p" * 32}


async def ask(servers: Servers, number: int, key: int, tree: Any) -> Any:
    """The rows of a node's answer to a client."""
    connection = await connect(HOST, servers.ports[number], peer_settings({}))
    try:
        answer = await connection.request(key, tree)
    finally:
        await connection.close()
    return answer[-1] if key != ALTER_USERS else answer.results


def create(name: str, timeout_ms: int = 60_000) -> Any:
    topic = {"name": name, "num_partitions": 1, "replication_factor": -1, "assignments": [], "configs": []}
    return {"topics": [topic], "timeout": timeout_ms, "validate_only": False}


def delete(name: str) -> Any:
    return {"topics": [{"name": name, "topic_id": None}], "timeout": 60_000}


def hears_nothing(server: Server) -> Any:
    """Let the node follow records but no topics or settings; call the result to end that."""
    metadata = server.node.following.metadata
    take = metadata.take

    async def wait_for_ever(*_: object, **__: object) -> None:
        await asyncio.get_running_loop().create_future()

    metadata.take = wait_for_ever  # type: ignore[method-assign]
    return lambda: setattr(metadata, "take", take)


@asynccontextmanager
async def one_is_deaf(path: Path, *made: str) -> AsyncIterator[Servers]:
    """Node 1 leads, and made these topics before node 3 went deaf."""
    async with servers_of(path, 1, 2, 3, settings={"replica.lag.time.max.ms": 1500}) as servers:
        await servers[1].node.quorum.promote()
        for name in made:
            [row] = await ask(servers, 1, CREATE, create(name))
            assert row.error_code == 0
            await until(lambda name=name: all(one.node.topics.get(name) for one in servers.values()))
        await until(lambda: len({one.node.quorum.metadata.stored for one in servers.values()}) == 1)
        hears_nothing(servers[3])
        yield servers


@pytest.mark.parametrize("successor", [2, 3])
@in_loop
async def test_a_topic_that_was_made_is_there_with_its_id(tmp_path: Path, successor: int) -> None:
    """A node without the change copies it from a node that votes for it."""
    async with one_is_deaf(tmp_path) as servers:
        [row] = await ask(servers, 1, CREATE, create("t"))
        assert row.error_code == 0
        assert servers[2].node.topics.get("t").id == row.topic_id and servers[3].node.topics.get("t") is None
        await servers.stop(1)
        await servers[successor].node.quorum.promote()
        assert servers[successor].node.topics.get("t").id == row.topic_id


@in_loop
async def test_who_cannot_copy_it_does_not_lead(tmp_path: Path) -> None:
    async with one_is_deaf(tmp_path) as servers:
        [row] = await ask(servers, 1, CREATE, create("t"))
        await servers.stop(1)

        async def no_way(*_: object) -> None:
            raise ConnectionResetError("the link is cut")

        servers[3].node.quorum.copy_ahead = no_way
        with pytest.raises(ElectionFailed, match="1 of 3 nodes would vote for node 3"):
            await servers[3].node.quorum.promote()
        await servers[2].node.quorum.promote()
        assert servers[2].node.topics.get("t").id == row.topic_id


@pytest.mark.parametrize("successor", [2, 3])
@in_loop
async def test_a_topic_that_was_deleted_stays_so(tmp_path: Path, successor: int) -> None:
    """A node without the delete still has the topic's records, and votes for a node without it all the same."""
    async with one_is_deaf(tmp_path, "t", "u") as servers:
        await write_to_all(servers[1], T0, b"one")
        await until_same(servers, 1, T0)
        [row] = await ask(servers, 1, DELETE, delete("t"))
        assert row.error_code == 0
        assert servers[2].node.topics.get("t") is None and servers[3].node.topics.get("t") is not None
        await servers.stop(1)
        await servers[successor].node.quorum.promote()
        assert servers[successor].node.topics.names() == ["u"]


@in_loop
async def test_records_of_a_topic_that_a_candidate_never_heard_of_are_not_given_up(tmp_path: Path) -> None:
    """The topic's creation was not answered for yet, and its record was."""
    async with one_is_deaf(tmp_path) as servers:
        first = servers[1].node
        await first.topics.create("t", 1)
        await until(lambda: servers[2].node.topics.get("t") is not None)
        await write_to_all(servers[1], T0, b"one")
        content = bytes_from(first.store.get(T0), 0)
        await servers.stop(1)
        await servers[3].node.quorum.promote()
        assert bytes_from(servers[3].node.store.get(T0), 0) == content


@pytest.mark.parametrize("successor", [2, 3])
@in_loop
async def test_a_user_and_a_setting_are_there(tmp_path: Path, successor: int) -> None:
    async with one_is_deaf(tmp_path) as servers:
        [user] = await ask(servers, 1, ALTER_USERS, {"deletions": [], "upsertions": [USER]})
        change = {"name": "log.retention.ms", "config_operation": 0, "value": "123456"}
        resources = [{"resource_type": 4, "resource_name": "", "configs": [change]}]
        [setting] = await ask(servers, 1, ALTER_CONFIGS, {"resources": resources, "validate_only": False})
        assert (user.error_code, setting.error_code) == (0, 0)
        await servers.stop(1)
        await servers[successor].node.quorum.promote()
        node = servers[successor].node
        assert node.credentials.keys_of("b", "SCRAM-SHA-256") is not None
        assert node.config["log.retention.ms"] == 123456


@in_loop
async def test_without_a_majority_a_change_is_not_answered_for(tmp_path: Path) -> None:
    """Its fate is unknown then; a retry is answered as soon as a majority has it."""
    async with one_is_deaf(tmp_path) as servers:
        await servers.stop(2)
        [row] = await ask(servers, 1, CREATE, create("t", 300))
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
        again = asyncio.ensure_future(ask(servers, 1, CREATE, create("t")))
        await servers.start(2)
        [row] = await again
        assert row.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert servers[2].node.topics.get("t").id == servers[1].node.topics.get("t").id


@in_loop
async def test_versions_are_kept_over_a_start(tmp_path: Path) -> None:
    async with one_is_deaf(tmp_path, "t") as servers:
        term = servers[1].node.quorum.state.term
        assert servers[2].node.quorum.metadata.stored == (term, 1)
        await servers.stop(2)
        kept = VersionFile(servers.directory(2)).read()
        assert kept is not None and kept.complete == (term, 1)
        second = (await servers.start(2)).node
        assert second.quorum.metadata.versions.complete >= (term, 1)
