"""Three nodes with their sockets: followers copy the leader's topics, settings and records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.client.login import connect
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node import leaders_metadata, topics
from kafkalog.server.replica.results import AppendParams
from kafkalog.server.serving import Server
from kafkalog.types import TopicPartition
from tests.builder import R, batch
from tests.server.client.peers import HOST
from tests.server.looping import in_loop
from tests.server.replica.copies import bytes_from, until
from tests.server.replicated.servers import Servers, servers_of

METADATA, FIND_COORDINATOR = 3, 10
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@asynccontextmanager
async def set_of_three(path: Path, **settings: Any) -> AsyncIterator[Servers]:
    async with servers_of(path, 1, 2, 3, settings=settings) as servers:
        yield servers


async def write(server: Server, key: TopicPartition, value: bytes) -> int:
    """The error code of a write with acks=all."""
    found = await server.node.replicas.append({key: bytearray(batch([R(value)]))}, AppendParams(-1, 60_000))
    return int(found[key].error_code)


async def until_same(servers: dict[int, Server], leader: int, *keys: TopicPartition) -> None:
    def is_same(key: TopicPartition) -> bool:
        logs = [server.node.store.get(key) for server in servers.values()]
        ends = {(log.log_end_offset, log.high_watermark) if log is not None else None for log in logs}
        return None not in ends and len(ends) == 1

    def describe_state() -> object:
        return {(one, key): server.node.store.get(key) for one, server in servers.items() for key in keys}

    await until(lambda: all(is_same(key) for key in keys), describe_state)
    for key in keys:
        log = servers[leader].node.store.get(key)
        assert len({bytes_from(server.node.store.get(key), log.log_start_offset) for server in servers.values()}) == 1


@in_loop
async def test_followers_have_what_the_leader_has_and_go_on_with_the_next(tmp_path: Path) -> None:
    """PART-2, PART-3: acks=all is answered when others have it."""
    async with set_of_three(tmp_path) as servers:
        first = servers[1].node
        await first.quorum.promote()
        made = await first.topics.create("t", 2, {"retention.ms": "-1"})
        await until(lambda: all(one.node.topics.get("t") is not None for one in servers.values()))
        for number in range(20):
            assert await write(servers[1], T0 if number % 2 else T1, b"%d" % number) == 0
        await until_same(servers, 1, T0, T1)
        assert {one.node.topics.get("t").id for one in servers.values()} == {made.id}
        assert {one.node.topics.settings("t").retention_ms for one in servers.values()} == {-1}

        await until(lambda: set(first.replicas.find(T0).role.isr) == {1, 2, 3})
        await servers[2].node.quorum.promote()
        assert await write(servers[2], T0, b"of the second") == 0
        await until_same(servers, 2, T0, T1)
        epochs = {tuple(one.node.store.get(T0).leader_epochs) for one in servers.values()}
        assert len(epochs) == 1
        second = servers[2].node.topics
        await second.alter("t", {"retention.ms": "1000000"})
        await second.add_partitions("t", 3)
        await second.create("u", 1)
        await until(lambda: all(one.node.topics.get("u") is not None for one in servers.values()))
        await until(lambda: {one.node.topics.get("t").partitions for one in servers.values()} == {3})
        await until(lambda: {one.node.topics.settings("t").retention_ms for one in servers.values()} == {1000000})
        await second.delete("t")
        await until(lambda: all(one.node.topics.get("t") is None for one in servers.values()))


@in_loop
async def test_a_topic_that_grew_beyond_what_one_call_makes_is_copied_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (topics, leaders_metadata):
        monkeypatch.setattr(module, "MAX_PARTITIONS_AT_ONCE", 2)
    async with servers_of(tmp_path, 1, 2) as servers:
        first = servers[1].node
        await first.quorum.promote()
        await first.topics.create("t", 2)
        for count in (4, 5):
            await first.topics.add_partitions("t", count)
        late = (await servers.start(3)).node
        await until(lambda: (found := late.topics.get("t")) is not None and found.partitions == 5)
        assert len(late.store.logs) == 5
        await until(lambda: late.quorum.metadata.stored == first.quorum.metadata.stored)


@in_loop
async def test_a_topic_is_made_on_use_whichever_node_a_client_asks(tmp_path: Path) -> None:
    """A client may have reached a follower alone: the leader makes the topic, and those that coordinators need."""
    async with set_of_three(tmp_path) as servers:
        await servers[1].node.quorum.promote()
        await until(lambda: servers[2].node.quorum.leader == servers[3].node.quorum.leader == 1)
        for number, name in ((2, "orders"), (3, "more")):
            client = await connect(HOST, servers.ports[number])
            try:
                asked = {"topics": [{"topic_id": None, "name": name}], "allow_auto_topic_creation": True}
                unasked = dict.fromkeys(
                    ("include_topic_authorized_operations", "include_cluster_authorized_operations"), False
                )
                answer = await client.request(METADATA, {**asked, **unasked})
                assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                await until(lambda name=name: servers[1].node.topics.get(name) is not None)
                await client.request(FIND_COORDINATOR, {"key_type": number - 2, "coordinator_keys": ["readers"]})
            finally:
                await client.close()
        for name in ("orders", "more", "__consumer_offsets", "__transaction_state"):
            await until(lambda name=name: all(one.node.topics.get(name) is not None for one in servers.values()))
        await servers.stop(1)
        client = await connect(HOST, servers.ports[2])
        try:
            answer = await client.request(METADATA, {
                "topics": [{"topic_id": None, "name": "nobody.leads"}], "allow_auto_topic_creation": True, **unasked,
            })  # fmt: skip
            assert answer.topics[0].error_code != 0
        finally:
            await client.close()
