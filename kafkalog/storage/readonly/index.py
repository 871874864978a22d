"""Index files owned by another process, for mode "r": copied into memory and read as far as they are valid."""

from __future__ import annotations

import os
from typing import Final

from kafkalog._core.log.index import OffsetEntries, TimeEntries, growing_offset_entries, growing_time_entries
from kafkalog._core.log.values import OffsetPosition, TimestampOffset
from kafkalog.errors import CorruptIndex
from kafkalog.storage.index.preallocated_file import MAX_INDEX_BYTES
from kafkalog.storage.index.segment_index import OffsetKind, P, SegmentIndex, TimeKind
from kafkalog.util.fileio import OS, File, FileSystem

_CHUNK_ENTRIES: Final = 8192
_HINT: Final = "reads continue without it, from the start of the segment; its owner rebuilds it"


class IndexView(SegmentIndex[P]):
    """The entries of an index file as of the last `refresh`, in this process's own memory.

    The file is read with pread and never mapped: its owner may truncate it at any time, which crashes a process that
    reads a mapping. Its length does not give the number of entries, since the index of an active segment ends in
    free space: entries count only while they grow. Free space need not be zeros (format.md section 14, B1), so old
    entries of a truncated log can follow new ones. An entry is a hint that must be checked against the batch it
    names.

    An index that this process writes (`AbstractIndex`) is also searched in a copy. There the copy is right, and a
    file that differs is rewritten; here the file is right, and `refresh` updates the copy.

    `has_room` says that free space follows the entries: the file was not trimmed, as by a roll or a close.
    `problem` is None or the CorruptIndex that describes the damage. A file that is missing, unreadable or of an
    impossible length has no entries. Opening and refreshing raise nothing. Threads: look-ups at any time; `refresh`
    by one thread at a time.
    """

    __slots__ = ("_content", "_fs", "has_room", "path", "problem")

    def __init__(self, path: str | os.PathLike[str], base_offset: int, *, fs: FileSystem = OS) -> None:
        """Read the index at `path`."""
        super().__init__(base_offset)
        self.path = os.fspath(path)
        self.problem: CorruptIndex | None = None
        self.has_room = False
        self._fs = fs
        self._content = b""  # the entries that count; whole entries, growing
        self.refresh()

    def _growing(self, data: bytes, last: bytes) -> int:
        """Return the number of growing entries at the start of `data`, after the entry `last` (empty: none before)."""
        raise NotImplementedError

    def sanity_check(self) -> None:
        """Raise `problem` if the file is damaged."""
        if self.problem is not None:
            raise self.problem

    def refresh(self) -> None:
        """Read the entries added since the last read, or all entries if the last known one has changed.

        After a truncation of the log an old entry may still match: create a new view then.
        """
        self.has_room = False
        try:
            with self._fs.open_file(self.path, "r") as file:
                self.problem = self._read(file)
        except FileNotFoundError:
            self._forget()
            self.problem = CorruptIndex(f"the {self.kind} is missing", path=self.path, hint=_HINT)
        except OSError as error:
            self._forget()
            reason = error.strerror or str(error)
            self.problem = CorruptIndex(f"cannot read the {self.kind}: {reason}", path=self.path, hint=_HINT)
        self._entries.attach(self._content, len(self._content) // self.entry_size)

    def _forget(self) -> None:
        self._content = b""

    def _read(self, file: File) -> CorruptIndex | None:
        length, size = file.size(), self.entry_size
        if length % size or length > MAX_INDEX_BYTES:
            self._forget()
            return CorruptIndex(
                f"the {self.kind} is {length} bytes long, which is not a multiple of {size}, or is over 2 GiB",
                path=self.path,
                position=length // size * size,
                hint=_HINT,
            )
        last = self._content[-size:]
        if last and file.pread(size, len(self._content) - size) != last:
            self._forget()
        parts, end = [self._content], len(self._content)
        while end < length:
            data = file.pread(_CHUNK_ENTRIES * size, end)
            count = self._growing(data, parts[-1][-size:])
            if count:
                parts.append(data[: count * size])
                end += count * size
            if count < _CHUNK_ENTRIES:
                break
        self._content = b"".join(parts)
        self.has_room = end < length and not any(file.pread(size, length - size))
        return None

    def __repr__(self) -> str:
        state = f"{self._entries.count} entries" if self.problem is None else f"problem: {self.problem.message}"
        return f"<{type(self).__name__} {self.path} base offset {self.base_offset}, {state}>"


class OffsetIndexView(OffsetKind, IndexView[OffsetPosition]):
    """The `.index` file of another process."""

    __slots__ = ()
    _entries: OffsetEntries

    def _growing(self, data: bytes, last: bytes) -> int:
        before = OffsetEntries(last, 0, 1).entry(0) if last else ()
        return growing_offset_entries(data, *before)

    @property
    def last_offset(self) -> int:
        """Offset of the last entry; the base offset if there is none."""
        return self.lookup(2**63 - 1).offset


class TimeIndexView(TimeKind, IndexView[TimestampOffset]):
    """The `.timeindex` file of another process."""

    __slots__ = ()

    def _growing(self, data: bytes, last: bytes) -> int:
        before = TimeEntries(last, 0, 1).entry(0) if last else ()
        return growing_time_entries(data, *before)

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; (-1, base offset) if there is none."""
        return self.lookup(2**63 - 1)
