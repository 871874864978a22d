"""Mode "r" beside a running broker that rolls, compacts, expires, deletes and truncates under its feet.

Offset n of every topic was sent as record n, so that each record that is seen can be judged alone. All reading goes
through a file layer that refuses whatever could change a file.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import CorruptIndex, CorruptSnapshot, OffsetOutOfRange
from kafkalog.log.log import Log
from kafkalog.storage.readonly.view import LogView
from tests.faults import WRITING_CALLS, FaultFS
from tests.interop.broker import Broker
from tests.interop.reference import Reference

ck = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install kafkalog[test]")

TIMEOUT_S = 180
RECORDS = 500
KEYS = 7
# cleaning, retention and the delete of files a few times a second
HASTY = {
    "log.cleaner.backoff.ms": "50",
    "log.flush.start.offset.checkpoint.interval.ms": "150",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "150",
    "log.segment.delete.delay.ms": "200",
}
SMALL = {"internal.segment.bytes": "5000", "index.interval.bytes": "300", "segment.ms": "100"}
TOPICS = {
    "compacted": SMALL | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    "expiring": SMALL | {"retention.bytes": "25000", "file.delete.delay.ms": "100"},
    "deleted": SMALL | {"retention.ms": "-1", "file.delete.delay.ms": "0"},
}


def key_of(n: int) -> bytes:
    return b"key %d" % (n * n % KEYS)


def value_of(n: int) -> bytes:
    return b"%d " % n + b"x" * (n % 97)


def check(offset: int, key: bytes | None, value: bytes | None) -> None:
    assert (key, value) == (key_of(offset), value_of(offset)), offset


class Readers:
    """Threads that read on until they are stopped; the first failure of one is raised then."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.seen: dict[str, int] = {}
        self._failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, name: str, work: Callable[[], Iterable[int]]) -> None:
        """Run `work` again and again; it gives what it saw, a count at a time."""

        def run() -> None:
            try:
                while not self.stopped.is_set():
                    for count in work():
                        self.seen[name] = self.seen.get(name, 0) + count
                    time.sleep(0.05)  # let the sender go on too: it decides how long this takes
            except BaseException as failure:
                self._failures.append(failure)
                self.stopped.set()

        self._threads.append(threading.Thread(target=run, name=name))
        self._threads[-1].start()

    def finish(self) -> None:
        self.stopped.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        if self._failures:
            raise self._failures[0]


class Seen:
    """Changes of a topic's logs that were seen while they were read."""

    def __init__(self, data: Path, topic: str) -> None:
        self.fs = FaultFS()
        self.fs.fail(*WRITING_CALLS)
        self.view = LogView(data / f"{topic}-0", fs=self.fs)
        self.log = Log(self.view, None)
        self.topic = topic

    def read_reopened(self) -> list[int]:
        """The offsets that a log which is opened now has."""
        with kafkalog.open(self.view.path) as log:
            return [record.offset for record in log.records()]

    def records(self) -> Iterator[int]:
        """All from the present start on; a start that goes away meanwhile is said so."""
        last = -1
        try:
            for record in self.log.records():
                assert record.offset > last
                last = record.offset
                check(last, record.key, record.value)
                yield 1
        except OffsetOutOfRange as gone:
            assert self.topic != "compacted" and gone.offset is not None
            self.view.refresh()
            assert gone.offset < self.view.log_start_offset

    def columns(self) -> Iterator[int]:
        try:
            table = self.log.table(["offset", "key", "value"])
        except OffsetOutOfRange:
            assert self.topic != "compacted"
            return
        for row in table:
            check(row["offset"], row["key"], row["value"])
        yield len(table)

    def problems(self) -> Iterator[int]:
        """An index that the broker is just replacing or deleting is no problem of the log."""
        self.log.offset_for_time(0)
        passing = [one for one in self.log.problems if isinstance(one, CorruptIndex)]
        assert not passing, passing
        yield 1

    def snapshots(self) -> Iterator[int]:
        """The newest snapshot of producers, which a log reads when it is opened, may not be whole yet."""
        for _ in range(20):
            with LogView(self.view.path, fs=self.fs) as view:
                assert view.last_stable_offset <= view.log_end_offset
                passing = [one for one in view.problems if isinstance(one, CorruptSnapshot)]
            assert not passing, passing
            yield 1

    def points(self) -> Iterator[int]:
        """Single look-ups: deleted records are not found, existing ones are right."""
        random = Random(self.topic)
        start, end = self.log.start_offset, self.log.end_offset
        for _ in range(20):
            wanted = random.randrange(start, max(end, start + 1))
            try:
                record = self.log[wanted]
            except (OffsetOutOfRange, LookupError):
                continue
            check(record.offset, record.key, record.value)
            yield 1

    def tail(self) -> Iterator[int]:
        """Read new records as they come; a reader that retention overtakes restarts."""
        try:
            last = -1
            for record in self.log.tail(0.3, self.log.end_offset):
                assert record.offset > last
                last = record.offset
                check(last, record.key, record.value)
                yield 1
        except OffsetOutOfRange:
            assert self.topic != "compacted"


