"""Groups of real clients on a kafkalog server: librdkafka by both protocols, aiokafka, kafka-python's admin."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog.testing import KafkaServer, kafka_server

confluent_kafka = pytest.importorskip("confluent_kafka")
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition  # noqa: E402
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402

LIMIT_S = 120
RECORDS = 40
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
}
QUIET = {"log_level": 0, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
SHORT = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}  # a member hears of a rebalance at a heartbeat
PROTOCOLS = {
    "classic": {**SHORT, "partition.assignment.strategy": "range"},
    "cooperative": {**SHORT, "partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


def filled(server: KafkaServer, topic: str = "t") -> AdminClient:
    """An admin of the server, after records were put into the topic."""
    producer = Producer({"bootstrap.servers": server.bootstrap, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(topic, str(number).encode(), partition=number % 4)
    assert producer.flush(LIMIT_S) == 0
    return AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})


def until(is_done: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LIMIT_S
    while not is_done():
        assert time.monotonic() < end, what


class Member:
    """A consumer that notes what it gets."""

    def __init__(self, server: KafkaServer, topic: str = "t", **settings: Any) -> None:
        given = {"bootstrap.servers": server.bootstrap, "group.id": "g", **QUIET, **settings}
        self.consumer = Consumer(given)
        self.consumer.subscribe([topic])
        self.got: list[int] = []

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None and message.error() is None:
            self.got.append(int(message.value()))

    @property
    def partitions(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}


def have_partition_counts(members: list[Member], *counts: int) -> Callable[[], bool]:
    """Return True if the members own so many partitions and none has two owners."""

    def is_so() -> bool:
        for member in members:
            member.poll()
        held = [one.partitions for one in members]
        return sorted(map(len, held)) == sorted(counts) and len(set().union(*held)) == sum(counts)

    return is_so


def have_read_all(*members: Member) -> Callable[[], bool]:
    def is_so() -> bool:
        for member in members:
            member.poll()
        return set().union(*(one.got for one in members)) == set(range(RECORDS))

    return is_so


def offsets_of(admin: AdminClient, group_id: str = "g") -> dict[int, int]:
    found: dict[int, int] = {}

    def are_loaded() -> bool:  # a server that has just started may still read its groups
        try:
            rows = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])[group_id].result()
        except confluent_kafka.KafkaException as error:
            assert error.args[0].code() == confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS, error
            return False
        found.update((one.partition, one.offset) for one in rows.topic_partitions)
        return True

    until(are_loaded, "the groups are not loaded")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_and_the_next_ones_go_on(tmp_path: Path, protocol: str) -> None:
    more = PROTOCOLS[protocol]
    with kafka_server(directory=tmp_path, settings=SETTINGS, topics={"t": 4}) as server:
        admin = filled(server)
        one, two = Member(server, **more), Member(server, **more)
        until(have_partition_counts([one, two], 2, 2), "the members never share the partitions")
        until(have_read_all(one, two), "not all records come")
        described = admin.describe_consumer_groups(["g"])["g"].result()
        kind = "CONSUMER" if protocol == "consumer" else "CLASSIC"
        assert (described.state.name, len(described.members), described.type.name) == ("STABLE", 2, kind)
        two.consumer.close()
        until(have_partition_counts([one], 4), "who stays does not get all")
        until(have_read_all(one), "what was not committed does not come again")
        one.consumer.commit(offsets=[TopicPartition("t", number, 10) for number in range(4)], asynchronous=False)
        server.kill()
        server.start()
        until(have_partition_counts([one], 4), "the member does not go on after the server was killed")
        one.consumer.commit(offsets=[TopicPartition("t", 0, 9)], asynchronous=False)
        one.consumer.close()
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        assert offsets_of(admin) == {0: 9, 1: 10, 2: 10, 3: 10}
        third = Member(server, **more)
        until(lambda: third.poll() is None and len(third.got) == 1, "it does not go on where the others were")
        assert third.got == [36]
        third.consumer.close()


def test_a_pattern_takes_in_topics_that_come_later(tmp_path: Path) -> None:
    with kafka_server(directory=tmp_path, settings=SETTINGS, topics={"t-one": 4, "other": 1}) as server:
        admin = filled(server, "t-one")
        member = Member(server, "^t-.*", **PROTOCOLS["consumer"])
        until(have_partition_counts([member], 4), "the pattern finds no topic")
        admin.create_topics([NewTopic("t-two", 1)])["t-two"].result()

        def has_both() -> bool:
            member.poll()
            return {one.topic for one in member.consumer.assignment()} == {"t-one", "t-two"}

        until(has_both, "the topic that came later is not taken in")
        member.consumer.close()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_static_member_comes_back_to_what_it_had(tmp_path: Path, protocol: str) -> None:
    more = PROTOCOLS[protocol]
    with kafka_server(directory=tmp_path, settings=SETTINGS, topics={"t": 4}) as server:
        filled(server)
        one, two = (Member(server, **more, **{"group.instance.id": f"i{number}"}) for number in range(2))
        until(have_partition_counts([one, two], 2, 2), "the members never share the partitions")
        had = two.partitions
        two.consumer.close()
        again = Member(server, **more, **{"group.instance.id": "i1"})
        until(lambda: again.poll() is None and again.partitions == had, "it does not get back what it had")
        assert one.partitions == {0, 1, 2, 3} - had
        for member in (one, again):
            member.consumer.close()


def test_aiokafka_reads_and_commits(tmp_path: Path) -> None:
    aiokafka = pytest.importorskip("aiokafka")

    async def read(bootstrap: str) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            "t", bootstrap_servers=bootstrap, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        got = [int((await consumer.getone()).value) for _ in range(RECORDS)]
        assert sorted(got) == list(range(RECORDS))
        await consumer.commit()
        await consumer.stop()

    with kafka_server(directory=tmp_path, settings=SETTINGS, topics={"t": 4}) as server:
        admin = filled(server)
        asyncio.run(asyncio.wait_for(read(server.bootstrap), LIMIT_S))
        assert offsets_of(admin) == dict.fromkeys(range(4), 10)


def test_an_admin_looks_after_groups(tmp_path: Path) -> None:
    kafka = pytest.importorskip("kafka")
    with kafka_server(directory=tmp_path, settings=SETTINGS, topics={"t": 4}) as server:
        admin = filled(server)
        moved = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 7), TopicPartition("t", 1, 8)])
        admin.alter_consumer_group_offsets([moved])["g"].result()
        assert offsets_of(admin) == {0: 7, 1: 8}
        other = kafka.KafkaAdminClient(bootstrap_servers=server.bootstrap)
        assert [tuple(one.values())[0] if isinstance(one, dict) else one[0] for one in other.list_groups()] == ["g"]
        other.close()
        assert admin.delete_consumer_groups(["g"])["g"].result() is None
        assert not admin.list_consumer_groups().result().valid


def test_offsets_count_when_their_transaction_is_committed(tmp_path: Path) -> None:
    with kafka_server(directory=tmp_path, settings=SETTINGS, topics={"t": 4}) as server:
        admin = filled(server)
        producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "x", "log_level": 0})
        producer.init_transactions(LIMIT_S)
        reader = Member(server)
        until(have_partition_counts([reader], 4), "the reader gets no partitions")
        for offset, end in ((5, producer.abort_transaction), (7, producer.commit_transaction)):
            producer.begin_transaction()
            producer.produce("t", b"100", partition=0)
            place = [TopicPartition("t", 0, offset)]
            producer.send_offsets_to_transaction(place, reader.consumer.consumer_group_metadata(), LIMIT_S)
            end(LIMIT_S)
        assert offsets_of(admin) == {0: 7}
        reader.consumer.close()
        server.kill()
        server.start()
        assert offsets_of(AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})) == {0: 7}
