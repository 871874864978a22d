"""A broker's share and streams groups survive a kafkalog server, which refuses all other groups under their names.

What our server answers is checked against the table in `tests/server/groups/test_other_kinds.py`; here the table is
checked against brokers of 4.3 and 4.4.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import count, product
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)

from kafkalog.testing import kafka_server
from tests.interop.broker import Broker
from tests.interop.group_members import LIMIT_S, QUICK, SHARE, asked, share_beat, streams_beat
from tests.interop.share_calls import Talker
from tests.server.groups.other_kinds import COMMITTED, EPOCH, answer
from tests.server.groups.test_other_kinds import EVERYTHING, FILTERS, GROUPS, LISTED, TABLE, Taken, read_group_records

VERSIONS: Final = ("4.3", "4.4")
AT_WORK: Final = SHARE | QUICK | {"group.streams.initial.rebalance.delay.ms": "1000"}
"""Settings of a broker whose members are to get their partitions soon, but not before they have joined."""
ACKNOWLEDGED: Final = 12
SHARE_STATE: Final = "__share_group_state-0"


def make_topic(broker: Broker) -> Any:
    """Makes topic t with two partitions and returns its id."""
    topic_id = Talker(broker.bootstrap).make_topic(partitions=2)
    for key_type in (0, 1):
        asked(broker.bootstrap, "find_coordinator", 4, {"key_type": key_type, "coordinator_keys": ["x"]})
    return topic_id


def make_group(bootstrap: str, group_id: str, column: str) -> None:
    """Makes a group as a column of the table is headed."""
    kind = column.partition("-")[0]
    beat = share_beat if kind == "share" else streams_beat
    joined = beat(bootstrap, group_id, 0)
    assert (joined.error_code.value, joined.member_epoch) == (0, EPOCH[kind])
    if kind == "streams":
        commit_as_member(bootstrap, group_id, COMMITTED)
    if not GROUPS[column]:
        assert beat(bootstrap, group_id, -1).error_code.value == 0


def commit_as_member(bootstrap: str, group_id: str, offset: int, epoch: int = EPOCH["streams"]) -> None:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    tree = {
        "group_id": group_id, "member_id": "m", "generation_id_or_member_epoch": epoch,
        "topics": [{"name": "t", "partitions": [partition]}],
    }  # fmt: skip
    assert asked(bootstrap, "offset_commit", 9, tree).topics[0].partitions[0].error_code == 0


def listed(bootstrap: str, **wanted: list[str]) -> dict[str, tuple[str, ...]]:
    """Protocol type, state and type by group."""
    found = asked(bootstrap, "list_groups", 5, EVERYTHING | wanted)
    return {one.group_id: (one.protocol_type, one.group_state, one.group_type) for one in found.groups}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_answers_as_the_table_says(version: str, tmp_path: Path) -> None:
    wrong = []
    names = count()
    with Broker(None, tmp_path / "work", tmp_path / "data", SHARE, version=version) as broker:
        topic_id = make_topic(broker)
        for column in GROUPS:
            make_group(broker.bootstrap, column, column)
        assert listed(broker.bootstrap) == LISTED
        for wanted, expected in FILTERS:
            assert listed(broker.bootstrap, **wanted).keys() == expected, wanted

        async def ask(name: str, number: int, tree: Any) -> Any:
            return asked(broker.bootstrap, name, number, tree)

        for row, cells in TABLE:
            for (column, cell), number in product(zip(GROUPS, cells, strict=True), row.versions):
                group_id = f"group{next(names)}."
                make_group(broker.bootstrap, group_id, column)
                found = asyncio.run(answer(ask, row, number, column.partition("-")[0], group_id, topic_id))
                if found != (cell.broker if isinstance(cell, Taken) else cell):
                    wrong.append((row, number, column, found))
    assert wrong == []


def until(is_done: Callable[[], Any]) -> Any:
    """Return the result once it is true."""
    deadline = time.monotonic() + LIMIT_S
    while not (found := is_done()):
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.05)
    return found


class Readers:
    """Share consumers of a group, one after another: what they got."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def read(self, bootstrap: str, at_least: int, acknowledged: int) -> None:
        """Reads until there are so many; the first of them are acknowledged and count, the others are released."""
        consumer = ShareConsumer({
            "bootstrap.servers": bootstrap, "group.id": "share", "share.acknowledgement.mode": "explicit",
        })  # fmt: skip
        consumer.subscribe(["t"])
        taken = 0

        def take() -> bool:
            nonlocal taken
            for message in consumer.poll(1.0):
                assert message.error() is None, message.error()
                is_ours = len(self.values) < acknowledged
                if is_ours:
                    self.values.append(message.value())
                consumer.acknowledge(message, AcknowledgeType.ACCEPT if is_ours else AcknowledgeType.RELEASE)
                taken += 1
            return taken >= at_least

        until(take)
        consumer.commit_sync()
        consumer.close()


