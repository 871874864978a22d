"""Share groups over the partitions of two processes: the main process has the groups and their states."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest

from kafkalog.testing import KafkaServer, kafka_server
from tests.gates import wait_until
from tests.server.workers.test_workers import (
    MAIN,
    QUICK,
    TIMEOUT_S,
    WORKER,
    admin_of,
    make,
    producer_of,
    values_of,
    workers_of,
    write,
)

ck = pytest.importorskip("confluent_kafka")
from tests.interop.share_calls import Link, Talker  # noqa: E402

SETTINGS: Final = {
    "group.share.min.heartbeat.interval.ms": "200", "group.share.heartbeat.interval.ms": "200",
    # no member is forgotten, and no record released, because the machine is busy
    "group.share.max.session.timeout.ms": "3600000", "group.share.session.timeout.ms": "3600000",
    "group.share.max.record.lock.duration.ms": "3600000", "group.share.record.lock.duration.ms": "3600000",
    "offsets.topic.num.partitions": "1", "share.coordinator.state.topic.num.partitions": "1",
}  # fmt: skip
PARTITIONS: Final = 6
"""Partitions of a topic, of which some lie in each process: new ones go where there are the fewest."""
ACCEPT, RELEASE, REJECT = 1, 2, 3
NOT_LEADER, INVALID_STATE, SESSION_NOT_FOUND, INVALID_EPOCH = 6, 121, 122, 123


@pytest.fixture(scope="module")
def server() -> Iterator[KafkaServer]:
    """A server of two processes, which all tests here share that do not end one."""
    with kafka_server(workers=2, settings=SETTINGS) as one:
        yield one


class Sharer:
    """A member of a group, with a link to each process and a session at each; partition `of[node]` lies there."""

    def __init__(self, server: KafkaServer, topic: str, group: str, stack: ExitStack) -> None:
        metadata = admin_of(server).list_topics(timeout=TIMEOUT_S)
        self.of = {one.leader: index for index, one in metadata.topics[topic].partitions.items()}
        self.ports = {node: one.port for node, one in metadata.brokers.items()}
        self.talker, self.group, self._stack = Talker(server.bootstrap), group, stack
        self.topic_id = self._topic_id(topic)
        self.talker.set_group(group, share_auto_offset_reset="earliest")
        self.links: dict[int, Link] = {}
        self.epochs: dict[int, int] = {}
        for node in self.ports:
            self.reconnect(node)
        self.epoch = self.talker.join(self.links[MAIN], group + "-member", topic, group=group)

    def _topic_id(self, name: str) -> Any:
        with Link(self.talker.bootstrap) as link:
            tree = {"topics": [{"topic_id": None, "name": name}], "allow_auto_topic_creation": False,
                    "include_topic_authorized_operations": False}  # fmt: skip
            return link.ask("metadata", 12, tree).topics[0].topic_id

    def reconnect(self, node: int) -> None:
        """Have a new connection to a process, and no session there."""
        self.links[node] = self._stack.enter_context(Link(f"127.0.0.1:{self.ports[node]}"))
        self.epochs[node] = 0

    def leave(self) -> None:
        """Leave the group."""
        answer = self.links[WORKER].ask("share_group_heartbeat", 1, {
            "group_id": self.group, "member_id": self.group + "-member", "member_epoch": -1, "rack_id": None,
            "subscribed_topic_names": None,
        })  # fmt: skip
        assert answer.error_code == 0

    def fetch(self, node: int, *acks: Any, index: int | None = None, epoch: int | None = None, **more: Any) -> Any:
        """Fetch from a process; the row of the partition, the error of the request, or None without a row."""
        found = self.talker.fetch(
            self.links[node], self.group + "-member", self.epochs[node] if epoch is None else epoch, *acks,
            index=self.of[node] if index is None else index, topic_id=self.topic_id, group_id=self.group,
            **{"max_wait": 500, **more},
        )  # fmt: skip
        if found.error_code:
            return found.error_code
        self.epochs[node] += 1
        return found.responses[0].partitions[0] if found.responses else None

    def acquired(self, node: int, *acks: Any, **more: Any) -> list[tuple[int, int, int]]:
        """The records that a fetch acquires: first, last, delivery."""
        row = self.fetch(node, *acks, **more)
        assert row is None or not isinstance(row, int), row
        return [] if row is None else [tuple(one) for one in row.acquired_records]

    def complete(self, node: int, *acks: Any) -> int:
        """Acknowledge; return the partition's error code, or that of the request."""
        found = self.talker.acknowledge(
            self.links[node], self.group + "-member", self.epochs[node], *acks,
            index=self.of[node], topic_id=self.topic_id, group_id=self.group,
        )  # fmt: skip
        self.epochs[node] += 1
        return int(found.error_code or found.responses[0].partitions[0].error_code)

    def offsets(self) -> dict[int, tuple[int, int]]:
        """Return the group's start offset and lag in the partition of each process."""
        [group] = self.talker.offsets(self.group).groups
        found = {one.partition_index: (one.start_offset, one.lag) for row in group.topics for one in row.partitions}
        return {node: found[index] for node, index in self.of.items()}


