"""A cluster under load while it is backed up, and what must be so of each backup: for our server and for a broker.

Record n of `plain`, of `compacted` and of each partition of `packed`, one for each compression, is `value n`;
`expiring` loses its old ones; transactions of five records go to `txns`, each third of which is aborted; a group reads
`plain` and commits.
"""

import json
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

import kafkalog
from kafkalog.backup import list_backups
from kafkalog.backup.manifest import Manifest
from kafkalog.tools.verify.directories import verify
from tests import commands

TIMEOUT_S = 120
KEYS = 7
CODECS = ("gzip", "snappy", "lz4", "zstd")
GROUP, TRANSACTIONAL_ID = "readers", "backed up"
TOPICS = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"},
    "expiring": {"retention.bytes": "60000", "file.delete.delay.ms": "100"},
    "packed": {},
    "txns": {},
}
NEVER_CUT = ("plain-0", "packed-0", "packed-1", "packed-2", "packed-3", "txns-0")
SMALL = {"internal.segment.bytes": "5000", "index.interval.bytes": "300", "segment.ms": "1000"}
HASTY = {
    "log.cleaner.backoff.ms": "50",
    "log.flush.start.offset.checkpoint.interval.ms": "150",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "150",
    "log.segment.delete.delay.ms": "200",
}
"""Cleaning, retention and the delete of files a few times a second."""


class Promised(NamedTuple):
    """Records that clients had acknowledged before a backup began: of `plain` and of partitions of `packed`, finished
    transactions, the group's offset."""

    acked: int
    packed: tuple[int, ...]
    transactions: int
    committed: int


class Load:
    """Clients at work while the block runs. `acked` counts the acknowledged records of `plain`, `packed` likewise."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stopped = threading.Event()
        self._begins = threading.Event()  # transactions may begin
        self._begins.set()
        self._is_idle = threading.Event()  # none is open
        work = (self._send, self._pack, self._txns, self._read)
        self._threads = [threading.Thread(target=self._guard, args=(one,)) for one in work]
        self.acked = 0
        self.packed = [0] * len(CODECS)
        self.committed = 0
        self.transactions = 0
        self.failures: list[BaseException] = []

    def __enter__(self) -> Self:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        wanted = [
            NewTopic(name, len(CODECS) if name == "packed" else 1, 1, config={**SMALL, **more})
            for name, more in TOPICS.items()
        ]
        for future in admin.create_topics(wanted).values():
            future.result(TIMEOUT_S)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        if not any(raised) and self.failures:
            raise self.failures[0]

    def wait(self, acked: int) -> Promised:
        """Return after so many records of `plain`, ten transactions and a commit of the group."""
        while not self._stopped.wait(0.02):
            if self.acked >= acked and self.transactions >= 10 and self.committed and all(self.packed):
                return Promised(self.acked, tuple(self.packed), self.transactions, self.committed)
        raise self.failures[0]

    def end_transactions(self) -> None:
        """Return when no transaction is open, and none begins any longer."""
        self._begins.clear()
        assert self._is_idle.wait(TIMEOUT_S)

    def _guard(self, work: Any) -> None:
        try:
            work()
        except BaseException as failure:
            self.failures.append(failure)
            self._stopped.set()

    def _send(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0, "enable.idempotence": True})

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                raise AssertionError(str(error))
            if message.topic() == "plain":
                self.acked = max(self.acked, message.offset() + 1)

        count = 0
        while not self._stopped.is_set():
            for topic in ("plain", "compacted", "expiring"):
                producer.produce(topic, b"value %d" % count, b"key %d" % (count * count % KEYS), on_delivery=delivered)
            count += 1
            producer.poll(0)
            if count % 10 == 0:
                producer.flush(TIMEOUT_S)
        producer.flush(TIMEOUT_S)

    def _pack(self) -> None:
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": self._bootstrap, "linger.ms": 5, "enable.idempotence": True}
        producers = [Producer({**settings, "compression.type": codec}) for codec in CODECS]

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                raise AssertionError(str(error))
            self.packed[message.partition()] = message.offset() + 1

        count = 0
        while not self._stopped.wait(0.05):
            for number, producer in enumerate(producers):
                for n in range(count, count + 20):
                    producer.produce("packed", b"value %d" % n, b"key", partition=number, on_delivery=delivered)
            for producer in producers:
                producer.flush(TIMEOUT_S)
            count += 20

    def _txns(self) -> None:
        from confluent_kafka import Producer

        own = {"linger.ms": 0, "transactional.id": TRANSACTIONAL_ID}
        producer = Producer({"bootstrap.servers": self._bootstrap, **own})
        producer.init_transactions(TIMEOUT_S)
        while not self._stopped.is_set():
            if not self._begins.is_set():
                self._is_idle.set()
                self._stopped.wait(0.02)
                continue
            producer.begin_transaction()
            is_aborted = self.transactions % 3 == 2
            kind = b"aborted" if is_aborted else b"committed"
            for n in range(5):
                producer.produce("txns", b"%s %d %d" % (kind, self.transactions, n))
            producer.flush(TIMEOUT_S)
            (producer.abort_transaction if is_aborted else producer.commit_transaction)(TIMEOUT_S)
            self.transactions += 1

    def _read(self) -> None:
        from confluent_kafka import Consumer

        settings = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self._bootstrap, **settings})
        consumer.subscribe(["plain"])
        try:
            while not self._stopped.is_set():
                message = consumer.poll(0.2)
                if message is not None and message.error() is None and message.offset() % 20 == 0:
                    self.committed = consumer.commit(asynchronous=False)[0].offset
        finally:
            consumer.close()


def backup(data: Path, backups: Path) -> dict[str, Any]:
    """A backup by the command line: what it says of it."""
    return dict(json.loads(commands.ok("backup", "-J", "-d", data, backups)))


def restored(backups: Path, which: str, into: Path) -> Manifest:
    """A backup verified and restored by the command line."""
    commands.ok("backup", "verify", "--deep", "--id", which, backups)
    commands.ok("restore", "--id", which, backups, "-d", into)
    (manifest,) = (one for one in list_backups(backups) if one.id == which)
    assert not [note for note in manifest.notes if "transactions" in note]
    return manifest


def check(directory: Path, manifest: Manifest, promised: Promised) -> None:
    """Everything that must be so of a backup that was begun when so much had been promised."""
    report = verify(directory, deep=True)
    assert report.ok, str(report)
    ends = {(one.topic, one.partition): one.end_offset for one in manifest.partitions}
    for topic, partition, acked in (
        ("plain", 0, promised.acked),
        *(("packed", *p) for p in enumerate(promised.packed)),
    ):
        with kafkalog.open(directory / f"{topic}-{partition}") as log:
            values = [record.value for record in log.records()]
            assert values == [b"value %d" % n for n in range(len(values))] and len(values) >= acked
            assert log.end_offset == ends[topic, partition]
            (producer,) = log.producers
            assert producer.last_sequence == len(values) - 1, "the next batch of the producer would be taken"
    with kafkalog.open(directory / "compacted-0") as log:
        records = list(log.records())
        end = log.end_offset
    assert len(records) < end, "the cleaner was at work"
    newest = {n * n % KEYS: n for n in range(end)}
    last = {record.key: record.value for record in records}
    assert last == {b"key %d" % key: b"value %d" % n for key, n in newest.items()}
    with kafkalog.open(directory / "expiring-0") as log:
        found = [(record.offset, record.value) for record in log.records()]
        assert found == [(n, b"value %d" % n) for n in range(log.start_offset, log.end_offset)]
    with kafkalog.open(directory / "txns-0") as log:
        texts = [record.value or b"" for record in log.records(isolation="read_committed")]
    check_transactions(texts, promised.transactions)
    (offset,) = manifest.groups[GROUP]["plain"].values()
    assert promised.committed <= offset <= ends["plain", 0], "no group is behind its promise or ahead of the records"
    assert manifest.topics["compacted"]["cleanup.policy"] == "compact"


def check_transactions(texts: list[bytes], least: int) -> None:
    """Check that a reader of committed records has at least `least` transactions of `txns`, all or nothing."""
    split = [text.split() for text in texts]
    assert split and all(kind == b"committed" for kind, _, _ in split), "no aborted record is seen"
    whole = [int(number) for _, number, n in split if n == b"4"]
    assert len(split) == 5 * len(whole) and whole == [n for n in range(whole[-1] + 1) if n % 3 != 2], "all or nothing"
    assert whole[-1] >= least - 2


def check_bytes(live: Path, directory: Path) -> None:
    """Check that the restored logs are, byte by byte, what the live logs begin with or continued from."""
    for name in NEVER_CUT:
        now, then = (b"".join(path.read_bytes() for path in segments(where / name)) for where in (live, directory))
        assert then and now.startswith(then), name
    kept = {path.name: path for path in segments(live / "expiring-0")}
    for path in segments(directory / "expiring-0"):
        if path.name in kept:
            assert kept[path.name].read_bytes().startswith(path.read_bytes())
    assert min(kept) > "0" * 20 + ".log", "retention was at work"


def until_at_work(live: Path) -> None:
    """Return when the cleaner has removed records of `compacted`, and retention a segment of `expiring`."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        with kafkalog.open(live / "compacted-0") as log:
            is_cleaned = sum(1 for _ in log.records()) < log.end_offset
        if is_cleaned and segments(live / "expiring-0")[0].name > "0" * 20 + ".log":
            return
        assert time.monotonic() < deadline, "no cleaner or no retention was at work"
        time.sleep(0.1)


