"""The levels of the browser, each a long list of which a screenful is read: partitions, segments, batches, records.

An anchor says where in a level something is: a number in most, a place in a file for batches. Nothing here knows of a
terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kafkalog._core.decode import DamagedField
from kafkalog._core.scan import scan
from kafkalog.browse import batches
from kafkalog.browse.batches import BatchRow, Place
from kafkalog.errors import KafkalogError
from kafkalog.inspect.rows import Column
from kafkalog.inspect.values import moment, plural
from kafkalog.records.tables import batch_table
from kafkalog.segment_face import SEGMENT_COLUMNS, Segment
from kafkalog.shown import human_size
from kafkalog.storage.view import LogView
from kafkalog.tools.control_text import control_value
from kafkalog.tools.directories import PartitionPath

__all__ = ["BatchLevel", "Level", "ListLevel", "fields_of", "partition_level", "record_level", "segment_level"]

_MOST_BATCH_BYTES: Final = 64 << 20
"""A larger batch is not opened, and none that decompresses to more."""
_LINE_BYTES: Final = 48
_MOST_VALUE_BYTES: Final = 64 << 10


class Row(NamedTuple):
    """Something in a level, and the anchors where it and what follows it are."""

    anchor: Any
    following: Any
    thing: Any


class Level:
    """A level: its `title` for the line on top, its columns, and its rows a few at a time."""

    columns: Sequence[Column]
    title: str
    view: LogView | None
    start: Any
    note: str

    def after(self, anchor: Any, count: int) -> list[Row]:
        """Up to `count` rows from `anchor` on."""
        raise NotImplementedError

    def before(self, anchor: Any, count: int) -> list[Row]:
        """Up to `count` rows that end where `anchor` is."""
        raise NotImplementedError

    @property
    def end(self) -> Any:
        """The anchor behind the last row."""
        raise NotImplementedError


class ListLevel(Level):
    """Things that are in memory, or come one by one from a table that is."""

    def __init__(
        self, things: Sequence[Any], columns: Sequence[Column], title: str, *, view: LogView | None = None,
        note: str = "",
    ) -> None:  # fmt: skip
        self.things = things
        self.columns = columns
        self.title = title
        self.view = view
        self.start = 0
        self.note = note

    def after(self, anchor: Any, count: int) -> list[Row]:
        """The things from number `anchor` on."""
        stop = min(anchor + count, len(self.things))
        return [Row(at, at + 1, self.things[at]) for at in range(max(anchor, 0), stop)]

    def before(self, anchor: Any, count: int) -> list[Row]:
        """The things up to number `anchor`."""
        first = max(anchor - count, 0)
        return self.after(first, anchor - first)

    @property
    def end(self) -> int:
        """How many there are."""
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
    """The batches of a log, from the one at `start` on."""

    def __init__(self, view: LogView, start: Place) -> None:
        self.view: LogView = view
        self.columns = BATCH_COLUMNS
        self.title = "batches"
        self.start = start
        self.note = ""

    def after(self, anchor: Any, count: int) -> list[Row]:
        """The batches from a place on."""
        return [Row(row.place, row.next_place, row) for row in batches.after(self.view, anchor, count)]

    def before(self, anchor: Any, count: int) -> list[Row]:
        """The batches in front of a place."""
        return [Row(row.place, row.next_place, row) for row in batches.before(self.view, anchor, count)]

    @property
    def end(self) -> Place:
        """The log's end as it is now."""
        last = self.view.active_segment
        return Place(last.base_offset, last.size)


PARTITION_COLUMNS: Final = (
    Column("topic", lambda one: one.topic_partition.topic, "name"),
    Column("partition", lambda one: one.topic_partition.partition, "number"),
    Column("directory", lambda one: one.path, "name"),
)


def partition_level(found: Sequence[PartitionPath]) -> ListLevel:
    """The partitions of data directories, by their names alone: none is opened."""
    ordered = sorted(found)
    return ListLevel(ordered, PARTITION_COLUMNS, "partitions", note=plural(len(ordered), "partition"))


