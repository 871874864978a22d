"""Calls of a share group's members to a node, as tests make them."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from kafkalog.server.requests.context import Connection
from tests.raw_batches import batch
from tests.server.nodes import call

SMALL: Final[dict[str, Any]] = {
    "offsets_topic_num_partitions": 1, "share_coordinator_state_topic_num_partitions": 1,
    "log_cleaner_backoff_ms": 60_000,
}  # fmt: skip
EARLIEST: Final = {"share.auto.offset.reset": "earliest"}
ACCEPT, RELEASE, REJECT = 1, 2, 3


def link(number: int) -> Connection:
    """A member's connection."""
    return Connection(number, "PLAINTEXT")


class Member:
    """A member of a group, with a share session on topic t."""

    def __init__(self, node: Any, name: str = "m", group: str = "g", number: int = 5) -> None:
        self.node, self.name, self.group = node, name, group
        self.connection = link(number)
        self.epoch = 0

    async def beat(self, epoch: int = 0, topics: tuple[str, ...] | None = ("t",)) -> Any:
        return await call(self.node, "share_group_heartbeat", 1, {
            "group_id": self.group, "member_id": self.name, "member_epoch": epoch, "rack_id": None,
            "subscribed_topic_names": topics,
        }, connection=self.connection)  # fmt: skip

    async def fetch(self, *acks: Any, epoch: int | None = None, places: Any = (0,), **more: Any) -> Any:
        """Fetch; the answer's row of each partition by number, or the error code."""
        topic_id = self.node.topics.get("t").id
        rows = [
            {"partition_index": index, "acknowledgement_batches": [ack(*one) for one in acks]} for index in places
        ]
        answer = await call(self.node, "share_fetch", 2, {
            "group_id": self.group, "member_id": self.name, "max_wait": 0,
            "share_session_epoch": self.epoch if epoch is None else epoch,
            "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500,
            "topics": [{"topic_id": topic_id, "partitions": rows}], "forgotten_topics_data": [],
        } | more, connection=self.connection)  # fmt: skip
        if answer.error_code:
            return answer.error_code
        self.epoch += 1
        return {row.partition_index: row for topic in answer.responses for row in topic.partitions}

    async def acquired(self, **more: Any) -> list[tuple[int, int, int]]:
        """The records that a fetch from partition 0 acquires: first, last, delivery."""
        rows = await self.fetch(**more)
        assert isinstance(rows, dict), rows
        return [tuple(row) for row in rows[0].acquired_records] if 0 in rows else []

    async def complete(self, *acks: Any, epoch: int | None = None) -> int:
        """Acknowledge in partition 0; return the partition's error code, or that of the request."""
        rows = await self.complete_many(*acks, epoch=epoch)
        return rows if isinstance(rows, int) else int(rows[0].error_code)

    async def complete_many(self, *acks: Any, epoch: int | None = None, places: Any = (0,)) -> Any:
        """Acknowledge in partitions; the answer's rows by number, or the error code of the request."""
        rows = [{"partition_index": at, "acknowledgement_batches": [ack(*one) for one in acks]} for at in places]
        topics = [{"topic_id": self.node.topics.get("t").id, "partitions": rows}] if acks else []
        answer = await call(self.node, "share_acknowledge", 2, {
            "group_id": self.group, "member_id": self.name, "topics": topics,
            "share_session_epoch": self.epoch if epoch is None else epoch,
        }, connection=self.connection)  # fmt: skip
        if answer.error_code or not answer.responses:
            return int(answer.error_code)
        self.epoch += 1
        return {row.partition_index: row for row in answer.responses[0].partitions}


def ack(first: int, last: int, *types: int) -> dict[str, Any]:
    return {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}


async def produce(node: Any, *sizes: int, partition: int = 0) -> None:
    for size in sizes:
        await produce_values(node, [b"v%d" % number for number in range(size)], partition=partition)


async def produce_values(node: Any, values: list[bytes], *, partition: int = 0) -> None:
    records = batch(0, values, timestamp=node.clock())
    data = [{"name": "t", "partition_data": [{"index": partition, "records": records}]}]
    tree = {"transactional_id": None, "acks": -1, "timeout": 60_000, "topic_data": data}
    assert (await call(node, "produce", 9, tree)).responses[0].partition_responses[0].error_code == 0


async def set_group(node: Any, group: str = "g", **settings: str) -> None:
    rows = [{"name": name.replace("_", "."), "config_operation": 0, "value": value} for name, value in settings.items()]
    resources = [{"resource_type": 32, "resource_name": group, "configs": rows}]
    answer = await call(node, "incremental_alter_configs", 1, {"resources": resources, "validate_only": False})
    assert answer.responses[0].error_code == 0, answer


async def joined(node: Any, name: str = "m", *, number: int = 5) -> Member:
    """A member of group g, which begins at the start of topic t."""
    if node.topics.get("t") is None:
        await node.topics.create("t", 2)
    await set_group(node, share_auto_offset_reset="earliest")
    member = Member(node, name, number=number)
    answer = await member.beat()
    assert answer.error_code == 0, answer
    return member


async def offsets(node: Any, group: str = "g") -> dict[int, tuple[int, int]]:
    """Return the group's start offset and lag in each partition of t."""
    tree = {"groups": [{"group_id": group, "topics": None}]}
    [row] = (await call(node, "describe_share_group_offsets", 1, tree)).groups
    return {one.partition_index: (one.start_offset, one.lag) for topic in row.topics for one in topic.partitions}


async def until_waiting(node: Any, requests: int = 1) -> None:
    """Return when so many requests wait for records."""
    while node.replicas.waiting.fetch.delayed < requests:
        await asyncio.sleep(0)
