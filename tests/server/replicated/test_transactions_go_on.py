"""Transactions that are open when another node leads: clients that others wrote end them there, each as a whole."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")
import confluent_kafka as ck

from tests.server.replicated.clients import LIBRDKAFKA
from tests.server.replicated.cluster import NODES, SETTINGS, Cluster
from tests.server.replicated.test_promises import wait_until

pytestmark = pytest.mark.slow
WAIT_S = 120
COUNT = 20


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Node 1 leads, and the topics are on all nodes."""
    from confluent_kafka.admin import AdminClient, NewTopic

    with Cluster(tmp_path, 0, SETTINGS) as made:
        wait_until(lambda: len(made.states()) == len(NODES))
        wait_until(lambda: not made.promote(1))
        admin = AdminClient({**LIBRDKAFKA, "bootstrap.servers": made.bootstrap})
        for future in admin.create_topics([NewTopic(name, 2, 3) for name in ("from", "to")]).values():
            future.result(WAIT_S)
        del admin
        wait_until(lambda: made.in_sync(["from", "to"]) == len(NODES))
        yield made


def producer_of(cluster: Cluster, name: str) -> Any:
    producer = ck.Producer({
        **LIBRDKAFKA, "bootstrap.servers": cluster.bootstrap, "transactional.id": name, "linger.ms": 0,
        "transaction.timeout.ms": WAIT_S * 1000, "retry.backoff.ms": 20, "retry.backoff.max.ms": 200,
    })  # fmt: skip
    producer.init_transactions(WAIT_S)
    return producer


def write(producer: Any, word: str, count: int = COUNT) -> list[bytes]:
    values = [f"{word}-{number}".encode() for number in range(count)]
    failed: list[Any] = []
    for number, value in enumerate(values):
        producer.produce("to", value, partition=number % 2, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(WAIT_S) == 0 and failed == [None] * count
    return values


def consumer_of(cluster: Cluster, isolation: str = "read_committed") -> Any:
    consumer = ck.Consumer({
        **LIBRDKAFKA, "bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False,
        "auto.offset.reset": "error", "isolation.level": isolation, "fetch.wait.max.ms": 50,
    })  # fmt: skip
    consumer.assign([ck.TopicPartition("to", index, 0) for index in (0, 1)])
    return consumer


def read(consumer: Any, count: int) -> list[bytes]:
    """So many records and those that come with them."""
    found: list[bytes] = []
    end = time.monotonic() + WAIT_S
    while len(found) < count:
        assert time.monotonic() < end, len(found)
        for record in consumer.consume(100, 0.2):
            if record.error() is None:
                found.append(record.value())
    return found


def position_of(group: Any) -> int:
    """Return the group's committed offset; the former leader, asked first, reports that it does not lead."""
    while True:
        try:
            [position] = group.committed([ck.TopicPartition("from", 1)], WAIT_S)
        except ck.KafkaException as error:
            assert error.args[0].code() == ck.KafkaError.NOT_COORDINATOR
            time.sleep(0.05)
        else:
            return int(position.offset)


def led_elsewhere(cluster: Cluster, how: str) -> None:
    """Node 2 leads: it is handed over to, or the leader is killed."""
    if how == "killed":
        cluster.kill(1)
    wait_until(lambda: not cluster.promote(2))
    if how == "killed":
        cluster.start(1)


@pytest.mark.parametrize("how", ["handed over", "killed"])
def test_an_open_transaction_is_ended_at_the_next_leader(cluster: Cluster, how: str) -> None:
    """Committed with the offsets that it sends, or aborted: readers of what is committed see the one, whole, and
    nothing of the other; before that they see neither."""
    kept, given_up = producer_of(cluster, "kept"), producer_of(cluster, "given-up")
    kept.begin_transaction()
    given_up.begin_transaction()
    wanted = write(kept, "kept")
    group = ck.Consumer({**LIBRDKAFKA, "bootstrap.servers": cluster.bootstrap, "group.id": "workers"})
    kept.send_offsets_to_transaction([ck.TopicPartition("from", 1, 7)], group.consumer_group_metadata(), WAIT_S)
    write(given_up, "aborted")
    led_elsewhere(cluster, how)
    everything = consumer_of(cluster, "read_uncommitted")
    assert len(read(everything, 2 * COUNT)) == 2 * COUNT
    everything.close()
    committed = consumer_of(cluster)
    assert not committed.consume(1, 1)  # both are open
    wanted += write(kept, "more")
    kept.commit_transaction(WAIT_S)
    given_up.abort_transaction(WAIT_S)
    last = producer_of(cluster, "last")
    last.begin_transaction()
    wanted += write(last, "last", 2)
    last.commit_transaction(WAIT_S)
    assert sorted(read(committed, len(wanted))) == sorted(wanted)
    committed.close()
    assert position_of(group) == 7
    group.close()


def test_a_commit_that_was_asked_for_is_finished_by_the_next_leader(cluster: Cluster) -> None:
    """It goes on while the leader dies, and is answered by the next one; nothing of it is left out."""
    producer = producer_of(cluster, "t")
    wanted: list[bytes] = []
    consumer = consumer_of(cluster)
    for leader, before in ((2, 1), (3, 2), (1, 3)):
        producer.begin_transaction()
        wanted += write(producer, f"before-{leader}")
        wait_until(lambda: cluster.in_sync(["to"]) == len(NODES))
        cluster.kill(before)
        with pytest.raises(ck.KafkaException) as raised:
            producer.commit_transaction(0.5)
        assert raised.value.args[0].retriable()
        wait_until(lambda leader=leader: not cluster.promote(leader))  # type: ignore[misc]
        producer.commit_transaction(WAIT_S)
        cluster.start(before)
    assert sorted(read(consumer, len(wanted))) == sorted(wanted)
    consumer.close()
