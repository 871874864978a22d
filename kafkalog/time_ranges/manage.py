"""The files of time ranges of a whole log: listing, removing and rebuilding them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import CorruptIndex, CorruptRecord, InvalidRecord, StorageError
from kafkalog.reading.source import retried_if_replaced
from kafkalog.storage.lazy_file import LazyFile
from kafkalog.time_ranges.ranges import TimeRanges
from kafkalog.time_ranges.segment_times import fitting, unpacked

if TYPE_CHECKING:
    from kafkalog.reading.source import LogSource
    from kafkalog.storage.segments import AnySegment
    from kafkalog.time_ranges.place import TimeRangesPlace


class TimeRangesInfo(NamedTuple):
    """A segment and the file of its time ranges.

    `state` is "ok", "missing", "stale" (made of another segment, or of what this one was before) or "damaged"; `size`
    is in bytes, and `pieces` counts the parts whose times are known, both 0 without a file that fits.
    """

    base_offset: int
    state: str
    pieces: int
    size: int
    path: str


def list_ranges(source: LogSource, place: TimeRangesPlace) -> tuple[TimeRangesInfo, ...]:
    """Return the closed segments of a log, and the last one if it has a file, with the state of each one's file."""
    *closed, last = retried_if_replaced(source, lambda: [_info(segment, place) for segment in source.segments])
    return (*closed, last) if last.state != "missing" else tuple(closed)


def build_ranges(source: LogSource, place: TimeRangesPlace, *, rebuild: bool = False) -> tuple[TimeRangesInfo, ...]:
    """Build the missing, stale and damaged files, all of them with `rebuild`; return the state of all.

    Raises as `TimeRanges.build`.
    """
    if rebuild:
        place.remove_others()
    retried_if_replaced(source, TimeRanges(source, place).build)
    return list_ranges(source, place)


def _info(segment: AnySegment, place: TimeRangesPlace) -> TimeRangesInfo:
    base, path = segment.base_offset, place.path_of(segment.base_offset)
    file = LazyFile(path, place.fs, "r")
    try:
        found = unpacked(file)
        size = file.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return TimeRangesInfo(base, "missing", 0, 0, path)
    except CorruptIndex:
        return TimeRangesInfo(base, "damaged", 0, 0, path)
    except OSError as error:
        raise StorageError.from_os(error, "read the time ranges", path=path) from error
    try:
        fits = fitting(found, segment)
    except (CorruptRecord, InvalidRecord):  # in the segment
        fits = None
    if fits is None:
        return TimeRangesInfo(base, "stale", 0, 0, path)
    return TimeRangesInfo(base, "ok", fits.piece_count, size, path)
