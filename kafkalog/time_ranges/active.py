"""The times of the segment that is being written: noted in memory, and followed as it grows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import KafkalogError
from kafkalog.reading.chunks import batch_chunks
from kafkalog.reading.source import truncation_count, was_truncated
from kafkalog.sidecars.view_end import ViewEnd
from kafkalog.storage.readonly.view import LogView
from kafkalog.time_ranges.segment_times import least_and_largest

if TYPE_CHECKING:
    from kafkalog.reading.source import LogSource
    from kafkalog.storage.segments import AnySegment

PIECE_BYTES: Final = 256 << 10
"""Bytes of batches up to which what was appended becomes part of the last piece."""


class _Piece(NamedTuple):
    """Batches of `size` bytes up to the offset `end`, with times from `least` to `largest`."""

    end: int
    least: int
    largest: int
    size: int


class ActiveTimes:
    """The times of the batches of a log's active segment, piece by piece, each of 256 KiB or so; they are read once.

    They begin where a query first asks for them; one that asks for earlier ones has all of the segment noted. What is
    noted of it counts as long as the log was not truncated; in mode "r", where another process may do so, as
    long as the batches that were read are still there. Threads: safe.
    """

    def __init__(self, source: LogSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._view_end = ViewEnd(source) if isinstance(source, LogView) else None
        self._begin(-1, -1)

    def _begin(self, base_offset: int, first: int) -> None:
        """Forget all; note the times of the segment with this base offset from the offset `first` on."""
        self._base_offset = base_offset
        self._first = self._covered = first
        self._pieces: list[_Piece] = []
        self._truncations = truncation_count(self._source)
        if self._view_end is not None:
            self._view_end.forget()

    def possible(
        self, segment: AnySegment, start: int, stop: int, since_ms: int, until_ms: int
    ) -> list[tuple[int, int]]:
        """Return the parts of [start, stop) that may hold a time in [since_ms, until_ms), rising.

        What cannot be read, for damage or a change meanwhile, is among them.
        """
        with self._lock:
            with suppress(KafkalogError, OSError):  # reading meets it
                self._follow(segment, start, stop)
            return [*_joined(self._parts(since_ms, until_ms), start, stop)]

    def _follow(self, segment: AnySegment, start: int, stop: int) -> None:
        """Note the times from `start` on, or from before it, up to `stop`; begin again where the log was changed."""
        source = self._source
        is_same = self._is_same()
        if segment.base_offset != self._base_offset or truncation_count(source) != self._truncations or not is_same:
            self._begin(segment.base_offset, start)
        elif start < self._first:
            self._begin(segment.base_offset, segment.base_offset)
        truncations = self._truncations
        try:
            for chunk in batch_chunks(source, max(self._covered, source.log_start_offset), stop, sequential=True):
                times = least_and_largest(chunk)
                if self._view_end is not None:
                    self._view_end.note(chunk)
                self._take(_Piece(chunk.next_offset, *times, len(chunk.data)))
                self._covered = chunk.next_offset
        finally:
            if was_truncated(source, truncations):
                self._begin(-1, -1)

    def _is_same(self) -> bool:
        """Return False if what was read is gone, or if that cannot be known."""
        try:
            return self._view_end is None or self._view_end.is_same()
        except (KafkalogError, OSError):
            return False

    def _take(self, piece: _Piece) -> None:
        """Add a piece; small ones are joined, so that their number does not depend on how often the log is read."""
        if self._pieces and self._pieces[-1].size + piece.size <= PIECE_BYTES:
            last = self._pieces.pop()
            times = [one for one in (last, piece) if one.least <= one.largest]
            least = min((one.least for one in times), default=0)
            largest = max((one.largest for one in times), default=-1)
            piece = _Piece(piece.end, least, largest, last.size + piece.size)
        self._pieces.append(piece)

    def _parts(self, since_ms: int, until_ms: int) -> Iterator[tuple[int, int]]:
        begin = self._first
        for piece in self._pieces:
            if piece.least < until_ms and piece.largest >= since_ms:
                yield begin, piece.end
            begin = piece.end
        yield self._covered if self._pieces else -1, 2**63 - 1  # what is not noted


def _joined(parts: Iterator[tuple[int, int]], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the parts within [start, stop), those that touch as one."""
    first = last = start
    for begin, end in parts:
        begin, end = max(begin, start), min(end, stop)
        if begin >= end:
            continue
        if begin > last:
            if first < last:
                yield first, last
            first = begin
        last = end
    if first < last:
        yield first, last
