"""A group of real clients moves from the classic to the consumer protocol and back, one client after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kafkalog.testing import kafka_server

ck = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install kafkalog[test]")
PARTITIONS = 4
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1",
    "group.consumer.min.heartbeat.interval.ms": "50", "group.consumer.heartbeat.interval.ms": "50",
    "log.cleaner.dedupe.buffer.size": "4194304",
}  # fmt: skip


class Reader:
    """A client of group g; `assigned` are its partitions, `read` the values it has got."""

    def __init__(self, bootstrap: str, protocol: str) -> None:
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest",
                                    "group.protocol": protocol, "enable.auto.commit": False}  # fmt: skip
        if protocol == "classic":
            settings |= {"heartbeat.interval.ms": 50}
        self.read: list[bytes] = []
        self._consumer = ck.Consumer(settings)
        self._consumer.subscribe(["t"])

    @property
    def assigned(self) -> set[int]:
        return {one.partition for one in self._consumer.assignment()}

    def poll(self) -> None:
        message = self._consumer.poll(0.02)
        if message is not None:
            assert message.error() is None, message.error()
            self.read.append(message.value())
            self._consumer.commit(message, asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


def poll_until(readers: Iterable[Reader], is_so: Callable[[], bool]) -> None:
    readers = list(readers)
    end = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < end, [(one.assigned, one.read) for one in readers]
        for one in readers:
            one.poll()


def share(readers: Iterable[Reader]) -> bool:
    """Return True if each partition has exactly one owner and each member owns some."""
    sets = [one.assigned for one in readers]
    return all(sets) and sum(map(len, sets)) == PARTITIONS == len(set().union(*sets))


def test_clients_change_their_protocol_one_after_the_other() -> None:
    from confluent_kafka import admin

    with kafka_server(topics={"t": PARTITIONS}, settings=SETTINGS) as server:
        producer = ck.Producer({"bootstrap.servers": server.bootstrap})
        sent: set[bytes] = set()

        client = admin.AdminClient({"bootstrap.servers": server.bootstrap})

        def kind() -> str:
            found: list[Any] = []
            while not found:  # the client may just be exchanging its connection
                found = client.list_consumer_groups().result(60).valid
            return str(found[0].type.name)

        def go_on(*readers: Reader) -> None:
            poll_until(readers, lambda: share(readers))
            for number in range(PARTITIONS):
                value = b"%d" % len(sent)
                producer.produce("t", value, partition=number)
                sent.add(value)
            assert producer.flush(60) == 0
            poll_until(readers, lambda: {value for one in everyone for value in one.read} == sent)

        everyone = [Reader(server.bootstrap, "classic"), Reader(server.bootstrap, "classic")]
        first, second = everyone
        go_on(first, second)
        assert kind() == "CLASSIC"
        first.close()
        everyone.append(third := Reader(server.bootstrap, "consumer"))
        go_on(second, third)
        assert kind() == "CONSUMER"
        second.close()
        everyone.append(fourth := Reader(server.bootstrap, "consumer"))
        go_on(third, fourth)
        third.close()
        everyone.append(fifth := Reader(server.bootstrap, "classic"))
        go_on(fourth, fifth)
        assert kind() == "CONSUMER"
        fourth.close()
        go_on(fifth)
        assert kind() == "CLASSIC"
        fifth.close()
        values = [value for one in everyone for value in one.read]
        assert len(values) == len(sent)  # none is read twice, since each was committed before its partition went on
