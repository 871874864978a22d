"""A cluster under load while it is backed up, and what must be so of each backup: for our server and for a broker.

Record n of `plain` and of `compacted` is `value n`; `expiring` loses its old ones; transactions of five records go to
`txns`, each third of which is aborted; a group reads `plain` and commits.
"""

import threading
from pathlib import Path
from typing import Any, Self

import kafkalog
from kafkalog.backup.manifest import Manifest
from kafkalog.tools.verify import verify

TIMEOUT_S = 60
KEYS = 7
TOPICS = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"},
    "expiring": {"retention.bytes": "60000", "file.delete.delay.ms": "100"},
    "txns": {},
}
SMALL = {"internal.segment.bytes": "5000", "index.interval.bytes": "300", "segment.ms": "1000"}
HASTY = {
    "log.cleaner.backoff.ms": "50",
    "log.flush.start.offset.checkpoint.interval.ms": "150",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "150",
    "log.segment.delete.delay.ms": "200",
}
"""Cleaning, retention and the delete of files a few times a second."""


class Load:
    """Clients at work while the block runs. `acked` counts what `plain` was told to have."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stopped = threading.Event()
        work = (self._send, self._txns, self._read)
        self._threads = [threading.Thread(target=self._guard, args=(one,)) for one in work]
        self.acked = 0
        self.committed = 0
        self.transactions = 0
        self.failures: list[BaseException] = []

    def __enter__(self) -> Self:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        wanted = [NewTopic(name, 1, 1, config={**SMALL, **more}) for name, more in TOPICS.items()]
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

    def wait(self, acked: int) -> None:
        """Return when so many records of `plain` were taken, ten transactions are over and the group has committed."""
        while not self._stopped.wait(0.02):
            if self.acked >= acked and self.transactions >= 10 and self.committed:
                return
        raise self.failures[0]

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

    def _txns(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0, "transactional.id": "backed up"})
        producer.init_transactions(TIMEOUT_S)
        while not self._stopped.is_set():
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

        settings = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self._bootstrap, **settings})
        consumer.subscribe(["plain"])
        try:
            while not self._stopped.is_set():
                message = consumer.poll(0.2)
                if message is not None and message.error() is None and message.offset() % 20 == 0:
                    self.committed = consumer.commit(asynchronous=False)[0].offset
        finally:
            consumer.close()


def check(restored: Path, manifest: Manifest, acked: int) -> None:
    """Everything that must be so of a backup that was begun when `acked` records of `plain` were taken."""
    report = verify(restored, deep=True)
    assert report.ok, str(report)
    ends = {one.topic: one.end_offset for one in manifest.partitions if one.partition == 0}
    with kafkalog.open(restored / "plain-0") as log:
        values = [record.value for record in log.records()]
        assert values == [b"value %d" % n for n in range(len(values))] and len(values) >= acked
        assert log.end_offset == ends["plain"]
    with kafkalog.open(restored / "compacted-0") as log:
        last = {record.key: record.value for record in log.records()}
        end = log.end_offset
    newest = {n * n % KEYS: n for n in range(end)}
    assert last == {b"key %d" % key: b"value %d" % n for key, n in newest.items()}
    with kafkalog.open(restored / "expiring-0") as log:
        found = [(record.offset, record.value) for record in log.records()]
        assert found == [(n, b"value %d" % n) for n in range(log.start_offset, log.end_offset)]
    with kafkalog.open(restored / "txns-0") as log:
        texts = [(record.value or b"").split() for record in log.records(isolation="read_committed")]
    assert texts and all(kind == b"committed" for kind, _, _ in texts), "no aborted record is seen"
    whole = [int(number) for _, number, n in texts if n == b"4"]
    assert len(texts) == 5 * len(whole) and whole == [n for n in range(whole[-1] + 1) if n % 3 != 2], "all or nothing"
    (offset,) = manifest.groups["readers"]["plain"].values()
    assert 0 < offset <= ends["plain"], "no group is ahead of the records"
    assert manifest.topics["compacted"]["cleanup.policy"] == "compact"


def check_served(bootstrap: str, manifest: Manifest) -> None:
    """A server, or a broker, on the restored directory has the records, and the offset that the group committed."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False})
    (committed,) = consumer.committed([TopicPartition("plain", 0)], TIMEOUT_S)
    assert {0: committed.offset} == manifest.groups["readers"]["plain"]
    (end,) = (one.end_offset for one in manifest.partitions if one.topic == "plain")
    assert consumer.get_watermark_offsets(TopicPartition("plain", 0), TIMEOUT_S) == (0, end)
    consumer.assign([TopicPartition("plain", 0, 0)])
    found: list[bytes] = []
    while len(found) < end:
        found += [message.value() for message in consumer.consume(end - len(found), TIMEOUT_S)]
    consumer.close()
    assert found == [b"value %d" % n for n in range(end)]
    producer, placed = Producer({"bootstrap.servers": bootstrap}), []
    producer.produce("plain", b"next", on_delivery=lambda error, message: placed.append((error, message.offset())))
    producer.flush(TIMEOUT_S)
    assert placed == [(None, end)]
