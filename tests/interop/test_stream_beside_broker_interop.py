"""A stream's reader beside a running broker: every record once, whatever the broker does to its files meanwhile."""

import json
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import OffsetOutOfRange
from tests.interop.broker import Broker
from tests.interop.reference import Reference

ck = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install kafkalog[test]")
pytest.importorskip("pyspark", reason="PySpark is not installed")

from kafkalog.spark.damage import DataLoss  # noqa: E402
from kafkalog.spark.options import SourceOptions  # noqa: E402
from kafkalog.spark.stream import StreamReader  # noqa: E402

TIMEOUT_S = 180
RECORDS = 1500
HASTY = {
    "log.flush.start.offset.checkpoint.interval.ms": "150",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "150",
    "log.segment.delete.delay.ms": "200",
}
SMALL = {"internal.segment.bytes": "5000", "index.interval.bytes": "300"}


class Stream:
    """A reader that is asked as Spark asks it; `seen` are the values by (partition, offset)."""

    def __init__(self, data: Path, **options: str) -> None:
        parsed = SourceOptions.parse({"path": str(data), "startingOffsets": "earliest"} | options, streaming=True)
        self.reader = StreamReader(parsed, parsed.columns)
        self.start = self.reader.initialOffset()
        self.seen: dict[tuple[int, int], bytes] = {}

    def step(self) -> bool:
        """One trigger; False where there was nothing new."""
        limit = self.reader.getDefaultReadLimit()
        end = json.loads(json.dumps(self.reader.latestOffset(self.start, limit)))
        if end == self.start:
            return False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataLoss)  # latestOffset has warned
            parts = self.reader.partitions(self.start, end)
        for part in parts:
            for batch in self.reader.read(part):
                for row in batch.to_pylist():
                    where = row["partition"], row["offset"]
                    assert where not in self.seen, f"{where} twice"
                    self.seen[where] = row["value"]
        self.start = end
        return True

    def step_until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not done():
            assert time.monotonic() < deadline, (len(self.seen), self.start)
            if not self.step():
                time.sleep(0.02)


@pytest.fixture(scope="module")
def broker(reference: Reference, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Path]]:
    folder = tmp_path_factory.mktemp("stream")
    data = folder / "data"
    data.mkdir()
    with Broker(reference, folder / "work", data, HASTY) as running:
        yield running, data


@pytest.fixture
def admin(broker: tuple[Broker, Path]) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": broker[0].bootstrap})


def create(admin: Any, data: Path, topic: str, partitions: int = 1) -> None:
    from confluent_kafka.admin import NewTopic

    wait(admin.create_topics([NewTopic(topic, partitions, 1, config=SMALL)]))
    until(lambda: all(any((data / f"{topic}-{n}").glob("*.log")) for n in range(partitions)))


def wait(asked: dict[Any, Any]) -> None:
    for future in asked.values():
        future.result(TIMEOUT_S)


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def producer(broker: Broker, **settings: Any) -> Any:
    return ck.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1} | settings)


def send(broker: Broker, topic: str, first: int, stop: int, partition: int = 0) -> None:
    sender, failed = producer(broker), []
    for n in range(first, stop):
        on_delivery = lambda error, message: error and failed.append(error)  # noqa: E731
        sender.produce(topic, b"%d" % n, partition=partition, on_delivery=on_delivery)
        if n % 50 == 0:
            sender.flush(TIMEOUT_S)
    assert not sender.flush(TIMEOUT_S) and not failed, failed


def test_every_record_once_while_the_broker_writes_rolls_and_gets_partitions(
    broker: tuple[Broker, Path], admin: Any
) -> None:
    from confluent_kafka.admin import NewPartitions

    running, data = broker
    create(admin, data, "busy", 2)
    stream = Stream(data, subscribe="busy", maxOffsetsPerTrigger="97")
    senders = [threading.Thread(target=send, args=(running, "busy", 0, RECORDS, n)) for n in range(2)]
    for one in senders:
        one.start()
    stream.step_until(lambda: len(stream.seen) > RECORDS / 2)
    wait(admin.create_partitions([NewPartitions("busy", 3)]))
    until(lambda: any((data / "busy-2").glob("*.log")))
    send(running, "busy", 0, 200, 2)
    stream.step_until(lambda: len(stream.seen) == 2 * RECORDS + 200)
    for one in senders:
        one.join()
    assert stream.seen == {(p, n): b"%d" % n for p, count in enumerate((RECORDS, RECORDS, 200)) for n in range(count)}
    assert len(list((data / "busy-0").glob("*.log"))) > 2
    assert stream.reader.reportLatestOffset() == {"busy": {"0": RECORDS, "1": RECORDS, "2": 200}}
    assert not stream.step()


def test_it_ends_where_transactions_are_decided(broker: tuple[Broker, Path], admin: Any) -> None:
    running, data = broker
    create(admin, data, "decided")
    stream = Stream(data, subscribe="decided", isolationLevel="read_committed")
    sender = producer(running, **{"transactional.id": "stream"})
    sender.init_transactions(TIMEOUT_S)
    wanted: set[int] = set()
    for turn in range(4):
        sender.begin_transaction()
        for n in range(10):
            sender.produce("decided", b"%d" % (turn * 11 + n), partition=0)
        sender.flush(TIMEOUT_S)
        everything = Stream(data, subscribe="decided")
        everything.step_until(lambda everything=everything, turn=turn: (0, turn * 11 + 9) in everything.seen)
        stream.step()
        assert {offset for _, offset in stream.seen} == wanted, "nothing of an open transaction"
        if turn % 2:
            sender.abort_transaction(TIMEOUT_S)
        else:
            sender.commit_transaction(TIMEOUT_S)
            wanted |= {turn * 11 + n for n in range(10)}
        end = (turn + 1) * 11
        stream.step_until(lambda end=end: stream.start["decided"]["0"] == end)
        assert {offset for _, offset in stream.seen} == wanted


def test_records_that_the_broker_deletes_before_they_are_read(broker: tuple[Broker, Path], admin: Any) -> None:
    running, data = broker
    create(admin, data, "short")
    send(running, "short", 0, 300)
    strict = Stream(data, subscribe="short", maxOffsetsPerTrigger="100")
    loose = Stream(data, subscribePattern="short", maxOffsetsPerTrigger="100", failOnDataLoss="false")
    assert strict.step() and loose.step()
    wait(admin.delete_records([ck.TopicPartition("short", 0, 250)]))
    until(lambda: "short 0 250" in (data / "log-start-offset-checkpoint").read_text())
    time.sleep(1.1)  # a view reads checkpoints once a second
    with pytest.raises(OffsetOutOfRange, match="offsets 100 to 249 of short-0 were deleted before they were read"):
        strict.step()
    with pytest.warns(DataLoss, match="offsets 100 to 249 of short-0"):
        assert loose.step()
    assert sorted(loose.seen) == [(0, n) for n in [*range(100), *range(250, 300)]]
    wait(admin.delete_topics(["short"]))
    until(lambda: not (data / "short-0").exists())
    create(admin, data, "short")  # between two triggers: the stream is not asked before it is there again
    send(running, "short", 0, 50)
    loose.seen.clear()
    match = "short-0 was deleted and created again after it was read up to 300: reading continues at 0"
    with pytest.warns(DataLoss, match=match):
        loose.step()
    loose.step_until(lambda: sorted(loose.seen) == [(0, n) for n in range(50)])