def sharer_of(server: KafkaServer, name: str, stack: ExitStack, records: int = 10) -> Sharer:
    """Make a topic with so many records in each partition, and a member of a group of its name."""
    make(server, name, PARTITIONS)
    assert write(producer_of(server), name, values_of(PARTITIONS * records), PARTITIONS) == []
    return Sharer(server, name, name, stack)


def test_consumers_share_the_partitions_of_both_processes(server: KafkaServer) -> None:
    make(server, "shared")
    Talker(server.bootstrap).set_group("shared", share_auto_offset_reset="earliest")
    assert write(producer_of(server), "shared", values_of(80)) == []
    consumers = [
        ck.ShareConsumer({
            **QUICK, "bootstrap.servers": server.bootstrap, "group.id": "shared",
            "share.acknowledgement.mode": "explicit",
        }) for _ in range(2)
    ]  # fmt: skip
    accepted: Counter[bytes] = Counter()
    released: Counter[bytes] = Counter()
    for consumer in consumers:
        consumer.subscribe(["shared"])

    def has_all() -> bool:
        for consumer in consumers:
            for message in consumer.poll(0.2):
                assert message.error() is None, message.error()
                is_first = message.delivery_count() == 1
                assert message.delivery_count() == 1 + released[message.value()]
                if is_first and message.offset() % 4 == 0:
                    released[message.value()] += 1
                    consumer.acknowledge(message, ck.AcknowledgeType.RELEASE)
                else:
                    accepted[message.value()] += 1
                    consumer.acknowledge(message, ck.AcknowledgeType.ACCEPT)
            consumer.commit_sync()
        return len(accepted) == 80

    wait_until(has_all)
    for consumer in consumers:
        consumer.close()
    assert accepted == Counter(values_of(80)) and len(released) == 20
    [group] = Talker(server.bootstrap).offsets("shared").groups
    lags = {one.partition_index: one.lag for row in group.topics for one in row.partitions}
    assert lags == dict.fromkeys(range(4), 0)


def test_records_are_acquired_and_completed_where_they_lie_and_counted_by_the_main_process(
    server: KafkaServer,
) -> None:
    with ExitStack() as stack:
        member = sharer_of(server, "calls", stack)
        for node in (MAIN, WORKER):
            assert member.acquired(node) == [(0, 9, 1)]
            assert member.complete(node, (0, 2, ACCEPT), (3, 4, RELEASE), (5, 5, REJECT)) == 0
            assert member.complete(node, (3, 3, ACCEPT)) == INVALID_STATE
            assert member.acquired(node) == [(3, 4, 2)]
            assert member.complete(node, (6, 9, ACCEPT)) == 0
        assert member.offsets() == {MAIN: (3, 2), WORKER: (3, 2)}
        ours, theirs = member.of[MAIN], member.of[WORKER]
        assert member.fetch(WORKER, index=ours).error_code == NOT_LEADER
        assert member.fetch(MAIN, index=theirs).error_code == NOT_LEADER
        assert member.fetch(WORKER, epoch=77) == INVALID_EPOCH
        member.leave()  # its sessions end in both processes, and its records are released
        wait_until(lambda: member.fetch(WORKER, epoch=77) == SESSION_NOT_FOUND)
        for node in (MAIN, WORKER):
            member.reconnect(node)
            assert member.acquired(node) == [(3, 4, 3)]


def test_a_connection_that_closes_releases_the_records_of_a_worker(server: KafkaServer) -> None:
    with ExitStack() as stack:
        member = sharer_of(server, "closing", stack)
        assert member.acquired(WORKER) == [(0, 9, 1)]
        member.links[WORKER].__exit__()
        member.reconnect(WORKER)
        found: list[tuple[int, int, int]] = []
        wait_until(lambda: bool(found.extend(member.acquired(WORKER)) or found))
        assert found == [(0, 9, 2)]


def test_offsets_that_are_set_count_at_once_in_a_worker(server: KafkaServer) -> None:
    with ExitStack() as stack:
        member = sharer_of(server, "altered", stack)
        assert member.acquired(WORKER) == [(0, 9, 1)] and member.complete(WORKER, (0, 9, ACCEPT)) == 0
        member.leave()
        rows = [{"partition_index": index, "start_offset": 4} for index in member.of.values()]
        topics = [{"topic_name": "altered", "partitions": rows}]
        for _ in range(2):
            tree = {"group_id": "altered", "topics": topics}
            altered = member.links[WORKER].ask("alter_share_group_offsets", 0, tree)
            assert {one.error_code for one in altered.responses[0].partitions} == {0}
            assert member.offsets() == {MAIN: (4, 6), WORKER: (4, 6)}
            for node in (MAIN, WORKER):
                member.reconnect(node)
                assert member.acquired(node) == [(4, 9, 1)]
                assert member.complete(node, (4, 9, ACCEPT)) == 0
        tree = {"group_id": "altered", "topics": [{"topic_name": "altered"}]}
        deleted = member.links[WORKER].ask("delete_share_group_offsets", 0, tree)
        assert deleted.responses[0].error_code == 0
        assert member.fetch(WORKER).error_code == member.fetch(MAIN).error_code != 0


