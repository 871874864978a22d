"""Calls of a transactional producer `x`, which writes to a topic `t` and commits offsets of a group `g`."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from kafkalog.records.builder import RecordsBuilder
from kafkalog.server.node.node import Node
from kafkalog.server.wire.versions import APIS
from tests.server.nodes import KEYS, call, node_for

ALL_OF = {
    name: range(APIS[KEYS[name]].oldest, APIS[KEYS[name]].newest + 1)
    for name in (
        "init_producer_id", "add_partitions_to_txn", "add_offsets_to_txn", "end_txn", "txn_offset_commit",
        "write_txn_markers", "describe_transactions", "list_transactions",
    )
}  # fmt: skip
"""The versions of each call."""
Work = Callable[[Node], Awaitable[None]]


def with_node(path: Path, work: Work, **settings: Any) -> None:
    async def run() -> None:
        async with node_for(path, **settings) as node:
            await node.transactions.loaded()
            if node.topics.get("t") is None:
                await node.topics.create("t", 2)
            await work(node)

    asyncio.run(run())


async def init_producer(node: Node, version: int = 4, name: str | None = "x", **more: Any) -> Any:
    fields = {"transactional_id": name, "transaction_timeout": 60_000, **more}
    return await call(node, "init_producer_id", version, fields)


async def add_partitions(
    node: Node, producer: Any, version: int = 3, name: str = "x", **topics: list[int]
) -> dict[Any, int]:
    """The codes by topic and partition."""
    named = [{"name": topic, "partitions": numbers} for topic, numbers in (topics or {"t": [0, 1]}).items()]
    if version < 4:
        fields = {
            "v3_and_below_transactional_id": name, "v3_and_below_producer_id": producer.producer_id,
            "v3_and_below_producer_epoch": producer.producer_epoch, "v3_and_below_topics": named,
        }  # fmt: skip
        results = (await call(node, "add_partitions_to_txn", version, fields)).results_by_topic_v3_and_below
    else:
        one = {"transactional_id": name, "topics": named, **producer._asdict(), "verify_only": False}
        fields = {"transactions": [{key: one[key] for key in one if key not in ("throttle_time", "error_code")}]}
        response = await call(node, "add_partitions_to_txn", version, fields)
        assert response.error_code == 0
        results = response.results_by_transaction[0].topic_results
    return {(r.name, p.partition_index): p.partition_error_code for r in results for p in r.results_by_partition}


async def end_transaction(node: Node, producer: Any, version: int = 3, name: str = "x", committed: bool = True) -> Any:
    fields = {"transactional_id": name, "committed": committed, "producer_id": producer.producer_id}
    return await call(node, "end_txn", version, {**fields, "producer_epoch": producer.producer_epoch})


async def commit_offsets(
    node: Node, producer: Any, version: int = 3, name: str = "x", topic: str = "t", at: int = 5
) -> int:
    partition = {"partition_index": 0, "committed_offset": at, "committed_metadata": "m"}
    row = {**_named(node, topic, version), "partitions": [partition]}
    fields = {
        "transactional_id": name, "group_id": "g", "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch, "topics": [row],
    }  # fmt: skip
    response = await call(node, "txn_offset_commit", version, fields)
    code: int = response.topics[0].partitions[0].error_code
    return code


def _named(node: Node, topic: str, version: int) -> dict[str, object]:
    """The topic by its name, or by its id from version 6 on; an unknown one has an id that no topic has."""
    if version < 6:
        return {"name": topic}
    known = node.topics.get(topic)
    return {"topic_id": UUID(int=7) if known is None else known.id}


async def add_offsets(node: Node, producer: Any, version: int = 3, name: str = "x") -> int:
    fields = {"transactional_id": name, "group_id": "g", "producer_id": producer.producer_id}
    response = await call(
        node, "add_offsets_to_txn", version, {**fields, "producer_epoch": producer.producer_epoch}
    )
    code: int = response.error_code
    return code


async def produce(node: Node, producer: Any, sequence: int = 0, version: int = 9, name: str | None = "x") -> int:
    builder = RecordsBuilder(
        producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, base_sequence=sequence,
        is_transactional=True,
    )  # fmt: skip
    builder.append(1, b"k", b"v")
    topic = {"name": "t", "partition_data": [{"index": 0, "records": bytes(builder.build())}]}
    fields = {"transactional_id": name, "acks": -1, "timeout": 1000, "topic_data": [topic]}
    response = await call(node, "produce", version, fields)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


async def fetch_committed(node: Node, stable: bool = False) -> tuple[int, int]:
    """The group's offset in partition 0, and the error code."""
    fields = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}], "require_stable": stable}
    response = await call(node, "offset_fetch", 7, fields)
    found = response.topics[0].partitions[0]
    return found.committed_offset, found.error_code