class Sender(threading.Thread):
    """Sends record 0, 1, 2, ... to every topic until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True})
        self.stopped = threading.Event()
        self.count = 0
        self.failed: list[Any] = []

    def run(self) -> None:
        while not self.stopped.is_set():
            for topic in TOPICS:
                self._producer.produce(topic, value_of(self.count), key_of(self.count), on_delivery=self._delivered)
            self.count += 1
            self._producer.poll(0)
            if self.count % 5 == 0:
                self._producer.flush(TIMEOUT_S)
        self._producer.flush(TIMEOUT_S)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("beside") / "data"


@pytest.fixture(scope="module")
def broker(reference: Reference, data: Path) -> Iterator[Broker]:
    from confluent_kafka.admin import AdminClient, NewTopic

    data.mkdir()
    with Broker(reference, data.parent / "work", data, HASTY) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        asked = admin.create_topics([NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()])
        for future in asked.values():
            future.result(TIMEOUT_S)
        deadline = time.monotonic() + TIMEOUT_S  # the directories come a moment after the answer
        while time.monotonic() < deadline and not all(any((data / f"{name}-0").glob("*.log")) for name in TOPICS):
            time.sleep(0.02)
        yield running


def delete_some(broker: Broker, sender: Sender) -> Iterator[int]:
    """DeleteRecords in the middle of what is there, now and then; the new log start each time."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    while True:
        time.sleep(0.3)
        below = max(0, sender.count - 150)
        future = next(iter(admin.delete_records([ck.TopicPartition("deleted", 0, below)]).values()))
        future.result(TIMEOUT_S)
        yield below


@pytest.fixture
def topics(broker: Broker, data: Path) -> Iterator[dict[str, Seen]]:
    found = {name: Seen(data, name) for name in TOPICS}
    yield found
    for one in found.values():
        one.log.close()


def test_every_record_is_right_and_nothing_is_written(broker: Broker, topics: dict[str, Seen]) -> None:
    sender, readers = Sender(broker.bootstrap), Readers()
    sender.start()
    try:
        for name, one in topics.items():
            for work in (one.records, one.columns, one.points, one.tail, one.problems, one.snapshots):
                readers.start(f"{name} {work.__name__}", work)
        deadline = time.monotonic() + TIMEOUT_S
        for below in delete_some(broker, sender):  # noqa: B007 (the last one is looked at below)
            if sender.count > RECORDS or time.monotonic() > deadline or readers.stopped.is_set():
                break
    finally:
        sender.stopped.set()
        sender.join(TIMEOUT_S)
        readers.finish()
    assert not sender.failed and sender.count > RECORDS
    assert len(readers.seen) == 18 and all(readers.seen.values()), readers.seen
    settle(topics, sender.count, below)
    for one in topics.values():
        assert one.fs.calls and not one.fs.named(*WRITING_CALLS)


def settle(topics: dict[str, Seen], count: int, below: int) -> None:
    """In the end what compaction, retention and deletion have left is read whole, up to the last record.

    The start of DeleteRecords is known when the broker has written it to its checkpoint; before, whole segments count.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        found = {name: [record.offset for record in one.log.records()] for name, one in topics.items()}
        reopened = {name: one.read_reopened() for name, one in topics.items()}
        settled = len(found["compacted"]) < count / 2 and found["deleted"][0] == below and found == reopened
        if settled or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    assert found == reopened, "a log that was open all the time sees what one sees that is opened now"
    assert all(offsets[-1] == count - 1 for offsets in found.values())
    newest = {key_of(n): n for n in range(count)}
    assert set(newest.values()) <= set(found["compacted"]) and len(found["compacted"]) < count / 2
    for name in ("expiring", "deleted"):
        offsets = found[name]
        assert 0 < offsets[0] and offsets == list(range(offsets[0], count))
    assert found["deleted"][0] == below


def test_a_log_that_is_truncated_and_written_anew(reference: Reference, tmp_path: Path) -> None:
    """A follower cuts back and copies another leader's records: none of the old ones is seen after the new ones."""
    directory = tmp_path / "data" / "cut-0"
    directory.mkdir(parents=True)
    fs = FaultFS()
    fs.fail(*WRITING_CALLS)
    config = {"segment.bytes": 1 << 20, "index.interval.bytes": 200}
    with reference.open(directory, config, clean=False) as theirs:
        rows = [[(1000 + i, b"old", b"value %d" % i)] for i in range(400)]
        theirs.append(*rows)
        readers, cut = Readers(), 400
        with Log(LogView(directory, fs=fs), None) as log:
            readers.start("records", lambda: read_cut_log(log))
            try:
                for epoch in range(1, 12):
                    cut -= 30
                    theirs.ask("truncate_to", offset=cut)
                    theirs.append(*[[(1000, b"anew", b"value %d" % i)] for i in range(cut, 400)], leader_epoch=epoch)
                    if epoch % 3 == 0:
                        theirs.ask("roll")
            finally:
                readers.finish()
            assert [record.key for record in log.records()] == [b"old"] * cut + [b"anew"] * (400 - cut)
    assert readers.seen["records"] > 400 and not fs.named(*WRITING_CALLS)


def read_cut_log(log: Log) -> Iterator[int]:
    try:
        found = [(record.key, record.value) for record in log.records()]
    except OffsetOutOfRange:
        return
    assert [value for _, value in found] == [b"value %d" % i for i in range(len(found))]
    keys = [key for key, _ in found]
    assert keys == sorted(keys, reverse=True)  # "old" below the cut, "anew" after it
    yield len(found)
