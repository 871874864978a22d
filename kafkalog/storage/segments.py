"""The segments of a log as an immutable sorted map from base offset to segment."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Generic, Protocol, SupportsIndex, TypeVar, overload

from kafkalog.errors import IllegalArgument

if TYPE_CHECKING:
    from kafkalog.storage.file_records import FileRecords
    from kafkalog.storage.index.segment_index import OffsetKind, TimeKind
    from kafkalog.types import OffsetAndTimestamp


class Segment(Protocol):
    """Properties of a segment that the map uses."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def last_known_offset(self) -> int: ...
    @property
    def largest_timestamp(self) -> int: ...


class AnySegment(Segment, Protocol):
    """A segment whose batches are read; LogSegment and ViewSegment implement it."""

    @property
    def path(self) -> str: ...
    @property
    def records(self) -> FileRecords: ...
    @property
    def offset_index(self) -> OffsetKind: ...
    @property
    def time_index(self) -> TimeKind: ...
    def translate_offset(self, offset: int, /) -> tuple[int, int, int] | None: ...
    def find_offset_by_timestamp(
        self, timestamp: int, start_offset: int, bound: int | None = None
    ) -> OffsetAndTimestamp | None: ...


S = TypeVar("S", bound=Segment)
S_co = TypeVar("S_co", bound=Segment, covariant=True)


class LogSegments(Generic[S_co]):
    """Segments ordered by base offset; every change returns a new map, so that a reader's map stays the same.

    Known last offsets must lie below the next base and not below their own base: AssertionError otherwise. Threads:
    immutable.
    """

    __slots__ = ("_segments", "_times", "base_offsets")

    def __init__(self, segments: Iterable[S_co] = ()) -> None:
        by_base = {segment.base_offset: segment for segment in segments}
        self.base_offsets = tuple(sorted(by_base))
        """Base offsets, rising."""
        self._segments = tuple(by_base[base] for base in self.base_offsets)
        self._times: tuple[int, ...] | None = None
        for at in range(len(self._segments)):
            self._check(at)

    def _check(self, at: int) -> None:
        segment = self._segments[at]
        last = segment.last_known_offset
        if last < 0:
            return
        assert last >= self.base_offsets[at], f"segment {self.base_offsets[at]} ends at {last}, below its base"
        if at + 1 < len(self.base_offsets):
            base, following = self.base_offsets[at : at + 2]
            assert last < following, f"segment {base} ends at {last}, in the next segment"

    @classmethod
    def _of(cls: type[LogSegments[S]], bases: tuple[int, ...], segments: tuple[S, ...]) -> LogSegments[S]:
        new = cls.__new__(cls)
        new.base_offsets = bases
        new._segments = segments
        new._times = None
        return new

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[S_co]:
        return iter(self._segments)

    @overload
    def __getitem__(self, at: SupportsIndex) -> S_co: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[S_co, ...]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> S_co | tuple[S_co, ...]:
        return self._segments[at]

    def __contains__(self, base_offset: object) -> bool:
        return base_offset in self.base_offsets

    def __repr__(self) -> str:
        return f"<LogSegments {list(self.base_offsets)}>"

    def get(self, base_offset: int) -> S_co | None:
        """Return the segment that begins at exactly this offset."""
        at = bisect_left(self.base_offsets, base_offset)
        return self._segments[at] if at < len(self.base_offsets) and self.base_offsets[at] == base_offset else None

    @property
    def first(self) -> S_co | None:
        """The segment with the lowest base."""
        return self._segments[0] if self._segments else None

    @property
    def last(self) -> S_co | None:
        """The segment with the highest base."""
        return self._segments[-1] if self._segments else None

    @property
    def active(self) -> S_co:
        """The last segment, which receives appends; IndexError if there is none."""
        return self._segments[-1]

    def floor(self, offset: int) -> S_co | None:
        """Return the segment with the greatest base at or below `offset`."""
        at = bisect_right(self.base_offsets, offset)
        return self._segments[at - 1] if at else None

    def lower(self, offset: int) -> S_co | None:
        """Return the segment with the greatest base strictly below `offset`."""
        at = bisect_left(self.base_offsets, offset)
        return self._segments[at - 1] if at else None

    def higher(self, offset: int) -> S_co | None:
        """Return the segment with the lowest base strictly above `offset`."""
        at = bisect_right(self.base_offsets, offset)
        return self._segments[at] if at < len(self._segments) else None

    def higher_segments(self, offset: int) -> tuple[S_co, ...]:
        """Return all segments whose base is above `offset`."""
        return self._segments[bisect_right(self.base_offsets, offset) :]

    def values(self, start: int, stop: int) -> tuple[S_co, ...]:
        """Return the segments that may hold offsets of [start, stop): from the one that contains `start` on.

        Equal bounds return nothing; `stop` below `start` raises IllegalArgument.
        """
        if stop < start:
            raise IllegalArgument(f"the range [{start}, {stop}) ends before it begins", offset=start)
        if start == stop:
            return ()
        at = max(bisect_right(self.base_offsets, start) - 1, 0)
        return self._segments[at : bisect_left(self.base_offsets, stop)]

    def non_active_from(self, offset: int) -> tuple[S_co, ...]:
        """Return the segments from the one that contains `offset` on, without the active one; none above its base."""
        if not self._segments or offset > self.base_offsets[-1]:
            return ()
        at = max(bisect_right(self.base_offsets, offset) - 1, 0)
        return self._segments[at:-1]

    def from_time(self, timestamp: int) -> tuple[S_co, ...]:
        """Return the segments from the first one whose largest time is at or after `timestamp` ms.

        The largest times of all segments except the active one are determined once and cached.
        """
        times = self._times
        if times is None:
            rising = accumulate((segment.largest_timestamp for segment in self._segments[:-1]), max)
            self._times = times = tuple(rising)
        at = bisect_left(times, timestamp)
        if at == len(times) and (not self._segments or self._segments[-1].largest_timestamp < timestamp):
            return ()
        return self._segments[at:]

    @property
    def size_in_bytes(self) -> int:
        """Bytes of record data in all segments, without indexes."""
        return sum(segment.size for segment in self._segments)

    def with_added(self: LogSegments[S], segment: S) -> LogSegments[S]:
        """Return this map with one more segment, which replaces one with the same base (SEGS-6)."""
        base = segment.base_offset
        at = bisect_left(self.base_offsets, base)
        bases, segments = self.base_offsets, self._segments
        after = at + 1 if at < len(bases) and bases[at] == base else at
        new = self._of((*bases[:at], base, *bases[after:]), (*segments[:at], segment, *segments[after:]))
        new._check(at)
        if at:
            new._check(at - 1)
        return new

    def without(self, base_offsets: Iterable[int]) -> LogSegments[S_co]:
        """Return this map without the segments with these bases; unknown bases are ignored."""
        dropped = frozenset(base_offsets)
        kept = tuple(segment for segment in self._segments if segment.base_offset not in dropped)
        return self._of(tuple(segment.base_offset for segment in kept), kept)


AnySegments = LogSegments[AnySegment]
