"""A mirror of a real broker's topics while they are written: the same batches; and a broker serves the same of it."""

import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic

from kafkalog.tools.handover import handover
from kafkalog.types import TopicPartition
from tests.commands import started
from tests.interop.broker import Broker
from tests.interop.reference import Reference

# no record goes and none is compacted while files are compared
QUIET = {"log.initial.task.delay.ms": "3600000", "log.cleaner.enable": "false"}
TOPICS = {
    "plain": {"segment.bytes": "1048576"},
    "codecs": {"compression.type": "zstd"},
    "compacted": {"cleanup.policy": "compact", "segment.bytes": "1048576"},
    "transactions": {},
}
PARTITIONS = 2
WAIT_S = 60


def keys() -> list[TopicPartition]:
    return [TopicPartition(name, index) for name in TOPICS for index in range(PARTITIONS)]


def records_of(data: Path, key: TopicPartition) -> bytes:
    """The batches of a partition, as they lie in its segments; what is allocated beyond them is not there."""
    return b"".join(file.read_bytes() for file in sorted((data / f"{key.topic}-{key.partition}").glob("*.log")))


def write(bootstrap: str, rounds: Iterable[int]) -> None:
    producers = {
        codec: Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 1})
        for codec in ("none", "gzip", "snappy", "lz4", "zstd")
    }
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": "one"})
    transactional.init_transactions(30)
    for number in rounds:
        for codec, producer in producers.items():
            for name in ("plain", "codecs", "compacted"):
                for index in range(40):
                    value = f"{codec} {number} {index}".encode() * 20
                    producer.produce(name, value, key=b"k%d" % index, partition=index % PARTITIONS)
            producer.flush(30)
        transactional.begin_transaction()
        for index in range(10):
            transactional.produce("transactions", b"%d" % number, partition=index % PARTITIONS)
        if number % 2:
            transactional.abort_transaction(30)
        else:
            transactional.commit_transaction(30)


def is_same(source: Path, copy: Path) -> bool:
    return all(records_of(copy, key) == records_of(source, key) for key in keys())


def until_same(source: Path, copy: Path, mirror: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_same(source, copy):
        assert time.monotonic() < deadline
        assert mirror.poll() is None, mirror.communicate()[1].decode()[-3000:]
        time.sleep(0.1)


def stop(mirror: "subprocess.Popen[bytes]") -> None:
    mirror.terminate()
    _, said = mirror.communicate(timeout=60)
    assert mirror.returncode == 0 and b"Traceback" not in said, said.decode()[-3000:]


def test_a_mirror_has_the_same_batches_and_a_broker_serves_them(tmp_path: Path, reference: Reference) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    with Broker(reference, tmp_path / "work", source, QUIET) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        made = admin.create_topics([NewTopic(name, PARTITIONS, 1, config=config) for name, config in TOPICS.items()])
        for future in made.values():
            future.result(30)
        write(broker.bootstrap, range(3))
        topics = [word for name in TOPICS for word in ("-t", name)]
        mirror = started("mirror", "--from", broker.bootstrap, "-d", copy, *topics)
        try:
            write(broker.bootstrap, range(3, 6))
            until_same(source, copy, mirror)
            stop(mirror)
            write(broker.bootstrap, range(6, 8))
            mirror = started("mirror", "--from", broker.bootstrap, "-d", copy, *topics, "--once")
            _, said = mirror.communicate(timeout=60)
            assert mirror.returncode == 0, said.decode()[-3000:]
            assert is_same(source, copy)
            for future in admin.delete_records([Place("plain", 0, 100)]).values():
                future.result(30)
        finally:
            if mirror.poll() is None:
                mirror.kill()
                mirror.communicate()
        levels = ("read_uncommitted", "read_committed")
        wanted = {level: broker.consume_all(keys()[1:], level) for level in levels}
        for key in keys():
            name = f"{key.topic}-{key.partition}/partition.metadata"
            assert (copy / name).read_text() == (source / name).read_text()
    standby = Broker(reference, tmp_path / "standby", copy, QUIET)
    standby.format()
    assert handover([copy], apply=True).ok
    with standby as broker:
        for level in levels:
            assert broker.consume_all(keys()[1:], level) == wanted[level]
