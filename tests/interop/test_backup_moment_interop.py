"""A broker's directory restored as it was at a moment: a broker opens it, and clients go on from there."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kafkalog.backup import restore_directories
from tests import commands
from tests.backup.load import TIMEOUT_S, until_loaded
from tests.backup.test_transactions import TOPICS, producer, read_committed, send
from tests.interop.broker import Broker
from tests.interop.test_copy_interop import read_on

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install kafkalog[test]")
FEW = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


def now_ms() -> int:
    now = time.time_ns() // 1_000_000
    time.sleep(0.05)
    return now


def create_topics(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, 1, 1) for name in TOPICS])
    for one in made.values():
        one.result(TIMEOUT_S)


def transact(one: Any, value: bytes) -> None:
    one.begin_transaction()
    send(one, value)
    one.commit_transaction(TIMEOUT_S)


def commit(bootstrap: str, offset: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("left", 0, offset)], asynchronous=False)
    consumer.close()


def read_to(bootstrap: str, topic: str, last: bytes) -> list[bytes]:
    """The committed values up to `last`: the broker answers a commit before all partitions have its marker."""
    until = time.monotonic() + TIMEOUT_S
    while (found := read_committed(bootstrap, topic))[-1:] != [last]:
        assert time.monotonic() < until, found
    return found


def check_broker(work: Path, data: Path, values: list[bytes], offset: int) -> None:
    """A broker on the restored directory has these values, and takes transactions; the group goes on at this offset."""
    from confluent_kafka import Consumer, TopicPartition

    with Broker(None, work, data, FEW) as broker:
        assert read_committed(broker.bootstrap, "left") == read_committed(broker.bootstrap, "right") == values
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
        assert until_loaded(consumer, TopicPartition("left", 0)).offset == offset
        consumer.close()
        transact(producer(broker.bootstrap), b"last")
        for topic in TOPICS:
            assert read_to(broker.bootstrap, topic, b"last") == [*values, b"last"]
        rest = [*values[(offset + 1) // 2 :], b"last"]  # each value is followed by a marker
        assert [value for _, _, value in read_on(broker.bootstrap, "readers", "left", len(rest))] == rest
        for sign in ("-stray", "corrupt", "Found invalid"):
            assert sign not in broker.log(), sign


def test_a_broker_goes_on_from_a_moment(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with Broker(None, tmp_path / "work", data, FEW) as broker:
        create_topics(broker.bootstrap)
        one = producer(broker.bootstrap)
        transact(one, b"first")
        commit(broker.bootstrap, 1)
        before = now_ms()
        one.begin_transaction()
        send(one, b"second")
        within = now_ms()
        one.commit_transaction(TIMEOUT_S)
        commit(broker.bootstrap, 2)
        transact(one, b"third")
        after = now_ms()
        restore_directories(data, tmp_path / "live", at=within)
        commands.ok("backup", "-d", data, tmp_path / "backups")
        transact(one, b"fourth")
    moments = (
        ("before", before, [b"first"], 1), ("within", within, [b"first"], 1),
        ("after", after, [b"first", b"second", b"third"], 2),
    )  # fmt: skip
    for name, at, _, _ in moments:
        commands.ok("restore", tmp_path / "backups", "--at", str(at), "-d", tmp_path / name)
    expected = [("live", [b"first"], 1), *((name, values, offset) for name, _, values, offset in moments)]
    with ThreadPoolExecutor(2) as threads:  # each broker waits for the session of the one before to expire
        checks = [
            threads.submit(check_broker, tmp_path / f"{name}-work", tmp_path / name, values, offset)
            for name, values, offset in expected
        ]
        for check in checks:
            check.result()
