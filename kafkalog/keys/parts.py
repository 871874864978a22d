"""The parts of a log that keys are looked up in: an index for each closed segment that has one, a map for the end.

A part answers with offsets that may hold a key; the caller compares the key of the record.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkalog._core.keys.key_finder import KeyFinder
from kafkalog._core.keys.key_index import IS_DAMAGED, KeyIndex
from kafkalog._core.keys.key_map import KeyMap
from kafkalog._core.keys.key_reader import KeyReader, ReaderPlace, ReadPart
from kafkalog.errors import CorruptIndex, IllegalArgument, LogClosed, StorageError
from kafkalog.keys.build import open_index, take_keys
from kafkalog.keys.log_end import LogEnd, reported
from kafkalog.keys.part import Part
from kafkalog.reading.chunks import batch_chunks
from kafkalog.reading.source import truncation_count
from kafkalog.sidecars.identity import FileStamp, new_secret, stamp_of, status_of
from kafkalog.storage.fast_lookup import record_at_offset
from kafkalog.storage.readonly.view import LogView
from kafkalog.util.fileio import OS

if TYPE_CHECKING:
    from kafkalog._core.batch.record import Record
    from kafkalog.keys.place import KeyIndexPlace
    from kafkalog.reading.chunks import Chunk
    from kafkalog.reading.source import LogSource
    from kafkalog.storage.damage import Skipped
    from kafkalog.storage.segments import LogSegments
    from kafkalog.util.fileio import FileSystem

_LOG: Final = logging.getLogger(__name__)
PAGES_BYTES: Final = 256 << 20
"""Memory for the pages of all indexes of a log; beyond it they are given back and read again when needed."""
CALLS_BETWEEN_CHECKS: Final = 255
"""A mask: the memory of the pages is counted once in so many calls, which read at most as many pages a segment."""
NOT_FOUND: Final = -1


class Parts:
    """The parts of one log, lowest offset first, as of the last `current`; they follow the log.

    `place` is where the indexes of closed segments lie. `tell` is called with the offset of each chunk that is read for
    keys. The keys of the log's end are in a map of up to `map_bytes`; what lies behind it, a separate part, is
    searched. Threads: under `lock`.
    """

    def __init__(
        self,
        source: LogSource,
        place: KeyIndexPlace,
        tell: Callable[[int], object] | None = None,
        *,
        map_bytes: int | None = None,
    ) -> None:
        self.place = place
        self._tell = tell
        self.lock = threading.Lock()
        self._source = source
        self._segments: object = None
        self._closed: dict[int, tuple[FileStamp, int, Part]] = {}  # replaced whole: readers go through it unlocked
        self._closed_truncations = -1
        self._tried: dict[int, FileStamp | None] = {}
        self._secret = new_secret()
        self._end = LogEnd(source, tell, map_bytes)
        self._parts: list[Part] = []
        self._end_parts: list[Part] | None = None  # of the log's end among the parts
        self._calls = 0
        self.place_of_reader: Final = ReaderPlace((IllegalArgument, LogClosed, OSError))
        """Has the reader of single keys, which answers while the log is as at the last `trust`; None in mode "r"."""

    def forget(self) -> None:
        """Look for the indexes again: some were built or dropped."""
        self._segments = self._end_parts = None
        self._closed, self._parts = {}, []
        self._drop_reader()

    def current(self, skipped: list[Skipped] | None = None) -> list[Part]:
        """Return the parts of the log as it is; with `skipped` damage at the log's end is recorded there.

        Raises CorruptRecord and InvalidRecord for damage at the log's end, StorageError.
        """
        segments = self._source.segments
        if segments is not self._segments:
            self._follow_segments(segments)
            self._segments = segments
        end = self._end
        if end.is_behind(skipped):
            self._distrust_reader()
            end.follow(segments, skipped)
        if end.parts is not self._end_parts:
            self._drop_reader()
            self._parts = [*(part for _, _, part in self._closed.values()), *end.parts]
            self._end_parts = end.parts
        if skipped is not None:
            skipped.extend([piece for piece in end.gaps if piece not in skipped])  # it was logged when it was read
        self._calls += 1
        if not self._calls & CALLS_BETWEEN_CHECKS:
            self._limit_memory()
        return self._parts

    def indexed(self) -> list[Part]:
        """Return the parts of the closed segments with an index, lowest offset first; the log's end is not read.

        A segment whose file was changed since its index was opened is not among them.
        """
        segments = self._source.segments
        if segments is not self._segments:
            self._follow_segments(segments)
            self._segments = segments
        self._limit_memory()
        held = self._closed.values()
        return [part for stamp, _, part in held if part.index is not None and self._stamp(part.segment) == stamp]

    def trust(self, state: object) -> None:
        """Let the reader answer while the log has this state, in which the parts are right and its end is sound."""
        source = self._source
        if isinstance(source, LogView) or source.state is not state:
            return
        reader = self.place_of_reader.reader
        if reader is None:
            parts = [_read_part(one, source.fs) for one in self._parts]
            reader = KeyReader(source.fields, parts, self._record_at_end, self._limit_memory)
            self.place_of_reader.reader = reader
        reader.start_offset = source.log_start_offset
        reader.state = state

    def _record_at_end(self, offset: int) -> Record | None:
        parts = self._parts  # no lock is held: another thread may just have forgotten them
        return record_at_offset(parts[-1].segment, offset, self._source) if parts else None

    def _distrust_reader(self) -> None:
        """Let the reader answer nothing: the map is about to change, or the parts."""
        if self.place_of_reader.reader is not None:
            self.place_of_reader.reader.state = None

    def _drop_reader(self) -> None:
        """Make another reader when the parts are right again; threads that are still in this one get no answer."""
        self._distrust_reader()
        self.place_of_reader.reader = None

    def _follow_segments(self, segments: LogSegments[Any]) -> None:
        """Open the indexes of the closed segments that are new or were changed."""
        self._drop_reader()
        truncations = truncation_count(self._source)
        known, closed = self._closed, dict[int, tuple[FileStamp, int, Part]]()
        if truncations != self._closed_truncations:
            known = {}  # a segment may have been written again within one tick of its file's times
        for segment, following in zip(segments[:-1], segments[1:], strict=True):
            base, bound = segment.base_offset, following.base_offset
            stamp = self._stamp(segment)
            held = known.get(base)
            if held is None or held[:2] != (stamp, segment.size) or held[2].bound != bound or self._is_new(held[2]):
                part = self._opened(segment, bound)
            else:
                part = held[2]
                part.segment = segment
            closed[base] = stamp, segment.size, part
        self._closed, self._closed_truncations = closed, truncations
        self._end.move(segments[-1])

    def _is_new(self, part: Part) -> bool:
        """Return True for a part without an index if there is one now that was not tried: another process built it."""
        return part.index is None and self._index_stamp(part.base_offset) != self._tried.get(part.base_offset)

    def _index_stamp(self, base_offset: int) -> FileStamp | None:
        try:
            return stamp_of(self.place.fs.stat(self.place.path_of(base_offset)))
        except OSError:
            return None

    def _stamp(self, segment: Any) -> FileStamp:
        try:
            return stamp_of(self._source.fs.stat(segment.path))
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not isinstance(self._source, LogView):
                return stamp_of(status_of(segment))  # a cleaner of this process is just renaming it
            raise StorageError.from_os(error, "get the status of the segment", path=segment.path) from error

    def _opened(self, segment: Any, bound: int) -> Part:
        base = segment.base_offset
        self._tried[base] = self._index_stamp(base)
        try:
            opened = open_index(segment, self.place)
        except CorruptIndex as error:
            _LOG.warning("%s", error)
            opened = None
        if opened is None:
            return Part(segment, base, bound, self._secret, None)
        return Part(segment, base, bound, opened.header.secret, opened.pages)

    def distrust(self) -> None:
        """Read the log's end again: a record there is not the one that the map has."""
        self._drop_reader()
        self._end.begin()

    def _limit_memory(self) -> None:
        indexes = [part.index for _, _, part in self._closed.values() if isinstance(part.index, KeyIndex)]
        if sum(index.held_bytes for index in indexes) > PAGES_BYTES:
            for index in indexes:
                index.release()

    # Searches

    def drop_index(self, part: Part) -> None:
        """Search a part from here on: its index is damaged."""
        part.drop_index()
        self._drop_reader()  # it would read the damaged page again for each key

    def search(
        self, part: Part, hashes: bytes, start: int, stop: int, every: bool, skipped: list[Skipped] | None
    ) -> KeyFinder:
        """Return the offsets in [start, stop) of a part without an index at which keys with these hashes lie.

        Raises as `Log.records` does.
        """
        start, stop = max(start, part.base_offset), min(stop, part.bound)
        finder = KeyFinder(part.secret, hashes, start, max(start, stop), every)
        for chunk in self._chunks(start, stop, skipped):
            take_keys(finder, chunk)
        return finder

    def _chunks(self, start: int, stop: int, skipped: list[Skipped] | None) -> Iterator[Chunk]:
        if start >= stop:
            return iter(())
        return reported(batch_chunks(self._source, start, stop, sequential=True, skipped=skipped), self._tell)

    def find_last(
        self, part: Part, secret_hash: int, below: int, start: int, skipped: list[Skipped] | None
    ) -> int:
        """Return the last offset in [start, below) of a part that may hold a key with this hash; NOT_FOUND."""
        index = part.index
        if index is not None:
            found = index.find_last(secret_hash, below)
            if found != IS_DAMAGED:
                return found if found >= start else NOT_FOUND
            self.drop_index(part)
        hashes = secret_hash.to_bytes(8, "little")
        finder = self.search(part, hashes, start, below, False, skipped)
        return int.from_bytes(finder.last_offsets, "little", signed=True)

    def find_all(
        self, part: Part, secret_hash: int, start: int, stop: int, skipped: list[Skipped] | None
    ) -> list[int]:
        """Return all offsets in [start, stop) of a part that may hold a key with this hash, rising."""
        if part.index is not None:
            found = part.index.find_all(secret_hash, start, min(stop, part.bound))
            if found is not None:
                return found
            self.drop_index(part)
        hashes = secret_hash.to_bytes(8, "little")
        return self.search(part, hashes, start, stop, True, skipped).take_found()

    def find_last_many(
        self, part: Part, hashes: bytes, found: bytearray, below: int, start: int, skipped: list[Skipped] | None
    ) -> None:
        """Write the last offset in a part of each hash to `found` where that has -1."""
        index = part.index
        if isinstance(index, KeyMap):
            index.find_last_many(hashes, below, found)
            return
        if index is not None:
            before = bytes(found)
            if index.find_last_many(hashes, below, found):
                return
            found[:] = before
            self.drop_index(part)
        last = self.search(part, hashes, start, below, False, skipped).last_offsets
        numbers, own = memoryview(found).cast("q"), memoryview(last).cast("q")
        for i, offset in enumerate(own):
            if numbers[i] < 0 <= offset:
                numbers[i] = offset


def _read_part(part: Part, fs: FileSystem) -> ReadPart:
    records = part.segment.records
    return ReadPart(part.secret, part.base_offset, part.index, records.read, records if fs is OS else None)
