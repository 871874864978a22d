"""Byte quotas: the answers that a producer and a consumer above their limits get, and the data."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kafkalog.server.node.node import Node
from tests.builder import R, batch
from tests.server.nodes import call, connection_for, node_for

SIZE = 200_000
DATA = batch([R(bytes(SIZE), timestamp=5_000)])


async def set_limit(node: Node, key: str, rate: float) -> None:
    entity = [{"entity_type": "client-id", "entity_name": "slow"}]
    tree = {"entries": [{"entity": entity, "ops": [{"key": key, "value": rate, "remove": False}]}]}
    answer = await call(node, "alter_client_quotas", 1, {**tree, "validate_only": False})
    assert answer.entries[0].error_code == 0


async def produce(node: Node, client_id: str, acks: int = 1) -> Any:
    """The answer, and for how many ms from the request on the connection is muted."""
    connection, before_ms = connection_for(), node.monotonic_ms()
    topic = {"name": "t", "partition_data": [{"index": 0, "records": DATA}]}
    tree = {"transactional_id": None, "acks": acks, "timeout": 1_000, "topic_data": [topic]}
    answer = await call(node, "produce", 9, tree, client_id=client_id, connection=connection)
    return answer, connection.mute_until_ms - before_ms


async def fetch(node: Node, client_id: str, version: int = 12, **more: Any) -> Any:
    one = {
        "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
        "log_start_offset": -1, "partition_max_bytes": 1 << 20,
    }  # fmt: skip
    topics = more.pop("topics", [{"topic": "t", "partitions": [one]}])
    tree = {
        "replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, "session_id": 0,
        "session_epoch": -1, "topics": topics, "forgotten_topics_data": (), "rack_id": "", **more,
    }  # fmt: skip
    return await call(node, "fetch", version, tree, client_id=client_id)


def test_a_producer_above_its_limit_is_told_after_its_append(tmp_path: Path) -> None:
    """Its bytes are written, and counted once; without an answer it is muted all the same."""

    async def main() -> None:
        async with node_for(tmp_path) as node:
            await node.topics.create("t", 1)
            await set_limit(node, "producer_byte_rate", 10_000.0)
            answer, muted_ms = await produce(node, "fast")
            assert (answer.throttle_time, muted_ms > 0) == (0, False)
            answer, muted_ms = await produce(node, "slow")
            assert answer.responses[0].partition_responses[0].base_offset == 1
            assert answer.throttle_time > 0 and muted_ms > 0
            nothing, muted_ms = await produce(node, "slow", acks=0)
            assert nothing is None and muted_ms > 0

    asyncio.run(main())


def test_a_producer_is_told_the_longer_of_two_waits(tmp_path: Path) -> None:
    """One is for its bytes, one for the time that it took."""

    async def main() -> None:
        async with node_for(tmp_path) as node:
            await node.topics.create("t", 1)
            await set_limit(node, "request_percentage", 0.001)
            answer, muted_ms = await produce(node, "slow")
            assert 0 < answer.throttle_time <= 1000 and muted_ms > 0
            await set_limit(node, "producer_byte_rate", 1.0)
            answer, muted_ms = await produce(node, "slow")
            assert answer.throttle_time > 1000 and muted_ms > 1000

    asyncio.run(main())


def test_a_consumer_above_its_limit_gets_nothing_yet_and_no_more_than_the_limit_lets_through(tmp_path: Path) -> None:
    async def main() -> None:
        async with node_for(tmp_path) as node:
            await node.topics.create("t", 1)
            for _ in range(4):
                await produce(node, "fast")
            await set_limit(node, "consumer_byte_rate", 20_000.0)
            whole = await fetch(node, "fast")
            assert len(whole.responses[0].partitions[0].records) == 4 * len(DATA)
            # at most what ten windows of a second let through, but one batch at least: that is more than they do
            made = await fetch(node, "slow", session_epoch=0)
            assert made.throttle_time > 0 and made.responses == () and made.error_code == 0
            await set_limit(node, "consumer_byte_rate", 50_000.0)
            answer = await fetch(node, "slow")
            assert answer.throttle_time == 0
            assert len(answer.responses[0].partitions[0].records) == 50_000 * 10

    asyncio.run(main())


def test_a_consumer_that_waits_keeps_its_session_and_gets_what_it_asked_for_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with node_for(tmp_path) as node:
            await node.topics.create("t", 1)
            made = await fetch(node, "slow", session_epoch=0)
            assert made.session_id > 0 and made.throttle_time == 0
            await produce(node, "fast")
            await set_limit(node, "consumer_byte_rate", 10.0)
            following = {"session_id": made.session_id, "topics": []}
            waits = await fetch(node, "slow", session_epoch=1, **following)
            assert waits.throttle_time > 0
            assert (waits.error_code, waits.session_id, waits.responses) == (0, made.session_id, ())
            await set_limit(node, "consumer_byte_rate", 10.0**9)
            fetched = await fetch(node, "slow", session_epoch=2, **following)
            assert (fetched.error_code, fetched.session_id, fetched.throttle_time) == (0, made.session_id, 0)
            assert len(fetched.responses[0].partitions[0].records) == len(DATA)

    asyncio.run(main())
