"""Placer: turns rows of Arrow data into v2 batches of their partitions; all writers of Arrow data use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog._core.arrow.encoder import ArrowEncoder, Parcel
from kafkalog._core.arrow.input import ArrowSource, BadArrow
from kafkalog._core.arrow.rows import RowPlan, next_rows
from kafkalog._core.batch.scan import scan
from kafkalog.config.topic import LogConfig
from kafkalog.errors import (
    IllegalArgument,
    InvalidRecord,
    InvalidTimestamp,
    KafkalogError,
    RecordTooLarge,
    UnknownTopicOrPartition,
)
from kafkalog.records.format import BATCH_OVERHEAD_BYTES
from kafkalog.records.packing import PLAIN, Compression, choose, most_plain_bytes, pack
from kafkalog.records.validate import ValidationRules, check_batches
from kafkalog.util.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from typing_extensions import Buffer

BATCH_BYTES: Final = 1 << 20
"""Size in bytes that closes a batch, unless max.message.bytes is lower; a single record may exceed it."""
WAITING_BYTES: Final = 4 << 20
"""Most bytes of finished batches held before they are returned: few enough to stay in the processor's cache."""
STICKY_BYTES: Final = 16384
"""Bytes after which rows without a key move to the next partition: batch.size of Kafka's producer."""
_MOST_ROWS: Final = 2**31 - 1
_ERRORS: Final[dict[str, type[KafkalogError]]] = {
    "partition": UnknownTopicOrPartition,
    "timestamp": InvalidTimestamp,
    "headers": InvalidRecord,
    "size": RecordTooLarge,
}


class TopicTarget(NamedTuple):
    """Destination of a topic's rows: its number of partitions, its settings, and the compression of its batches."""

    partitions: int
    config: LogConfig
    compression: Compression = PLAIN

    @classmethod
    def of(cls, config: LogConfig, partitions: int, requested: Compression | None = None) -> TopicTarget:
        """Return the target for a topic's settings; `requested` is the compression for a topic that requires none."""
        return cls(partitions, config, choose(config, requested))

    @property
    def limit_bytes(self) -> int:
        """Largest batch in bytes that the topic accepts."""
        return min(self.config.max_message_bytes, self.config.segment_size)

    @property
    def plain_bytes(self) -> int:
        """Largest uncompressed batch in bytes that is certain to stay within that limit when compressed."""
        return most_plain_bytes(self.compression, self.limit_bytes)


@dataclass(frozen=True, slots=True)
class Placed:
    """Finished batches of one partition, in a writable buffer with producer fields -1.

    Base offsets count from the first row that this partition was given. They start at `first_record`; the next `Placed`
    of the partition continues where this one ends.
    """

    topic: str
    partition: int
    batches: Buffer
    records: int
    first_record: int
    batch_count: int
    max_timestamp: int


