"""The key indexes of a whole log: building, listing and removing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.errors import CorruptIndex, KafkalogError, StorageError
from kafkalog.keys.build import build_segment, open_index
from kafkalog.keys.format import read_header
from kafkalog.sidecars.identity import NO_STAMP, UNSOUND, FileStamp, new_secret, stamp_of, status_of
from kafkalog.storage.lazy_file import LazyFile
from kafkalog.storage.names import SWAP_SUFFIX
from kafkalog.storage.readonly.view import LogView

if TYPE_CHECKING:
    from kafkalog.keys.place import KeyIndexPlace
    from kafkalog.reading.source import LogSource
    from kafkalog.storage.segments import LogSegments

Known = dict[int, tuple[FileStamp, FileStamp]]
"""Stamps of the files of closed segments, and of their indexes, by base offset."""


class KeyIndexInfo(NamedTuple):
    """A closed segment and its key index.

    `state` is "ok", "missing", "stale" (made of another segment, or of what this one was before) or "damaged";
    `records` counts those with a key, `size` is in bytes, both 0 without an index that fits.
    """

    base_offset: int
    state: str
    records: int
    size: int
    path: str


def list_indexes(source: LogSource, place: KeyIndexPlace) -> tuple[KeyIndexInfo, ...]:
    """Return the closed segments of a log, lowest offset first, with the state of each one's index."""
    return tuple(_info(segment, place) for segment in source.segments[:-1])


def _info(segment: Any, place: KeyIndexPlace) -> KeyIndexInfo:
    base, path = segment.base_offset, place.path_of(segment.base_offset)
    try:
        opened = open_index(segment, place)
    except CorruptIndex as error:
        state = "stale" if "not that of its segment" in str(error) else "damaged"
        return KeyIndexInfo(base, state, 0, 0, path)
    if opened is None:
        return KeyIndexInfo(base, "missing", 0, 0, path)
    if not opened.pages.is_sound():
        return KeyIndexInfo(base, "damaged", 0, 0, path)
    return KeyIndexInfo(base, "ok", opened.header.records, opened.header.file_bytes, path)


def build_indexes(
    source: LogSource,
    place: KeyIndexPlace,
    *,
    rebuild: bool = False,
    until: Callable[[], bool] = lambda: False,
    known: Known | None = None,
) -> tuple[KeyIndexInfo, ...]:
    """Build the missing, stale and damaged indexes of the closed segments, all of them with `rebuild`; return these.

    No further segment is begun once `until` returns True. Indexes of segments that are gone are removed. A segment that
    is damaged gets none: the others are built, and then its error is raised. With `known`, which an earlier call has
    filled, segments whose files and indexes are as they were then are passed over: they are not read again. Raises
    CorruptRecord, InvalidRecord, StorageError.
    """
    segments: LogSegments[Any] = source.segments
    place.remove_others(segment.base_offset for segment in segments[:-1])
    secret = common_secret(place)
    failure: KafkalogError | None = None
    infos: list[KeyIndexInfo] = []
    for segment, following in zip(segments[:-1], segments[1:], strict=True):
        if until():
            break
        if known is not None and known.get(segment.base_offset) == _stamps(segment, place):
            continue
        if segment.path.endswith(SWAP_SUFFIX) and not isinstance(source, LogView):
            source.truncation_count_when_idle()  # a cleaner holds the log's lock until it has renamed the file
        try:
            infos.append(build_index(segment, following.base_offset, place, secret, rebuild=rebuild))
        except UNSOUND as error:
            failure = failure or error
        if known is not None:
            known[segment.base_offset] = _stamps(segment, place)
    if failure is not None:
        raise failure
    return tuple(infos)


def _stamps(segment: Any, place: KeyIndexPlace) -> tuple[FileStamp, FileStamp]:
    """Return the stamps of a segment and of its index, NO_STAMP without one."""
    try:
        index = stamp_of(place.fs.stat(place.path_of(segment.base_offset)))
    except OSError:
        index = NO_STAMP
    return stamp_of(status_of(segment)), index


def build_index(
    segment: Any, bound: int, place: KeyIndexPlace, secret: bytes, *, rebuild: bool = False
) -> KeyIndexInfo:
    """Build the index of one closed segment, whose offsets are below `bound`, unless there is one that fits.

    Raises as `build_segment`, StorageError for a segment that is being replaced.
    """
    info = _info(segment, place)
    if info.state == "ok" and not rebuild:
        return info
    if segment.path.endswith(SWAP_SUFFIX):
        raise StorageError("the segment is being replaced by its owner", path=segment.path, hint="try again")
    header = build_segment(segment, bound, place, secret)
    base = segment.base_offset
    return KeyIndexInfo(base, "ok", header.records, header.file_bytes, place.path_of(base))


def common_secret(place: KeyIndexPlace) -> bytes:
    """Return the secret of an index there is, so that a key is hashed once for all segments; else another one."""
    for base in place.base_offsets():
        try:
            return read_header(LazyFile(place.path_of(base), place.fs, "r"))[0].secret
        except (CorruptIndex, OSError):
            continue
    return new_secret()
