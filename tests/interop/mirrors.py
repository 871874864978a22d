"""Mirrors of a real broker: what is written to the source, the copy as it lies on disk, the command."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import kafkalog
from kafkalog.tools.handover.directories import HandoverOptions, handover
from kafkalog.types import TopicPartition
from tests.commands import started
from tests.interop.broker import QUIET, Broker
from tests.interop.reference import RecordTuple, Reference

# no record goes and none is compacted while files are compared
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LEVELS = ("read_uncommitted", "read_committed")
PARTITIONS = 2
WAIT_S = 120
Copy = subprocess.Popen[bytes]
Served = dict[str, dict[str, list[RecordTuple]]]


def keys_of(*topics: str) -> list[TopicPartition]:
    return [TopicPartition(name, index) for name in topics for index in range(PARTITIONS)]


def records_of(data: Path, key: TopicPartition) -> bytes:
    """Return the batches of a partition, as they lie in its segments, without preallocated space."""
    return b"".join(file.read_bytes() for file in sorted((data / f"{key}").glob("*.log")))


def is_same(source: Path, copy: Path, keys: Iterable[TopicPartition]) -> bool:
    return all(records_of(copy, key) == records_of(source, key) for key in keys)


def until(is_so: Callable[[], bool], mirror: Copy | None = None) -> None:
    """Return once it is so; a mirror that ended meanwhile is a failure."""
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        assert mirror is None or mirror.poll() is None, mirror.communicate()[1].decode()[-3000:]
        time.sleep(0.1)


def topics_on(broker: Broker, topics: Mapping[str, Mapping[str, str]]) -> AdminClient:
    """A client of the broker, which has these topics with these settings now."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    made = admin.create_topics([NewTopic(name, PARTITIONS, 1, config=dict(own)) for name, own in topics.items()])
    for future in made.values():
        future.result(60)
    return admin


def write(bootstrap: str, rounds: Iterable[int], *topics: str, keys: int = 40) -> None:
    """Records of every codec to each topic; those of a round are a batch or a few of each partition."""
    producers = [
        (codec, Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 1}))
        for codec in CODECS
    ]
    for number in rounds:
        for codec, producer in producers:
            for name in topics:
                for index in range(keys):
                    value = f"{codec} {number} {index}".encode() * 20
                    producer.produce(name, value, key=b"k%d" % index, partition=index % PARTITIONS)
            assert producer.flush(60) == 0


@contextmanager
def mirroring(bootstrap: str, copy: Path, *topics: str) -> Iterator[Copy]:
    """A mirror that runs while the block does, and ends as on SIGTERM."""
    mirror = started("mirror", "--from", bootstrap, "-d", copy, *named(topics))
    try:
        yield mirror
        if mirror.poll() is None:
            mirror.terminate()
            _, said = mirror.communicate(timeout=WAIT_S)
            assert mirror.returncode == 0 and b"Traceback" not in said, said.decode()[-3000:]
    finally:
        if mirror.poll() is None:
            kill(mirror)


def named(topics: Iterable[str]) -> list[str]:
    return [word for name in topics for word in ("-t", name)]


def mirrored(bootstrap: str, copy: Path, *topics: str) -> tuple[int, str]:
    """The status of a mirror that ends when all that there was has come, and what it said."""
    mirror = started("mirror", "--from", bootstrap, "-d", copy, *named(topics), "--once")
    try:
        _, said = mirror.communicate(timeout=WAIT_S)
    finally:
        if mirror.poll() is None:
            kill(mirror)
    return mirror.returncode, said.decode()


def kill(mirror: Copy) -> None:
    """End it with SIGKILL: nothing is flushed, nothing is marked as clean."""
    os.kill(mirror.pid, signal.SIGKILL)
    mirror.communicate()


def start_of(data: Path, key: TopicPartition) -> int:
    with kafkalog.open(data / f"{key}") as log:
        return log.start_offset


def served(broker: Broker, keys: Iterable[TopicPartition]) -> Served:
    """Return what the broker's own consumer reads, by isolation level."""
    keys = tuple(keys)
    return {level: broker.consume_all(keys, level) for level in LEVELS}


def served_from(reference: Reference, work: Path, copy: Path, keys: Iterable[TopicPartition]) -> Served:
    """Return `served` of a new broker that is started on the copy."""
    standby = Broker(reference, work, copy, QUIET)
    standby.format()
    done = handover([copy], apply=True, options=HandoverOptions(let_expire=True))
    assert done.ok, done
    with standby:
        return served(standby, keys)
