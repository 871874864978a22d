"""Groups move both ways: from a real broker to a node on its directory, and back into the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from kafkalog.server.groups.classic_group import ClassicGroup
from kafkalog.server.groups.consumer_group import ConsumerGroup
from kafkalog.server.groups.values import CommittedOffset
from tests.interop.broker import Broker
from tests.interop.reference import Reference
from tests.server.groups.groups import commit_offset, fetch_offset, form_group
from tests.server.nodes import call, node_for

QUICK = {"group.initial.rebalance.delay.ms": "0"}
LIMIT_S = 180


def test_groups_go_over_and_back(tmp_path: Path, reference: Reference) -> None:
    data = tmp_path / "data"
    with Broker(reference, tmp_path / "first", data, QUICK) as broker:
        _use(broker.bootstrap)
    asyncio.run(_go_on(data))
    with Broker(reference, tmp_path / "second", data, QUICK) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert _offsets(broker.bootstrap, "classic") == {0: 11, 1: 22}
        assert _offsets(broker.bootstrap, "next") == {0: 33}
        assert _offsets(broker.bootstrap, "in-txn") == {0: 44}
        assert _offsets(broker.bootstrap, "ours") == {0: 5}
        assert _offsets(broker.bootstrap, "ours-next") == {0: 6}
        assert _offsets(broker.bootstrap, "ours-txn") == {0: 7}
        listed = admin.list_consumer_groups().result()
        assert not listed.errors
        states = {one.group_id: (one.state.name, one.type.name) for one in listed.valid}
        assert states == {
            "classic": ("EMPTY", "CLASSIC"), "next": ("EMPTY", "CONSUMER"), "in-txn": ("EMPTY", "CLASSIC"),
            "ours": ("STABLE", "CLASSIC"), "ours-next": ("STABLE", "CONSUMER"), "ours-txn": ("EMPTY", "CLASSIC"),
        }  # fmt: skip
        assert "gone" not in states, "what we took back is gone for the broker too"
        described = admin.describe_consumer_groups(["ours"])["ours"].result()
        assert [(one.client_id, one.host) for one in described.members] == [("test", "/127.0.0.1")]
        _check_generation(broker.bootstrap)


def _use(bootstrap: str) -> None:
    """Leave groups of each kind, with offsets, in a broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("t", 2)]).values():
        future.result()
    _consume(bootstrap, "classic", {0: 11, 1: 22})
    _consume(bootstrap, "next", {0: 33}, **{"group.protocol": "consumer"})
    gone = ConsumerGroupTopicPartitions("gone", [TopicPartition("t", 0, 9)])
    for future in admin.alter_consumer_group_offsets([gone]).values():
        future.result()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    producer.init_transactions()
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "in-txn"})
    for offset, end in ((44, producer.commit_transaction), (55, producer.abort_transaction)):
        producer.begin_transaction()
        offsets = [TopicPartition("t", 0, offset)]
        producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata())
        end()
    reader.close()


def _consume(bootstrap: str, group_id: str, offsets: dict[int, int], **settings: Any) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group_id, **settings})
    consumer.subscribe(["t"])
    _until(lambda: consumer.poll(0.2) is None and len(consumer.assignment()) == 2)
    consumer.commit(
        offsets=[TopicPartition("t", partition, offset) for partition, offset in offsets.items()], asynchronous=False
    )
    consumer.close()


def _until(is_done: Callable[[], bool]) -> None:
    for _ in range(LIMIT_S * 5):
        if is_done():
            return
    raise AssertionError("it takes too long")


def _offsets(bootstrap: str, group_id: str) -> dict[int, int]:
    """Return a group's offsets of `t` by partition, once the broker has loaded them.

    A consumer asks for them: librdkafka's admin client dies (SIGSEGV) of an answer that says they are still loading.
    It asks again while the broker, which has just started, does not lead the group's partition yet.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group_id})
    found: list[TopicPartition] = []

    def ask() -> bool:
        try:
            found[:] = consumer.committed([TopicPartition("t", partition) for partition in (0, 1)], timeout=LIMIT_S)
        except KafkaException as error:
            assert error.args[0].code() == KafkaError.NOT_COORDINATOR
            consumer.poll(0.2)
            return False
        return True

    _until(ask)
    consumer.close()
    return {one.partition: one.offset for one in found if one.offset >= 0}


async def _go_on(data: Path) -> None:
    """A node on the directory knows the broker's groups, and leaves some of its own."""
    async with node_for(data) as node:
        await node.groups.loaded()
        groups = node.groups.groups
        assert {group_id: type(group) for group_id, group in groups.items()} == {
            "classic": ClassicGroup, "next": ConsumerGroup, "gone": ClassicGroup, "in-txn": ClassicGroup,
        }  # fmt: skip
        assert {str(group.state) for group in groups.values()} == {"Empty"}
        known = {one.group_id: one.offsets for one in node.groups.overview()}
        assert known["classic"] == {("t", 0): 11, ("t", 1): 22}
        assert known["next"] == {("t", 0): 33}
        assert known["in-txn"] == {("t", 0): 44}, "not that of the transaction that was aborted"
        assert not any(node.groups.offsets.has_pending(group_id) for group_id in groups)
        assert groups["classic"].protocol_type == "consumer"
        assert (await call(node, "delete_groups", 2, {"groups_names": ["gone"]})).results[0].error_code == 0
        joined = await form_group(node, "ours", assignment=b"\0\1\0\0\0\0\xff\xff\xff\xff")
        who = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
        assert await commit_offset(node, 5, "ours", **who) == 0
        beat = {
            "group_id": "ours-next", "member_id": "m", "member_epoch": 0, "rebalance_timeout": 60_000,
            "topic_partitions": [], "subscribed_topic_names": ["t"],
        }  # fmt: skip
        assert (await call(node, "consumer_group_heartbeat", 1, beat)).error_code == 0
        who = {"member_id": "m", "generation_id_or_member_epoch": 2}
        assert await commit_offset(node, 6, "ours-next", **who) == 0
        await _commit_in_transaction(node)
        assert (await fetch_offset(node, "ours")).committed_offset == 5


async def _commit_in_transaction(node: Any) -> None:
    from kafkalog.control import ControlType, marker_batch
    from kafkalog.types import TopicPartition as Place

    new = {("t", 0): CommittedOffset(7, -1, "", 0)}
    assert await node.groups.commits.commit_in_transaction("ours-txn", "y", 9999, 0, new) == {("t", 0): 0}
    partition = node.groups.partition_for("ours-txn")
    marker = marker_batch(ControlType.COMMIT, 9999, 0, 0, timestamp=node.clock())
    node.replicas.append_now(Place("__consumer_offsets", partition), marker, "coordinator")
    node.groups.commits.on_transaction_ended(9999, 0, [partition], True)


def _check_generation(bootstrap: str) -> None:
    """A member of the broker's own goes on in a group that was ours."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ours-txn"})
    consumer.subscribe(["t"])
    _until(lambda: consumer.poll(0.2) is None and len(consumer.assignment()) == 2)
    committed = consumer.committed([TopicPartition("t", 0)], timeout=LIMIT_S)
    assert [one.offset for one in committed] == [7]
    consumer.close()


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