def segment_level(view: LogView) -> ListLevel:
    """The segments of a log, by what its directory says of them."""
    found = tuple(view.segments)
    ends = [one.base_offset for one in found[1:]] + [view.log_end_offset]
    made = [Segment(one, end) for one, end in zip(found, ends, strict=True)]
    note = f"offsets [{view.log_start_offset:,}, {view.log_end_offset:,}), {human_size(view.size)}"
    problems = view.problems
    if problems:
        note += f"; {plural(len(problems), 'problem')}: {problems[0].message}"
    return ListLevel(made, SEGMENT_COLUMNS, str(view.topic_partition), view=view, note=note)


class _Records(Sequence[Any]):
    """The records of a decoded batch; each is made when it is looked at."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, at: Any) -> Any:
        return self._table[at]


def _field(record: Any, name: str) -> Any:
    """A key or a value, or what is wrong with it: of a message of an old format it may run over the end."""
    try:
        return getattr(record, name)
    except DamagedField as error:
        return f"damaged: {error}"


def _size(record: Any) -> int | None:
    value = _field(record, "value_view")
    return None if value is None or isinstance(value, str) else len(value)


RECORD_COLUMNS: Final = (
    Column("offset", lambda one: one.offset, "number"),
    Column("key", lambda one: _field(one, "key"), "key"),
    Column("value", lambda one: _said(one), "key"),
    Column("size", _size, "size"),
    Column("time", lambda one: one.timestamp, "time"),
    Column("headers", lambda one: len(one.headers), "number"),
)


def _said(record: Any) -> bytes | str | None:
    """A value, or what a control record says."""
    if record.is_control:
        try:
            return str(control_value(record.key, record.value))
        except KafkalogError as error:
            return f"damaged: {error.message}"
    value: bytes | str | None = _field(record, "value")
    return value


def record_level(view: LogView, row: BatchRow) -> ListLevel:
    """The records of a batch, whose checksum is looked at now. Damage is told in `note`, with what could be decoded."""
    title = f"batch {row.base_offset}"
    segment = view.segments.get(row.place.segment)
    if segment is None or not row.is_batch:
        what = "its segment is gone" if segment is None else "these bytes are no batch"
        return ListLevel((), RECORD_COLUMNS, title, view=view, note=what)
    if row.size > _MOST_BATCH_BYTES:
        note = f"a batch of {human_size(row.size)} is not opened here, at most {human_size(_MOST_BATCH_BYTES)}"
        return ListLevel((), RECORD_COLUMNS, title, view=view, note=note)
    try:
        data = segment.records.read(row.place.position, row.size)
        table = scan(data, file_mode=True, max_batches=1)
        if not len(table):
            return ListLevel((), RECORD_COLUMNS, title, view=view, note="no whole batch is there any more")
        note = "" if table[0].is_valid else "the checksum does not match: what is shown may be wrong"
        records = batch_table(data, table, 0, path=segment.path, lenient=True, limit_bytes=_MOST_BATCH_BYTES)
    except KafkalogError as error:
        return ListLevel((), RECORD_COLUMNS, title, view=view, note=f"damaged: {error.message}")
    return ListLevel(_Records(records), RECORD_COLUMNS, title, view=view, note=note)


FIELD_COLUMNS: Final = (
    Column("field", lambda one: one[0], "count"),
    Column("what", lambda one: one[1], "key"),
)


def fields_of(view: LogView | None, record: Any) -> ListLevel:
    """All of one record, a line at a time; of a long value as much as 64 KiB."""
    found: list[tuple[str, Any]] = [("offset", f"{record.offset:,}"), ("time", moment(record.timestamp))]
    found += _lines("key", _field(record, "key"))
    for name, value in record.headers:
        found += _lines(f"header {name}", value)
    found += [("control", _said(record))] if record.is_control else _lines("value", _field(record, "value"))
    return ListLevel(found, FIELD_COLUMNS, f"record {record.offset}", view=view)


def _lines(name: str, data: bytes | str | None) -> list[tuple[str, Any]]:
    """A key or a value in pieces of a line each, cut between characters where it is UTF-8."""
    if not data or isinstance(data, str):
        return [(name, data)]
    found: list[tuple[str, Any]] = []
    at, end = 0, min(len(data), _MOST_VALUE_BYTES)
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
        found.append(("", f"... {len(data) - end:,} bytes more"))
    return found
