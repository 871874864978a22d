"""A broker's directory restored as it was at a moment: a broker opens it, and clients go on from there."""

import time
from pathlib import Path
from typing import Any

import pytest

from kafkalog.backup import restore_directories
from tests import commands
from tests.backup.load import TIMEOUT_S, until_loaded
from tests.backup.test_transactions import TOPICS, producer, read_committed, send
from tests.interop.broker import Broker
from tests.interop.reference import Reference

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


def check_broker(reference: Reference, work: Path, data: Path, values: list[bytes], offset: int) -> None:
    """A broker on the restored directory has these values and this offset of the group, and takes transactions."""
    from confluent_kafka import Consumer, TopicPartition

    with Broker(reference, work, data, FEW) as broker:
        assert read_committed(broker.bootstrap, "left") == read_committed(broker.bootstrap, "right") == values
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
        assert until_loaded(consumer, TopicPartition("left", 0)).offset == offset
        consumer.close()
        transact(producer(broker.bootstrap), b"last")
        assert read_committed(broker.bootstrap, "left") == read_committed(broker.bootstrap, "right")
        assert read_committed(broker.bootstrap, "left") == [*values, b"last"]
        for sign in ("-stray", "corrupt", "Found invalid"):
            assert sign not in broker.log(), sign


def test_a_broker_goes_on_from_a_moment(tmp_path: Path, reference: Reference) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with Broker(reference, tmp_path / "work", data, FEW) as broker:
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
    for name, at, values, offset in (
        ("before", before, [b"first"], 1), ("within", within, [b"first"], 1),
        ("after", after, [b"first", b"second", b"third"], 2),
    ):  # fmt: skip
        commands.ok("restore", tmp_path / "backups", "--at", str(at), "-d", tmp_path / name)
        check_broker(reference, tmp_path / f"{name}-work", tmp_path / name, values, offset)
    check_broker(reference, tmp_path / "live-work", tmp_path / "live", [b"first"], 1)