def test_a_topic_that_is_made_again_has_new_states_in_a_worker(server: KafkaServer) -> None:
    with ExitStack() as stack:
        member = sharer_of(server, "again", stack)
        assert member.acquired(WORKER) == [(0, 9, 1)] and member.complete(WORKER, (0, 9, ACCEPT)) == 0
        admin = admin_of(server)
        admin.delete_topics(["again"])["again"].result(TIMEOUT_S)
        other = sharer_of(server, "again", stack)
        assert other.topic_id != member.topic_id
        assert other.acquired(WORKER) == [(0, 9, 1)]


@pytest.mark.parametrize("letters_in", [MAIN, WORKER])
@pytest.mark.parametrize("source", [MAIN, WORKER])
def test_dead_letters_go_to_the_process_of_their_topic(server: KafkaServer, source: int, letters_in: int) -> None:
    name = f"letters-{source}-{letters_in}"
    with ExitStack() as stack:
        for number in range(2 * PARTITIONS):
            topic = f"dlq.{name}-{number}"
            admin = make(server, topic, 1, errors_deadletterqueue_group_enable="true")
            if admin.list_topics(timeout=TIMEOUT_S).topics[topic].partitions[0].leader == letters_in:
                break
        member = sharer_of(server, name, stack)
        member.talker.set_group(
            name, errors_deadletterqueue_topic_name=topic, errors_deadletterqueue_copy_record_enable="true"
        )
        assert member.acquired(source) == [(0, 9, 1)]
        assert member.complete(source, (0, 8, ACCEPT), (9, 9, REJECT)) == 0
        [(headers, _, value)] = member.talker.letters(topic, 1)
        assert dict(headers)["__dlq.errors.offset"] == b"9" and value is not None
        wait_until(lambda: member.offsets()[source][1] == 0)


def test_a_worker_that_is_killed_gives_back_its_locks_and_nothing_that_was_acknowledged() -> None:
    with kafka_server(workers=2, settings=SETTINGS) as server, ExitStack() as stack:
        member = sharer_of(server, "t", stack)
        for node in (MAIN, WORKER):
            assert member.acquired(node) == [(0, 9, 1)]
            assert member.complete(node, (0, 3, ACCEPT), (4, 4, RELEASE), (7, 7, ACCEPT)) == 0
        (worker,) = workers_of(server)
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: not any(one == worker for one in workers_of(server)))
        wait_until(lambda: has_worker(server))
        member.reconnect(WORKER)
        assert member.fetch(WORKER, epoch=77) == SESSION_NOT_FOUND
        assert member.acquired(WORKER) == [(4, 4, 2), (5, 6, 1), (8, 9, 1)]
        assert member.complete(MAIN, (5, 6, ACCEPT), (8, 9, ACCEPT)) == 0  # its locks are as they were
        assert member.complete(WORKER, (4, 6, ACCEPT), (8, 9, ACCEPT)) == 0
        server.kill()
        server.start()
        wait_until(lambda: {node: lag for node, (_, lag) in member.offsets().items()} == {MAIN: 1, WORKER: 0})


def has_worker(server: KafkaServer) -> bool:
    """Return True if the worker leads its partitions."""
    found = admin_of(server).list_topics(timeout=TIMEOUT_S)
    return any(one.leader == WORKER for one in found.topics["t"].partitions.values())


def test_a_consumer_gets_every_record_when_a_worker_is_killed_and_none_that_it_acknowledged() -> None:
    with kafka_server(workers=2, settings=SETTINGS, topics={"t": 4}) as server:
        Talker(server.bootstrap).set_group("g", share_auto_offset_reset="earliest")
        assert write(producer_of(server), "t", values_of(200)) == []
        consumer = ck.ShareConsumer({
            **QUICK, "bootstrap.servers": server.bootstrap, "group.id": "g", "max.poll.records": 20,
            "share.acknowledgement.mode": "explicit",
        })  # fmt: skip
        consumer.subscribe(["t"])
        done: set[bytes] = set()
        again: set[bytes] = set()
        kills: list[int] = []

        def has_all() -> bool:
            messages = [one for one in consumer.poll(0.2) if one.error() is None]
            for message in messages:
                if message.value() in done:
                    again.add(message.value())
                consumer.acknowledge(message, ck.AcknowledgeType.ACCEPT)
            if len(done) >= 60 and not kills:
                kills.extend(workers_of(server))
                os.kill(kills[0], signal.SIGKILL)  # it has records that are not acknowledged
            answers = consumer.commit_sync(timeout=TIMEOUT_S)
            failed = {(one.topic, one.partition) for one, error in (answers or {}).items() if error is not None}
            done.update(one.value() for one in messages if (one.topic(), one.partition()) not in failed)
            return len(done) == 200

        wait_until(has_all)
        consumer.close()
        assert kills and again == set()
