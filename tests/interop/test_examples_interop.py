"""The programs of examples/ beside a real broker: followed and copied while it runs, queried when it is dead."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from tests.examples.programs import interrupted, said, started
from tests.interop.broker import Broker
from tests.interop.reference import Reference

ck = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install kafkalog[test]")

TIMEOUT_S = 180
PARTITIONS = 2


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def broker(reference: Reference, data: Path) -> Iterator[Broker]:
    """A broker with the topic `orders`, whose directories are there."""
    from confluent_kafka.admin import AdminClient, NewTopic

    with Broker(reference, data.parent, data) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(TIMEOUT_S)
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline and len(list(data.glob("orders-*/*.log"))) < PARTITIONS:
            time.sleep(0.02)
        yield running


def send(producer: Any, *rows: tuple[int, bytes]) -> None:
    for partition, value in rows:
        producer.produce("orders", value, b"key", partition)
    assert producer.flush(TIMEOUT_S) == 0


def test_a_topic_of_a_running_broker_and_what_is_left_when_it_is_dead(broker: Broker, data: Path) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "compression.type": "lz4"})
    follower = started("tail_broker.py", data, "orders", "--from-beginning")
    committed = started("tail_broker.py", data, "orders", "--from-beginning", "--committed")
    assert follower.stdout is not None and committed.stdout is not None
    for partition, offset, value in ((0, 0, b"a"), (1, 0, b"b"), (0, 1, b"c")):
        send(producer, (partition, value))
        for one in (follower, committed):
            assert one.stdout.readline() == f"orders-{partition} {offset} key {value.decode()}\n"
    transactions(broker.bootstrap, b"aborted", b"booked")
    assert follower.stdout.readline() == "orders-1 1 key aborted\n"
    assert follower.stdout.readline() == "orders-1 3 key booked\n"
    assert committed.stdout.readline() == "orders-1 3 key booked\n"
    interrupted(follower)
    interrupted(committed)
    lines = said("copy_topic.py", data, data.parent / "copy", "orders")
    assert lines == ["orders-0: offsets 0 to 2, 2 copied now", "orders-1: offsets 0 to 5, 5 copied now"]
    broker.kill()
    query = "SELECT string_agg(value::VARCHAR, ' ' ORDER BY partition, \"offset\") FROM orders"
    assert "a c b booked" in "\n".join(said("query_dead_broker.py", data, query))
    with kafkalog.open_dirs(data) as dirs, kafkalog.open_dirs(data.parent / "copy") as copies:
        for log, copy in zip(dirs.logs("orders"), copies.logs("orders"), strict=True):
            assert [bytes(batch) for batch in copy.batches()] == [bytes(batch) for batch in log.batches()]


def transactions(bootstrap: str, aborted: bytes, committed: bytes) -> None:
    """Send a record to partition 1 in an aborted transaction, and one in the next transaction of the same producer.

    The broker begins that only once the marker of the first is written, which gives the offsets their order.
    """
    producer = ck.Producer({"bootstrap.servers": bootstrap, "transactional.id": "orders"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    send(producer, (1, aborted))
    producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    send(producer, (1, committed))
    producer.commit_transaction(TIMEOUT_S)
