"""Backups beside transactions that begin and end between any two looks at the files: whole or absent when restored."""

from pathlib import Path
from typing import Any

import pytest

from kafkalog.backup import create_backup, restore_backup
from kafkalog.testing import kafka_server
from tests.backup.load import TIMEOUT_S
from tests.backup.test_meanwhile import Meanwhile

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install kafkalog[test]")
TOPICS = {"left": 1, "right": 1}


def producer(bootstrap: str) -> Any:
    from confluent_kafka import Producer

    made = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "transactional.id": "one"})
    made.init_transactions(TIMEOUT_S)
    return made


def send(made: Any, value: bytes) -> None:
    for topic in TOPICS:
        made.produce(topic, value)
    made.flush(TIMEOUT_S)


def read_committed(bootstrap: str, topic: str) -> list[bytes]:
    """The values up to the end of a topic, by a consumer that reads what was committed."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {
        "group.id": "any", "enable.partition.eof": True, "isolation.level": "read_committed", "fetch.wait.max.ms": 50,
    }  # fmt: skip
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while True:
        message = consumer.poll(TIMEOUT_S)
        if message.error() is None:
            found.append(message.value())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            break
    consumer.close()
    return found


def restored_is_whole(where: Path, backup: str) -> list[bytes]:
    """Check both topics after a restore, and after one more transaction of the same producer; return the values."""
    restore_backup(where / "backups", where / backup, backup)
    with kafka_server(directory=where / backup) as server:
        one = producer(server.bootstrap)
        one.begin_transaction()
        send(one, b"last")
        one.commit_transaction(TIMEOUT_S)
        left, right = (read_committed(server.bootstrap, topic) for topic in TOPICS)
    assert left == right and left[-1] == b"last"
    return left[:-1]


class Client:
    """A producer that sends one transaction after the other; `sent` are the values of all of them."""

    def __init__(self, bootstrap: str) -> None:
        self.sent: list[bytes] = []
        self.is_open = False
        self._producer = producer(bootstrap)

    def begin(self) -> None:
        self.sent.append(b"%d" % len(self.sent))
        self._producer.begin_transaction()
        send(self._producer, self.sent[-1])
        self.is_open = True

    def end(self) -> None:
        self._producer.commit_transaction(TIMEOUT_S)
        self.is_open = False

    def go_on(self, change: str) -> None:
        if change != "begins":
            self.end()
        if change != "ends":
            self.begin()

    def prepare(self, change: str) -> list[bytes]:
        """Have a transaction open for one that is to end, and none for one that is to begin; what is committed."""
        if self.is_open and change == "begins":
            self.end()
        elif not self.is_open and change != "begins":
            self.begin()
        return self.sent[: -1 if self.is_open else None]


@pytest.mark.parametrize("change", ["begins", "ends", "ends and another begins"])
def test_a_transaction_is_whole_or_absent(tmp_path: Path, change: str) -> None:
    """The change comes before one of the backup's looks at the server's files, late enough for the logs' ends."""
    made = []
    with kafka_server(directory=tmp_path / "data", topics=TOPICS) as server:
        client, calls = Client(server.bootstrap), 0
        client.begin()
        for at in (0, 0.4, 0.6, 0.75, 0.9):
            before = client.prepare(change)
            nth = int(calls * at) or -1
            fs = Meanwhile(below=str(server.directory), nth=nth, change=lambda: client.go_on(change))
            report = create_backup(server.directory, tmp_path / "backups", full=True, fs=fs)
            calls = calls or fs.count
            made.append((report.manifest.id, before, [*client.sent]))
    for backup, before, after in made[1:]:
        found = restored_is_whole(tmp_path, backup)
        assert found == after[: len(found)] and len(found) >= len(before), (found, before)
