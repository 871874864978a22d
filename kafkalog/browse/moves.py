"""Effects of keys on a screenful: other rows, or the frames of another place. Reads and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.browse.batches import Place, find_place
from kafkalog.browse.decoding import record_key
from kafkalog.browse.filtered import FilteredLevel
from kafkalog.browse.levels import BatchLevel, Level, RecordLevel, Row, record_level, segment_level
from kafkalog.browse.tree import FieldLevel
from kafkalog.errors import StorageError
from kafkalog.inspect.segment import Segment
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.directories import PartitionPath
from kafkalog.util.fileio import FileSystem
from kafkalog.util.times import text_ms

if TYPE_CHECKING:
    from kafkalog._core.batch.record import Record
    from kafkalog.keys.lookup import KeyLookup
    from kafkalog.storage.damage import Skipped
    from kafkalog.tools.consume.decoded import Serdes

_ISOLATION: Final = "log_end"


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


def step_rows(level: Level, rows: list[Row], height: int, *, forward: bool) -> Screenful:
    """Return the rows one step past the edge of a screenful of `height` rows."""
    if not forward:
        return Screenful([*level.before(rows[0].anchor, 1), *rows][:height])
    rows = [*rows, *level.after(rows[-1].following, 1)][-height:]
    return Screenful(rows, len(rows) - 1)


def turn_page(level: Level, rows: list[Row], height: int, cursor: int, *, forward: bool) -> Screenful:
    """Return the screenful after `rows` or before them; at the edge of the level the cursor moves to the edge."""
    found = level.after(rows[-1].following, height) if forward else level.before(rows[0].anchor, height)
    if len(found) == height:
        return Screenful(found, cursor)
    if not forward:
        return Screenful([*found, *rows][:height])
    rows = [*rows, *found][-height:]
    return Screenful(rows, len(rows) - 1)


def first_anchor(level: Level) -> Any:
    """Return the anchor of the level's current first row; retention may have moved it."""
    first = level.view.segments.first if isinstance(level, BatchLevel) and level.view is not None else None
    return type(level.start)(first.base_offset, 0) if first is not None else level.start


def last_screenful(level: Level, height: int) -> Screenful:
    """Return the last screenful of the current files."""
    if level.view is not None:
        level.view.refresh()
    rows = level.before(level.end, height)
    return Screenful(rows, max(len(rows) - 1, 0))


def open_level(thing: Any, view: LogView | None, fs: FileSystem, serdes: Serdes | None = None) -> Level:
    """Return the level that a row's `thing` opens into; raise StorageError if it has none."""
    if isinstance(thing, PartitionPath):
        return segment_level(LogView(thing.path, fs=fs))
    if view is None:
        raise StorageError("there is nothing to open")
    if isinstance(thing, Segment):
        return BatchLevel(view, Place(thing.base_offset, 0))
    return record_level(view, thing, serdes) if hasattr(thing, "place") else FieldLevel(view, thing, serdes)


def frames_for_offset(
    view: LogView, offset: int, height: int, serdes: Serdes | None = None, *, opens: bool = False
) -> list[Frame]:
    """Return a frame with the batch of an offset and, if a record has it, one with the record; `opens` opens it too."""
    level = BatchLevel(view, find_place(view, offset))
    frames = [Frame(level, level.start, level.after(level.start, height))]
    row = frames[0].thing
    if row is not None and row.base_offset <= offset <= row.last_offset:
        records = record_level(view, row, serdes)
        number = next((at for at, one in enumerate(records.things) if one.offset >= offset), None)
        if number is not None:
            top = max(0, min(number, len(records.things) - height))
            frames.append(Frame(records, top, records.after(top, height), number - top))
            if opens:
                fields = FieldLevel(view, frames[1].thing, serdes)
                frames.append(Frame(fields, fields.start, fields.after(fields.start, height)))
    return frames


def selected_record(frames: list[Frame]) -> Record | None:
    """Return the record that is open, or under the cursor; None without one."""
    top = frames[-1]
    if isinstance(top.level, FieldLevel):
        return top.level.record
    found: Record | None = top.thing if isinstance(top.level, RecordLevel | FilteredLevel) else None
    return found


def find_same_key(
    lookup: KeyLookup, record: Record, skipped: list[Skipped], *, forward: bool
) -> int | None:
    """Return the offset of the next record with the key of `record`, or of the previous one; None without one.

    Damage on the way is left out and added to `skipped`. Raises StorageError for a record without a key.
    """
    key = record_key(record)
    if key is None:
        raise StorageError("this record has no key")
    if forward:
        found = next(lookup.history(key, _ISOLATION, skipped, start=record.offset + 1), None)
    else:
        found = lookup.get(key, _ISOLATION, skipped, record.offset)
    return None if found is None else found.offset


def parse_offset(text: str, view: LogView) -> int:
    """Parse an offset, a negative one from the end; raise StorageError for other text."""
    view.refresh()
    digits = text.replace(",", "").replace("_", "")
    try:
        offset = int(digits)
    except ValueError:
        raise StorageError(f"{text[:40]!r} is not an offset") from None
    return offset + view.log_end_offset if offset < 0 else offset


def find_offset_at(text: str, view: LogView) -> int:
    """Return the first offset at or after a typed time; raise StorageError without one."""
    view.refresh()
    found = view.offset_for_time(text_ms(text))
    if found is None:
        raise StorageError("there is no record at or after that time")
    return found.offset
