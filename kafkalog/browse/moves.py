"""Effects of keys on a screenful: other rows, or the frames of another place. Reads and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafkalog.browse.batches import Place, place_of
from kafkalog.browse.levels import BatchLevel, Level, Row, fields_of, record_level, segment_level
from kafkalog.errors import StorageError
from kafkalog.inspect.segment import Segment
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.directories import PartitionPath
from kafkalog.util.fileio import FileSystem
from kafkalog.util.times import text_ms

__all__ = [
    "Frame", "Screenful", "first_of", "frames_at", "last_of", "level_in", "offset_at", "offset_of", "stepped", "turned",
]  # fmt: skip


@dataclass
class Frame:
    """A level, its rows on the screen, and the row under the cursor."""

    level: Level
    anchor: int | Place
    rows: list[Row] = field(default_factory=list)
    cursor: int = 0

    @property
    def thing(self) -> Any:
        """Item under the cursor; None without rows."""
        return self.rows[self.cursor].thing if self.cursor < len(self.rows) else None


class Screenful(NamedTuple):
    """Rows, and the number of the one under the cursor."""

    rows: list[Row]
    cursor: int = 0


def stepped(level: Level, rows: list[Row], room: int, *, forward: bool) -> Screenful:
    """Return the rows one step past the edge of a screenful of `room` rows."""
    if not forward:
        return Screenful([*level.before(rows[0].anchor, 1), *rows][:room])
    rows = [*rows, *level.after(rows[-1].following, 1)][-room:]
    return Screenful(rows, len(rows) - 1)


def turned(level: Level, rows: list[Row], room: int, cursor: int, *, forward: bool) -> Screenful:
    """Return the screenful after `rows` or before them; at the edge of the level the cursor moves to the edge."""
    found = level.after(rows[-1].following, room) if forward else level.before(rows[0].anchor, room)
    if len(found) == room:
        return Screenful(found, cursor)
    if not forward:
        return Screenful([*found, *rows][:room])
    rows = [*rows, *found][-room:]
    return Screenful(rows, len(rows) - 1)


def first_of(level: Level) -> Any:
    """Return the anchor of the level's current first row; retention may have moved it."""
    first = level.view.segments.first if isinstance(level, BatchLevel) and level.view is not None else None
    return type(level.start)(first.base_offset, 0) if first is not None else level.start


def last_of(level: Level, room: int) -> Screenful:
    """Return the last screenful of the current files."""
    if level.view is not None:
        level.view.refresh()
    rows = level.before(level.end, room)
    return Screenful(rows, max(len(rows) - 1, 0))


def level_in(thing: Any, view: LogView | None, fs: FileSystem) -> Level:
    """Return the level that a row's `thing` opens into; raise StorageError if it has none."""
    if isinstance(thing, PartitionPath):
        return segment_level(LogView(thing.path, fs=fs))
    if view is None:
        raise StorageError("nothing is in it")
    if isinstance(thing, Segment):
        return BatchLevel(view, Place(thing.base_offset, 0))
    return record_level(view, thing) if hasattr(thing, "place") else fields_of(view, thing)


def frames_at(view: LogView, offset: int, room: int) -> list[Frame]:
    """Return a frame with the batch of an offset and, if a record has it, one with the record."""
    level = BatchLevel(view, place_of(view, offset))
    frames = [Frame(level, level.start, level.after(level.start, room))]
    row = frames[0].thing
    if row is not None and row.base_offset <= offset <= row.last_offset:
        records = record_level(view, row)
        number = next((at for at, one in enumerate(records.things) if one.offset >= offset), None)
        if number is not None:
            top = max(0, min(number, len(records.things) - room))
            frames.append(Frame(records, top, records.after(top, room), number - top))
    return frames


def offset_of(text: str, view: LogView) -> int:
    """Parse an offset, a negative one from the end; raise StorageError for other text."""
    view.refresh()
    digits = text.replace(",", "").replace("_", "")
    try:
        offset = int(digits)
    except ValueError:
        raise StorageError(f"{text[:40]!r} is no offset") from None
    return offset + view.log_end_offset if offset < 0 else offset


def offset_at(text: str, view: LogView) -> int:
    """Return the first offset at or after a typed time; raise StorageError without one."""
    view.refresh()
    found = view.offset_for_time(text_ms(text))
    if found is None:
        raise StorageError("no record is at or after that time")
    return found.offset
