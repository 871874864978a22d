"""Levels of the browser: long lists of partitions, segments, batches or records, read a screenful at a time.

An anchor is a place in a level: a number in most, a place in a file for batches. This module does not depend on a
terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog._core.batch.decode import DamagedField
from kafkalog._core.batch.scan import scan
from kafkalog.browse import batches
from kafkalog.browse.batches import BatchRow, Place
from kafkalog.errors import KafkalogError
from kafkalog.inspect.rows import Column
from kafkalog.inspect.segment import SEGMENT_COLUMNS, Segment
from kafkalog.inspect.values import moment, plural
from kafkalog.records.tables import batch_table
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.decoders.plain import as_text
from kafkalog.tools.directories import PartitionPath
from kafkalog.tools.dump.control_text import control_value
from kafkalog.tools.dump.record_readers import RecordReader, internal_reader
from kafkalog.util.text import human_size

if TYPE_CHECKING:
    from kafkalog._core.batch.decode import RecordTable
    from kafkalog._core.batch.record import Record

__all__ = ["BatchLevel", "Level", "ListLevel", "field_level", "partition_level", "record_level", "segment_level"]

_MAX_BATCH_BYTES: Final = 64 << 20
"""Largest batch that is opened, on disk and decompressed."""
_LINE_BYTES: Final = 48
_MAX_VALUE_BYTES: Final = 64 << 10


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


def _safe_field(record: object, name: str) -> Any:
    """Return a key or a value, or its damage: in a message of an old format it may run past the end."""
    try:
        return getattr(record, name)
    except DamagedField as error:
        return f"damaged: {error}"


def _size(record: object) -> int | None:
    value = _safe_field(record, "value_view")
    return None if value is None or isinstance(value, str) else len(value)


RECORD_COLUMNS: Final = (
    Column("offset", lambda one: one.offset, "number"),
    Column("key", lambda one: _safe_field(one, "key"), "key"),
    Column("value", lambda one: _value_or_control(one), "key"),
    Column("size", _size, "size"),
    Column("time", lambda one: one.timestamp, "time"),
    Column("headers", lambda one: len(one.headers), "number"),
)


def record_columns(view: LogView) -> tuple[Column, ...]:
    """Return the columns of records; those of Kafka's own topics are decoded."""
    reader = internal_reader(view.topic_partition.topic)
    if reader is None:
        return RECORD_COLUMNS
    key = Column("key", lambda one: _decoded(reader, one)[0], "key")
    value = Column("value", lambda one: _value_or_control(one) if one.is_control else _decoded(reader, one)[1], "key")
    return (RECORD_COLUMNS[0], key, value, *RECORD_COLUMNS[3:])


def _decoded(reader: RecordReader, record: Record) -> tuple[str | None, str | None]:
    """Return key and value of a record of one of Kafka's own topics as text, or the damage."""
    try:
        key, value = reader(record.key, record.value, record.offset)
    except (DamagedField, KafkalogError) as error:
        return None, f"damaged: {error}"
    return None if key is None else as_text(key), None if value is None else as_text(value)


def _value_or_control(record: Record) -> bytes | str | None:
    """Return a value, or the content of a control record."""
    if record.is_control:
        try:
            return str(control_value(record.key, record.value))
        except KafkalogError as error:
            return f"damaged: {error.message}"
    value: bytes | str | None = _safe_field(record, "value")
    return value


def record_level(view: LogView, row: BatchRow) -> ListLevel:
    """Return the level of a batch's records; the checksum is compared, and `note` reports damage."""
    title = f"batch {row.base_offset}"
    segment = view.segments.get(row.place.segment)
    if segment is None or not row.is_batch:
        note = "its segment was deleted" if segment is None else "these bytes are not a batch"
        return ListLevel((), RECORD_COLUMNS, title, view=view, note=note)
    if row.size > _MAX_BATCH_BYTES:
        note = f"a batch of {human_size(row.size)} is too large to open here (limit {human_size(_MAX_BATCH_BYTES)})"
        return ListLevel((), RECORD_COLUMNS, title, view=view, note=note)
    try:
        data = segment.records.read(row.place.position, row.size)
        table = scan(data, file_mode=True, max_batches=1)
        if not len(table):
            return ListLevel((), RECORD_COLUMNS, title, view=view, note="there is no longer a complete batch here")
        note = "" if table[0].is_valid else "the checksum does not match: the content may be wrong"
        records = batch_table(data, table, 0, path=segment.path, lenient=True, limit_bytes=_MAX_BATCH_BYTES)
    except KafkalogError as error:
        return ListLevel((), RECORD_COLUMNS, title, view=view, note=f"damaged: {error.message}")
    return ListLevel(records, record_columns(view), title, view=view, note=note)


FIELD_COLUMNS: Final = (
    Column("field", lambda one: one[0], "count"),
    Column("what", lambda one: one[1], "key"),
)


def field_level(view: LogView | None, record: Record) -> ListLevel:
    """Return the level with all of one record, a line at a time; values are cut at 64 KiB."""
    found: list[tuple[str, bytes | str | None]] = [("offset", f"{record.offset:,}"), ("time", moment(record.timestamp))]
    reader = None if view is None or record.is_control else internal_reader(view.topic_partition.topic)
    key: bytes | str | None
    key, text = (_safe_field(record, "key"), None) if reader is None else _decoded(reader, record)
    found += _split_value("key", key)
    for name, value in record.headers:
        found += _split_value(f"header {name}", value)
    if reader is not None:
        found += [("value", text)]
    elif record.is_control:
        found += [("control", _value_or_control(record))]
    else:
        found += _split_value("value", _safe_field(record, "value"))
    return ListLevel(found, FIELD_COLUMNS, f"record {record.offset}", view=view)


def _split_value(name: str, data: bytes | str | None) -> list[tuple[str, bytes | str | None]]:
    """Split a key or a value into lines, between characters if it is UTF-8."""
    if not data or isinstance(data, str):
        return [(name, data)]
    found: list[tuple[str, bytes | str | None]] = []
    at, end = 0, min(len(data), _MAX_VALUE_BYTES)
    while at < end:
        stop = min(at + _LINE_BYTES, end)
        newline = data.find(b"\n", at, stop)
        if newline >= 0:
            stop = newline + 1
        while stop < end and stop > at + _LINE_BYTES - 4 and data[stop] & 0xC0 == 0x80:
            stop -= 1
        found.append((name if not at else "", data[at:stop]))
        at = stop
    if end < len(data):
        found.append(("", f"... {len(data) - end:,} more bytes"))
    return found