class Placer:
    """Encoder of Arrow data: `add` takes rows and yields finished batches; `finish` yields the rest.

    `topics(name)` is called once for each topic in the rows, and its errors propagate. With `topic` all rows go to that
    topic, and a column `topic` is ignored. `columns` maps the parts of a record to column names that differ from value,
    key, topic, partition, headers and timestamp; None omits a part. Rows without a timestamp, or with one of exactly -1
    ms, get `now_ms()`, which is called once for each `add`. A row without a partition goes to murmur2(key) mod
    partitions. Rows without a key stay on a partition for `sticky_bytes` and then move to the next one. They begin at
    `first_partition`: tasks pass different ones, so that small tasks spread over the partitions too.

    Raises IllegalArgument for a missing column, a wrong type, a null topic, and inconsistent data;
    UnknownTopicOrPartition for a partition that the topic does not have; InvalidTimestamp; InvalidRecord for a null
    header; RecordTooLarge. Each error names column and row, counted from the first row added. After an error nothing
    more can be added. One thread at a time may use it; the work runs without the GIL.
    """

    def __init__(
        self,
        topics: Callable[[str], TopicTarget],
        *,
        topic: str | None = None,
        columns: Mapping[str, str | None] | None = None,
        batch_bytes: int = BATCH_BYTES,
        batch_rows: int = _MOST_ROWS,
        sticky_bytes: int = STICKY_BYTES,
        first_partition: int = 0,
        waiting_bytes: int = WAITING_BYTES,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        if batch_bytes < BATCH_OVERHEAD_BYTES:
            raise IllegalArgument(f"a batch limit of {batch_bytes} bytes", hint=f"use at least {BATCH_OVERHEAD_BYTES}")
        self._topics = topics
        self._targets: dict[str, TopicTarget] = {}
        self._topic = topic
        self._names = dict(columns or {})
        if topic is not None:
            self._names["topic"] = None
        self._batch_bytes = batch_bytes
        self._timed = False
        self._failed = False
        self._now_ms = now_ms or SYSTEM_CLOCK.milliseconds
        try:
            self._encoder = ArrowEncoder(
                self._limits, topic=topic, batch_rows=batch_rows, sticky_bytes=sticky_bytes,
                first_partition=first_partition, waiting_bytes=waiting_bytes,
            )  # fmt: skip
        except ValueError as error:
            raise IllegalArgument(str(error)) from None

    @property
    def records(self) -> int:
        """Number of rows added so far."""
        return self._encoder.records

    def _limits(self, topic: str) -> tuple[int, int, int]:
        """Return partitions and size limits of a topic; the encoder calls this for each new topic."""
        target = self._topics(topic)
        self._targets[topic] = target
        limit = target.limit_bytes
        batch_bytes = max(min(self._batch_bytes, target.plain_bytes), BATCH_OVERHEAD_BYTES)
        return target.partitions, batch_bytes, 0 if target.compression else max(limit, 1)

    def add(self, data: object) -> Iterator[Placed]:
        """Add all rows of `data`, a table, record batch, reader or data frame; yield the batches finished meanwhile.

        The caller must exhaust the iterator: rows are added as it advances. Raises TypeError if `data` is not Arrow
        data.
        """
        self._check_usable()
        now_ms = self._now_ms()
        try:
            source = ArrowSource(data)
            plan = RowPlan(source, self._names)
            self._timed = self._timed or "timestamp" in plan.columns
            if self._topic is None and "topic" not in plan.columns:
                raise IllegalArgument(
                    "the rows have no column 'topic'", hint="give one topic for all rows, or add the column"
                )
            while (rows := next_rows(source, plan)) is not None:
                row = 0
                while (row := self._encoder.feed(rows, row, now_ms)) < len(rows):
                    yield from map(self._finish_batches, self._encoder.take())
        except BadArrow as error:
            raise arrow_error(error) from None

    def finish(self) -> Iterator[Placed]:
        """Close all batches and yield the remaining ones."""
        self._check_usable()
        self._encoder.seal()
        yield from map(self._finish_batches, self._encoder.take())

    def _check_usable(self) -> None:
        if self._failed:
            raise RuntimeError("an earlier error lost batches of this placer: its data is incomplete")

    def _finish_batches(self, parcel: Parcel) -> Placed:
        try:
            batches = self._pack(parcel)
        except BaseException as error:
            self._failed = True
            if isinstance(error, KafkalogError):
                error.path = error.path or f"{parcel.topic}-{parcel.partition}"
            raise
        return Placed(
            parcel.topic, parcel.partition, batches, parcel.records, parcel.first_record, parcel.batches,
            parcel.max_timestamp,
        )  # fmt: skip

    def _pack(self, parcel: Parcel) -> Buffer:
        """Return the batches as the topic requires.

        Raises InvalidRecord, InvalidTimestamp or RecordTooLarge for batches that the topic rejects.
        """
        target = self._targets[parcel.topic]
        if target.config.compact or self._timed:
            rules = ValidationRules.of(target.config)
            check_batches(parcel, scan(parcel, check_crc=False), rules, self._now_ms())
        if not target.compression:
            return parcel
        batches = pack(parcel, target.compression, limit_bytes=target.limit_bytes)
        if parcel.largest > target.plain_bytes:
            _check_sizes(batches, parcel, target.limit_bytes)
        return batches


def _check_sizes(batches: Buffer, parcel: Parcel, limit_bytes: int) -> None:
    """Raise RecordTooLarge if a batch exceeds the limit although it is compressed."""
    largest = scan(batches, check_crc=False).max_batch_size
    if largest > limit_bytes:
        raise RecordTooLarge(
            f"a row for {parcel.topic}-{parcel.partition} makes a batch of {largest} bytes when compressed; "
            f"the topic accepts at most {limit_bytes}",
            hint="raise max.message.bytes of the topic, or make the value smaller",
        )


def arrow_error(error: BadArrow) -> KafkalogError:
    """Return the KafkalogError for rows or columns that the encoder rejects."""
    return _ERRORS.get(error.kind, IllegalArgument)(str(error), hint=error.hint)