def produce(bootstrap: str, first: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(first, end):
        producer.produce("t", b"%d" % number, partition=number % 2)
    assert producer.flush(LIMIT_S) == 0


def settled_streams_member(bootstrap: str, group_id: str) -> int:
    """Joins a streams group, and beats until that is stable: the member's epoch."""
    member = streams_beat(bootstrap, group_id, 0)

    def settles() -> bool:
        nonlocal member
        member = streams_beat(bootstrap, group_id, member.member_epoch)
        assert member.error_code.value == 0
        return listed(bootstrap)[group_id][1] == "Stable"

    until(settles)
    return int(member.member_epoch)


def use(broker: Broker, readers: Readers) -> int:
    """Leave groups of each kind and state in a broker; return the epoch of the streams group's member."""
    bootstrap = broker.bootstrap
    make_topic(broker)
    produce(bootstrap, 0, 20)
    Talker(bootstrap).set_group("share", share_auto_offset_reset="earliest")
    readers.read(bootstrap, 20, ACKNOWLEDGED)
    make_group(bootstrap, "share-empty", "share-empty")
    make_group(bootstrap, "streams-empty", "streams-empty")
    assert share_beat(bootstrap, "share", 0).error_code.value == 0
    assert streams_beat(bootstrap, "not-ready", 0, source="no-such-topic").error_code.value == 0
    epoch = settled_streams_member(bootstrap, "streams")
    commit_as_member(bootstrap, "streams", COMMITTED, epoch)
    return epoch


def first_error(bootstrap: str, group_id: str, **settings: str) -> int:
    """Return the first error of a consumer that subscribes under a group's name."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group_id, "log_level": 0, **settings})
    consumer.subscribe(["t"])

    def error() -> KafkaError | None:
        try:
            message: Message | None = consumer.poll(0.1)
        except KafkaException as raised:
            return raised.args[0]  # type: ignore[no-any-return]
        return None if message is None else message.error()

    found = until(error)
    assert not consumer.assignment()
    consumer.close()
    return int(found.code())


def commit_error(bootstrap: str, group_id: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group_id, "log_level": 0})
    with pytest.raises(KafkaException) as raised:
        consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    consumer.close()
    return int(raised.value.args[0].code())


def visit(data: Path, before: dict[str, tuple[str, ...]]) -> None:
    """A stay on our server, in which others try to use the names of the broker's groups."""
    records, state = read_group_records(data), (data / SHARE_STATE / f"{0:020}.log").read_bytes()
    with kafka_server(directory=data) as server:
        produce(server.bootstrap, 20, 25)
        assert listed(server.bootstrap) == before
        for group_id, (_, _, kind) in before.items():
            assert first_error(server.bootstrap, group_id) == KafkaError.INCONSISTENT_GROUP_PROTOCOL
            assert first_error(server.bootstrap, group_id, **{"group.protocol": "consumer"}) in (
                KafkaError.GROUP_ID_NOT_FOUND, KafkaError._FATAL,
            )  # fmt: skip
            expected = KafkaError.GROUP_ID_NOT_FOUND if kind == "share" else KafkaError.UNKNOWN_MEMBER_ID
            assert commit_error(server.bootstrap, group_id) == expected
        fetch = {"group_id": "streams", "topics": [{"name": "t", "partition_indexes": [0]}]}
        fetched = asked(server.bootstrap, "offset_fetch", 9, {"groups": [fetch], "require_stable": True})
        assert fetched.groups[0].topics[0].partitions[0].committed_offset == COMMITTED
    assert read_group_records(data) == records
    assert (data / SHARE_STATE / f"{0:020}.log").read_bytes() == state


@pytest.mark.parametrize("version", VERSIONS)
def test_share_and_streams_groups_go_on_after_a_visit(version: str, tmp_path: Path) -> None:
    data, readers = tmp_path / "data", Readers()
    with Broker(None, tmp_path / "first", data, AT_WORK, version=version) as broker:
        epoch = use(broker, readers)
        before = listed(broker.bootstrap)
    assert {name: found[1] for name, found in before.items()} == {
        "share": "Stable", "share-empty": "Empty", "streams": "Stable", "streams-empty": "Empty",
        "not-ready": "NotReady",
    }  # fmt: skip
    visit(data, before)
    with Broker(None, tmp_path / "second", data, AT_WORK, version=version) as broker:
        assert until(lambda: listed(broker.bootstrap)) == before, "none are listed before they are loaded"
        beaten = streams_beat(broker.bootstrap, "streams", epoch)
        assert (beaten.error_code.value, beaten.member_epoch, beaten.status) == (0, epoch, ())
        assert share_beat(broker.bootstrap, "share", -1).error_code.value == 0
        commit_as_member(broker.bootstrap, "streams", 8, epoch)
        readers.read(broker.bootstrap, 25 - ACKNOWLEDGED, 25)
    assert sorted(readers.values, key=int) == [b"%d" % number for number in range(25)]
