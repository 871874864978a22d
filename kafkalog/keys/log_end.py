"""The end of a log, its active segment, by key: a map in memory that follows appends and truncations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkalog._core.keys.key_map import KeyMap
from kafkalog.keys.build import take_keys
from kafkalog.keys.part import LAST_OFFSET, Part
from kafkalog.reading.chunks import batch_chunks
from kafkalog.reading.source import truncation_count, was_truncated
from kafkalog.sidecars.identity import new_secret
from kafkalog.sidecars.view_end import ViewEnd
from kafkalog.storage.readonly.view import LogView

if TYPE_CHECKING:
    from kafkalog.reading.chunks import Chunk
    from kafkalog.reading.source import LogSource
    from kafkalog.storage.damage import Skipped
    from kafkalog.storage.segments import LogSegments

MAP_BYTES: Final = 256 << 20
"""Default memory for the keys of a log's end."""
_RECORD_BYTES: Final = 28
"""Memory of a record in a map that is full."""
_LAST_BYTES: Final = 61
"""Bytes of the last batch that was read, which are compared later: a v2 header."""


def most_records(map_bytes: int) -> int:
    """Return the number of records whose map takes at most `map_bytes`: a power of two, or 0.

    >>> most_records(256 << 20), most_records(1 << 10)
    (8388608, 0)
    """
    return 0 if map_bytes < 64 * _RECORD_BYTES else 1 << (map_bytes // _RECORD_BYTES).bit_length() - 1


def reported(chunks: Iterator[Chunk], tell: Callable[[int], object] | None) -> Iterator[Chunk]:
    """Yield the chunks; call `tell` with the first offset of each before it."""
    for chunk in chunks:
        if tell is not None:
            tell(chunk.batches.base_offset(chunk.first))
        yield chunk


class LogEnd:
    """The keys of the active segment in a map of up to `map_bytes`; what lies behind a full map is searched.

    `tell` is called with the offset of each chunk that is read for keys. Threads: under the lock of the `Parts`.
    """

    def __init__(
        self,
        source: LogSource,
        tell: Callable[[int], object] | None = None,
        map_bytes: int | None = None,
    ) -> None:
        self._source = source
        self._tell = tell
        self._most_records = most_records(MAP_BYTES if map_bytes is None else map_bytes)
        self._secret = new_secret()
        self._view_end = ViewEnd(source) if isinstance(source, LogView) else None
        self._active: Any = None
        self._truncations = -1
        self._base_offset = -1
        self.begin()

    def begin(self, base_offset: int | None = None) -> None:
        """Begin with an empty map, of the segment with this base offset; by default the map's own, to read it again."""
        if base_offset is not None:
            self._base_offset = base_offset
        self._map = KeyMap(self._secret, self._base_offset)
        self._map_start = self._base_offset  # offsets from here on are in the map
        self._covered = self._base_offset  # up to here
        self._is_full = False
        self._last_batch: tuple[int, bytes] | None = None
        if self._view_end is not None:
            self._view_end.forget()
        self._read_end = -1
        self._view_state: object = None
        self.gaps: list[Skipped] = []
        """Damage that the map leaves out."""
        self._set_parts()

    def move(self, active: Any) -> None:
        """Take `active` for the active segment: a new map, unless it is the one with the keys of the map."""
        self._active = active
        if active.base_offset != self._base_offset:
            self.begin(active.base_offset)
        else:
            self._set_parts()

    def _set_parts(self) -> None:
        """Replace the parts: what is in the map, and what lies behind it once that is full."""
        active, bound = self._active, self._covered if self._is_full else LAST_OFFSET
        mapped = Part(active, self._base_offset, bound, self._secret, self._map)
        behind = [Part(active, bound, LAST_OFFSET, self._secret, None)] if self._is_full else []
        self.parts: list[Part] = [mapped, *behind]
        """The parts of the log's end; another list after each change but an append to the map."""

    def is_behind(self, skipped: list[Skipped] | None) -> bool:
        """Return True if the log was changed since the last `follow`, or damage that it passed over is to be raised."""
        source = self._source
        if self.gaps and skipped is None:
            return True
        if isinstance(source, LogView):
            return source.state is not self._view_state
        return source.log_end_offset != self._read_end or source.truncation_count != self._truncations

    def follow(self, segments: LogSegments[Any], skipped: list[Skipped] | None) -> None:
        """Put the keys of the batches that were appended into the map; begin again where they do not continue it.

        With `skipped` damage becomes one of the `gaps`. Raises CorruptRecord, InvalidRecord, StorageError.
        """
        source = self._source
        state = source.state if isinstance(source, LogView) else None
        end = source.log_end_offset
        truncations = truncation_count(source)
        is_lower = source.log_start_offset < self._map_start > self._base_offset
        is_same = self._is_same_log(segments)  # always asked: it keeps what it saw of the file
        if truncations != self._truncations or is_lower or self.gaps or not is_same:
            self._truncations = truncations
            self.begin()
        if end != self._read_end:  # in mode "r" something else of the log may have changed
            self._read(end, None if skipped is None else self.gaps)
            if was_truncated(source, truncations):
                self._truncations = self._read_end = -1
            else:
                self._read_end = end
        self._view_state = state if self._read_end >= 0 else None

    def _read(self, end: int, skipped: list[Skipped] | None) -> None:
        """Read the batches behind those of the map, up to the offset `end` or until the map is full."""
        start = max(self._covered, self._source.log_start_offset)
        if start > self._covered:
            self._map_start = start
        if start >= end or self._is_full:
            return
        try:
            for chunk in reported(batch_chunks(self._source, start, end, skipped=skipped), self._tell):
                fitting = _with_records(chunk, self._most_records - self._map.records)
                if fitting.last > fitting.first:
                    take_keys(self._map, fitting)
                    self._note_last(fitting)
                if fitting is not chunk:
                    self._is_full = True
                    self._set_parts()
                    break
        except BaseException:
            self.begin()  # the map may hold some of the keys of a chunk
            raise

    def _note_last(self, chunk: Chunk) -> None:
        row = chunk.last - 1
        position = chunk.batches.position(row)
        at = position - chunk.position
        self._covered = chunk.next_offset
        self._last_batch = position, bytes(chunk.data[at : at + _LAST_BYTES])
        if self._view_end is not None:
            self._view_end.note(chunk)

    def _is_same_log(self, segments: LogSegments[Any]) -> bool:
        """Return False if another process cut the active segment: what the map was made of is gone."""
        is_same = self._view_end is None or self._view_end.is_same()
        if self._last_batch is None or not is_same:
            return is_same
        position, header = self._last_batch
        data = segments[-1].records
        return position + len(header) <= data.size and bytes(data.read(position, len(header))) == header


def _with_records(chunk: Chunk, most: int) -> Chunk:
    """Return the chunk, or as many of its first batches as have at most so many records; an unknown count is one."""
    batches = chunk.batches
    if batches.record_count <= most:
        return chunk
    for row in range(chunk.first, chunk.last):
        most -= max(1, batches[row].count)
        if most < 0:
            return chunk._replace(last=row)
    return chunk
