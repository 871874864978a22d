"""Noticing that another process wrote the active segment again, and not only appended to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog._core.keys.key_walk import SegmentDigest
from kafkalog.errors import CorruptRecord
from kafkalog.sidecars.identity import FileStamp, digest_of, new_secret, stamp_of

if TYPE_CHECKING:
    from kafkalog.storage.readonly.view import LogView
    from kafkalog.storage.segment_reader import Chunk

_LAST_BYTES: Final = 61
"""Bytes of the last batch that was read, which are compared later: a v2 header."""


class ViewEnd:
    """The batches that were read of the active segment of a view, as a digest of their headers. Threads: one."""

    def __init__(self, view: LogView) -> None:
        self._view = view
        self._secret = new_secret()
        self._file: tuple[str, int, FileStamp] | None = None  # path, size and stamp of the active segment
        self._base_offset = -1  # of that segment
        self.forget()

    def forget(self) -> None:
        """Begin again: what was read is out of use."""
        self._digest = SegmentDigest(self._secret)
        self._path: str | None = None
        self._first = self._end = -1
        self._last = b""  # the beginning of the last batch, at self._last_position
        self._last_position = -1

    def note(self, chunk: Chunk) -> None:
        """Take a chunk that was read; those of one segment follow each other."""
        last = chunk.last - 1
        position = chunk.batches.position(chunk.first)
        if chunk.path != self._path or position != self._end:
            self.forget()
            self._path, self._first = chunk.path, position
        self._digest.take(chunk.data, chunk.batches, chunk.first, chunk.last, chunk.position)
        self._last_position, size = chunk.batches.position(last), chunk.batches.size(last)
        at = self._last_position - chunk.position
        self._last = bytes(chunk.data[at : at + min(size, _LAST_BYTES)])
        self._end = self._last_position + size

    def is_same(self) -> bool:
        """Return False if batches that were read are others by now, or if the segment that was active is gone.

        A file that grew or was rolled since the last call is taken to be as it was if the last of them is still there.
        """
        state = self._view.state
        active = state.active
        stat = active.stat()
        base, self._base_offset = self._base_offset, active.base_offset
        before, self._file = self._file, (active.path, stat.st_size, stamp_of(stat))
        if before is None:
            return True
        was = state.segments.get(base)
        if was is None or active.base_offset < base:
            return False  # the segment that was active is gone, and maybe offsets before it
        if before == self._file or self._path != was.path:
            return True
        if was is not active or stat.st_size > before[1]:
            return was.records.size >= self._end and self._last == was.records.read(
                self._last_position, len(self._last)
            )
        try:
            return digest_of(active, self._secret, self._first, self._end) == self._digest.value
        except CorruptRecord:
            return False
