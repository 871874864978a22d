"""TimeRanges: the parts of a log that may hold records of some time, also where the times of its records fall."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import CorruptIndex, KafkalogError, StorageError
from kafkalog.reading.source import truncation_count
from kafkalog.sidecars.identity import NO_STAMP, UNSOUND, FileStamp, settled_stamp, stamp_of, status_of
from kafkalog.storage.lazy_file import LazyFile
from kafkalog.storage.names import SWAP_SUFFIX
from kafkalog.time_ranges.active import ActiveTimes
from kafkalog.time_ranges.segment_times import SegmentTimes, fitting, packed, read_times, unpacked

if TYPE_CHECKING:
    from kafkalog.reading.source import LogSource
    from kafkalog.storage.segments import AnySegment, LogSegments
    from kafkalog.time_ranges.place import TimeRangesPlace

_LOG: Final = logging.getLogger(__name__)
_ANY_OFFSET: Final = 2**63 - 1


class TimeRanges:
    """The smallest and largest times of a log's segments, piece by piece, noted when a query first needs them.

    `place` is the directory of their files; None: they are kept in memory only, 24 bytes for 256 KiB of a segment.
    Without `writes` the files there are used, and what they lack is kept in memory.
    Times are noted of closed segments, and of the last one if nothing has been written to it for two seconds; else they
    are held in memory and followed. Threads: any number; two of them may note the same segment.
    """

    def __init__(self, source: LogSource, place: TimeRangesPlace | None, *, writes: bool = True) -> None:
        self._source = source
        self._place = place
        self._target = place if writes else None
        self.has_unsettled = False
        """True if the last `build` left out a segment whose file was changed a moment ago."""
        self._active = ActiveTimes(source)
        self._held: dict[int, SegmentTimes] = {}
        self._unsound: dict[int, FileStamp] = {}
        self._swept: tuple[int, ...] = ()

    def possible(self, start: int, stop: int, since_ms: int, until_ms: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of [start, stop) that may hold records with times in [since_ms, until_ms), rising.

        Everything before the first record at or after `until_ms` is one of them. Behind it, closed segments whose
        largest time, by the time index, is below `since_ms` are left out unread; the others are looked at when
        the iteration reaches them, so that a reader that stops early causes no more reading. Damage is left in, for the
        reader to meet.
        """
        first = self._first_at(until_ms)
        if first is None or first >= stop:
            yield start, stop
            return
        if start < first:
            yield start, first
        source = self._source
        truncations = truncation_count(source)
        segments: LogSegments[Any] = source.segments
        for number, segment in enumerate(segments):
            is_last = number == len(segments) - 1
            bound = _ANY_OFFSET if is_last else segments[number + 1].base_offset
            low, high = max(start, first, segment.base_offset), min(stop, bound)
            if low >= high or (not is_last and since_ms > 0 and _ends_before(segment, since_ms)):
                continue
            times = self._times_of(segment, bound, is_last)
            known: Iterable[tuple[int, int]] = ((low, high),)
            if times is not None:
                known = times.possible(low, high, since_ms, until_ms)
            elif is_last:
                known = self._active.possible(segment, low, high, since_ms, until_ms)
            for part in known:
                if truncation_count(source) != truncations:  # other records may have these offsets
                    yield max(low, part[0]), stop
                    return
                yield part
            if truncation_count(source) != truncations:
                yield high, stop
                return

    def build(self, *, until: Callable[[], bool] = lambda: False, waits: bool = False) -> int:
        """Note the times of the segments that lack them, and return the number of segments that were read.

        The last segment is among them if its file was not changed a moment ago. No further segment is begun once
        `until` returns True. With `waits` the last one, and closed ones whose files were changed a moment ago, are left
        out: notes of these would have no stamp, and their reader would read the segment for its digest. A damaged
        segment gets none: the others are noted, and then its error is raised. Raises CorruptRecord, InvalidRecord,
        IllegalArgument, StorageError.
        """
        segments: LogSegments[Any] = self._source.segments
        failure: KafkalogError | None = None
        count = 0
        self.has_unsettled = False
        bounds = [*(one.base_offset for one in segments[1:]), _ANY_OFFSET]
        for segment, bound in [*zip(segments, bounds, strict=True)][: -1 if waits else None]:
            if until():
                break
            base = segment.base_offset
            try:
                if (waits or bound == _ANY_OFFSET) and settled_stamp(status_of(segment)) == NO_STAMP:
                    self.has_unsettled = waits
                    continue
                held = self._held.get(base) or self._stored(base)
                fits = None if held is None or held.next_offset > bound else fitting(held, segment)
                if fits is None:
                    fits, count = read_times(segment, bound), count + 1
                self._held[base] = fits
                if fits is not held and self._target is not None:
                    self._write(fits, self._target)
            except UNSOUND as error:
                failure = failure or error
            except StorageError:
                raise
            except OSError as error:
                raise StorageError.from_os(error, "note the times of the segment", path=segment.path) from error
        if failure is not None:
            raise failure
        return count

    def _first_at(self, time_ms: int) -> int | None:
        """Return the offset of the first record at or after a time; None if there is none, or if damage hides it."""
        try:
            found = self._source.offset_for_time(time_ms)
        except KafkalogError:  # damage, or a segment that is being deleted: reading reports it
            return None
        return None if found is None else found.offset

    def _times_of(self, segment: AnySegment, bound: int, is_last: bool) -> SegmentTimes | None:
        """Return the times of a segment, None if they cannot be known."""
        base = segment.base_offset
        try:
            status = status_of(segment)
            if is_last and settled_stamp(status) == NO_STAMP:
                return None
            held = self._held.get(base) or self._stored(base)
            fits = None if held is None or held.next_offset > bound else fitting(held, segment)
            if fits is None:
                if self._unsound.get(base) == stamp_of(status):
                    return None
                self._unsound[base] = stamp_of(status)
                fits = read_times(segment, bound)
                self._unsound.pop(base, None)
        except (KafkalogError, OSError):  # reading meets the damage
            return None
        self._held[base] = fits
        bases = {one.base_offset for one in self._source.segments}
        for gone in [one for one in list(self._held) if one not in bases]:
            self._held.pop(gone, None)
        if fits is not held and self._target is not None and not segment.path.endswith(SWAP_SUFFIX):
            self._store(fits, self._target)
        return fits

    def _stored(self, base_offset: int) -> SegmentTimes | None:
        """Return the times in the file of a segment, None if there is no sound one."""
        if self._place is None:
            return None
        try:
            return unpacked(LazyFile(self._place.path_of(base_offset), self._place.fs, "r"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except CorruptIndex as error:
            _LOG.warning("%s", error)
            return None
        except OSError as error:  # of another user: the segment is read once, not by each query
            _LOG.warning("cannot read the time ranges of a segment of %s: %s", self._source.path, error)
            return None

    def _store(self, times: SegmentTimes, place: TimeRangesPlace) -> None:
        """Write the times of a segment, and remove the files of segments that are gone; a failure is logged."""
        try:
            self._write(times, place)
        except StorageError as error:
            _LOG.warning("cannot keep the time ranges of a segment of %s: %s", self._source.path, error)

    def _write(self, times: SegmentTimes, place: TimeRangesPlace) -> None:
        place.write(times.base_offset, packed(times))
        bases = tuple(segment.base_offset for segment in self._source.segments)
        if bases != self._swept:  # a directory is listed once for many segments
            place.remove_others(bases)
            self._swept = bases


def _ends_before(segment: AnySegment, time_ms: int) -> bool:
    """Return True if the time index shows that all times of a closed segment are below `time_ms`."""
    try:
        return segment.largest_timestamp < time_ms
    except (KafkalogError, OSError):  # reading meets the damage
        return False
