"""Transactions of real producers, read beside the running broker: what its consumers get, we get.

The broker's checkpoints lag behind what it has written, and its active segment's indexes are preallocated.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import kafkalog
from tests.interop.broker import Broker
from tests.interop.reference import Reference
from tests.transactional import index_path

ck = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install kafkalog[test]")

TOPIC = "txns"
TIMEOUT_S = 180
LEVELS = ("read_uncommitted", "read_committed")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("committed") / "data"


@pytest.fixture(scope="module")
def broker(reference: Reference, data: Path) -> Iterator[Broker]:
    """A broker with a topic of small segments, into which transactions were written; one of them is still open."""
    from confluent_kafka.admin import AdminClient, NewTopic

    data.mkdir()
    with Broker(reference, data.parent / "work", data) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        topic = NewTopic(TOPIC, 1, 1, config={"internal.segment.bytes": "6000"})
        admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
        producers = [transactional(running.bootstrap, number) for number in range(4)]
        write(producers, Random(5))
        yield running
        del producers


def transactional(bootstrap: str, number: int) -> Any:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": f"t{number}", "linger.ms": 0}
    producer = ck.Producer(settings | {"transaction.timeout.ms": 600_000})
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(producers: list[Any], random: Random) -> None:
    """Interleaved transactions, about half of them aborted; the last producer's stays open at the end."""
    is_open = [False] * len(producers)
    for number in range(300):
        which = random.randrange(len(producers))
        producer = producers[which]
        if not is_open[which]:
            producer.begin_transaction()
            is_open[which] = True
        for _ in range(random.randrange(1, 4)):
            producer.produce(TOPIC, b"value %d" % number, b"%d" % which)
        producer.flush(TIMEOUT_S)
        if random.random() < 0.5:
            end(producer, random.random() < 0.5)
            is_open[which] = False
    for which, producer in enumerate(producers[:-1]):
        if is_open[which]:
            end(producer, True)
    if not is_open[-1]:
        producers[-1].begin_transaction()
    producers[-1].produce(TOPIC, b"open", b"open")
    producers[-1].flush(TIMEOUT_S)


def end(producer: Any, commits: bool) -> None:
    (producer.commit_transaction if commits else producer.abort_transaction)(TIMEOUT_S)


def consumed(bootstrap: str, level: str) -> tuple[list[tuple[int, bytes, bytes]], int]:
    """Return what librdkafka's consumer reads from the beginning to its level's end, and that end."""
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "interop", "enable.auto.commit": False, "isolation.level": level,
         "enable.partition.eof": True, "fetch.wait.max.ms": 50}
    )  # fmt: skip
    found = []
    try:
        partition = ck.TopicPartition(TOPIC, 0, ck.OFFSET_BEGINNING)
        consumer.assign([partition])
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            for one in consumer.consume(500, 0.1):
                if one.error():
                    assert one.error().code() == ck.KafkaError._PARTITION_EOF, one.error()
                    return found, one.offset()
                found.append((one.offset(), one.key(), one.value()))
        raise TimeoutError("the end of the partition did not come")
    finally:
        consumer.close()


def ours(directory: Path, level: str) -> tuple[list[tuple[int, bytes | None, bytes | None]], int]:
    with kafkalog.open(directory) as log:
        end = log.last_stable_offset if level == "read_committed" else log.end_offset
        return [(r.offset, r.key, r.value) for r in log.records(isolation=level)], end


def end_of(directory: Path) -> int:
    with kafkalog.open(directory) as log:
        return log.end_offset


@pytest.mark.parametrize("level", LEVELS)
def test_we_read_beside_the_broker_what_its_consumers_read(broker: Broker, data: Path, level: str) -> None:
    """TXN-2, LOG-30: aborted records and an open transaction's are left out, the others come, at once."""
    directory = data / f"{TOPIC}-0"
    while True:  # a transaction's marker may arrive a moment after its producer got the answer
        end, theirs = end_of(directory), consumed(broker.bootstrap, level)
        found = ours(directory, level)
        if end_of(directory) == end:
            break
    assert found == theirs


def test_the_same_without_any_transaction_index(broker: Broker, data: Path, tmp_path: Path) -> None:
    """A copy of the running directory that left them out."""
    import shutil

    expected = consumed(broker.bootstrap, "read_committed")
    copy = tmp_path / f"{TOPIC}-0"
    shutil.copytree(data / copy.name, copy)
    bases = [int(path.stem) for path in copy.glob("*.log")]
    assert len(bases) > 3 and any(index_path(copy, base).exists() for base in bases)
    for base in bases:
        index_path(copy, base).unlink(missing_ok=True)
    assert ours(copy, "read_committed") == expected
    for path in copy.glob("*.snapshot"):
        path.unlink()
    assert ours(copy, "read_committed") == expected
