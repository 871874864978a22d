"""The entries of an index file of any owner: its two kinds, and look-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from kafkalog._core.bytes.buffers import Column
from kafkalog._core.log.index import Entries, OffsetEntries, TimeEntries
from kafkalog._core.log.values import OffsetPosition, TimestampOffset
from kafkalog.errors import IllegalArgument

if TYPE_CHECKING:
    from typing_extensions import Buffer

P = TypeVar("P", OffsetPosition, TimestampOffset)


class SegmentIndex(Generic[P]):
    """The sorted entries of an index file; a subclass supplies the bytes.

    `lookup(target)` returns the last entry at or below `target`, or the kind's default entry; `lookup_many(targets)`
    does so for an array, as two columns. Both are methods of the compiled entries (`_core/log/index.pyx`): a call costs
    no Python frame. Threads: look-ups at any time, from any thread.
    """

    __slots__ = ("_entries", "base_offset", "lookup", "lookup_many")

    entry_size: ClassVar[int]
    kind: ClassVar[str]
    entries_type: ClassVar[Any]
    path: str
    lookup: Callable[[int], P]
    lookup_many: Callable[[Buffer | Iterable[int]], tuple[Column, Column]]

    def __init__(self, base_offset: int) -> None:
        """Begin without entries."""
        self.base_offset = base_offset
        self._entries: Entries[P] = self.entries_type(b"", base_offset, 0)
        self.lookup = self._entries.lookup
        self.lookup_many = self._entries.lookup_many

    @property
    def entries(self) -> int:
        """Number of entries."""
        return self._entries.count

    def entry(self, n: int) -> P:
        """Return entry n, from 0; IllegalArgument past the last, IndexError below 0 (IDX-5)."""
        count = self._entries.count
        if n >= count:
            message = f"Attempt to fetch the {n}th entry from the {self.kind}, which has {count}"
            raise IllegalArgument(message, path=self.path)
        if n < 0:
            raise IndexError(f"entry {n} of {self.path}: entries count from 0")
        return self._entries.entry(n)


class OffsetKind(SegmentIndex[OffsetPosition]):
    """Kind of an `.index`: pairs (last offset of a batch, position of the batch's first byte in the `.log`).

    8 bytes each: i32 offset - base offset, i32 position, big-endian (format.md section 7). `lookup` returns (base
    offset, 0) below the first entry (IDX-1, IDX-2).
    """

    __slots__ = ()

    entry_size: ClassVar[int] = 8
    kind: ClassVar[str] = "offset index"
    entries_type: ClassVar[type[OffsetEntries]] = OffsetEntries
    _entries: OffsetEntries

    def window(self, offset: int) -> tuple[int, int]:
        """Return (position, bytes) to read for the batch with this offset; 0 bytes if no later entry bounds it."""
        found: tuple[int, int] = self._entries.window(offset)
        return found

    def fetch_upper_bound_offset(self, fetched: OffsetPosition, size: int) -> OffsetPosition | None:
        """Return the first entry whose position is at least `size` bytes after that of `fetched`, or None (IDX-7).

        Its offset bounds the offsets in a read of `size` bytes from `fetched`.
        """
        found: OffsetPosition | None = self._entries.upper_bound(fetched.position + size)
        return found


class TimeKind(SegmentIndex[TimestampOffset]):
    """Kind of a `.timeindex`: pairs (largest timestamp so far, last offset of the batch that holds it).

    12 bytes each: i64 timestamp in ms, i32 offset - base offset, big-endian (format.md section 7). `lookup` returns
    (-1, base offset) below the first entry (TIDX-1).
    """

    __slots__ = ()

    entry_size: ClassVar[int] = 12
    kind: ClassVar[str] = "time index"
    entries_type: ClassVar[type[TimeEntries]] = TimeEntries
