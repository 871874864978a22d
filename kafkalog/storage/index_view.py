"""Index files that another process owns, for mode "r": copied into memory, read as far as they make sense."""

from __future__ import annotations

import os
from typing import Final

from kafkalog._core.index import OffsetEntries, TimeEntries, growing_offset_entries, growing_time_entries
from kafkalog._core.values import OffsetPosition, TimestampOffset
from kafkalog.errors import CorruptIndex
from kafkalog.storage.preallocated_file import MAX_INDEX_BYTES
from kafkalog.storage.segment_index import OffsetKind, P, SegmentIndex, TimeKind
from kafkalog.util.fileio import OS, File, FileSystem

_CHUNK_ENTRIES: Final = 8192
_HINT: Final = "reads go on without it, from the start of the segment; its owner rebuilds it"


class IndexView(SegmentIndex[P]):
    """The entries of an index file at the last `refresh`, in memory of our own.

    The file is read with pread and never mapped: its owner may shorten it at any moment, which kills whoever reads a
    mapping of it. Its length says nothing either, since the index of an active segment ends in free room: entries
    count only while they grow. Free room need not be zeros (format.md section 14, B1), so old entries of a truncated
    log can follow new ones; an entry is advice, to be checked against the batch it names.

    `problem` is None or the CorruptIndex that says what is wrong with the file; a file that is missing, unreadable
    or of an impossible length has no entries. Nothing is raised by opening or refreshing.
    Threads: look-ups at any time; `refresh` by one thread at a time.
    """

    __slots__ = ("_content", "_fs", "_preallocated", "path", "problem")

    def __init__(
        self, path: str | os.PathLike[str], base_offset: int, *, fs: FileSystem = OS, preallocated: bool = True
    ) -> None:
        """Read the index at `path`.

        `preallocated=False` for a segment that was rolled: its index has no free room, so that anything after the
        growing entries is a `problem` (the growing ones are still used).
        """
        super().__init__(base_offset)
        self.path = os.fspath(path)
        self.problem: CorruptIndex | None = None
        self._fs = fs
        self._preallocated = preallocated
        self._content = b""  # the entries that count; whole entries, growing
        self.refresh()

    def _growing(self, data: bytes, last: bytes) -> int:
        """How many entries at the start of `data` grow, after the entry `last` (empty: from the first on)."""
        raise NotImplementedError

    def sanity_check(self) -> None:
        """Return when nothing is visibly wrong with the file, else raise its `problem`."""
        if self.problem is not None:
            raise self.problem

    def refresh(self) -> None:
        """Look at the file again: read on behind the known entries where the last of them still stands, else anew.

        After a truncation of the log an old entry may still stand there: make a new view then.
        """
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
                f"the {self.kind} is {length} bytes long, which is no multiple of {size} or over 2 GiB",
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
        if self._preallocated or len(self._content) >= length:
            return None
        return CorruptIndex(
            f"entries of the {self.kind} stop growing after {len(self._content) // size} of {length // size}",
            path=self.path,
            position=len(self._content),
            hint=_HINT,
        )

    def __repr__(self) -> str:
        state = f"{self._entries.count} entries" if self.problem is None else f"problem: {self.problem.message}"
        return f"<{type(self).__name__} {self.path} base offset {self.base_offset}, {state}>"


class OffsetIndexView(OffsetKind, IndexView[OffsetPosition]):
    """The `.index` of another process."""

    __slots__ = ()

    def _growing(self, data: bytes, last: bytes) -> int:
        before = OffsetEntries(last, 0, 1).entry(0) if last else ()
        return growing_offset_entries(data, *before)

    @property
    def last_offset(self) -> int:
        """The offset of the last entry; the base offset where there is none."""
        return self.lookup(2**63 - 1).offset


class TimeIndexView(TimeKind, IndexView[TimestampOffset]):
    """The `.timeindex` of another process."""

    __slots__ = ()

    def _growing(self, data: bytes, last: bytes) -> int:
        before = TimeEntries(last, 0, 1).entry(0) if last else ()
        return growing_time_entries(data, *before)

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; (-1, base offset) where there is none."""
        return self.lookup(2**63 - 1)
