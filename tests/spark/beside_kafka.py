"""The same topics through two sources: Spark's own from a running broker, kafkalog's from that broker's directory."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kafkalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIMEOUT_S = 60
# nothing is to happen to the records while they are compared; a start that was moved is written down at once
QUIET = {
    "log.cleaner.enable": "false",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.retention.ms": "-1",
}
# that source asks in vain for a minute otherwise
HASTY = {"kafka.default.api.timeout.ms": "8000", "kafka.request.timeout.ms": "4000", "fetchoffset.numretries": "1"}
# our names of what a consumer's own setting says there
ONLY_THERE = {"isolationLevel": "kafka.isolation.level"}

Headers = Sequence[tuple[str, bytes | None]]
# partition, timestamp (ms), key, value, headers
Sent = tuple[int, int, bytes | None, bytes | None, Headers]


@dataclass
class BesideKafka:
    """Topics are made and filled through the broker; frames are of either source."""

    spark: SparkSession
    data: Path
    bootstrap: str
    open_producers: list[Any] = field(default_factory=list)
    """Kept alive to the end: those with an open transaction."""

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Makes a topic; settings have _ where Kafka has a point."""
        from confluent_kafka.admin import NewTopic

        settings = {name.replace("_", "."): value for name, value in config.items()}
        made = self._admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])
        made[topic].result(TIMEOUT_S)

    def add_partitions(self, topic: str, total: int) -> None:
        """Lets a topic have more partitions."""
        from confluent_kafka.admin import NewPartitions

        self._admin.create_partitions([NewPartitions(topic, total)])[topic].result(TIMEOUT_S)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Moves a partition's start, and waits until the broker has written that down."""
        from confluent_kafka import TopicPartition

        for one in self._admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            one.result(TIMEOUT_S)
        deadline = time.monotonic() + TIMEOUT_S
        while self._start(topic, partition) != offset:
            assert time.monotonic() < deadline, f"{topic}-{partition} does not start at {offset}"
            time.sleep(0.05)

    def _start(self, topic: str, partition: int) -> int:
        with kafkalog.open(self.data / f"{topic}-{partition}") as log:
            return log.start_offset

    @functools.cached_property
    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def producer(self, **settings: Any) -> Any:
        """A producer; settings have _ where Kafka has a point."""
        from confluent_kafka import Producer

        named = {name.replace("_", "."): value for name, value in settings.items()}
        kept_in_order = {"enable.idempotence": True, "linger.ms": 20, "log_level": 0}
        return Producer({"bootstrap.servers": self.bootstrap} | kept_in_order | named)

    def send(self, topic: str, rows: Iterable[Sent], producer: Any = None, **settings: Any) -> None:
        """Sends the rows and waits until the broker has them."""
        producer = producer or self.producer(**settings)
        failed: list[Any] = []
        for partition, timestamp, key, value, headers in rows:
            producer.produce(
                topic, value, key, partition, timestamp=timestamp, headers=list(headers),
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )  # fmt: skip
        left = producer.flush(TIMEOUT_S)
        assert not left and not failed, f"{left} records are left, {failed[:1]}"

    def theirs(self, options: Mapping[str, object]) -> DataFrame:
        """A batch frame of Spark's own source."""
        named = {ONLY_THERE.get(name, name): str(value) for name, value in options.items()}
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(**(HASTY | named)).load()

    def ours(self, options: Mapping[str, object]) -> DataFrame:
        """Return a batch frame of kafkalog's source, with the same options."""
        return self.spark.read.format("kafkalog").options(**dict(options)).load(str(self.data))

    @property
    def streams(self) -> Path:
        """Directory of the streams' checkpoints and tables."""
        return self.data.parent / "streams"

    def run_stream(self, source: str, options: Mapping[str, object], name: str = "refused") -> None:
        """Run a stream of "kafka" or "kafkalog" into a Parquet table until it has read everything.

        Table and checkpoint are in `streams`, under the name and the source.
        """
        named = {ONLY_THERE.get(key, key): str(value) for key, value in options.items()}
        reader = self.spark.readStream.format(source)
        if source == "kafka":
            frame = reader.option("kafka.bootstrap.servers", self.bootstrap).options(**(HASTY | named)).load()
        else:
            frame = reader.options(**dict(options)).load(str(self.data))
        to = self.streams / f"{name}-{source}"
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(to / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(to / "table"))
        assert query.awaitTermination(TIMEOUT_S), f"{source} is not done"

    def table(self, to: Path) -> DataFrame:
        """Return what a stream wrote."""
        return self.spark.read.parquet(str(to / "table"))

    def wait_for_directory(self, topic: str, partitions: int) -> None:
        """Waits until the broker has made the directories of a topic, which it does after it has said so."""
        deadline = time.monotonic() + TIMEOUT_S
        while not all((self.data / f"{topic}-{number}").is_dir() for number in range(partitions)):
            assert time.monotonic() < deadline, f"{topic} has no directories"
            time.sleep(0.05)


def rows_of(frame: DataFrame) -> list[Any]:
    """All rows, in order of topic, partition and offset."""
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def same(beside: BesideKafka, **options: object) -> list[Any]:
    """The rows that both sources give with these options, the schema the same and every row."""
    theirs, ours = beside.theirs(options), beside.ours(options)
    assert ours.schema == theirs.schema
    expected, found = rows_of(theirs), rows_of(ours)
    for one, other in zip(found, expected, strict=False):
        assert one == other
    assert len(found) == len(expected)
    return found


def refusal(work: Callable[[], object]) -> str | None:
    """Return the error of Spark, or of either source in it; None if the work succeeds."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        work()
    except (PySparkException, Py4JError) as error:
        return str(error)
    return None
