"""Levels of the browser: long lists of partitions, segments, batches or records, read a screenful at a time.

An anchor is a place in a level: a number in most, a place in a file for batches. This module does not depend on a
terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog._core.batch.scan import scan
from kafkalog.browse import batches
from kafkalog.browse.batches import BatchRow, Place
from kafkalog.browse.decoding import DecodedRecords, serdes_for, value_bytes
from kafkalog.errors import KafkalogError
from kafkalog.inspect.rows import Column
from kafkalog.inspect.segment import SEGMENT_COLUMNS, Segment
from kafkalog.records.tables import batch_table
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.directories import PartitionPath
from kafkalog.util.text import human_size, plural

if TYPE_CHECKING:
    from kafkalog._core.batch.decode import RecordTable
    from kafkalog.tools.consume.decoded import Serdes

_MAX_BATCH_BYTES: Final = 64 << 20
"""Largest batch that is opened, on disk and decompressed."""


class Row(NamedTuple):
    """An item in a level, with its anchor and the anchor after it."""

    anchor: int | Place
    following: int | Place
    thing: object


class Level:
    """A level: its `title` for the top line, its columns, and its rows, a few at a time."""

    columns: Sequence[Column]
    title: str
    view: LogView | None
    start: Any
    note = ""

    def after(self, anchor: Any, count: int) -> list[Row]:
        """Return up to `count` rows from `anchor` on."""
        raise NotImplementedError

    def before(self, anchor: Any, count: int) -> list[Row]:
        """Return up to `count` rows that end at `anchor`."""
        raise NotImplementedError

    @property
    def end(self) -> int | Place:
        """Anchor after the last row."""
        raise NotImplementedError


class ListLevel(Level):
    """A level of items that are in memory, or that a table in memory creates one by one."""

    def __init__(
        self, things: Sequence[Any] | RecordTable, columns: Sequence[Column], title: str, *,
        view: LogView | None = None, note: str = "",
    ) -> None:  # fmt: skip
        self.things = things
        self.columns = columns
        self.title = title
        self.view = view
        self.start = 0
        self.note = note

    def after(self, anchor: Any, count: int) -> list[Row]:
        """Return the items from number `anchor` on."""
        stop = min(anchor + count, len(self.things))
        return [Row(at, at + 1, self.things[at]) for at in range(max(anchor, 0), stop)]

    def before(self, anchor: Any, count: int) -> list[Row]:
        """Return the items before number `anchor`."""
        first = max(anchor - count, 0)
        return self.after(first, anchor - first)

    @property
    def end(self) -> int:
        """Number of items."""
        return len(self.things)


BATCH_COLUMNS: Final = (
    Column("offset", lambda one: one.base_offset if one.is_batch else None, "number"),
    Column("last", lambda one: one.last_offset if one.is_batch else None, "number"),
    Column("records", lambda one: one.records, "number"),
    Column("size", lambda one: one.size, "size"),
    Column("what", lambda one: one.kind, "text"),
    Column("time", lambda one: one.timestamp, "time"),
    Column("codec", lambda one: one.codec, "text"),
    Column("producer", lambda one: one.producer_id if one.producer_id >= 0 else None, "number"),
    Column("position", lambda one: one.place.position, "number"),
    Column("segment", lambda one: one.place.segment, "number"),
)


class BatchLevel(Level):
    """Level of the batches of a log, from the one at `start` on."""

    columns = BATCH_COLUMNS
    title = "batches"

    def __init__(self, view: LogView, start: Place) -> None:
        self.view: LogView = view
        self.start = start

    def after(self, anchor: Any, count: int) -> list[Row]:
        """Return the batches from a place on."""
        return [Row(row.place, row.next_place, row) for row in batches.after(self.view, anchor, count)]

    def before(self, anchor: Any, count: int) -> list[Row]:
        """Return the batches before a place."""
        return [Row(row.place, row.next_place, row) for row in batches.before(self.view, anchor, count)]

    @property
    def end(self) -> Place:
        """Current end of the log."""
        last = self.view.active_segment
        return Place(last.base_offset, last.size)


PARTITION_COLUMNS: Final = (
    Column("topic", lambda one: one.topic_partition.topic, "name"),
    Column("partition", lambda one: one.topic_partition.partition, "number"),
    Column("directory", lambda one: one.path, "name"),
)


def partition_level(found: Sequence[PartitionPath]) -> ListLevel:
    """Return the level of partitions, listed by name without opening any."""
    ordered = sorted(found)
    return ListLevel(ordered, PARTITION_COLUMNS, "partitions", note=plural(len(ordered), "partition"))


def segment_level(view: LogView) -> ListLevel:
    """Return the level of a log's segments, from its directory listing."""
    found = tuple(view.segments)
    ends = [one.base_offset for one in found[1:]] + [view.log_end_offset]
    segments = [Segment(one, end) for one, end in zip(found, ends, strict=True)]
    note = f"offsets [{view.log_start_offset:,}, {view.log_end_offset:,}), {human_size(view.size)}"
    problems = view.problems
    if problems:
        note += f"; {plural(len(problems), 'problem')}: {problems[0].message}"
    return ListLevel(segments, SEGMENT_COLUMNS, str(view.topic_partition), view=view, note=note)


def record_columns(decoded: DecodedRecords) -> tuple[Column, ...]:
    """Return the columns of records."""
    return (
        Column("offset", lambda one: one.offset, "number"),
        Column("key", decoded.key, "key"),
        Column("value", decoded.value, "key"),
        Column("size", value_bytes, "size"),
        Column("time", lambda one: one.timestamp, "time"),
        Column("headers", lambda one: len(one.headers), "number"),
    )


class RecordLevel(ListLevel):
    """Level of the records of a batch; `serdes` decodes keys and values, but those of Kafka's own topics."""

    def __init__(
        self, records: RecordTable | tuple[()], title: str, view: LogView, note: str, serdes: Serdes | None = None
    ) -> None:
        self._decoded = DecodedRecords(serdes_for(view, serdes))
        super().__init__(records, record_columns(self._decoded), title, view=view, note=note)

    def after(self, anchor: Any, count: int) -> list[Row]:
        """Return the records from number `anchor` on, decoded."""
        rows = super().after(anchor, count)
        for row in rows:
            self._decoded.parts(row.thing)  # type: ignore[arg-type]  # a record
        return rows


def record_level(view: LogView, row: BatchRow, serdes: Serdes | None = None) -> ListLevel:
    """Return the level of a batch's records; the checksum is compared, and `note` reports damage."""
    title = f"batch {row.base_offset}"
    segment = view.segments.get(row.place.segment)
    if segment is None or not row.is_batch:
        note = "its segment was deleted" if segment is None else "these bytes are not a batch"
        return RecordLevel((), title, view, note)
    if row.size > _MAX_BATCH_BYTES:
        note = f"a batch of {human_size(row.size)} is too large to open here (limit {human_size(_MAX_BATCH_BYTES)})"
        return RecordLevel((), title, view, note)
    try:
        data = segment.records.read(row.place.position, row.size)
        table = scan(data, file_mode=True, max_batches=1)
        if not len(table):
            return RecordLevel((), title, view, "there is no longer a complete batch here")
        note = "" if table[0].is_valid else "the checksum does not match: the content may be wrong"
        records = batch_table(
            data, table, 0, path=segment.path, lenient=True, ordered=False, limit_bytes=_MAX_BATCH_BYTES
        )
    except KafkalogError as error:
        return RecordLevel((), title, view, f"damaged: {error.message}")
    return RecordLevel(records, title, view, note, serdes)
