"""A segment as `log.segments` returns it: offsets, sizes and index entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar, overload

from kafkalog.inspect.rows import Column, Rows
from kafkalog.types import OffsetPosition, TimestampOffset
from kafkalog.util.text import human_size

if TYPE_CHECKING:
    from kafkalog.storage.index.segment_index import SegmentIndex
    from kafkalog.storage.readonly.segment import ViewSegment
    from kafkalog.storage.segment import LogSegment

E = TypeVar("E", OffsetPosition, TimestampOffset)

_ENTRY_COLUMNS: Final = {
    "offset index": (
        Column("offset", lambda entry: entry.offset, "number"),
        Column("position", lambda entry: entry.position, "number"),
    ),
    "time index": (
        Column("timestamp", lambda entry: entry.timestamp, "time"),
        Column("offset", lambda entry: entry.offset, "number"),
    ),
}
SEGMENT_COLUMNS: Final = (
    Column("base offset", lambda one: one.base_offset, "number"),
    Column("end offset", lambda one: one.end_offset, "number"),
    Column("offsets", lambda one: one.end_offset - one.base_offset, "number"),
    Column("size", lambda one: one.size, "size"),
    Column("file", lambda one: one.path.rpartition("/")[2], "name"),
)
"""Columns of `log.segments`, from memory."""


class IndexEntries(Sequence[E], Generic[E]):
    """The entries of one index as a sequence; each access reads the current index. A slice is a table."""

    __slots__ = ("_index", "_kind")

    def __init__(self, index: Callable[[], SegmentIndex[E]], kind: str) -> None:
        self._index: Callable[[], SegmentIndex[E]] = index
        self._kind = kind

    def __len__(self) -> int:
        entries: int = self._index().entries
        return entries

    @overload
    def __getitem__(self, number: int) -> E: ...
    @overload
    def __getitem__(self, number: slice) -> Rows[E]: ...
    def __getitem__(self, number: int | slice) -> E | Rows[E]:
        index = self._index()
        if isinstance(number, slice):
            found = (index.entry(n) for n in range(*number.indices(index.entries)))
            return Rows(found, _ENTRY_COLUMNS[self._kind])
        entries = index.entries
        at = number + entries if number < 0 else number
        if not 0 <= at < entries:
            raise IndexError(f"entry {number} is out of range: the {self._kind} has {entries}")
        entry: E = index.entry(at)
        return entry

    def __iter__(self) -> Iterator[E]:
        return iter(self[:])

    def __repr__(self) -> str:
        return f"<{self._kind} entries>"


class Segment:
    """One segment of a log: `base_offset`, `size` (bytes of batches), `path`, and its two indexes.

    `end_offset` is the start of the next segment, or the log's end at the time of the call. `index` has (offset,
    position) entries, `time_index` (timestamp, offset) entries.

    >>> log.roll()
    2
    >>> segment = log.segments[0]
    >>> segment.base_offset, segment.end_offset, segment.size, segment.path[-24:]
    (0, 2, 92, '00000000000000000000.log')
    >>> len(segment.index), segment.time_index[0].offset
    (0, 1)
    """

    __slots__ = ("_segment", "base_offset", "end_offset")

    def __init__(self, segment: LogSegment | ViewSegment, end_offset: int) -> None:
        self._segment = segment
        self.base_offset: int = segment.base_offset
        self.end_offset = end_offset

    @property
    def path(self) -> str:
        """Path of the data file."""
        path: str = self._segment.path
        return path

    @property
    def size(self) -> int:
        """Bytes of complete batches."""
        size: int = self._segment.size
        return size

    @property
    def index(self) -> IndexEntries[OffsetPosition]:
        """Entries of the offset index: the last offset of a batch, and the position of that batch."""
        return IndexEntries(lambda: self._segment.offset_index, "offset index")

    @property
    def time_index(self) -> IndexEntries[TimestampOffset]:
        """Entries of the time index: the largest timestamp (ms) so far, and an offset of its batch."""
        return IndexEntries(lambda: self._segment.time_index, "time index")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Segment):
            return NotImplemented
        return self._segment is other._segment

    def __hash__(self) -> int:
        return id(self._segment)

    def __repr__(self) -> str:
        return f"<Segment {self.base_offset} {human_size(self.size)} {self.path.rpartition('/')[2]}>"