def segments(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))


LOADING = (14, 15, 16)  # COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR


def until_loaded(consumer: Any, where: Any) -> Any:
    """Return the committed offset of a partition; a broker that has just started may still load its groups."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            (committed,) = consumer.committed([where], TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() not in LOADING or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return committed


def check_served(bootstrap: str, manifest: Manifest, promised: Promised) -> None:
    """A server, or a broker, on the restored directory has the records and the group's offset, and all can go on."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    committed = until_loaded(consumer, TopicPartition("plain", 0))
    assert {0: committed.offset} == manifest.groups[GROUP]["plain"]
    (end,) = (one.end_offset for one in manifest.partitions if one.topic == "plain")
    assert consumer.get_watermark_offsets(TopicPartition("plain", 0), TIMEOUT_S) == (0, end)
    assert read(consumer, "plain", b"value %d" % (end - 1)) == [b"value %d" % n for n in range(end)]
    one, placed = Producer({"bootstrap.servers": bootstrap, "transactional.id": TRANSACTIONAL_ID}), []
    one.init_transactions(TIMEOUT_S)
    one.begin_transaction()
    one.produce("txns", b"last")
    one.produce("plain", b"next", on_delivery=lambda error, message: placed.append((error, message.offset())))
    one.commit_transaction(TIMEOUT_S)
    assert placed == [(None, end)]
    check_transactions(read(consumer, "txns", b"last")[:-1], promised.transactions)
    consumer.close()


def read(consumer: Any, topic: str, last: bytes) -> list[bytes]:
    """The values of a topic from its start up to the one that is its last."""
    from confluent_kafka import TopicPartition

    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while last not in found[-1:]:
        messages = consumer.consume(1000, 0.05)
        found += [message.value() for message in messages]
    return found
